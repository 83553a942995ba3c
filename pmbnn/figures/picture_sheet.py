"""Pictures that a trace keeps, in rows, each with what a fit says of it."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.classification import HELD_OUT
from pmbnn.figures import style
from pmbnn.figures.predictions import predictions_of
from pmbnn.figures.reading import values_of

GROUP = "test_predictions"
WRONG = style.CLASS_COLOURS[1]


class Picture(NamedTuple):
    """One picture: its true and its predicted class, and how sure the fit is of that.

    ``row`` is its place among all rows of its group; ``probability`` and ``sd`` are those of the
    predicted class; ``error_rate`` is the share of draws that say another class.
    """

    row: int
    image: np.ndarray
    true: str
    predicted: str
    probability: float
    sd: float
    error_rate: float

    @property
    def right(self) -> bool:
        """Whether the predicted class is the true one."""
        return self.predicted == self.true


def pictured_group(trace: xr.DataTree) -> str:
    """Group of held-out rows with pixels: validation ones where kept, else ``test_predictions``.

    Early traces keep predictions of validation rows without a pixel.
    """
    held = (g for g in HELD_OUT if g in trace.children and "image" in trace[g].variables)
    return next(held, GROUP)


def kept_pictures(trace: xr.DataTree, group: str = GROUP) -> list[Picture]:
    """Pictures of which a group keeps the pixels, in the order of its rows.

    Raises
    ------
    ValueError
        If there is no such group, or it keeps no pictures.
    """
    images = values_of(trace, group, "image", "image", "row", "column")
    rows = values_of(trace, group, "image_index")
    predictions = predictions_of(trace, group)
    true, rate = (values_of(trace, group, name) for name in ("label", "error_rate"))
    numbers = (predictions.confidence, predictions.uncertainty, rate)
    return [
        Picture(
            int(rows[at]),
            images[at],
            predictions.classes[true[rows[at]]],
            predictions.classes[predictions.predicted[rows[at]]],
            *(float(array[rows[at]]) for array in numbers),
        )
        for at in np.argsort(rows)
    ]


def plot_sheet(
    pictures: Sequence[Picture], words: Callable[[Picture], str], columns: int, title: str
) -> Figure:
    """Pictures in rows of so many, with words above each, coloured where the class is wrong."""
    rows = max(1, math.ceil(len(pictures) / columns))
    figure = style.new_figure(1.6 * columns, 1.95 * rows + 0.9)
    panels = figure.subplots(rows, columns, squeeze=False).flat
    for axes in panels:
        axes.set_axis_off()
    for axes, picture in zip(figure.axes, pictures, strict=False):
        draw_digit(axes, picture.image)
        colour = "black" if picture.right else WRONG
        axes.set_title(words(picture), fontsize=style.TICK_SIZE, color=colour)
    style.set_title(figure, title)
    return figure


def draw_digit(axes: Axes, image: np.ndarray) -> None:
    """A stored picture as ink on white paper, without a frame."""
    axes.imshow(image, cmap="gray_r", vmin=0, vmax=255, interpolation="nearest")
    axes.set_axis_off()
