"""What the trace of a sampled cell keeps of its chains.

``posterior`` has real draws of every chain; ``sample_stats``, ``log_likelihood`` and
``posterior_predictive`` belong to them. ``draws`` holds the unconstrained vectors that the cell
predicts with, from which `pmbnn.results.restore` predicts again. Of large networks the last layer
and all scales are kept, and fewer draws.
"""

import json

import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.fitting.inferred import InferredCell
from pmbnn.fitting.sampling import kept_numbers, kept_values, spread
from pmbnn.models.build import OF_A_LAYER
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.prediction.predictor import Predictor

LARGE_TRACE_DRAWS = 100
"""Draws of a large network's last layer that are kept at least."""

LEAST_DRAWS = 50
"""Draws of each chain that are kept at least: of fewer, its own statistics say little."""


def sampled_groups(
    sampled: InferredCell, predictor: Predictor, model: pm.Model, large: bool
) -> dict[str, xr.Dataset]:
    """Groups by name; `model` gives the dims and coordinates of its variables."""
    values = trace_values(sampled)
    number = kept_numbers(sampled.cell, sampled.samples)[_kept(sampled)]
    coords = {"chain": range(len(values)), "draw": number}
    statistics = {
        name: (("chain", "draw"), array[:, number])
        for name, array in sampled.samples.chains.statistics.items()
    }
    groups = {
        "posterior": _posterior(sampled, predictor, values, model, large),
        "sample_stats": xr.Dataset(statistics),
        "draws": _draws(predictor, values if large else kept_values(sampled.cell, sampled.samples)),
    }
    data, (chains, draws) = sampled.data, values.shape[:2]
    flat, axes = values.reshape(chains * draws, -1), ("chain", "draw", "observation")
    if not large or sampled.cell.predict.log_likelihood:
        by_row = predictor.log_joint(data, flat)[0].reshape(chains, draws, -1)
        groups["log_likelihood"] = xr.Dataset({"y": (axes, by_row.astype("f4"))})
    if not large:
        rng = np.random.default_rng(sampled.cell.inference.seed)
        targets = predictor.observations(data, flat, rng)
        targets = targets.reshape(chains, draws, *targets.shape[1:])
        of_targets = (*axes, TARGET_NAME)[: targets.ndim]
        groups["posterior_predictive"] = xr.Dataset({"y": (of_targets, targets)})
    for name in groups.keys() - {"draws"}:
        groups[name] = groups[name].assign_coords(coords).assign_attrs(draws_of=sampled.draws_of)
    return groups


def trace_values(sampled: InferredCell) -> np.ndarray:
    """Unconstrained vectors of the draws that are kept by name, ``(chain, draw, size)``."""
    return kept_values(sampled.cell, sampled.samples)[:, _kept(sampled)]


def _kept(sampled: InferredCell) -> np.ndarray:
    """Which of the draws of each chain that a cell predicts with are kept by name."""
    chains, draws = kept_values(sampled.cell, sampled.samples).shape[:2]
    wanted = max(-(-sampled.cell.predict.trace_draws // chains), LEAST_DRAWS)
    return spread(draws, wanted)


def _posterior(sampled, predictor, values, model: pm.Model, large: bool) -> xr.Dataset:
    chains, draws = values.shape[:2]
    named = predictor.posterior(sampled.data, values.reshape(chains * draws, -1))
    names = [name for name in named if not large or is_kept_of_large(name, named)]
    dims = {name: model.named_vars_to_dims.get(name, ()) for name in names}
    arrays = {
        name: (("chain", "draw", *dims[name]), _by_chain(named[name], chains)) for name in names
    }
    used = {dim for name in names for dim in dims[name]}
    labels = {name: list(label) for name, label in model.coords.items() if name in used}
    attrs = {"status": sampled.samples.status, "reason": sampled.samples.reason}
    return xr.Dataset(arrays, labels, attrs)


def _by_chain(array: np.ndarray, chains: int) -> np.ndarray:
    return array.reshape(chains, -1, *array.shape[1:]).astype("f4")


def _draws(predictor: Predictor, values: np.ndarray) -> xr.Dataset:
    """Unconstrained vectors, and where in them each variable lies."""
    slots = [[s.name, s.start, list(s.shape)] for s in predictor.flat.layout.slots]
    axes = ("chain", "draw", "parameter")
    return xr.Dataset({"values": (axes, values.astype("f4"))}, attrs={"slots": json.dumps(slots)})


def is_kept_of_large(name: str, available: dict) -> bool:
    """Whether a variable belongs to the last layer's weights and biases, or to no layer."""
    layers = {found: int(m[1]) for found in available if (m := OF_A_LAYER.match(found))}
    return layers.get(name) in (None, max(layers.values()))
