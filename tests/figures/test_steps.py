"""Steps of a fit."""

import numpy as np
import pytest

from pmbnn.figures.steps import first_and_last, step_name


@pytest.mark.parametrize(
    ("steps", "places"),
    [
        ([400, 6000], [0, 1]),
        ([0, 400, 6000], [1, 2]),
        ([0, 6000], [1]),
        ([0], [0]),
        ([5, 6, 7], [0, 2]),
    ],
)
def test_the_first_after_the_start_and_the_last(steps, places):
    assert first_and_last(np.array(steps)) == places


def test_names():
    assert step_name(np.int64(6000)) == "step 6,000"
