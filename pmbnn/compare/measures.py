"""What the trace of one cell says, as far as comparisons need it."""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from xarray import DataTree

from pmbnn.compare.boundary import Sureness, at_points, boundary_measures
from pmbnn.data import Synthetic
from pmbnn.results.plane import plane_map
from pmbnn.results.reading import load_arrays
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.results.weights import (
    SCALE,
    WEIGHT,
    away_from_zero,
    excess_kurtosis,
    hoyer_sparsity,
    last_layer,
    learned_scales,
    narrow_about_zero,
)

POINTS = 20_000
"""Fresh points at which uncertainty is held against the truth; a correlation is good to 0.01."""

WANTED = {
    "posterior": f"{WEIGHT.pattern}|{SCALE.pattern}",
    "restarts": f"{WEIGHT.pattern}|{SCALE.pattern}",
    "fit": "",
    "predictions": "probability|sd",
}
"""Groups of a trace, and what is read of them; of the fit, its attributes."""


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

    What *away from zero* and *narrow about zero* mean is told in `pmbnn.results.weights`.
    """
    means = draws.mean(axis=0)
    return {
        "weights": float(draws.shape[1]),
        "away from zero": float(away_from_zero(draws).sum()),
        "share narrow about zero": float(narrow_about_zero(draws).mean()),
        "excess kurtosis of means": excess_kurtosis(means),
        "Hoyer sparsity of means": hoyer_sparsity(means),
    }


def _boundary(trace: DataTree, record: CellRecord) -> dict[str, float]:
    """Uncertainty against the truth, for data whose distribution is known."""
    dataset = record.cell.dataset
    if not isinstance(dataset, Synthetic) or "predictions" not in trace.children:
        return {}
    plane = plane_map(trace)
    x, error = _fresh_points(dataset)
    sd = at_points(plane.sd, plane.x1, plane.x2, x)
    inside = np.isfinite(sd)
    everywhere = _errors_on_map(dataset, tuple(plane.x1), tuple(plane.x2))
    return boundary_measures(
        Sureness(plane.sd.ravel(), everywhere), Sureness(sd[inside], error[inside])
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
