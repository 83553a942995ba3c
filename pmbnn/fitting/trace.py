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
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import singledispatch

import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.data.arrays import Dataset, Line
from pmbnn.experiment.cost import is_large
from pmbnn.fitting.evaluation import Evaluation, Plane
from pmbnn.fitting.fit import InferredCell, single_draws_of_mixture
from pmbnn.fitting.image_evaluation import OodPrediction, pixels
from pmbnn.fitting.sampling import (
    LARGE_TRACE_DRAWS,
    kept_values,
    trace_numbers,
    trace_values,
)
from pmbnn.fitting.snapshots import Diagnosis
from pmbnn.models.build import LAYER_PARAMETER
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.prediction.class_probabilities import ClassProbabilities, Predictive
from pmbnn.prediction.datatree import history_of
from pmbnn.prediction.density import LEVEL, Density, Moments
from pmbnn.prediction.draws import DrawSource, log_density_of_mixture
from pmbnn.prediction.metrics import log_probability
from pmbnn.prediction.posterior import source_of_draws
from pmbnn.prediction.predictor import Predictor
from pmbnn.results.reading import LOG_SCORE, PHOTOGRAPHS

# Groups of a trace that hold predictions, and the images that they are of
#
# ``test_predictions`` says in its attribute ``predictive`` of what kind they are. Its ``log_score``
# is the log-probability or log-density of each row's target, in nats and original units, of several
# targets their joint one: the mean is minus the result ``nll``. Of numbers, there
# are ``curve_1``, ... on the lines that curves are drawn on beside it, moments over the plane in
# ``predictions`` where there are two inputs, and ``chain_mean`` and ``chain_sd``, moments of the
# network's output in each chain of a sampler alone. Of classes, it and, where rows were set aside,
# ``validation_predictions`` hold moments and labels of all their rows, and ``chain_probability``
# what
# each chain of a sampler says alone; of images, each keeps the pixels of a few: ``image``
# ``(image, row, column)`` as bytes, colours on a last axis ``channel``, and ``image_index``
# ``(image,)``, the row that each is.


UNCERTAIN, MISTAKEN, UNSURE, FIRST = 20, 24, 24, 4
"""Images kept with their pixels: the most uncertain ones, mistakes with the lowest expected
error rate (of equal ones the most confident), those of lowest confidence, and the first ones of
each class. Of validation rows, mistakes and those of lowest confidence only."""

EXAMPLES, EXAMPLE_DRAWS = 16, 50
"""Images of a set whose single draws are kept, and how many of those."""

BOUNDS = ["low", "high"]


@singledispatch
def prediction_groups(
    test: Predictive,
    fitted: InferredCell,
    evaluation: Evaluation,
    dataset: Dataset,
    predictor: Predictor,
) -> dict[str, xr.Dataset]:
    """Groups with the predictions of a cell, ``test_predictions`` among them.

    Each kind of prediction registers its own function.
    """
    raise TypeError(f"There are no groups of a trace for a {type(test).__name__}.")


@prediction_groups.register
def _class_groups(test: ClassProbabilities, fitted, evaluation, dataset, predictor):
    """Predictions of test rows, over the map, and of images."""
    groups = {"test_predictions": predictions_of_test(fitted, evaluation, dataset, predictor)}
    if evaluation.map is not None:
        groups["predictions"] = _map_group(evaluation, dataset)
    if evaluation.images is not None:
        groups |= image_groups(fitted, evaluation, dataset, predictor)
    if evaluation.diagnosis is not None and evaluation.diagnosis.examples is not None:
        groups["snapshot_examples"] = evaluation.diagnosis.examples
    return groups


