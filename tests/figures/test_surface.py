"""Maps of predicted numbers."""

import json

import numpy as np
import pytest
import xarray as xr
from tiers import slow_but

from pmbnn.figures import style
from pmbnn.figures.maps import plot_surface


def surface_trace(sd=0.5):
    """Numbers over a plane of other length each way, and two test rows, one beyond the scale."""
    x1, x2 = np.linspace(0, 4, 5), np.linspace(-1, 1, 3)
    mean = 10 * x1[:, None] + x2
    over = {"mean": mean, "epistemic_sd": np.full_like(mean, sd)}
    predictions = xr.Dataset(
        {name: (("x1", "x2"), values) for name, values in over.items()},
        {"x1": x1, "x2": x2},
        {"features": json.dumps(["age", "dose"])},
    )
    axis = "test_observation"
    test = xr.Dataset(
        {"x": ((axis, "feature"), [[1.0, 0.0], [3.0, 0.5]]), "target": (axis, [10.0, 99.0])}
    )
    return xr.DataTree.from_dict({"/predictions": predictions, "/test_predictions": test})


def test_mean_and_rows_share_a_scale_that_rows_beyond_do_not_stretch():
    left, right, *_ = plot_surface(surface_trace(), "title").axes
    assert (left.get_xlabel(), left.get_ylabel()) == ("age", "dose")
    (image,) = left.images
    np.testing.assert_array_equal(image.get_array()[:, 0], [-1, 0, 1])
    (rows,) = left.collections
    np.testing.assert_array_equal(rows.get_array(), [10, 99])
    assert image.get_clim() == rows.get_clim() == (-1, 41)
    assert right.images[0].get_clim() == (0, 0.5)


@pytest.mark.parametrize("sd", slow_but([0.0], [0.0, 1e-6, 3000.0]))
def test_any_uncertainty_can_be_drawn_also_none(tmp_path, sd):
    """A point has none."""
    figure = plot_surface(surface_trace(sd), "title")
    low, high = figure.axes[1].images[0].get_clim()
    assert low == 0 < high < np.inf
    style.save_figure(figure, tmp_path / "map.png")
