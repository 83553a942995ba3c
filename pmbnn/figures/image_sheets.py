"""Sheets of held-out images, each with what a fit says of it, chosen by how the fit does there.

Three of them: the images of which posterior draws disagree most, those of the lowest
probability, and mistakes that no draw expects.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.predictions import predictions_of, rows_name
from pmbnn.prediction.rejection import HELD_OUT
from pmbnn.results.reading import images_of, values_of

TEST = "test_predictions"
PLACE, SIDE, WORDS = 1.6, 1.4, 0.35
"""Widths of an image with the room about it and of itself, height of its words, in inches."""

WRONG = style.CLASS_COLOURS[1]

MOST_UNCERTAIN = 20
MOST = 24
"""Images of the other two sheets at most."""


class HeldOutImage(NamedTuple):
    """One image: its true and its predicted class, and how sure the fit is of that.

    ``row`` is its place among all rows of its group; ``probability`` and ``sd`` are those of the
    predicted class; ``error_rate`` is the share of draws that say another class.
    """

    row: int
    pixels: np.ndarray
    true: str
    predicted: str
    probability: float
    sd: float
    error_rate: float

    @property
    def right(self) -> bool:
        """Whether the predicted class is the true one."""
        return self.predicted == self.true


def group_with_images(trace: xr.DataTree) -> str:
    """Group of held-out rows with pixels: validation ones where kept, else ``test_predictions``."""
    held = (g for g in HELD_OUT if g in trace.children and "image" in trace[g].variables)
    return next(held, TEST)


def kept_images(trace: xr.DataTree, group: str = TEST) -> list[HeldOutImage]:
    """Images of which a group keeps the pixels, in the order of its rows.

    Raises
    ------
    ValueError
        If there is no such group, or it keeps no images.
    """
    pixels = images_of(trace, group, "image", "image")
    rows = values_of(trace, group, "image_index")
    predictions = predictions_of(trace, group)
    true, rate = (values_of(trace, group, name) for name in ("label", "error_rate"))
    numbers = (predictions.confidence, predictions.uncertainty, rate)
    return [
        HeldOutImage(
            int(rows[at]),
            pixels[at],
            predictions.classes[true[rows[at]]],
            predictions.classes[predictions.predicted[rows[at]]],
            *(float(array[rows[at]]) for array in numbers),
        )
        for at in np.argsort(rows)
    ]


def _plot_sheet(
    images: Sequence[HeldOutImage], words: Callable[[HeldOutImage], str], columns: int, title: str
) -> Figure:
    """Images in rows of so many, with words above each, coloured where the class is wrong."""
    written = [words(image) for image in images]
    longest = max((line for text in written for line in text.splitlines()), key=len, default="")
    width = max(PLACE, style.words_width(longest, style.TICK_SIZE) + 0.1)
    height, rows = PLACE + WORDS, max(1, math.ceil(len(images) / columns))
    above = style.TITLE_HEIGHT * len(style.title_lines(title, columns * width)) + 0.25
    figure = style.fixed_figure(columns * width, rows * height + above)
    paper = style.add_paper(figure)
    for number, (image, text) in enumerate(zip(images, written, strict=True)):
        left, bottom = number % columns * width, (rows - 1 - number // columns) * height
        style.place_pixels(paper, image.pixels, left + (width - SIDE) / 2, bottom + 0.15, SIDE)
        colour, middle = "black" if image.right else WRONG, {"ha": "center", "va": "bottom"}
        place = left + width / 2, bottom + SIDE + 0.2
        paper.text(*place, text, fontsize=style.TICK_SIZE, color=colour, **middle)
    style.set_title(figure, title)
    return figure


# Most uncertain


def most_uncertain(trace: xr.DataTree) -> list[HeldOutImage]:
    """The 20 test images whose predicted class's probability varies most, most varying first.

    Raises
    ------
    ValueError
        If the trace keeps no test images.
    """
    return sorted(kept_images(trace), key=lambda image: -image.sd)[:MOST_UNCERTAIN]


def plot_most_uncertain(trace: xr.DataTree, title: str) -> Figure:
    """Most uncertain test images, each with true class, predicted class and its probability.

    Wrong predictions are marked by colour and by a word.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or keeps no images there.
    """

    def words(image: HeldOutImage) -> str:
        wrong = "" if image.right else " (wrong)"
        both = f"true {image.true}, predicted {image.predicted}{wrong}"
        return f"{both}\n{image.probability:.2f} ± {image.sd:.2f}"

    shown = most_uncertain(trace)
    note = "probability ± its sd over posterior draws"
    title = f"{title}\nthe {len(shown)} most uncertain test images; {note}"
    return _plot_sheet(shown, words, 5, title)


# Least confident


def least_confident(trace: xr.DataTree) -> list[HeldOutImage]:
    """The 24 images whose predicted class has the lowest probability, lowest first.

    They are validation images where the trace keeps those, else test images.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    kept = kept_images(trace, group_with_images(trace))
    return sorted(kept, key=lambda image: image.probability)[:MOST]


