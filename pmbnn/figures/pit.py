"""Probabilities that predictions gave to less than what was observed: uniform if calibrated."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.results.reading import by_target, values_of

GROUP = "test_predictions"

LEVEL = 0.95
"""Probability that the count of one bin lies within its band, where predictions are calibrated."""

MOST_BINS, EXPECTED = 20, 5
"""Bins at most, and the rows that each of them expects at least."""


def plot_pit(trace: xr.DataTree, title: str) -> Figure:
    """Histogram of the probability integral transform of test rows, and the band of a uniform one.

    A valley in the middle has predictions too narrow, a hill too wide, a slope biased ones. The
    band is that of each bin alone: one of twenty leaves it by chance. Several targets have a panel
    each.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group not what this needs.

    References
    ----------
    Gneiting, Balabdaoui and Raftery (2007), Probabilistic forecasts, calibration and sharpness,
    section 3.1.
    """
    of_targets = by_target(trace)
    figure = style.new_figure(5.6, 0.4 + 3.4 * len(of_targets))
    panels = figure.subplots(len(of_targets), squeeze=False)[:, 0]
    counted = []
    for axes, (name, own) in zip(panels, of_targets.items(), strict=True):
        pit = values_of(own, GROUP, "pit").astype(np.float64)
        left, bins = _draw_histogram(axes, pit)
        counted.append(f"{name}: " * bool(name) + f"{left} of {bins} bins outside")
        axes.set_title(name, fontsize=style.LABEL_SIZE, loc="left")
    panels[-1].set_xlabel("predicted probability of less than observed", fontsize=style.LABEL_SIZE)
    band = f"band: {LEVEL:.0%} of a bin's counts, were predictions calibrated"
    style.set_title(figure, f"{title}\n{band}; {'; '.join(counted)}")
    return figure


def _draw_histogram(axes: Axes, pit: np.ndarray) -> tuple[int, int]:
    """Draw one histogram; how many of its bins leave the band, and how many there are."""
    edges = np.linspace(0, 1, n_bins(len(pit)) + 1)
    counts, _ = np.histogram(pit, edges)
    low, high = uniform_counts(len(pit), len(counts))
    left = (counts < low) | (counts > high)
    colours = np.where(left, style.CLASS_COLOURS[1], style.CLASS_COLOURS[0])
    width = {"width": np.diff(edges), "align": "edge", "edgecolor": "white", "linewidth": 0.8}
    width["alpha"] = 0.75  # so that the band is seen through them
    axes.bar(edges[:-1], counts, color=colours, **width)
    axes.axhspan(low, high, color=style.GREY, alpha=0.25, linewidth=0, zorder=0)
    axes.axhline(len(pit) / len(counts), color=style.GREY, linewidth=1)
    axes.set_xlim(0, 1)
    axes.set_ylabel("test rows", fontsize=style.LABEL_SIZE)
    axes.tick_params(labelsize=style.TICK_SIZE)
    return int(left.sum()), len(counts)


def n_bins(rows: int) -> int:
    """Number of bins of so many rows."""
    return max(2, min(MOST_BINS, rows // EXPECTED))


def uniform_counts(rows: int, bins: int) -> tuple[int, int]:
    """Ends of the central interval of the rows in one of `bins`, where they are uniform."""
    from scipy.stats import binom

    low, high = binom(rows, 1 / bins).interval(LEVEL)
    return int(low), int(high)
