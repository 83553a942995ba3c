"""What single draws say of digits and of noise, at early and at late snapshots of a fit."""

import math
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from pmbnn.figures import style
from pmbnn.figures.training import first_and_last, step_name
from pmbnn.results.reading import group_of, images_of, values_of

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
