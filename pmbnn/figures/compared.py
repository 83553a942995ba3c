"""A user's pictures, and what a Bayesian and a deterministic network say of each."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from pmbnn.classification import Classification, Threshold
from pmbnn.figures import style
from pmbnn.figures.pictures import draw_bars, draw_picture
from pmbnn.pictures import Picture

HEADINGS = ("Bayesian", "deterministic")


def plot_compared_predictions(
    pictures: Sequence[Picture],
    bayesian: Sequence[Classification],
    deterministic: Sequence[Classification],
    classes: Sequence[str],
    title: str,
    threshold: Threshold | None = None,
) -> Figure:
    """Each picture in a row: as read, grey, in 28 × 28 pixels, and both networks' probabilities.

    Parameters
    ----------
    pictures
        As `pmbnn.pictures.read_picture` reads them.
    bayesian, deterministic
        What each network says of every picture (`pmbnn.classification.classify`; a
        deterministic network is one draw of weight 1).
    classes
        Names of the classes.
    title
        What the figure is about.
    threshold
        Uncertainty above which the Bayesian network refuses a picture, which is then marked
        by colour and by a word. A deterministic network has no uncertainty to refuse by.
    """
    figure = style.new_figure(12.0, 1.9 * len(pictures) + 0.9)
    ratios = (1, 1, 1, 1.9, 1.9)
    panels = figure.subplots(len(pictures), 5, squeeze=False, width_ratios=ratios)
    for row, picture, *both in zip(panels, pictures, bayesian, deterministic, strict=True):
        draw_picture(row[:3], picture)
        draw_both(row[3:], both, classes, threshold)
    style.set_title(figure, title)
    return figure


def draw_both(
    panels: Sequence,
    both: Sequence[Classification],
    classes: Sequence[str],
    threshold: Threshold | None,
) -> None:
    """Class probabilities of the Bayesian and of the deterministic network, in two panels."""
    refused = (threshold is not None and threshold.refuses(both[0]), False)
    for axes, found, no, heading in zip(panels, both, refused, HEADINGS, strict=True):
        draw_bars(axes, found, no, classes, heading)
