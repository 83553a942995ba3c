"""A fitted cell as an xarray tree that ArviZ reads.

``posterior`` holds the draws that the cell predicts with: one chain of draws of its best restart,
or of the mixture of its restarts, each by its weight. ``posterior_predictive``,
``log_likelihood`` and ``sample_stats`` belong to these draws. Where a cell has several restarts,
``restarts`` holds the same variables of each of them, whatever its weight; ``fit`` holds the
history and ``guide`` the parameters of each. The attribute ``draws_of`` of groups of draws
describes their distribution.

Small networks are kept in full. Of large ones, the posterior of the last layer and of all
scales is kept; the guide and its PRNG keys are, so that everything else can be drawn
again (`pmbnn.results.restore`), and the training rows are named by fingerprint only.

Of a sampler, ``posterior`` has draws of every chain, and ``draws`` the unconstrained vectors that
the cell predicts with, from which `pmbnn.results.restore` predicts again: of large networks fewer
draws, and by name those of the last layer and of all scales.

Several targets have a dim ``target_name`` in all groups but ``log_likelihood``, which is of rows:
leave-one-out leaves out a row with all its targets.

Where targets were standardised, groups of the model are in standardised units and predictions in
original ones, as the attribute ``target_units`` of a group says; ``constant_data`` has the map
between the two.
"""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.data.arrays import Dataset
from pmbnn.experiment.cost import is_large
from pmbnn.fitting.evaluation import Evaluation
from pmbnn.fitting.inferred import InferredCell
from pmbnn.fitting.prediction_groups import prediction_groups, target_axes
from pmbnn.fitting.sampling import (
    LARGE_TRACE_DRAWS,
    kept_values,
    trace_numbers,
    trace_values,
)
from pmbnn.fitting.snapshots import Diagnosis
from pmbnn.models.build import LAYER_PARAMETER
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.prediction.datatree import history_of
from pmbnn.prediction.draws import DrawSource, log_density_of_mixture
from pmbnn.prediction.posterior import source_of_draws
from pmbnn.prediction.predictor import Predictor
from pmbnn.results.reading import PHOTOGRAPHS

TARGET_UNITS = dict.fromkeys(
    (
        "posterior",
        "restarts",
        "draws",
        "posterior_predictive",
        "log_likelihood",
        "sample_stats",
        "observed_data",
    ),
    "standardised",
)
"""Units of targets in groups that belong to the model, where a data set standardises them."""


def build_trace(
    fitted: InferredCell,
    evaluation: Evaluation,
    dataset: Dataset,
    predictor: Predictor,
    model: pm.Model,
) -> xr.DataTree:
    """Trace of a cell; `model` gives the dims and coordinates of its variables."""
    large, spec = is_large(fitted.cell), fitted.cell.dataset
    # A figure of curves shows the rows, which are few.
    keeps_rows = not large or bool(evaluation.curves)
    if fitted.samples is not None:
        groups = _chain_groups(fitted, predictor, model, large)
    else:
        groups = _guide_groups(fitted, predictor, model, large)
        groups["fit"] = _fit_group(fitted, evaluation.diagnosis)
        groups["guide"] = _parameter_group(fitted, predictor)
    groups["constant_data"] = _constant_data(dataset, keeps_rows, spec.is_user_data)
    if keeps_rows:
        targets = (target_axes("observation", dataset), dataset.y_train)
        groups["observed_data"] = xr.Dataset({"y": targets})
    predictions = prediction_groups(evaluation.test, fitted, evaluation, dataset, predictor)
    for group in predictions.values():
        group.attrs.setdefault("draws_of", fitted.draws_of)
        if spec.image_shape is not None and not spec.has_bright_foreground:
            group.attrs[PHOTOGRAPHS] = 1
    groups |= predictions
    for name in ("observed_data", "constant_data") if keeps_rows else ():
        groups[name] = groups[name].assign_coords(_row_coords(groups[name], model))
    for name, group in groups.items():
        if TARGET_NAME in group.dims:
            groups[name] = group.assign_coords({TARGET_NAME: list(dataset.target_names)})
    if not dataset.target_standardisation.is_identity:
        for name, units in TARGET_UNITS.items() | dict.fromkeys(predictions, "original").items():
            if name in groups:
                groups[name].attrs["target_units"] = units
    return xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})


# Draws, whether of guides or of chains


