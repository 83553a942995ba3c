"""The function along a line across a gap between training rows: its figure and its table."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from pmbnn.figures import style
from pmbnn.figures.regression import MOST
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.names import (
    combination_title,
    dataset_label,
    dataset_title,
    posterior_row,
    pretty,
)
from pmbnn.results.tables import table_of

from .lines import LIMIT, PUBLISHED, AlongLine, CurveEstimate, along_lines

WIDTH, HEIGHT = 2.9, 2.5
"""Of a panel, in inches."""

TICKS = 0.4
"""Of a panel's width, for the numbers beside it."""

DEVIATIONS = 2
"""Standard deviations that a band reaches to either side of the mean."""

MARGIN = 0.08
"""Free space above and below, in heights of what is shown."""

DASHED = {"color": "black", "linestyle": "--", "linewidth": 0.9}
"""Lines of what was published."""

NAMES = {
    "mclmc": "MCLMC",
    "nuts": "NUTS",
    "smc": "SMC",
    LIMIT: "infinite width (Gaussian process)",
    PUBLISHED: "published",
}
"""Names of methods in figures, where they are not those of settings."""


def gap_figures(results: ExperimentResults) -> dict[str, Figure]:
    """A figure of each data set whose line crosses a gap, by the data set's name."""
    by_dataset: dict[str, list[AlongLine]] = {}
    for line in along_lines(results.results, results.records):
        by_dataset.setdefault(dataset_label(line.record.cell.dataset), []).append(line)
    return {
        label: plot_lines(lines[:MOST], _title(lines[0])) for label, lines in by_dataset.items()
    }


def _title(line: AlongLine) -> str:
    return f"{dataset_title(line.record.cell.dataset)}: the function along a line across the gap"


def in_between_table(results: ExperimentResults) -> pd.DataFrame:
    """A row for each method and posterior along a line across a gap.

    Columns: ``sweep``, the settings that name the posterior, ``method``, the cell's ``name`` and
    ``status``; ``sd_in_gap``, the standard deviation of the function there, with its Monte-Carlo
    standard error (``sd_in_gap_mcse``); the smallest one on the line before and after the gap
    (``smallest_before``, ``smallest_after``), near the rows; and, over the line, against the
    ``reference`` (``published``, or else the sampler): median, smallest and largest ratio of
    standard deviations (``ratio_median``, ``ratio_smallest``, ``ratio_largest``), and the root mean
    square difference of the means in standard deviations of the reference (``mean_distance``).
    ``relative_mcse`` is the median over the line of the standard deviation's Monte-Carlo standard
    error relative to it.

    References
    ----------
    Foong, Burt, Li and Turner (2020), On the Expressiveness of Approximate Inference in Bayesian
    Neural Networks, theorem 1: in a network with one hidden layer of rectified linear units,
    mean-field's variance in between two points is at most what it is near them.
    """
    lines = along_lines(results.results, results.records)
    return table_of(_row(line, estimate) for line in lines for estimate in line.estimates)


def _row(line: AlongLine, estimate: CurveEstimate) -> dict[str, Any]:
    settings = posterior_row(line.record.settings)
    row = {"sweep": line.record.sweep, **settings, "method": estimate.method}
    if estimate.record is not None:
        row |= {"name": estimate.record.name, "status": estimate.record.status}
    before, error = line.position < line.gap, estimate.error
    row |= {
        "sd_in_gap": _in_gap(line, estimate.sd),
        "sd_in_gap_mcse": None if error is None else _in_gap(line, error),
        "smallest_before": float(estimate.sd[before].min()),
        "smallest_after": float(estimate.sd[~before].min()),
    }
    if error is not None:
        row["relative_mcse"] = float(np.median(error / estimate.sd))
    return row | _differences(estimate, line.reference)


def _in_gap(line: AlongLine, values: np.ndarray) -> float:
    return float(np.interp(line.gap, line.position, values))


def _differences(estimate: CurveEstimate, reference: CurveEstimate | None) -> dict[str, Any]:
    """How an estimate differs from the reference over the line."""
    if reference is None or estimate is reference:
        return {}
    ratio = estimate.sd / reference.sd
    difference = (estimate.mean - reference.mean) / reference.sd
    return {
        "reference": reference.method,
        "ratio_median": float(np.median(ratio)),
        "ratio_smallest": float(ratio.min()),
        "ratio_largest": float(ratio.max()),
        "mean_distance": float(np.sqrt(np.mean(difference**2))),
    }


