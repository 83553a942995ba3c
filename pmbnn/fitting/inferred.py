"""A cell with something to predict with, whether it was fitted or sampled."""

import numpy as np

from pmbnn.fitting.fit import FittedCell
from pmbnn.fitting.sampling import SampledCell
from pmbnn.prediction.predictive import Predictive
from pmbnn.prediction.predictor import Predictor

type InferredCell = FittedCell | SampledCell


def predict_mixture(
    inferred: InferredCell, predictor: Predictor, x: np.ndarray, draws: int
) -> Predictive:
    """Prediction of a cell at standardised inputs ``(observation, feature)``.

    That of its restarts, weighted as its settings say, or of all its chains; of targets as they
    were fitted.
    """
    return predictor.predict(inferred.fits, inferred.weights, inferred.data, x, draws)
