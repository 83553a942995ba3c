"""Histograms of the probability integral transform, beside what was predicted and observed."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.collections import LineCollection
from scipy import stats

from pmbnn.figures.regression import n_bins, plot_pit, plot_predicted_observed, uniform_counts

AXIS = "test_observation"


def trace_of(width=1.0, rows=400):
    """Predictions with normal noise that is `width` times as wide as what is observed."""
    rng = np.random.default_rng(0)
    mean = rng.normal(20, 3, rows)
    target = mean + rng.standard_normal(rows)
    pit = stats.norm(mean, width).cdf(target)
    interval = np.stack([mean - 1.96 * width, mean + 1.96 * width])
    arrays = {"mean": (AXIS, mean), "target": (AXIS, target), "pit": (AXIS, pit)}
    arrays["total_interval"] = (("bound", AXIS), interval)
    group = xr.Dataset(arrays, {"bound": ["low", "high"]}, {"level": 0.95})
    return xr.DataTree.from_dict({"/test_predictions": group})


def bars(figure):
    return np.array([patch.get_height() for patch in figure.axes[0].patches[:20]])


@pytest.mark.parametrize(("width", "outside"), [(1.0, range(4)), (0.5, range(8, 21))])
def test_bins_outside_the_band_are_counted(width, outside, words):
    figure = plot_pit(trace_of(width), "toy")
    assert bars(figure).sum() == 400
    (title,) = (text for text in words(figure) if text.startswith("toy"))
    assert int(title.split("; ")[-1].split()[0]) in outside
    if width < 1:  # too narrow: a valley
        assert bars(figure)[[0, -1]].min() > 2 * bars(figure)[5:15].max()


def test_the_band_holds_the_counts_of_a_uniform_variable():
    low, high = uniform_counts(400, 20)
    law = stats.binom(400, 1 / 20)
    assert law.cdf(high) - law.cdf(low - 1) >= 0.95
    assert law.cdf(low - 1) <= 0.025 < law.cdf(low)


def test_few_rows_have_few_bins():
    assert [n_bins(rows) for rows in (3, 30, 100, 5000)] == [2, 6, 20, 20]


def test_intervals_that_miss_are_counted_and_coloured(words):
    trace = trace_of(0.5)
    figure = plot_predicted_observed(trace, "toy")
    test = trace["test_predictions"]
    low, high = test["total_interval"].values
    missed = int(np.sum((test["target"] < low) | (test["target"] > high)))
    assert missed > 60
    (title,) = (text for text in words(figure) if text.startswith("toy"))
    assert f"{missed} of 400 test rows outside their interval" in title
    diagonal, held, not_held = figure.axes[0].lines
    assert list(diagonal.get_xdata()) == list(diagonal.get_ydata())
    assert len(not_held.get_xdata()) == missed == 400 - len(held.get_xdata())
    drawn = [len(c.get_segments()) for c in figure.axes[0].collections]
    assert all(isinstance(c, LineCollection) for c in figure.axes[0].collections)
    assert sum(drawn) == 300


@pytest.mark.parametrize("plot", [plot_pit, plot_predicted_observed])
def test_what_is_missing_is_named(plot):
    with pytest.raises(ValueError, match="test_predictions"):
        plot(xr.DataTree(), "toy")
