"""What a fitted cell predicts, and how good that is."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from pmbnn import metrics
from pmbnn.datasets import Synthetic
from pmbnn.datasets.rows import Dataset
from pmbnn.diagnosis import Diagnosis, diagnose
from pmbnn.fitting import FittedCell
from pmbnn.mixture import mixed, predict_mixture
from pmbnn.moments import Moments, pool
from pmbnn.picture_evaluation import PictureEvaluation, evaluate_pictures
from pmbnn.prediction import Predictor
from pmbnn.prediction_settings import Map
from pmbnn.predictors import AnyPredictor
from pmbnn.regression_evaluation import RegressionEvaluation, evaluate_regression

FRESH_SEED = 2**31
"""Fresh points have seeds of their own, far from those of the data sets in a file."""


@dataclass(frozen=True)
class MapPrediction:
    """Moments over the plane: raw coordinates ``x1``, ``x2``, and rows with ``x1`` slowest."""

    x1: np.ndarray
    x2: np.ndarray
    moments: Moments


@dataclass(frozen=True)
class Evaluation:
    """Numbers by name, and the predictions behind them (of the restarts that have a weight).

    ``map`` is of points in a plane only, ``pictures`` of classifiers of pictures; ``diagnosis``
    is there if the settings name steps to look at.
    """

    results: Mapping[str, float]
    test: Moments
    map: MapPrediction | None = None
    pictures: PictureEvaluation | None = None
    diagnosis: Diagnosis | None = None


def evaluate(
    fitted: FittedCell, dataset: Dataset, predictor: AnyPredictor
) -> Evaluation | RegressionEvaluation:
    """What a cell predicts, with its metrics: of classes or of numbers.

    Raises
    ------
    ValueError
        If no restart can predict, or predictions are not finite.
    """
    if fitted.cell.likelihood.is_of_numbers:
        return evaluate_regression(fitted, dataset, predictor)
    return evaluate_classifier(fitted, dataset, predictor)


def evaluate_classifier(fitted: FittedCell, dataset: Dataset, predictor: Predictor) -> Evaluation:
    """Predictions of a cell at test rows, over the map and at fresh points, with its metrics.

    Raises
    ------
    ValueError
        If no restart can predict, or predictions are not finite.
    """
    if fitted.best is None:
        raise ValueError("every restart diverged")
    settings = fitted.cell.predict
    moments = {
        i: predictor.moments(fit, fitted.data, dataset.x_test, settings.draws)
        for i, fit in enumerate(fitted.fits)
        if not fit.failed
    }
    test = mixed(moments, fitted)
    if not np.isfinite(test.mean).all():
        raise ValueError("predictions are not finite")
    results = _prefixed("", test, dataset.y_test)
    results |= _prefixed("pooled_", pool(list(moments.values())), dataset.y_test)
    plane, pictures = None, None
    if isinstance(fitted.cell.dataset, Synthetic):
        results |= _fresh_metrics(fitted, dataset, predictor)
        plane = _predict_map(fitted, dataset, predictor, settings.map)
    if fitted.cell.dataset.image_shape is not None:
        pictures = evaluate_pictures(fitted, dataset, predictor, test)
    diagnosis = diagnose(fitted, dataset, predictor, pictures)
    return Evaluation(results, test, plane, pictures, diagnosis)


def _prefixed(prefix: str, moments: Moments, label: np.ndarray) -> dict[str, float]:
    found = metrics.classification_metrics(moments.mean, label) | {
        "mean_sd": float(moments.predicted_sd.mean()),
        "mean_entropy": float(moments.entropy.mean()),
        "mean_mutual_information": float(moments.mutual_information.mean()),
    }
    return {prefix + name: value for name, value in found.items()}


@lru_cache(maxsize=8)
def _fresh_points(spec: Synthetic, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Raw fresh points and their true class probabilities, the same for every cell."""
    x, _ = spec.sample(size, random_seed=FRESH_SEED + spec.seed)
    return x, spec.class_probabilities(x)


def _fresh_metrics(fitted: FittedCell, dataset: Dataset, predictor: Predictor) -> dict[str, float]:
    """Excess error and excess NLL over the bounds, as predicted and with all restarts pooled."""
    spec, fresh = fitted.cell.dataset, fitted.cell.predict.fresh
    x, truth = _fresh_points(spec, fresh.size)
    x = dataset.standardisation(x)
    moments = {
        i: predictor.moments(fit, fitted.data, x, fresh.draws)
        for i, fit in enumerate(fitted.fits)
        if not fit.failed
    }
    best, pooled = mixed(moments, fitted), pool(list(moments.values()))
    bounds = spec.bounds()
    return {
        "excess_error": metrics.excess_error(best.mean, truth),
        "excess_nll": metrics.excess_nll(best.mean, truth),
        "pooled_excess_error": metrics.excess_error(pooled.mean, truth),
        "pooled_excess_nll": metrics.excess_nll(pooled.mean, truth),
        "best_accuracy": bounds.best_accuracy,
        "lowest_nll": bounds.lowest_nll,
    }


def _predict_map(
    fitted: FittedCell, dataset: Dataset, predictor: Predictor, settings: Map
) -> MapPrediction:
    raw = dataset.standardisation.undo(dataset.x_train)
    low, high = raw.min(axis=0), raw.max(axis=0)
    reach = settings.margin * (high - low)
    axes = np.linspace(low - reach, high + reach, settings.resolution, axis=1)
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
    x = dataset.standardisation(points)
    moments = predict_mixture(fitted, predictor, x, fitted.cell.predict.draws)
    return MapPrediction(axes[0], axes[1], moments)
