"""Accuracy and mean uncertainty as two tables of colours, priors down, hyperpriors across."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.results.combinations import Combinations

CELL = (1.15, 0.62)
"""Width and height of a combination, in inches."""

PANELS = (
    ("accuracy", "accuracy on test rows", "test accuracy", style.ACCURACY),
    (
        "mean_sd",
        "sd of the predicted class's probability",
        "mean uncertainty (sd)",
        style.UNCERTAINTY,
    ),
)


def plot_grid(combinations: Combinations, title: str) -> Figure:
    """Two tables of colours with the numbers in them, for any kind of data.

    Means over data seeds (of one, over its fits), with standard errors where there are several.
    """
    rows, columns = combinations.shape
    width = 2 * (max(3, columns) * CELL[0] + 1.6)
    figure = style.new_figure(width, rows * CELL[1] + 1.9)
    for axes, (name, words, label, colours) in zip(figure.subplots(1, 2), PANELS, strict=True):
        axes.set_title(words, fontsize=style.LABEL_SIZE)
        _draw_table(figure, axes, combinations, name, label, colours)
    notes = [title, combinations.error_note, combinations.mark_notes]
    style.set_title(figure, "\n".join(filter(None, notes)))
    return figure


def _draw_table(
    figure: Figure,
    axes: Axes,
    combinations: Combinations,
    name: str,
    label: str,
    colours: Colormap,
) -> None:
    rows, columns = combinations.shape
    places = [[(i, j) for j in range(columns)] for i in range(rows)]
    means = np.array([[combinations.score(*place, name)[0] for place in row] for row in places])
    image = style.draw_image(axes, means, colours, _limits(means), aspect="auto")
    axes.set_facecolor(style.EMPTY)
    words = [[_words(combinations, *place, name) for place in row] for row in places]
    style.draw_numbers(axes, image, words, style.LABEL_SIZE)
    axes.set_xticks(range(columns), combinations.columns, fontsize=style.TICK_SIZE)
    axes.set_yticks(range(rows), combinations.rows, fontsize=style.TICK_SIZE)
    axes.tick_params(length=0)
    axes.set_xlabel("hyperprior", fontsize=style.LABEL_SIZE)
    axes.set_ylabel("prior", fontsize=style.LABEL_SIZE)
    style.add_colour_bar(figure, image, axes, label)


def _limits(means: np.ndarray) -> tuple[float, float]:
    """Smallest and largest mean; a little apart where they are equal."""
    known = means[np.isfinite(means)]
    if not len(known):
        return 0.0, 1.0
    low, high = float(known.min()), float(known.max())
    return (low, high) if high > low else (low - 0.01, high + 0.01)


def _words(combinations: Combinations, row: int, column: int, name: str) -> str:
    mean, error = combinations.score(row, column, name)
    if not math.isfinite(mean):
        return combinations.absence(row, column)
    # As many decimals as a small error needs to be more than zero.
    decimals = max(3, min(6, math.ceil(-math.log10(error)))) if error > 0 else 3
    number = f"{mean:.{decimals}f}{combinations.marks(row, column)}"
    number += f"\n±{error:.{decimals}f}" if math.isfinite(error) else ""
    return number + ("\n(no scale)" if row in combinations.without_scale else "")
