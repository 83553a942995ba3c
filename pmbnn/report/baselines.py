"""Section on networks beside baseline models, where a results folder has tables of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from pmbnn.compare.baselines import (
    FILE,
    PAIRED_FILE,
    SINGLE,
    VERDICTS,
    metric_columns,
    read_baselines,
    row_caveats,
    tally,
)
from pmbnn.core.numbers import difference_text, p_value_text
from pmbnn.experiment.published import FILE as PUBLISHED
from pmbnn.experiment.published import read_published
from pmbnn.report.tables import Entry, PlainTable, verdict_entry
from pmbnn.results.derived import COMMANDS, stale_line
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.ranking import BETTER, EQUIVALENT, UNDECIDED, WORSE
from pmbnn.results.store import ResultsError
from pmbnn.results.tables import score_text, with_unit

NAMES = {
    "nll": "NLL",
    "rmse": "RMSE",
    "crps": "CRPS",
    "coverage_90": "coverage of 90 %",
    "brier_score": "Brier score",
    "expected_calibration_error": "calibration error",
}
"""Names of metrics that differ from those of their columns."""

VERDICT_PHRASES = {
    BETTER: "better than",
    EQUIVALENT: "equivalent to",
    UNDECIDED: "undecided against",
    WORSE: "worse than",
}
"""Verdicts on the network, before the names of methods."""


class Difference(NamedTuple):
    """Network less method, with its interval, and the verdict; empty where nothing is paired."""

    text: str = ""
    hint: str = ""
    verdict: Entry | None = None


class MethodRow(NamedTuple):
    """A method in words: its means with standard errors, and the network's differences from it.

    ``caveats`` says on how many data seeds networks did not converge, or chose an end of a grid.
    """

    name: str
    note: str
    caveats: str
    seeds: str
    numbers: list[str]
    differences: list[Difference]


class DataView(NamedTuple):
    """Methods on one data set; ``lead`` has the verdicts on the network in sentences."""

    title: str
    lead: list[str]
    metrics: list[str]
    paired: list[str]
    rows: list[MethodRow]


class BaselineView(NamedTuple):
    """Baseline models of one experiment.

    ``tally`` counts verdicts, where there are several data sets; ``notes`` are sources of numbers,
    or why the tables are left out.
    """

    experiment: str
    notes: list[str]
    tally: PlainTable | None
    sets: list[DataView]


def baseline_views(folders: Sequence[ExperimentResults]) -> list[BaselineView]:
    """Baseline models of the folders that have tables of them."""
    return [view for folder in folders if (view := _view(folder)) is not None]


def _view(folder: ExperimentResults) -> BaselineView | None:
    files = [file for file in (FILE, PAIRED_FILE) if (folder.results.folder / file).is_file()]
    stale = {file: COMMANDS[file] for file in files if folder.is_stale(file)}
    if stale:
        return BaselineView(folder.name, [f"Left out, {stale_line(stale)}."], None, [])
    try:
        means, paired = read_baselines(folder.results)
    except ResultsError as error:
        return BaselineView(folder.name, [f"Left out: {error}"], None, [])
    if means.empty:
        return None
    sets = [
        _data_view(str(data), rows.dropna(axis=1, how="all"), paired[paired["data"] == data])
        for data, rows in means.groupby("data", sort=False)
    ]
    counts = _counts(folder.name, tally(paired)) if paired["data"].nunique() > 1 else None
    return BaselineView(folder.name, list(_notes(folder)), counts, sets)


def _notes(folder: ExperimentResults) -> Iterator[str]:
    path = folder.results.folder / PUBLISHED
    if path.is_file():
        for named in read_published(path.read_text(encoding="utf-8"), str(path)).splits:
            if named.source:
                yield f"Results of {named.method} as published: {named.source}."


def _counts(experiment: str, counts: pd.DataFrame) -> PlainTable:
    """Verdicts over data sets, a row a method and a column a metric."""
    metrics = list(counts["metric"].unique())
    rows = []
    for method, table in counts.groupby("method", sort=False):
        by_metric = table.set_index("metric").to_dict("index")
        rows.append([str(method), *(_count(by_metric.get(metric)) for metric in metrics)])
    headings = ["network against", *map(_metric_name, metrics)]
    return PlainTable(f"Verdicts over data sets, {experiment}", headings, rows)


def _count(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return ""
    return ", ".join(f"{row[verdict]} {verdict}" for verdict in VERDICTS if row[verdict])


def _data_view(title: str, means: pd.DataFrame, paired: pd.DataFrame) -> DataView:
    """Every method that the network is paired with, and the network."""
    metrics, differences = metric_columns(means), list(paired["metric"].unique())
    by_method = {
        (method, kind): rows.set_index("metric").to_dict("index")
        for (method, kind), rows in paired.groupby(["method", "kind"])
    }
    rows = [
        MethodRow(
            row["method"],
            row["combination"],
            "; ".join(row_caveats(row)),
            str(row["seeds"]),
            [_number(row, metric) for metric in metrics],
            [_difference(pairs.get(metric)) for metric in differences],
        )
        for row in means.to_dict("records")
        if (pairs := by_method.get((row["method"], row["kind"]), {})) or row["kind"] != SINGLE
    ]
    headings = [list(map(_heading, names)) for names in (metrics, differences)]
    return DataView(title, list(_lead(paired)), *headings, rows)


def _lead(paired: pd.DataFrame) -> Iterator[str]:
    """A sentence a metric: the verdicts on the network, and against whom."""
    if paired.empty:
        yield "Nothing is paired: no cell has a score of held-out rows."
    others = paired[paired["kind"] != SINGLE]
    for metric, rows in others.groupby("metric", sort=False):
        phrases = [
            f"{phrase} {_names(rows.loc[rows['verdict'] == verdict, 'method'])}"
            for verdict, phrase in VERDICT_PHRASES.items()
            if (rows["verdict"] == verdict).any()
        ]
        if phrases:
            yield f"By {_metric_name(str(metric))} the network is {', '.join(phrases)}."


def _names(methods: pd.Series) -> str:
    names = [str(method).replace("network chosen", "that chosen") for method in methods]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _metric_name(metric: str) -> str:
    return NAMES.get(metric, metric.replace("_", " "))


def _heading(metric: str) -> str:
    return with_unit(_metric_name(metric), metric)


def _number(row: Mapping[str, Any], metric: str) -> str:
    return score_text(metric, row[metric], row.get(f"{metric}_se"))


def _difference(row: Mapping[str, Any] | None) -> Difference:
    if row is None:
        return Difference()
    text = difference_text(row["difference"], row["low"], row["high"])
    hint = f"ahead on {row['ahead']} data seeds, level on {row['level']}, behind on {row['behind']}"
    if math.isfinite(row["low"]):
        hint = f"p-value {p_value_text(row['p_value'])}; {hint}"
    return Difference(text, hint, verdict_entry(row["verdict"]))
