"""A user's images, what one network or two get to see of them, and what each says."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.classification import Predictions
from pmbnn.prediction.rejection import Threshold

if TYPE_CHECKING:
    from pmbnn.data.digits import UserImage

HEADINGS = ("Bayesian", "deterministic")
"""Of the panels of two networks."""


def plot_own_images(
    images: "Sequence[UserImage]",
    predictions: Sequence[Predictions],
    threshold: Threshold | None,
    title: str,
) -> Figure:
    """Each image in a row: as read, grey, in 28 × 28 pixels, and each network's probabilities.

    Error bars are standard deviations over posterior draws; rejected images are marked by
    colour and by a word.

    Parameters
    ----------
    images
        As `pmbnn.data.digits.read_image` reads them.
    predictions
        What one network says of the images, or a Bayesian and a deterministic one.
    threshold
        Uncertainty above which the first network rejects an image. A deterministic network has
        no uncertainty to reject by.
    title
        What the figure is about.
    """
    width, ratios = (9.0, [2]) if len(predictions) == 1 else (12.0, [1.9, 1.9])
    figure = style.new_figure(width, 1.9 * len(images) + 0.9)
    ratios = [1, 1, 1, *ratios]
    panels = figure.subplots(len(images), len(ratios), squeeze=False, width_ratios=ratios)
    for row, image in enumerate(images):
        _draw_stages(panels[row, :3], image)
        draw_probabilities(panels[row, 3:], predictions, row, threshold)
    style.set_title(figure, title)
    return figure


def _draw_stages(panels: Sequence[Axes], image: "UserImage") -> None:
    """An image in three panels: as read, grey, and in 28 × 28 pixels."""
    shape = "inverted" if image.inverted else "as it is"
    titles = (image.path.name, "grey", f"28 × 28, {shape}")
    stages = (image.original, image.grey, image.digit)
    for axes, pixels, title in zip(panels, stages, titles, strict=True):
        limits = {} if pixels.ndim == 3 else {"vmin": 0, "vmax": np.iinfo(np.uint8).max}
        if pixels.dtype != np.uint8:
            limits["vmax"] = 1
        axes.imshow(pixels, cmap="gray", interpolation="nearest", **limits)
        axes.set_title(title, fontsize=style.TICK_SIZE, parse_math=False)
        axes.set_axis_off()


def draw_probabilities(
    panels: Sequence[Axes],
    predictions: Sequence[Predictions],
    row: int,
    threshold: Threshold | None,
) -> None:
    """Class probabilities of an image, a network a panel; only the first network rejects."""
    headings = HEADINGS if len(predictions) > 1 else ("",)
    limits = (math.inf if threshold is None else threshold.sd, math.inf)
    for axes, found, heading, limit in zip(panels, predictions, headings, limits, strict=False):
        _draw_bars(axes, found, row, bool(found.uncertainty[row] > limit), heading)


def _draw_bars(axes: Axes, found: Predictions, row: int, rejected: bool, heading: str) -> None:
    """Class probabilities as bars with their sds, and the verdict above, below a heading."""
    at = np.arange(len(found.classes))
    colour = style.REJECTED if rejected else style.ACCEPTED
    # A network without draws has no sds: bars of length zero would look like caps.
    sd = found.sd[row] if found.sd[row].any() else None
    axes.bar(at, found.probability[row], yerr=sd, color=colour, ecolor=style.GREY, capsize=2)
    axes.set(ylim=(0, 1.05), xticks=at, xticklabels=found.classes)
    axes.set_ylabel("probability", fontsize=style.TICK_SIZE)
    axes.tick_params(labelsize=style.TICK_SIZE)
    words = (heading, _verdict(found, row, rejected))
    axes.set_title("\n".join(filter(None, words)), fontsize=style.TICK_SIZE, color=colour)


def _verdict(found: Predictions, row: int, rejected: bool) -> str:
    """The class or its rejection, with its probability and how sure that is, in one line."""
    name = found.classes[found.predicted[row]]
    words = f"rejected: class {name} at" if rejected else f"{name}:"
    spread = f" ± {found.uncertainty[row]:.2f}" if found.sd[row].any() else ""
    return f"{words} {found.confidence[row]:.2f}{spread}, entropy {found.entropy[row]:.2f} bits"
