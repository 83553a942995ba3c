"""Which combinations of prior and hyperprior are best on a data set, and how certain that is.

A combination is significantly worse than the best if the interval of its paired difference leaves
out zero. That the interval holds zero is less than that the two are equal. Intervals are those of
paired t tests, each at its own level: they are not corrected for the number of combinations, nor
for the best having been chosen on the same data. Of 13 combinations that do not differ, with five
data seeds, some are called significantly worse in 69 % of rankings
(``benchmarks/smallest_effect_routines.txt``): contrasts named beforehand have intervals that hold
all at once.
"""

import pandas as pd

from pmbnn.compare.intervals import (
    BEST,
    NO_INTERVAL,
    NOT_WORSE,
    SIGNIFICANTLY_WORSE,
    paired_differences,
    t_interval,
)
from pmbnn.compare.scores import ranking_score, score
from pmbnn.results.tables import Combinations, mean_and_error

NO_SCORE = "no score"
"""Verdict on a combination that failed, or for which nothing was held out."""

COLUMNS = (
    "prior", "hyperprior", "row", "column", "mean", "se", "seeds",
    "difference", "difference_se", "low", "high", "shared", "verdict",
)  # fmt: skip
"""Of every combination: its score with its standard error over data seeds; its mean paired
difference to the best with standard error, both ends of the interval and the number of
data seeds that the two share; the verdict."""


def rank_combinations(combinations: Combinations) -> pd.DataFrame:
    """Every combination that was run, the best first; see `COLUMNS`.

    The best has the lowest mean score among those with a score on the most data seeds: failing on
    some is no advantage. Several fits of one data seed count as one, by their mean.
    """
    scores = _scores(combinations)
    by_place = dict(tuple(scores.groupby("name")["score"]))
    most = scores["name"].value_counts().max()
    means = {place: own.mean() for place, own in by_place.items() if len(own) == most}
    best = min(means, key=means.__getitem__) if means else None
    pairs = ((place, best) for place in by_place if place != best)
    differences = dict(tuple(paired_differences(scores, pairs).groupby("a")["difference"]))
    none = pd.Series(dtype=float)
    rows = []
    for place in combinations.records:
        own = by_place.get(place, none)
        mean, error = mean_and_error(list(own), combinations.overlap)
        row = _names(combinations, place) | {"mean": mean, "se": error, "seeds": len(own)}
        row["verdict"] = BEST if place == best else NO_SCORE
        if len(own) and place != best:
            interval = t_interval(differences.get(place, none), combinations.overlap)
            row |= {name: interval[name] for name in ("difference", "low", "high")}
            row |= {"difference_se": interval["se"], "shared": interval["seeds"]}
            row["verdict"] = _verdict(interval["low"])
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS).sort_values("mean", kind="stable")
    return table.sort_values(
        "verdict", key=lambda verdict: verdict != BEST, kind="stable", ignore_index=True
    )


def _scores(combinations: Combinations) -> pd.DataFrame:
    """A row for each place and data seed that has a score: ``name``, ``seed`` and ``score``."""
    name = ranking_score(r for group in combinations.records.values() for r in group)
    cells = combinations.cells
    cells = cells.assign(
        name=list(zip(cells["row"], cells["column"], strict=True)),
        score=[score(record, name) if name else None for record in cells["record"]],
    )
    known = cells.astype({"score": float}).dropna(subset="score")
    return known.groupby(["name", "seed"], as_index=False)["score"].mean()


def _names(combinations: Combinations, place: tuple[int, int]) -> dict[str, object]:
    row, column = place
    no_scale = row in combinations.without_scale
    hyperprior = "no scale" if no_scale else combinations.columns[column]
    prior = combinations.rows[row]
    return {"prior": prior, "hyperprior": hyperprior, "row": row, "column": column}


def _verdict(low: float) -> str:
    """What the lower end of the interval of a difference to the best says."""
    if pd.isna(low):
        return NO_INTERVAL
    return SIGNIFICANTLY_WORSE if low > 0 else NOT_WORSE
