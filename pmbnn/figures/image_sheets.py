"""Sheets of images: held-out ones with what a fit says of them, single draws, training images.

Held-out images are chosen by how the fit does there: the images of which posterior draws disagree
most, those of the lowest probability, and mistakes that no draw expects.
"""

import math
from collections.abc import Callable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from pmbnn.figures import style
from pmbnn.figures.classification import TEST, Predictions, predictions_of, rows_name
from pmbnn.figures.maps import name_axes, set_frame
from pmbnn.figures.training import first_and_last, step_name
from pmbnn.prediction.class_probabilities import HELD_OUT, Threshold
from pmbnn.results.reading import group_of, images_of, plane_map, target_standardisation, values_of

if TYPE_CHECKING:
    from pmbnn.data.digits import UserImage


PLACE, SIDE, TEXT = 1.6, 1.4, 0.35
"""Widths of an image with the room about it and of itself, height of its text, in inches."""

WRONG = style.CLASS_COLOURS[1]

MOST_UNCERTAIN = 20
MOST = 24
"""Images of the other two sheets at most."""


class PredictedImage(NamedTuple):
    """An image with its true and its predicted class, and how sure the fit is of the latter.

    ``row`` is its index among all rows of its group; ``true`` is empty where it shows nothing that
    has a name. ``probability`` and ``sd`` are those of the predicted class; ``error_rate`` is the
    share of draws that say another class.
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
    groups = (g for g in HELD_OUT if g in trace.children and "image" in trace[g].variables)
    return next(groups, TEST)


def kept_images(trace: xr.DataTree, group: str = TEST) -> list[PredictedImage]:
    """Images of which a group keeps the pixels, in the order of its rows.

    Raises
    ------
    ValueError
        If there is no such group, or it keeps no images.
    """
    return sorted(_images(trace, group, "image", "image"), key=lambda image: image.row)


def examples_of(trace: xr.DataTree, group: str) -> list[PredictedImage]:
    """Images of a group that the trace keeps as examples, in the order they are kept.

    Raises
    ------
    ValueError
        If the trace does not have the group, or the group no examples.
    """
    return _images(trace, group, "example_image", "example")


def _images(trace: xr.DataTree, group: str, name: str, axis: str) -> list[PredictedImage]:
    pixels = images_of(trace, group, name, axis)
    rows = values_of(trace, group, f"{axis}_index")
    predictions = predictions_of(trace, group)
    classes = np.array(predictions.classes)
    label, rate = (values_of(trace, group, name) for name in ("label", "error_rate"))
    # Digits are labelled by the index of their class, everything else by its name.
    true = classes[label] if np.issubdtype(label.dtype, np.integer) else label
    predicted, probability = classes[predictions.predicted], predictions.confidence
    uncertainty = predictions.uncertainty
    return [
        PredictedImage(
            int(row),
            image,
            str(true[row]),
            str(predicted[row]),
            float(probability[row]),
            float(uncertainty[row]),
            float(rate[row]),
        )
        for row, image in zip(rows, pixels, strict=True)
    ]


@style.with_sizes
def _plot_sheet(
    images: Sequence[PredictedImage],
    text_of: Callable[[PredictedImage], str],
    columns: int,
    title: str,
) -> Figure:
    """Images in rows of so many, with a text above each, coloured where the class is wrong."""
    texts = [text_of(image) for image in images]
    longest = max((line for text in texts for line in text.splitlines()), key=len, default="")
    width = max(PLACE, style.text_width(longest, style.TICK_SIZE) + 0.1)
    height, rows = PLACE + TEXT, max(1, math.ceil(len(images) / columns))
    above = style.TITLE_HEIGHT * len(style.title_lines(title, columns * width)) + 0.25
    figure = style.fixed_figure(columns * width, rows * height + above)
    paper = style.add_paper(figure)
    for number, (image, text) in enumerate(zip(images, texts, strict=True)):
        left, bottom = number % columns * width, (rows - 1 - number // columns) * height
        style.place_pixels(paper, image.pixels, left + (width - SIDE) / 2, bottom + 0.15, SIDE)
        colour, middle = "black" if image.right else WRONG, {"ha": "center", "va": "bottom"}
        place = left + width / 2, bottom + SIDE + 0.2
        paper.text(*place, text, fontsize=style.TICK_SIZE, color=colour, **middle)
    style.set_title(figure, title)
    return figure


# Most uncertain


def most_uncertain(trace: xr.DataTree) -> list[PredictedImage]:
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

    def text(image: PredictedImage) -> str:
        wrong = "" if image.right else " (wrong)"
        both = f"true {image.true}, predicted {image.predicted}{wrong}"
        return f"{both}\n{image.probability:.2f} ± {image.sd:.2f}"

    images = most_uncertain(trace)
    note = "probability ± its sd over posterior draws"
    title = f"{title}\nthe {len(images)} most uncertain test images; {note}"
    return _plot_sheet(images, text, 5, title)


# Least confident


def least_confident(trace: xr.DataTree) -> list[PredictedImage]:
    """The 24 images whose predicted class has the lowest probability, lowest first.

    They are validation images where the trace keeps those, else test images.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    images = kept_images(trace, group_with_images(trace))
    return sorted(images, key=lambda image: image.probability)[:MOST]


