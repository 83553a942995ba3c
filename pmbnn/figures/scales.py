"""Fixed scales of the weights beside learned ones, and where the learned ones go."""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.results.combinations import Combinations

LEAST = 3
"""Fixed scales from which there is a curve to draw."""

MEASURES = {
    "accuracy": "test accuracy",
    "excess_error": "excess error",
    "excess_nll": "excess NLL (nats)",
}
"""Results that are drawn where cells have them; the excesses, which span decades, on a
logarithmic axis."""

Load = Callable[[str], Mapping[str, float]]


class Row(NamedTuple):
    """One prior: columns of its fixed scales, ascending, and of its learned ones."""

    row: int
    fixed: dict[float, int]
    learned: list[int]


def comparable_rows(combinations: Combinations) -> list[Row]:
    """Priors with at least three fixed scales and a learned one."""
    found = []
    for row in range(combinations.shape[0]):
        fixed, learned = {}, []
        for column in range(combinations.shape[1]):
            records = combinations.finished(row, column)
            cell = records[0].cell if records else None
            if cell and isinstance(cell.scale, float | int):
                fixed[cell.scale] = column
            elif cell and cell.has_scale and cell.scale is None:
                learned.append(column)
        if len(fixed) >= LEAST and learned:
            found.append(Row(row, dict(sorted(fixed.items())), learned))
    return found


def plot_scales(combinations: Combinations, load: Load, title: str) -> Figure:
    """Results against the fixed scale, with a band for every learned one; a column a prior.

    Means over data seeds ± standard errors. Below them, the posterior median of the scale of
    every layer under each hyperprior: geometric mean over data seeds, and range.

    Parameters
    ----------
    combinations
        The cells of one data set; see `comparable_rows`.
    load
        Learned scales of the cell of that name.
    title
        What the figure is about; how to read it is added.
    """
    rows = comparable_rows(combinations)
    measures = [m for m in MEASURES if _is_known(combinations, rows[0], m)]
    heights = [1.0] * len(measures) + [0.22 * max(len(r.learned) for r in rows) + 0.1]
    figure = style.new_figure(4.3 * len(rows) + 1.0, 2.1 * sum(heights) + 1.6)
    panels = figure.subplots(
        len(heights), len(rows), sharex=True, sharey="row", squeeze=False, height_ratios=heights
    )
    for axes_column, row in zip(panels.T, rows, strict=True):
        marks = combinations.marks(row.row, *row.fixed.values(), *row.learned)
        words = f"{combinations.rows[row.row]} {marks}".rstrip()
        axes_column[0].set_title(words, fontsize=style.LABEL_SIZE)
        for axes, measure in zip(axes_column, measures, strict=False):
            _draw_measure(axes, combinations, row, measure)
        _draw_learned(axes_column[-1], combinations, row, load)
        axes_column[-1].set_xlabel("scale of the prior", fontsize=style.LABEL_SIZE)
    for axes, measure in zip(panels[:, 0], measures, strict=False):
        axes.set_ylabel(MEASURES[measure], fontsize=style.LABEL_SIZE)
    panels[-1, 0].set_ylabel("learned", fontsize=style.LABEL_SIZE)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    below = {"loc": "outside lower center", "ncols": min(5, len(labels)), "frameon": False}
    figure.legend(handles, labels, fontsize=style.TICK_SIZE, **below)
    style.set_title(figure, f"{title}\n{_note(combinations)}")
    return figure


def _is_known(combinations: Combinations, row: Row, measure: str) -> bool:
    return math.isfinite(combinations.score(row.row, row.learned[0], measure)[0])


def _note(combinations: Combinations) -> str:
    note = "fixed scales (black) beside learned ones; lowest: where each layer went"
    note += f"; {combinations.error_note or 'one data seed'}"
    return "\n".join(filter(None, [note, combinations.mark_notes]))


def _draw_measure(axes: Axes, combinations: Combinations, row: Row, measure: str) -> None:
    """One result: a curve of the fixed scales, a band for every learned one."""
    for place, column in enumerate(row.learned):
        mean, error = combinations.score(row.row, column, measure)
        if math.isfinite(error):
            axes.axhspan(mean - error, mean + error, color=_colour(place), alpha=0.15, linewidth=0)
        words = combinations.columns[column]
        axes.axhline(mean, color=_colour(place), linewidth=1.4, linestyle=_line(place), label=words)
    scores = np.array([combinations.score(row.row, c, measure) for c in row.fixed.values()])
    bars = np.where(np.isfinite(scores[:, 1]), scores[:, 1], 0.0)
    curve = {"color": "black", "marker": "o", "markersize": 4, "capsize": 3, "label": "fixed"}
    axes.errorbar(list(row.fixed), scores[:, 0], yerr=bars, linewidth=1.2, **curve)
    axes.set_xscale("log")
    if measure.startswith("excess"):
        axes.set_yscale("log", nonpositive="clip")
    else:
        _mark_best(axes, combinations, row)
    axes.grid(color="#E5E5E5", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=style.TICK_SIZE)


def _mark_best(axes: Axes, combinations: Combinations, row: Row) -> None:
    best, _ = combinations.score(row.row, row.learned[0], "best_accuracy")
    if math.isfinite(best):
        words = "best possible on fresh points"
        axes.axhline(best, color=style.GREY, linestyle=":", linewidth=1.2, label=words)


def _draw_learned(axes: Axes, combinations: Combinations, row: Row, load: Load) -> None:
    """Every layer's learned scale as its number, with the range over data seeds."""
    for place, column in enumerate(row.learned):
        cells = [load(record.name) for record in combinations.finished(row.row, column)]
        names = sorted(set().union(*cells))
        for layer, name in enumerate(names, start=1):
            scales = np.array([cell[name] for cell in cells if name in cell])
            height = place + 0.25 * (layer - (len(names) + 1) / 2)
            middle = float(np.exp(np.log(scales).mean()))
            axes.hlines(height, scales.min(), scales.max(), color=_colour(place), linewidth=1.2)
            word = str(layer) if len(names) > 1 else "all"
            box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
            axes.text(middle, height, word, color=_colour(place), fontsize=style.TICK_SIZE,
                      ha="center", va="center", bbox=box)  # fmt: skip
    names = [combinations.columns[column] for column in row.learned]
    axes.set_yticks(range(len(names)), names, fontsize=style.TICK_SIZE)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=style.TICK_SIZE)


def _colour(place: int) -> str:
    return style.CLASS_COLOURS[place % len(style.CLASS_COLOURS)]


def _line(place: int) -> str:
    return ("-", "--", "-.")[place % 3]
