"""What was predicted of test rows beside what was observed there, where targets are numbers."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.curves import MARGIN
from pmbnn.results.reading import by_target, group_of, values_of
from pmbnn.results.units import OF_TARGET

GROUP = "test_predictions"

MOST_BARS = 300
"""Intervals that can be told apart; of more rows, evenly chosen ones have theirs."""


def plot_predicted_observed(trace: xr.DataTree, title: str) -> Figure:
    """Observed targets against predicted means, with central intervals of what is observed.

    An interval that does not reach the diagonal misses its target, and has another colour. Several
    targets have a panel each.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group not what this needs.
    """
    of_targets, level = by_target(trace), group_of(trace, GROUP).attrs["level"]
    figure = style.new_figure(0.4 + 5 * len(of_targets), 5.2)
    panels = figure.subplots(1, len(of_targets), squeeze=False)[0]
    counted = []
    for axes, (name, own) in zip(panels, of_targets.items(), strict=True):
        missed, rows = _draw_rows(axes, own)
        counted.append(
            f"{name}: " * bool(name) + f"{missed} of {rows} test rows outside their interval"
        )
        axes.set_title(name, fontsize=style.LABEL_SIZE)
        words = f"predicted, with {level:.0%} intervals ({OF_TARGET})"
        axes.set_xlabel(words, fontsize=style.LABEL_SIZE)
    panels[0].set_ylabel(f"observed ({OF_TARGET})", fontsize=style.LABEL_SIZE)
    style.set_title(figure, f"{title}\n{'; '.join(counted)}")
    return figure


def _draw_rows(axes: Axes, trace: xr.DataTree) -> tuple[int, int]:
    """Draw the rows of one target; how many miss it, and how many there are."""
    mean, target = (values_of(trace, GROUP, name) for name in ("mean", "target"))
    low, high = values_of(trace, GROUP, "total_interval", "bound", "test_observation")
    missed = (target < low) | (target > high)
    ends = _limits(np.concatenate([mean, target]))
    axes.plot(ends, ends, color=style.GREY, linewidth=1)
    shown = np.unique(np.linspace(0, len(mean) - 1, min(len(mean), MOST_BARS)).astype(int))
    for held, colour in ((~missed, style.CLASS_COLOURS[0]), (missed, style.CLASS_COLOURS[1])):
        of = shown[held[shown]]
        axes.hlines(target[of], low[of], high[of], color=colour, alpha=0.3, linewidth=1)
        axes.plot(mean[held], target[held], "o", color=colour, markersize=3, alpha=0.7)
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    axes.tick_params(labelsize=style.TICK_SIZE)
    return int(missed.sum()), len(target)


def _limits(values: np.ndarray) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = MARGIN * (high - low) or 1.0
    return low - margin, high + margin
