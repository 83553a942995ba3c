"""How unsure a fit is of pictures that it was never shown the like of."""

import math

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmbnn.detection import PERCENTILE, threshold
from pmbnn.figures import style
from pmbnn.figures.predictions import (
    held_out_group,
    predictions_of,
    rows_name,
    unfamiliar_groups,
)
from pmbnn.figures.reading import values_of

TEST = "test_predictions"
COLOURS = ("black", *style.CLASS_COLOURS[:6])
LINES = ("-", "-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))


def scores_of(trace: xr.DataTree, group: str) -> dict[str, np.ndarray]:
    """Measures of uncertainty of every picture of a group, by name.

    Raises
    ------
    ValueError
        If the trace does not have the group, or the group not what this needs.
    """
    return {
        "predictive entropy, in bits": values_of(trace, group, "entropy") / math.log(2),
        "sd of the predicted class's probability": predictions_of(trace, group).uncertainty,
    }


def plot_unfamiliar(trace: xr.DataTree, title: str) -> Figure:
    """Share of the pictures of each set that are more uncertain than any threshold.

    Two panels: predictive entropy, and standard deviation of the predicted class's
    probability. The 99th percentile of the held-out digits is marked, and the legend gives
    the share of each set above it.

    Raises
    ------
    ValueError
        If the trace has no group of unfamiliar pictures, or no held-out digits.
    """
    held_out = held_out_group(trace)
    sets = {"test digits": scores_of(trace, TEST)} if TEST in trace.children else {}
    sets |= {rows_name(group): scores_of(trace, group) for group in unfamiliar_groups(trace)}
    limits = scores_of(trace, held_out)
    figure = style.new_figure(11.0, 6.2)
    for axes, (name, digits) in zip(figure.subplots(1, 2), limits.items(), strict=True):
        limit = threshold(digits)
        axes.set_xlabel(name, fontsize=style.LABEL_SIZE)
        shown = {words: scores[name] for words, scores in sets.items()}
        if any(scores.any() for scores in shown.values()):
            _draw(axes, shown, limit)
        else:
            style.draw_empty(axes, "zero for every picture: all draws are the same network")
    note = f"grey line: {PERCENTILE:g}th percentile of the {rows_name(held_out)} digits"
    style.set_title(figure, f"{title}\n{note}; legend: share above it")
    return figure


def _draw(axes: Axes, sets: dict[str, np.ndarray], limit: float) -> None:
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
    axes.set_ylabel("share of the pictures above, in %", fontsize=style.LABEL_SIZE)
    axes.tick_params(labelsize=style.TICK_SIZE)
    axes.grid(color="#E5E5E5", linewidth=0.8)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.12), "frameon": False}
    axes.legend(fontsize=style.TICK_SIZE, handlelength=3.5, **below)
