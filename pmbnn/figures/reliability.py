"""How often classes come true that were predicted with some probability."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.predictions import predictions_of
from pmbnn.prediction.metrics import BINS, expected_calibration_error
from pmbnn.results.reading import values_of

GROUP = "test_predictions"

LEVEL = 0.95
"""Confidence of the intervals of each bin's accuracy."""


class Bins(NamedTuple):
    """Predictions by their confidence; of the bins that have any, ``(bin,)`` each.

    Attributes
    ----------
    confidence, accuracy
        Means over a bin.
    low, high
        Interval of the accuracy.
    rows
        How many there are.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rows: np.ndarray


def plot_reliability(trace: xr.DataTree, title: str) -> Figure:
    """Accuracy of test rows against the probability of the predicted class, with intervals.

    Below the diagonal, predictions are surer than they are right. The bins are those of the
    calibration error; below stands how many rows each has.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group not what this needs.
    """
    found, label = predictions_of(trace, GROUP), values_of(trace, GROUP, "label")
    bins = reliability(found.confidence, found.predicted == label)
    figure = style.new_figure(5.2, 5.6)
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    start = 1 / len(found.classes)
    axes.plot([start, 1], [start, 1], color=style.GREY, linewidth=1)
    colour = style.CLASS_COLOURS[0]
    axes.vlines(bins.confidence, bins.low, bins.high, color=colour, linewidth=1.4)
    axes.plot(bins.confidence, bins.accuracy, "o", color=colour, markersize=5)
    axes.set(xlim=(start - 0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_ylabel("share predicted correctly", fontsize=style.LABEL_SIZE)
    axes.grid(color="#E5E5E5", linewidth=0.8)
    below.bar(bins.confidence, bins.rows, width=0.5 / BINS, color=colour)
    below.set_yscale("log")
    below.set_ylim(0.5, 2 * bins.rows.max())
    below.yaxis.set_major_formatter("{x:g}")
    below.set_ylabel("rows", fontsize=style.LABEL_SIZE)
    below.set_xlabel("probability of the predicted class", fontsize=style.LABEL_SIZE)
    for panel in (axes, below):
        panel.tick_params(labelsize=style.TICK_SIZE)
    error = expected_calibration_error(found.probability.astype(np.float64), label)
    note = f"{LEVEL:.0%} intervals of each bin; expected calibration error {error:.3f}"
    style.set_title(figure, f"{title}\n{note}, {len(label)} test rows")
    return figure


def reliability(confidence: np.ndarray, correct: np.ndarray) -> Bins:
    """Accuracy of predictions by their confidence, in bins of equal width.

    Parameters
    ----------
    confidence, correct
        Probability of the predicted class, and whether it was right, ``(observation,)``.

    References
    ----------
    Guo et al. (2017), On Calibration of Modern Neural Networks, section 2; the intervals are those
    of Wilson (1927), Probable inference, the law of succession, and statistical inference.
    """
    from scipy.stats import binomtest

    confidence = np.asarray(confidence, np.float64)
    # A confidence of exactly 1 belongs into the last bin.
    index = np.minimum((confidence * BINS).astype(int), BINS - 1)
    found = []
    for number in np.unique(index):
        own = index == number
        right, rows = int(correct[own].sum()), int(own.sum())
        ends = binomtest(right, rows).proportion_ci(LEVEL, method="wilson")
        found.append((confidence[own].mean(), right / rows, ends.low, ends.high, rows))
    return Bins(*map(np.array, zip(*found, strict=True)))
