"""Predictions from draws that are kept, where a guide's are drawn anew."""

from collections.abc import Mapping

import jax
import numpy as np
import pymc as pm

from pmbnn.inference.flat import ModelGraphs
from pmbnn.inference.result import StoredGuide
from pmbnn.inference.settings import Inference
from pmbnn.models.likelihoods import Likelihood
from pmbnn.prediction.predictive import Predictive
from pmbnn.prediction.predictor import Predictor

GOLDEN = (np.sqrt(5) - 1) / 2


class StoredDraws(Predictor):
    """Predictions of a model from given draws of its flat vector."""

    def __init__(
        self, model: pm.Model | ModelGraphs, likelihood: Likelihood, dtype: str = "float32"
    ) -> None:
        super().__init__(model, likelihood, Inference(), dtype)

    def constrained(self, fit: StoredGuide) -> dict:
        """Take the draws for the parameters of a guide; call it within `precision`."""
        return jax.device_put({"values": np.asarray(fit.constrained["values"], self.dtype)})

    @property
    def way_to_draw(self):  # noqa: D102
        return _kept

    def n_distinct(self, fit: StoredGuide, draws: int) -> int:
        """How many of so many draws there are."""
        return min(draws, len(fit.constrained["values"]))

    def predict_from(
        self, data: Mapping[str, np.ndarray], values: np.ndarray, x: np.ndarray
    ) -> Predictive:
        """Prediction of the draws ``(draw, size)`` at inputs ``(observation, feature)``."""
        return self.predict([kept_draws(values)], [1.0], data, x, len(values))


def _kept(constrained, key, i):
    """The `i`-th of the draws."""
    return constrained["values"][i]


def kept_draws(values: np.ndarray) -> StoredGuide:
    """Draws ``(draw, size)`` in the place of a guide's parameters.

    Their order is such that the first few, if only these are taken, are spread over all.
    """
    # Numbers of an irrational rotation of the circle: every run of them is spread evenly over it.
    order = np.argsort(np.argsort(np.arange(len(values)) * GOLDEN % 1))
    return StoredGuide({"values": values[order]}, np.zeros(4, np.uint32))
