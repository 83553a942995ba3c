"""Weights and their scales: of each layer, of the last one, on the network, fixed and learned."""

import math
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.training import first_and_last, step_name
from pmbnn.results.reading import (
    away_from_zero,
    best_draws,
    central_interval,
    narrow_about_zero,
    values_of,
)
from pmbnn.results.tables import Combinations, Place

COLUMNS = {"mean": "posterior means", "sd": "posterior sds"}

LEAST = 1e-3
"""Share of the highest bar from which a bin counts as part of what is shown of an axis."""


def shown_tensors(names: list[str]) -> list[int]:
    """Places of the weights, without biases, which are too few for a histogram."""
    weights = [at for at, name in enumerate(names) if name.startswith("weight")]
    return weights or list(range(len(names)))


def shown_snapshots(trace: xr.DataTree) -> list[int]:
    """Places of the early and the late histograms.

    They are of the steps at which examples were kept, where there are such, so that the
    figures belong together.

    Raises
    ------
    ValueError
        If the trace has no snapshots in its group ``fit``.
    """
    steps = values_of(trace, "fit", "snapshot_step")
    if "snapshot_examples" in trace.children:
        asked = values_of(trace, "snapshot_examples", "snapshot_step")
        chosen = asked[first_and_last(asked)]
        if np.isin(chosen, steps).all():
            return [int(np.flatnonzero(steps == step)[0]) for step in chosen]
    return first_and_last(steps)


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
    tensors, snapshots = shown_tensors(names), shown_snapshots(trace)
    figure = style.new_figure(9.0, 1.6 * len(tensors) + 1.4)
    panels = figure.subplots(len(tensors), 2, squeeze=False)
    for line, tensor in zip(panels, tensors, strict=True):
        for axes, kind in zip(line, COLUMNS, strict=True):
            heights = density[kind][snapshots, tensor]
            labels = [step_name(steps[at]) for at in snapshots]
            _draw(axes, heights, edges[kind][tensor], labels)
        line[0].set_ylabel(names[tensor].replace("_", " "), fontsize=style.LABEL_SIZE)
    for axes, words in zip(panels[0], COLUMNS.values(), strict=True):
        axes.set_title(words, fontsize=style.LABEL_SIZE)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    below = {"loc": "outside lower center", "ncols": len(labels), "frameon": False}
    figure.legend(handles, labels, fontsize=style.LABEL_SIZE, **below)
    style.set_title(figure, f"{title}\neach histogram is scaled to its own highest bar")
    return figure


def _draw(axes: Axes, heights: np.ndarray, edges: np.ndarray, labels: list[str]) -> None:
    """Densities over each other, all filled lightly, cut to where they are."""
    highest = heights.max(axis=1, keepdims=True)
    heights = np.divide(heights, highest, out=np.zeros(heights.shape), where=highest > 0)
    for row, (density, label) in enumerate(zip(heights, labels, strict=True)):
        colour = style.CLASS_COLOURS[row]
        axes.stairs(density, edges, fill=True, color=colour, alpha=0.25)
        axes.stairs(density, edges, color=colour, linewidth=1.2, label=label)
    seen = np.flatnonzero((heights > LEAST).any(axis=0))
    if len(seen):
        axes.set_xlim(edges[seen[0]], edges[seen[-1] + 1])
    axes.set_ylim(0, 1.05)
    axes.set_yticks([])
    axes.tick_params(labelsize=style.TICK_SIZE)


# Posterior densities of the last layer's weights, one prior beside another


PRIORS = ("laplace", "cauchy")
"""The pair of which the report says that one leaves few weights away from zero."""

MOST = 4
"""Hyperpriors up to which the panels can be read."""

MOST_WEIGHTS = 60
"""Weights drawn in a panel at most."""

KINDS = (
    ("narrow about zero", style.CLASS_COLOURS[0], "-"),
    ("neither", style.GREY, ":"),
    ("away from zero", style.CLASS_COLOURS[1], "-"),
)
"""What a weight can be, its colour and line; `pmbnn.results.reading` says what is what."""