def plot_least_confident(trace: xr.DataTree, title: str) -> Figure:
    """Held-out images of lowest confidence, with true and predicted class and its probability.

    The title says whether they are validation or test images.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """

    def words(image: HeldOutImage) -> str:
        wrong = "" if image.right else " (wrong)"
        return f"{image.true}, called {image.predicted}{wrong}\n{image.probability:.2f}"

    shown = least_confident(trace)
    images = f"{rows_name(group_with_images(trace))} images of lowest confidence"
    title = f"{title}\nthe {len(shown)} {images}: probability of the predicted class"
    return _plot_sheet(shown, words, 6, title)


# Confident mistakes


def confident_mistakes(trace: xr.DataTree) -> list[HeldOutImage]:
    """Misclassified images, those with the lowest expected error rate and most probable first.

    Where some have an expected error rate of exactly zero, only these. They are validation
    images where the trace keeps those, else test images.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    kept = kept_images(trace, group_with_images(trace))
    wrong = [image for image in kept if not image.right]
    wrong.sort(key=lambda image: (image.error_rate, -image.probability))
    certain = [image for image in wrong if image.error_rate == 0]
    return (certain or wrong)[:MOST]


def plot_confident_mistakes(trace: xr.DataTree, title: str) -> Figure:
    """Misclassified held-out images of which the expected error rate is exactly zero.

    If there are none, the title says so, and those of the lowest rate are shown instead. It
    also says whether they are validation or test images.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """

    def words(image: HeldOutImage) -> str:
        rate = f", rate {image.error_rate:.2g}" if image.error_rate > 0 else ""
        return f"{image.true} → {image.predicted}\nprobability {image.probability:.2f}{rate}"

    shown = confident_mistakes(trace)
    title = f"{title}\n{_note_on_mistakes(trace, shown)}"
    if shown:
        return _plot_sheet(shown, words, 6, title)
    figure = style.new_figure(9.6, 2.4)
    style.draw_empty(figure.subplots(), "no misclassified image is kept")
    style.set_title(figure, title)
    return figure


def _note_on_mistakes(trace: xr.DataTree, shown: list[HeldOutImage]) -> str:
    """What is shown, and out of how many."""
    group = group_with_images(trace)
    true, rate = (values_of(trace, group, name) for name in ("label", "error_rate"))
    wrong = predictions_of(trace, group).predicted != true
    certain = int(np.sum(wrong & (rate == 0)))
    of = f"of {wrong.sum()} misclassified {rows_name(group)} images"
    if not certain:
        instead = f"; shown are the {len(shown)} with the lowest" if shown else ""
        return f"none {of} has an expected error rate of zero{instead}"
    some = f" ({len(shown)} shown)" if len(shown) < certain else ""
    return f"{certain} {of} have an expected error rate of exactly zero{some}: all draws agree"
