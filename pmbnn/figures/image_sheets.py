"""Sheets of images: held-out ones with what a fit says of them, single draws, training images.

Held-out images are chosen by how the fit does there: the images of which posterior draws disagree
most, those of the lowest probability, and mistakes that no draw expects.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from pmbnn.figures import style
from pmbnn.figures.classification import predictions_of, rows_name
from pmbnn.figures.maps import name_axes, set_frame
from pmbnn.figures.training import first_and_last, step_name
from pmbnn.prediction.rejection import HELD_OUT
from pmbnn.results.reading import group_of, images_of, plane_map, target_standardisation, values_of

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


# What single draws say of digits and of noise, at early and at late snapshots of a fit


GROUP = "snapshot_examples"
BLOCKS = 2
"""Images beside each other."""

ROWS = 3
"""Rows of images of one kind at most."""

SPREAD = 0.3
"""Half the width over which the draws of a class are laid out, in draws' order."""


class SnapshotExample(NamedTuple):
    """One image with the class probabilities of draws at each of the shown snapshots.

    ``probability`` has shape ``(snapshot, draw, class)``.
    """

    image: np.ndarray
    label: str
    probability: np.ndarray


def examples_by_kind(trace: xr.DataTree) -> dict[str, list[SnapshotExample]]:
    """Examples of every kind at the first snapshot after the start and at the last.

    Raises
    ------
    ValueError
        If the trace has no group ``snapshot_examples``.
    """
    p = values_of(trace, GROUP, "probability", "example", "snapshot", "draw", "output")
    images = images_of(trace, GROUP, "image", "example")
    labels, kinds = (values_of(trace, GROUP, name).astype(str) for name in ("label", "kind"))
    chosen = first_and_last(values_of(trace, GROUP, "snapshot_step"))
    found: dict[str, list[SnapshotExample]] = {}
    for at, kind in enumerate(kinds):
        found.setdefault(str(kind), []).append(
            SnapshotExample(images[at], labels[at], p[at, chosen])
        )
    return found


def plot_snapshot_examples(trace: xr.DataTree, title: str) -> Figure:
    """Images with the class probabilities of single draws and their mean, early and late.

    Bars are means over draws, points are single draws. An image is rejected if no mean
    probability exceeds the confidence threshold that the trace names; the title of each part
    gives the share of all images of its kind that are.

    Raises
    ------
    ValueError
        If the trace has no group ``snapshot_examples``.
    """
    parts = {k: some[: BLOCKS * ROWS] for k, some in examples_by_kind(trace).items()}
    rows = [math.ceil(len(some) / BLOCKS) for some in parts.values()]
    figure = style.new_figure(12.0, sum(1.45 * n + 0.5 for n in rows) + 0.9)
    heights = [1.45 * n + 0.5 for n in rows]
    pieces = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0]
    for piece, (kind, some) in zip(pieces, parts.items(), strict=True):
        _draw_kind(piece, trace, some)
        piece.suptitle(_heading(trace, kind), fontsize=style.TITLE_SIZE - 1, weight="bold")
    threshold = _confidence_threshold(trace)
    note = f"bars: mean over draws; points: single draws; rejected: no bar above {threshold:g}"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _confidence_threshold(trace: xr.DataTree) -> float:
    return float(group_of(trace, GROUP).attrs["confidence_threshold"])


def _steps(trace: xr.DataTree) -> list[str]:
    steps = values_of(trace, GROUP, "snapshot_step")
    return [step_name(step) for step in steps[first_and_last(steps)]]


def _heading(trace: xr.DataTree, kind: str) -> str:
    """Name of a kind, with the share of its set that is rejected at each step, where known."""
    name = "test digits" if kind == "test" else kind.replace("_", " ")
    group = group_of(trace, GROUP)
    if "rejected" not in group or kind not in group["set"].values.astype(str):
        return name
    at = list(group["set"].values.astype(str)).index(kind)
    shares = values_of(trace, GROUP, "rejected", "snapshot", "set")[:, at]
    chosen = first_and_last(values_of(trace, GROUP, "snapshot_step"))
    words = [f"{100 * shares[i]:.1f} % at {s}" for i, s in zip(chosen, _steps(trace), strict=True)]
    return f"{name}; rejected: {', '.join(words)}"


def _draw_kind(piece: SubFigure, trace: xr.DataTree, some: list[SnapshotExample]) -> None:
    steps, confidence_threshold = _steps(trace), _confidence_threshold(trace)
    classes = [str(name) for name in values_of(trace, GROUP, "output")]
    width = 1 + len(steps)
    ratios = (1, *(2.2 for _ in steps)) * BLOCKS
    rows = math.ceil(len(some) / BLOCKS)
    panels = piece.subplots(rows, width * BLOCKS, squeeze=False, width_ratios=ratios)
    blocks = panels.reshape(rows * BLOCKS, width)
    for number, block in enumerate(blocks):
        if number >= len(some):
            for axes in block:
                axes.set_axis_off()
            continue
        example = some[number]
        style.draw_pixels(block[0], example.image)
        block[0].set_title(example.label, fontsize=style.LABEL_SIZE)
        for axes, p, step in zip(block[1:], example.probability, steps, strict=True):
            _draw_draws(axes, p, classes, confidence_threshold, step)


