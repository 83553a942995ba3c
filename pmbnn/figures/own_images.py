"""A user's images, what one network or two get to see of them, and what each says."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.data.digits import OwnImage
from pmbnn.figures import style
from pmbnn.prediction.rejection import Classification, Threshold

HEADINGS = ("Bayesian", "deterministic")


def plot_own_images(
    images: Sequence[OwnImage],
    classifications: Sequence[Classification],
    threshold: Threshold,
    classes: Sequence[str],
    title: str,
) -> Figure:
    """Each image in a row: as read, grey, in 28 × 28 pixels, and its class probabilities.

    Error bars are standard deviations over posterior draws; rejected images are marked by
    colour and by a word.
    """
    figure = style.new_figure(9.0, 1.9 * len(images) + 0.9)
    panels = figure.subplots(len(images), 4, squeeze=False, width_ratios=(1, 1, 1, 2))
    for row, image, found in zip(panels, images, classifications, strict=True):
        _draw_stages(row[:3], image)
        draw_bars(row[3], found, threshold.rejects(found), classes)
    style.set_title(figure, title)
    return figure


def plot_compared_predictions(
    images: Sequence[OwnImage],
    bayesian: Sequence[Classification],
    deterministic: Sequence[Classification],
    classes: Sequence[str],
    title: str,
    threshold: Threshold | None = None,
) -> Figure:
    """Each image in a row: as read, grey, in 28 × 28 pixels, and both networks' probabilities.

    Parameters
    ----------
    images
        As `pmbnn.data.digits.read_image` reads them.
    bayesian, deterministic
        What each network says of every image (`pmbnn.prediction.rejection.classify`; a
        deterministic network is one draw of weight 1).
    classes
        Names of the classes.
    title
        What the figure is about.
    threshold
        Uncertainty above which the Bayesian network rejects an image, which is then marked
        by colour and by a word. A deterministic network has no uncertainty to reject by.
    """
    figure = style.new_figure(12.0, 1.9 * len(images) + 0.9)
    ratios = (1, 1, 1, 1.9, 1.9)
    panels = figure.subplots(len(images), 5, squeeze=False, width_ratios=ratios)
    for row, image, *both in zip(panels, images, bayesian, deterministic, strict=True):
        _draw_stages(row[:3], image)
        draw_both(row[3:], both, classes, threshold)
    style.set_title(figure, title)
    return figure


def _draw_stages(panels: Sequence[Axes], image: OwnImage) -> None:
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


def draw_both(
    panels: Sequence,
    both: Sequence[Classification],
    classes: Sequence[str],
    threshold: Threshold | None,
) -> None:
    """Class probabilities of the Bayesian and of the deterministic network, in two panels."""
    rejected = (threshold is not None and threshold.rejects(both[0]), False)
    for axes, found, no, heading in zip(panels, both, rejected, HEADINGS, strict=True):
        draw_bars(axes, found, no, classes, heading)


def draw_bars(
    axes: Axes, found: Classification, rejected: bool, classes: Sequence[str], heading: str = ""
) -> None:
    """Class probabilities as bars with their sds, and the verdict above, below a heading."""
    at = np.arange(len(classes))
    colour = style.REJECTED if rejected else style.ACCEPTED
    # A network without draws has no sds: bars of length zero would look like caps.
    sd = found.sd if found.sd.any() else None
    axes.bar(at, found.probability, yerr=sd, color=colour, ecolor=style.GREY, capsize=2)
    axes.set(ylim=(0, 1.05), xticks=at, xticklabels=classes)
    axes.set_ylabel("probability", fontsize=style.TICK_SIZE)
    axes.tick_params(labelsize=style.TICK_SIZE)
    words = (heading, verdict(found, rejected, classes))
    axes.set_title("\n".join(filter(None, words)), fontsize=style.TICK_SIZE, color=colour)


def verdict(found: Classification, rejected: bool, classes: Sequence[str]) -> str:
    """The class or its rejection, with its probability and how sure that is, in one line."""
    best = found.probability[found.predicted]
    words = f"{'rejected' if rejected else classes[found.predicted]}: "
    words += f"class {classes[found.predicted]} at " if rejected else ""
    spread = f" ± {found.uncertainty:.2f}" if found.sd.any() else ""
    return f"{words}{best:.2f}{spread}, entropy {found.entropy:.2f} bits"
