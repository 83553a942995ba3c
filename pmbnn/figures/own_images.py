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
"""Headings of the panels of two networks."""


@style.with_sizes
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
    ratios = [1, 1, 1, *ratios]
    figure = style.new_figure(width, 1.9 * len(images) + 0.9)
    panels = figure.subplots(len(images), len(ratios), squeeze=False, width_ratios=ratios)
    for row, image in enumerate(images):
        _draw_stages(panels[row, :3], image)
        draw_probabilities(panels[row, 3:], predictions, row, threshold)
    style.set_title(figure, title)
    return figure


def _draw_stages(panels: Sequence[Axes], image: "UserImage") -> None:
    """Draw an image in three panels: as read, grey, and in 28 × 28 pixels."""
    shape = "inverted" if image.inverted else "as it is"
    titles = (image.path.name, "grey", f"28 × 28, {shape}")
    stages = (image.original, image.grey, image.digit)
    for axes, pixels, title in zip(panels, stages, titles, strict=True):
        brightest = 255 if pixels.dtype == np.uint8 else 1
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=brightest, interpolation="nearest")
        axes.set_title(title, fontsize=style.TICK_SIZE, parse_math=False)
        axes.set_axis_off()


@style.with_sizes
def draw_probabilities(
    panels: Sequence[Axes],
    predictions: Sequence[Predictions],
    row: int,
    threshold: Threshold | None,
) -> None:
    """Draw class probabilities of an image, a network a panel; only the first network rejects.

    Bars have the sds of the probabilities; above them stands the verdict, below the heading.
    """
    headings = HEADINGS if len(predictions) > 1 else ("",)
    limits = (math.inf if threshold is None else threshold.sd, math.inf)
    for axes, network, heading, limit in zip(panels, predictions, headings, limits, strict=False):
        rejected = bool(network.uncertainty[row] > limit)
        colour = style.REJECTED if rejected else style.ACCEPTED
        at = np.arange(len(network.classes))
        # A network without draws has no sds: bars of length zero would look like caps.
        sd = network.sd[row] if network.sd[row].any() else None
        axes.bar(at, network.probability[row], yerr=sd, color=colour, ecolor=style.GREY, capsize=2)
        axes.set(ylim=(0, 1.05), xticks=at, xticklabels=network.classes)
        axes.set_ylabel("probability", fontsize=style.TICK_SIZE)
        title = "\n".join(filter(None, (heading, _verdict(network, row, rejected))))
        axes.set_title(title, fontsize=style.TICK_SIZE, color=colour)


def _verdict(network: Predictions, row: int, rejected: bool) -> str:
    """The class or its rejection, with its probability and how sure that is, in one line."""
    name = network.classes[network.predicted[row]]
    start = f"rejected: class {name} at" if rejected else f"{name}:"
    sd = f" ± {network.uncertainty[row]:.2f}" if network.sd[row].any() else ""
    entropy = f"entropy {network.entropy[row]:.2f} bits"
    return f"{start} {network.confidence[row]:.2f}{sd}, {entropy}"