def plot_least_confident(trace: xr.DataTree, title: str) -> Figure:
    """Held-out images of lowest confidence, with true and predicted class and its probability.

    The title says whether they are validation or test images.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """

    def text(image: PredictedImage) -> str:
        wrong = "" if image.right else " (wrong)"
        return f"{image.true}, called {image.predicted}{wrong}\n{image.probability:.2f}"

    images = least_confident(trace)
    what = f"{rows_name(group_with_images(trace))} images of lowest confidence"
    title = f"{title}\nthe {len(images)} {what}: probability of the predicted class"
    return _plot_sheet(images, text, 6, title)


# Confident mistakes


def confident_mistakes(trace: xr.DataTree) -> list[PredictedImage]:
    """Misclassified images, those with the lowest expected error rate and most probable first.

    Where some have an expected error rate of exactly zero, only these. They are validation
    images where the trace keeps those, else test images.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    images = kept_images(trace, group_with_images(trace))
    wrong = [image for image in images if not image.right]
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

    def text(image: PredictedImage) -> str:
        rate = f", rate {image.error_rate:.2g}" if image.error_rate > 0 else ""
        return f"{image.true} → {image.predicted}\nprobability {image.probability:.2f}{rate}"

    images = confident_mistakes(trace)
    title = f"{title}\n{_note_on_mistakes(trace, len(images))}"
    if images:
        return _plot_sheet(images, text, 6, title)
    figure = style.new_figure(9.6, 2.4)
    style.draw_empty(figure.subplots(), "no misclassified image is kept")
    style.set_title(figure, title)
    return figure


def _note_on_mistakes(trace: xr.DataTree, shown: int) -> str:
    """Which mistakes are shown, and how many there are."""
    group = group_with_images(trace)
    true, rate = (values_of(trace, group, name) for name in ("label", "error_rate"))
    wrong = predictions_of(trace, group).predicted != true
    certain = int(np.sum(wrong & (rate == 0)))
    mistakes = f"of {wrong.sum()} misclassified {rows_name(group)} images"
    if not certain:
        instead = f"; shown are the {shown} with the lowest" if shown else ""
        return f"none {mistakes} has an expected error rate of zero{instead}"
    some = f" ({shown} shown)" if shown < certain else ""
    zero = f"have an expected error rate of exactly zero{some}: all draws agree"
    return f"{certain} {mistakes} {zero}"


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
    snapshots = first_and_last(values_of(trace, GROUP, "snapshot_step"))
    examples: dict[str, list[SnapshotExample]] = {}
    for number, kind in enumerate(kinds):
        example = SnapshotExample(images[number], labels[number], p[number, snapshots])
        examples.setdefault(str(kind), []).append(example)
    return examples


@style.with_sizes
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
    group = group_of(trace, GROUP)
    snapshots = first_and_last(group["snapshot_step"].values)
    group = group.isel(snapshot=snapshots)
    threshold = float(group.attrs["confidence_threshold"])
    parts = {kind: some[: BLOCKS * ROWS] for kind, some in examples_by_kind(trace).items()}
    heights = [1.45 * math.ceil(len(some) / BLOCKS) + 0.5 for some in parts.values()]
    figure = style.new_figure(12.0, sum(heights) + 0.9)
    pieces = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0]
    for piece, (kind, examples) in zip(pieces, parts.items(), strict=True):
        _draw_kind(piece, group, examples, threshold)
        piece.suptitle(_heading(group, kind), fontsize=style.TITLE_SIZE - 1, weight="bold")
    note = f"bars: mean over draws; points: single draws; rejected: no bar above {threshold:g}"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _heading(group: xr.Dataset, kind: str) -> str:
    """Name of a kind, with the share of its set that is rejected at each step, where known."""
    name = "test digits" if kind == "test" else kind.replace("_", " ")
    if "rejected" not in group or kind not in group["set"].values.astype(str):
        return name
    at = list(group["set"].values.astype(str)).index(kind)
    shares = group["rejected"].transpose("snapshot", "set").values[:, at]
    steps = map(step_name, group["snapshot_step"].values)
    rejected = [f"{100 * share:.1f} % at {step}" for share, step in zip(shares, steps, strict=True)]
    return f"{name}; rejected: {', '.join(rejected)}"


def _draw_kind(
    piece: SubFigure, group: xr.Dataset, examples: list[SnapshotExample], threshold: float
) -> None:
    """Draw each image beside its class probabilities at each step, some beside each other."""
    steps = [step_name(step) for step in group["snapshot_step"].values]
    classes = [str(name) for name in group["output"].values]
    rows, width = math.ceil(len(examples) / BLOCKS), 1 + len(steps)
    ratios = (1, *(2.2 for _ in steps)) * BLOCKS
    panels = piece.subplots(rows, width * BLOCKS, squeeze=False, width_ratios=ratios)
    blocks = panels.reshape(rows * BLOCKS, width)
    for block, example in zip(blocks, examples, strict=False):
        style.draw_pixels(block[0], example.image)
        block[0].set_title(example.label)
        for axes, p, step in zip(block[1:], example.probability, steps, strict=True):
            _draw_draws(axes, p, classes, threshold, step)
    for axes in chain(*blocks[len(examples) :]):
        axes.set_axis_off()


def _draw_draws(axes: Axes, p: np.ndarray, classes: list[str], threshold: float, step: str) -> None:
    """Draw bars of the mean with the draws as points over them; ``p`` is ``(draw, class)``."""
    mean = p.mean(axis=0)
    rejected = not (mean > threshold).any()
    colour = style.REJECTED if rejected else style.ACCEPTED
    at = np.arange(len(classes))
    axes.bar(at, mean, 0.8, color=colour, alpha=0.35)
    places = at + np.linspace(-SPREAD, SPREAD, len(p))[:, None]
    axes.plot(places.ravel(), p.ravel(), ".", color=colour, markersize=2, alpha=0.6)
    axes.axhline(threshold, color=style.GREY, linestyle="--", linewidth=0.8)
    style.name_columns(axes, classes, 2.0 / len(classes))
    axes.set(ylim=(-0.03, 1.03), yticks=(0, 0.5, 1))
    axes.tick_params(labelsize=style.TICK_SIZE - 1)
    verdict = "rejected" if rejected else f"class {classes[mean.argmax()]}, {mean.max():.2f}"
    axes.set_title(f"{step}: {verdict}", fontsize=style.TICK_SIZE, color=colour)


# What the data look like: training points of a plane, and images of each class


PER_CLASS = 10
"""Images shown of a class at most."""

SAMPLE_PLACE, SAMPLE_SIDE = 0.8, 0.58
"""Width of an image with the room about it, and of itself, in inches."""


def training_points(trace: xr.DataTree) -> tuple[np.ndarray, np.ndarray]:
    """Training inputs ``(observation, feature)`` and their targets, in raw units.

    Raises
    ------
    ValueError
        If the trace keeps no training rows.
    """
    names = ("x", "standardisation_mean", "standardisation_sd")
    x, mean, sd = (values_of(trace, "constant_data", name) for name in names)
    y, standardisation = values_of(trace, "observed_data", "y"), target_standardisation(trace)
    return x * sd + mean, y if standardisation.is_identity else standardisation.undo(y)


@style.with_sizes
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
        points = x[label == index]
        axes.plot(
            *points[:, :2].T, linestyle="none", markersize=4, alpha=0.7,
            label=f"class {name} ({len(points)})", **style.class_look(index),
        )  # fmt: skip
    plane = plane_map(trace)
    set_frame(axes, plane)
    name_axes(axes, plane.features)
    handles, words = axes.get_legend_handles_labels()
    figure.legend(
        handles, words, ncols=style.legend_columns(words, figure.get_figwidth()), **style.BELOW
    )
    style.set_title(figure, f"{title}\ntraining points")
    return figure


def samples_by_class(trace: xr.DataTree) -> dict[str, list[np.ndarray]]:
    """Kept test images of each class, in the order of the test rows.

    Raises
    ------
    ValueError
        If the trace keeps no test images.
    """
    images = kept_images(trace)
    return {
        name: [image.pixels for image in images if image.true == name][:PER_CLASS]
        for name in predictions_of(trace, TEST).classes
    }


@style.with_sizes
def plot_samples(trace: xr.DataTree, title: str) -> Figure:
    """Test images in a row for each class.

    They are those that the trace keeps, so images that the fit finds hard are more frequent
    than in the data.

    Raises
    ------
    ValueError
        If the trace has no group ``test_predictions``, or keeps no images there.
    """
    samples = samples_by_class(trace)
    title = f"{title}\ntest images by class: the first ones and those that the fit finds hard"
    beside = max(style.text_width(name, style.TITLE_SIZE) for name in samples) + 0.3
    width = beside + SAMPLE_PLACE * max(5, *map(len, samples.values()))
    above = style.TITLE_HEIGHT * len(style.title_lines(title, width)) + 0.3
    figure = style.fixed_figure(width, SAMPLE_PLACE * len(samples) + above)
    paper = style.add_paper(figure)
    margin = (SAMPLE_PLACE - SAMPLE_SIDE) / 2
    for row, (name, images) in enumerate(samples.items(), start=1):
        bottom = SAMPLE_PLACE * (len(samples) - row)
        side = {"ha": "right", "va": "center", "fontsize": style.TITLE_SIZE}
        paper.text(beside - 0.15, bottom + SAMPLE_PLACE / 2, name, **side)
        for column, image in enumerate(images):
            left = beside + column * SAMPLE_PLACE
            style.place_pixels(paper, image, left, bottom + margin, SAMPLE_SIDE)
    style.set_title(figure, title)
    return figure


# A user's images, what one network or two get to see of them, and what each says


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
        axes.set_title(title, fontsize=style.TICK_SIZE)
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
        style.name_columns(axes, network.classes, 3.0 / len(at))
        axes.set_ylim(0, 1.05)
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
