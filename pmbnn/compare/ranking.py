"""Which combinations of prior and hyperprior are best on a data set, and how certain that is.

Differences are paired: both combinations on the same data seed. An interval that leaves out zero
says that a combination is behind; one that holds zero says that the two are not told apart, which
is less than that they are equal. Neither is corrected for the number of combinations, nor for
the lowest having been picked on the same data.
"""

import math
from collections.abc import Mapping

import pandas as pd

from pmbnn.compare.scores import ranking_score, score
from pmbnn.results.combinations import Combinations
from pmbnn.results.tables import mean_and_error

LEVEL = 0.95
"""Confidence level of the intervals."""

LOWEST = "lowest"
TIED = "not told apart from the lowest"
BEHIND = "behind the lowest"
UNKNOWN = "no error known"
UNSCORED = "no score"

COLUMNS = (
    "prior", "hyperprior", "row", "column", "mean", "se", "seeds",
    "difference", "difference_se", "low", "high", "shared", "verdict",
)  # fmt: skip
"""Of every combination: its score with its standard error over data seeds; its mean paired
difference to the lowest with standard error, both ends of the interval and the number of
data seeds that the two share; the verdict."""


def rank_combinations(combinations: Combinations) -> pd.DataFrame:
    """Every combination that was run, the lowest score first; see `COLUMNS`.

    The lowest is that of lowest mean among those with a score on the most data seeds: one that
    failed on some is not preferred for it. Fits of one data seed count as one, by their mean.
    """
    name = ranking_score(r for group in combinations.records.values() for r in group)
    scored = {
        place: _by_seed(combinations, place, name) if name else pd.Series(dtype=float)
        for place in combinations.records
    }
    most = max((len(values) for values in scored.values()), default=0)
    means = {p: v.mean() for p, v in scored.items() if len(v) == most and most}
    best = min(means, key=means.__getitem__) if means else None
    rows = [_row(combinations, place, scored, best) for place in scored]
    table = pd.DataFrame(rows, columns=COLUMNS)
    table["not_lowest"] = table["verdict"] != LOWEST
    table = table.sort_values(["not_lowest", "mean"], kind="stable", ignore_index=True)
    return table.drop(columns="not_lowest")


def _by_seed(combinations: Combinations, place: tuple[int, int], name: str) -> pd.Series:
    """Score of every data seed, the mean over its fits."""
    records = combinations.finished(*place)
    values = pd.Series(
        [score(record, name) for record in records],
        index=[record.cell.data_seed for record in records],
        dtype=float,
    )
    return values.groupby(level=0).mean().dropna()


def _row(
    combinations: Combinations,
    place: tuple[int, int],
    scored: Mapping[tuple[int, int], pd.Series],
    best: tuple[int, int] | None,
) -> dict[str, object]:
    row, column = place
    no_scale = row in combinations.without_scale
    mean, error = mean_and_error(list(scored[place]), combinations.overlap)
    found = {
        "prior": combinations.rows[row],
        "hyperprior": "no scale" if no_scale else combinations.columns[column],
        "row": row,
        "column": column,
        "mean": mean,
        "se": error,
        "seeds": len(scored[place]),
        "verdict": UNSCORED,
    }
    if best is None or scored[place].empty:
        return found
    if place == best:
        return found | {"verdict": LOWEST}
    return found | paired_difference(scored[place], scored[best], combinations.overlap)


def paired_difference(
    values: pd.Series, others: pd.Series, overlap: float = 0.0
) -> dict[str, object]:
    """Mean of ``values`` less ``others`` where their indices agree, its error and its interval.

    Parameters
    ----------
    overlap
        As `mean_and_error` takes it.
    """
    from scipy import stats

    both = pd.concat([values, others], axis=1, join="inner")
    difference = both.iloc[:, 0] - both.iloc[:, 1]
    mean, error = mean_and_error(list(difference), overlap)
    found = {"difference": mean, "difference_se": error, "shared": len(difference)}
    if not error > 0:  # one data seed, or differences that are all the same
        return found | {"low": math.nan, "high": math.nan, "verdict": UNKNOWN}
    low, high = stats.t.interval(LEVEL, len(difference) - 1, mean, error)
    verdict = BEHIND if low > 0 else TIED
    return found | {"low": float(low), "high": float(high), "verdict": verdict}
