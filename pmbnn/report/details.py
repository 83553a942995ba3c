"""The detail of a cell, kept in a template of the page until it is asked for."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from pmbnn.report.cells import CellView, Training, Weights
from pmbnn.report.images import Image
from pmbnn.report.numbers import plain
from pmbnn.report.tables import Entry, PlainTable, status_entry
from pmbnn.results.caveats import AT_GRID_END, scale_at_grid_end
from pmbnn.results.names import settings_row
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import with_unit

# Small line drawings of a cell as SVG: how the ELBO rose, where the last layer's weights are


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
        for line, kind in _lines_of_restarts(training)
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


def _lines_of_restarts(training: Training) -> Iterator[tuple[np.ndarray, str]]:
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


SETS = (
    "size", "entropy", "mutual_information", "sd", "top_probability", "auroc_entropy",
    "auroc_sd", "rejected_by_sd", "rejected_by_confidence",
)  # fmt: skip
"""Numbers shown of each set of images; metrics.json has them all."""


class Captioned(NamedTuple):
    """A drawing with the words below it."""

    drawing: Drawing
    words: str


class Detail(NamedTuple):
    """Everything shown of a cell: its parts are empty or None where it has none."""

    key: str
    title: str
    name: str
    status: Entry
    reason: str
    figures: list[tuple[Image, str]]
    drawings: list[Captioned]
    results: Mapping[str, str]
    tables: list[PlainTable]
    settings: Mapping[str, str]


def cell_detail(cell: CellView) -> Detail:
    """Everything shown of a cell."""
    record = cell.record
    tables = (
        _restarts(record),
        _chains(record),
        _candidates(record),
        _sets(record),
        _diagnostics(record),
    )
    return Detail(
        key=cell.key,
        title=cell.title,
        name=record.name,
        status=status_entry(record.status),
        reason=record.reason,
        figures=[(f.image, f"{f.path.stem} of {cell.title}") for f in cell.figures],
        drawings=[drawn for drawn in (_training(cell), _weights(cell)) if drawn],
        results=_results(record),
        tables=[table for table in tables if table],
        settings={n: plain(value, 6) for n, value in settings_row(record.settings).items()},
    )


def _training(cell: CellView) -> Captioned | None:
    training = cell.parts.training
    drawing = draw_training(training) if training is not None else None
    if drawing is None:
        return None
    count = len(training.elbo)
    words = "ELBO (nats) over the steps, cut off below where it starts"
    words += f"; {count} restarts, the one predicted with in colour" if count > 1 else ""
    return Captioned(drawing, words)


def _weights(cell: CellView) -> Captioned | None:
    weights = cell.parts.weights
    drawing = draw_weights(weights) if weights is not None else None
    if drawing is None:
        return None
    number, away = weights.away.size, int(weights.away.sum())
    every = len(weights.density) == number
    kind = "a line each, scaled to its peak" if every else "all draws together"
    words = (
        f"Posterior of the last layer's {number} weights, {kind}; of {away} "
        "the central 90 % interval leaves out zero"
    )
    words += " (in colour)" if every and away else ""
    return Captioned(drawing, words)


def _results(record: CellRecord) -> dict[str, str]:
    if not record.results:
        return {}
    standardised = record.predictive == "density"
    measures = {
        with_unit(name.replace("_", " "), name, standardised): plain(value)
        for name, value in record.results.items()
        if not name.startswith("pooled_")
    }
    return measures | {"time (seconds)": plain(record.seconds)}


def _restarts(record: CellRecord) -> PlainTable | None:
    if len(record.restarts) < 2:
        return None
    rows = [
        [str(at), r.status.replace("_", " "), plain(r.elbo), plain(r.weight), r.reason]
        for at, r in enumerate(record.restarts)
    ]
    elbo = with_unit("ELBO", "elbo", record.predictive == "density")
    return PlainTable("Restarts", ("restart", "status", elbo, "weight", "reason"), rows)


def _chains(record: CellRecord) -> PlainTable | None:
    """How many chains and draws there were, and what the chains were tuned to."""
    found = record.sampling
    if found is None:
        return None
    entries = {"chains": found.chains, "draws of each": found.draws}
    entries |= {"largest R-hat": found.rhat_largest} | dict(found.tuned)
    heads = tuple(name.replace("_", " ") for name in entries)
    return PlainTable("Chains", heads, [[plain(value) for value in entries.values()]])


def _candidates(record: CellRecord) -> PlainTable | None:
    """Scales that were tried, with their held-out scores."""
    selection = record.selection
    if selection is None:
        return None
    rows = []
    for at, (scale, scores) in enumerate(zip(selection.scales, selection.nll, strict=True)):
        known = [score for score in scores if score is not None]
        chosen = "chosen" if at == selection.candidate else ""
        chosen += f", {AT_GRID_END}" if chosen and scale_at_grid_end(record) else ""
        rows.append([plain(scale), plain(min(known)) if known else "", chosen])
    return PlainTable("Scales tried", ("scale", "NLL of held-out rows (nats)", ""), rows)


def _sets(record: CellRecord) -> PlainTable | None:
    """Uncertainty about images: of the test set, then of out-of-distribution sets."""
    images = record.images
    if not images:
        return None
    sets = {"test": images["test"]} | images.get("ood", {})
    rows = [[name, *(plain(found.get(key)) for key in SETS)] for name, found in sets.items()]
    heads = ("set", *(key.replace("_", " ") for key in SETS))
    return PlainTable("Images (entropies in bits)", heads, rows)


def _diagnostics(record: CellRecord) -> PlainTable | None:
    """Snapshots of the fit on its way."""
    found: Mapping[str, Any] | None = record.diagnostics
    if not found:
        return None
    names = [(part, name) for part, judged in found["parts"].items() for name in judged]
    rows = [
        [
            plain(step),
            plain(found["kl"][at]),
            *(plain(found["parts"][part][name][at]) for part, name in names),
        ]
        for at, step in enumerate(found["step"])
    ]
    heads = ("step", "KL", *(f"{part} {name.replace('_', ' ')}" for part, name in names))
    return PlainTable("On the way (nats an image)", heads, rows)
