"""Contrasts of the NLL with errors by test row: ``compare_rows.csv``.

Where data seeds split the same rows anew, a row is a test row of several splits. A contrast has
there a difference of log scores for each row and split. Its mean is the mean over splits of their
means over rows, as in ``compare.csv``, and its standard error takes rows as the sample: differences
of one row, in all splits, are summed before they are squared. With one data seed it is the paired
error over its test rows.

This answers another question than the error of Nadeau and Bengio (`t_interval`). The error by rows
says how much the mean would change with other test rows of the same kind, for networks fitted to
the training sets of these splits. What other training sets would change is left out, beyond the
splits that were drawn. The error of Nadeau and Bengio allows for both, by one formula for every
table. Rows are taken as independent: that they are training rows of each other's networks is left
out too.

References
----------
Liang and Zeger (1986), Longitudinal data analysis using generalized linear models; Cameron and
Miller (2015), A practitioner's guide to cluster-robust inference (of the factor G / (G - 1));
Šidák (1967), Rectangular confidence regions for the means of multivariate normal distributions.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from pmbnn.compare.contrasts import pair_table
from pmbnn.compare.intervals import interval_verdict, t_interval
from pmbnn.core.stages import stage
from pmbnn.data.splits import BY_CHANCE, unlike_input
from pmbnn.experiment.contrasts import stored_contrasts
from pmbnn.results.loading import ExperimentResults, StoredCell
from pmbnn.results.ranking import LEVEL
from pmbnn.results.record import CellRecord
from pmbnn.results.row_scores import (
    SplitRows,
    input_codes,
    log_scores,
    row_numbers,
    rows_of_test,
)
from pmbnn.results.store import Results

FILE = "compare_rows.csv"
"""File of a results folder that holds the table."""

METRIC = "nll"
"""The metric that has a score for each test row."""

COLUMNS = (
    "contrast", "exploratory", "data", "metric", "method", "seeds", "rows", "difference",
    "se_rows", "se_nadeau_bengio", "low", "high", "margin", "verdict",
)  # fmt: skip
"""Of every contrast, data set and method: the number of data seeds and of different rows, the mean
difference in nats an observation with its standard errors by rows and over data seeds
(`t_interval`), both ends of the simultaneous interval by rows, and where it lies."""


class RowErrors(NamedTuple):
    """Contrasts of a folder with errors by row.

    Attributes
    ----------
    table
        See `COLUMNS`.
    left_out
        A sentence for each contrast and data set that has no such error, and for each data set
        whose splits are not random.
    """

    table: pd.DataFrame
    left_out: list[str]


def clustered_error(
    differences: Sequence[np.ndarray], rows: Sequence[np.ndarray]
) -> tuple[float, float, int]:
    """Mean of differences over splits, its standard error by rows, and the number of rows.

    With ``d[i, s]`` the difference of row ``i`` in split ``s``, ``n[s]`` the rows of a split and
    ``S`` the splits, the mean is the sum of ``w[s] d[i, s]`` with ``w[s] = 1 / (S n[s])``, and its
    squared error ``G / (G - 1)`` times the sum over the ``G`` rows of
    ``(sum over s of w[s] (d[i, s] - mean))²``. The differences of a row may depend on each other in
    any way; rows must not.

    Parameters
    ----------
    differences
        One for each test row of a split, ``(observation,)`` each.
    rows
        Number of the row that each is of, alike.

    Returns
    -------
    tuple
        The error is not a number of one row alone.

    References
    ----------
    Liang and Zeger (1986), Longitudinal data analysis using generalized linear models, section 2.
    """
    weight = np.concatenate([np.full(len(d), 1 / (len(differences) * len(d))) for d in differences])
    values, clusters = np.concatenate(differences), np.concatenate(rows)
    mean = float(weight @ values)
    numbers, cluster = np.unique(clusters, return_inverse=True)
    count = len(numbers)
    if count < 2:
        return mean, math.nan, count
    sums = np.bincount(cluster, weight * (values - mean))
    return mean, math.sqrt(count / (count - 1) * float(sums @ sums)), count


def why_not_random(splits: Mapping[int, SplitRows], rows: Mapping[int, np.ndarray]) -> str:
    """Why test rows cannot have been drawn at random; empty if nothing says so.

    The test rows of each split are compared with those of the other splits (`unlike_input`); of one
    split alone nothing can be told. Both errors of the table take test rows as drawn at random.

    Parameters
    ----------
    splits
        Test rows by data seed.
    rows
        Numbers of these rows by data seed, ``(observation,)`` each.
    """
    numbers, first = np.unique(np.concatenate(list(rows.values())), return_index=True)
    # The test is one of ranks. Rounding errors are other ones in each split.
    codes = [np.where(one < 0, np.nan, one) for one in input_codes(list(splits.values()))]
    every = np.concatenate(codes)[first]
    for seed, x in zip(splits, codes, strict=True):
        column = unlike_input(x, every[~np.isin(numbers, rows[seed])], BY_CHANCE)
        if column is not None:
            return (
                f"the test rows of data seed {seed} were not drawn at random: their input "
                f"{column + 1} has another distribution than that of other test rows"
            )
    return ""


def make_row_errors(folder: ExperimentResults) -> RowErrors:
    """Contrasts of a folder's cells with errors by row; some cells may predict anew.

    Raises
    ------
    ConfigError
        If its copy of the experiment file cannot be read.
    AmbiguousError
        If a contrast has several cells for one.
    ResultsError, DataError
        If log scores of a cell cannot be had, or not its test rows.
    """
    contrasts = stored_contrasts(folder.results.folder)
    pairs = pair_table(folder.records, contrasts)
    records = {record.name: record for record in folder.records}
    if pairs.empty:
        return RowErrors(pd.DataFrame(columns=COLUMNS), [])
    entries = pairs.groupby(["contrast", "data"], sort=False)
    reasons = {entry: _reason(group, records) for entry, group in entries}
    left_out = [f"{data}, {name}: {why}." for (name, data), why in reasons.items() if why]
    kept = [entry not in {e for e, why in reasons.items() if why} for entry in _entries(pairs)]
    pairs = pairs[kept]
    by_data = {}
    for data, group in pairs.groupby("data"):
        splits = _splits_by_seed(folder, group)
        numbers = dict(zip(splits, row_numbers(list(splits.values())), strict=True))
        if reason := why_not_random(splits, numbers):
            left_out.append(f"{data}: {reason}.")
        else:
            by_data[data] = numbers
    pairs = pairs[pairs["data"].isin(list(by_data))]
    if pairs.empty:
        return RowErrors(pd.DataFrame(columns=COLUMNS), left_out)
    scores = _log_scores(folder, pairs)
    groups = pairs.groupby(["contrast", "data", "method"], sort=False)
    table = pd.DataFrame(
        {
            **dict(zip(("contrast", "data", "method"), entry, strict=True)),
            **_errors(group, scores, by_data[entry[1]]),
        }
        for entry, group in groups
    )
    table = table.assign(exploratory=not contrasts.listed, metric=METRIC)
    return RowErrors(with_intervals(table, contrasts.margin), left_out)


def with_intervals(table: pd.DataFrame, margin: float) -> pd.DataFrame:
    """The table with intervals by rows that hold together, and verdicts; see `COLUMNS`.

    Each interval is that of Student's t distribution with one degree of freedom less than rows, at
    the level at which as many independent ones would hold together with probability `LEVEL`
    (Šidák); those of dependent ones hold together more often.

    Parameters
    ----------
    margin
        Of practical equivalence, nats an observation.
    """
    from scipy import stats

    if table.empty:
        return pd.DataFrame(columns=COLUMNS)
    number = max(int((table["se_rows"] > 0).sum()), 1)
    level = (1 + LEVEL ** (1 / number)) / 2
    half_width = table["se_rows"] * stats.t.ppf(level, np.maximum(table["rows"] - 1, 1))
    low, high = table["difference"] - half_width, table["difference"] + half_width
    verdicts = [interval_verdict(*ends, margin) for ends in zip(low, high, strict=True)]
    table = table.assign(low=low, high=high, margin=margin, verdict=verdicts)
    return table.reindex(columns=COLUMNS)


def write_row_errors(results: Results, errors: RowErrors) -> list[str]:
    """Names of the files written: none for a table without rows.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    return [FILE] if results.replace_table(FILE, errors.table) else []


