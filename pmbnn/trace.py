"""A fitted cell as an xarray tree that ArviZ reads; restarts are its chains.

Small networks are kept in full. Of large ones, the posterior of the last layer and of all
scales is kept; the guide and its random streams are, so that everything else can be drawn
again (`pmbnn.regenerate`), and the training rows are named by fingerprint only.
"""

import json
import re

import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.curve_groups import regression_groups
from pmbnn.datasets.rows import Dataset
from pmbnn.diagnosis import Diagnosis
from pmbnn.evaluation import Evaluation
from pmbnn.fitting import FittedCell
from pmbnn.plan import is_large
from pmbnn.prediction_groups import (
    diagnosis_arrays,
    moment_arrays,
    picture_groups,
    predictions_of_test,
    snapshot_group,
)
from pmbnn.predictors import AnyPredictor
from pmbnn.regression_evaluation import RegressionEvaluation

LARGE_TRACE_DRAWS = 100
"""Draws of a large network's last layer that are kept at least."""

OF_A_LAYER = re.compile(r"(?:weight|bias)_(\d+)")
"""Start of the names of a layer's weights and biases, and of a prior's scales of single ones."""


def build_trace(
    fitted: FittedCell,
    evaluation: Evaluation | RegressionEvaluation,
    dataset: Dataset,
    predictor: AnyPredictor,
    model: pm.Model,
) -> xr.DataTree:
    """Trace of a cell; `model` gives the dims and coordinates of its variables."""
    chains = [i for i, fit in enumerate(fitted.fits) if not fit.failed]
    draws = fitted.cell.predict.trace_draws
    large = is_large(fitted.cell)
    # A figure of curves shows the rows; those of regressions are few.
    keeps_rows = not large or not dataset.classes
    if large:
        draws = max(draws, LARGE_TRACE_DRAWS)
    values = {i: predictor.values(fitted.fits[i], draws) for i in chains}
    groups = {
        "posterior": _posterior(fitted, predictor, values, model, large),
        "fit": _fit_group(fitted, getattr(evaluation, "diagnosis", None)),
        "guide": _guide_group(fitted, predictor),
        "constant_data": _constant_data(dataset, keeps_rows),
    }
    if not large or fitted.cell.predict.log_likelihood:
        groups |= _density_groups(fitted, predictor, values)
    if not large:
        groups["posterior_predictive"] = _posterior_predictive(fitted, predictor, values)
    if keeps_rows:
        groups["observed_data"] = xr.Dataset({"y": ("observation", dataset.y_train)})
    if isinstance(evaluation, RegressionEvaluation):
        groups |= regression_groups(evaluation, dataset)
    else:
        groups |= _classifier_groups(fitted, evaluation, dataset, predictor)
    return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})


def _classifier_groups(fitted, evaluation: Evaluation, dataset, predictor) -> dict[str, xr.Dataset]:
    """Predictions of test rows, over the map, and of pictures."""
    groups = {"test_predictions": predictions_of_test(fitted, evaluation, dataset, predictor)}
    if evaluation.map is not None:
        groups["predictions"] = _map_group(evaluation, dataset)
    if evaluation.pictures is not None:
        groups |= picture_groups(fitted, evaluation, dataset, predictor)
    if evaluation.diagnosis is not None and evaluation.diagnosis.examples is not None:
        groups["snapshot_examples"] = snapshot_group(evaluation.diagnosis, dataset, fitted)
    return groups


def _chain_coords(values: dict[int, np.ndarray]) -> dict[str, list[int]]:
    draws = len(next(iter(values.values())))
    return {"chain": list(values), "draw": list(range(draws))}


def _posterior(fitted, predictor, values, model, large) -> xr.Dataset:
    chains = [predictor.posterior(fitted.data, drawn) for drawn in values.values()]
    dims = {name: model.named_vars_to_dims.get(name, ()) for name in chains[0]}
    kept = [name for name in chains[0] if not large or _kept_of_large(name, chains[0])]
    arrays = {
        name: (("chain", "draw", *dims[name]), np.stack([c[name] for c in chains]).astype("f4"))
        for name in kept
    }
    used = {dim for axes, _ in arrays.values() for dim in axes}
    coords = {name: list(labels) for name, labels in model.coords.items() if name in used}
    return xr.Dataset(arrays, coords=_chain_coords(values) | coords)


def _kept_of_large(name: str, available: dict) -> bool:
    """What belongs to the last layer's weights and biases, and what belongs to none."""
    layers = {found: int(m[1]) for found in available if (m := OF_A_LAYER.match(found))}
    return layers.get(name) in (None, max(layers.values()))


