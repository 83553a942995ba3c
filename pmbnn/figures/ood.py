"""Out-of-distribution images: how uncertain a fit is of them, some examples, and letters."""

import math
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.figures import style
from pmbnn.figures.classification import (
    held_out_group,
    ood_groups,
    predictions_of,
    rows_name,
)
from pmbnn.figures.image_sheets import kept_images
from pmbnn.prediction.rejection import PERCENTILE, Threshold, rejection_threshold, threshold
from pmbnn.results.reading import images_of, values_of

TEST = "test_predictions"
COLOURS = ("black", *style.CLASS_COLOURS[:6])
LINES = ("-", "-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))


COLUMNS = 8
"""Examples of a set that are shown."""

LETTERS = "ood_letters"
DIGIT = "3"
CHOSEN = ("B", "A", "K", "X", "O", "S")
"""S2 shows a digit 3 and a letter B; the others are unlike any digit, or like one."""

TABLE_COLUMNS = {"image": 0.5, "class": 1.7, "probability": 3.1, "sd": 4.6, "verdict": 6.1}
"""Middles of the columns of the letters' table, in heights of a row."""

TABLE_WIDTH = 7.2
"""Width of that table in heights of a row."""


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
    sets = {"test digits": scores_of(trace, TEST)} if TEST in trace.children else {}
    sets |= {rows_name(group): scores_of(trace, group) for group in ood_groups(trace)}
    limits = scores_of(trace, held_out)
    figure = style.new_figure(11.0, 6.2)
    for axes, (name, digits) in zip(figure.subplots(1, 2), limits.items(), strict=True):
        limit = threshold(digits)
        axes.set_xlabel(name, fontsize=style.LABEL_SIZE)
        shown = {words: scores[name] for words, scores in sets.items()}
        if any(scores.any() for scores in shown.values()):
            _draw_exceedance(axes, shown, limit)
        else:
            style.draw_empty(axes, "zero for every image: all draws are the same network")
    note = f"grey line: {PERCENTILE:g}th percentile of the {rows_name(held_out)} digits"
    style.set_title(figure, f"{title}\n{note}; legend: share above it")
    return figure


def _draw_exceedance(axes: Axes, sets: dict[str, np.ndarray], limit: float) -> None:
    """One curve for each set, falling from 100 % to nothing."""
    for number, (name, scores) in enumerate(sets.items()):
        ordered = np.sort(scores)
        # The share above x falls at each score, so a curve starts at 100 % from the left.
        share = 100 * (1 - np.arange(len(ordered) + 1) / len(ordered))
        words = f"{name} ({len(scores)}): {100 * np.mean(scores > limit):.1f} % above"
        axes.step(
            np.concatenate([[0.0], ordered]), share, where="post", label=words,
            color=COLOURS[number % len(COLOURS)], linestyle=LINES[number % len(LINES)],
            linewidth=2 if number == 0 else 1.5,
        )  # fmt: skip
    axes.axvline(limit, color=style.GREY, linestyle="--", linewidth=1.2)
    axes.text(limit, 101, f"{limit:.3g}", ha="center", fontsize=style.TICK_SIZE, color=style.GREY)
    axes.set_xlim(left=0)
    axes.set_ylim(0, 100)
    axes.set_ylabel("share of the images above, in %", fontsize=style.LABEL_SIZE)
    axes.tick_params(labelsize=style.TICK_SIZE)
    axes.grid(color="#E5E5E5", linewidth=0.8)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12), "frameon": False}
    axes.legend(fontsize=style.TICK_SIZE, handlelength=3.5, **below)


# Examples


class Example(NamedTuple):
    """An image with what it shows, which may be nothing, and what the fit takes it for.

    ``probability`` and ``sd`` are those of the predicted class.
    """

    pixels: np.ndarray
    label: str
    predicted: str
    probability: float
    sd: float


def examples_of(trace: xr.DataTree, group: str) -> list[Example]:
    """Images of a group that the trace keeps as examples, in the order they are kept.

    Raises
    ------
    ValueError
        If the trace does not have the group, or the group no examples.
    """
    images = images_of(trace, group, "example_image", "example")
    rows = values_of(trace, group, "example_index")
    predictions = predictions_of(trace, group)
    labels = values_of(trace, group, "label")
    # Digits are labelled by the place of their class, everything else by its name.
    if np.issubdtype(labels.dtype, np.integer):
        labels = np.asarray(predictions.classes)[labels]
    return [
        Example(
            pixels,
            str(labels[row]),
            predictions.classes[predictions.predicted[row]],
            float(predictions.confidence[row]),
            float(predictions.uncertainty[row]),
        )
        for pixels, row in zip(images, rows, strict=True)
    ]


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
    digits = [TEST] if "example_image" in trace[TEST] else []
    groups = digits + ood_groups(trace)
    figure = style.new_figure(1.15 * COLUMNS + 1.0, 1.75 * len(groups) + 0.9)
    panels = figure.subplots(len(groups), COLUMNS, squeeze=False)
    for line, group in zip(panels, groups, strict=True):
        rejected = np.mean(predictions_of(trace, group).uncertainty > threshold.sd)
        name = "test digits" if group in digits else rows_name(group)
        words = f"{name}\n{100 * rejected:.1f} %\nrejected"
        examples = examples_of(trace, group)
        # The first digits come as they are in the data, the rest were kept for being uncertain.
        shown = examples[:COLUMNS] if group in digits else _evenly(examples)
        _draw_examples(line, shown, threshold, words)
    note = f"rejected: sd above {threshold.sd:.3g}, the {PERCENTILE:g}th percentile of the "
    note += f"{rows_name(threshold.group)} digits"
    style.set_title(figure, f"{title}\nclass, probability ± its sd over draws; {note}")
    return figure


