"""Some pictures of every unfamiliar set, and what a fit takes them for."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.classification import Threshold, rejection_threshold
from pmbnn.detection import PERCENTILE
from pmbnn.figures import style
from pmbnn.figures.picture_sheet import draw_digit
from pmbnn.figures.pictures import ACCEPTED, REFUSED
from pmbnn.figures.predictions import predictions_of, rows_name, unfamiliar_groups
from pmbnn.figures.reading import values_of

COLUMNS = 8


class Example(NamedTuple):
    """A picture with what it shows, which may be nothing, and what the fit takes it for.

    ``probability`` and ``sd`` are those of the predicted class.
    """

    image: np.ndarray
    label: str
    predicted: str
    probability: float
    sd: float


def examples_of(trace: xr.DataTree, group: str) -> list[Example]:
    """Pictures of a group that the trace keeps as examples, in the order they are kept.

    Raises
    ------
    ValueError
        If the trace does not have the group, or the group no examples.
    """
    images = values_of(trace, group, "example_image", "example", "row", "column")
    rows = values_of(trace, group, "example_index")
    predictions = predictions_of(trace, group)
    labels = values_of(trace, group, "label")
    # Digits are labelled by the place of their class, everything else by its name.
    if np.issubdtype(labels.dtype, np.integer):
        labels = np.asarray(predictions.classes)[labels]
    return [
        Example(
            image,
            str(labels[row]),
            predictions.classes[predictions.predicted[row]],
            float(predictions.confidence[row]),
            float(predictions.uncertainty[row]),
        )
        for image, row in zip(images, rows, strict=True)
    ]


def plot_unfamiliar_examples(trace: xr.DataTree, title: str) -> Figure:
    """Examples of test digits and of each unfamiliar set, accepted or refused.

    What is refused, because its sd is above the 99th percentile of the held-out digits, is
    marked by colour and by a word.

    Raises
    ------
    ValueError
        If the trace has no group of unfamiliar pictures with examples, or no held-out digits.
    """
    threshold = rejection_threshold(trace, PERCENTILE)
    digits = ["test_predictions"] if "example_image" in trace["test_predictions"] else []
    groups = digits + unfamiliar_groups(trace)
    figure = style.new_figure(1.15 * COLUMNS + 1.0, 1.75 * len(groups) + 0.9)
    panels = figure.subplots(len(groups), COLUMNS, squeeze=False)
    for line, group in zip(panels, groups, strict=True):
        refused = np.mean(predictions_of(trace, group).uncertainty > threshold.sd)
        name = "test digits" if group in digits else rows_name(group)
        words = f"{name}\n{100 * refused:.1f} %\nrefused"
        examples = examples_of(trace, group)
        # The first digits come as they are in the data, the rest were kept for being doubtful.
        shown = examples[:COLUMNS] if group in digits else _spread(examples)
        _draw_row(line, shown, threshold, words)
    note = f"refused: sd above {threshold.sd:.3g}, the {PERCENTILE:g}th percentile of the "
    note += f"{rows_name(threshold.group)} digits"
    style.set_title(figure, f"{title}\nclass, probability ± its sd over draws; {note}")
    return figure


def _spread(examples: list[Example]) -> list[Example]:
    """As many as there is room for, evenly from first to last."""
    chosen = np.linspace(0, len(examples) - 1, min(COLUMNS, len(examples)))
    return [examples[at] for at in np.rint(chosen).astype(int)]


def _draw_row(line: np.ndarray, examples: list[Example], threshold: Threshold, words: str) -> None:
    for axes in line:
        axes.set_axis_off()
    place = {"ha": "right", "va": "center", "transform": line[0].transAxes}
    line[0].text(-0.25, 0.5, words, fontsize=style.LABEL_SIZE, **place)
    for axes, example in zip(line, examples, strict=False):
        _draw_example(axes, example, example.sd > threshold.sd)


def _draw_example(axes: Axes, example: Example, refused: bool) -> None:
    draw_digit(axes, example.image)
    shown = f"{example.label} → {example.predicted}" if example.label else f"→ {example.predicted}"
    words = f"{shown}\n{example.probability:.2f} ± {example.sd:.2f}"
    words += "\nrefused" if refused else "\naccepted"
    colour = REFUSED if refused else ACCEPTED
    axes.set_title(words, fontsize=style.TICK_SIZE, color=colour, parse_math=False)
