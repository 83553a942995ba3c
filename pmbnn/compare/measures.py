"""Measures of one cell, from its trace: sparsity, uncertainty at the true boundary, scales."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from xarray import DataTree

from pmbnn.data import Synthetic
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
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results

POINTS = 20_000
"""Fresh points at which uncertainty is compared with the truth; a correlation is good to 0.01."""

WANTED = {
    "posterior": f"{WEIGHT.pattern}|{SCALE.pattern}",
    "restarts": f"{WEIGHT.pattern}|{SCALE.pattern}",
    "fit": "",
    "predictions": "probability|sd",
}
"""Groups of a trace, and what is read of them; of the fit, its attributes."""

MOST_UNSURE = 0.05
"""Share of the points that counts as the most unsure ones."""


class CellMeasures(NamedTuple):
    """Measures of a cell by name; empty where the cell says nothing on that."""

    sparsity: Mapping[str, float]
    boundary: Mapping[str, float]
    scales: Mapping[str, float]


def read_measures(results: Results, record: CellRecord) -> CellMeasures:
    """Measures of a cell with results, from its stored trace.

    A point fit has none: its weights have no distribution.
    """
    if record.cell.is_point:
        return CellMeasures({}, {}, {})
    return measures_of(load_arrays(results, record.name, WANTED), record)


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
    unsure = np.argsort(-data.sd, kind="stable")[: max(1, round(MOST_UNSURE * len(data.sd)))]
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
