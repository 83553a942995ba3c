"""Which fixed scale is best, and where learned scales go."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pmbnn.compare.paired import best_by_seed
from pmbnn.results.caveats import count
from pmbnn.results.combinations import Combinations
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import by_data_seed, mean_and_error, overlap_of, repetitions

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
    for row, prior in enumerate(combinations.rows):
        if row in combinations.without_scale:
            continue
        for found in (*_fixed_rows(combinations, row), *_learned_rows(combinations, row, learned)):
            yield {"prior": prior} | found


def _fixed_rows(combinations: Combinations, row: int) -> Iterator[dict[str, Any]]:
    """The best of several given scales by its score, and what held-out rows would choose."""
    given, chosen, at_end = {}, [], 0
    for column in range(combinations.shape[1]):
        records = combinations.finished(row, column)
        scale = records[0].cell.scale if records else None
        if isinstance(scale, float | int):
            given[scale] = column
        elif scale is not None:
            tuned = [r for r in records if r.results.get("scale")]
            chosen += [(r, r.results["scale"]) for r in tuned]
            at_end += count(tuned).scales_at_end
    if len(given) > 1:
        yield from _best_given(combinations, row, given)
        by_seed = [
            {r.cell.data_seed: r for r in combinations.finished(row, column)}
            for column in given.values()
        ]
        best = best_by_seed(by_seed).values()
        of_best = [(r, r.cell.scale) for r in best]
        chosen += of_best
        at_end += sum(scale in (min(given), max(given)) for _, scale in of_best)
    if chosen:
        row = {"hyperprior": "fixed", "measure": "chosen on held-out rows"} | _geometric(chosen)
        yield row | {"at_grid_end": at_end}


def _best_given(
    combinations: Combinations, row: int, given: Mapping[float, int]
) -> Iterator[dict[str, Any]]:
    """Scale of the lowest mean score, and that score."""
    for measure, result in SCORES.items():
        scores = {s: combinations.score(row, column, result) for s, column in given.items()}
        scores = {scale: score for scale, score in scores.items() if math.isfinite(score[0])}
        if scores:
            best = min(scores, key=lambda scale: scores[scale][0])
            records = combinations.finished(row, given[best])
            seeds = len(repetitions(records, result))
            mean, error = scores[best]
            at_end = {"at_grid_end": int(best in (min(given), max(given)))}
            numbers = {"mean": best, "se": math.nan, "seeds": seeds} | at_end | _counts(records)
            yield {"hyperprior": "fixed", "measure": f"best by {measure}"} | numbers
            numbers |= {"mean": mean, "se": error}
            yield {"hyperprior": "fixed", "measure": f"{measure} there"} | numbers
            return


def _learned_rows(
    combinations: Combinations, row: int, learned: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    """Scale of every layer, or of the network, under each hyperprior."""
    for column, hyperprior in enumerate(combinations.columns):
        cells = [(r, learned.get(r.name, {})) for r in combinations.finished(row, column)]
        for name in sorted({name for _, cell in cells for name in cell}):
            measure = f"learned, {name.removesuffix('_scale').replace('_', ' ')}"
            scales = _geometric([(r, cell[name]) for r, cell in cells if name in cell])
            yield {"hyperprior": hyperprior, "measure": measure} | scales


def _geometric(scales: Sequence[tuple[CellRecord, float]]) -> dict[str, Any]:
    logs = by_data_seed((record, math.log(scale)) for record, scale in scales)
    mean, error = mean_and_error(logs, overlap_of(record for record, _ in scales))
    numbers = {"mean": math.exp(mean), "se": math.exp(mean) * error, "seeds": len(logs)}
    return numbers | _counts([record for record, _ in scales])


def _counts(records: Sequence[CellRecord]) -> dict[str, int]:
    return {"cells": len(records), "not_converged": count(records).not_converged}
