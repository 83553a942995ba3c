"""Predicted numbers: curves along lines, observed against predicted values, PIT histograms.

Curves have the mean, bands, training rows and truth. Of one cell, a panel for each line, and each
of several targets; of several cells, a row for each.
"""

import math
from collections.abc import Sequence
from itertools import product

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.image_sheets import training_points
from pmbnn.results.reading import by_target, group_of, values_of
from pmbnn.results.tables import OF_TARGET

MEAN, TRUTH = style.CLASS_COLOURS[0], style.CLASS_COLOURS[1]

INTERVALS = (
    ("total_interval", 0.15, "total"),
    ("output_interval", 0.35, "epistemic"),
)
"""Shaded intervals, from the wider to the narrower one; the total includes the noise."""

DEVIATIONS = (("total_sd", ":", "total"), ("epistemic_sd", "--", "epistemic"))

MOST = 8
"""Cells of one sheet."""

WIDTH = 3.7
"""Width of a panel's title at most, in inches: a longer one would make the panel smaller."""

HANDLE = 0.5
"""Room for the sample before each text of a legend, and behind it, in inches."""

MARGIN = 0.06
"""Free space above and below, in heights of what is shown."""


@style.with_sizes
def plot_curves(trace: xr.DataTree, title: str) -> Figure:
    """One panel for each line: mean, central intervals, ± 2 sd, training rows and truth.

    Raises
    ------
    ValueError
        If the trace has no curves, or does not keep its training rows.
    """
    names, traces = curve_names(trace), by_target(trace)
    figure = style.new_figure(4.2 * len(names) + 0.6, 0.8 + 3.8 * len(traces))
    panels = figure.subplots(len(traces), len(names), squeeze=False)
    for line, (target, own) in zip(panels, traces.items(), strict=True):
        for axes, name in zip(line, names, strict=True):
            draw_curve(axes, own, name)
            axes.set(ylim=limits([own], name), title=range_words(own, name))
            axes.set_xlabel(position_name(own, name))
        line[0].set_ylabel(target or "y")
    add_legend(figure, figure.axes[:1])
    style.set_title(figure, title)
    return figure


@style.with_sizes
def plot_compared_curves(traces: Sequence[xr.DataTree], names: Sequence[str], title: str) -> Figure:
    """Curves of every cell; each column has one scale, so that bands can be compared by eye.

    Parameters
    ----------
    names
        Of the cells, in the order of their traces; at most `MOST` of both are shown.

    Raises
    ------
    ValueError
        If there is no trace, or one has no curves.
    """
    if not traces:
        raise ValueError("`traces` must not be empty.")
    cells = [by_target(trace) for trace in traces[:MOST]]
    columns = list(product(cells[0], curve_names(traces[0])))
    headings = ["\n".join(style.title_lines(n, WIDTH, style.LABEL_SIZE)) for n in names[:MOST]]
    breaks = sum(heading.count("\n") for heading in headings)
    height = 2.7 * len(headings) + 1.4 + 1.2 * style.LABEL_SIZE / 72 * breaks
    figure = style.new_figure(4.2 * len(columns) + 0.8, height)
    panels = figure.subplots(len(headings), len(columns), squeeze=False, sharex="col", sharey="col")
    for column, (target, name) in zip(panels.T, columns, strict=True):
        shown = [by_name[target] for by_name in cells]
        for axes, trace in zip(column, shown, strict=True):
            draw_curve(axes, trace, name)
        column[0].set_ylim(limits(shown, name))
        column[-1].set_xlabel(f"{target}, " * bool(target) + range_words(shown[0], name))
    for line, heading in zip(panels, headings, strict=True):
        line[0].set_title(heading, loc="left")
        line[0].set_ylabel("y")
    add_legend(figure, panels[0, :1])
    style.set_title(figure, title)
    return figure


def curve_names(trace: xr.DataTree) -> list[str]:
    """Groups of a trace that hold curves, in order.

    Raises
    ------
    ValueError
        If there are none.
    """
    names = sorted(name for name in trace.children if name.startswith("curve_"))
    if not names:
        raise ValueError("The trace must have a group `curve_1`.")
    return names


