"""Maps of classes and numbers over the plane: of one cell, beside the posterior, of a grid.

Of one cell: the probability of the first class, or the posterior mean, beside its uncertainty.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from pmbnn.figures import style
from pmbnn.results.reading import PlaneMap, by_target, plane_features, plane_map, values_of
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import Combinations, Place

HIGHEST_SD = 0.5
"""No probability has a larger standard deviation than that of a fair coin."""

WIDTH, PANEL = 10.7, 3.65
"""Widths of the figure of a cell, and of each of its maps, in inches."""

BEFORE, BELOW, ABOVE = 0.8, 0.85, 0.5
"""Room for what is written to the left of a map, below it, and above it beside the title."""

FLATTEST, TALLEST = 0.4, 1.5
"""Shapes of maps, heights as multiples of widths, that fit on a page."""

UNCERTAINTY_LABEL = "sd of that probability over posterior draws"


class OverPlane(Protocol):
    """Something over a grid of raw coordinates of the plane."""

    x1: np.ndarray
    x2: np.ndarray


def name_axes(axes: Axes, features: tuple[str, str]) -> None:
    """Label the axes of a plane."""
    first, second = features
    axes.set_xlabel(first, fontsize=style.LABEL_SIZE, parse_math=False)
    axes.set_ylabel(second, fontsize=style.LABEL_SIZE, parse_math=False)


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
    figure, panels, bars = _places(shape_of(plane), len(style.title_lines(title, WIDTH)))
    limit = style.upper_limit([plane.sd], HIGHEST_SD)
    images = draw_probability(panels[0], plane), draw_uncertainty(panels[1], plane, limit)
    labels = probability_label(plane), UNCERTAINTY_LABEL
    for axes, heading in zip(panels, ("posterior probability", "uncertainty"), strict=True):
        draw_decision_boundary(axes, plane)
        axes.locator_params(nbins=5)
        axes.tick_params(labelsize=style.TICK_SIZE)
        name_axes(axes, plane.features)
        # Without a height matplotlib measures all labels anew to find one.
        axes.set_title(heading, fontsize=style.LABEL_SIZE, y=1)
    for axes, bar, image, label in zip(panels, bars, images, labels, strict=True):
        ticks = MaxNLocator(3, steps=(1, 2, 2.5, 5, 10))
        style.add_colour_bar(figure, image, axes, label, cax=bar, ticks=ticks)
    if "test_predictions" in trace.children:
        _draw_points(figure, panels, trace["test_predictions"].dataset)
    style.set_title(figure, title)
    return figure


def _places(shape: float, lines: int) -> tuple[Figure, list[Axes], list[Axes]]:
    """Figure with panels for two maps, and their colour bars, below so many lines of a title."""
    width, height = PANEL, PANEL * shape
    figure = style.fixed_figure(WIDTH, BELOW + height + ABOVE + lines * style.TITLE_HEIGHT)
    starts = (BEFORE, WIDTH / 2 + BEFORE)
    panels = [style.add_panel(figure, at, BELOW, width, height) for at in starts]
    bars = [style.add_panel(figure, at + width + 0.15, BELOW, 0.2, height) for at in starts]
    return figure, panels, bars


def probability_label(plane: PlaneMap) -> str:
    """Meaning of the colours of the first map."""
    return f"probability of class {plane.first_class}"


def shape_of(plane: OverPlane) -> float:
    """Height of a map as a multiple of its width: a square where that would not fit on a page.

    Features of such different ranges have different units.
    """
    (left, right), (bottom, top) = _edges(plane.x1), _edges(plane.x2)
    shape = float((top - bottom) / (right - left))
    return shape if FLATTEST <= shape <= TALLEST else 1.0


def set_frame(axes: Axes, plane: OverPlane) -> None:
    """Limit axes to a map, in its shape."""
    axes.set(xlim=_edges(plane.x1), ylim=_edges(plane.x2))
    axes.set_box_aspect(shape_of(plane))


def draw_probability(axes: Axes, plane: PlaneMap) -> AxesImage:
    """Probability of the first class, ``x1`` to the right and ``x2`` up."""
    return draw_over_plane(axes, plane, plane.probability, style.PROBABILITY, (0.0, 1.0))


def draw_uncertainty(axes: Axes, plane: PlaneMap, highest: float) -> AxesImage:
    """Uncertainty of that probability, in colours that end at ``highest``."""
    return draw_over_plane(axes, plane, plane.sd, style.UNCERTAINTY, (0.0, highest))


def draw_difference(
    axes: Axes, plane: PlaneMap, difference: np.ndarray, largest: float
) -> AxesImage:
    """Differences of probabilities, ``(x1, x2)``, white at zero, colours up to ``largest``."""
    return draw_over_plane(axes, plane, difference, style.DIFFERENCE, (-largest, largest))


def draw_decision_boundary(axes: Axes, plane: PlaneMap, width: float = 1.3) -> None:
    """Line on which the first class has probability one half, white below black."""
    # Matplotlib warns of a contour that lies nowhere.
    if not plane.probability.min() < 0.5 < plane.probability.max():
        return
    below = withStroke(linewidth=width + 1.2, foreground="white")
    axes.contour(
        plane.x1, plane.x2, plane.probability.T, [0.5],
        colors="black", linewidths=width, path_effects=[below],
    )  # fmt: skip


def draw_over_plane(
    axes: Axes, plane: OverPlane, values: np.ndarray, colours: Colormap, limits: tuple[float, float]
) -> AxesImage:
    """Values ``(x1, x2)`` as colours between the limits, ``x1`` to the right and ``x2`` up."""
    extent = (*_edges(plane.x1), *_edges(plane.x2))
    # An image has its first axis going down the page: the transpose puts x1 across.
    kwargs = {"origin": "lower", "extent": extent, "aspect": "auto"}
    image = style.draw_image(axes, values.T, colours, limits, **kwargs)
    set_frame(axes, plane)
    return image


def _edges(centres: np.ndarray) -> tuple[float, float]:
    """Outer edges of the pixels around evenly spaced centres."""
    half = (centres[-1] - centres[0]) / (len(centres) - 1) / 2
    return centres[0] - half, centres[-1] + half


def _draw_points(figure: Figure, panels: Sequence[Axes], test: xr.Dataset) -> None:
    """Test points by class, kept inside the maps, and a legend below them."""
    for axes in panels:
        axes.autoscale(enable=False)
        for index, name in enumerate(test["output"].values):
            chosen = test["x"].values[test["label"].values == index]
            axes.scatter(
                chosen[:, 0], chosen[:, 1], s=15, linewidths=0.6, edgecolors="white",
                color=style.CLASS_COLOURS[index % len(style.CLASS_COLOURS)],
                marker=style.MARKERS[index % len(style.MARKERS)],
                label=f"class {name}, test points", zorder=3,
            )  # fmt: skip
    handles, labels = panels[0].get_legend_handles_labels()
    below = {"loc": "lower center", "ncols": len(labels), "frameon": False}
    figure.legend(handles, labels, fontsize=style.TICK_SIZE, markerscale=1.6, **below)


# Numbers over the plane: the posterior mean beside its uncertainty, with the test rows


GROUP, TEST = "predictions", "test_predictions"

SURFACE_PANEL, SURFACE_MAP = 4.6, 3.1
"""Widths of a panel with its colour bar, and of its map alone, in inches."""


class _Surface(NamedTuple):
    x1: np.ndarray
    x2: np.ndarray
    mean: np.ndarray
    epistemic_sd: np.ndarray


def plot_surface(trace: xr.DataTree, title: str) -> Figure:
    """Mean and epistemic standard deviation over the plane; a row for each of several targets.

    Test rows have the colour of their target, on the scale of the mean; one beyond it has that of
    its end.

    Raises
    ------
    ValueError
        If the trace has no group ``predictions`` of numbers.
    """
    features, of_targets = plane_features(trace), by_target(trace)
    surfaces = {name: _surface(own) for name, own in of_targets.items()}
    height = 0.75 + SURFACE_MAP * shape_of(next(iter(surfaces.values())))
    figure = style.new_figure(2 * SURFACE_PANEL, 0.5 + height * len(surfaces))
    panels = figure.subplots(len(surfaces), 2, squeeze=False)
    for line, (name, surface) in zip(panels, surfaces.items(), strict=True):
        test = of_targets[name][TEST].dataset
        limits = float(surface.mean.min()), float(surface.mean.max())
        image = draw_over_plane(line[0], surface, surface.mean, style.VALUES, limits)
        _draw_rows(line[0], test, c=test["target"].values, norm=image.norm, cmap=style.VALUES)
        style.add_colour_bar(figure, image, line[0], f"posterior mean of {name or 'y'}")
        # A point has no uncertainty.
        sd = surface.epistemic_sd
        highest = style.upper_limit([sd], np.inf) if sd.any() else 1.0
        image = draw_over_plane(line[1], surface, sd, style.UNCERTAINTY, (0.0, highest))
        _draw_rows(line[1], test, color="white")
        label = "epistemic sd: that of the output over posterior draws"
        style.add_colour_bar(figure, image, line[1], label)
        for axes in line:
            name_axes(axes, features)
            axes.tick_params(labelsize=style.TICK_SIZE)
    style.set_title(figure, f"{title}\ntest rows have the colour of their target on the left")
    return figure


def _surface(trace: xr.DataTree) -> _Surface:
    mean, sd = (values_of(trace, GROUP, name, "x1", "x2") for name in ("mean", "epistemic_sd"))
    coordinates = trace[GROUP]
    return _Surface(coordinates["x1"].values, coordinates["x2"].values, mean, sd)


def _draw_rows(axes: Axes, test: xr.Dataset, **colours) -> None:
    """Test rows within the frame of a map."""
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
    largest = max(float(np.abs(pair.difference).max()) for pair in pairs)
    for number, part in enumerate(figure.subfigures(1, columns, squeeze=False)[0]):
        _draw_column(part, pairs[number * rows : (number + 1) * rows], rows, largest)
    style.set_title(figure, title)
    return figure


def _draw_column(part: SubFigure, pairs: Sequence[MapPair], rows: int, largest: float) -> None:
    """Rows of three maps, with a colour bar of the probabilities and one of the differences."""
    grid = part.subplots(rows, 3, squeeze=False)
    for line, pair in zip(grid, pairs, strict=False):
        line[0].set_ylabel(pair.name.replace(", ", ",\n"), fontsize=style.TICK_SIZE)
        probability = draw_probability(line[0], pair.fitted)
        draw_probability(line[1], pair.sampled)
        difference = draw_difference(line[2], pair.fitted, pair.difference, largest)
        for axes, plane in zip(line, (pair.fitted, pair.sampled, pair.sampled), strict=True):
            draw_decision_boundary(axes, plane, width=0.8)
            axes.set(xticks=[], yticks=[])
    for heading, axes in zip(HEADINGS, grid[0], strict=True):
        axes.set_title(heading, fontsize=style.LABEL_SIZE)
    for axes in grid[len(pairs) :].flat:
        axes.set_axis_off()
    below = {"location": "bottom", "shrink": 0.7, "aspect": 40}
    label = probability_label(pairs[0].fitted)
    style.add_colour_bar(part, probability, list(grid[:, :2].flat), label, **below)
    label = "difference"
    style.add_colour_bar(part, difference, list(grid[:, 2]), label, **below)


# Both maps of every prior × hyperprior of one data set, on the same colour scales


MOST_BESIDE = 5
"""Hyperpriors up to which the two kinds of map fit beside each other."""

GRID_BEFORE, GRID_BELOW, GRID_WORDS = 0.35, 0.75, 0.4
"""Room for the name of a row, for the colour bar and for what is written above a map, in inches."""


class Layout(NamedTuple):
    """Where maps lie on a half of the figure: how many, how far apart, and how tall, in inches.

    The half is no narrower than ``least``.
    """

    rows: int
    columns: int
    across: float
    down: float
    height: float
    least: float

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the half."""
        across = max(GRID_BEFORE + self.columns * self.across, self.least)
        return across, self.rows * self.down + GRID_BELOW

    def place(self, row: int, column: int) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of a map."""
        left, top = (
            GRID_BEFORE + column * self.across,
            GRID_BELOW + (self.rows - row) * self.down - GRID_WORDS,
        )
        return left, top - self.height, CELL_WIDTH, self.height


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
    finished = {place: combinations.finished(*place) for place in combinations.records}
    shown = {place: records[0] for place, records in finished.items() if records}
    loaded = {place: load(record.name) for place, record in shown.items()}
    maps = {place: plane for place, plane in loaded.items() if plane is not None}
    highest = style.upper_limit((plane.sd for plane in maps.values()), HIGHEST_SD)
    shape = next((shape_of(plane) for plane in maps.values()), 1.0)
    label = next((probability_label(plane) for plane in maps.values()), "probability")
    labels = max(style.words_width(words, style.LABEL_SIZE) for words in (label, UNCERTAINTY_LABEL))
    layout = _layout(combinations, shown, shape, labels + 0.2)
    features = next((plane.features for plane in maps.values()), ("x1", "x2"))
    title = f"{title}\n{_note(combinations, shown, features)}"
    figure, halves = _halves(layout, title)
    _draw_half(halves[0], layout, combinations, shown, maps, draw_probability, label)
    draw = partial(draw_uncertainty, highest=highest)
    _draw_half(halves[1], layout, combinations, shown, maps, draw, UNCERTAINTY_LABEL)
    style.set_title(figure, title)
    return figure


def _layout(
    combinations: Combinations, shown: Mapping[Place, CellRecord], shape: float, least: float
) -> Layout:
    """Layout on which words do not run into each other."""
    rows, columns = combinations.shape
    above = [_panel_title(combinations, place, shown) for place in np.ndindex(rows, columns)]
    lines = [line for words in above for line in words.splitlines()]
    across = max(style.words_width(line, style.TICK_SIZE) for line in lines or [""]) + 0.1
    beside = max(style.words_width(name, style.LABEL_SIZE) for name in combinations.rows) + 0.1
    height = CELL_WIDTH * shape
    down = max(height + GRID_WORDS, beside)
    return Layout(rows, columns, max(CELL_WIDTH + 0.1, across), down, height, least)


def _halves(layout: Layout, title: str) -> tuple[Figure, list[SubFigure]]:
    """Figure with two halves beside or below each other, and room for the title above them."""
    across, down = (1, 2) if layout.columns > MOST_BESIDE else (2, 1)
    width, height = layout.size
    above = style.TITLE_HEIGHT * len(style.title_lines(title, across * width)) + 0.15
    figure = style.fixed_figure(across * width, down * height + above)
    grid = figure.add_gridspec(1 + down, across, height_ratios=[above, *[height] * down])
    parts = [grid[1 + row, column] for row, column in np.ndindex(down, across)]
    return figure, [figure.add_subfigure(part) for part in parts]


def _draw_half(
    part: SubFigure,
    layout: Layout,
    combinations: Combinations,
    shown: Mapping[Place, CellRecord],
    maps: Mapping[Place, PlaneMap],
    draw: Callable[[Axes, PlaneMap], AxesImage],
    label: str,
) -> None:
    """One kind of map for every combination, with the colour bar they share."""
    width, _ = layout.size
    image = None
    for place in np.ndindex(combinations.shape):
        axes = style.add_panel(part, *layout.place(*place))
        axes.set_title(_panel_title(combinations, place, shown), fontsize=style.TICK_SIZE, y=1)
        if place[1] == 0:
            axes.set_ylabel(combinations.rows[place[0]], fontsize=style.LABEL_SIZE)
        if place in maps:
            image = draw(axes, maps[place])
            draw_decision_boundary(axes, maps[place], width=0.9)
            axes.set(xticks=[], yticks=[])
        else:
            absent = "no map" if place in shown else combinations.absence(*place)
            style.draw_empty(axes, absent)
    if image is not None:
        bar = style.add_panel(part, 0.2 * width, GRID_BELOW - 0.3, 0.6 * width, 0.12)
        bar.set_label("<colorbar>")
        style.add_colour_bar(part, image, None, label, cax=bar, orientation="horizontal")


def _panel_title(
    combinations: Combinations, place: Place, shown: Mapping[Place, CellRecord]
) -> str:
    """Hyperprior above the first row; then accuracy, chosen scale, unusual seed."""
    row, column = place
    lines = [combinations.columns[column]] if row == 0 else []
    if place in shown:
        record = shown[place]
        accuracy = record.results.get("accuracy")
        words = [] if accuracy is None else [f"accuracy {accuracy:.3f}"]
        scale = record.chosen_scale
        words += [] if scale is None else [f"scale {scale:.2g}"]
        words += ["no scale"] if row in combinations.without_scale else []
        words += [f"seed {record.cell.data_seed}"] if _is_unusual(record, shown) else []
        lines.append(", ".join(words))
    return "\n".join(lines)


def _is_unusual(record: CellRecord, shown: Mapping[Place, CellRecord]) -> bool:
    """Whether a panel shows another data seed than most."""
    seeds = [r.cell.data_seed for r in shown.values()]
    return record.cell.data_seed != max(seeds, key=seeds.count)


def _note(
    combinations: Combinations, shown: Mapping[Place, CellRecord], features: tuple[str, str]
) -> str:
    """How to read the panels."""
    note = "{} across, {} up; black line: probability one half".format(*features)
    if combinations.seeds < 2:
        return note
    seeds = [r.cell.data_seed for r in shown.values()]
    first = max(seeds, key=seeds.count)
    return f"{note}; first of {combinations.seeds} data seeds (seed {first})"
