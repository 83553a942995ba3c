"""Learned scales against fixed ones, cell by cell on the same data."""

from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from pmbnn.compare.scores import scores_of
from pmbnn.results.caveats import has_converged, scale_at_grid_end
from pmbnn.results.combinations import Combinations
from pmbnn.results.groups import RANKED_BY
from pmbnn.results.tables import mean_and_error, result_of

BEST_FIXED = "fixed (best held-out)"
"""Of several fixed scales, the one with the lowest held-out score, chosen for every data seed."""

ALL = "all"

COMPARED = ["prior", "hyperprior", "against"]
"""Columns that name a learned scale and the fixed one that it is compared with."""


def paired_rows(combinations: Combinations) -> Iterator[dict[str, Any]]:
    """Differences, learned less fixed, as mean ± standard error over data seeds.

    Below zero the learned scale is better. Rows of ``all`` priors and hyperpriors follow: the mean
    over combinations, then over data seeds, and the share of single pairs with the learned scale
    ahead.

    Of the ``cells``, pairs of cells, ``not_converged`` counts those with a fit that did not
    converge, and ``at_grid_end`` those whose fixed scale is at an end of the grid that it was
    chosen from: beyond it there may be a better one.
    """
    cells, overlap = combinations.cells, combinations.overlap
    known = {name for record in cells["record"] for name in record.results}
    measures = [m for scores in scores_of(cells["record"]) for m in scores.paired if m[1] in known]
    if not measures:
        return
    every = _pairs(cells[~cells["row"].isin(combinations.without_scale)])
    for measure, result, sign in measures[:2]:
        learned, fixed = (result_of(every[of], result) for of in ("record", "record_fixed"))
        pairs = every.assign(difference=sign * (learned - fixed)).dropna(subset="difference")
        for names, own in pairs.groupby(COMPARED, sort=False):
            yield _row(names, measure, own["difference"], own, overlap)
        for against, own in pairs.groupby("against", sort=False):
            if own.groupby(COMPARED).ngroups > 1:
                names, by_seed = (ALL, ALL, against), own.groupby("seed")["difference"]
                means = by_seed.agg(lambda of: mean_and_error(list(of))[0])
                yield _row(names, measure, means, own, overlap)
                share = by_seed.agg(lambda of: (of < 0).mean())
                yield _row(names, f"share of pairs with less {measure}", share, own, overlap)


def _pairs(cells: pd.DataFrame) -> pd.DataFrame:
    """Every learned scale beside each fixed one, ``against``, of the same prior and data seed."""
    cells = last_of_seed(cells)
    fixed = cells[~cells["is_learned"]]
    fixed = fixed.assign(
        against=fixed["hyperprior"],
        at_grid_end=[bool(scale_at_grid_end(record)) for record in fixed["record"]],
    )
    best = [best_fixed(of_prior) for _, of_prior in fixed.groupby("row")]
    # They come after the scales that they were chosen from.
    best = [found.assign(against=BEST_FIXED, column=cells["column"].max() + 1) for found in best]
    fixed = pd.concat([fixed, *best])[["row", "seed", "column", "against", "record", "at_grid_end"]]
    pairs = cells[cells["is_learned"]].merge(fixed, on=["row", "seed"], suffixes=("", "_fixed"))
    lost = [
        not (has_converged(learned) and has_converged(other))
        for learned, other in zip(pairs["record"], pairs["record_fixed"], strict=True)
    ]
    pairs = pairs.assign(not_converged=lost)
    return pairs.sort_values(["row", "column", "column_fixed"], kind="stable")


def best_fixed(cells: pd.DataFrame) -> pd.DataFrame:
    """Of several given scales of one prior, the cell of lowest held-out score of every data seed.

    Of the seeds on which all scales have a score; ``at_grid_end`` says whether the scale is the
    smallest or the largest.

    Parameters
    ----------
    cells
        As `Combinations.cells` has them, one for each scale and data seed.
    """
    given = cells[cells["scale"].notna()]
    ends = given["scale"].min(), given["scale"].max()
    given = given.assign(at_grid_end=given["scale"].isin(ends))
    scores = given.assign(score=result_of(given["record"], RANKED_BY))
    scores = scores.pivot(index="seed", columns="column", values="score").dropna()
    best = scores.idxmin(axis="columns").items() if scores.shape[1] > 1 else ()
    return given.set_index(["seed", "column"]).loc[list(best)].reset_index()


def last_of_seed(cells: pd.DataFrame) -> pd.DataFrame:
    """The last fit of each combination and data seed."""
    # Not `last()` of the groups: that takes the last value of each column that is not missing.
    return cells.groupby(["row", "column", "seed"], sort=False).tail(1)


def _row(
    names: Sequence[str], measure: str, by_seed: pd.Series, pairs: pd.DataFrame, overlap: float
) -> dict[str, Any]:
    """Mean of what there is of each data seed, and what can be said against the pairs."""
    mean, error = mean_and_error(list(by_seed), overlap)
    return dict(zip(COMPARED, names, strict=True)) | {
        "measure": measure,
        "mean": mean,
        "se": error,
        "seeds": len(by_seed),
        "cells": len(pairs),
        "not_converged": int(pairs["not_converged"].sum()),
        "at_grid_end": int(pairs["at_grid_end"].sum()),
    }