def _guide_groups(
    fitted: InferredCell, predictor: Predictor, model: pm.Model, large: bool
) -> dict[str, xr.Dataset]:
    """Draws of the mixture of guides as one chain, and those of each restart."""
    predict, sources = fitted.cell.predict, fitted.sources
    draws = max(predict.trace_draws, LARGE_TRACE_DRAWS) if large else predict.trace_draws
    restart_of_draw = source_of_draws(sources, fitted.weights, fitted.best, draws)

    def mixed(by_restart: Mapping[int, np.ndarray]) -> np.ndarray:
        """Draws of the mixture, ``(1, draw, ...)``: draw ``k`` is the ``k``-th of its restart."""
        return np.stack([by_restart[i][k] for k, i in enumerate(restart_of_draw)])[None]

    named = {i: _named(fitted, predictor, source, draws, large) for i, source in sources.items()}
    names = list(named[fitted.best])
    by_name = {name: {i: arrays[name] for i, arrays in named.items()} for name in names}
    posterior = {name: mixed(arrays) for name, arrays in by_name.items()}
    values = None
    if not large or predict.log_likelihood:
        values = mixed({i: predictor.values(source, draws) for i, source in sources.items()})
    rng = np.random.default_rng([*sources[fitted.best].draw_key, 1])
    coords = {"chain": [0], "draw": range(draws)}
    groups = _draw_groups(fitted, predictor, model, posterior, values, {}, coords, rng, large)
    if len(fitted.fits) > 1:
        arrays = {name: np.stack([*by_restart.values()]) for name, by_restart in by_name.items()}
        groups["restarts"] = _variables(arrays, "restart", model).assign_coords(
            restart=list(named), draw=range(draws)
        )
        groups["restarts"].attrs["draws_of"] = "the guide of each restart that did not diverge"
    return groups


def _named(
    fitted: InferredCell, predictor: Predictor, source: DrawSource, draws: int, large: bool
) -> dict[str, np.ndarray]:
    """Variables by name at the first draws of a source, a few of which are in memory at a time."""
    blocks = [
        _kept_by_name(predictor.posterior(fitted.data, block), large)
        for block in predictor.blocks(source, draws)
    ]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def _kept_by_name(named: dict[str, np.ndarray], large: bool) -> dict[str, np.ndarray]:
    """The variables that are kept: of large networks the last layer's, and those of no layer."""
    layers = {name: int(m[1]) for name in named if (m := LAYER_PARAMETER.match(name))}
    last = max(layers.values(), default=None)
    return {n: array for n, array in named.items() if not large or layers.get(n, last) == last}


def _chain_groups(
    sampled: InferredCell, predictor: Predictor, model: pm.Model, large: bool
) -> dict[str, xr.Dataset]:
    """Draws of each chain, and the unconstrained vectors that the cell predicts with."""
    cell, samples, values = sampled.cell, sampled.samples, trace_values(sampled)
    numbers = trace_numbers(sampled)
    named = predictor.posterior(sampled.data, values.reshape(-1, values.shape[-1]))
    posterior = {
        name: array.reshape(*values.shape[:2], *array.shape[1:])
        for name, array in _kept_by_name(named, large).items()
    }
    statistics = {name: array[:, numbers] for name, array in samples.chains.statistics.items()}
    coords = {"chain": range(len(values)), "draw": numbers}
    rng = np.random.default_rng(cell.inference.seed)
    groups = _draw_groups(
        sampled, predictor, model, posterior, values, statistics, coords, rng, large
    )
    groups["posterior"].attrs |= {"status": samples.status, "reason": samples.reason}
    kept = values if large else kept_values(cell, samples)
    groups["draws"] = xr.Dataset(
        {"values": (("chain", "draw", "parameter"), kept.astype("f4"))},
        attrs={"slots": _slots(predictor)},
    )
    return groups


def _draw_groups(
    inferred: InferredCell,
    predictor: Predictor,
    model: pm.Model,
    posterior: Mapping[str, np.ndarray],
    values: np.ndarray | None,
    statistics: Mapping[str, np.ndarray],
    coords: Mapping[str, Sequence[int]],
    rng: np.random.Generator,
    large: bool,
) -> dict[str, xr.Dataset]:
    """Groups that belong to draws ``(chain, draw)``.

    Parameters
    ----------
    posterior
        Variables by name.
    values
        Unconstrained vectors; None of guides of large networks whose densities are not kept.
    statistics
        Statistics of chains; those of guides are their densities.
    rng
        Generator of the targets of the posterior predictive.
    """
    axes, groups = ("chain", "draw", "observation", TARGET_NAME), {}
    groups["posterior"] = _variables(posterior, "chain", model)
    if values is not None:
        flat, shape = values.reshape(-1, values.shape[-1]), values.shape[:2]
    if not large or inferred.cell.predict.log_likelihood:
        log_likelihood, log_p = predictor.log_joint(inferred.data, flat)
        by_row = log_likelihood.reshape(*shape, -1).astype("f4")
        groups["log_likelihood"] = xr.Dataset({"y": (axes[:3], by_row)})
        if inferred.samples is None:
            sources, weights = inferred.sources.values(), inferred.weights.values()
            log_q = log_density_of_mixture(sources, weights, flat)
            statistics = {"log_p": log_p.reshape(shape), "log_q": log_q.reshape(shape)}
    if statistics:
        arrays = {name: (axes[:2], array) for name, array in statistics.items()}
        groups["sample_stats"] = xr.Dataset(arrays)
    if not large:
        targets = predictor.observations(inferred.data, flat, rng)
        targets = targets.reshape(*shape, *targets.shape[1:])
        groups["posterior_predictive"] = xr.Dataset({"y": (axes[: targets.ndim], targets)})
    attrs = {"draws_of": inferred.draws_of}
    return {name: group.assign_coords(coords).assign_attrs(attrs) for name, group in groups.items()}


