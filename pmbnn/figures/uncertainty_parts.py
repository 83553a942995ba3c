"""Aleatoric and epistemic parts of what is uncertain: over the plane, along lines, of test rows.

More training rows reduce the epistemic part, which comes from not knowing the weights; the
aleatoric one would be left if they were known. Of classes both are entropies, of numbers variances,
and both add up to the total; see `pmbnn.prediction.class_probabilities.Predictive.uncertainty`.
"""

from collections.abc import Hashable, Mapping

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.maps import (
    draw_decision_boundary,
    draw_over_plane,
    name_axes,
)
from pmbnn.figures.regression import (
    add_legend,
    curve_names,
    limits,
    position_name,
    range_words,
    rows_on,
)
from pmbnn.prediction.class_probabilities import by_part
from pmbnn.results.reading import (
    by_target,
    group_of,
    plane_features,
    plane_map,
    shape_of,
    values_of,
)

TEST, PLANE = "test_predictions", "predictions"

COLOURS = {"aleatoric": style.CLASS_COLOURS[0], "epistemic": style.CLASS_COLOURS[1]}

OPACITY = 0.55

MOST_BARS = 50
"""Bars of test rows."""

MAP, ACROSS = 2.6, 3.95
"""Widths of a map, and of the map with its colour bar and all text, in inches."""

BEFORE, BELOW, ABOVE = 0.65, 0.55, 0.35
"""Room for text to the left of a map, below it, and above it, in inches."""

Parts = Mapping[str, np.ndarray]
"""Arrays ``total``, ``aleatoric`` and ``epistemic``; the first is the sum of the others."""


def parts_of(trace: xr.DataTree, group: str, *axes: Hashable) -> Parts:
    """Uncertainty and its parts in a group of a trace, with its axes in the given order.

    Entropies in nats of predicted classes, variances of predicted numbers.

    Raises
    ------
    ValueError
        If the trace does not have the group, or the group has no uncertainty.
    """
    is_entropy = "mutual_information" in group_of(trace, group)
    names = ("entropy", "mutual_information") if is_entropy else ("total_sd", "epistemic_sd")
    total, epistemic = (values_of(trace, group, n, *axes).astype(np.float64) for n in names)
    if not is_entropy:
        total, epistemic = total**2, epistemic**2
    # Noise with hardly more than two degrees of freedom has no finite variance: nothing is drawn.
    return by_part(np.where(np.isfinite(total), total, np.nan), epistemic)


@style.with_sizes
def plot_uncertainty_parts(trace: xr.DataTree, title: str) -> Figure:
    """Total, aleatoric and epistemic uncertainty of a cell; a row for each of several targets.

    With two inputs, maps of the three over the plane. With one input and numbers, the band of two
    standard deviations along each line, and the variances below. Otherwise test rows, from the
    least to the most uncertain.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or the group has no uncertainty.

    References
    ----------
    Depeweg et al. (2018), Decomposition of Uncertainty in Bayesian Deep Learning for Efficient and
    Risk-sensitive Learning.
    """
    traces, notes = by_target(trace), []
    for name, own in traces.items():
        share = _share(parts_of(own, TEST))
        notes.append(f"{name}: " * bool(name) + f"{share:.0%}")
    title = f"{title}\nepistemic part of the uncertainty of test rows: {', '.join(notes)}"
    if PLANE in trace.children:
        figure = _plot_maps(trace, traces, title)
    elif any(group.startswith("curve_") for group in trace.children):
        figure = _plot_lines(trace, traces)
    else:
        figure = _plot_rows(traces)
    style.set_title(figure, title)
    return figure


def _share(parts: Parts) -> float:
    """Epistemic part of the mean total uncertainty; zero where nothing is uncertain."""
    finite = np.isfinite(parts["total"])
    total = parts["total"][finite].sum()
    return float(parts["epistemic"][finite].sum() / total) if total > 0 else 0.0


def _unit(trace: xr.DataTree) -> str:
    is_entropy = "mutual_information" in group_of(trace, TEST)
    return "entropy in nats" if is_entropy else "variance in squared units"


# Over the plane


def _plot_maps(trace: xr.DataTree, traces: Mapping[str, xr.DataTree], title: str) -> Figure:
    grid, features = group_of(trace, PLANE), plane_features(trace)
    map_height, width = MAP * shape_of(grid), 3 * ACROSS
    line_height = BELOW + map_height + ABOVE
    title_height = len(style.title_lines(title, width)) * style.TITLE_HEIGHT
    figure = style.fixed_figure(width, line_height * len(traces) + title_height)
    for number, (name, own) in enumerate(reversed(traces.items())):
        parts, bottom = parts_of(own, PLANE, "x1", "x2"), number * line_height + BELOW
        for column, (part, values) in enumerate(parts.items()):
            left = column * ACROSS + BEFORE
            axes = style.add_panel(figure, left, bottom, MAP, map_height)
            bar = style.add_panel(figure, left + MAP + 0.12, bottom, 0.14, map_height)
            # Epistemic parts are often so small that they could not be seen on the total's scale.
            limit = _highest(values if part == "epistemic" else parts["total"])
            image = draw_over_plane(axes, grid, values, style.UNCERTAINTY, (0.0, limit))
            figure.colorbar(image, cax=bar)
            if "probability" in grid and grid.sizes["output"] == 2:  # one line parts the classes
                draw_decision_boundary(axes, plane_map(trace))
            axes.locator_params(nbins=5)
            name_axes(axes, features)
            heading = f"{name}, {part}" if name else part
            axes.set_title(f"{heading}: {_unit(trace)}", y=1)
    return figure


