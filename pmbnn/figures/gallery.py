"""The pictures that a fit is least sure of."""

import math
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.reading import group_of

COLUMNS = 5
WRONG = style.CLASS_COLOURS[1]


class Picture(NamedTuple):
    """One test image with its true class, predicted class, and that class's probability."""

    image: np.ndarray
    true: str
    predicted: str
    probability: float
    sd: float


def pictures(test: xr.Dataset) -> list[Picture]:
    """Pictures that a trace keeps, most uncertain first.

    Raises
    ------
    ValueError
        If no pictures are kept.
    """
    if "gallery_image" not in test:
        raise ValueError("The group `test_predictions` must have `gallery_image`.")
    names = test["output"].values
    rows = test.isel(test_observation=test["gallery_index"])
    moments = (rows[name].transpose("rank", "output") for name in ("probability", "sd"))
    probability, sd = (array.values for array in moments)
    images = test["gallery_image"].transpose("rank", "row", "column").values
    found = []
    for rank, (image, label) in enumerate(zip(images, rows["label"].values, strict=True)):
        best = int(probability[rank].argmax())
        numbers = (float(probability[rank, best]), float(sd[rank, best]))
        found.append(Picture(image, str(names[label]), str(names[best]), *numbers))
    return found


def plot_gallery(trace: xr.DataTree, title: str) -> Figure:
    """Most uncertain test images, each with true class, predicted class and its probability.

    Wrong predictions are marked by colour and by a word.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or keeps no pictures there.
    """
    shown = pictures(group_of(trace, "test_predictions"))
    rows = math.ceil(len(shown) / COLUMNS)
    figure = style.new_figure(8.0, 1.95 * rows + 0.9)
    panels = figure.subplots(rows, COLUMNS, squeeze=False).flat
    for axes in panels:
        axes.set_axis_off()
    for axes, picture in zip(figure.axes, shown, strict=False):
        _draw(axes, picture)
    note = "probability ± its sd over posterior draws"
    style.set_title(figure, f"{title}\nthe {len(shown)} most uncertain test images; {note}")
    return figure


def _draw(axes: Axes, picture: Picture) -> None:
    axes.imshow(picture.image, cmap="gray_r", vmin=0, vmax=255, interpolation="nearest")
    right = picture.true == picture.predicted
    words = (
        f"true {picture.true}, predicted {picture.predicted}{'' if right else ' (wrong)'}\n"
        f"{picture.probability:.2f} ± {picture.sd:.2f}"
    )
    axes.set_title(words, fontsize=style.TICK_SIZE, color="black" if right else WRONG)