def _entries(pairs: pd.DataFrame) -> list[tuple[str, str]]:
    return list(zip(pairs["contrast"], pairs["data"], strict=True))


def _reason(group: pd.DataFrame, records: Mapping[str, CellRecord]) -> str:
    """Why a contrast has no error by rows on a data set; empty if it has one."""
    split = getattr(records[group["first"].iloc[0]].cell.dataset, "split", None)
    reasons = {
        "it is compared at fresh points, not by its test rows": (group["metric"] != METRIC).any(),
        "its data seeds do not split the same rows anew": (
            group["seed"].nunique() > 1 and not group["overlap"].max()
        ),
        "its split keeps groups of rows together, whose rows depend on each other": (
            getattr(split, "group", None) is not None
        ),
        "both scores of a pair of cells are infinite": group["infinite"].any(),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


def _cell(folder: ExperimentResults, record: CellRecord) -> StoredCell:
    return StoredCell(record, folder.results.cells / record.name)


def _log_scores(folder: ExperimentResults, pairs: pd.DataFrame) -> dict[str, np.ndarray]:
    """Log scores of the test rows of every cell of some pairs, by its name.

    A data set after the other: its networks share compiled programs.
    """
    of_data = pairs.sort_values("data", kind="stable")
    names = dict.fromkeys(of_data[["first", "second"]].to_numpy().ravel())
    records, scores = {record.name: record for record in folder.records}, {}
    with stage("test rows", len(names), "cell") as report_progress:
        for done, name in enumerate(names, start=1):
            scores[name] = log_scores(_cell(folder, records[name]))
            report_progress(done)
    return scores


def _splits_by_seed(folder: ExperimentResults, pairs: pd.DataFrame) -> dict[int, SplitRows]:
    """Test rows of a data set by data seed."""
    records = {record.name: record for record in folder.records}
    first = pairs.groupby("seed", sort=False)["first"].first()
    return {seed: rows_of_test(_cell(folder, records[name])) for seed, name in first.items()}


def _errors(
    group: pd.DataFrame, scores: Mapping[str, np.ndarray], rows: Mapping[int, np.ndarray]
) -> dict[str, float]:
    """Mean of a contrast under a method with both of its errors."""
    by_seed = group.groupby("seed", sort=False)
    differences = [
        np.mean([scores[b] - scores[a] for a, b in zip(p["first"], p["second"], strict=True)], 0)
        for _, p in by_seed
    ]
    mean, error, count = clustered_error(differences, [rows[seed] for seed, _ in by_seed])
    splits = t_interval(by_seed["difference"].mean(), group["overlap"].max())
    return {
        "seeds": splits["seeds"],
        "rows": count,
        "difference": mean,
        "se_rows": error,
        "se_nadeau_bengio": splits["se"],
    }
