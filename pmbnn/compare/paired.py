"""Learned scales against fixed ones, cell by cell on the same data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pmbnn.compare.scores import scores_of
from pmbnn.results.caveats import has_converged, scale_at_grid_end
from pmbnn.results.combinations import Combinations
from pmbnn.results.groups import RANKED_BY
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import mean_and_error
from pmbnn.spec import Tune

BEST_FIXED = "fixed (best held-out)"
"""Of several fixed scales, the one with the lowest held-out score, chosen for every data seed."""

ALL = "all"

BySeed = Mapping[int, CellRecord]


class Difference(NamedTuple):
    """A learned scale less a fixed one: what they are, and the difference for every data seed.

    Of the pairs of cells, ``not_converged`` counts those with a fit that did not converge, and
    ``at_grid_end`` those whose fixed scale is at an end of the grid that it was chosen from: beyond
    it there may be a better one.
    """

    prior: str
    hyperprior: str
    against: str
    by_seed: Mapping[int, float]
    cells: int
    not_converged: int
    at_grid_end: int


def paired_rows(combinations: Combinations) -> Iterator[dict[str, Any]]:
    """Differences, learned less fixed, as mean ± standard error over data seeds.

    Below zero the learned scale is better. Rows of ``all`` priors and hyperpriors follow: the mean
    over combinations, then over data seeds, and the share of single pairs with the learned scale
    ahead.
    """
    finished = [r for group in combinations.records.values() for r in group if r.results]
    known = {name for record in finished for name in record.results}
    measures = [m for scores in scores_of(finished) for m in scores.paired if m[1] in known]
    for measure, result, sign in measures[:2]:
        differences = list(_differences(combinations, result, sign))
        for one in differences:
            yield _row(one, measure, combinations.overlap)
        for against in dict.fromkeys(one.against for one in differences):
            alike = [o for o in differences if o.against == against]
            yield from _over_all(alike, measure, combinations.overlap)


def _differences(combinations: Combinations, result: str, sign: float) -> Iterator[Difference]:
    """Every prior, learned hyperprior and fixed scale with pairs on the same data."""
    for row, prior in enumerate(combinations.rows):
        references = _references(combinations, row)
        scales = map(_scale, references.values())
        given = [scale for scale in scales if isinstance(scale, float | int)]
        for column, hyperprior in enumerate(combinations.columns):
            learned = _by_seed(combinations.finished(row, column))
            if not learned or _scale(learned) is not None:
                continue
            for against, fixed in references.items():
                pairs = {
                    seed: sign * (record.results[result] - fixed[seed].results[result])
                    for seed, record in learned.items()
                    if seed in fixed and _has(record, result) and _has(fixed[seed], result)
                }
                if pairs:
                    both = [(learned[seed], fixed[seed]) for seed in pairs]
                    lost = sum(not all(map(has_converged, pair)) for pair in both)
                    grid = given if against == BEST_FIXED else ()
                    at_end = sum(_at_grid_end(record, grid) for _, record in both)
                    yield Difference(prior, hyperprior, against, pairs, len(pairs), lost, at_end)


def _references(combinations: Combinations, row: int) -> dict[str, BySeed]:
    """Fixed scales of a prior by name, and the best of them where there are several."""
    found: dict[str, BySeed] = {}
    given = []
    if row in combinations.without_scale:
        return found
    for column, name in enumerate(combinations.columns):
        records = _by_seed(combinations.finished(row, column))
        if records and _scale(records) is not None:
            found[name] = records
            if isinstance(_scale(records), float | int):
                given.append(records)
    best = best_by_seed(given) if len(given) > 1 else {}
    return found | ({BEST_FIXED: best} if best else {})


def _at_grid_end(record: CellRecord, given: Sequence[float]) -> bool:
    """Whether a fixed scale is at an end of the grid that it was chosen from.

    Parameters
    ----------
    given
        Scales that other cells were given, where it was chosen among these.
    """
    if given:
        return record.cell.scale in (min(given), max(given))
    return bool(scale_at_grid_end(record))


def best_by_seed(candidates: Sequence[BySeed]) -> dict[int, CellRecord]:
    """Record of lowest held-out score for every data seed on which all candidates have one."""
    seeds = set.intersection(*(set(records) for records in candidates))
    scored = sorted(s for s in seeds if all(_has(records[s], RANKED_BY) for records in candidates))
    return {
        seed: min((c[seed] for c in candidates), key=lambda record: record.results[RANKED_BY])
        for seed in scored
    }


def _over_all(
    differences: Sequence[Difference], measure: str, overlap: float
) -> Iterator[dict[str, Any]]:
    """Mean over combinations for every data seed, and the share of pairs below zero."""
    if len(differences) < 2:
        return
    against = differences[0].against
    seeds = sorted({seed for one in differences for seed in one.by_seed})
    values = {seed: [o.by_seed[seed] for o in differences if seed in o.by_seed] for seed in seeds}
    means = {seed: mean_and_error(found)[0] for seed, found in values.items()}
    over_all = Difference(
        *(ALL, ALL, against, means),
        cells=sum(one.cells for one in differences),
        not_converged=sum(one.not_converged for one in differences),
        at_grid_end=sum(one.at_grid_end for one in differences),
    )
    yield _row(over_all, measure, overlap)
    below = {seed: sum(v < 0 for v in found) / len(found) for seed, found in values.items()}
    share = f"share of pairs with less {measure}"
    yield _row(over_all._replace(by_seed=below), share, overlap)


def _row(one: Difference, measure: str, overlap: float) -> dict[str, Any]:
    mean, error = mean_and_error(list(one.by_seed.values()), overlap)
    return {
        "prior": one.prior,
        "hyperprior": one.hyperprior,
        "against": one.against,
        "measure": measure,
        "mean": mean,
        "se": error,
        "seeds": len(one.by_seed),
        "cells": one.cells,
        "not_converged": one.not_converged,
        "at_grid_end": one.at_grid_end,
    }


def _by_seed(records: Sequence[CellRecord]) -> dict[int, CellRecord]:
    return {record.cell.data_seed: record for record in records}


def _scale(records: BySeed) -> float | Tune | None:
    """Fixed scale of a combination, or its candidates; None where it is learned."""
    return next(iter(records.values())).cell.scale


def _has(record: CellRecord, result: str) -> bool:
    return record.results.get(result) is not None
