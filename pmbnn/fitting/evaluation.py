"""What a fitted cell predicts, and how good that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, singledispatch
from typing import Any

import numpy as np

from pmbnn.data import Synthetic
from pmbnn.data.arrays import Dataset, Line
from pmbnn.fitting.image_evaluation import ImageEvaluation, evaluate_images
from pmbnn.fitting.inferred import InferredCell, predict_mixture
from pmbnn.fitting.snapshots import Diagnosis, diagnose
from pmbnn.prediction import metrics
from pmbnn.prediction.chain_errors import (
    jackknife_error,
    nll_without_each,
    probabilities_without_each,
)
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.density import Density, Moments, predict_moments
from pmbnn.prediction.metrics import metrics_of
from pmbnn.prediction.predictive import Predictive, Weights
from pmbnn.prediction.predictor import Predictor
from pmbnn.prediction.settings import Map
from pmbnn.spec import METRICS

FRESH_SEED = 2**31
"""Fresh points have seeds of their own, far from those of the data sets in a file."""

FRESH_SCORES = {"excess_error": metrics.excess_error, "excess_nll": metrics.excess_nll}
"""What predictions at fresh points are judged by, against the true class probabilities there."""


@dataclass(frozen=True)
class MapPrediction:
    """Class probabilities over the plane: raw coordinates, and rows with ``x1`` slowest.

    ``of_chains`` are those by each chain alone, where there are chains.
    """

    x1: np.ndarray
    x2: np.ndarray
    prediction: ClassProbabilities
    of_chains: tuple[ClassProbabilities, ...] = ()


@dataclass(frozen=True)
class Surface:
    """Numbers over the plane: raw coordinates, and rows with ``x1`` slowest."""

    x1: np.ndarray
    x2: np.ndarray
    prediction: Moments


@dataclass(frozen=True)
class Curve:
    """A line through the inputs and what is predicted there.

    ``of_chains`` are predictions by each chain alone, where there are chains.
    """

    line: Line
    prediction: Density
    of_chains: tuple[Density, ...] = ()


@dataclass(frozen=True)
class Evaluation:
    """Numbers by name, and the predictions behind them.

    Attributes
    ----------
    results
        Metrics and the like.
    test
        Prediction of the test rows, of the kind that the likelihood makes.
    of_chains
        The same by each chain alone, where there are chains.
    map
        Of classes of points in a plane.
    images
        Of images.
    diagnosis
        Where the settings name steps to keep snapshots of.
    curves
        On the lines of the data set; of ranges, the first is that of its rows.
    surface
        Of numbers at points in a plane.
    """

    results: Mapping[str, float]
    test: Predictive
    of_chains: tuple[Predictive, ...] = ()
    map: MapPrediction | None = None
    images: ImageEvaluation | None = None
    diagnosis: Diagnosis | None = None
    curves: tuple[Curve, ...] = ()
    surface: Surface | None = None


def evaluate(fitted: InferredCell, dataset: Dataset, predictor: Predictor) -> Evaluation:
    """What a cell predicts, with its metrics: in the original units of the targets.

    Raises
    ------
    ValueError
        If no restart can predict, or predictions are not finite.
    """
    if fitted.best is None:
        raise ValueError("every restart diverged")
    draws, target = fitted.cell.predict.draws, dataset.raw_targets(dataset.y_test)
    found, chains = _predictions(
        fitted, dataset, predictor, fitted.mixtures, dataset.x_test, draws, dataset.y_test
    )
    test = found[""]
    if not np.isfinite(test.mean).all():
        raise ValueError("predictions are not finite")
    results = {
        f"{prefix}{name}": value
        for prefix, predictive in found.items()
        for name, value in all_metrics(predictive, target).items()
    }
    if chains:
        results["nll_mcse"] = jackknife_error(nll_without_each(chains, target))
    further = evaluate_further(test, fitted, dataset, predictor)
    return Evaluation(results | further.pop("results"), test, chains, **further)


def all_metrics(predictive: Predictive, target: np.ndarray) -> dict[str, float]:
    """Metrics of a prediction by name: those of its kind, and registered ones of one's own.

    Raises
    ------
    ValueError
        If a registered one has the name of another.
    """
    found = metrics_of(predictive, target)
    for name, metric in METRICS.get(predictive.key, {}).items():
        if name in found:
            raise ValueError(f"The metric `{name}` is there already: name yours otherwise.")
        found[name] = float(metric(predictive, target))
    return found


@singledispatch
def evaluate_further(
    test: Predictive, fitted: InferredCell, dataset: Dataset, predictor: Predictor
) -> dict[str, Any]:
    """What is predicted beyond the test rows: attributes of `Evaluation`, and further results.

    Each kind of prediction registers its own.
    """
    return {"results": {}}


@evaluate_further.register
def _evaluate_classes(test: ClassProbabilities, fitted, dataset, predictor) -> dict[str, Any]:
    """Over the map and at fresh points, of images, and on the way."""
    further: dict[str, Any] = {"results": {}}
    if isinstance(fitted.cell.dataset, Synthetic):
        further["results"] = _fresh_metrics(fitted, dataset, predictor)
    if fitted.cell.dataset.is_user_data:
        further["results"] = metrics.recalls(test.mean, dataset.y_test, dataset.classes)
    if fitted.cell.dataset.is_planar:
        further["map"] = _predict_map(fitted, dataset, predictor)
    images = None
    if fitted.cell.dataset.image_shape is not None:
        images = evaluate_images(fitted, dataset, predictor, test)
    diagnosis = diagnose(fitted, dataset, predictor, images)
    return further | {"images": images, "diagnosis": diagnosis}


@evaluate_further.register
def _evaluate_numbers(test: Density, fitted, dataset, predictor) -> dict[str, Any]:
    """At the training rows, on lines and over a plane of inputs; of several targets, of each."""
    draws = fitted.cell.predict.draws
    training = predict_mixture(fitted, predictor, dataset.x_train, draws)
    training = training.in_units_of(dataset.target_standardisation)
    curves = _curves(fitted, dataset, predictor)
    further: dict[str, Any] = {"curves": curves}
    if fitted.cell.dataset.is_planar:
        further["surface"] = _surface(fitted, dataset, predictor)
    target = dataset.raw_targets(dataset.y_train)
    if not dataset.target_names:
        return further | {"results": _of_one(training, target, curves)}
    results, of_test = {}, dataset.raw_targets(dataset.y_test)
    for i, name in enumerate(dataset.target_names):
        own = metrics_of(test.of_target(i), of_test[:, i])
        del own["nll"]  # that of a row of targets is joint
        lines = [replace(curve, prediction=curve.prediction.of_target(i)) for curve in curves]
        own |= _of_one(training.of_target(i), target[:, i], lines)
        results |= {f"{metric}_{name}": value for metric, value in own.items()}
    return further | {"results": results}


def _of_one(training: Density, target: np.ndarray, curves: Sequence[Curve]) -> dict[str, float]:
    """Numbers of one target beside the metrics of its test rows."""
    return {"train_rmse": metrics.rmse(training.mean, target)} | bands(curves) | gaps(curves)


def bands(curves: Sequence[Curve]) -> dict[str, float]:
    """How wide the band of two epistemic standard deviations is.

    ``band_inside`` is its mean over the range of the rows; at each end of a wider range, such
    as 1.5, there are ``mean_at_1.5`` and ``band_at_1.5``, and ``band_ratio_1.5`` is the smaller
    of both ends' bands over that inside. A line across a gap is no range of the rows.
    """
    ranges = [curve for curve in curves if curve.line.gap is None]
    if not ranges:
        return {}
    inside = float(2 * ranges[0].prediction.epistemic_sd.mean())
    found = {"band_inside": inside}
    for curve in ranges[1:]:
        x = curve.line.position
        ends = {f"{x[i]:g}": i for i in (0, -1)}
        band = {end: float(2 * curve.prediction.epistemic_sd[i]) for end, i in ends.items()}
        found |= {f"mean_at_{end}": float(curve.prediction.mean[i]) for end, i in ends.items()}
        found |= {f"band_at_{end}": width for end, width in band.items()}
        # A single point has no band at all.
        ratio = min(band.values()) / inside if inside > 0 else float("nan")
        found[f"band_ratio_{x[-1]:g}"] = ratio
    return found


def gaps(curves: Sequence[Curve]) -> dict[str, float]:
    """Epistemic standard deviation in the gap of a line, and where it is smallest on it.

    Under names such as ``sd_at_0``, of the position of the gap, and ``smallest_sd``.
    """
    found = {}
    for curve in curves:
        line, sd = curve.line, curve.prediction.epistemic_sd
        if line.gap is not None:
            found[f"sd_at_{line.gap:g}"] = float(np.interp(line.gap, line.position, sd))
            found["smallest_sd"] = float(sd.min())
    return found


def _predictions(
    inferred: InferredCell,
    dataset: Dataset,
    predictor: Predictor,
    mixtures: Mapping[str, Weights],
    x: np.ndarray,
    draws: int,
    target: np.ndarray | None = None,
) -> tuple[dict[str, Predictive], tuple[Predictive, ...]]:
    """By each mixture of what is finite, under its name; and by each chain alone.

    `target` as it was fitted, predictions in original units.
    """
    fits = [inferred.fits[i] for i in inferred.finite]
    alone = list(np.eye(len(fits))) if inferred.cell.is_sampled else []
    found = predictor.predict_mixtures(
        fits, [*mixtures.values(), *alone], inferred.data, x, draws, target
    )
    found = [one.in_units_of(dataset.target_standardisation) for one in found]
    return dict(zip(mixtures, found, strict=False)), tuple(found[len(mixtures) :])


@lru_cache(maxsize=64)
def _fresh_points(spec: Synthetic, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Raw fresh points and their true class probabilities, the same for every cell."""
    x = spec.spread(size, random_seed=FRESH_SEED + spec.seed)
    return x, spec.class_probabilities(x)


