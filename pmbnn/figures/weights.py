"""Weights and their scales: of each layer, of the last one, on the network, fixed and learned."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from pmbnn.core.numbers import number_text
from pmbnn.figures import style
from pmbnn.figures.training import first_and_last, step_name
from pmbnn.results.reading import (
    WEIGHT,
    away_from_zero,
    best_draws,
    central_interval,
    narrow_about_zero,
    values_of,
)
from pmbnn.results.tables import Combinations

COLUMNS = {"mean": "posterior means", "sd": "posterior sds"}

LEAST = 1e-3
"""Share of the highest bar from which a bin counts towards the limits of an axis."""


@style.with_sizes
def plot_weights(trace: xr.DataTree, title: str) -> Figure:
    """Histograms of posterior means and sds, a row for each layer's weights.

    Each is scaled to its own highest bar, for the sds of an early step are all but equal.

    Raises
    ------
    ValueError
        If the trace has no histograms in its group ``fit``.
    """
    density = {
        kind: values_of(trace, "fit", f"snapshot_{kind}_density", "snapshot", "tensor", "bin")
        for kind in COLUMNS
    }
    edges = {k: values_of(trace, "fit", f"{k}_edge", "tensor", "edge") for k in COLUMNS}
    steps = values_of(trace, "fit", "snapshot_step")
    names = [str(name) for name in values_of(trace, "fit", "tensor")]
    # Biases are too few for a histogram.
    tensors = [number for number, name in enumerate(names) if name.startswith("weight")]
    tensors, snapshots = tensors or list(range(len(names))), _shown_snapshots(trace, steps)
    labels = [step_name(steps[snapshot]) for snapshot in snapshots]
    figure = style.new_figure(9.0, 1.6 * len(tensors) + 1.4)
    panels = figure.subplots(len(tensors), 2, squeeze=False)
    for line, tensor in zip(panels, tensors, strict=True):
        for axes, kind in zip(line, COLUMNS, strict=True):
            _draw(axes, density[kind][snapshots, tensor], edges[kind][tensor], labels)
        line[0].set_ylabel(names[tensor].replace("_", " "))
    for axes, heading in zip(panels[0], COLUMNS.values(), strict=True):
        axes.set_title(heading)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=style.LABEL_SIZE, ncols=len(labels), **style.BELOW)
    style.set_title(figure, f"{title}\neach histogram is scaled to its own highest bar")
    return figure


def _shown_snapshots(trace: xr.DataTree, steps: np.ndarray) -> list[int]:
    """Indices of the early and the late histograms.

    They are of the steps at which examples were kept, where there are such, so that the
    figures belong together.
    """
    if "snapshot_examples" in trace.children:
        kept = values_of(trace, "snapshot_examples", "snapshot_step")
        chosen = kept[first_and_last(kept)]
        if np.isin(chosen, steps).all():
            return [int(np.flatnonzero(steps == step)[0]) for step in chosen]
    return first_and_last(steps)


def _draw(axes: Axes, heights: np.ndarray, edges: np.ndarray, labels: list[str]) -> None:
    """Draw densities over each other, all filled lightly, cut to where they are."""
    highest = heights.max(axis=1, keepdims=True)
    heights = np.divide(heights, highest, out=np.zeros(heights.shape), where=highest > 0)
    for row, (density, label) in enumerate(zip(heights, labels, strict=True)):
        colour = style.CLASS_COLOURS[row]
        axes.stairs(density, edges, fill=True, color=colour, alpha=0.25)
        axes.stairs(density, edges, color=colour, linewidth=1.2, label=label)
    seen = np.flatnonzero((heights > LEAST).any(axis=0))
    if len(seen):
        axes.set_xlim(edges[seen[0]], edges[seen[-1] + 1])
    axes.set(ylim=(0, 1.05), yticks=[])


# Posterior densities of the last layer's weights, one prior beside another


PRIORS = ("laplace", "cauchy")
"""The pair of which S1 says that one leaves few weights away from zero."""

MOST = 4
"""Hyperpriors up to which the panels can be read."""

MOST_WEIGHTS = 60
"""Weights drawn in a panel at most."""

KINDS = (
    ("narrow about zero", style.CLASS_COLOURS[0], "-"),
    ("neither", style.GREY, ":"),
    ("away from zero", style.CLASS_COLOURS[1], "-"),
)
"""Kinds of weights, as `pmbnn.results.reading` defines them, with their colours and lines."""


def shown_rows(combinations: Combinations) -> list[int]:
    """Rows of the table that are drawn: those of both priors, if both have results."""
    rows = {}
    for row, column in combinations.records:
        for record in combinations.finished(row, column):
            rows.setdefault(record.cell.prior.kind, row)
    return [rows[kind] for kind in PRIORS] if rows.keys() >= set(PRIORS) else []


@style.with_sizes
def plot_last_layer(
    combinations: Combinations, load: Callable[[str], np.ndarray], title: str
) -> Figure:
    """Densities of every weight of the last layer: Laplace above, Cauchy below.

    Hyperpriors go across, four at most. Of several data seeds the first that has results is
    shown; of a large layer, sixty weights from the lowest posterior mean to the highest.

    Parameters
    ----------
    combinations
        The cells of one data set, priors Laplace and Cauchy among them.
    load
        Draws ``(draw, weight)`` of the cell of that name.
    title
        What the figure is about; how to read it is added.
    """
    rows, columns = shown_rows(combinations), range(min(MOST, combinations.shape[1]))
    first_records = {
        (row, column): finished[0]
        for row, column in product(rows, columns)
        if (finished := combinations.finished(row, column))
    }
    draws = {place: load(record.name) for place, record in first_records.items()}
    figure = style.new_figure(2.7 * len(columns) + 0.8, 2.4 * len(rows) + 1.6)
    panels = figure.subplots(len(rows), len(columns), squeeze=False)
    for line, row in zip(panels, rows, strict=True):
        reach = max((_reach(draws[row, c]) for c in columns if (row, c) in draws), default=1.0)
        line[0].set_ylabel(f"{combinations.rows[row]}\ndensity")
        for axes, column in zip(line, columns, strict=True):
            if (row, column) in draws:
                _draw_weights(axes, draws[row, column], np.linspace(-reach, reach, 400))
            else:
                style.draw_empty(axes, combinations.absence(row, column))
    for column, axes in zip(columns, panels[0], strict=True):
        axes.set_title(f"{combinations.columns[column]}\n{axes.get_title()}")
    for axes in panels[-1]:
        axes.set_xlabel("weight")
    handles = [Line2D([], [], color=c, linestyle=line, label=kind) for kind, c, line in KINDS]
    figure.legend(handles=handles, ncols=len(handles), **style.BELOW)
    seeds = sorted({record.cell.data_seed for record in first_records.values()})
    seed = f"data seed {', '.join(map(str, seeds))}"
    note = f"posterior densities of the last layer's weights, {seed}; a line is a weight"
    if (most := max((d.shape[1] for d in draws.values()), default=0)) > MOST_WEIGHTS:
        note += f" ({MOST_WEIGHTS} of {most})"
    if (number := combinations.shape[1]) > MOST:
        note += f"; the first {MOST} of {number} hyperpriors"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _reach(draws: np.ndarray) -> float:
    """Distance from zero within which nearly all of every weight lies."""
    low, high = central_interval(draws, 0.98)
    return 1.1 * float(max(-low.min(), high.max()))


def _draw_weights(axes: Axes, draws: np.ndarray, at: np.ndarray) -> None:
    """Draw the kernel density of every weight, or a line at it where all draws are equal.

    Of many weights, evenly spaced ones in the order of their posterior means are drawn.
    """
    narrow, away = narrow_about_zero(draws), away_from_zero(draws)
    order = np.argsort(draws.mean(axis=0), kind="stable")
    count = min(len(order), MOST_WEIGHTS)
    for index in order[np.linspace(0, len(order) - 1, count).round().astype(int)]:
        _, colour, line = KINDS[2 if away[index] else 0 if narrow[index] else 1]
        values, look = draws[:, index], {"color": colour, "linestyle": line, "linewidth": 1.2}
        if np.ptp(values) > 0:
            axes.plot(at, density_of(values, at), **look)
        else:  # of a point fit
            axes.axvline(values[0], **look)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set(xlim=(at[0], at[-1]), ylim=(0, None))
    heading = f"{away.sum()} of {len(away)} away from zero, {narrow.sum()} narrow"
    axes.set_title(heading, fontsize=style.TICK_SIZE)


def density_of(draws: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Gaussian kernel density of draws, in Silverman's width.

    SciPy's takes several times as long: it solves a system of equations, of one weight here.
    """
    width = draws.std(ddof=1) * (0.75 * len(draws)) ** -0.2
    apart = (at[:, None] - draws) / width
    return np.exp(-0.5 * apart**2).mean(axis=1) / (width * np.sqrt(2 * np.pi))