def _evenly(examples: list[Example]) -> list[Example]:
    """As many as there is room for, evenly from first to last."""
    chosen = np.linspace(0, len(examples) - 1, min(COLUMNS, len(examples)))
    return [examples[at] for at in np.rint(chosen).astype(int)]


def _draw_examples(
    line: np.ndarray, examples: list[Example], threshold: Threshold, words: str
) -> None:
    for axes in line:
        axes.set_axis_off()
    place = {"ha": "right", "va": "center", "transform": line[0].transAxes}
    line[0].text(-0.25, 0.5, words, fontsize=style.LABEL_SIZE, **place)
    for axes, example in zip(line, examples, strict=False):
        _draw_example(axes, example, example.sd > threshold.sd)


def _draw_example(axes: Axes, example: Example, rejected: bool) -> None:
    style.draw_pixels(axes, example.pixels)
    shown = f"{example.label} → {example.predicted}" if example.label else f"→ {example.predicted}"
    words = f"{shown}\n{example.probability:.2f} ± {example.sd:.2f}"
    words += "\nrejected" if rejected else "\naccepted"
    colour = style.REJECTED if rejected else style.ACCEPTED
    axes.set_title(words, fontsize=style.TICK_SIZE, color=colour, parse_math=False)


# Letters


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


def chosen_examples(trace: xr.DataTree) -> list[Example]:
    """The first digit 3 of the test images that are kept, then each chosen letter.

    Raises
    ------
    ValueError
        If the trace keeps no test images, or no examples of letters.
    """
    digits = [
        Example(p.pixels, p.true, p.predicted, p.probability, p.sd) for p in kept_images(trace)
    ]
    letters = examples_of(trace, LETTERS)
    wanted = [(DIGIT, digits), *((letter, letters) for letter in CHOSEN)]
    found = [[e for e in examples if e.label == name][:1] for name, examples in wanted]
    return [example for some in found for example in some]


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
    everywhere = np.mean(predictions_of(trace, LETTERS).uncertainty > threshold.sd)
    _draw_shares(right, rejected_letters(trace, threshold), float(everywhere))
    note = f"rejected: sd above {threshold.sd:.3g}, the {PERCENTILE:g}th percentile of the "
    note += f"{threshold.rows} {rows_name(threshold.group)} digits"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _draw_table(axes: Axes, examples: list[Example], threshold: Threshold) -> None:
    """One row an image; a unit of both axes is the height of a row."""
    middle = {"ha": "center", "va": "center", "fontsize": style.TITLE_SIZE}
    for name, x in TABLE_COLUMNS.items():
        axes.text(x, -0.3, name, **middle, color=style.GREY)
    for row, example in enumerate(examples):
        extent = (0.05, 0.95, row + 0.95, row + 0.05)
        axes.imshow(example.pixels, cmap="gray", vmin=0, vmax=255, extent=extent)
        rejected = example.sd > threshold.sd
        cells = {
            "class": example.predicted,
            "probability": f"{100 * example.probability:.0f} %",
            "sd": f"{example.sd:.2f}",
            "verdict": "rejected" if rejected else "accepted",
        }
        for name, word in cells.items():
            colour = (
                (style.REJECTED if rejected else style.ACCEPTED) if name == "verdict" else "black"
            )
            axes.text(TABLE_COLUMNS[name], row + 0.5, word, **middle, color=colour)
        axes.axhline(row, color="#DDDDDD", linewidth=0.8)
    axes.set(xlim=(0, TABLE_WIDTH), ylim=(max(1, len(examples)), -0.6))
    axes.set_axis_off()


def _draw_shares(axes: Axes, shares: dict[str, float], everywhere: float) -> None:
    """A bar for each letter, and a line at the share of all images."""
    at = np.arange(len(shares))
    mean = 100 * everywhere
    axes.axvline(mean, color=style.GREY, linestyle="--", linewidth=1)
    axes.set_title(f"all letters: {mean:.1f} % rejected", fontsize=style.LABEL_SIZE)
    axes.barh(at, [100 * share for share in shares.values()], color=style.REJECTED)
    axes.set_yticks(at, list(shares), fontsize=style.TICK_SIZE)
    axes.set(xlim=(0, 100), ylim=(len(shares) - 0.4, -0.6))
    axes.set_xlabel("rejected images of the letter, in %", fontsize=style.LABEL_SIZE)
    axes.tick_params(axis="x", labelsize=style.TICK_SIZE)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)
