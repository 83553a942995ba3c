"""Small line drawings of a cell as SVG: how the ELBO rose, where the last layer's weights are."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

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


class Line(NamedTuple):
    """A straight line."""

    x1: str
    x2: str
    y1: float
    y2: float
    kind: str


class Path(NamedTuple):
    """A path in SVG's letters."""

    d: str
    kind: str


class Words(NamedTuple):
    """Text at a place."""

    x: str
    y: float
    words: str
    anchor: str | None = None


class Drawing(NamedTuple):
    """An SVG drawing; ``label`` says what it shows to those who do not see it."""

    width: int
    height: int
    label: str
    lines: tuple[Line, ...]
    paths: tuple[Path, ...]
    texts: tuple[Words, ...] = ()


AXIS = Line(str(LEFT), str(RIGHT), BOTTOM, BOTTOM, "axis")


def draw_training(training: Training) -> Drawing | None:
    """ELBO of every restart over the steps, the restart predicted with on top."""
    limits = _elbo_limits(training.elbo)
    if limits is None:
        return None
    x = _along(training.step, (training.step[0], training.step[-1]), LEFT, RIGHT)
    lines = [
        Path(_path(x, _along(_held(line, limits), limits, BOTTOM, TOP)), kind)
        for line, kind in _restarts(training)
    ]
    low, high = (plain(value, 4) for value in limits)
    words = [
        Words(str(LEFT), TOP - 2, high),
        Words(str(RIGHT), BOTTOM - 4, low, "end"),
        Words(str(LEFT), HEIGHT - 12, f"step {plain(int(training.step[0]))}"),
        Words(str(RIGHT), HEIGHT - 12, plain(int(training.step[-1])), "end"),
    ]
    label = f"ELBO from {low} to {high} nats over {plain(int(training.step[-1]))} steps"
    return Drawing(WIDTH, HEIGHT, label, (AXIS,), tuple(lines), tuple(words))


def draw_spark(training: Training) -> Drawing | None:
    """ELBO of the restart predicted with, as small as a word."""
    limits = _elbo_limits(training.elbo)
    if limits is None:
        return None
    width, height = SPARK
    x = _along(training.step, (training.step[0], training.step[-1]), 2, width - 2)
    y = _along(_held(training.elbo[training.best], limits), limits, height - 3, 3)
    return Drawing(width, height, "ELBO over the steps", (), (Path(_path(x, y), "best"),))


def draw_weights(weights: Weights) -> Drawing | None:
    """Densities of the last layer's weights, each scaled to its highest point."""
    ends = float(weights.at[0]), float(weights.at[-1])
    if not ends[0] < ends[1]:
        return None
    x = _along(weights.at, ends, LEFT, RIGHT)
    own = len(weights.density) == weights.away.size
    kinds = ["away" if own and away else "near" for away in weights.away[: len(weights.density)]]
    # The few that stand apart are drawn last, on top.
    order = sorted(range(len(kinds)), key=lambda at: kinds[at] == "away")
    paths = [Path(_path(x, _raised(weights.density[at])), kinds[at]) for at in order]
    lines = [AXIS]
    words = [
        Words(str(LEFT), HEIGHT - 12, plain(ends[0], 2)),
        Words(str(RIGHT), HEIGHT - 12, plain(ends[1], 2), "end"),
    ]
    if ends[0] < 0 < ends[1]:
        at = f"{_along(np.zeros(1), ends, LEFT, RIGHT)[0]:.1f}"
        lines.append(Line(at, at, TOP, BOTTOM, "zero"))
        words.append(Words(at, HEIGHT - 12, "0", "middle"))
    label = f"densities of {weights.away.size} weights of the last layer"
    return Drawing(WIDTH, HEIGHT, label, tuple(lines), tuple(paths), tuple(words))


def _restarts(training: Training) -> Iterator[tuple[np.ndarray, str]]:
    """Each restart's line and kind; the one predicted with is last, on top."""
    others = [line for at, line in enumerate(training.elbo) if at != training.best]
    yield from ((line, "other") for line in others)
    yield training.elbo[training.best], "best"


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
