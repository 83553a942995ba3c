"""Contrasts under the posterior, ADVI and ensembles: a sentence, a forest plot and a table."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pmbnn.compare.contrasts import FILE, read_contrasts_table, sentence
from pmbnn.core.numbers import difference_text, number_text
from pmbnn.report.forest import Difference, ForestPlot, ForestRow, Line
from pmbnn.report.tables import Entry, verdict_entry
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.present import counted
from pmbnn.results.ranking import LEAST_SEEDS, LEVEL, UNDECIDED

NUMBERS = {
    "reference": "posterior (nats)",
    "advi": "ADVI (nats)",
    "delta": "ADVI less posterior (nats)",
    "ensemble": "ensemble (nats)",
}
"""Headings of differences."""


class ContrastRow(NamedTuple):
    """A contrast on a data set, in words; differences are in nats."""

    contrast: str
    data: str
    differences: list[str]
    posterior: Entry
    advi: Entry
    ensemble: Entry
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
        Every contrast and data set, under the posterior and under ADVI, and by ensembles.
    headings
        Of the differences in the table.
    rows
        The same as a table.
    has_posterior, has_ensembles
        Whether there are samples of the posterior, and ensembles.
    """

    experiment: str
    sentence: str
    basis: str
    plot: ForestPlot
    headings: list[str]
    rows: list[ContrastRow]
    has_posterior: bool
    has_ensembles: bool


def contrast_views(folders: Sequence[ExperimentResults]) -> list[ContrastsView]:
    """Contrasts of the folders that hold some of sampled cells."""
    return [view for folder in folders if (view := _view(folder)) is not None]


def _view(folder: ExperimentResults) -> ContrastsView | None:
    if folder.is_stale(FILE):
        return None
    table = read_contrasts_table(folder.results)
    is_shown = table.reindex(columns=["reference", "ensemble"]).notna()
    has_posterior, has_ensembles = is_shown.any()
    if not (has_posterior or has_ensembles):
        return None
    entries = table[is_shown.any(axis=1)].to_dict("records")
    left_out = ["reference", "delta"] * (not has_posterior) + ["ensemble"] * (not has_ensembles)
    names = [name for name in NUMBERS if name not in left_out]
    rows = [_row(entry, names) for entry in entries]
    plotted = [_plotted(row, entry) for row, entry in zip(rows, entries, strict=True)]
    return ContrastsView(
        experiment=folder.name,
        sentence=_sentence(entries),
        basis=_basis(entries),
        plot=ForestPlot(plotted, entries[0]["margin"]),
        headings=[NUMBERS[name] for name in names],
        rows=rows,
        has_posterior=bool(has_posterior),
        has_ensembles=bool(has_ensembles),
    )


def _sentence(entries: Sequence[Mapping[str, Any]]) -> str:
    """Counts of all verdicts."""
    sampled, pooled = (
        [entry for entry in entries if entry[verdict]]
        for verdict in ("posterior_verdict", "ensemble_verdict")
    )
    faithful = sum(entry["advi_verdict"] == "faithful" for entry in sampled)
    wrong = sum(entry["advi_verdict"] in ("distorts", "reverses") for entry in sampled)
    sentences = [
        f"Of {counted(len(sampled), 'contrast')} the posterior decides "
        f"{_decided(sampled, 'posterior_verdict')}; ADVI is faithful in {faithful} and distorts or "
        f"reverses {wrong}.",
        f"Ensembles, which are no draws of the posterior, decide "
        f"{_decided(pooled, 'ensemble_verdict')} of {counted(len(pooled), 'contrast')}.",
    ]
    return " ".join(s for s, of in zip(sentences, (sampled, pooled), strict=True) if of)


def _decided(entries: Sequence[Mapping[str, Any]], verdict: str) -> int:
    return sum(entry[verdict] != UNDECIDED for entry in entries)


def _basis(entries: Sequence[Mapping[str, Any]]) -> str:
    """Whether contrasts were named beforehand, the margin, and the level of the intervals."""
    exploratory = "Exploratory: the experiment file names none"
    origin = exploratory if entries[0]["exploratory"] else "Named beforehand"
    intervals = f"{100 * LEVEL:g} % simultaneous intervals over data seeds"
    lows = (entry[f"{name}_low"] for entry in entries for name in ("reference", "ensemble"))
    if all(map(math.isnan, lows)):
        few = all(entry["seeds"] < LEAST_SEEDS for entry in entries)
        intervals = f"no intervals, which need {LEAST_SEEDS} data seeds" if few else "no intervals"
    return f"{origin}; margin {number_text(entries[0]['margin'])} nats; {intervals}."


def _row(entry: Mapping[str, Any], names: Sequence[str]) -> ContrastRow:
    return ContrastRow(
        contrast=entry["contrast"],
        data=f"{entry['data']} ({counted(entry['seeds'], 'data seed')})",
        differences=[difference_text(*_difference(entry, name)) for name in names],
        posterior=verdict_entry(entry["posterior_verdict"]),
        advi=verdict_entry(entry["advi_verdict"]),
        ensemble=verdict_entry(entry["ensemble_verdict"]),
        sentence=sentence(entry),
    )


def _plotted(row: ContrastRow, entry: Mapping[str, Any]) -> ForestRow:
    """The contrast under the posterior and by ensembles, in colours of verdicts; ADVI in grey."""
    lines = []
    for name, verdict in (("reference", row.posterior), ("ensemble", row.ensemble)):
        if not math.isnan(entry[name]):
            difference = _difference(entry, name)
            label = "posterior" if name == "reference" else "ensemble"
            text = difference_text(*difference)
            lines.append(Line(text, verdict, difference, verdict.badge, label))
    if not math.isnan(entry["advi"]):
        advi = _difference(entry, "advi")
        lines.append(Line(difference_text(*advi), row.advi, advi, "advi", "ADVI"))
    return ForestRow(row.contrast, lines, row.data)


def _difference(entry: Mapping[str, Any], name: str) -> Difference:
    return Difference(*(entry[f"{name}{end}"] for end in ("", "_low", "_high")))