@prediction_groups.register
def _density_groups(test: Density, fitted, evaluation, dataset, predictor):
    """Predictions of test rows, on the lines that curves are drawn on, and over a plane.

    Inputs and targets are in original units; on a line through several features inputs are its
    positions ``x`` times its ``direction``. ``output_interval`` is central in the network's output,
    ``total_interval`` in what is observed, noise included; their probability is the attribute
    ``level``. ``pit`` is the predicted probability of less than the target. Several targets are
    on a last axis, ``target_name``.
    """
    axis = "test_observation"
    axes = target_axes(axis, dataset)
    raw = dataset.standardisation.undo(dataset.x_test)
    arrays = density_arrays(test, *axes) | _moments_of_chains(evaluation.of_chains, *axes)
    arrays["pit"] = (axes, test.cdf.astype("f4"))
    arrays[LOG_SCORE] = (axis, test.log_density.astype("f4"))
    arrays |= {"x": ((axis, "feature"), raw), "target": (axes, dataset.raw_targets(dataset.y_test))}
    coords, attrs = {"bound": BOUNDS}, {"level": LEVEL}
    of_test = attrs | {"predictive": test.key}
    groups = {"test_predictions": xr.Dataset(arrays, coords, of_test)}
    for number, curve in enumerate(evaluation.curves, 1):
        axes = target_axes("point", dataset)
        arrays = density_arrays(curve.prediction, *axes)
        arrays |= _moments_of_chains(curve.of_chains, *axes) | line_arrays(curve.line)
        of_line = attrs | line_attributes(curve.line)
        groups[f"curve_{number}"] = xr.Dataset(arrays, coords, of_line)
    if evaluation.map is not None:
        groups["predictions"] = _surface_group(evaluation.map, dataset)
    return groups


def target_axes(axis: str, dataset: Dataset) -> tuple[str, ...]:
    """`axis`, and the axis of several targets if the data set has them."""
    return (axis, TARGET_NAME) if dataset.target_names else (axis,)


def line_arrays(line: Line) -> dict:
    """Positions of a line, and the truth there; a position of one feature is that feature."""
    arrays = {"x": ("point", line.position)}
    if line.truth is not None:
        arrays["truth"] = "point", line.truth
    if len(line.direction) > 1:
        arrays["direction"] = "feature", line.direction
    return arrays


def line_attributes(line: Line) -> dict:
    """Name of the positions on a line, and the position of its gap, if it has one."""
    return {"position": line.name} | ({} if line.gap is None else {"gap": line.gap})


def _moments_of_chains(chains: Sequence[Density], *axes: str) -> dict:
    """Mean and standard deviation of the output by each chain alone, where there are chains."""
    if not chains:
        return {}
    unit = np.stack([c.total_sd for c in chains])
    return {
        f"chain_{name}": (
            ("chain", *axes),
            _stored(np.stack([getattr(c, of) for c in chains]), unit),
        )
        for name, of in (("mean", "mean"), ("sd", "epistemic_sd"))
    }


def density_arrays(density: Density, *axes: str) -> dict:
    """A predicted density as variables over `axes`, in the targets' units."""
    by_row, unit = ("mean", "epistemic_sd", "total_sd"), density.total_sd
    return {name: (axes, _stored(getattr(density, name), unit)) for name in by_row} | {
        name: (("bound", *axes), _stored(getattr(density, name), unit))
        for name in ("output_interval", "total_interval")
    }


def _stored(values: np.ndarray, unit: np.ndarray) -> np.ndarray:
    """Values in single precision, unless its last digit is more than a thousandth of a unit.

    Such are days of a calendar that counts millions of them, with a standard deviation of hours.
    """
    single = values.astype("f4")
    return single if (np.spacing(np.abs(single)) <= 1e-3 * unit).all() else values


def probability_arrays(
    predictive: ClassProbabilities, axes: tuple[str, ...], shape: tuple[int, ...]
) -> dict:
    """Predicted class probabilities as variables over `axes`, nats."""
    classes = predictive.mean.shape[1]
    by_class = {"probability": predictive.mean, "sd": predictive.sd, "votes": predictive.votes}
    by_row = {
        "entropy": predictive.entropy,
        "mutual_information": predictive.mutual_information,
        "error_rate": predictive.expected_error_rate,
    }
    return {
        name: ((*axes, "output"), array.reshape(*shape, classes).astype("f4"))
        for name, array in by_class.items()
    } | {name: (axes, array.reshape(shape).astype("f4")) for name, array in by_row.items()}


def _of_chains(
    chains: Sequence[ClassProbabilities], axes: tuple[str, ...], shape: tuple[int, ...]
) -> dict:
    """Class probabilities by each chain alone, where there are chains."""
    if not chains:
        return {}
    probability = np.stack([chain.mean.reshape(*shape, -1) for chain in chains])
    return {"chain_probability": (("chain", *axes, "output"), probability.astype("f4"))}


