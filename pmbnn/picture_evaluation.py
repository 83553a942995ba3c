"""What a classifier of pictures says of held-out ones, and of pictures that it cannot know."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from pmbnn import detection, metrics
from pmbnn.datasets import DataError
from pmbnn.datasets.rows import Dataset
from pmbnn.fitting import FittedCell
from pmbnn.mixture import predict_mixture
from pmbnn.moments import Moments
from pmbnn.prediction import Predictor
from pmbnn.unfamiliar import AnyUnfamiliar
from pmbnn.unfamiliar.pictures import Digits, Pictures, digits_of

BITS = 1 / np.log(2)


@dataclass(frozen=True)
class Shown:
    """Unfamiliar pictures and what was predicted of them."""

    pictures: Pictures
    moments: Moments


@dataclass(frozen=True)
class PictureEvaluation:
    """Predictions beyond the test rows, and numbers by place.

    Attributes
    ----------
    validation
        Predictions of the rows set aside; None if there are none.
    unfamiliar
        By the name of each set.
    results
        ``rejection``: thresholds and what they accept; ``test`` and ``unfamiliar``: doubt of
        the test digits and of each set, with the areas under the curves of telling the two
        apart; ``unavailable``: sets that could not be had, and why. Entropies in bits. Where
        rows are set aside, ``held_out``: how well these are predicted.
    """

    validation: Moments | None
    unfamiliar: Mapping[str, Shown]
    results: Mapping[str, Any]


def evaluate_pictures(
    fitted: FittedCell, dataset: Dataset, predictor: Predictor, test: Moments
) -> PictureEvaluation:
    """Predictions of a fitted cell at validation rows and unfamiliar pictures, with numbers.

    Parameters
    ----------
    test
        What is predicted of the test rows.
    """
    settings, validation = fitted.cell.predict, None
    if dataset.x_validation is not None:
        validation = predict_mixture(fitted, predictor, dataset.x_validation, settings.draws)
    held_out = test if validation is None else validation
    limits = {
        "held_out": "test" if validation is None else "validation",
        "percentile": detection.PERCENTILE,
        "sd": detection.threshold(held_out.predicted_sd),
        "cutoff": settings.cutoff,
    }
    shown, unavailable = {}, {}
    for spec in settings.unfamiliar:
        try:
            pictures = load_pictures(spec, digits_of(dataset))
        except DataError as error:
            unavailable[spec.name] = str(error)
            continue
        x = dataset.standardisation(pictures.x).astype(np.float32)
        moments = predict_mixture(fitted, predictor, x, settings.draws)
        shown[spec.name] = Shown(pictures, moments)
    results = {
        "rejection": limits | _rejection(test, dataset.y_test, limits),
        "test": _doubt(test, limits),
        "unfamiliar": {name: _unfamiliar(s, test, limits) for name, s in shown.items()},
        "unavailable": unavailable,
    }
    if validation is not None:
        results["held_out"] = held_out_metrics(validation, dataset.y_validation)
    return PictureEvaluation(validation, shown, results)


def held_out_metrics(validation: Moments, label: np.ndarray) -> dict[str, float]:
    """Accuracy and NLL of the averaged prediction of rows set aside, and their number.

    The NLL is in nats a picture; its negative is a held-out log-probability.
    """
    probability = np.asarray(validation.mean, np.float64)
    return {
        "rows": len(label),
        "accuracy": metrics.accuracy(probability, label),
        "nll": metrics.nll(probability, label),
    }


def load_pictures(spec: AnyUnfamiliar, digits: Digits) -> Pictures:
    """Pictures of a kind; those that do not depend on the digits are made once a process.

    Raises
    ------
    DataError
        If they cannot be had.
    """
    return spec.load(digits) if spec.kind == "rotated" else _load_once(spec)


@lru_cache(maxsize=8)
def _load_once(spec: AnyUnfamiliar) -> Pictures:
    return spec.load(Digits(np.empty((0, 784), np.float32), ()))


def scores(moments: Moments) -> dict[str, np.ndarray]:
    """Scores of doubt by name, higher where more doubtful, ``(observation,)``; bits."""
    return {
        "sd": moments.predicted_sd,
        "entropy": BITS * moments.entropy,
        "mutual_information": BITS * moments.mutual_information,
        "error_rate": moments.expected_error_rate,
        "top_probability": 1 - moments.mean.max(axis=1),
    }


def _refused(moments: Moments, limits) -> dict[str, np.ndarray]:
    return {
        "by_sd": moments.predicted_sd > limits["sd"],
        "by_cutoff": moments.mean.max(axis=1) <= limits["cutoff"],
    }


def _rejection(test: Moments, label: np.ndarray, limits) -> dict[str, Any]:
    """What the thresholds do to the test rows."""
    correct = test.predicted == label
    accepted = ~_refused(test, limits)["by_sd"]
    return {
        "accepted": float(accepted.mean()),
        "accepted_accuracy": float(correct[accepted].mean()) if accepted.any() else None,
        "accepted_by_cutoff": float(1 - _refused(test, limits)["by_cutoff"].mean()),
        "area_under_risk_coverage": {
            name: detection.area_under_risk_coverage(score, correct)
            for name, score in scores(test).items()
        },
    }


def _doubt(moments: Moments, limits) -> dict[str, float]:
    """Means of the scores over a set."""
    top = moments.mean.max(axis=1)
    return {
        "pictures": len(top),
        "entropy": float(BITS * moments.entropy.mean()),
        "geometric_entropy": float(detection.geometric_entropy(moments.mean_log).mean()),
        "mutual_information": float(BITS * moments.mutual_information.mean()),
        "sd": float(moments.predicted_sd.mean()),
        "error_rate": float(moments.expected_error_rate.mean()),
        "top_probability": float(top.mean()),
        "top_probability_sd": float(top.std()),
    } | {f"refused_{how}": float(r.mean()) for how, r in _refused(moments, limits).items()}


def _unfamiliar(shown: Shown, test: Moments, limits) -> dict[str, Any]:
    """Doubt of a set, how it tells the set from the test digits, and who is refused."""
    known = scores(test)
    found: dict[str, Any] = {"source": shown.pictures.source} | _doubt(shown.moments, limits)
    for name, score in scores(shown.moments).items():
        areas = detection.detection_metrics(known[name], score)
        found |= {f"{area}_{name}": value for area, value in areas.items()}
    refused = _refused(shown.moments, limits)["by_sd"]
    labels = np.array(shown.pictures.labels)
    found["refused_by_label"] = {
        str(label): float(refused[labels == label].mean()) for label in dict.fromkeys(labels)
    }
    return found
