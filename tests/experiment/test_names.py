"""Short names of specifications in lists; labels of cells are tested with the plan."""

import pytest

from pmbnn.experiment.cells import short_name


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"kind": "flatten"}, "flatten"),
        ({"kind": "max_pool", "size": 2}, "pool2"),
        (
            {"kind": "convolution", "filters": 32, "size": 5, "padding": "same"},
            "conv32x5.same",
        ),
        ({"kind": "rotated", "angle": 22.5}, "rotated22.5"),
        ({"kind": "rotated", "angle": 90.0, "folder": None}, "rotated90"),
        ({"kind": "noise", "seed": 1_000_000, "uniform": True}, "noise1000000.uniform"),
        ({"kind": "noise", "uniform": False}, "noise.no_uniform"),
    ],
)
def test_short_name(settings, name):
    assert short_name(settings) == name