# A fitted network twice: a number on every connection, and a distribution on every connection


MOST_UNITS = 3
"""Units of a layer that are drawn; with more, connections can no longer be told apart."""


def dense_weights(trace: xr.DataTree) -> list[np.ndarray]:
    """Draws of each dense layer's weights under the best restart, ``(draw, input, output)``.

    Of a network that begins with convolutions, the dense layers behind them.

    Raises
    ------
    ValueError
        If the trace has no group ``posterior``.
    """
    posterior = best_draws(trace)
    names = {int(m[1]): m[0] for name in posterior if (m := WEIGHT.fullmatch(str(name)))}
    draws = [posterior[names[layer]].transpose("draw", ...).values for layer in sorted(names)]
    return [array for array in draws if array.ndim == 3]


@style.with_sizes
def plot_network(trace: xr.DataTree, title: str) -> Figure:
    """Schematic of a deterministic network beside a Bayesian one, filled with a fit's weights.

    The numbers on the left are posterior means, which stand for the weights that a deterministic
    fit would find. The curves on the right are normal ones of every weight's posterior mean and
    standard deviation, all of a layer on one axis, with a tick at zero. Of wide layers the units
    with the largest outgoing weights are drawn. Biases are left out.

    Raises
    ------
    ValueError
        If the trace has no group ``posterior``.
    """
    layers = dense_weights(trace)
    sizes = [layers[0].shape[1], *(layer.shape[2] for layer in layers)]
    units = _shown_units(layers)
    kept = [len(shown) for shown in units]
    figure = style.new_figure(2 * (1.8 * len(layers) + 0.7), 1.25 * max(kept) + 1.5)
    left, right = figure.subplots(1, 2)
    for axes, heading in ((left, "a number on each connection"), (right, "a distribution on each")):
        axes.set_title(heading)
        _draw_units(axes, sizes, kept)
    for number, draws in enumerate(layers):
        shown = draws[:, units[number]][:, :, units[number + 1]]
        _write_numbers(left, number, shown)
        _draw_distributions(right, number, shown)
    note = "" if sizes == kept else f"; {MOST_UNITS} units of a layer at most are drawn"
    style.set_title(figure, f"{title}\ndeterministic beside Bayesian{note}")
    return figure


