"""Maps of classes and numbers over the plane: of one cell, beside the posterior, of a grid.

Of one cell: the probability of the first class, or the posterior mean, beside its uncertainty.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from pmbnn.figures import style
from pmbnn.results.reading import (
    Grid,
    PlaneMap,
    by_target,
    edges,
    group_of,
    plane_features,
    plane_map,
    shape_of,
    values_of,
)
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import Combinations, Place

HIGHEST_SD = 0.5
"""No probability has a larger standard deviation than that of a fair coin."""

WIDTH, PANEL = 10.7, 3.65
"""Widths of the figure of a cell, and of each of its maps, in inches."""

BEFORE, BELOW, ABOVE = 0.8, 0.85, 0.5
"""Room for text to the left of a map, below it, and above it beside the title, in inches."""

LEGEND_LINE = 0.19
"""Height of a line of the legend, in inches."""

UNCERTAINTY_LABEL = "sd of that probability over posterior draws"


def name_axes(axes: Axes, features: tuple[str, str]) -> None:
    """Label the axes of a plane."""
    axes.set_xlabel(features[0])
    axes.set_ylabel(features[1])


@style.with_sizes
def plot_plane(trace: xr.DataTree, title: str) -> Figure:
    """Pair of maps of one cell, with its test points and the decision boundary.

    Parameters
    ----------
    trace
        Trace with a group ``predictions``; the points are those of ``test_predictions``, and
        are left out where that is missing.
    title
        What is fitted, in words; see `pmbnn.results.names.cell_title`.

    Raises
    ------
    ValueError
        If the trace has no group ``predictions``.
    """
    plane = plane_map(trace)
    height, below = PANEL * shape_of(plane), BELOW
    test = trace["test_predictions"].dataset if "test_predictions" in trace.children else None
    if test is not None:
        below += LEGEND_LINE * (math.ceil(test.sizes["output"] / _legend_columns(test)) - 1)
    above = ABOVE + len(style.title_lines(title, WIDTH)) * style.TITLE_HEIGHT
    figure = style.fixed_figure(WIDTH, below + height + above)
    lefts = (BEFORE, WIDTH / 2 + BEFORE)
    panels = [style.add_panel(figure, left, below, PANEL, height) for left in lefts]
    bars = [style.add_panel(figure, left + PANEL + 0.15, below, 0.2, height) for left in lefts]
    limit = style.upper_limit([plane.sd], HIGHEST_SD)
    images = draw_probability(panels[0], plane), draw_uncertainty(panels[1], plane, limit)
    for axes, heading in zip(panels, ("posterior probability", "uncertainty"), strict=True):
        draw_decision_boundary(axes, plane)
        axes.locator_params(nbins=5)
        name_axes(axes, plane.features)
        # Without a height matplotlib measures all labels anew to find one.
        axes.set_title(heading, y=1)
    labels = probability_label(plane), UNCERTAINTY_LABEL
    for bar, image, label in zip(bars, images, labels, strict=True):
        ticks = MaxNLocator(3, steps=(1, 2, 2.5, 5, 10))
        colorbar = figure.colorbar(image, cax=bar, label=label, ticks=ticks)
        colorbar.formatter.set_powerlimits((-2, 3))  # long numbers would move its label away
    if test is not None:
        _draw_points(figure, panels, test)
    style.set_title(figure, title)
    return figure


def probability_label(plane: PlaneMap) -> str:
    """Meaning of the colours of the first map."""
    return f"probability of class {plane.first_class}"


def set_frame(axes: Axes, grid: Grid) -> None:
    """Limit axes to a map, in its shape."""
    axes.set(xlim=edges(grid.x1), ylim=edges(grid.x2))
    axes.set_box_aspect(shape_of(grid))


def draw_probability(axes: Axes, plane: PlaneMap) -> AxesImage:
    """Draw the probability of the first class, ``x1`` to the right and ``x2`` up."""
    return draw_over_plane(axes, plane, plane.probability, style.PROBABILITY, (0.0, 1.0))


def draw_uncertainty(axes: Axes, plane: PlaneMap, highest: float) -> AxesImage:
    """Draw the uncertainty of that probability, in colours that end at ``highest``."""
    return draw_over_plane(axes, plane, plane.sd, style.UNCERTAINTY, (0.0, highest))


def draw_decision_boundary(axes: Axes, plane: PlaneMap, width: float = 1.3) -> None:
    """Draw the line on which the first class has probability one half, white below black."""
    # Matplotlib warns of a contour that lies nowhere.
    if not plane.probability.min() < 0.5 < plane.probability.max():
        return
    below = withStroke(linewidth=width + 1.2, foreground="white")
    axes.contour(
        plane.x1, plane.x2, plane.probability.T, [0.5],
        colors="black", linewidths=width, path_effects=[below],
    )  # fmt: skip


def draw_over_plane(
    axes: Axes, grid: Grid, values: np.ndarray, colours: Colormap, limits: tuple[float, float]
) -> AxesImage:
    """Draw values ``(x1, x2)`` as colours between the limits, ``x1`` to the right and ``x2`` up."""
    low, high = limits
    extent = (*edges(grid.x1), *edges(grid.x2))
    # An image has its first axis going down the page: the transpose puts x1 across.
    image = axes.imshow(
        values.T, cmap=colours, vmin=low, vmax=high, interpolation="nearest",
        origin="lower", extent=extent, aspect="auto",
    )  # fmt: skip
    set_frame(axes, grid)
    return image


def _draw_points(figure: Figure, panels: Sequence[Axes], test: xr.Dataset) -> None:
    """Draw test points by class, those inside the maps, and a legend below them."""
    for axes in panels:
        axes.autoscale(enable=False)
        for index, name in enumerate(test["output"].values):
            points = test["x"].values[test["label"].values == index]
            axes.scatter(
                points[:, 0], points[:, 1], s=15, linewidths=0.6, edgecolors="white",
                label=_point_words(name), zorder=3, **style.class_look(index),
            )  # fmt: skip
    handles, labels = panels[0].get_legend_handles_labels()
    below = {"loc": "lower center", "ncols": _legend_columns(test), "frameon": False}
    figure.legend(handles, labels, markerscale=1.6, **below)


def _point_words(name: str) -> str:
    return f"class {name}, test points"


def _legend_columns(test: xr.Dataset) -> int:
    """Classes whose names stand beside each other below the maps."""
    return style.legend_columns([_point_words(name) for name in test["output"].values], WIDTH)


# Numbers over the plane: the posterior mean beside its uncertainty, with the test rows


SURFACE_PANEL, SURFACE_MAP = 4.6, 3.1
"""Widths of a panel with its colour bar, and of its map alone, in inches."""


@style.with_sizes
def plot_surface(trace: xr.DataTree, title: str) -> Figure:
    """Mean and epistemic standard deviation over the plane; a row for each of several targets.

    Test rows have the colour of their target, on the scale of the mean; one beyond it has that of
    its end.

    Raises
    ------
    ValueError
        If the trace has no group ``predictions`` of numbers.
    """
    features, traces = plane_features(trace), by_target(trace)
    grid = group_of(trace, "predictions")
    height = 0.75 + SURFACE_MAP * shape_of(grid)
    figure = style.new_figure(2 * SURFACE_PANEL, 0.5 + height * len(traces))
    panels = figure.subplots(len(traces), 2, squeeze=False)
    for (left, right), (name, own) in zip(panels, traces.items(), strict=True):
        mean, sd = (
            values_of(own, "predictions", moment, "x1", "x2") for moment in ("mean", "epistemic_sd")
        )
        test = own["test_predictions"].dataset
        limits = float(mean.min()), float(mean.max())
        image = draw_over_plane(left, grid, mean, style.VALUES, limits)
        _draw_rows(left, test, c=test["target"].values, norm=image.norm, cmap=style.VALUES)
        figure.colorbar(image, ax=left, label=f"posterior mean of {name or 'y'}")
        # A point estimate has no uncertainty.
        highest = style.upper_limit([sd], np.inf) if sd.any() else 1.0
        image = draw_over_plane(right, grid, sd, style.UNCERTAINTY, (0.0, highest))
        _draw_rows(right, test, color="white")
        label = "epistemic sd: that of the output over posterior draws"
        figure.colorbar(image, ax=right, label=label)
        for axes in (left, right):
            name_axes(axes, features)
    style.set_title(figure, f"{title}\ntest rows have the colour of their target on the left")
    return figure


def _draw_rows(axes: Axes, test: xr.Dataset, **colours) -> None:
    """Draw test rows within the frame of a map."""
    axes.autoscale(enable=False)
    x = test["x"].values
    axes.scatter(x[:, 0], x[:, 1], s=14, linewidths=0.6, edgecolors="black", zorder=3, **colours)


# Maps of fits beside those of the posterior itself, and the difference


CELL_WIDTH = 1.7
"""Width of a map, in inches."""

MOST_BELOW = 6
"""Combinations in one column; more stand beside it."""

HEADINGS = ("fitted", "sampled", "fitted − sampled")


class MapPair(NamedTuple):
    """Maps of one posterior, fitted and sampled, and its name in words."""

    name: str
    fitted: PlaneMap
    sampled: PlaneMap

    @property
    def difference(self) -> np.ndarray:
        """Probability of the first class, fitted less sampled, ``(x1, x2)``."""
        return self.fitted.probability - self.sampled.probability


@style.with_sizes
def plot_posterior_maps(pairs: Sequence[MapPair], title: str) -> Figure:
    """Probability of the first class by fit and by sampler, and its difference, a row a posterior.

    All differences share one colour scale, as far as the largest reaches; the black line on them
    is the sampler's.
    """
    columns = -(-len(pairs) // MOST_BELOW)
    rows = -(-len(pairs) // columns)
    shape = shape_of(pairs[0].fitted)
    figure = style.new_figure(
        3 * CELL_WIDTH * columns + 0.6, (CELL_WIDTH * shape + 0.25) * rows + 1.6
    )
    largest = max(float(np.abs(pair.difference).max()) for pair in pairs) or 1.0
    for number, part in enumerate(figure.subfigures(1, columns, squeeze=False)[0]):
        _draw_column(part, pairs[number * rows : (number + 1) * rows], rows, largest)
    style.set_title(figure, title)
    return figure


def _draw_column(part: SubFigure, pairs: Sequence[MapPair], rows: int, largest: float) -> None:
    """Draw rows of three maps, with a colour bar of the probabilities and one of the differences.

    Differences are white at zero, and their colours end at ``largest``.
    """
    grid = part.subplots(rows, 3, squeeze=False)
    limits = (-largest, largest)
    for line, pair in zip(grid, pairs, strict=False):
        line[0].set_ylabel(pair.name.replace(", ", ",\n"), fontsize=style.TICK_SIZE)
        probability = draw_probability(line[0], pair.fitted)
        draw_probability(line[1], pair.sampled)
        difference = draw_over_plane(
            line[2], pair.fitted, pair.difference, style.DIFFERENCE, limits
        )
        for axes, plane in zip(line, (pair.fitted, pair.sampled, pair.sampled), strict=True):
            draw_decision_boundary(axes, plane, width=0.8)
            axes.set(xticks=[], yticks=[])
    for heading, axes in zip(HEADINGS, grid[0], strict=True):
        axes.set_title(heading)
    for axes in grid[len(pairs) :].flat:
        axes.set_axis_off()
    below = {"location": "bottom", "shrink": 0.7, "aspect": 40}
    label = probability_label(pairs[0].fitted)
    part.colorbar(probability, ax=list(grid[:, :2].flat), label=label, **below)
    part.colorbar(difference, ax=list(grid[:, 2]), label="difference", **below)


# Both maps of every prior × hyperprior of one data set, on the same colour scales


MOST_BESIDE = 5
"""Hyperpriors up to which the two kinds of map fit beside each other."""

GRID_BEFORE, GRID_BELOW, GRID_WORDS = 0.35, 0.75, 0.4
"""Room for the name of a row, for the colour bar and for the title of a map, in inches."""


class Panel(NamedTuple):
    """A place of the table, with its map or the reason why it has none."""

    row: int
    column: int
    title: str
    row_name: str
    plane: PlaneMap | None
    absence: str


class Layout(NamedTuple):
    """Sizes in inches: of a half of the figure, of a map on it, and from one map to the next."""

    rows: int
    columns: int
    width: float
    height: float
    map_height: float
    across: float
    down: float


@style.with_sizes
def plot_map_overview(
    combinations: Combinations, load: Callable[[str], PlaneMap | None], title: str
) -> Figure:
    """Overview of probability and of uncertainty, priors down, hyperpriors across.

    Where a combination was run on several data seeds, the first one that has results is
    shown, and the title says so. All maps of a kind share one colour scale.

    Parameters
    ----------
    combinations
        The cells of one data set.
    load
        Map of the cell of that name, or None if it has none. Called once for each pair of
        panels, one after the other.
    title
        What the figure is about; how to read it is added.
    """
    first_records = {
        place: finished[0]
        for place in combinations.records
        if (finished := combinations.finished(*place))
    }
    loaded = {place: load(record.name) for place, record in first_records.items()}
    maps = {place: plane for place, plane in loaded.items() if plane is not None}
    one = next(iter(maps.values()), None)
    label = "probability" if one is None else probability_label(one)
    features = ("x1", "x2") if one is None else one.features
    highest = style.upper_limit((plane.sd for plane in maps.values()), HIGHEST_SD)
    seeds = [record.cell.data_seed for record in first_records.values()]
    seed = max(seeds, key=seeds.count, default=None)
    note = "{} across, {} up; black line: probability one half".format(*features)
    if combinations.seeds > 1:
        note += f"; first of {combinations.seeds} data seeds (seed {seed})"
    title = f"{title}\n{note}"
    panels = [
        Panel(
            *place,
            _panel_title(combinations, place, first_records.get(place), seed),
            combinations.rows[place[0]],
            maps.get(place),
            "no map" if place in first_records else combinations.absence(*place),
        )
        for place in np.ndindex(combinations.shape)
    ]
    layout = _layout(panels, 1.0 if one is None else shape_of(one), (label, UNCERTAINTY_LABEL))
    figure, halves = _halves(layout, title)
    _draw_half(halves[0], panels, layout, draw_probability, label)
    draw = partial(draw_uncertainty, highest=highest)
    _draw_half(halves[1], panels, layout, draw, UNCERTAINTY_LABEL)
    style.set_title(figure, title)
    return figure


def _panel_title(
    combinations: Combinations, place: Place, record: CellRecord | None, usual_seed: int | None
) -> str:
    """Hyperprior above the first row; then accuracy, chosen scale, and a data seed unlike most."""
    row, column = place
    lines = [combinations.columns[column]] if row == 0 else []
    if record is not None:
        accuracy, scale = record.results.get("accuracy"), record.chosen_scale
        parts = [] if accuracy is None else [f"accuracy {accuracy:.3f}"]
        parts += [] if scale is None else [f"scale {scale:.2g}"]
        parts += ["no scale"] if row in combinations.without_scale else []
        seed = record.cell.data_seed
        parts += [f"seed {seed}"] if seed != usual_seed else []
        lines.append(", ".join(parts))
    return "\n".join(lines)


def _layout(panels: Sequence[Panel], shape: float, labels: Sequence[str]) -> Layout:
    """Layout on which neither titles, row names nor labels of colour bars run into each other."""
    rows, columns = panels[-1].row + 1, panels[-1].column + 1
    lines = [line for panel in panels for line in panel.title.splitlines()]
    across = max([CELL_WIDTH, *(style.text_width(line, style.TICK_SIZE) for line in lines)]) + 0.1
    tallest = max(style.text_width(panel.row_name, style.LABEL_SIZE) for panel in panels) + 0.1
    widest = max(style.text_width(label, style.LABEL_SIZE) for label in labels) + 0.2
    map_height = CELL_WIDTH * shape
    down = max(map_height + GRID_WORDS, tallest)
    width, height = max(GRID_BEFORE + columns * across, widest), rows * down + GRID_BELOW
    return Layout(rows, columns, width, height, map_height, across, down)


def _halves(layout: Layout, title: str) -> tuple[Figure, list[SubFigure]]:
    """Figure with two halves beside or below each other, and room for the title above them."""
    across, down = (1, 2) if layout.columns > MOST_BESIDE else (2, 1)
    width, height = layout.width, layout.height
    above = style.TITLE_HEIGHT * len(style.title_lines(title, across * width)) + 0.15
    figure = style.fixed_figure(across * width, down * height + above)
    grid = figure.add_gridspec(1 + down, across, height_ratios=[above, *[height] * down])
    parts = [grid[1 + row, column] for row, column in np.ndindex(down, across)]
    return figure, [figure.add_subfigure(part) for part in parts]


def _draw_half(
    half: SubFigure,
    panels: Sequence[Panel],
    layout: Layout,
    draw: Callable[[Axes, PlaneMap], AxesImage],
    label: str,
) -> None:
    """Draw one kind of map for every combination, with the colour bar they share."""
    image = None
    for panel in panels:
        left = GRID_BEFORE + panel.column * layout.across
        top = GRID_BELOW + (layout.rows - panel.row) * layout.down - GRID_WORDS
        bottom = top - layout.map_height
        axes = style.add_panel(half, left, bottom, CELL_WIDTH, layout.map_height)
        axes.set_title(panel.title, fontsize=style.TICK_SIZE, y=1)
        if panel.column == 0:
            axes.set_ylabel(panel.row_name)
        if panel.plane is None:
            style.draw_empty(axes, panel.absence)
        else:
            image = draw(axes, panel.plane)
            draw_decision_boundary(axes, panel.plane, width=0.9)
            axes.set(xticks=[], yticks=[])
    if image is not None:
        width = layout.width
        bar = style.add_panel(half, 0.2 * width, GRID_BELOW - 0.3, 0.6 * width, 0.12)
        bar.set_label("<colorbar>")
        half.colorbar(image, cax=bar, label=label, orientation="horizontal")
