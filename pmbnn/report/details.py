"""The detail of a cell, kept in a template of the page until it is asked for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pmbnn.report.cell_table import status_entry
from pmbnn.report.cells import CellView
from pmbnn.report.data_table import Entry, PlainTable
from pmbnn.report.images import Image
from pmbnn.report.numbers import plain
from pmbnn.report.sparklines import Drawing, draw_training, draw_weights
from pmbnn.results.caveats import AT_GRID_END, scale_at_grid_end
from pmbnn.results.names import settings_row
from pmbnn.results.record import CellRecord
from pmbnn.results.units import with_unit

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
