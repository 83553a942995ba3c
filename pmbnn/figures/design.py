"""Design of a grid: every prior × hyperprior, as the distribution of a weight it stands for."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.combinations import Combinations
from pmbnn.figures.densities import fixed_scales, log_scale_density, weight_densities
from pmbnn.tables import has_no_scale

WEIGHTS = np.linspace(-8, 8, 321)
SCALES = np.geomspace(1e-2, 1e2, 201)

DENSITY = (1e-4, 20.0)
"""Ends of the logarithmic axis on which tails can be told apart."""

PANEL = (1.55, 1.1)
"""Width and height of a panel, in inches."""


def plot_design(combinations: Combinations, title: str) -> Figure:
    """Priors down, hyperpriors across; above them the scales that a hyperprior stands for.

    A panel shows the density of one weight before anything is seen, a learned scale averaged
    out, on a logarithmic axis, and the number of cells. A tuned scale has a line for each of its
    candidates.
    """
    rows, columns = combinations.shape
    figure = style.new_figure(PANEL[0] * columns + 1.2, PANEL[1] * (rows + 1) + 1.6)
    panels = figure.subplots(rows + 1, columns, squeeze=False)
    for column, axes in enumerate(panels[0]):
        axes.set_title(combinations.columns[column], fontsize=style.LABEL_SIZE)
        _draw_scale(axes, _hyperprior(combinations, column))
    for row, line in enumerate(panels[1:]):
        for column, axes in enumerate(line):
            _draw_weight(axes, combinations, row, column)
    for axes, name in zip(panels[:, 0], ("scale", *combinations.rows), strict=True):
        axes.set_ylabel(name, fontsize=style.LABEL_SIZE)
    note = "design: density of the scale (top row) and of one weight, on logarithmic axes"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _hyperprior(combinations: Combinations, column: int) -> Mapping[str, Any] | None:
    """Settings of a column; None if only priors without a scale stand in it."""
    for (_, at), records in combinations.records.items():
        hyperprior = records[0]["settings"]["hyperprior"]
        if at == column and not has_no_scale(hyperprior):
            return hyperprior
    return None


def _draw_scale(axes: Axes, hyperprior: Mapping[str, Any] | None) -> None:
    """Density of the scale's logarithm, or a line at every fixed scale."""
    scales = [] if hyperprior is None else fixed_scales(hyperprior)
    density = None
    if hyperprior is not None and not scales:
        density = log_scale_density(hyperprior, SCALES)
    if not scales and density is None:
        style.draw_empty(axes, "no scale" if hyperprior is None else "no formula")
        return
    axes.set(xscale="log", xlim=(SCALES[0], SCALES[-1]), yticks=[])
    axes.set_ylim(0, 0.8)
    axes.vlines(scales, 0, 0.75, color=style.CLASS_COLOURS[1])
    if density is not None:
        axes.fill_between(SCALES, density, color=style.CLASS_COLOURS[1], alpha=0.3)
        axes.plot(SCALES, density, color=style.CLASS_COLOURS[1])
    axes.set_xticks([0.01, 1, 100], ["0.01", "1", "100"], fontsize=style.TICK_SIZE)
    axes.minorticks_off()


def _draw_weight(axes: Axes, combinations: Combinations, row: int, column: int) -> None:
    """Density of a weight, and the number of cells."""
    records = combinations.records.get((row, column), ())
    if not records:
        style.draw_empty(axes, combinations.absence(row, column))
        return
    settings = records[0]["settings"]
    axes.set(xlim=(WEIGHTS[0], WEIGHTS[-1]), xticks=[-5, 0, 5])
    axes.tick_params(labelsize=style.TICK_SIZE)
    if has_no_scale(settings["hyperprior"]):
        found = [np.full(WEIGHTS.shape, 0.05)]  # improper: level, at no height in particular
    else:
        found = weight_densities(settings["prior"], settings["hyperprior"], WEIGHTS)
    if not found:
        style.draw_empty(axes, "no formula")
        return
    axes.set(yscale="log", ylim=DENSITY)
    axes.set_yticks([1e-4, 1e-2, 1], ["0.0001", "0.01", "1"] if column == 0 else [])
    axes.set_yticks([], minor=True)
    for density in found:
        axes.plot(WEIGHTS, density, color=style.CLASS_COLOURS[0], linewidth=1.3 / len(found) + 0.3)
        fill = {"color": style.CLASS_COLOURS[0], "alpha": 0.25 / len(found), "linewidth": 0}
        axes.fill_between(WEIGHTS, DENSITY[0], density, **fill)
    cells = f"{len(records)} cell{'s' if len(records) > 1 else ''}"
    words = f"{cells}, no scale" if row in combinations.without_scale else cells
    place = {"ha": "right", "va": "top", "transform": axes.transAxes}
    axes.text(0.97, 0.95, words, fontsize=style.TICK_SIZE, color=style.GREY, **place)
