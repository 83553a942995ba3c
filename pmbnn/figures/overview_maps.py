"""Both maps of every prior × hyperprior of one data set, on the same colour scales."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage

from pmbnn.figures import style
from pmbnn.figures.plane import (
    HIGHEST_SD,
    UNCERTAINTY_LABEL,
    PlaneMap,
    draw_decision_boundary,
    draw_probability,
    draw_uncertainty,
    probability_label,
    shape_of,
)
from pmbnn.results.combinations import Combinations, Place, data_seed
from pmbnn.results.record import CellRecord
from pmbnn.results.titles import chosen_scale

WIDTH = 1.8
"""Width of a map, in inches."""

MOST_BESIDE = 5
"""Hyperpriors up to which the two kinds of map fit beside each other."""

WORDS = 0.35
"""Height of what is written above a map, in inches."""


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
    rows, columns = combinations.shape
    shape = next((shape_of(plane) for plane in maps.values()), 1.0)
    width, height = max(3.0, WIDTH * columns + 0.4), (WIDTH * shape + WORDS) * rows + 1.0
    across, down = (1, 2) if columns > MOST_BESIDE else (2, 1)
    figure = style.new_figure(across * width, down * height + 0.6)
    halves = figure.subfigures(down, across, wspace=0.02)
    label = next((probability_label(plane) for plane in maps.values()), "probability")
    _draw_half(halves[0], combinations, shown, maps, draw_probability, label)
    draw = partial(draw_uncertainty, highest=highest)
    _draw_half(halves[1], combinations, shown, maps, draw, UNCERTAINTY_LABEL)
    style.set_title(figure, f"{title}\n{_note(combinations, shown)}")
    return figure


def _draw_half(
    part: SubFigure,
    combinations: Combinations,
    shown: Mapping[Place, CellRecord],
    maps: Mapping[Place, PlaneMap],
    draw: Callable[[Axes, PlaneMap], AxesImage],
    label: str,
) -> None:
    """One kind of map for every combination, with the colour bar they share."""
    panels = part.subplots(*combinations.shape, squeeze=False)
    image = None
    for (row, column), axes in _enumerate(panels):
        place = (row, column)
        axes.set_title(_panel_title(combinations, place, shown), fontsize=style.TICK_SIZE)
        if column == 0:
            axes.set_ylabel(combinations.rows[row], fontsize=style.LABEL_SIZE)
        if place in maps:
            image = draw(axes, maps[place])
            draw_decision_boundary(axes, maps[place], width=0.9)
            axes.set(xticks=[], yticks=[])
        else:
            absent = "no map" if place in shown else combinations.absence(*place)
            style.draw_empty(axes, absent)
    _match_shapes(panels, maps)
    if image is not None:
        style.add_colour_bar(
            part, image, list(panels.flat), label, location="bottom", shrink=0.6, aspect=40
        )


def _enumerate(panels) -> list[tuple[Place, Axes]]:
    rows, columns = panels.shape
    return [((i, j), panels[i, j]) for i in range(rows) for j in range(columns)]


def _match_shapes(panels, maps: Mapping[Place, PlaneMap]) -> None:
    """Give empty panels the shape of the maps, so that the table stays even."""
    if not maps:
        return
    like = panels[next(iter(maps))]
    width, height = np.ptp(like.get_xlim()), np.ptp(like.get_ylim())
    for place, axes in _enumerate(panels):
        if place not in maps:
            axes.set_box_aspect(height / width)


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
        scale = chosen_scale(record)
        words += [] if scale is None else [f"scale {scale:.2g}"]
        words += ["no scale"] if row in combinations.without_scale else []
        words += [f"seed {data_seed(record)}"] if _is_unusual(record, shown) else []
        lines.append(", ".join(words))
    return "\n".join(lines)


def _is_unusual(record: CellRecord, shown: Mapping[Place, CellRecord]) -> bool:
    """Whether a panel shows another data seed than most."""
    seeds = [data_seed(r) for r in shown.values()]
    return data_seed(record) != max(seeds, key=seeds.count)


def _note(combinations: Combinations, shown: Mapping[Place, CellRecord]) -> str:
    """How to read the panels."""
    note = "x1 across, x2 up; black line: probability one half"
    if combinations.seeds < 2:
        return note
    seeds = [data_seed(r) for r in shown.values()]
    first = max(seeds, key=seeds.count)
    return f"{note}; first of {combinations.seeds} data seeds (seed {first})"