def predictions_of_test(
    fitted: InferredCell, evaluation: Evaluation, dataset: Dataset, predictor: Predictor
) -> xr.Dataset:
    """Predictions of the test rows, with the points or some of the images."""
    axes, spec = ("test_observation",), fitted.cell.dataset
    arrays = probability_arrays(evaluation.test, axes, (len(dataset.y_test),))
    arrays |= _of_chains(evaluation.of_chains, axes, (len(dataset.y_test),))
    arrays["label"] = (axes, dataset.y_test)
    probability = np.asarray(evaluation.test.mean, np.float64)
    log_score = log_probability(probability, dataset.y_test)
    arrays[LOG_SCORE] = (axes, log_score.astype("f4"))
    if spec.is_planar:
        raw = dataset.standardisation.undo(dataset.x_test)
        arrays["x"] = ((*axes, "feature"), raw.astype("f4"))
    if spec.image_shape is not None:
        kept = kept_images(evaluation.test, dataset.y_test)
        arrays |= kept_pixels(dataset, dataset.x_test, kept)
        half = EXAMPLES // 2
        uncertain = np.argsort(-evaluation.test.predicted_sd, kind="stable")
        examples = np.array(list(dict.fromkeys([*range(half), *uncertain[:half]])))
        examples = examples[examples < len(dataset.y_test)]
        raw = dataset.standardisation.undo(dataset.x_test[examples])
        arrays |= _examples(fitted, dataset, predictor, examples, raw)
    coords, attrs = {"output": list(dataset.classes)}, {"predictive": evaluation.test.key}
    return xr.Dataset(arrays, coords, attrs)


def kept_images(test: ClassProbabilities, label: np.ndarray) -> np.ndarray:
    """Numbers of the test images whose pixels are kept, ascending."""
    chosen = [
        np.argsort(-test.predicted_sd, kind="stable")[:UNCERTAIN],
        hard_images(test, label),
        *(np.flatnonzero(label == i)[:FIRST] for i in range(test.mean.shape[1])),
    ]
    return np.unique(np.concatenate(chosen))


def hard_images(predictive: ClassProbabilities, label: np.ndarray) -> np.ndarray:
    """Numbers of the mistakes and of the least confident images that are kept, ascending."""
    mistaken, highest = np.flatnonzero(predictive.predicted != label), predictive.mean.max(axis=1)
    by_certainty = np.lexsort((-highest[mistaken], predictive.expected_error_rate[mistaken]))
    unsure = np.argsort(highest, kind="stable")[:UNSURE]
    return np.union1d(mistaken[by_certainty][:MISTAKEN], unsure)


def kept_pixels(dataset: Dataset, x: np.ndarray, numbers: np.ndarray) -> dict:
    """Variables that hold the images of these numbers among standardised rows `x`."""
    raw = dataset.standardisation.undo(x[numbers])
    return {
        "image_index": (("image",), numbers),
        "image": pixels(raw, dataset.input_shape, "image"),
    }


def image_groups(
    fitted: InferredCell, evaluation: Evaluation, dataset: Dataset, predictor: Predictor
) -> dict[str, xr.Dataset]:
    """Predictions of validation rows and of each out-of-distribution set, by group."""
    coords, groups = {"output": list(dataset.classes)}, {}
    images = evaluation.images
    if images.validation is not None:
        axes, label = ("validation_observation",), dataset.y_validation
        arrays = probability_arrays(images.validation, axes, (len(label),))
        arrays["label"] = (axes, label)
        kept = hard_images(images.validation, label)
        arrays |= kept_pixels(dataset, dataset.x_validation, kept)
        groups["validation_predictions"] = xr.Dataset(arrays, coords)
    for name, of_set in images.ood.items():
        arrays = probability_arrays(of_set.prediction, ("ood_observation",), (len(of_set.images),))
        arrays["label"] = (("ood_observation",), np.array(of_set.images.labels, dtype=object))
        chosen = _one_of_each(of_set)
        arrays |= _examples(fitted, dataset, predictor, chosen, of_set.images.x[chosen])
        attrs = {"source": of_set.images.source}
        groups[f"ood_{name}"] = xr.Dataset(arrays, coords, attrs)
    return groups


def _one_of_each(of_set: OodPrediction) -> np.ndarray:
    """Numbers of the first image of each label, and of more up to the number of examples."""
    labels = of_set.images.labels
    first = list({label: i for i, label in reversed(list(enumerate(labels)))}.values())
    more = [i for i in range(len(labels)) if i not in first]
    return np.array(sorted(first + more[: max(0, EXAMPLES - len(first))]))


