"""What single draws say of digits and of noise, early in a fit and late."""

import math
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from pmbnn.figures import style
from pmbnn.figures.picture_sheet import draw_digit
from pmbnn.figures.pictures import ACCEPTED, REFUSED
from pmbnn.figures.reading import group_of, values_of
from pmbnn.figures.steps import first_and_last, step_name

GROUP = "snapshot_examples"
BLOCKS = 2
"""Pictures beside each other."""

ROWS = 3
"""Rows of pictures of one kind at most."""

SPREAD = 0.3
"""Half the width over which the draws of a class are laid out, in draws' order."""


class Shown(NamedTuple):
    """One picture with the class probabilities of draws at each of the shown snapshots.

    ``probability`` has shape ``(snapshot, draw, class)``.
    """

    image: np.ndarray
    label: str
    probability: np.ndarray


def examples_by_kind(trace: xr.DataTree) -> dict[str, list[Shown]]:
    """Examples of every kind at the first snapshot after the start and at the last.

    Raises
    ------
    ValueError
        If the trace has no group ``snapshot_examples``.
    """
    p = values_of(trace, GROUP, "probability", "example", "snapshot", "draw", "output")
    images = values_of(trace, GROUP, "image", "example", "row", "column")
    labels, kinds = (values_of(trace, GROUP, name).astype(str) for name in ("label", "kind"))
    chosen = first_and_last(values_of(trace, GROUP, "snapshot_step"))
    found: dict[str, list[Shown]] = {}
    for at, kind in enumerate(kinds):
        found.setdefault(str(kind), []).append(Shown(images[at], labels[at], p[at, chosen]))
    return found


def plot_snapshot_examples(trace: xr.DataTree, title: str) -> Figure:
    """Pictures with the class probabilities of single draws and their mean, early and late.

    Bars are means over draws, points are single draws. A picture is refused if no mean
    probability exceeds the cut-off that the trace names; the title of each part gives the
    share of all pictures of its kind that are.

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
    note = f"bars: mean over draws; points: single draws; refused: no bar above {_cutoff(trace):g}"
    style.set_title(figure, f"{title}\n{note}")
    return figure


def _cutoff(trace: xr.DataTree) -> float:
    return float(group_of(trace, GROUP).attrs["cutoff"])


def _steps(trace: xr.DataTree) -> list[str]:
    steps = values_of(trace, GROUP, "snapshot_step")
    return [step_name(step) for step in steps[first_and_last(steps)]]


def _heading(trace: xr.DataTree, kind: str) -> str:
    """Name of a kind, with the share of its set that is refused at each step, where known."""
    name = "test digits" if kind == "test" else kind.replace("_", " ")
    group = group_of(trace, GROUP)
    if "refused" not in group or kind not in group["set"].values.astype(str):
        return name
    at = list(group["set"].values.astype(str)).index(kind)
    shares = values_of(trace, GROUP, "refused", "snapshot", "set")[:, at]
    chosen = first_and_last(values_of(trace, GROUP, "snapshot_step"))
    words = [f"{100 * shares[i]:.1f} % at {s}" for i, s in zip(chosen, _steps(trace), strict=True)]
    return f"{name}; refused: {', '.join(words)}"


def _draw_kind(piece: SubFigure, trace: xr.DataTree, some: list[Shown]) -> None:
    steps, cutoff = _steps(trace), _cutoff(trace)
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
        shown = some[number]
        draw_digit(block[0], shown.image)
        block[0].set_title(shown.label, fontsize=style.LABEL_SIZE)
        for axes, p, step in zip(block[1:], shown.probability, steps, strict=True):
            _draw_draws(axes, p, classes, cutoff, step)


def _draw_draws(axes: Axes, p: np.ndarray, classes: list[str], cutoff: float, step: str) -> None:
    """Bars of the mean with the draws as points over them; ``p`` is ``(draw, class)``."""
    mean = p.mean(axis=0)
    refused = not (mean > cutoff).any()
    colour = REFUSED if refused else ACCEPTED
    at = np.arange(len(classes))
    axes.bar(at, mean, 0.8, color=colour, alpha=0.35)
    places = at + np.linspace(-SPREAD, SPREAD, len(p))[:, None]
    axes.plot(places.ravel(), p.ravel(), ".", color=colour, markersize=2, alpha=0.6)
    axes.axhline(cutoff, color=style.GREY, linestyle="--", linewidth=0.8)
    axes.set(ylim=(-0.03, 1.03), xticks=at, xticklabels=classes, yticks=(0, 0.5, 1))
    axes.tick_params(labelsize=style.TICK_SIZE - 1)
    verdict = "refused" if refused else f"class {classes[mean.argmax()]}, {mean.max():.2f}"
    axes.set_title(f"{step}: {verdict}", fontsize=style.TICK_SIZE, color=colour)