def _draw_draws(
    axes: Axes, p: np.ndarray, classes: list[str], confidence_threshold: float, step: str
) -> None:
    """Bars of the mean with the draws as points over them; ``p`` is ``(draw, class)``."""
    mean = p.mean(axis=0)
    rejected = not (mean > confidence_threshold).any()
    colour = style.REJECTED if rejected else style.ACCEPTED
    at = np.arange(len(classes))
    axes.bar(at, mean, 0.8, color=colour, alpha=0.35)
    places = at + np.linspace(-SPREAD, SPREAD, len(p))[:, None]
    axes.plot(places.ravel(), p.ravel(), ".", color=colour, markersize=2, alpha=0.6)
    axes.axhline(confidence_threshold, color=style.GREY, linestyle="--", linewidth=0.8)
    axes.set(ylim=(-0.03, 1.03), xticks=at, xticklabels=classes, yticks=(0, 0.5, 1))
    axes.tick_params(labelsize=style.TICK_SIZE - 1)
    verdict = "rejected" if rejected else f"class {classes[mean.argmax()]}, {mean.max():.2f}"
    axes.set_title(f"{step}: {verdict}", fontsize=style.TICK_SIZE, color=colour)


# What the data look like: training points of a plane, and images of each class


PER_CLASS = 10
"""Images shown of a class at most."""

SAMPLE_PLACE, SAMPLE_SIDE = 0.8, 0.58
"""Width of an image with the room about it, and of itself, in inches."""


def training_points(trace: xr.DataTree) -> tuple[np.ndarray, np.ndarray]:
    """Training inputs ``(observation, feature)`` and what was observed there, in raw units.

    Raises
    ------
    ValueError
        If the trace keeps no training rows.
    """
    names = ("x", "standardisation_mean", "standardisation_sd")
    x, mean, sd = (values_of(trace, "constant_data", name) for name in names)
    y, of_targets = values_of(trace, "observed_data", "y"), target_standardisation(trace)
    return x * sd + mean, y if of_targets.is_identity else of_targets.undo(y)


def plot_points(trace: xr.DataTree, title: str) -> Figure:
    """Training points in the plane, by class, in the units of the data.

    Raises
    ------
    ValueError
        If the trace keeps no training points.
    """
    x, label = training_points(trace)
    figure = style.new_figure(5.2, 4.6)
    axes = figure.subplots()
    for index, name in enumerate(values_of(trace, "predictions", "output")):
        own = x[label == index]
        which = index % len(style.MARKERS)
        axes.plot(
            own[:, 0],
            own[:, 1],
            linestyle="none",
            marker=style.MARKERS[which],
            markersize=4,
            alpha=0.7,
            color=style.CLASS_COLOURS[which],
            label=f"class {name} ({len(own)})",
        )
    plane = plane_map(trace)
    set_frame(axes, plane)
    name_axes(axes, plane.features)
    axes.tick_params(labelsize=style.TICK_SIZE)
    axes.legend(fontsize=style.TICK_SIZE)
    style.set_title(figure, f"{title}\ntraining points")
    return figure


def samples_by_class(trace: xr.DataTree) -> dict[str, list[np.ndarray]]:
    """Kept test images of each class, in the order of the test rows.

    Raises
    ------
    ValueError
        If the trace keeps no test images.
    """
    images = images_of(trace, TEST, "image", "image")
    rows = values_of(trace, TEST, "image_index")
    kept = dict(zip(rows.tolist(), images, strict=True))
    label = values_of(trace, TEST, "label")
    names = values_of(trace, TEST, "output")
    return {
        str(name): [kept[row] for row in sorted(kept) if label[row] == index][:PER_CLASS]
        for index, name in enumerate(names)
    }


def plot_samples(trace: xr.DataTree, title: str) -> Figure:
    """Test images in a row for each class.

    They are those that the trace keeps, so images that the fit finds hard are more frequent
    than in the data.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or keeps no images there.
    """
    found = samples_by_class(trace)
    note = "test images by class: the first ones and those that the fit finds hard"
    title = f"{title}\n{note}"
    beside = max(style.words_width(name, style.TITLE_SIZE) for name in found) + 0.3
    width = beside + SAMPLE_PLACE * max(5, *map(len, found.values()))
    height = (
        SAMPLE_PLACE * len(found) + style.TITLE_HEIGHT * len(style.title_lines(title, width)) + 0.3
    )
    figure = style.fixed_figure(width, height)
    paper = style.add_paper(figure)
    for row, (name, images) in enumerate(found.items(), start=1):
        bottom = SAMPLE_PLACE * (len(found) - row)
        side = {"ha": "right", "va": "center", "fontsize": style.TITLE_SIZE}
        paper.text(beside - 0.15, bottom + SAMPLE_PLACE / 2, name, **side)
        for column, image in enumerate(images):
            left = beside + column * SAMPLE_PLACE
            style.place_pixels(
                paper, image, left, bottom + (SAMPLE_PLACE - SAMPLE_SIDE) / 2, SAMPLE_SIDE
            )
    style.set_title(figure, title)
    return figure
