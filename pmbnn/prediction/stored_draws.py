"""Predictions from draws that are kept, where a guide's are drawn anew."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
import pymc as pm

from pmbnn.inference.result import StoredGuide
from pmbnn.inference.settings import Inference
from pmbnn.models.likelihoods import Likelihood
from pmbnn.prediction.predictive import Predictive
from pmbnn.prediction.predictor import Predictor


class StoredDraws(Predictor):
    """Predictions of a model from given draws of its flat vector."""

    def __init__(self, model: pm.Model, likelihood: Likelihood, dtype: str = "float32") -> None:
        super().__init__(model, likelihood, Inference(), dtype)

    def constrained(self, fit: StoredGuide) -> dict:
        """Take the draws for the parameters of a guide; call it within `precision`."""
        return {"values": jnp.asarray(fit.constrained["values"], self.dtype)}

    def draw(self, constrained, key, i):
        """The `i`-th of the draws."""
        return constrained["values"][i]

    def predict_from(
        self, data: Mapping[str, np.ndarray], values: np.ndarray, x: np.ndarray
    ) -> Predictive:
        """Prediction of the draws ``(draw, size)`` at inputs ``(observation, feature)``."""
        kept = StoredGuide({"values": values}, np.zeros(4, np.uint32))
        return self.predict([kept], [1.0], data, x, len(values))
