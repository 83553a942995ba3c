"""Small line drawings of a cell as SVG: how the ELBO rose, where the last layer's weights are."""

from collections.abc import Sequence

import numpy as np

from pmbnn.report.markup import Markup, element, join
from pmbnn.report.numbers import plain
from pmbnn.report.traces import Training, Weights

WIDTH, HEIGHT = 340, 170
LEFT, RIGHT, TOP, BOTTOM = 8, 332, 12, 142

SETTLED = 0.1
"""Share of a fit after which its ELBO decides what is shown: it starts far below."""

FLAT = 0.004
"""Share of its peak below which a density is not drawn."""

SPARK = (96, 40)
"""Width and height of the drawing that stands for a cell without maps."""


def draw_training(training: Training) -> Markup:
    """ELBO of every restart over the steps, the restart predicted with on top."""
    limits = _elbo_limits(training.elbo)
    if limits is None:
        return Markup("")
    x = _along(training.step, (training.step[0], training.step[-1]), LEFT, RIGHT)
    lines = [
        element("path", d=_path(x, _along(_held(line, limits), limits, BOTTOM, TOP)), class_=kind)
        for line, kind in _restarts(training)
    ]
    low, high = (plain(value, 4) for value in limits)
    words = [
        _words(LEFT, TOP - 2, high),
        _words(RIGHT, BOTTOM - 4, low, "end"),
        _words(LEFT, HEIGHT - 12, f"step {plain(int(training.step[0]))}"),
        _words(RIGHT, HEIGHT - 12, plain(int(training.step[-1])), "end"),
    ]
    label = f"ELBO from {low} to {high} nats over {plain(int(training.step[-1]))} steps"
    return _svg(WIDTH, HEIGHT, label, [_axis(), *lines, *words])


def draw_spark(training: Training) -> Markup:
    """ELBO of the restart predicted with, as small as a word."""
    limits = _elbo_limits(training.elbo)
    if limits is None:
        return Markup("")
    width, height = SPARK
    x = _along(training.step, (training.step[0], training.step[-1]), 2, width - 2)
    y = _along(_held(training.elbo[training.best], limits), limits, height - 3, 3)
    return _svg(
        width, height, "ELBO over the steps", [element("path", d=_path(x, y), class_="best")]
    )


def draw_weights(weights: Weights) -> Markup:
    """Densities of the last layer's weights, each scaled to its highest point."""
    ends = float(weights.at[0]), float(weights.at[-1])
    if not ends[0] < ends[1]:
        return Markup("")
    x = _along(weights.at, ends, LEFT, RIGHT)
    own = len(weights.density) == weights.away.size
    kinds = ["away" if own and away else "near" for away in weights.away[: len(weights.density)]]
    # The few that stand apart are drawn last, on top.
    order = sorted(range(len(kinds)), key=lambda at: kinds[at] == "away")
    lines = [
        element("path", d=_path(x, _raised(weights.density[at])), class_=kinds[at]) for at in order
    ]
    zero = []
    if ends[0] < 0 < ends[1]:
        at = f"{_along(np.zeros(1), ends, LEFT, RIGHT)[0]:.1f}"
        zero = [element("line", x1=at, x2=at, y1=TOP, y2=BOTTOM, class_="zero")]
        zero += [_words(at, HEIGHT - 12, "0", "middle")]
    words = [
        _words(LEFT, HEIGHT - 12, plain(ends[0], 2)),
        _words(RIGHT, HEIGHT - 12, plain(ends[1], 2), "end"),
    ]
    label = f"densities of {weights.away.size} weights of the last layer"
    return _svg(WIDTH, HEIGHT, label, [_axis(), *zero, *lines, *words])


def _restarts(training: Training):
    """Each restart's line and kind; the one predicted with is last, on top."""
    others = [line for at, line in enumerate(training.elbo) if at != training.best]
    return [*((line, "other") for line in others), (training.elbo[training.best], "best")]


def _elbo_limits(elbo: np.ndarray) -> tuple[float, float] | None:
    """Lowest and highest ELBO shown; None if none is finite."""
    finite = np.isfinite(elbo)
    if not finite.any():
        return None
    settled = elbo[:, int(SETTLED * elbo.shape[1]) :]
    settled = settled[np.isfinite(settled)]
    low = float(settled.min() if settled.size else elbo[finite].min())
    high = float(elbo[finite].max())
    return (low, high) if low < high else (low - 1, high + 1)


def _held(values: np.ndarray, limits: tuple[float, float]) -> np.ndarray:
    """Values, those below the limits at them."""
    return np.where(np.isfinite(values), np.maximum(values, limits[0]), np.nan)


def _raised(density: np.ndarray) -> np.ndarray:
    """Heights of a density, those left out that could not be told from the axis."""
    return _along(np.where(density < FLAT, np.nan, density), (0, 1), BOTTOM, TOP)


def _along(values: np.ndarray, ends: tuple[float, float], start: float, stop: float) -> np.ndarray:
    """Values in coordinates of the drawing."""
    return start + (np.asarray(values, float) - ends[0]) / ((ends[1] - ends[0]) or 1) * (
        stop - start
    )


def _path(x: np.ndarray, y: np.ndarray) -> str:
    """Line through the points, interrupted where one is not finite."""
    words, pen = [], "M"
    for across, up in zip(x, y, strict=True):
        if np.isfinite(up):
            words.append(f"{pen}{across:.1f} {up:.1f}")
            pen = "L"
        else:
            pen = "M"
    return "".join(words)


def _svg(width: int, height: int, label: str, parts: Sequence[Markup]) -> Markup:
    box = f"0 0 {width} {height}"
    return element("svg", join(parts), viewBox=box, role="img", aria_label=label)


def _axis() -> Markup:
    return element("line", x1=LEFT, x2=RIGHT, y1=BOTTOM, y2=BOTTOM, class_="axis")


def _words(x: object, y: float, words: str, anchor: str | None = None) -> Markup:
    return element("text", words, x=x, y=y, text_anchor=anchor)
