"""Out-of-distribution images: how uncertain a fit is of them, some examples, and letters."""

import math

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.classification import (
    TEST,
    held_out_group,
    ood_groups,
    predictions_of,
    rows_name,
)
from pmbnn.figures.image_sheets import PredictedImage, examples_of, kept_images
from pmbnn.prediction.class_probabilities import (
    PERCENTILE,
    Threshold,
    rejection_threshold,
    threshold,
)
from pmbnn.results.reading import values_of

COLOURS = ("black", *style.CLASS_COLOURS[:6])
LINES = ("-", "-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))


def scores_of(trace: xr.DataTree, group: str) -> dict[str, np.ndarray]:
    """Uncertainty scores of every image of a group, by name.

    Raises
    ------
    ValueError
        If the trace does not have the group, or the group not what this needs.
    """
    return {
        "predictive entropy, in bits": values_of(trace, group, "entropy") / math.log(2),
        "sd of the predicted class's probability": predictions_of(trace, group).uncertainty,
    }


@style.with_sizes
def plot_ood(trace: xr.DataTree, title: str) -> Figure:
    """Share of the images of each set that are more uncertain than any threshold.

    Two panels: predictive entropy, and standard deviation of the predicted class's
    probability. The 99th percentile of the held-out digits is marked, and the legend gives
    the share of each set above it.

    Raises
    ------
    ValueError
        If the trace has no group of out-of-distribution images, or no held-out digits.
    """
    held_out = held_out_group(trace)
    groups = {"test digits": TEST} if TEST in trace.children else {}
    groups |= {rows_name(group): group for group in ood_groups(trace)}
    scores = {name: scores_of(trace, group) for name, group in groups.items()}
    figure = style.new_figure(11.0, 6.2)
    limits = scores_of(trace, held_out)
    for axes, (measure, digits) in zip(figure.subplots(1, 2), limits.items(), strict=True):
        axes.set_xlabel(measure)
        of_sets = {name: by_measure[measure] for name, by_measure in scores.items()}
        if any(values.any() for values in of_sets.values()):
            _draw_exceedance(axes, of_sets, threshold(digits))
        else:
            style.draw_empty(axes, "zero for every image: all draws are the same network")
    note = f"grey line: {PERCENTILE:g}th percentile of the {rows_name(held_out)} digits"
    style.set_title(figure, f"{title}\n{note}; legend: share above it")
    return figure


def _draw_exceedance(axes: Axes, scores: dict[str, np.ndarray], limit: float) -> None:
    """Draw one curve for each set, falling from 100 % to nothing."""
    for number, (name, values) in enumerate(scores.items()):
        ordered = np.sort(values)
        # The share above x falls at each score, so a curve starts at 100 % from the left.
        share = 100 * (1 - np.arange(len(ordered) + 1) / len(ordered))
        label = f"{name} ({len(values)}): {100 * np.mean(values > limit):.1f} % above"
        axes.step(
            np.concatenate([[0.0], ordered]), share, where="post", label=label,
            color=COLOURS[number % len(COLOURS)], linestyle=LINES[number % len(LINES)],
            linewidth=2 if number == 0 else 1.5,
        )  # fmt: skip
    axes.axvline(limit, color=style.GREY, linestyle="--", linewidth=1.2)
    axes.text(limit, 101, f"{limit:.3g}", ha="center", fontsize=style.TICK_SIZE, color=style.GREY)
    axes.set_xlim(left=0)
    axes.set(ylim=(0, 100), ylabel="share of the images above, in %")
    axes.grid(True)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12), "frameon": False}
    axes.legend(handlelength=3.5, **below)


# Examples


COLUMNS = 8
"""Examples of a set that are shown."""


@style.with_sizes
def plot_ood_examples(trace: xr.DataTree, title: str) -> Figure:
    """Examples of test digits and of each out-of-distribution set, accepted or rejected.

    What is rejected, because its sd is above the 99th percentile of the held-out digits, is
    marked by colour and by a word.

    Raises
    ------
    ValueError
        If the trace has no out-of-distribution images with examples, or no held-out digits.
    """
    threshold = rejection_threshold(trace, PERCENTILE)
    groups = {group: rows_name(group) for group in ood_groups(trace)}
    if "example_image" in trace[TEST]:
        groups = {TEST: "test digits"} | groups
    figure = style.new_figure(1.15 * COLUMNS + 1.0, 1.75 * len(groups) + 0.9)
    panels = figure.subplots(len(groups), COLUMNS, squeeze=False)
    for line, (group, name) in zip(panels, groups.items(), strict=True):
        examples = examples_of(trace, group)
        # The first digits come as they are in the data, the rest were kept for being uncertain.
        last = len(examples) - 1 if group != TEST else min(COLUMNS, len(examples)) - 1
        shown = np.rint(np.linspace(0, last, min(COLUMNS, len(examples)))).astype(int)
        rejected = np.mean(predictions_of(trace, group).uncertainty > threshold.sd)
        label = f"{name}\n{100 * rejected:.1f} %\nrejected"
        place = {"ha": "right", "va": "center", "transform": line[0].transAxes}
        line[0].text(-0.25, 0.5, label, fontsize=style.LABEL_SIZE, **place)
        for axes in line:
            axes.set_axis_off()
        for axes, index in zip(line, shown, strict=False):
            _draw_example(axes, examples[index], threshold)
    note = f"rejected: sd above {threshold.sd:.3g}, the {PERCENTILE:g}th percentile of the "
    note += f"{rows_name(threshold.group)} digits"
    style.set_title(figure, f"{title}\nclass, probability ± its sd over draws; {note}")
    return figure