def _examples(fitted, dataset: Dataset, predictor: Predictor, numbers, raw) -> dict:
    """Raw images, and their class probabilities at single draws of the cell."""
    x = dataset.standardisation(raw).astype(np.float32)
    draws = single_draws_of_mixture(fitted, predictor, x, EXAMPLE_DRAWS)
    return {
        "example_index": (("example",), numbers),
        "example_image": pixels(raw, dataset.input_shape, "example"),
        "example_probability": (("draw", "example", "output"), draws["probability"].astype("f4")),
    }


def _map_group(evaluation: Evaluation, dataset: Dataset) -> xr.Dataset:
    plane = evaluation.map
    axes, shape = ("x1", "x2"), (len(plane.x1), len(plane.x2))
    arrays = probability_arrays(plane.prediction, axes, shape)
    arrays |= _of_chains(plane.of_chains, axes, shape)
    coords = {"x1": plane.x1, "x2": plane.x2, "output": list(dataset.classes)}
    return xr.Dataset(arrays, coords, {"features": json.dumps(dataset.features)})


def _surface_group(plane: Plane, dataset: Dataset) -> xr.Dataset:
    """Moments of numbers over the plane."""
    axes, shape = target_axes("x2", dataset), (len(plane.x1), len(plane.x2))
    moments = {field.name: getattr(plane.prediction, field.name) for field in fields(Moments)}
    arrays = {
        name: (
            ("x1", *axes),
            _stored(array, plane.prediction.total_sd).reshape(*shape, *array.shape[1:]),
        )
        for name, array in moments.items()
    }
    coords = {"x1": plane.x1, "x2": plane.x2}
    return xr.Dataset(arrays, coords, {"features": json.dumps(dataset.features)})


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
    linear = None
    if fitted.cell.is_laplace and values is not None:
        by_row = {
            i: predictor.row_log_likelihood(s, fitted.data, draws) for i, s in sources.items()
        }
        parameters = single_draws_of_mixture(fitted, predictor, fitted.data["x"], draws)
        linear = mixed(by_row), predictor.likelihood.sample(parameters, rng)
    groups = _draw_groups(
        fitted, predictor, model, posterior, values, {}, coords, rng, large, linear
    )
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
    weight = [sampled.weights.get(i, math.nan) for i in range(len(kept))]
    draws = {"values": (("chain", "draw", "parameter"), kept.astype("f4"))}
    groups["draws"] = xr.Dataset(
        draws | {"weight": ("chain", weight)},
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
    linear: tuple[np.ndarray, np.ndarray] | None = None,
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
    linear
        Log-likelihoods of rows, and targets of the posterior predictive, by a linear network; None
        where draws predict by the network itself.
    """
    axes, groups = ("chain", "draw", "observation", TARGET_NAME), {}
    groups["posterior"] = _variables(posterior, "chain", model)
    if values is not None:
        flat, shape = values.reshape(-1, values.shape[-1]), values.shape[:2]
    if not large or inferred.cell.predict.log_likelihood:
        log_likelihood, log_p = predictor.log_joint(inferred.data, flat)
        if linear is not None:
            log_likelihood = linear[0]
        by_row = log_likelihood.reshape(*shape, -1).astype("f4")
        groups["log_likelihood"] = xr.Dataset({"y": (axes[:3], by_row)})
        if inferred.samples is None and linear is None:
            sources, weights = inferred.sources.values(), inferred.weights.values()
            log_q = log_density_of_mixture(sources, weights, flat)
            statistics = {"log_p": log_p.reshape(shape), "log_q": log_q.reshape(shape)}
    if statistics:
        arrays = {name: (axes[:2], array) for name, array in statistics.items()}
        groups["sample_stats"] = xr.Dataset(arrays)
    if not large:
        targets = predictor.observations(inferred.data, flat, rng) if linear is None else linear[1]
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
    if dataset.categories:
        arrays["categories"] = (("one_hot", "column_and_category"), np.array(dataset.categories))
    if dataset.fill is not None:
        arrays["fill"] = "feature", dataset.fill
    if not dataset.target_standardisation.is_identity:
        axis = TARGET_NAME if dataset.target_names else "target"
        arrays["target_mean"] = (axis, dataset.target_standardisation.mean)
        arrays["target_sd"] = (axis, dataset.target_standardisation.sd)
    if keeps_rows:
        arrays["x"] = (("observation", "feature"), dataset.x_train.astype("f4"))
    return xr.Dataset(arrays, attrs=attrs)