def draw_curve(axes: Axes, trace: xr.DataTree, name: str) -> None:
    """Draw the prediction on one line, the truth where it is known, and the training rows."""
    curve = group_of(trace, name)
    x, mean = curve["x"].values, curve["mean"].values
    level = f"{100 * curve.attrs['level']:.0f} %"
    for interval, opacity, kind in INTERVALS:
        low, high = values_of(trace, name, interval, "bound", "point")
        label = f"{level}, {kind}"
        axes.fill_between(x, low, high, color=MEAN, alpha=opacity, linewidth=0, label=label)
    for deviation, line, kind in DEVIATIONS:
        for sign, label in ((-2, None), (2, f"± 2 sd, {kind}")):
            y = mean + sign * curve[deviation].values
            axes.plot(x, y, color=MEAN, linestyle=line, linewidth=0.9, label=label)
    axes.plot(x, mean, color=MEAN, linewidth=1.8, label="mean")
    if "truth" in curve:
        axes.plot(x, curve["truth"].values, color=TRUTH, linewidth=1.2, label="truth")
    look = {"color": "black", "markersize": 3, "clip_on": False}
    axes.plot(*rows_on(trace, name), "o", label="training rows", **look)
    axes.set_xlim(x[0], x[-1])
    axes.grid(True)
    axes.set_axisbelow(True)