def _draw_example(axes: Axes, example: PredictedImage, threshold: Threshold) -> None:
    style.draw_pixels(axes, example.pixels)
    verdict, colour = _verdict(example, threshold)
    text = f"{example.true} → {example.predicted}".lstrip()
    text += f"\n{example.probability:.2f} ± {example.sd:.2f}\n{verdict}"
    axes.set_title(text, fontsize=style.TICK_SIZE, color=colour)


def _verdict(example: PredictedImage, threshold: Threshold) -> tuple[str, str]:
    """Whether an image is rejected, as a word and as a colour."""
    if example.sd > threshold.sd:
        return "rejected", style.REJECTED
    return "accepted", style.ACCEPTED


# Letters


LETTERS = "ood_letters"
DIGIT = "3"
CHOSEN = ("B", "A", "K", "X", "O", "S")
"""S2 shows a digit 3 and a letter B; the others are unlike any digit, or like one."""

TABLE_COLUMNS = {"image": 0.5, "class": 1.7, "probability": 3.1, "sd": 4.6, "verdict": 6.1}
"""Middles of the columns of the letters' table, in heights of a row."""

TABLE_WIDTH = 7.2
"""Width of that table in heights of a row."""


def rejected_letters(trace: xr.DataTree, threshold: Threshold) -> dict[str, float]:
    """Share of the images of each letter that are rejected, in the order of their names.

    Raises
    ------
    ValueError
        If the trace has no group ``ood_letters``.
    """
    rejected = predictions_of(trace, LETTERS).uncertainty > threshold.sd
    labels = values_of(trace, LETTERS, "label").astype(str)
    return {str(name): float(rejected[labels == name].mean()) for name in np.unique(labels)}


def chosen_examples(trace: xr.DataTree) -> list[PredictedImage]:
    """The first digit 3 of the test images that are kept, then each chosen letter.

    Raises
    ------
    ValueError
        If the trace keeps no test images, or no examples of letters.
    """
    digits, letters = kept_images(trace), examples_of(trace, LETTERS)
    candidates = [(DIGIT, digits), *((letter, letters) for letter in CHOSEN)]
    firsts = ([i for i in images if i.true == name][:1] for name, images in candidates)
    return [image for first in firsts for image in first]


@style.with_sizes
def plot_letters(trace: xr.DataTree, title: str) -> Figure:
    """Table of a digit and letters beside the share of each letter that is rejected.

    Rejected is what is more uncertain than the 99th percentile of the held-out digits; colour
    and a word say so.

    Raises
    ------
    ValueError
        If the trace keeps no test images, or no examples of letters.
    """
    threshold = rejection_threshold(trace, PERCENTILE)
    figure = style.new_figure(11.0, 6.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    _draw_table(left, chosen_examples(trace), threshold)
    share = float(np.mean(predictions_of(trace, LETTERS).uncertainty > threshold.sd))
    _draw_shares(right, rejected_letters(trace, threshold), share)
    note = f"rejected: sd above {threshold.sd:.3g}, the {PERCENTILE:g}th percentile of the "
    note += f"{threshold.rows} {rows_name(threshold.group)} digits"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _draw_table(axes: Axes, examples: list[PredictedImage], threshold: Threshold) -> None:
    """Draw one row an image; a unit of both axes is the height of a row."""
    middle = {"ha": "center", "va": "center", "fontsize": style.TITLE_SIZE}
    for name, x in TABLE_COLUMNS.items():
        axes.text(x, -0.3, name, **middle, color=style.GREY)
    for row, example in enumerate(examples):
        extent = (0.05, 0.95, row + 0.95, row + 0.05)
        axes.imshow(example.pixels, cmap="gray", vmin=0, vmax=255, extent=extent)
        verdict, colour = _verdict(example, threshold)
        cells = {
            "class": (example.predicted, "black"),
            "probability": (f"{100 * example.probability:.0f} %", "black"),
            "sd": (f"{example.sd:.2f}", "black"),
            "verdict": (verdict, colour),
        }
        for name, (text, text_colour) in cells.items():
            axes.text(TABLE_COLUMNS[name], row + 0.5, text, **middle, color=text_colour)
        axes.axhline(row, color="#DDDDDD", linewidth=0.8)
    axes.set(xlim=(0, TABLE_WIDTH), ylim=(max(1, len(examples)), -0.6))
    axes.set_axis_off()


def _draw_shares(axes: Axes, shares: dict[str, float], overall: float) -> None:
    """Draw a bar for each letter, and a line at the share of all images."""
    at = np.arange(len(shares))
    axes.axvline(100 * overall, color=style.GREY, linestyle="--", linewidth=1)
    axes.set_title(f"all letters: {100 * overall:.1f} % rejected")
    axes.barh(at, [100 * share for share in shares.values()], color=style.REJECTED)
    axes.set_yticks(at, list(shares))
    axes.set(xlim=(0, 100), ylim=(len(shares) - 0.4, -0.6))
    axes.set_xlabel("rejected images of the letter, in %")
    axes.grid(axis="x")
    axes.set_axisbelow(True)
