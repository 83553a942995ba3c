"""Which fixed scale is best, and where learned scales go."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from pmbnn.compare.paired import best_fixed, last_of_seed
from pmbnn.results.caveats import count
from pmbnn.results.combinations import Combinations
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import (
    by_data_seed,
    mean_and_error,
    mean_over_seeds,
    overlap_of,
    repetitions,
    result_of,
)

SCORES = {"excess NLL": "excess_nll", "excess error": "excess_error", "NLL": "nll"}
"""What the best of several fixed scales may be judged by; the first that cells have is taken."""


def scale_rows(
    combinations: Combinations, learned: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    """Best fixed scale of each prior, the scale chosen on held-out rows, and learned ones.

    Scales are geometric means over data seeds; their standard error is that of the logarithm
    times the mean.

    Parameters
    ----------
    combinations
        The cells of one data set.
    learned
        Learned scales by the names of cells, from `pmbnn.results.weights.learned_scales`.
    """
    cells = combinations.cells
    cells = cells[~cells["row"].isin(combinations.without_scale)]
    for _, of_prior in cells.groupby("row"):
        for found in (*_fixed_rows(of_prior), *_learned_rows(of_prior, learned)):
            yield {"prior": of_prior["prior"].iloc[0]} | found


def _fixed_rows(cells: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The best of several given scales by its score, and what held-out rows would choose."""
    tuned = cells[~cells["is_learned"] & cells["scale"].isna()]
    tuned = tuned.assign(scale=result_of(tuned["record"], "scale")).query("scale > 0")
    given = cells[cells["scale"].notna()]
    yield from _best_given(given)
    best = best_fixed(last_of_seed(given))
    chosen = pd.concat([tuned, best])
    if len(chosen):
        at_end = count(tuned["record"]).scales_at_end + int(best["at_grid_end"].sum())
        row = {"hyperprior": "fixed", "measure": "chosen on held-out rows"}
        yield row | _geometric(chosen) | {"at_grid_end": at_end}


def _best_given(given: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Of several given scales the one of the lowest mean score, and that score."""
    by_scale = {scale: list(own["record"]) for scale, own in given.groupby("scale", sort=False)}
    for measure, result in SCORES.items() if len(by_scale) > 1 else ():
        scores = {scale: mean_over_seeds(own, result) for scale, own in by_scale.items()}
        scores = {scale: score for scale, score in scores.items() if math.isfinite(score[0])}
        if scores:
            best = min(scores, key=lambda scale: scores[scale][0])
            records, (mean, error) = by_scale[best], scores[best]
            seeds = len(repetitions(records, result))
            at_end = {"at_grid_end": int(best in (min(by_scale), max(by_scale)))}
            numbers = {"mean": best, "se": math.nan, "seeds": seeds} | at_end | _counts(records)
            yield {"hyperprior": "fixed", "measure": f"best by {measure}"} | numbers
            numbers |= {"mean": mean, "se": error}
            yield {"hyperprior": "fixed", "measure": f"{measure} there"} | numbers
            return


def _learned_rows(
    cells: pd.DataFrame, learned: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    """Scale of every layer, or of the network, under each hyperprior."""
    scales = [learned.get(record.name, {}) for record in cells["record"]]
    layers = pd.DataFrame(scales, index=cells.index)
    for _, own in cells.groupby("column"):
        for name in sorted(layers.loc[own.index].dropna(axis="columns", how="all")):
            of_layer = own.assign(scale=layers[name]).dropna(subset="scale")
            measure = f"learned, {name.removesuffix('_scale').replace('_', ' ')}"
            head = {"hyperprior": own["hyperprior"].iloc[0], "measure": measure}
            yield head | _geometric(of_layer)


def _geometric(cells: pd.DataFrame) -> dict[str, Any]:
    """Geometric mean over data seeds of the ``scale`` of some cells."""
    records = list(cells["record"])
    logs = by_data_seed((r, math.log(s)) for r, s in zip(records, cells["scale"], strict=True))
    mean, error = mean_and_error(logs, overlap_of(records))
    numbers = {"mean": math.exp(mean), "se": math.exp(mean) * error, "seeds": len(logs)}
    return numbers | _counts(records)


def _counts(records: Sequence[CellRecord]) -> dict[str, int]:
    return {"cells": len(records), "not_converged": count(records).not_converged}
