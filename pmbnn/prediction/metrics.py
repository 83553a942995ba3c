"""How good predictions are: NumPy in, numbers out. Every metric is a mean over observations.

Of classes, ``probability`` has shape ``(observation, class)`` with rows summing to 1, and
``label`` holds class indices, ``(observation,)``. Of numbers, every array is ``(observation,)``.
"""

from collections.abc import Sequence
from functools import singledispatch

import numpy as np

SMALLEST = 1e-12
"""Probabilities below this count as this, so that one certain mistake stays a finite number."""

BINS = 15
"""Bins of the calibration error, as in Guo et al. (2017)."""

LEVELS = (0.5, 0.9, 0.95)
"""Probabilities of the central intervals whose coverage is a metric."""


@singledispatch
def metrics_of(predictive: object, target: np.ndarray) -> dict[str, float]:
    """All metrics of a prediction by name, and means of its uncertainties.

    Each kind of prediction registers its own function.
    """
    raise TypeError(f"There are no metrics of a {type(predictive).__name__}.")


# Of classes


def accuracy(probability: np.ndarray, label: np.ndarray) -> float:
    """Share of observations whose most probable class is the label."""
    return float(np.mean(probability.argmax(axis=1) == label))


def entropy(probability: np.ndarray) -> np.ndarray:
    """Entropy over the last axis, in nats."""
    p = np.asarray(probability, np.float64)
    return -np.sum(p * np.log(np.maximum(p, np.finfo(np.float64).tiny)), axis=-1)


def nll(probability: np.ndarray, label: np.ndarray) -> float:
    """Negative log-probability of the label, in nats."""
    return float(-np.mean(log_probability(probability, label)))


def log_probability(probability: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Log-probability of each label, ``(observation,)``, in nats; that of `SMALLEST` at least."""
    return np.log(_label_probability(probability, label))


def brier_score(probability: np.ndarray, label: np.ndarray) -> float:
    """Squared distance between probabilities and the one-hot label, from 0 to 2.

    References
    ----------
    Brier (1950), Verification of Forecasts Expressed in Terms of Probability, equation 2.
    """
    one_hot = np.eye(probability.shape[1])[label]
    return float(np.mean(np.sum((probability - one_hot) ** 2, axis=1)))


def expected_calibration_error(
    probability: np.ndarray, label: np.ndarray, bins: int = BINS
) -> float:
    """Mean absolute difference of confidence and accuracy over bins of equal width.

    References
    ----------
    Guo et al. (2017), On Calibration of Modern Neural Networks, equation 3.
    """
    confidence = probability.max(axis=1)
    correct = probability.argmax(axis=1) == label
    # A confidence of exactly 1 belongs into the last bin.
    index = np.minimum((confidence * bins).astype(int), bins - 1)
    gap = np.bincount(index, weights=correct - confidence, minlength=bins)
    return float(np.abs(gap).sum() / len(label))


def excess_error(probability: np.ndarray, true_probability: np.ndarray) -> float:
    """Error of the predictor above that of the best possible one, at the given points.

    The expectation over labels is exact (`true_probability` is their distribution at each
    point), so only the choice of the points is random. Never negative.
    """
    chosen = np.take_along_axis(true_probability, probability.argmax(axis=1)[:, None], axis=1)
    return float(np.mean(true_probability.max(axis=1) - chosen[:, 0]))


def excess_nll(probability: np.ndarray, true_probability: np.ndarray) -> float:
    """Negative log-probability above the lowest possible, in nats, at the given points.

    This is the mean Kullback-Leibler divergence of the prediction from the true distribution
    of labels. Never negative.
    """
    tiny = np.finfo(np.float64).tiny
    ratio = np.log(np.maximum(true_probability, tiny)) - np.log(np.maximum(probability, SMALLEST))
    # The sum of terms of both signs may round, or its clipping push it, to just below zero.
    return max(float(np.mean(np.sum(true_probability * ratio, axis=1))), 0.0)


def classification_metrics(probability: np.ndarray, label: np.ndarray) -> dict[str, float]:
    """All metrics that need predictions and labels only, by name."""
    probability = np.asarray(probability, np.float64)
    return {
        metric.__name__: metric(probability, label)
        for metric in (accuracy, nll, brier_score, expected_calibration_error)
    }


def recalls(probability: np.ndarray, label: np.ndarray, classes: Sequence[str]) -> dict[str, float]:
    """Share of each class's observations that are predicted so, and the mean over classes.

    Under names such as ``recall_setosa``, and ``balanced_accuracy``; a class without observations
    has none.
    """
    from sklearn.metrics import recall_score

    predicted, labels = np.asarray(probability).argmax(axis=1), range(len(classes))
    recall = recall_score(label, predicted, labels=labels, average=None, zero_division=np.nan)
    by_class = {f"recall_{c}": float(r) for c, r in zip(classes, recall, strict=True) if r == r}
    return {"balanced_accuracy": float(np.mean(list(by_class.values()))), **by_class}


# Of numbers


def rmse(mean: np.ndarray, target: np.ndarray) -> float:
    """Root of the mean squared error, in the targets' units."""
    return float(np.sqrt(np.mean((mean - target) ** 2)))


def coverage(cdf: np.ndarray, level: float) -> float:
    """Share of targets within their central predictive interval.

    Parameters
    ----------
    cdf
        Predicted probability of less than each target.
    level
        Probability of the interval, which a calibrated prediction reaches.
    """
    return float(np.mean(np.abs(cdf - 0.5) <= level / 2))


def normal_nll(mean: np.ndarray, sd: np.ndarray, target: np.ndarray) -> float:
    """Negative log density of normal distributions with these moments, nats an observation.

    Some published tables have it in place of the log density of the predictive distribution.
    """
    return float(np.mean(((target - mean) / sd) ** 2 + np.log(2 * np.pi * sd**2)) / 2)


def regression_metrics(
    mean: np.ndarray,
    target: np.ndarray,
    log_density: np.ndarray,
    cdf: np.ndarray,
    crps: np.ndarray,
) -> dict[str, float]:
    """All metrics by name.

    ``nll`` is in nats an observation, of density in the targets' units; ``coverage_90`` is that
    of intervals of probability 0.9.
    """
    return {
        "rmse": rmse(mean, target),
        "nll": float(-np.mean(log_density)),
        "crps": float(np.mean(crps)),
    } | coverages(cdf)


def coverages(cdf: np.ndarray) -> dict[str, float]:
    """Coverage of each of `LEVELS`, by name; of several targets, their mean."""
    return {f"coverage_{100 * level:.0f}": coverage(cdf, level) for level in LEVELS}


def _label_probability(probability: np.ndarray, label: np.ndarray) -> np.ndarray:
    chosen = np.take_along_axis(probability, np.asarray(label)[:, None], axis=1)[:, 0]
    return np.maximum(chosen, SMALLEST)
