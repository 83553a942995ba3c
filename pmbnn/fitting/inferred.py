"""A cell with something to predict with, whether it was fitted or sampled."""

import numpy as np

from pmbnn.data.arrays import Dataset
from pmbnn.fitting.fit import FittedCell
from pmbnn.fitting.sampling import SampledCell
from pmbnn.prediction.predictive import Predictive
from pmbnn.prediction.predictor import Predictor

type InferredCell = FittedCell | SampledCell


def predict_mixture(
    inferred: InferredCell, dataset: Dataset, predictor: Predictor, x: np.ndarray, draws: int
) -> Predictive:
    """Prediction of a cell at standardised inputs ``(observation, feature)``, in original units.

    That of its restarts, weighted as its settings say, or of all its chains.
    """
    found = predictor.predict(inferred.fits, inferred.weights, inferred.data, x, draws)
    return found.in_units_of(dataset.target_standardisation)
