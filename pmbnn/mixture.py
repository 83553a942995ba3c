"""Predictions of a cell: those of its restarts, weighted as its settings say."""

from collections.abc import Mapping

import numpy as np

from pmbnn.fitting import FittedCell
from pmbnn.moments import Moments, pool
from pmbnn.prediction import Predictor


def mixed(moments: Mapping[int, Moments], fitted: FittedCell) -> Moments:
    """Moments of the mixture, from those of each restart that has a weight."""
    weights = {i: weight for i, weight in enumerate(fitted.weights) if weight > 0}
    if len(weights) == 1:
        return moments[next(iter(weights))]
    return pool([moments[i] for i in weights], list(weights.values()))


def predict_mixture(fitted: FittedCell, predictor: Predictor, x: np.ndarray, draws: int) -> Moments:
    """Moments of the mixture at standardised inputs ``(observation, feature)``."""
    moments = {
        i: predictor.moments(fitted.fits[i], fitted.data, x, draws)
        for i, weight in enumerate(fitted.weights)
        if weight > 0
    }
    return mixed(moments, fitted)
