"""A user's pictures, what a network gets to see of them, and what it says."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.classification import Classification, Threshold
from pmbnn.figures import style
from pmbnn.pictures import Picture

REFUSED = style.CLASS_COLOURS[1]
ACCEPTED = style.CLASS_COLOURS[0]


def plot_pictures(
    pictures: Sequence[Picture],
    classifications: Sequence[Classification],
    threshold: Threshold,
    classes: Sequence[str],
    title: str,
) -> Figure:
    """Each picture in a row: as read, grey, in 28 × 28 pixels, and its class probabilities.

    Error bars are standard deviations over posterior draws; refused pictures are marked by
    colour and by a word.
    """
    figure = style.new_figure(9.0, 1.9 * len(pictures) + 0.9)
    panels = figure.subplots(len(pictures), 4, squeeze=False, width_ratios=(1, 1, 1, 2))
    for row, picture, found in zip(panels, pictures, classifications, strict=True):
        draw_picture(row[:3], picture)
        draw_bars(row[3], found, threshold.refuses(found), classes)
    style.set_title(figure, title)
    return figure


def draw_picture(panels: Sequence[Axes], picture: Picture) -> None:
    """A picture in three panels: as read, grey, and in 28 × 28 pixels."""
    shape = "inverted" if picture.inverted else "as it is"
    titles = (picture.path.name, "grey", f"28 × 28, {shape}")
    images = (picture.original, picture.grey, picture.digit)
    for axes, image, title in zip(panels, images, titles, strict=True):
        limits = {} if image.ndim == 3 else {"vmin": 0, "vmax": np.iinfo(np.uint8).max}
        if image.dtype != np.uint8:
            limits["vmax"] = 1
        axes.imshow(image, cmap="gray", interpolation="nearest", **limits)
        axes.set_title(title, fontsize=style.TICK_SIZE, parse_math=False)
        axes.set_axis_off()


def draw_bars(
    axes: Axes, found: Classification, refused: bool, classes: Sequence[str], heading: str = ""
) -> None:
    """Class probabilities as bars with their sds, and the verdict above, below a heading."""
    at = np.arange(len(classes))
    colour = REFUSED if refused else ACCEPTED
    # A network without draws has no sds: bars of length zero would look like caps.
    sd = found.sd if found.sd.any() else None
    axes.bar(at, found.probability, yerr=sd, color=colour, ecolor=style.GREY, capsize=2)
    axes.set(ylim=(0, 1.05), xticks=at, xticklabels=classes)
    axes.set_ylabel("probability", fontsize=style.TICK_SIZE)
    axes.tick_params(labelsize=style.TICK_SIZE)
    words = (heading, verdict(found, refused, classes))
    axes.set_title("\n".join(filter(None, words)), fontsize=style.TICK_SIZE, color=colour)


def verdict(found: Classification, refused: bool, classes: Sequence[str]) -> str:
    """The class or its refusal, with its probability and how sure that is, in one line."""
    best = found.probability[found.predicted]
    words = f"{'refused' if refused else classes[found.predicted]}: "
    words += f"class {classes[found.predicted]} at " if refused else ""
    spread = f" ± {found.uncertainty:.2f}" if found.sd.any() else ""
    return f"{words}{best:.2f}{spread}, entropy {found.entropy:.2f} bits"