def _highest(values: np.ndarray) -> float:
    """End of a scale of colours that begins at zero."""
    limit = style.upper_limit([values], np.inf)
    return limit if np.isfinite(limit) else 1.0  # a point estimate has no epistemic uncertainty


# Along lines


def _plot_lines(trace: xr.DataTree, traces: Mapping[str, xr.DataTree]) -> Figure:
    names = curve_names(trace)
    figure = style.new_figure(4.2 * len(names) + 0.6, 0.9 + 5.0 * len(traces))
    rows = figure.subplots(
        2 * len(traces), len(names), squeeze=False, height_ratios=(3, 2) * len(traces), sharex="col"
    )
    for i, (target, own) in enumerate(traces.items()):
        for above, below, name in zip(rows[2 * i], rows[2 * i + 1], names, strict=True):
            _draw_band(above, own, name)
            _draw_variances(below, own, name)
            above.set_title(range_words(own, name))
            below.set_xlabel(position_name(own, name))
        rows[2 * i][0].set_ylabel(target or "y")
        rows[2 * i + 1][0].set_ylabel("variance")
    add_legend(figure, figure.axes[:1])
    return figure


def _draw_band(axes: Axes, trace: xr.DataTree, name: str) -> None:
    """Draw the mean and two standard deviations: of the noise alone, and what the weights add."""
    x, mean = values_of(trace, name, "x"), values_of(trace, name, "mean")
    parts = parts_of(trace, name)
    inner, outer = 2 * np.sqrt(parts["aleatoric"]), 2 * np.sqrt(parts["total"])
    label = "± 2 sd of the noise (aleatoric)"
    look = {"alpha": OPACITY, "linewidth": 0}
    axes.fill_between(
        x, mean - inner, mean + inner, color=COLOURS["aleatoric"], label=label, **look
    )
    for sign, label in ((-1, None), (1, "up to ± 2 sd of an observation (epistemic)")):
        ends = mean + sign * inner, mean + sign * outer
        axes.fill_between(x, *ends, color=COLOURS["epistemic"], label=label, **look)
    axes.plot(x, mean, color="black", linewidth=1.4, label="mean")
    if {"constant_data", "observed_data"} <= set(trace.children):
        axes.plot(*rows_on(trace, name), "o", color="black", markersize=3, label="training rows")
        axes.set_ylim(limits([trace], name))
    axes.set_xlim(x[0], x[-1])


def _draw_variances(axes: Axes, trace: xr.DataTree, name: str) -> None:
    parts = parts_of(trace, name)
    stacked = [parts[part] for part in COLOURS]
    x = values_of(trace, name, "x")
    axes.stackplot(x, *stacked, colors=list(COLOURS.values()), alpha=OPACITY, linewidth=0)
    axes.set_ylim(0, 1.05 * _highest(parts["total"]))


# Of test rows


def _plot_rows(traces: Mapping[str, xr.DataTree]) -> Figure:
    figure = style.new_figure(6.4, 0.9 + 3.3 * len(traces))
    panels = figure.subplots(len(traces), squeeze=False)[:, 0]
    for axes, (name, own) in zip(panels, traces.items(), strict=True):
        _draw_bars(axes, parts_of(own, TEST))
        axes.set_ylabel(f"mean {_unit(own)}")
        axes.set_title(name, loc="left")
    panels[-1].set_xlabel("test rows, from the least to the most uncertain, in %")
    add_legend(figure, panels[:1])
    return figure


def _draw_bars(axes: Axes, parts: Parts) -> None:
    """Draw the means of equally many rows each, the epistemic part above the aleatoric one."""
    order = np.argsort(parts["total"], kind="stable")
    groups = np.array_split(order, min(MOST_BARS, len(order)))
    edges = np.linspace(0, 100, len(groups) + 1)
    below = np.zeros(len(groups))
    for part, colour in COLOURS.items():
        mean = np.array([parts[part][rows].mean() for rows in groups])
        look = {"align": "edge", "color": colour, "alpha": OPACITY, "label": part}
        axes.bar(edges[:-1], mean, np.diff(edges), bottom=below, **look)
        below = below + mean
    axes.set(xlim=(0, 100), ylim=(0, 1.05 * _highest(below)))
