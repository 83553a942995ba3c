"""Reliability diagrams: bins, their intervals, and what stands above them."""

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from pmbnn.figures.classification import plot_reliability, reliability


def test_bins_by_hand():
    confidence = np.array([0.51, 0.52, 0.99, 0.98, 1.0, 1.0])
    correct = np.array([True, False, True, True, True, False])
    found = reliability(confidence, correct)
    np.testing.assert_allclose(found.confidence, [0.515, 0.9925])
    np.testing.assert_allclose(found.accuracy, [0.5, 0.75])
    np.testing.assert_array_equal(found.rows, [2, 4])
    # Wilson's interval: where the score test of a share does not reject it.
    z = stats.norm.ppf(0.975)
    for p, n, low, high in zip(found.accuracy, found.rows, found.low, found.high, strict=True):
        for end in (low, high):
            assert abs(p - end) == pytest.approx(z * np.sqrt(end * (1 - end) / n))


def test_the_figure_of_two_classes(words):
    rng = np.random.default_rng(0)
    p = rng.beta(0.6, 0.6, 500)
    label = (rng.random(500) < p).astype(int)
    both = np.stack([1 - p, p], axis=1).astype("f4")
    axes = ("test_observation", "output")
    arrays = {"probability": (axes, both), "sd": (axes, 0 * both), "label": (axes[0], label)}
    group = xr.Dataset(arrays, {"output": ["0", "1"]})
    figure = plot_reliability(xr.DataTree.from_dict({"/test_predictions": group}), "toy")
    diagram, below = figure.axes
    assert sum(patch.get_height() for patch in below.patches) == 500
    (intervals,) = diagram.collections
    ends = np.array([segment[:, 1] for segment in intervals.get_segments()])
    confidence = np.array([segment[0, 0] for segment in intervals.get_segments()])
    # Labels are drawn with what is predicted: intervals of 95 % hold it, or nearly all of them.
    assert np.sum((ends[:, 0] > confidence) | (ends[:, 1] < confidence)) <= 1
    assert any("500 test rows" in text for text in words(figure))


def test_what_is_missing_is_named():
    with pytest.raises(ValueError, match="test_predictions"):
        plot_reliability(xr.DataTree(), "toy")
