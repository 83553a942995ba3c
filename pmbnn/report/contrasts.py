"""Contrasts under the posterior and under ADVI: a sentence, a forest plot and a table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pmbnn.compare.contrasts import COLUMN, FILE, read_contrasts_table, sentence
from pmbnn.core.numbers import difference_text, number_text
from pmbnn.report.forest import Difference, ForestPlot, ForestRow, Line
from pmbnn.report.tables import Entry, verdict_entry
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.present import counted
from pmbnn.results.ranking import LEAST_SEEDS, LEVEL, UNDECIDED


class ContrastRow(NamedTuple):
    """A contrast on a data set, in words; differences are in nats."""

    contrast: str
    data: str
    differences: list[str]
    posterior: Entry
    advi: Entry
    sentence: str


class ContrastsView(NamedTuple):
    """Contrasts of one experiment.

    Attributes
    ----------
    experiment
        Its name.
    sentence
        How many contrasts were decided.
    basis
        Where the contrasts come from, the margin, and the level of the intervals.
    plot
        Every contrast and data set, under the posterior and under ADVI.
    rows
        The same as a table.
    """

    experiment: str
    sentence: str
    basis: str
    plot: ForestPlot
    rows: list[ContrastRow]


def contrast_views(folders: Sequence[ExperimentResults]) -> list[ContrastsView]:
    """Contrasts of the folders that hold some of sampled cells."""
    return [view for folder in folders if (view := _view(folder)) is not None]


def _view(folder: ExperimentResults) -> ContrastsView | None:
    if folder.is_stale(FILE):
        return None
    table = read_contrasts_table(folder.results)
    if table.empty or table["reference"].isna().all():
        return None
    entries = table[table["reference"].notna()].to_dict("records")
    rows = [_row(entry) for entry in entries]
    plotted = [_plotted(row, entry) for row, entry in zip(rows, entries, strict=True)]
    plot = ForestPlot(plotted, entries[0]["margin"])
    return ContrastsView(folder.name, _sentence(entries), _basis(entries), plot, rows)


def _sentence(entries: Sequence[Mapping[str, Any]]) -> str:
    """Counts of both verdicts."""
    decided = sum(entry["posterior_verdict"] != UNDECIDED for entry in entries)
    faithful = sum(entry["advi_verdict"] == "faithful" for entry in entries)
    wrong = sum(entry["advi_verdict"] in ("distorts", "reverses") for entry in entries)
    return (
        f"Of {counted(len(entries), 'contrast')} the posterior decides {decided}; ADVI is "
        f"faithful in {faithful} and distorts or reverses {wrong}."
    )


def _basis(entries: Sequence[Mapping[str, Any]]) -> str:
    """Whether contrasts were named beforehand, the margin, and the level of the intervals."""
    exploratory = "Exploratory: the experiment file names none"
    origin = exploratory if entries[0]["exploratory"] else "Named beforehand"
    intervals = f"{100 * LEVEL:g} % simultaneous intervals over data seeds"
    if all(math.isnan(entry["reference_low"]) for entry in entries):
        intervals = f"no intervals, which need {LEAST_SEEDS} data seeds"
    return f"{origin}; margin {number_text(entries[0]['margin'])} nats; {intervals}."


def _row(entry: Mapping[str, Any]) -> ContrastRow:
    return ContrastRow(
        contrast=entry["contrast"],
        data=f"{entry['data']} ({counted(entry['seeds'], 'data seed')})",
        differences=[difference_text(*_difference(entry, name)) for name in COLUMN],
        posterior=verdict_entry(entry["posterior_verdict"]),
        advi=verdict_entry(entry["advi_verdict"]),
        sentence=sentence(entry),
    )


def _plotted(row: ContrastRow, entry: Mapping[str, Any]) -> ForestRow:
    """The contrast under the posterior, in the colour of its verdict, and under ADVI, in grey."""
    reference, advi = (_difference(entry, name) for name in ("reference", "advi"))
    posterior = row.posterior, reference, row.posterior.badge
    lines = [Line(row.differences[0], *posterior, "posterior")]
    if row.differences[1]:
        lines.append(Line(row.differences[1], row.advi, advi, "advi", "ADVI"))
    return ForestRow(row.contrast, lines, row.data)


def _difference(entry: Mapping[str, Any], name: str) -> Difference:
    return Difference(*(entry[f"{name}{end}"] for end in ("", "_low", "_high")))
