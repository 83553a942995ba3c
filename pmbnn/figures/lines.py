"""The function along a line across a gap between training rows, as each method has it."""

from collections.abc import Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from pmbnn.figures import style
from pmbnn.results.lines import LIMIT, PUBLISHED, AlongLine, Told
from pmbnn.results.names import combination_title, pretty

WIDTH, HEIGHT = 2.9, 2.5
"""Of a panel, in inches."""

TICKS = 0.4
"""Of a panel's width, for the numbers beside it."""

DEVIATIONS = 2
"""Standard deviations that a band reaches to either side of the mean."""

MARGIN = 0.08
"""Free space above and below, in heights of what is shown."""

NAMES = {
    "mclmc": "MCLMC",
    "nuts": "NUTS",
    "smc": "SMC",
    LIMIT: "infinite width (Gaussian process)",
    PUBLISHED: "published",
}
"""Of methods in words, where they are not as settings have them."""


def plot_lines(lines: Sequence[AlongLine], title: str) -> Figure:
    """A row for each posterior and a panel for each method: mean and two standard deviations.

    The noise is not included. The last panel of a row holds the standard deviations of all; what
    was published is a dashed line in every panel.

    Raises
    ------
    ValueError
        If nothing is told along any line.
    """
    methods = list(dict.fromkeys(t.method for line in lines for t in line.told))
    methods = [method for method in methods if method != PUBLISHED]
    if not methods:
        raise ValueError("`lines` must have what some method says.")
    colours = dict(zip(methods, cycle(style.CLASS_COLOURS), strict=False))
    columns = len(methods) + 1
    figure = style.new_figure(WIDTH * columns + 0.6, HEIGHT * len(lines) + 1.2)
    panels = figure.subplots(len(lines), columns, squeeze=False, sharex=True)
    for row, line in zip(panels, lines, strict=True):
        for axes, method in zip(row, methods, strict=False):
            _draw_method(axes, line, method, colours[method])
        _draw_deviations(row[-1], line, colours)
        words = style.title_lines(_row_title(line), HEIGHT, style.TICK_SIZE)
        row[0].set_ylabel("\n".join(words), fontsize=style.TICK_SIZE)
    for axes, method in zip(panels[0], methods, strict=False):
        # Wider than its panel, it would make that smaller.
        words = style.title_lines(_method_name(method), WIDTH - TICKS, style.LABEL_SIZE)
        axes.set_title("\n".join(words), fontsize=style.LABEL_SIZE)
    panels[0, -1].set_title("standard deviations", fontsize=style.LABEL_SIZE)
    for axes in panels[-1]:
        axes.set_xlabel(lines[0].name, fontsize=style.LABEL_SIZE)
    _add_legend(figure, panels)
    style.set_title(figure, title)
    return figure


def _draw_method(axes: Axes, line: AlongLine, method: str, colour: str) -> None:
    """What one method says, beside what was published and the training rows."""
    told = next((t for t in line.told if t.method == method), None)
    if told is None:
        style.draw_empty(axes, "not known")
        return
    low, high = _band(told)
    words = f"mean ± {DEVIATIONS} sd, without noise"
    axes.fill_between(line.position, low, high, color=colour, alpha=0.3, linewidth=0, label=words)
    axes.plot(line.position, told.mean, color=colour, linewidth=1.6)
    for published in (t for t in line.told if t.method == PUBLISHED):
        dashed = {"color": "black", "linestyle": "--", "linewidth": 0.9}
        low, high = _band(published)
        axes.plot(line.position, published.mean, **dashed, label=NAMES[PUBLISHED])
        axes.plot(line.position, low, **dashed)
        axes.plot(line.position, high, **dashed)
    axes.plot(*line.rows, "o", color="black", markersize=2, label="training rows, projected")
    axes.set_ylim(_limits(line))
    _finish(axes, line)


def _draw_deviations(axes: Axes, line: AlongLine, colours: dict[str, str]) -> None:
    """Standard deviations of every method, on a logarithmic axis."""
    for told in line.told:
        published = told.method == PUBLISHED
        how = (
            {"color": "black", "linestyle": "--"} if published else {"color": colours[told.method]}
        )
        label = _method_name(told.method)
        axes.plot(line.position, told.sd, linewidth=0.9 if published else 1.6, label=label, **how)
    axes.set_yscale("log")
    # Two numbers a decade, as numbers: a range may hold one power of ten only.
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    _finish(axes, line)


def _finish(axes: Axes, line: AlongLine) -> None:
    axes.set_xlim(line.position[0], line.position[-1])
    axes.grid(color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=style.TICK_SIZE)


def _band(told: Told) -> tuple[np.ndarray, np.ndarray]:
    return told.mean - DEVIATIONS * told.sd, told.mean + DEVIATIONS * told.sd


def _limits(line: AlongLine) -> tuple[float, float]:
    """Limits of y that hold every method's band and the rows: one scale for all panels of a row."""
    shown = np.concatenate([line.rows[1], *(end for told in line.told for end in _band(told))])
    low, high = float(shown.min()), float(shown.max())
    margin = MARGIN * (high - low)
    return low - margin, high + margin


def _row_title(line: AlongLine) -> str:
    """What sets a posterior apart: its hidden layers and its prior."""
    record, network = line.record, line.record.cell.network
    hidden = " × ".join(map(str, getattr(network, "hidden", ())))
    combination = combination_title(record.cell, record.chosen_scale).replace(", ", "\n")
    return f"{network.kind} {hidden}".strip() + f"\n{combination}"


def _method_name(method: str) -> str:
    kind, *apart = method.split(", ")
    return ", ".join([NAMES.get(kind, pretty(kind)), *apart])


def _add_legend(figure: Figure, panels: np.ndarray) -> None:
    """What lines and shades are, below everything."""
    found = {}
    for axes in (panels[0, 0], panels[0, -1]):
        found |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    below = {"loc": "outside lower center", "ncols": 4, "frameon": False}
    figure.legend(found.values(), found.keys(), fontsize=style.TICK_SIZE, **below)
