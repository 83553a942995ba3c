"""Groups of a trace that hold predictions, and the images that they are of.

``test_predictions`` says in its attribute ``predictive`` of what kind they are. Of numbers, there
are ``curve_1``, ... on the lines that curves are drawn on beside it, moments over the plane in
``predictions`` where there are two inputs, and ``chain_mean`` and ``chain_sd``, moments of the
network's output in each chain of a sampler alone. Of classes, it and, where rows were set aside,
``validation_predictions`` hold moments and labels of all their rows, and ``chain_probability`` what
each chain of a sampler says alone; of images, each keeps the pixels of a few: ``image``
``(image, row, column)`` as bytes, colours on a last axis ``channel``, and ``image_index``
``(image,)``, the row that each is.
"""

import json
from collections.abc import Sequence
from dataclasses import fields
from functools import singledispatch

import numpy as np
import xarray as xr

from pmbnn.data.arrays import Dataset, Line
from pmbnn.fitting.evaluation import Evaluation, Plane
from pmbnn.fitting.image_evaluation import OodPrediction, pixels
from pmbnn.fitting.inferred import InferredCell, single_draws_of_mixture
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.density import LEVEL, Density, Moments
from pmbnn.prediction.predictive import Predictive
from pmbnn.prediction.predictor import Predictor

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
    return {
        f"chain_{name}": (("chain", *axes), np.stack([getattr(c, of) for c in chains]).astype("f4"))
        for name, of in (("mean", "mean"), ("sd", "epistemic_sd"))
    }


def density_arrays(density: Density, *axes: str) -> dict:
    """A predicted density as variables over `axes`, in the targets' units."""
    by_row = ("mean", "epistemic_sd", "total_sd")
    return {name: (axes, getattr(density, name).astype("f4")) for name in by_row} | {
        name: (("bound", *axes), getattr(density, name).astype("f4"))
        for name in ("output_interval", "total_interval")
    }


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
        name: (("x1", *axes), array.reshape(*shape, *array.shape[1:]).astype("f4"))
        for name, array in moments.items()
    }
    coords = {"x1": plane.x1, "x2": plane.x2}
    return xr.Dataset(arrays, coords, {"features": json.dumps(dataset.features)})
