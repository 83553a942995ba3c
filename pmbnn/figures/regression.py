"""Predicted numbers: curves along lines, observed against predicted values, PIT histograms.

Curves have the mean, bands, training rows and truth. Of one cell, a panel for each line, and each
of several targets; of several cells, a row for each.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
import xarray as xr
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
"""What is shaded, from the wider to the narrower one; the total includes the noise."""

DEVIATIONS = (("total_sd", ":", "total"), ("epistemic_sd", "--", "epistemic"))

MOST = 8
"""Cells of one sheet."""

WIDTH = 3.7
"""Of a panel, in inches, which what stands above it must not exceed: it would be made smaller."""

HANDLE = 0.5
"""Of what stands before the words of a legend, and free room behind them, in inches."""

MARGIN = 0.06
"""Free space above and below, in heights of what is shown."""


def plot_curves(trace: xr.DataTree, title: str) -> Figure:
    """One panel for each line: mean, central intervals, ± 2 sd, training rows and truth.

    Raises
    ------
    ValueError
        If the trace has no curves, or does not keep its training rows.
    """
    names, of_targets = curve_names(trace), by_target(trace)
    shape = len(of_targets), len(names)
    figure = style.new_figure(4.2 * len(names) + 0.6, 0.8 + 3.8 * len(of_targets))
    panels = figure.subplots(*shape, squeeze=False)
    for line, (target, own) in zip(panels, of_targets.items(), strict=True):
        for axes, name in zip(line, names, strict=True):
            draw_curve(axes, own, name)
            axes.set_ylim(limits([own], name))
            axes.set_title(range_words(own, name), fontsize=style.LABEL_SIZE)
            axes.set_xlabel(position_name(own, name), fontsize=style.LABEL_SIZE)
        line[0].set_ylabel(target or "y", fontsize=style.LABEL_SIZE)
    add_legend(figure, figure.axes[0])
    style.set_title(figure, title)
    return figure


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
    of_targets, names = [by_target(trace) for trace in traces[:MOST]], list(names)[:MOST]
    columns = list(product(of_targets[0], curve_names(traces[0])))
    headings = ["\n".join(style.title_lines(name, WIDTH, style.LABEL_SIZE)) for name in names]
    lines = sum(words.count("\n") for words in headings)
    height = 2.7 * len(names) + 1.4 + 1.2 * style.LABEL_SIZE / 72 * lines
    figure = style.new_figure(4.2 * len(columns) + 0.8, height)
    panels = figure.subplots(len(names), len(columns), squeeze=False, sharex="col", sharey="col")
    for column, (target, range_name) in enumerate(columns):
        shown = [own[target] for own in of_targets]
        for axes, trace in zip(panels[:, column], shown, strict=True):
            draw_curve(axes, trace, range_name)
        panels[0, column].set_ylim(limits(shown, range_name))
        words = f"{target}, " * bool(target) + range_words(shown[0], range_name)
        panels[-1, column].set_xlabel(words, fontsize=style.LABEL_SIZE)
    for line, words in zip(panels, headings, strict=True):
        line[0].set_title(words, fontsize=style.LABEL_SIZE, loc="left")
        line[0].set_ylabel("y", fontsize=style.LABEL_SIZE)
    add_legend(figure, panels[0, 0])
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
    """Everything that is known of one line."""
    curve = group_of(trace, name)
    x, mean = curve["x"].values, curve["mean"].values
    level = f"{100 * curve.attrs['level']:.0f} %"
    for interval, opacity, words in INTERVALS:
        low, high = values_of(trace, name, interval, "bound", "point")
        label = f"{level}, {words}"
        axes.fill_between(x, low, high, color=MEAN, alpha=opacity, linewidth=0, label=label)
    for deviation, line, words in DEVIATIONS:
        for sign in (-2, 2):
            label = f"± 2 sd, {words}" if sign > 0 else None
            there = mean + sign * curve[deviation].values
            axes.plot(x, there, color=MEAN, linestyle=line, linewidth=0.9, label=label)
    axes.plot(x, mean, color=MEAN, linewidth=1.8, label="mean")
    if "truth" in curve:
        axes.plot(x, curve["truth"].values, color=TRUTH, linewidth=1.2, label="truth")
    axes.plot(
        *rows_on(trace, name),
        "o",
        color="black",
        markersize=3,
        label="training rows",
        clip_on=False,
    )
    axes.set_xlim(x[0], x[-1])
    axes.grid(color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=style.TICK_SIZE)


def rows_on(trace: xr.DataTree, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Positions on a line that training rows are nearest to, and their targets.

    ``(observation,)`` each, in the units of the data.
    """
    x, y = training_points(trace)
    return positions_on(group_of(trace, name), x), y


def positions_on(curve: xr.Dataset, x: np.ndarray) -> np.ndarray:
    """Positions on a line that raw inputs ``(observation, feature)`` are nearest to."""
    # What has no direction is a range of the one input there is.
    return x @ curve["direction"].values if "direction" in curve else x[:, 0]


def position_name(trace: xr.DataTree, name: str) -> str:
    """What a position on a line is called."""
    return str(group_of(trace, name).attrs.get("position", "x"))


def limits(traces: Sequence[xr.DataTree], name: str) -> tuple[float, float]:
    """Limits of y that hold what is predicted and the training rows; truth may leave them."""
    shown = [rows_on(trace, name)[1] for trace in traces]
    for trace in traces:
        curve = group_of(trace, name)
        spread = 2 * curve["total_sd"].values
        shown += [curve["total_interval"].values.ravel(), curve["mean"].values - spread]
        shown += [curve["mean"].values + spread]
    values = np.concatenate(shown)
    low, high = float(values.min()), float(values.max())
    margin = MARGIN * (high - low) or 1.0
    return low - margin, high + margin


def range_words(trace: xr.DataTree, name: str) -> str:
    """Positions on a line in words: ``x from −5 to 5``."""
    x = values_of(trace, name, "x")
    return f"{position_name(trace, name)} from {x[0]:.3g} to {x[-1]:.3g}".replace("-", "−")


def add_legend(figure: Figure, axes: Axes) -> None:
    """What the lines and shades of a panel are, below everything."""
    handles, labels = axes.get_legend_handles_labels()
    widest = max(style.words_width(label, style.TICK_SIZE) for label in labels) + HANDLE
    beside = max(1, min(4, int(figure.get_figwidth() / widest)))
    below = {"loc": "outside lower center", "ncols": beside, "frameon": False}
    figure.legend(handles, labels, fontsize=style.TICK_SIZE, **below)


# What was predicted of test rows beside what was observed there, where targets are numbers


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


# Probabilities that predictions gave to less than what was observed: uniform if calibrated


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
