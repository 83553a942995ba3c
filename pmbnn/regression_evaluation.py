"""What a fitted regression predicts, inside its data and far outside, and how good that is."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pmbnn.datasets.rows import Dataset
from pmbnn.fitting import FittedCell
from pmbnn.predictive import Prediction
from pmbnn.regression_metrics import regression_metrics, rmse
from pmbnn.regression_prediction import RegressionPredictor

CURVE_POINTS = 501
"""Points of a curve: odd, so that the middle of a range is one of them."""


@dataclass(frozen=True)
class Curve:
    """Raw inputs evenly over a range, the true function there and what is predicted."""

    x: np.ndarray
    truth: np.ndarray
    prediction: Prediction


@dataclass(frozen=True)
class RegressionEvaluation:
    """Numbers by name, and the predictions behind them.

    ``curves`` are over the ranges of the data set, the first of them that of its rows.
    """

    results: Mapping[str, float]
    test: Prediction
    curves: tuple[Curve, ...]


def evaluate_regression(
    fitted: FittedCell, dataset: Dataset, predictor: RegressionPredictor
) -> RegressionEvaluation:
    """Predictions of a cell at test rows and over the ranges of its data set, with its metrics.

    Raises
    ------
    ValueError
        If no restart can predict, or predictions are not finite.
    """
    if fitted.best is None:
        raise ValueError("every restart diverged")
    alive = np.array([not fit.failed for fit in fitted.fits])
    test, pooled = (
        _predict(fitted, weights, predictor, dataset.x_test, dataset.y_test)
        for weights in (np.array(fitted.weights), alive / alive.sum())
    )
    if not np.isfinite(test.mean).all():
        raise ValueError("predictions are not finite")
    training = _predict(fitted, np.array(fitted.weights), predictor, dataset.x_train)
    curves = _curves(fitted, dataset, predictor)
    results = _metrics("", test, dataset.y_test) | _metrics("pooled_", pooled, dataset.y_test)
    results["train_rmse"] = rmse(training.mean, dataset.y_train)
    return RegressionEvaluation(results | bands(curves), test, curves)


def bands(curves: tuple[Curve, ...]) -> dict[str, float]:
    """How wide the band of two epistemic standard deviations is.

    ``band_inside`` is its mean over the range of the rows; at each end of a wider range, such
    as 1.5, there are ``mean_at_1.5`` and ``band_at_1.5``, and ``band_ratio_1.5`` is the smaller
    of both ends' bands over that inside.
    """
    inside = float(2 * curves[0].prediction.epistemic_sd.mean())
    found = {"band_inside": inside}
    for curve in curves[1:]:
        ends = {f"{curve.x[i]:g}": i for i in (0, -1)}
        band = {end: float(2 * curve.prediction.epistemic_sd[i]) for end, i in ends.items()}
        found |= {f"mean_at_{end}": float(curve.prediction.mean[i]) for end, i in ends.items()}
        found |= {f"band_at_{end}": width for end, width in band.items()}
        # A single point has no band at all.
        ratio = min(band.values()) / inside if inside > 0 else float("nan")
        found[f"band_ratio_{curve.x[-1]:g}"] = ratio
    return found


def _predict(fitted: FittedCell, weights, predictor, x, target=None) -> Prediction:
    """Predictions of the restarts that have a weight."""
    used = np.flatnonzero(weights)
    fits, draws = [fitted.fits[i] for i in used], fitted.cell.predict.draws
    return predictor.predict(fits, weights[used], fitted.data, x, draws, target)


def _metrics(prefix: str, prediction: Prediction, target: np.ndarray) -> dict[str, float]:
    scores = (prediction.log_density, prediction.cdf, prediction.crps)
    found = regression_metrics(prediction.mean, target, *scores) | {
        "mean_epistemic_sd": float(prediction.epistemic_sd.mean()),
        "mean_total_sd": float(prediction.total_sd.mean()),
    }
    return {prefix + name: value for name, value in found.items()}


def _curves(fitted: FittedCell, dataset: Dataset, predictor) -> tuple[Curve, ...]:
    spec, found = fitted.cell.dataset, []
    for low, high in spec.ranges:
        x = np.linspace(low, high, CURVE_POINTS)
        standardised = dataset.standardisation(x[:, None])
        prediction = _predict(fitted, np.array(fitted.weights), predictor, standardised)
        found.append(Curve(x, spec.truth(x), prediction))
    return tuple(found)
