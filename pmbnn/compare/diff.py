"""Two results folders side by side: settings that differ, and metrics paired by data seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from typing import Any, NamedTuple

import pandas as pd

from pmbnn.compare.intervals import t_interval
from pmbnn.core.errors import must_be_one_of
from pmbnn.experiment.cells import SHOWN_DIGITS, Cell, number_labels
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.names import (
    combination_label,
    dataset_label,
    distinct_names,
    group_by_settings,
    grouped,
    settings_row,
    valid_cells,
)
from pmbnn.results.record import CellRecord, count
from pmbnn.results.tables import FIT_SEED, SEED, by_seed, overlap_of, union_of_names

METRICS = ("accuracy", "rmse", "nll", "excess_nll")
"""Metrics that are compared unless others are named: those that both folders have."""

COLUMNS = ("data", "combination", "metric", "seeds", "a", "b", "difference", "se", "low", "high",
           "not_converged")  # fmt: skip
"""Of each pair of combinations and metric: the number of common data seeds, both means over them,
the mean difference (the second less the first) with its standard error and the 95 % interval of the
paired t test, and how many of the cells did not converge."""


class Diff(NamedTuple):
    """Differences of two results folders.

    Attributes
    ----------
    settings
        Columns ``setting``, ``a`` and ``b``: values of settings, digests of the rows of a data set
        and of plugins, and versions, that differ.
    metrics
        Paired metrics; see `COLUMNS`.
    only_a, only_b
        Combinations of one folder that the other does not have, in words.
    """

    settings: pd.DataFrame
    metrics: pd.DataFrame
    only_a: list[str]
    only_b: list[str]


def diff(a: ExperimentResults, b: ExperimentResults, metrics: Sequence[str] | None = None) -> Diff:
    """Differences of two results folders.

    Combinations are paired where they agree in every setting but seeds and in settings of which
    the two folders have no value in common. Cells of `invalid_chains` are passed over.

    Parameters
    ----------
    metrics
        Names of results; `METRICS` that both folders have unless given.

    Raises
    ------
    ConfigError
        If a metric is not there.
    """
    a, b = (replace(folder, records=tuple(valid_cells(folder.records))) for folder in (a, b))
    common = {n for r in a.records for n in r.results} & {n for r in b.records for n in r.results}
    for metric in metrics or ():
        if metric not in common:
            raise must_be_one_of("--metric", common, metric)
    chosen = metrics or [name for name in METRICS if name in common]
    values = [_values(folder.records) for folder in (a, b)]
    settings = {key: [values[i].get(key, []) for i in (0, 1)] for key in union_of_names(values)}
    differing = {key: both for key, both in settings.items() if set(both[0]) != set(both[1])}
    disjoint = {key for key, both in differing.items() if set(both[0]).isdisjoint(both[1])}
    groups = [grouped(folder.records, lambda record: _key(record, disjoint)) for folder in (a, b)]
    names = [_names(folder.records) for folder in (a, b)]
    rows = []
    for key, cells in groups[0].items():
        for pair in product(group_by_settings(cells), group_by_settings(groups[1].get(key, []))):
            named = pd.DataFrame(
                [own[cells[0].name] for own, cells in zip(names, pair, strict=True)],
                columns=["data", "combination"],
            )
            head = {column: " to ".join(named[column].unique()) for column in named}
            rows += [head | row for metric in chosen if (row := _row(pair, metric))]
    only = [
        [": ".join(named[cells[0].name]) for key, cells in own.items() if key not in other]
        for named, own, other in zip(names, groups, groups[::-1], strict=True)
    ]
    table = []
    for key, (of_a, of_b) in (differing | _sources(a, b) | _versions(a, b)).items():
        labels = number_labels([*of_a, *of_b])
        table.append((key, ", ".join(labels[: len(of_a)]), ", ".join(labels[len(of_a) :])))
    return Diff(
        pd.DataFrame(table, columns=["setting", "a", "b"]),
        pd.DataFrame(rows, columns=COLUMNS),
        *only,
    )


def _values(records: Sequence[CellRecord]) -> dict[str, list[Any]]:
    """Values of every setting among some cells, each once."""
    values: dict[str, dict[Any, None]] = {}
    for record in records:
        for key, value in settings_row(record.settings).items():
            values.setdefault(key, {})[value] = None
    return {key: list(found) for key, found in values.items()}


def _key(record: CellRecord, disjoint: set[str]) -> tuple[tuple[str, Any], ...]:
    row = settings_row(record.settings)
    return tuple((k, v) for k, v in row.items() if k not in disjoint and k not in (SEED, FIT_SEED))


def _sources(a: ExperimentResults, b: ExperimentResults) -> dict[str, list[list[str]]]:
    """Digests of data sets, a line each, and of plugins that both have and that differ."""
    differing: dict[str, list[list[str]]] = {}
    rows = [{r.cell.dataset: r.fingerprint for r in folder.records} for folder in (a, b)]
    for dataset, both in _in_both(*rows):
        differing.setdefault(f"rows of {dataset_label(dataset)}", both)
    plugins = [{p.name: p.sha256 for r in folder.records for p in r.plugins} for folder in (a, b)]
    return differing | {f"source of {name}": both for name, both in _in_both(*plugins)}


def _in_both(a: Mapping[Any, str], b: Mapping[Any, str]) -> Iterator[tuple[Any, list[list[str]]]]:
    """Keys of both whose digests differ, with the first digits of these."""
    for key in a:
        if key in b and a[key] != b[key]:
            yield key, [[digest[:SHOWN_DIGITS]] for digest in (a[key], b[key])]


def _versions(a: ExperimentResults, b: ExperimentResults) -> dict[str, list[list[str]]]:
    """Versions of packages that differ."""
    here, there = (folder.provenance.get("versions", {}) for folder in (a, b))
    return {
        f"version of {name}": [[one.get(name, "")] for one in (here, there)]
        for name in {**here, **there}
        if here.get(name) != there.get(name)
    }


def _names(records: Sequence[CellRecord]) -> dict[str, tuple[str, str]]:
    """Names of data set and combination that no others of a folder have, by the names of cells."""
    plain = [record.cell.without_seeds for record in records]
    cells = [replace(cell, sweep="", dataset=None) for cell in plain]
    datasets = distinct_names([cell.dataset for cell in plain], dataset_label)
    combinations = distinct_names(cells, _combination)
    return {
        record.name: (datasets[one.dataset], combinations[cell])
        for record, one, cell in zip(records, plain, cells, strict=True)
    }


def _combination(cell: Cell) -> str:
    return ", ".join([combination_label(cell), *[cell.inference.engine] * cell.is_sampled])


def _row(
    pair: tuple[Sequence[CellRecord], Sequence[CellRecord]], metric: str
) -> dict[str, Any] | None:
    """Paired metric of two combinations; None where neither has it."""
    both = pd.concat([by_seed(cells, metric) for cells in pair], axis=1, keys=["a", "b"]).dropna()
    if both.empty:
        return None
    cells = [r for r in chain(*pair) if r.cell.data_seed in both.index]
    compared = t_interval(both["b"] - both["a"], overlap_of(cells))
    return {
        "metric": metric,
        "a": both["a"].mean(),
        "b": both["b"].mean(),
        **{name: value for name, value in compared.items() if name in COLUMNS},
        "not_converged": count(cells).not_converged,
    }