def _shown_units(layers: list[np.ndarray]) -> list[np.ndarray]:
    """Units of each layer that are drawn, ascending; of the outputs, the first."""
    sizes = [np.abs(draws.mean(axis=0)).sum(axis=1) for draws in layers]
    largest = [np.sort(np.argsort(-size, kind="stable")[:MOST_UNITS]) for size in sizes]
    return [*largest, np.arange(min(MOST_UNITS, layers[-1].shape[2]))]


def _heights(units: int) -> np.ndarray:
    """Heights of a layer's units, one apart, about zero."""
    return (units - 1) / 2 - np.arange(units)


def _draw_units(axes: Axes, sizes: list[int], kept: list[int]) -> None:
    """Draw every unit as a dot and every connection as a line; write how many are left out."""
    names = ["inputs", *(f"hidden {layer}" for layer in range(1, len(kept) - 1)), "outputs"]
    look = {"ha": "center", "fontsize": style.TICK_SIZE, "color": style.GREY}
    for layer, (size, units) in enumerate(zip(sizes, kept, strict=True)):
        heights = _heights(units)
        axes.text(layer, (max(kept) - 1) / 2 + 0.45, names[layer], **look)
        axes.plot(np.full(units, layer), heights, "o", color="black", markersize=9, zorder=3)
        if layer + 1 < len(kept):
            for ends in product(heights, _heights(kept[layer + 1])):
                axes.plot([layer, layer + 1], ends, color="#BBBBBB", linewidth=0.7)
        if size > units:
            axes.text(layer, heights[-1] - 0.35, f"{size - units} more", **look)
    middle = max(kept) / 2
    axes.set(xlim=(-0.4, len(kept) - 0.6), ylim=(-middle, middle + 0.2))
    axes.set_axis_off()


