"""How uncertain a fit is of all held-out images, and whether it errs where it expects to."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pmbnn.figures import style
from pmbnn.figures.predictions import held_out_group, predictions_of, rows_name
from pmbnn.results.reading import values_of

VARIANCE = "variance over draws, summed over classes"
RATE = "expected error rate"

VARIANCE_BINS = np.logspace(-6, 0, 37)
"""The variance cannot reach 1. What is below the first edge is counted in the first bin."""

RATE_BINS = np.linspace(0.0, 1.0, 21)
NO_ERROR = -0.1
"""Where the bar of an expected error rate of exactly zero stands: clear of the next one."""

RIGHT, WRONG = style.CLASS_COLOURS[:2]
COUNTS_FROM = 0.7
"""Lower end of the counts, on a logarithmic scale: a bar of 1 must be seen."""


class Uncertainty(NamedTuple):
    """Two measures of uncertainty of every image, with its true class and correctness.

    ``variance`` is over posterior draws, of each class's probability, summed over classes;
    ``error_rate`` is the share of draws that say another class than the predicted one.
    """

    variance: np.ndarray
    error_rate: np.ndarray
    label: np.ndarray
    right: np.ndarray


def uncertainty_of(trace: xr.DataTree, group: str) -> Uncertainty:
    """Uncertainty of the images of a group.

    Raises
    ------
    ValueError
        If the trace does not have the group, or the group not what this needs.
    """
    predictions = predictions_of(trace, group)
    label, rate = (values_of(trace, group, name) for name in ("label", "error_rate"))
    variance = np.sum(predictions.sd.astype(np.float64) ** 2, axis=1)
    return Uncertainty(variance, rate, label, predictions.predicted == label)


def plot_uncertainty(trace: xr.DataTree, title: str) -> Figure:
    """Variance over classes and expected error rate of all held-out images.

    Above, their histograms for images that are classified correctly and for others; below,
    both by true class, the expected error rate beside the actual one. Validation images are
    shown where the trace keeps them, else those of the test rows.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    group = held_out_group(trace)
    found = uncertainty_of(trace, group)
    names = predictions_of(trace, group).classes
    figure = style.new_figure(10.5, 7.4)
    panels = figure.subplots(2, 2)
    _draw_variances(panels[0, 0], found)
    _draw_rates(panels[0, 1], found)
    _draw_variance_of_classes(panels[1, 0], found, names)
    _draw_rates_of_classes(panels[1, 1], found, names)
    for axes in panels.flat:
        axes.tick_params(labelsize=style.TICK_SIZE)
    style.set_title(figure, f"{title}\n{len(found.label)} {rows_name(group)} images")
    return figure


def _draw_variances(axes: Axes, found: Uncertainty) -> None:
    clipped = np.maximum(found.variance, VARIANCE_BINS[0])
    for values, style_of in _parts(clipped, found.right):
        axes.hist(values, VARIANCE_BINS, **style_of)
    axes.set_xscale("log")
    axes.set_xlabel(f"{VARIANCE} (at least $10^{{-6}}$)", fontsize=style.LABEL_SIZE)
    _finish_counts(axes, found.right)


def _draw_rates(axes: Axes, found: Uncertainty) -> None:
    zero = found.error_rate == 0
    width = RATE_BINS[1]
    edges = [NO_ERROR - width / 2, NO_ERROR + width / 2, *RATE_BINS]
    placed = np.where(zero, NO_ERROR, found.error_rate)
    for values, style_of in _parts(placed, found.right):
        axes.hist(values, edges, **style_of)
    axes.set_xticks([NO_ERROR, *RATE_BINS[::4]], ["exactly 0", "", "0.2", "0.4", "0.6", "0.8", "1"])
    axes.set_xlabel(RATE, fontsize=style.LABEL_SIZE)
    _finish_counts(axes, found.right)


def _parts(values: np.ndarray, right: np.ndarray):
    """Mistakes filled, and correct ones as an outline that does not hide them."""
    yield values[~right], {"color": WRONG, "alpha": 0.75}
    yield values[right], {"histtype": "step", "color": RIGHT, "linewidth": 1.4}


def _finish_counts(axes: Axes, right: np.ndarray) -> None:
    axes.set_yscale("log")
    axes.set_ylim(bottom=COUNTS_FROM)
    axes.set_ylabel("images (logarithmic scale)", fontsize=style.LABEL_SIZE)
    handles = [
        Patch(facecolor="none", edgecolor=RIGHT, label=f"correct ({right.sum()})"),
        Patch(color=WRONG, alpha=0.75, label=f"misclassified ({(~right).sum()})"),
    ]
    axes.legend(handles=handles, fontsize=style.TICK_SIZE)


def _draw_variance_of_classes(axes: Axes, found: Uncertainty, names: tuple[str, ...]) -> None:
    clipped = np.maximum(found.variance, VARIANCE_BINS[0])
    groups = [clipped[found.label == index] for index in range(len(names))]
    axes.boxplot(
        groups, positions=range(len(names)), whis=(5, 95), showfliers=False, widths=0.6,
        patch_artist=True, boxprops={"facecolor": "#CFE2F1"}, medianprops={"color": "black"},
    )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylabel(VARIANCE, fontsize=style.LABEL_SIZE)
    axes.set_title("quartiles, and 5 to 95 % of the images", fontsize=style.LABEL_SIZE)
    _name_classes(axes, names)


def _draw_rates_of_classes(axes: Axes, found: Uncertainty, names: tuple[str, ...]) -> None:
    bars = {
        "expected error rate": (found.error_rate, "#7FB2D9"),
        "actual error rate": (~found.right, WRONG),
    }
    for side, (label, (values, colour)) in zip((-0.2, 0.2), bars.items(), strict=True):
        heights = [
            100 * values[found.label == index].mean() if (found.label == index).any() else np.nan
            for index in range(len(names))
        ]
        axes.bar(np.arange(len(names)) + side, heights, 0.4, color=colour, label=label)
    axes.set_ylabel("mean over images, in %", fontsize=style.LABEL_SIZE)
    axes.legend(fontsize=style.TICK_SIZE)
    _name_classes(axes, names)


def _name_classes(axes: Axes, names: tuple[str, ...]) -> None:
    axes.set_xticks(range(len(names)), names)
    axes.set_xlabel("true class", fontsize=style.LABEL_SIZE)
