"""Maps of fits beside those of the posterior itself, and the difference."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure, SubFigure

from pmbnn.figures import style
from pmbnn.figures.plane import (
    draw_decision_boundary,
    draw_difference,
    draw_probability,
    probability_label,
    shape_of,
)
from pmbnn.results.plane import PlaneMap

WIDTH = 1.7
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
    figure = style.new_figure(3 * WIDTH * columns + 0.6, (WIDTH * shape + 0.25) * rows + 1.6)
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
