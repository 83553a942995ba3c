"""Predictions of a classifier of images for held-out and out-of-distribution images."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pmbnn.data import DataError
from pmbnn.data.arrays import Dataset
from pmbnn.data.ood import AnyOod, Digits, OodImages, no_digits, raw_test_digits
from pmbnn.fitting.fit import InferredCell, predict_mixture
from pmbnn.prediction import class_probabilities, metrics
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.predictor import Predictor

BITS = 1 / np.log(2)


@dataclass(frozen=True)
class OodPrediction:
    """Out-of-distribution images and their predictions."""

    images: OodImages
    prediction: ClassProbabilities


@dataclass(frozen=True)
class ImageEvaluation:
    """Predictions beyond the test rows, and results by place.

    Attributes
    ----------
    validation
        Predictions of the rows set aside; None if there are none.
    ood
        By the name of each set.
    results
        ``rejection``: thresholds and the shares that they accept; ``test`` and ``ood``: uncertainty
        of the test digits and of each set, with the areas under the curves of detecting the set;
        ``unavailable``: sets that are unavailable, with the reason. Entropies in bits. Where rows
        are set aside, ``held_out``: metrics of their predictions.
    """

    validation: ClassProbabilities | None
    ood: Mapping[str, OodPrediction]
    results: Mapping[str, Any]


def evaluate_images(
    fitted: InferredCell,
    dataset: Dataset,
    predictor: Predictor,
    test: ClassProbabilities,
    validation: ClassProbabilities | None,
) -> ImageEvaluation:
    """Predictions at out-of-distribution images, with their numbers and those of rows set aside.

    Parameters
    ----------
    test, validation
        Predictions of the test rows; and of rows that nothing was fitted on, if there are some.
    """
    settings = fitted.cell.predict
    held_out = test if validation is None else validation
    limits = {
        "held_out": "test" if validation is None else "validation",
        "percentile": class_probabilities.PERCENTILE,
        "sd": class_probabilities.threshold(held_out.predicted_sd),
        "confidence_threshold": settings.confidence_threshold,
    }
    ood, unavailable = {}, {}
    for spec in settings.ood:
        try:
            images = load_images(spec, raw_test_digits(dataset))
        except DataError as error:
            unavailable[spec.name] = str(error)
            continue
        x = dataset.standardisation(images.x).astype(np.float32)
        prediction = predict_mixture(fitted, predictor, x, settings.draws)
        ood[spec.name] = OodPrediction(images, prediction)
    results = {
        "rejection": limits | _rejection(test, dataset.y_test, limits),
        "test": _uncertainty(test, limits),
        "ood": {name: _ood(prediction, test, limits) for name, prediction in ood.items()},
        "unavailable": unavailable,
    }
    if validation is not None:
        results["held_out"] = held_out_metrics(validation, dataset.y_validation)
    return ImageEvaluation(validation, ood, results)


def held_out_metrics(validation: ClassProbabilities, label: np.ndarray) -> dict[str, float]:
    """Accuracy and NLL of the averaged prediction of rows set aside, and their number.

    The NLL is in nats an image; its negative is a held-out log-probability.
    """
    probability = np.asarray(validation.mean, np.float64)
    return {
        "rows": len(label),
        "accuracy": metrics.accuracy(probability, label),
        "nll": metrics.nll(probability, label),
    }


def load_images(spec: AnyOod, digits: Digits) -> OodImages:
    """Images of a kind; those that do not depend on the digits are made once in a process.

    Raises
    ------
    DataError
        If they are unavailable.
    """
    return spec.load(digits) if spec.kind == "rotated" else _load_once(spec)


@lru_cache(maxsize=8)
def _load_once(spec: AnyOod) -> OodImages:
    return spec.load(no_digits())


def uncertainty_scores(predictive: ClassProbabilities) -> dict[str, np.ndarray]:
    """Uncertainty scores by name, higher where less certain, ``(observation,)``; bits."""
    return {
        "sd": predictive.predicted_sd,
        "entropy": BITS * predictive.entropy,
        "mutual_information": BITS * predictive.mutual_information,
        "error_rate": predictive.expected_error_rate,
        "top_probability": 1 - predictive.mean.max(axis=1),
    }


def _rejected(predictive: ClassProbabilities, limits) -> dict[str, np.ndarray]:
    return {
        "by_sd": predictive.predicted_sd > limits["sd"],
        "by_confidence": predictive.mean.max(axis=1) <= limits["confidence_threshold"],
    }


def _rejection(test: ClassProbabilities, label: np.ndarray, limits) -> dict[str, Any]:
    """Shares of the test rows that the thresholds accept."""
    correct, rejected = test.predicted == label, _rejected(test, limits)
    accepted = ~rejected["by_sd"]
    return {
        "accepted": float(accepted.mean()),
        "accepted_accuracy": float(correct[accepted].mean()) if accepted.any() else None,
        "accepted_by_confidence": float(1 - rejected["by_confidence"].mean()),
        "area_under_risk_coverage": {
            name: class_probabilities.area_under_risk_coverage(score, correct)
            for name, score in uncertainty_scores(test).items()
        },
    }


def _uncertainty(predictive: ClassProbabilities, limits) -> dict[str, float]:
    """Means of the scores over a set."""
    top = predictive.mean.max(axis=1)
    return {
        "size": len(top),
        "entropy": float(BITS * predictive.entropy.mean()),
        "geometric_entropy": float(
            class_probabilities.geometric_entropy(predictive.mean_log).mean()
        ),
        "mutual_information": float(BITS * predictive.mutual_information.mean()),
        "sd": float(predictive.predicted_sd.mean()),
        "error_rate": float(predictive.expected_error_rate.mean()),
        "top_probability": float(top.mean()),
        "top_probability_sd": float(top.std()),
    } | {f"rejected_{how}": float(r.mean()) for how, r in _rejected(predictive, limits).items()}


def _ood(of_set: OodPrediction, test: ClassProbabilities, limits) -> dict[str, Any]:
    """Uncertainty of a set, areas under the curves of detecting it, and rejected shares."""
    test_scores, prediction = uncertainty_scores(test), of_set.prediction
    results: dict[str, Any] = {"source": of_set.images.source} | _uncertainty(prediction, limits)
    for name, score in uncertainty_scores(prediction).items():
        areas = class_probabilities.detection_metrics(test_scores[name], score)
        results |= {f"{area}_{name}": value for area, value in areas.items()}
    rejected = _rejected(prediction, limits)["by_sd"]
    labels = np.array(of_set.images.labels)
    results["rejected_by_label"] = {
        str(label): float(rejected[labels == label].mean()) for label in dict.fromkeys(labels)
    }
    return results


def pixels(
    raw: np.ndarray, shape: tuple[int, ...], axis: str
) -> tuple[tuple[str, ...], np.ndarray]:
    """Dims and bytes of images; noise beyond black and white is cut off. Colours come last."""
    images = np.rint(255 * raw).clip(0, 255).astype("u1").reshape(-1, *shape)
    if shape[0] == 1:
        return (axis, "row", "column"), images[:, 0]
    return (axis, "row", "column", "channel"), images.transpose(0, 2, 3, 1)