def shown_rows(combinations: Combinations) -> list[int]:
    """Rows of the table that are drawn: those of both priors, if both have results."""
    rows = {}
    for row, column in combinations.records:
        for record in combinations.finished(row, column):
            rows.setdefault(record.cell.prior.kind, row)
    return [rows[kind] for kind in PRIORS] if rows.keys() >= set(PRIORS) else []


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
    places = [[(row, column) for column in columns] for row in rows]
    shown = {p: combinations.finished(*p)[:1] for line in places for p in line}
    draws = {p: load(found[0].name) for p, found in shown.items() if found}
    figure = style.new_figure(2.7 * len(columns) + 0.8, 2.4 * len(rows) + 1.6)
    panels = figure.subplots(len(rows), len(columns), squeeze=False)
    for line, axes_line in zip(places, panels, strict=True):
        _draw_row(axes_line, combinations, line, draws)
    for column, axes in zip(columns, panels[0], strict=True):
        name = combinations.columns[column]
        axes.set_title(f"{name}\n{axes.get_title()}", fontsize=style.LABEL_SIZE)
    for axes in panels[-1]:
        axes.set_xlabel("weight", fontsize=style.LABEL_SIZE)
    _add_legend(figure)
    seeds = sorted({found[0].cell.data_seed for found in shown.values() if found})
    words = f"data seed {', '.join(map(str, seeds))}"
    note = f"posterior densities of the last layer's weights, {words}; a line is a weight"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _draw_row(
    line: np.ndarray,
    combinations: Combinations,
    places: list[Place],
    draws: Mapping[Place, np.ndarray],
) -> None:
    """Panels of one prior, on one axis of weights."""
    held = [draws[place] for place in places if place in draws]
    reach = max((_reach(d) for d in held), default=1.0)
    name = combinations.rows[places[0][0]]
    line[0].set_ylabel(f"{name}\ndensity", fontsize=style.LABEL_SIZE)
    for axes, place in zip(line, places, strict=True):
        if place in draws:
            _draw_weights(axes, draws[place], np.linspace(-reach, reach, 400))
        else:
            style.draw_empty(axes, combinations.absence(*place))


def _reach(draws: np.ndarray) -> float:
    """Distance from zero within which nearly all of every weight lies."""
    low, high = central_interval(draws, 0.98)
    return 1.1 * float(max(-low.min(), high.max()))


def _draw_weights(axes: Axes, draws: np.ndarray, at: np.ndarray) -> None:
    """Gaussian kernel density of every weight, or a line at it where all draws are equal."""
    narrow, away = narrow_about_zero(draws), away_from_zero(draws)
    for index in _shown_weights(draws):
        _, colour, line = KINDS[2 if away[index] else 0 if narrow[index] else 1]
        own, stroke = draws[:, index], {"color": colour, "linestyle": line, "linewidth": 1.2}
        if np.ptp(own) > 0:
            axes.plot(at, density_of(own, at), **stroke)
        else:  # of a point fit
            axes.axvline(own[0], **stroke)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set(xlim=(at[0], at[-1]), ylim=(0, None))
    axes.tick_params(labelsize=style.TICK_SIZE)
    words = f"{away.sum()} of {len(away)} away from zero, {narrow.sum()} narrow"
    axes.set_title(words, fontsize=style.TICK_SIZE)


