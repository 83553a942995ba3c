"""What predicts from a model: class probabilities or numbers, as its likelihood has it."""

import pymc as pm

from pmbnn.inference.settings import Inference
from pmbnn.likelihoods import Likelihood
from pmbnn.prediction import Predictor
from pmbnn.regression_prediction import RegressionPredictor

type AnyPredictor = Predictor | RegressionPredictor


def build_predictor(
    model: pm.Model, likelihood: Likelihood, settings: Inference
) -> Predictor | RegressionPredictor:
    """Predictions of the model of one group."""
    predictor = RegressionPredictor if likelihood.is_of_numbers else Predictor
    return predictor(model, settings)