def rows_on(trace: xr.DataTree, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Positions on a line that training rows are nearest to, and their targets.

    ``(observation,)`` each, in the units of the data.
    """
    x, y = training_points(trace)
    return positions_on(group_of(trace, name), x), y


def positions_on(curve: xr.Dataset, x: np.ndarray) -> np.ndarray:
    """Positions on a line that raw inputs ``(observation, feature)`` are nearest to."""
    # A line without a direction is a range of the one input there is.
    return x @ curve["direction"].values if "direction" in curve else x[:, 0]


def position_name(trace: xr.DataTree, name: str) -> str:
    """Name of a position on a line."""
    return str(group_of(trace, name).attrs.get("position", "x"))


def limits(traces: Sequence[xr.DataTree], name: str) -> tuple[float, float]:
    """Limits of y that hold what is predicted and the training rows; truth may leave them."""
    shown = [rows_on(trace, name)[1] for trace in traces]
    for trace in traces:
        curve = group_of(trace, name)
        mean, spread = curve["mean"].values, 2 * curve["total_sd"].values
        shown += [curve["total_interval"].values.ravel(), mean - spread, mean + spread]
    return with_margin(np.concatenate(shown))


def with_margin(values: np.ndarray) -> tuple[float, float]:
    """Ends of an axis that holds all finite values, with free space beyond them."""
    # Noise with hardly more than two degrees of freedom has no finite standard deviation.
    finite = values[np.isfinite(values)]
    low, high = float(finite.min()), float(finite.max())
    margin = MARGIN * (high - low) or 1.0
    return low - margin, high + margin


def range_words(trace: xr.DataTree, name: str) -> str:
    """Positions on a line in words: ``x from −5 to 5``."""
    x = values_of(trace, name, "x")
    # So many that ends of years, or of other numbers far from zero, are told apart.
    digits = 3 + max(0, math.floor(math.log10(np.abs(x).max() / (np.ptp(x) or 1.0) or 1.0)))
    low, high = (f"{end:.{digits}g}".replace("-", "−") for end in (x[0], x[-1]))
    return f"{position_name(trace, name)} from {low} to {high}"


def add_legend(figure: Figure, panels: Sequence[Axes], most: int = 4) -> None:
    """Add a legend of the lines and shades of some panels, each once, in columns that fit."""
    named: dict[str, Artist] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            named.setdefault(label, handle)
    widest = max(style.text_width(label, style.TICK_SIZE) for label in named) + HANDLE
    columns = max(1, min(most, int(figure.get_figwidth() / widest)))
    figure.legend(named.values(), named, ncols=columns, **style.BELOW)


# What was predicted of test rows beside what was observed there, where targets are numbers


GROUP = "test_predictions"

MOST_BARS = 300
"""Intervals that can be told apart; of more rows, evenly chosen ones have theirs."""


@style.with_sizes
def plot_predicted_observed(trace: xr.DataTree, title: str) -> Figure:
    """Observed targets against predicted means, with central intervals of what is observed.

    An interval that does not reach the diagonal misses its target, and has another colour. Several
    targets have a panel each.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group not what this needs.
    """
    traces, level = by_target(trace), group_of(trace, GROUP).attrs["level"]
    figure = style.new_figure(0.4 + 5 * len(traces), 5.2)
    panels = figure.subplots(1, len(traces), squeeze=False)[0]
    notes = []
    for axes, (name, own) in zip(panels, traces.items(), strict=True):
        missed = _draw_rows(axes, own)
        note = f"{missed.sum()} of {len(missed)} test rows outside their interval"
        notes.append(f"{name}: " * bool(name) + note)
        axes.set_title(name)
        axes.set_xlabel(f"predicted, with {level:.0%} intervals ({OF_TARGET})")
    panels[0].set_ylabel(f"observed ({OF_TARGET})")
    style.set_title(figure, f"{title}\n{'; '.join(notes)}")
    return figure


def _draw_rows(axes: Axes, trace: xr.DataTree) -> np.ndarray:
    """Draw the rows of one target; whether each is outside its interval, ``(observation,)``."""
    mean, target = (values_of(trace, GROUP, name) for name in ("mean", "target"))
    low, high = values_of(trace, GROUP, "total_interval", "bound", "test_observation")
    missed = (target < low) | (target > high)
    ends = with_margin(np.concatenate([mean, target]))
    axes.plot(ends, ends, color=style.GREY, linewidth=1)
    shown = np.unique(np.linspace(0, len(mean) - 1, min(len(mean), MOST_BARS)).astype(int))
    for rows, colour in ((~missed, style.CLASS_COLOURS[0]), (missed, style.CLASS_COLOURS[1])):
        bars = shown[rows[shown]]
        axes.hlines(target[bars], low[bars], high[bars], color=colour, alpha=0.3, linewidth=1)
        axes.plot(mean[rows], target[rows], "o", color=colour, markersize=3, alpha=0.7)
    axes.set(xlim=ends, ylim=ends, aspect="equal")
    return missed


# Probabilities that predictions gave to less than what was observed: uniform if calibrated


LEVEL = 0.95
"""Probability that the count of one bin lies within its band, where predictions are calibrated."""

MOST_BINS, EXPECTED = 20, 5
"""Bins at most, and the rows that each of them expects at least."""


@style.with_sizes
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
    traces = by_target(trace)
    figure = style.new_figure(5.6, 0.4 + 3.4 * len(traces))
    panels = figure.subplots(len(traces), squeeze=False)[:, 0]
    notes = []
    for axes, (name, own) in zip(panels, traces.items(), strict=True):
        outside = _draw_histogram(axes, values_of(own, GROUP, "pit").astype(np.float64))
        note = f"{outside.sum()} of {len(outside)} bins outside"
        notes.append(f"{name}: " * bool(name) + note)
        axes.set_title(name, loc="left")
    panels[-1].set_xlabel("predicted probability of less than observed")
    band = f"band: {LEVEL:.0%} of a bin's counts, were predictions calibrated"
    style.set_title(figure, f"{title}\n{band}; {'; '.join(notes)}")
    return figure


def _draw_histogram(axes: Axes, pit: np.ndarray) -> np.ndarray:
    """Draw one histogram; whether the count of each bin is outside the band, ``(bin,)``."""
    counts, edges = np.histogram(pit, np.linspace(0, 1, n_bins(len(pit)) + 1))
    low, high = uniform_counts(len(pit), len(counts))
    outside = (counts < low) | (counts > high)
    colours = np.where(outside, style.CLASS_COLOURS[1], style.CLASS_COLOURS[0])
    look = {"edgecolor": "white", "linewidth": 0.8, "alpha": 0.75}  # the band is seen through them
    axes.bar(edges[:-1], counts, width=np.diff(edges), align="edge", color=colours, **look)
    axes.axhspan(low, high, color=style.GREY, alpha=0.25, linewidth=0, zorder=0)
    axes.axhline(len(pit) / len(counts), color=style.GREY, linewidth=1)
    axes.set(xlim=(0, 1), ylabel="test rows")
    return outside


def n_bins(rows: int) -> int:
    """Number of bins of so many rows."""
    return max(2, min(MOST_BINS, rows // EXPECTED))


def uniform_counts(rows: int, bins: int) -> tuple[int, int]:
    """Ends of the central interval of the rows in one of `bins`, where they are uniform."""
    from scipy.stats import binom

    low, high = binom(rows, 1 / bins).interval(LEVEL)
    return int(low), int(high)
