"""What was predicted of test rows beside what was observed there, where targets are numbers."""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.curves import MARGIN
from pmbnn.results.reading import group_of, values_of

GROUP = "test_predictions"

MOST_BARS = 300
"""Intervals that can be told apart; of more rows, evenly chosen ones have theirs."""


def plot_predicted_observed(trace: xr.DataTree, title: str) -> Figure:
    """Observed targets against predicted means, with central intervals of what is observed.

    An interval that does not reach the diagonal misses its target, and has another colour.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group not what this needs.
    """
    mean, target = (values_of(trace, GROUP, name) for name in ("mean", "target"))
    low, high = values_of(trace, GROUP, "total_interval", "bound", "test_observation")
    level = group_of(trace, GROUP).attrs["level"]
    missed = (target < low) | (target > high)
    figure = style.new_figure(5.4, 5.2)
    axes = figure.subplots()
    ends = _limits(np.concatenate([mean, target]))
    axes.plot(ends, ends, color=style.GREY, linewidth=1)
    shown = np.unique(np.linspace(0, len(mean) - 1, min(len(mean), MOST_BARS)).astype(int))
    for held, colour in ((~missed, style.CLASS_COLOURS[0]), (missed, style.CLASS_COLOURS[1])):
        of = shown[held[shown]]
        axes.hlines(target[of], low[of], high[of], color=colour, alpha=0.3, linewidth=1)
        axes.plot(mean[held], target[held], "o", color=colour, markersize=3, alpha=0.7)
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    axes.set_xlabel(f"predicted, with {level:.0%} intervals", fontsize=style.LABEL_SIZE)
    axes.set_ylabel("observed", fontsize=style.LABEL_SIZE)
    axes.tick_params(labelsize=style.TICK_SIZE)
    counted = f"{missed.sum()} of {len(target)} test rows outside their interval"
    style.set_title(figure, f"{title}\n{counted}")
    return figure


def _limits(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = MARGIN * (high - low) or 1.0
    return low - margin, high + margin
