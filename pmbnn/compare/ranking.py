"""Which combinations of prior and hyperprior are best on a data set, and how certain that is.

A combination is significantly worse than the best if the whole interval of its paired difference
is above zero. The intervals of all pairs of combinations hold at once with probability 95 %
(`pairwise_half_widths`): however many there are, and although the best is chosen on the same data,
a ranking calls some combination worse that is not with probability 5 % or less. That an interval
holds zero does not show that the two are equal.
"""

import pandas as pd

from pmbnn.compare.intervals import (
    BEST,
    LEAST_SEEDS,
    LEVEL,
    NO_INTERVAL,
    NOT_WORSE,
    SIGNIFICANTLY_WORSE,
    pairwise_half_widths,
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
    scores, overlap = _scores(combinations), combinations.overlap
    number = scores.count()
    best = scores.loc[:, number == number.max()].mean().idxmin() if scores.size else None
    differences = scores.sub(scores[best], axis=0) if scores.size else scores
    half_widths = _half_widths(scores, differences, best, overlap) if scores.size else {}
    rows = []
    for place in combinations.records:
        values = list(scores[place].dropna()) if place in scores else []
        row = _names(combinations, place) | {"verdict": BEST if place == best else NO_SCORE}
        row |= {"seeds": len(values)}
        row["mean"], row["se"] = mean_and_error(values, overlap)
        if values and place != best:
            paired = differences[place].dropna()
            mean, error = mean_and_error(list(paired), overlap)
            low, high = (mean + sign * half_widths.get(place, float("nan")) for sign in (-1, 1))
            row |= {"difference": mean, "difference_se": error, "low": low, "high": high}
            row |= {"shared": len(paired), "verdict": NOT_WORSE}
            if pd.isna(low):
                row["verdict"] = NO_INTERVAL
            elif low > 0:
                row["verdict"] = SIGNIFICANTLY_WORSE
        rows.append(row)
    table = pd.DataFrame(rows, columns=COLUMNS).sort_values("mean", kind="stable")
    return table.sort_values(
        "verdict", key=lambda verdict: verdict != BEST, kind="stable", ignore_index=True
    )


def _scores(combinations: Combinations) -> pd.DataFrame:
    """Scores: a row a data seed, a column a place; missing where a combination has none."""
    name = ranking_score(r for group in combinations.records.values() for r in group)
    cells = combinations.cells
    cells = cells.assign(score=[score(r, name) if name else None for r in cells["record"]])
    known = cells.astype({"score": float}).dropna(subset="score")
    means = known.groupby(["row", "column", "seed"])["score"].mean()
    return means.unstack(["row", "column"])


def _half_widths(
    scores: pd.DataFrame, differences: pd.DataFrame, best: tuple[int, int], overlap: float
) -> dict[tuple[int, int], float]:
    """Half-widths of the intervals of differences to the best, by place, where they are known.

    Combinations that failed on some data seeds are compared on the others: each set of data seeds
    has intervals of its own, and all of them hold at once.
    """
    families: dict[tuple, list[tuple[int, int]]] = {}
    for place, paired in differences.drop(columns=[best]).items():
        seeds = tuple(paired.dropna().index)
        if len(seeds) >= LEAST_SEEDS:
            families.setdefault(seeds, []).append(place)
    half_widths = {}
    for seeds, places in families.items():
        block = scores.loc[list(seeds)].dropna(axis="columns")
        level = 1 - (1 - LEVEL) / len(families)
        widths = pairwise_half_widths(block.to_numpy(), overlap, level)[block.columns.get_loc(best)]
        by_place = dict(zip(block.columns, widths, strict=True))
        half_widths |= {place: float(by_place[place]) for place in places}
    return half_widths


def _names(combinations: Combinations, place: tuple[int, int]) -> dict[str, object]:
    row, column = place
    no_scale = row in combinations.without_scale
    hyperprior = "no scale" if no_scale else combinations.columns[column]
    prior = combinations.rows[row]
    return {"prior": prior, "hyperprior": hyperprior, "row": row, "column": column}
