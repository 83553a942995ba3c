"""The little of a trace that the page draws: how the fit went, the last layer, the maps."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from pmbnn.results.plane import PlaneMap, plane_map
from pmbnn.results.reading import load_arrays, values_of
from pmbnn.results.store import Results, ResultsError
from pmbnn.results.weights import WEIGHT, away_from_zero, best_restart, last_layer

WANTED = {
    "fit": "elbo|step",
    "posterior": WEIGHT.pattern,
    "restarts": WEIGHT.pattern,
    "predictions": "probability|sd",
}
"""Arrays by group, as regular expressions."""

MOST_POINTS = 60
"""Points of a line: more cannot be told apart at the width of a small figure."""

MOST_CURVES = 24
"""Weights up to which each has a density of its own; of more, all draws have one together."""

SHOWN = (0.005, 0.995)
"""Quantiles of all draws between which densities are drawn: Cauchy tails reach far."""

QUARTILES_APART = 1.3489795
"""Distance of the quartiles of the standard normal distribution."""


class Training(NamedTuple):
    """Mean ELBO of each window of steps, ``(restart, window)``, and the restart predicted with."""

    step: np.ndarray
    elbo: np.ndarray
    best: int


class Weights(NamedTuple):
    """Posterior of the last layer's weights under the restart predicted with.

    ``density`` is ``(curve, point)``, each scaled to a highest value of 1: a curve for each
    weight, ``away`` telling which leave out zero, or one of all draws where weights are many.
    """

    at: np.ndarray
    density: np.ndarray
    away: np.ndarray


class Parts(NamedTuple):
    """What was found of a trace; parts that it does not have are None."""

    training: Training | None = None
    weights: Weights | None = None
    plane: PlaneMap | None = None


def read_parts(results: Results, name: str) -> Parts:
    """Parts of the trace of a cell, all empty where it has none.

    Raises
    ------
    ResultsError
        If the trace cannot be read.
    """
    path = results.cells / name / "trace.nc"
    if not path.is_file():
        return Parts()
    try:
        trace = load_arrays(results, name, WANTED)
    except OSError as error:
        raise ResultsError(f"The trace `{path}` cannot be read: {error}.") from error
    return Parts(_training(trace), _weights(trace), _plane(trace))


def _training(trace: xr.DataTree) -> Training | None:
    if "fit" not in trace.children or "elbo" not in trace["fit"].dataset:
        return None
    elbo = values_of(trace, "fit", "elbo", "restart", "window")
    step = values_of(trace, "fit", "step")
    kept = np.unique(np.linspace(0, len(step) - 1, MOST_POINTS).round().astype(int))
    return Training(step[kept], elbo[:, kept], best_restart(trace))


def _weights(trace: xr.DataTree) -> Weights | None:
    if not {"fit", "posterior"} <= set(trace.children):
        return None
    try:
        draws = last_layer(trace)
    except ValueError:  # a posterior without weights
        return None
    if len(draws) < 2 or not np.isfinite(draws).all():
        return None
    curves = draws.T if draws.shape[1] <= MOST_CURVES else draws.reshape(1, -1)
    at = np.linspace(*np.quantile(draws, SHOWN), MOST_POINTS)
    return Weights(at, np.array([_density(c, at) for c in curves]), away_from_zero(draws))


def _density(draws: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Density of draws, smoothed by normal kernels of a width that suits both peak and tails."""
    # Silverman's rule with the interquartile range alone, as the standard deviation of Cauchy
    # tails says nothing of the peak, and no narrower than the points are apart.
    low, high = np.quantile(draws, (0.25, 0.75))
    spread = (high - low) / QUARTILES_APART
    width = max(0.9 * spread * len(draws) ** -0.2, at[1] - at[0], np.finfo(float).tiny)
    # Point by point: all weights of a large layer at once would fill the memory.
    density = np.array([np.exp(-0.5 * ((x - draws) / width) ** 2).sum() for x in at])
    return density / max(density.max(), np.finfo(float).tiny)


def _plane(trace: xr.DataTree) -> PlaneMap | None:
    if "predictions" not in trace.children:
        return None
    held = trace["predictions"].dataset
    return plane_map(trace) if {"x1", "x2", "output"} <= set(held.dims) else None