def _variables(arrays: Mapping[str, np.ndarray], first: str, model: pm.Model) -> xr.Dataset:
    """Variables of a model at draws ``(first, draw)``, with the model's dims and labels."""
    dims = {name: model.named_vars_to_dims.get(name, ()) for name in arrays}
    used = {dim for name in arrays for dim in dims[name]}
    return xr.Dataset(
        {n: ((first, "draw", *dims[n]), array.astype("f4")) for n, array in arrays.items()},
        {name: list(labels) for name, labels in model.coords.items() if name in used},
    )


def _slots(predictor: Predictor) -> str:
    """Where in the unconstrained vector each variable lies, as JSON."""
    return json.dumps([[s.name, s.start, list(s.shape)] for s in predictor.flat.layout.slots])


# Fits, guides and data


def _fit_group(fitted: InferredCell, diagnosis: Diagnosis | None) -> xr.Dataset:
    """ELBO histories and snapshots; a restart that stopped early ends in not-a-number."""
    attrs = {
        "status": json.dumps([fit.status for fit in fitted.fits]),
        "best": fitted.best,
        "kl_forms": json.dumps(dict(fitted.fits[0].kl_forms)),
    }
    arrays = {
        "learning_rate": (("restart",), [fit.learning_rate for fit in fitted.fits]),
        "weight": (("restart",), [fitted.weights.get(i, 0.0) for i in range(len(fitted.fits))]),
    }
    arrays |= {} if diagnosis is None else dict(diagnosis.fit.variables)
    return history_of(fitted.fits).assign(arrays).assign_attrs(attrs)


def _parameter_group(fitted: InferredCell, predictor: Predictor) -> xr.Dataset:
    """Constrained parameters of guides and PRNG keys, from which every draw can be made again.

    ``scale`` is the standard deviation of every parameter, whatever the guide.
    """
    names = fitted.sources[fitted.best].parameters
    arrays = {name: np.stack([fit.constrained[name] for fit in fitted.fits]) for name in names}
    arrays["scale"] = np.stack([fit.scale for fit in fitted.fits])
    keys = np.stack([fit.keys.draws for fit in fitted.fits])
    return xr.Dataset(
        {
            name: (("restart", "parameter", f"{name}_column")[: array.ndim], array.astype("f4"))
            for name, array in arrays.items()
        }
        | {"draw_key": (("restart", "word"), keys)},
        coords={"restart": range(len(fitted.fits))},
        attrs={"slots": _slots(predictor)},
    )


def _row_coords(group: xr.Dataset, model: pm.Model) -> dict[str, list]:
    """Labels of rows and columns as ``pm.sample`` has them: numbers of rows, names of columns."""
    coords = {"observation": range(group.sizes.get("observation", 0))}
    coords["feature"] = model.coords.get("feature") or ()
    return {
        dim: list(labels) for dim, labels in coords.items() if len(labels) == group.sizes.get(dim)
    }


def _constant_data(dataset: Dataset, keeps_rows: bool, is_user_data: bool) -> xr.Dataset:
    attrs = {"fingerprint": dataset.fingerprint, "source": dataset.source}
    arrays = {
        "standardisation_mean": ("feature", dataset.standardisation.mean),
        "standardisation_sd": ("feature", dataset.standardisation.sd),
    }
    if is_user_data:
        # So that a cell can be restored where the file is no longer.
        attrs["input_shape"] = json.dumps(dataset.input_shape)
    if not dataset.target_standardisation.is_identity:
        axis = TARGET_NAME if dataset.target_names else "target"
        arrays["target_mean"] = (axis, dataset.target_standardisation.mean)
        arrays["target_sd"] = (axis, dataset.target_standardisation.sd)
    if keeps_rows:
        arrays["x"] = (("observation", "feature"), dataset.x_train.astype("f4"))
    return xr.Dataset(arrays, attrs=attrs)
