"""Every comparison of a results folder as one table: ``claims.csv``."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from xarray import DataTree

from pmbnn.compare.intervals import paired_differences
from pmbnn.compare.scores import scores_of
from pmbnn.core.stages import stage
from pmbnn.data import Synthetic
from pmbnn.fitting.helpers import ALONE, Helpers
from pmbnn.results.names import RANKED_BY, Variant, dataset_title, valid_cells, variants
from pmbnn.results.reading import (
    SCALE,
    WEIGHT,
    away_from_zero,
    excess_kurtosis,
    hoyer_sparsity,
    last_layer,
    learned_scales,
    load_arrays,
    narrow_about_zero,
    plane_map,
)
from pmbnn.results.record import AT_GRID_END, CellRecord, count, has_converged, scale_at_grid_end
from pmbnn.results.store import Results
from pmbnn.results.tables import (
    NATS,
    Combinations,
    by_data_seed,
    combine,
    mean_and_error,
    overlap_of,
    result_of,
    union_of_names,
)

# Measures of one cell, from its trace: sparsity, uncertainty at the true boundary, scales


POINTS = 20_000
"""Fresh points at which uncertainty is compared with the truth; a correlation is good to 0.01."""

ARRAYS = {
    "posterior": f"{WEIGHT.pattern}|{SCALE.pattern}",
    "restarts": f"{WEIGHT.pattern}|{SCALE.pattern}",
    "fit": "",
    "predictions": "probability|sd",
}
"""Groups of a trace, and what is read of them; of the fit, its attributes."""

UNCERTAIN_SHARE = 0.05
"""Share of the points that counts as the most unsure ones."""


class CellMeasures(NamedTuple):
    """Measures of a cell by name; empty where the cell says nothing on that."""

    sparsity: Mapping[str, float]
    boundary: Mapping[str, float]
    scales: Mapping[str, float]


def read_measures(results: Results, record: CellRecord) -> CellMeasures:
    """Measures of a cell with results, from its stored trace.

    A point fit and dropout have none: their weights have no density.
    """
    if record.cell.is_point or record.cell.is_dropout:
        return CellMeasures({}, {}, {})
    return measures_of(load_arrays(results, record.name, ARRAYS), record)


def measures_of(trace: DataTree, record: CellRecord) -> CellMeasures:
    """Measures of a trace; groups that it does not have are passed over."""
    sparsity, scales = {}, {}
    if "posterior" in trace.children:
        scales = learned_scales(trace)
        # Chains visit weights of either sign: about zero says nothing of one that they all do.
        names = map(str, trace["posterior"].data_vars)
        if "fit" in trace.children and any(name.startswith("weight_") for name in names):
            sparsity = sparsity_measures(last_layer(trace))
    return CellMeasures(sparsity, _boundary(trace, record), scales)


def sparsity_measures(draws: np.ndarray) -> dict[str, float]:
    """Measures of a layer's sparsity from draws ``(draw, weight)``, by name.

    `pmbnn.results.reading` defines *away from zero* and *narrow about zero*.
    """
    means = draws.mean(axis=0)
    return {
        "weights": float(draws.shape[1]),
        "away from zero": float(away_from_zero(draws).sum()),
        "share narrow about zero": float(narrow_about_zero(draws).mean()),
        "excess kurtosis of means": excess_kurtosis(means),
        "Hoyer sparsity of means": hoyer_sparsity(means),
    }


# Uncertainty at the true boundary


class UncertaintyAndError(NamedTuple):
    """Uncertainty at some points, and the truth there, each ``(point,)``.

    ``sd`` is the standard deviation of the class probability over posterior draws; ``error`` the
    smaller of the two true class probabilities, which is how often the best possible classifier
    errs there: one half on the true boundary, and falling away from it.
    """

    sd: np.ndarray
    error: np.ndarray


def boundary_measures(plane: UncertaintyAndError, data: UncertaintyAndError) -> dict[str, float]:
    """Three measures of whether uncertainty follows the true boundary, by name.

    Parameters
    ----------
    plane
        All pixels of a map, most of which hold next to no data.
    data
        Points drawn from the true distribution of the data.
    """
    unsure = np.argsort(-data.sd, kind="stable")[: max(1, round(UNCERTAIN_SHARE * len(data.sd)))]
    return {
        "rank correlation, map": rank_correlation(*plane),
        "rank correlation, data": rank_correlation(*data),
        "true error rate of the 5 % most unsure": float(data.error[unsure].mean()),
        "true error rate": float(data.error.mean()),
    }


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's correlation of two arrays; equal values share their mean rank.

    It is not a number where either array is constant.
    """
    from scipy import stats

    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(stats.spearmanr(first, second).statistic)