def _places(layer: int, inputs: int, outputs: int) -> list[tuple[float, float]]:
    """Points at which something is drawn on each connection, those of an input after another.

    A share 1 / (outputs + 1) of the way along, the connections of all units lie evenly spaced
    one above the other, so that nothing covers anything else.
    """
    share = 1 / (outputs + 1)
    ends = product(_heights(inputs), _heights(outputs))
    return [(layer + share, (1 - share) * start + share * end) for start, end in ends]


def _write_numbers(axes: Axes, layer: int, draws: np.ndarray) -> None:
    """Write the mean of every weight, of draws ``(draw, input, output)``, on its connection."""
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "#DDDDDD"}
    look = {"ha": "center", "va": "center", "fontsize": style.TICK_SIZE - 1}
    means = draws.mean(axis=0).ravel()
    for (x, y), mean in zip(_places(layer, *draws.shape[1:]), means, strict=True):
        axes.text(x, y, number_text(float(mean), digits=2, signed=True), bbox=box, zorder=4, **look)


def _draw_distributions(axes: Axes, layer: int, draws: np.ndarray) -> None:
    """Draw a normal curve of every weight's mean and sd, all of a layer on one axis of weights."""
    mean, sd = draws.mean(axis=0).ravel(), draws.std(axis=0).ravel()
    # All weights of a layer can be zero in every draw: any width will do for them.
    reach = 1.05 * float(np.max(np.abs(mean) + 3 * sd)) or 1.0
    # In sds: points that are the same for all would miss the curve of a weight that is well known.
    at = np.linspace(-3, 3, 61)
    curve = np.exp(-0.5 * at**2)
    width, height = 0.16, 0.8 / (draws.shape[2] + 1)
    box = {"facecolor": "white", "edgecolor": "#DDDDDD", "linewidth": 0.5, "zorder": 4}
    # The edge shows curves that are narrower than a pixel.
    fill = {"color": style.CLASS_COLOURS[0], "linewidth": 0.7, "zorder": 6}
    for (x, y), m, s in zip(_places(layer, *draws.shape[1:]), mean, sd, strict=True):
        bottom = y - height / 2
        axes.add_patch(Rectangle((x - width, bottom), 2 * width, height, **box))
        axes.vlines(x, bottom, bottom + 0.25 * height, color=style.GREY, linewidth=0.7, zorder=5)
        where = x + width * (m + s * at) / reach
        axes.fill_between(where, bottom, bottom + 0.9 * height * curve, **fill)


# Fixed scales of the weights beside learned ones, and where the learned ones go


FEWEST = 3
"""Fixed scales from which there is a curve to draw."""

MEASURES = {
    "accuracy": "test accuracy",
    "excess_error": "excess error",
    "excess_nll": "excess NLL (nats)",
}
"""Results that are drawn where cells have them; the excesses, which span decades, on a
logarithmic axis."""

MOST_TICKS = 8
"""Fixed scales that are named below a panel at most."""

LAYERS_APART = 0.25
"""Distance of the numbers of two layers, where that of two hyperpriors is at least 1."""

LINES = ("-", "--", "-.")
"""Lines of learned scales."""


class Row(NamedTuple):
    """One prior: columns of its fixed scales, ascending, and of its learned ones."""

    row: int
    fixed: dict[float, int]
    learned: list[int]


def comparable_rows(combinations: Combinations) -> list[Row]:
    """Priors with at least three fixed scales and a learned one."""
    rows = []
    for row in range(combinations.shape[0]):
        finished = [combinations.finished(row, column) for column in range(combinations.shape[1])]
        cells = {column: records[0].cell for column, records in enumerate(finished) if records}
        fixed = {c.scale: column for column, c in cells.items() if isinstance(c.scale, float | int)}
        learned = [column for column, c in cells.items() if c.has_scale and c.scale is None]
        if len(fixed) >= FEWEST and learned:
            rows.append(Row(row, dict(sorted(fixed.items())), learned))
    return rows