# The figure


def plot_lines(lines: Sequence[AlongLine], title: str) -> Figure:
    """A row for each posterior and a panel for each method: mean and two standard deviations.

    The noise is not included. The last panel of a row holds the standard deviations of all; what
    was published is a dashed line in every panel.

    Raises
    ------
    ValueError
        If no line has an estimate of a method that was run here.
    """
    methods = list(dict.fromkeys(e.method for line in lines for e in line.estimates))
    methods = [method for method in methods if method != PUBLISHED]
    if not methods:
        raise ValueError("`lines` must have an estimate that was not published.")
    colours = dict(zip(methods, cycle(style.CLASS_COLOURS), strict=False))
    columns = len(methods) + 1
    figure = style.new_figure(WIDTH * columns + 0.6, HEIGHT * len(lines) + 1.2)
    panels = figure.subplots(len(lines), columns, squeeze=False, sharex=True)
    for row, line in zip(panels, lines, strict=True):
        for axes, method in zip(row, methods, strict=False):
            _draw_method(axes, line, method, colours[method])
        _draw_deviations(row[-1], line, colours)
        title_lines = style.title_lines(_row_title(line), HEIGHT, style.TICK_SIZE)
        row[0].set_ylabel("\n".join(title_lines), fontsize=style.TICK_SIZE)
    for axes, method in zip(panels[0], methods, strict=False):
        # Wider than its panel, it would make that smaller.
        title_lines = style.title_lines(_method_name(method), WIDTH - TICKS, style.LABEL_SIZE)
        axes.set_title("\n".join(title_lines), fontsize=style.LABEL_SIZE)
    panels[0, -1].set_title("standard deviations", fontsize=style.LABEL_SIZE)
    for axes in panels[-1]:
        axes.set_xlabel(lines[0].name, fontsize=style.LABEL_SIZE)
    _add_legend(figure, panels)
    style.set_title(figure, title)
    return figure


def _draw_method(axes: Axes, line: AlongLine, method: str, colour: str) -> None:
    """The estimate of one method, beside what was published and the training rows."""
    estimate = next((e for e in line.estimates if e.method == method), None)
    if estimate is None:
        style.draw_empty(axes, "not known")
        return
    low, high = _band(estimate)
    band = {"color": colour, "alpha": 0.3, "linewidth": 0}
    label = f"mean ± {DEVIATIONS} sd, without noise"
    axes.fill_between(line.position, low, high, label=label, **band)
    axes.plot(line.position, estimate.mean, color=colour, linewidth=1.6)
    for published in (e for e in line.estimates if e.method == PUBLISHED):
        low, high = _band(published)
        axes.plot(line.position, published.mean, **DASHED, label=NAMES[PUBLISHED])
        axes.plot(line.position, low, **DASHED)
        axes.plot(line.position, high, **DASHED)
    axes.plot(*line.rows, "o", color="black", markersize=2, label="training rows, projected")
    axes.set_ylim(_limits(line))
    _finish(axes, line)


def _draw_deviations(axes: Axes, line: AlongLine, colours: dict[str, str]) -> None:
    """Standard deviations of every method, on a logarithmic axis."""
    for estimate in line.estimates:
        solid = {"color": colours.get(estimate.method), "linewidth": 1.6}
        kind = DASHED if estimate.method == PUBLISHED else solid
        axes.plot(line.position, estimate.sd, label=_method_name(estimate.method), **kind)
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


def _band(estimate: CurveEstimate) -> tuple[np.ndarray, np.ndarray]:
    width = DEVIATIONS * estimate.sd
    return estimate.mean - width, estimate.mean + width


def _limits(line: AlongLine) -> tuple[float, float]:
    """Limits of y that hold every method's band and the rows: one scale for all panels of a row."""
    ends = (end for estimate in line.estimates for end in _band(estimate))
    shown = np.concatenate([line.rows[1], *ends])
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
    handles = {}
    for axes in (panels[0, 0], panels[0, -1]):
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    below = {"loc": "outside lower center", "ncols": 4, "frameon": False}
    figure.legend(handles.values(), handles.keys(), fontsize=style.TICK_SIZE, **below)