def at_points(grid: np.ndarray, x1: np.ndarray, x2: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Value of the nearest pixel of a map ``(x1, x2)``; NaN at points outside the map.

    Parameters
    ----------
    grid
        The map.
    x1, x2
        Evenly spaced centres of its pixels.
    x
        Points, ``(point, 2)``.
    """
    places, inside = [], np.ones(len(x), dtype=bool)
    for centres, values in ((x1, x[:, 0]), (x2, x[:, 1])):
        step = (centres[-1] - centres[0]) / (len(centres) - 1)
        index = np.rint((values - centres[0]) / step).astype(int)
        inside &= (index >= 0) & (index < len(centres))
        places.append(np.clip(index, 0, len(centres) - 1))
    return np.where(inside, grid[places[0], places[1]], np.nan)


def _boundary(trace: DataTree, record: CellRecord) -> dict[str, float]:
    """Uncertainty against the truth, for data whose distribution is known."""
    dataset = record.cell.dataset
    if not isinstance(dataset, Synthetic) or "predictions" not in trace.children:
        return {}
    plane = plane_map(trace)
    on_map = _errors_on_map(dataset, tuple(plane.x1), tuple(plane.x2))
    x, error = _fresh_points(dataset)
    sd = at_points(plane.sd, plane.x1, plane.x2, x)
    inside = np.isfinite(sd)
    return boundary_measures(
        UncertaintyAndError(plane.sd.ravel(), on_map),
        UncertaintyAndError(sd[inside], error[inside]),
    )


@lru_cache(maxsize=8)
def _errors_on_map(dataset: Synthetic, x1: tuple[float, ...], x2: tuple[float, ...]) -> np.ndarray:
    """How often the best classifier errs at each pixel, ``(x1 · x2,)``."""
    grid = np.stack(np.meshgrid(x1, x2, indexing="ij"), axis=-1).reshape(-1, 2)
    return dataset.class_probabilities(grid).min(axis=1)


@lru_cache(maxsize=8)
def _fresh_points(dataset: Synthetic) -> tuple[np.ndarray, np.ndarray]:
    """Points from the true distribution, and how often the best classifier errs at each."""
    x, _ = dataset.sample(POINTS, random_seed=0)
    return x, dataset.class_probabilities(x).min(axis=1)


FILE = "claims.csv"
"""File of a results folder that holds its table."""

SPARSITY = "sparsity of the last layer"
BOUNDARY = "uncertainty at the true boundary"
HYPERPRIORS = "learned scale less fixed scale"
SCALES = "scales"

CLAIMS = (SPARSITY, BOUNDARY, HYPERPRIORS, SCALES)
"""What a row may be about, in the order in which tables are printed."""

KEYS = (
    "experiment", "sweep", "data", "variant", "claim", "prior", "hyperprior", "against", "measure",
)  # fmt: skip
"""Columns that say what a row is of."""

COLUMNS = (
    *KEYS, "unit", "mean", "se", "seeds", "overlap", "cells", "not_converged", "at_grid_end",
)  # fmt: skip
"""Of every row: ``mean`` over data seeds, in ``unit`` (empty of shares, counts and scales), its
standard error ``se`` (over the fits of one data seed, NaN for one fit), which is corrected for
overlapping splits where ``overlap`` is above zero (`mean_and_error`); the number of data ``seeds``;
that of ``cells``, or pairs of cells, that it is of; of these, those that had not converged, and
those whose fixed scale is at an end of the grid that it was chosen from."""


COUNTS = ("cells", "not_converged", "at_grid_end")
"""Columns that count cells and their caveats."""


def claims_table(
    experiment: str, results: Results, records: Sequence[CellRecord], helpers: Helpers = ALONE
) -> pd.DataFrame:
    """All comparisons that the cells of a results folder allow; see `COLUMNS`.

    Parameters
    ----------
    experiment
        Name that the rows carry.
    results
        Where the traces are.
    records
        Cells to take; failed ones, and those of `invalid_chains`, are passed over.
    helpers
        That share the reading of traces.
    """
    records = valid_cells(records)
    usable = [record for record in records if record.results]
    reads = [partial(read_measures, results, record) for record in usable]
    with stage("comparing", len(usable), "cell") as report_progress:
        values = helpers.share(reads, report_progress)
    measures = {record.name: of_cell for record, of_cell in zip(usable, values, strict=True)}
    rows = [
        {column: row.get(column, 0 if column in COUNTS else "") for column in COLUMNS}
        | {"experiment": experiment}
        for variant in variants(records)
        for row in _variant_rows(variant, measures)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def unit_of_measure(measure: str) -> str:
    """Unit of a measure; empty of a share, a count or a scale."""
    is_scale_or_share = measure.startswith(("best by", "share of"))
    return NATS if "NLL" in measure and not is_scale_or_share else ""


def row_caveats(row: Mapping[str, Any]) -> list[str]:
    """Caveats of a row: how many of its cells, or pairs."""
    caveats = {"not_converged": "not converged", "at_grid_end": f"scale {AT_GRID_END}"}
    return [
        f"{row[name]:g} of {row['cells']:g} {caveat}"
        for name, caveat in caveats.items()
        if row[name]
    ]


def write_claims(path: Path, table: pd.DataFrame) -> None:
    """Write a table of comparisons, whole or not at all; one without rows leaves no file.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    Results(path.parent).replace_table(path.name, table)


def read_claims(path: Path) -> pd.DataFrame:
    """The table that such a file holds, without rows where there is none."""
    if not path.is_file():
        return pd.DataFrame(columns=COLUMNS)
    table = pd.read_csv(path, keep_default_na=False, na_values={"mean": [""], "se": [""]})
    # The reference tables do not have all columns.
    return table.reindex(columns=COLUMNS).fillna(dict.fromkeys(("overlap", *COUNTS), 0))


def _variant_rows(
    variant: Variant, measures: Mapping[str, CellMeasures]
) -> Iterator[dict[str, Any]]:
    """Rows of the cells that differ in prior, hyperprior and data seed only."""
    first, combinations = variant.records[0], combine(variant.records)
    head = {
        "sweep": first.sweep,
        "data": dataset_title(first.cell.dataset),
        "variant": "; ".join(variant.words),
        "overlap": combinations.overlap,
    }
    sparsity, boundary, learned = (
        {name: getattr(of_cell, kind) for name, of_cell in measures.items()}
        for kind in CellMeasures._fields
    )
    claims = {
        SPARSITY: _measured(combinations, sparsity),
        BOUNDARY: _measured(combinations, boundary),
        HYPERPRIORS: paired_rows(combinations),
        SCALES: scale_rows(combinations, learned),
    }
    for claim, rows in claims.items():
        for row in rows:
            yield head | {"claim": claim, "unit": unit_of_measure(row["measure"])} | row


def _measured(
    combinations: Combinations, measures: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    """Means of the measures of cells over data seeds, for every combination."""
    for row, prior in enumerate(combinations.rows):
        for column, hyperprior in enumerate(combinations.columns):
            scale = "no scale" if row in combinations.without_scale else hyperprior
            records = combinations.finished(row, column)
            for name in union_of_names(measures[r.name] for r in records):
                values = [(r, measures[r.name][name]) for r in records if name in measures[r.name]]
                head = {"prior": prior, "hyperprior": scale, "measure": name}
                yield head | _mean_row(values)


def _mean_row(values: Iterable[tuple[CellRecord, float | None]]) -> dict[str, float]:
    """Mean over data seeds of a value of each cell, its standard error, and counts of the cells."""
    values = list(values)
    records, by_seed = [record for record, _ in values], by_data_seed(values)
    mean, error = mean_and_error(by_seed, overlap_of(records))
    counts = count(records)
    seeds = {r.cell.data_seed for r, value in values if value is not None and value == value}
    return {
        "mean": mean,
        "se": error,
        "seeds": len(seeds),
        "cells": len(records),
        "not_converged": counts.not_converged,
        "at_grid_end": counts.scales_at_end,
    }


# Learned scales less fixed ones

BEST_FIXED = "fixed (best held-out)"
"""Of several fixed scales, the one with the lowest held-out score, chosen for every data seed."""

ALL = "all"


def paired_rows(combinations: Combinations) -> Iterator[dict[str, Any]]:
    """Differences, learned less fixed, as mean ± standard error over data seeds.

    Below zero the learned scale is better. Rows of ``all`` priors and hyperpriors follow: the mean
    over combinations, then over data seeds, and the share of single pairs with the learned scale
    ahead.

    Of the ``cells``, pairs of cells, ``not_converged`` counts those with a fit that did not
    converge, and ``at_grid_end`` those whose fixed scale is at an end of the grid that it was
    chosen from: beyond it there may be a better one.
    """
    cells = combinations.cells
    results = {name for record in cells["record"] for name in record.results}
    measures = [m for s in scores_of(cells["record"]) for m in s.paired if m[1] in results]
    if not measures:
        return
    cells = _with_best_fixed(cells[~cells["row"].isin(combinations.without_scale)])
    for measure, result, sign in measures[:2]:
        scores = cells.assign(score=sign * result_of(cells["record"], result))
        scores = scores[["name", "seed", "score", "not_converged", "at_grid_end"]]
        pairs = paired_differences(scores, _learned_and_fixed(cells))
        pairs = pairs.assign(against=[fixed for _, fixed in pairs["b"]])
        for (learned, against), group in pairs.groupby(["a", "against"], sort=False):
            names = *learned, against
            yield _row(names, measure, group["difference"], group, combinations.overlap)
        for against, group in pairs.groupby("against", sort=False):
            if len(group.drop_duplicates(["a", "b"])) > 1:
                names, by_seed = (ALL, ALL, against), group.groupby("seed")["difference"]
                means = by_seed.agg(lambda values: mean_and_error(list(values))[0])
                yield _row(names, measure, means, group, combinations.overlap)
                share = by_seed.agg(lambda values: (values < 0).mean())
                title = f"share of pairs with less {measure}"
                yield _row(names, title, share, group, combinations.overlap)


def _with_best_fixed(cells: pd.DataFrame) -> pd.DataFrame:
    """The last fit of each combination and data seed, its ``name`` and caveats.

    The best fixed scales of each prior follow the scales that they are chosen from.
    """
    cells = last_of_seed(cells)
    cells = cells.assign(
        not_converged=[not has_converged(record) for record in cells["record"]],
        at_grid_end=[bool(scale_at_grid_end(record)) for record in cells["record"]],
    )
    best = [best_fixed(group) for _, group in cells[~cells["is_learned"]].groupby("row")]
    place = {"hyperprior": BEST_FIXED, "column": cells["column"].max() + 1}
    cells = pd.concat([cells, *(group.assign(**place) for group in best)])
    return cells.assign(name=list(zip(cells["prior"], cells["hyperprior"], strict=True)))


def _learned_and_fixed(cells: pd.DataFrame) -> Iterator[tuple[tuple, tuple]]:
    """Names of every learned scale and each fixed one of the same prior."""
    places = cells.drop_duplicates("name").sort_values(["row", "column"], kind="stable")
    is_learned = places["is_learned"].astype(bool)
    both = places[is_learned].merge(places[~is_learned], on="row", suffixes=("", "_fixed"))
    return zip(both["name"], both["name_fixed"], strict=True)


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
    return cells.drop_duplicates(["row", "column", "seed"], keep="last")


def _row(
    names: Sequence[str], measure: str, by_seed: pd.Series, pairs: pd.DataFrame, overlap: float
) -> dict[str, Any]:
    """Mean over data seeds, and caveats of the pairs."""
    mean, error = mean_and_error(list(by_seed), overlap)
    return dict(zip(("prior", "hyperprior", "against"), names, strict=True)) | {
        "measure": measure,
        "mean": mean,
        "se": error,
        "seeds": len(by_seed),
        "cells": len(pairs),
        "not_converged": int(pairs["not_converged"].sum()),
        "at_grid_end": int(pairs["at_grid_end"].sum()),
    }


# Scales

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
        Learned scales by the names of cells, from `pmbnn.results.reading.learned_scales`.
    """
    cells = combinations.cells
    cells = cells[~cells["row"].isin(combinations.without_scale)]
    for _, group in cells.groupby("row"):
        for row in (*_fixed_rows(group), *_learned_rows(group, learned)):
            yield {"prior": group["prior"].iloc[0]} | row


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
    """Of several given scales the one of the lowest mean score, and that score.

    Those with a score on fewer data seeds than others are no candidates.
    """
    by_scale = dict(tuple(given.groupby("scale", sort=False)["record"]))
    for measure, result in SCORES.items() if len(by_scale) > 1 else ():
        rows = {
            scale: _mean_row((record, record.results.get(result)) for record in records)
            for scale, records in by_scale.items()
        }
        rows = {scale: row for scale, row in rows.items() if math.isfinite(row["mean"])}
        most = max((row["seeds"] for row in rows.values()), default=0)
        rows = {scale: row for scale, row in rows.items() if row["seeds"] == most}
        if rows:
            best = min(rows, key=lambda scale: rows[scale]["mean"])
            at_end = int(best in (min(by_scale), max(by_scale)))
            row = rows[best] | {"hyperprior": "fixed", "at_grid_end": at_end}
            yield row | {"measure": f"best by {measure}", "mean": best, "se": math.nan}
            yield row | {"measure": f"{measure} there"}
            return


def _learned_rows(
    cells: pd.DataFrame, learned: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    """Scale of every layer, or of the network, under each hyperprior."""
    scales = [learned.get(record.name, {}) for record in cells["record"]]
    layers = pd.DataFrame(scales, index=cells.index)
    for _, group in cells.groupby("column"):
        for name in sorted(layers.loc[group.index].dropna(axis="columns", how="all")):
            of_layer = group.assign(scale=layers[name]).dropna(subset="scale")
            measure = f"learned, {name.removesuffix('_scale').replace('_', ' ')}"
            head = {"hyperprior": group["hyperprior"].iloc[0], "measure": measure}
            yield head | _geometric(of_layer)


def _geometric(cells: pd.DataFrame) -> dict[str, Any]:
    """Geometric mean over data seeds of the ``scale`` of some cells."""
    row = _mean_row((r, math.log(s)) for r, s in zip(cells["record"], cells["scale"], strict=True))
    mean = math.exp(row["mean"])
    return row | {"mean": mean, "se": mean * row["se"]}