def _fresh_metrics(
    fitted: InferredCell, dataset: Dataset, predictor: Predictor
) -> dict[str, float]:
    """Excess error and excess NLL over the bounds, as predicted and with all restarts pooled."""
    spec, fresh = fitted.cell.dataset, fitted.cell.predict.fresh
    x, truth = _fresh_points(spec, fresh.size)
    x = dataset.standardisation(x)
    # A mixture of all restarts alike has as many draws in all as one of them has alone.
    pooled = {k: w for k, w in fitted.mixtures.items() if w is None and len(fitted.finite) > 1}
    others = {k: w for k, w in fitted.mixtures.items() if k not in pooled}
    found, chains = _predictions(fitted, dataset, predictor, others, x, fresh.draws)
    share = -(-fresh.draws // len(fitted.finite))
    found |= _predictions(fitted, dataset, predictor, pooled, x, share)[0] if pooled else {}
    results = {
        f"{prefix}{name}": score(predictive.mean, truth)
        for prefix, predictive in found.items()
        for name, score in FRESH_SCORES.items()
    }
    for name, score in FRESH_SCORES.items() if chains else ():
        of_others = [score(mean, truth) for mean in probabilities_without_each(chains)]
        results[f"{name}_mcse"] = jackknife_error(of_others)
    bounds = spec.bounds()
    return results | {"best_accuracy": bounds.best_accuracy, "lowest_nll": bounds.lowest_nll}


def _predict_map(fitted: InferredCell, dataset: Dataset, predictor: Predictor) -> MapPrediction:
    x1, x2, x = map_points(dataset, fitted.cell.predict.map)
    as_predicted = {"": fitted.mixtures[""]}
    draws = fitted.cell.predict.map_draws
    found, chains = _predictions(fitted, dataset, predictor, as_predicted, x, draws)
    return MapPrediction(x1, x2, found[""], chains)


def _surface(fitted: InferredCell, dataset: Dataset, predictor: Predictor) -> Surface:
    x1, x2, x = map_points(dataset, fitted.cell.predict.map)
    fits = [fitted.fits[i] for i in fitted.finite]
    draws, weights = fitted.cell.predict.map_draws, fitted.mixtures[""]
    found = predict_moments(predictor, fits, weights, fitted.data, x, draws)
    return Surface(x1, x2, found.in_units_of(dataset.target_standardisation))


def map_points(dataset: Dataset, settings: Map) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Raw coordinates of a map about the training rows, and standardised points, x1 slowest."""
    raw = dataset.standardisation.undo(dataset.x_train)
    low, high = raw.min(axis=0), raw.max(axis=0)
    reach = settings.margin * (high - low)
    x1, x2 = np.linspace(low - reach, high + reach, settings.resolution, axis=1)
    points = np.stack(np.meshgrid(x1, x2, indexing="ij"), axis=-1).reshape(-1, 2)
    return x1, x2, dataset.standardisation(points)


def _curves(fitted: InferredCell, dataset: Dataset, predictor: Predictor) -> tuple[Curve, ...]:
    found, as_predicted = [], {"": fitted.mixtures[""]}
    draws = fitted.cell.predict.draws
    for line in fitted.cell.dataset.lines():
        x = dataset.standardisation(line.inputs)
        by, chains = _predictions(fitted, dataset, predictor, as_predicted, x, draws)
        found.append(Curve(line, by[""], chains))
    return tuple(found)