@style.with_sizes
def plot_scales(
    combinations: Combinations, load: Callable[[str], Mapping[str, float]], title: str
) -> Figure:
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
    first = rows[0].row, rows[0].learned[0]
    measures = {m: w for m, w in MEASURES.items() if np.isfinite(combinations.score(*first, m)[0])}
    scales = {
        (row.row, column): [load(r.name) for r in combinations.finished(row.row, column)]
        for row in rows
        for column in row.learned
    }
    apart = max(1.0, LAYERS_APART * max(len(set().union(*cells)) for cells in scales.values()))
    heights = [1.0] * len(measures) + [0.22 * apart * max(len(r.learned) for r in rows) + 0.1]
    figure = style.new_figure(4.3 * len(rows) + 1.0, 2.1 * sum(heights) + 1.6)
    panels = figure.subplots(
        len(heights), len(rows), sharex=True, sharey="row", squeeze=False, height_ratios=heights
    )
    for column, row in zip(panels.T, rows, strict=True):
        marks = combinations.marks(row.row, *row.fixed.values(), *row.learned)
        column[0].set_title(f"{combinations.rows[row.row]} {marks}".rstrip())
        for axes, measure in zip(column, measures, strict=False):
            _draw_measure(axes, combinations, row, measure)
        learned = {combinations.columns[c]: scales[row.row, c] for c in row.learned}
        _draw_learned(column[-1], learned, apart)
        column[-1].set_xlabel("scale of the prior")
    for axes, label in zip(panels[:, 0], (*measures.values(), "learned"), strict=True):
        axes.set_ylabel(label)
    fixed = sorted({scale for row in rows for scale in row.fixed})
    ticks = fixed[:: -(-len(fixed) // MOST_TICKS)]
    panels[0, 0].set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])  # all panels share them
    panels[0, 0].set_xticks([], minor=True)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, ncols=min(5, len(labels)), **style.BELOW)
    note = "fixed scales (black) beside learned ones; lowest: where each layer went"
    note += f"; {combinations.error_note or 'one data seed'}"
    style.set_title(figure, "\n".join(filter(None, [title, note, combinations.mark_notes])))
    return figure


def _draw_measure(axes: Axes, combinations: Combinations, row: Row, measure: str) -> None:
    """Draw one result: a curve of the fixed scales, a band for every learned one."""
    for number, column in enumerate(row.learned):
        mean, error = combinations.score(row.row, column, measure)
        colour, line = _colour(number), LINES[number % len(LINES)]
        if math.isfinite(error):
            axes.axhspan(mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        name = combinations.columns[column]
        axes.axhline(mean, color=colour, linewidth=1.4, linestyle=line, label=name)
    scores = np.array([combinations.score(row.row, c, measure) for c in row.fixed.values()])
    curve = {"color": "black", "marker": "o", "markersize": 4, "capsize": 3, "label": "fixed"}
    axes.errorbar(list(row.fixed), scores[:, 0], yerr=scores[:, 1], linewidth=1.2, **curve)
    axes.set_xscale("log")
    if measure.startswith("excess"):
        axes.set_yscale("log", nonpositive="clip")
    elif math.isfinite(best := combinations.score(row.row, row.learned[0], "best_accuracy")[0]):
        label = "best possible on fresh points"
        axes.axhline(best, color=style.GREY, linestyle=":", linewidth=1.2, label=label)
    axes.grid(linewidth=0.7)
    axes.set_axisbelow(True)


def _draw_learned(
    axes: Axes, learned: Mapping[str, Sequence[Mapping[str, float]]], apart: float
) -> None:
    """Write every layer's number at its learned scale, and draw the range over data seeds.

    ``learned`` has the scales of each cell by the name of the hyperprior; these are ``apart``.
    """
    for line, cells in enumerate(learned.values()):
        names, colour = sorted(set().union(*cells), key=layer_number), _colour(line)
        for number, name in enumerate(names, start=1):
            scales = np.array([cell[name] for cell in cells if name in cell])
            y = apart * line + LAYERS_APART * (number - (len(names) + 1) / 2)
            middle = float(np.exp(np.log(scales).mean()))
            axes.hlines(y, scales.min(), scales.max(), color=colour, linewidth=1.2)
            look = {"color": colour, "fontsize": style.TICK_SIZE, "ha": "center", "va": "center"}
            box = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
            axes.text(middle, y, str(number) if len(names) > 1 else "all", bbox=box, **look)
    axes.set_yticks(apart * np.arange(len(learned)), list(learned))
    axes.set_ylim(apart * (len(learned) - 0.4), -0.6 * apart)
    axes.grid(axis="x", linewidth=0.7)
    axes.set_axisbelow(True)


def layer_number(name: str) -> int:
    """Number of the layer that a learned scale is of: 10 of ``layer_10_scale``; 0 of a network."""
    digits = re.search(r"\d+", name)
    return int(digits[0]) if digits else 0


def _colour(number: int) -> str:
    return style.CLASS_COLOURS[number % len(style.CLASS_COLOURS)]
