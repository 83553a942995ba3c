"""A digit and some letters: what a fit takes them for, and whether it had better not say."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.classification import Threshold, rejection_threshold
from pmbnn.detection import PERCENTILE
from pmbnn.figures import style
from pmbnn.figures.picture_sheet import kept_pictures
from pmbnn.figures.pictures import ACCEPTED, REFUSED
from pmbnn.figures.predictions import predictions_of, rows_name
from pmbnn.figures.reading import values_of
from pmbnn.figures.unfamiliar_examples import Example, examples_of

GROUP = "unfamiliar_letters"

DIGIT = "3"
LETTERS = ("B", "A", "K", "X", "O", "S")
"""S2 shows a digit 3 and a letter B; the others are unlike any digit, or like one."""

COLUMNS = {"picture": 0.5, "class": 1.7, "probability": 3.1, "sd": 4.6, "verdict": 6.1}
"""Middles of the columns, in heights of a row."""

WIDTH = 7.2
"""Width of the table in heights of a row."""


def refused_letters(trace: xr.DataTree, threshold: Threshold) -> dict[str, float]:
    """Share of the pictures of each letter that are refused, in the order of their names.

    Raises
    ------
    ValueError
        If the trace has no group ``unfamiliar_letters``.
    """
    refused = predictions_of(trace, GROUP).uncertainty > threshold.sd
    labels = values_of(trace, GROUP, "label").astype(str)
    return {str(name): float(refused[labels == name].mean()) for name in np.unique(labels)}


def chosen_pictures(trace: xr.DataTree) -> list[Example]:
    """The first digit 3 of the test pictures that are kept, then each chosen letter.

    Raises
    ------
    ValueError
        If the trace keeps no test pictures, or no examples of letters.
    """
    digits = [
        Example(p.image, p.true, p.predicted, p.probability, p.sd) for p in kept_pictures(trace)
    ]
    letters = examples_of(trace, GROUP)
    wanted = [(DIGIT, digits), *((letter, letters) for letter in LETTERS)]
    found = [[e for e in examples if e.label == name][:1] for name, examples in wanted]
    return [example for some in found for example in some]


def plot_letters(trace: xr.DataTree, title: str) -> Figure:
    """Table of a digit and letters beside the share of each letter that is refused.

    Refused is what is more uncertain than the 99th percentile of the held-out digits; colour
    and a word say so.

    Raises
    ------
    ValueError
        If the trace keeps no test pictures, or no examples of letters.
    """
    threshold = rejection_threshold(trace, PERCENTILE)
    figure = style.new_figure(11.0, 6.2)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    _draw_table(left, chosen_pictures(trace), threshold)
    everywhere = np.mean(predictions_of(trace, GROUP).uncertainty > threshold.sd)
    _draw_shares(right, refused_letters(trace, threshold), float(everywhere))
    note = f"refused: sd above {threshold.sd:.3g}, the {PERCENTILE:g}th percentile of the "
    note += f"{threshold.rows} {rows_name(threshold.group)} digits"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _draw_table(axes: Axes, examples: list[Example], threshold: Threshold) -> None:
    """One row a picture; a unit of both axes is the height of a row."""
    middle = {"ha": "center", "va": "center", "fontsize": style.TITLE_SIZE}
    for name, x in COLUMNS.items():
        axes.text(x, -0.3, name, **middle, color=style.GREY)
    for row, example in enumerate(examples):
        extent = (0.05, 0.95, row + 0.95, row + 0.05)
        axes.imshow(example.image, cmap="gray_r", vmin=0, vmax=255, extent=extent)
        refused = example.sd > threshold.sd
        cells = {
            "class": example.predicted,
            "probability": f"{100 * example.probability:.0f} %",
            "sd": f"{example.sd:.2f}",
            "verdict": "refused" if refused else "accepted",
        }
        for name, word in cells.items():
            colour = (REFUSED if refused else ACCEPTED) if name == "verdict" else "black"
            axes.text(COLUMNS[name], row + 0.5, word, **middle, color=colour)
        axes.axhline(row, color="#DDDDDD", linewidth=0.8)
    axes.set(xlim=(0, WIDTH), ylim=(max(1, len(examples)), -0.6))
    axes.set_axis_off()


def _draw_shares(axes: Axes, shares: dict[str, float], everywhere: float) -> None:
    """A bar for each letter, and a line at the share of all pictures."""
    at = np.arange(len(shares))
    mean = 100 * everywhere
    axes.axvline(mean, color=style.GREY, linestyle="--", linewidth=1)
    axes.set_title(f"all letters: {mean:.1f} % refused", fontsize=style.LABEL_SIZE)
    axes.barh(at, [100 * share for share in shares.values()], color=REFUSED)
    axes.set_yticks(at, list(shares), fontsize=style.TICK_SIZE)
    axes.set(xlim=(0, 100), ylim=(len(shares) - 0.4, -0.6))
    axes.set_xlabel("refused pictures of the letter, in %", fontsize=style.LABEL_SIZE)
    axes.tick_params(axis="x", labelsize=style.TICK_SIZE)
    axes.grid(axis="x", color="#E5E5E5", linewidth=0.8)
    axes.set_axisbelow(True)