def density_of(draws: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Gaussian kernel density of draws, in Silverman's width.

    SciPy's takes several times as long: it solves a system of equations, of one weight here.
    """
    width = draws.std(ddof=1) * (0.75 * len(draws)) ** -0.2
    apart = (at[:, None] - draws) / width
    return np.exp(-0.5 * apart**2).mean(axis=1) / (width * np.sqrt(2 * np.pi))


def _shown_weights(draws: np.ndarray) -> np.ndarray:
    """All weights, or evenly spaced ones in the order of their posterior means."""
    order = np.argsort(draws.mean(axis=0), kind="stable")
    count = min(len(order), MOST_WEIGHTS)
    return order[np.linspace(0, len(order) - 1, count).round().astype(int)]


def _add_legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=c, linestyle=line, label=k) for k, c, line in KINDS]
    below = {"loc": "outside lower center", "ncols": len(handles), "frameon": False}
    figure.legend(handles=handles, fontsize=style.TICK_SIZE, **below)


# A fitted network twice: a number on every connection, and a distribution on every connection


MOST_UNITS = 3
"""Units of a layer that are drawn; with more, connections can no longer be told apart."""

WEIGHT = re.compile(r"weight_(\d+)")


def dense_weights(trace: xr.DataTree) -> list[np.ndarray]:
    """Draws of each dense layer's weights under the best restart, ``(draw, input, output)``.

    Of a network that begins with convolutions, the dense layers behind them.

    Raises
    ------
    ValueError
        If the trace has no group ``posterior``.
    """
    posterior = best_draws(trace)
    found = {int(m[1]): str(m[0]) for n in posterior if (m := WEIGHT.fullmatch(str(n)))}
    draws = [posterior[found[layer]].transpose("draw", ...).values for layer in sorted(found)]
    return [array for array in draws if array.ndim == 3]


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
    for axes, words in ((left, "a number on each connection"), (right, "a distribution on each")):
        axes.set_title(words, fontsize=style.LABEL_SIZE)
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
    """Every unit as a dot, every connection as a line, and how many units are left out."""
    names = ["inputs", *(f"hidden {layer}" for layer in range(1, len(kept) - 1)), "outputs"]
    words = {"ha": "center", "fontsize": style.TICK_SIZE, "color": style.GREY}
    for layer, (size, units) in enumerate(zip(sizes, kept, strict=True)):
        heights = _heights(units)
        axes.text(layer, (max(kept) - 1) / 2 + 0.45, names[layer], **words)
        axes.plot(np.full(units, layer), heights, "o", color="black", markersize=9, zorder=3)
        if layer + 1 < len(kept):
            for start in heights:
                for end in _heights(kept[layer + 1]):
                    axes.plot([layer, layer + 1], [start, end], color="#BBBBBB", linewidth=0.7)
        if size > units:
            axes.text(layer, heights[-1] - 0.35, f"{size - units} more", **words)
    middle = max(kept) / 2
    axes.set(xlim=(-0.4, len(kept) - 0.6), ylim=(-middle, middle + 0.2))
    axes.set_axis_off()


def _places(draws: np.ndarray) -> np.ndarray:
    """Where along and how high each connection is written on, ``(input, output, 2)``.

    A share 1 / (outputs + 1) of the way along, the connections of all units lie evenly spaced
    one above the other, so that nothing covers anything else.
    """
    inputs, outputs = draws.shape[1:]
    share = 1 / (outputs + 1)
    start, end = np.meshgrid(_heights(inputs), _heights(outputs), indexing="ij")
    return np.stack([np.full(start.shape, share), (1 - share) * start + share * end], axis=-1)


def _write_numbers(axes: Axes, layer: int, draws: np.ndarray) -> None:
    means = draws.mean(axis=0)
    box = {"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "#DDDDDD"}
    for place, mean in zip(_places(draws).reshape(-1, 2), means.ravel(), strict=True):
        axes.text(layer + place[0], place[1], f"{mean:+.1f}", ha="center", va="center",
                  fontsize=style.TICK_SIZE - 1, bbox=box, zorder=4)  # fmt: skip


def _draw_distributions(axes: Axes, layer: int, draws: np.ndarray) -> None:
    """A normal curve of every weight's mean and sd, all of a layer on one axis of weights."""
    from matplotlib.patches import Rectangle

    mean, sd = draws.mean(axis=0).ravel(), draws.std(axis=0).ravel()
    reach = 1.05 * float(np.max(np.abs(mean) + 3 * sd))
    at = np.linspace(-1, 1, 121)
    width, height = 0.16, 0.8 / (draws.shape[2] + 1)
    for place, m, s in zip(_places(draws).reshape(-1, 2), mean, sd, strict=True):
        x, bottom = layer + place[0], place[1] - height / 2
        curve = np.exp(-0.5 * ((at * reach - m) / max(s, 1e-9)) ** 2)
        corner = (x - width, bottom)
        box = {"facecolor": "white", "edgecolor": "#DDDDDD", "linewidth": 0.5, "zorder": 4}
        axes.add_patch(Rectangle(corner, 2 * width, height, **box))
        axes.vlines(x, bottom, bottom + 0.25 * height, color=style.GREY, linewidth=0.7, zorder=5)
        axes.fill_between(x + width * at, bottom, bottom + 0.9 * height * curve,
                          color=style.CLASS_COLOURS[0], linewidth=0, zorder=6)  # fmt: skip


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
        if len(fixed) >= FEWEST and learned:
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