def _density_groups(fitted, predictor, values) -> dict[str, xr.Dataset]:
    densities = [
        predictor.log_densities(fitted.fits[i], fitted.data, drawn) for i, drawn in values.items()
    ]
    log_likelihood, log_p, log_q = (np.stack(d) for d in zip(*densities, strict=True))
    coords = _chain_coords(values)
    return {
        "log_likelihood": xr.Dataset(
            {"y": (("chain", "draw", "observation"), log_likelihood.astype("f4"))}, coords
        ),
        "sample_stats": xr.Dataset(
            {"log_p": (("chain", "draw"), log_p), "log_q": (("chain", "draw"), log_q)}, coords
        ),
    }


def _posterior_predictive(fitted, predictor, values) -> xr.Dataset:
    """Targets drawn at the training rows, one for each posterior draw."""
    targets = []
    for i, drawn in values.items():
        rng = np.random.default_rng([*fitted.fits[i].streams.draws, 1])
        targets.append(predictor.observations(fitted.data, drawn, rng))
    return xr.Dataset(
        {"y": (("chain", "draw", "observation"), np.stack(targets))}, _chain_coords(values)
    )


def _fit_group(fitted: FittedCell, diagnosis: Diagnosis | None) -> xr.Dataset:
    """ELBO histories and looks at the fit; a restart that stopped early ends in not-a-number."""
    longest = max((fit.history.step for fit in fitted.fits), key=len)
    arrays = {
        name: np.full((len(fitted.fits), len(longest)), np.nan)
        for name in ("elbo", "log_likelihood", "kl")
    }
    for chain, fit in enumerate(fitted.fits):
        for name, array in arrays.items():
            own = getattr(fit.history, name)
            array[chain, : len(own)] = own
    attrs = {
        "status": json.dumps([fit.status for fit in fitted.fits]),
        "best": -1 if fitted.best is None else fitted.best,
        "kl_forms": json.dumps(dict(fitted.fits[0].kl_forms)),
    }
    rates = [fit.learning_rate for fit in fitted.fits]
    return xr.Dataset(
        {name: (("chain", "window"), array) for name, array in arrays.items()}
        | {"step": (("window",), longest), "learning_rate": (("chain",), rates)}
        | {"weight": (("chain",), np.asarray(fitted.weights))}
        | ({} if diagnosis is None else diagnosis_arrays(diagnosis)),
        coords={"chain": range(len(fitted.fits))},
        attrs=attrs,
    )


def _guide_group(fitted: FittedCell, predictor: AnyPredictor) -> xr.Dataset:
    """Natural parameters and random streams, from which every draw can be had again.

    ``scale`` is the standard deviation of every parameter, whatever the guide.
    """
    slots = [[s.name, s.start, list(s.shape)] for s in predictor.flat.slots]
    stacked = {
        name: np.stack([fit.natural[name] for fit in fitted.fits]).astype("f4")
        for name in predictor.guide.natural_shapes
    }
    stacked["scale"] = np.stack([fit.scale for fit in fitted.fits]).astype("f4")
    streams = np.stack([fit.streams.draws for fit in fitted.fits])
    return xr.Dataset(
        {
            name: (("chain", "parameter", f"{name}_column")[: array.ndim], array)
            for name, array in stacked.items()
        }
        | {"draw_stream": (("chain", "word"), streams)},
        coords={"chain": range(len(fitted.fits))},
        attrs={"slots": json.dumps(slots)},
    )


def _map_group(evaluation: Evaluation, dataset: Dataset) -> xr.Dataset:
    plane = evaluation.map
    arrays = moment_arrays(plane.moments, ("x1", "x2"), (len(plane.x1), len(plane.x2)))
    coords = {"x1": plane.x1, "x2": plane.x2, "output": list(dataset.classes)}
    return xr.Dataset(arrays, coords=coords)


def _constant_data(dataset: Dataset, keeps_rows: bool) -> xr.Dataset:
    attrs = {"fingerprint": dataset.fingerprint, "source": dataset.source}
    arrays = {
        "standardisation_mean": ("feature", dataset.standardisation.mean),
        "standardisation_sd": ("feature", dataset.standardisation.sd),
    }
    if keeps_rows:
        arrays["x"] = (("observation", "feature"), dataset.x_train.astype("f4"))
    return xr.Dataset(arrays, attrs=attrs)
