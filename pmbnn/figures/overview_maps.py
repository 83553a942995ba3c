"""Both maps of every prior × hyperprior of one data set, on the same colour scales."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage

from pmbnn.figures import style
from pmbnn.figures.plane import (
    HIGHEST_SD,
    UNCERTAINTY_LABEL,
    draw_decision_boundary,
    draw_probability,
    draw_uncertainty,
    probability_label,
    shape_of,
)
from pmbnn.results.combinations import Combinations, Place
from pmbnn.results.plane import PlaneMap
from pmbnn.results.record import CellRecord

WIDTH = 1.7
"""Width of a map, in inches."""

MOST_BESIDE = 5
"""Hyperpriors up to which the two kinds of map fit beside each other."""

BEFORE, BELOW, WORDS = 0.35, 0.75, 0.4
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
        across = max(BEFORE + self.columns * self.across, self.least)
        return across, self.rows * self.down + BELOW

    def place(self, row: int, column: int) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of a map."""
        left, top = BEFORE + column * self.across, BELOW + (self.rows - row) * self.down - WORDS
        return left, top - self.height, WIDTH, self.height


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
    height = WIDTH * shape
    down = max(height + WORDS, beside)
    return Layout(rows, columns, max(WIDTH + 0.1, across), down, height, least)


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
        bar = style.add_panel(part, 0.2 * width, BELOW - 0.3, 0.6 * width, 0.12)
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
