"""Posterior densities of the last layer's weights, one prior beside another."""

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.results.combinations import Combinations, Place
from pmbnn.results.weights import away_from_zero, central_interval, narrow_about_zero

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
"""What a weight can be, its colour and line; `pmbnn.results.weights` says what is what."""


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
