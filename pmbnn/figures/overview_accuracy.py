"""Accuracy of every prior × hyperprior of one data set, with its standard error."""

import math
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.results.combinations import Combinations, Place

LINE = 0.24
"""Height of one combination, in inches."""

GAP = 0.8
"""Empty lines between two priors."""


class Line(NamedTuple):
    """One combination: its place in the table, height on the axis, colour and marker."""

    place: Place
    height: float
    colour: str
    marker: str


def plot_accuracy_overview(combinations: Combinations, title: str) -> Figure:
    """Mean accuracy over data seeds ± standard error, one line a combination.

    For synthetic data the best possible accuracy is marked, and a second panel shows the
    excess error: how much more often than the best classifier the fit errs on fresh points.
    """
    lines = _lines(combinations)
    synthetic = any(_known(combinations, line, "excess_error") for line in lines)
    height = LINE * (lines[-1].height + 2) + 1.3
    figure = style.new_figure(10.5 if synthetic else 7.5, max(2.6, height))
    panels = figure.subplots(1, 2 if synthetic else 1, sharey=True, squeeze=False)[0]
    _draw_points(panels[0], combinations, lines, "accuracy")
    panels[0].set_xlabel("test accuracy", fontsize=style.LABEL_SIZE)
    _label_lines(panels[0], combinations, lines)
    _mark_best(figure, panels[0], combinations, lines)
    if synthetic:
        _draw_points(panels[1], combinations, lines, "excess_error")
        panels[1].set_xlabel("excess error over the best possible", fontsize=style.LABEL_SIZE)
        panels[1].axvline(0.0, color=style.GREY, linestyle="--", linewidth=1)
    style.set_title(figure, f"{title}\n{_note(combinations)}")
    return figure


def _lines(combinations: Combinations) -> list[Line]:
    """Lines from the top down; a prior without scale has one only."""
    rows, columns = combinations.shape
    found: list[Line] = []
    height = 0.0
    for row in range(rows):
        for column in range(columns):
            place = (row, column)
            if row in combinations.without_scale and place not in combinations.records:
                continue
            colour = style.CLASS_COLOURS[column % len(style.CLASS_COLOURS)]
            colour = style.GREY if row in combinations.without_scale else colour
            found.append(Line(place, height, colour, style.MARKERS[column % len(style.MARKERS)]))
            height += 1
        height += GAP
    return found


def _known(combinations: Combinations, line: Line, name: str) -> bool:
    return math.isfinite(combinations.score(*line.place, name)[0])


def _draw_points(axes: Axes, combinations: Combinations, lines: list[Line], name: str) -> None:
    """Means with error bars; a word where there are none."""
    for line in lines:
        mean, error = combinations.score(*line.place, name)
        if math.isfinite(mean):
            bar = error if math.isfinite(error) else None
            axes.errorbar(
                mean, line.height, xerr=bar, color=line.colour, marker=line.marker,
                markersize=6, capsize=3, linestyle="none",
            )  # fmt: skip
        else:
            absent = {"x": 0.02, "va": "center", "transform": axes.get_yaxis_transform()}
            axes.text(y=line.height, s=combinations.absence(*line.place), color=style.GREY,
                      fontsize=style.TICK_SIZE, **absent)  # fmt: skip
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.08)
    axes.tick_params(axis="x", labelsize=style.TICK_SIZE)
    axes.tick_params(axis="y", length=0)


def _label_lines(axes: Axes, combinations: Combinations, lines: list[Line]) -> None:
    """Name of the hyperprior at every line, of the prior above each group."""
    names = [_line_name(combinations, line) for line in lines]
    axes.set_yticks([line.height for line in lines], names, fontsize=style.TICK_SIZE)
    axes.set_ylim(lines[-1].height + 0.8, -0.8)


def _line_name(combinations: Combinations, line: Line) -> str:
    row, column = line.place
    scale = "no scale" if row in combinations.without_scale else combinations.columns[column]
    done = len(combinations.finished(row, column))
    every = len(combinations.records.get(line.place, ()))
    failed = f" ({every - done} failed)" if 0 < done < every else ""
    return f"{combinations.rows[row]}, {scale}{failed} {combinations.marks(row, column)}".rstrip()


def _mark_best(figure: Figure, axes: Axes, combinations: Combinations, lines: list[Line]) -> None:
    """Line at the best possible accuracy, where the data's distribution is known."""
    known = [combinations.score(*line.place, "best_accuracy")[0] for line in lines]
    best = next((value for value in known if math.isfinite(value)), None)
    if best is None:
        return
    axes.axvline(
        best, color="black", linestyle="--", linewidth=1.2, label=f"best possible, {best:.3f}"
    )
    handles, labels = axes.get_legend_handles_labels()
    below = {"loc": "outside lower center", "frameon": False}
    figure.legend(handles, labels, fontsize=style.TICK_SIZE, **below)


def _note(combinations: Combinations) -> str:
    error = combinations.error_note or "one data seed, so no standard errors"
    return "\n".join(filter(None, [error, combinations.mark_notes]))
