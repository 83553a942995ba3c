"""Functions of a model's draws that chains of a sampler must agree on."""

from collections.abc import Mapping

import numpy as np
import pymc as pm

from pmbnn.inference.batches import model_values
from pmbnn.inference.samplers.run import Functions
from pmbnn.models.build import likelihood_of
from pmbnn.prediction.predictor import Predictor

INPUTS = 400
"""Training inputs at most at which predictions of the chains are compared."""


def compared_functions(model: pm.Model) -> Functions:
    """What chains of a model must agree on, as a function of draws of its flat vector.

    What its likelihood says at up to `INPUTS` training inputs; the unconstrained variables of a
    model that is not one of this package.
    """
    likelihood = likelihood_of(model)
    if likelihood is None:
        return lambda values: values
    return functions_of(Predictor(model, likelihood), model_values(model))


def functions_of(
    predictor: Predictor, data: Mapping[str, np.ndarray], *further: np.ndarray
) -> Functions:
    """What a model's likelihood says at up to `INPUTS` of its inputs, of draws of the vector.

    And at as many of each of `further` arrays of inputs, ``(observation, feature)``.
    """
    x = np.concatenate([spread_rows(of) for of in (data["x"], *further)])

    def of(values: np.ndarray) -> np.ndarray:
        # A chain at a time: a large network's layers at all draws would fill the memory.
        return np.stack([_predicted(predictor, data, chain, x) for chain in values])

    return of


def _predicted(predictor: Predictor, data, values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """What the likelihood names at draws, ``(draw, function)``; without the last of the classes."""
    found = predictor.parameters(data, values, x).values()
    # The last class has what the others leave.
    of_classes = predictor.likelihood.targets == "classes"
    arrays = [a[..., :-1] if a.ndim > 2 and of_classes else a for a in found]
    return np.concatenate([a.reshape(len(values), -1) for a in arrays], axis=1)


def spread_rows(x: np.ndarray, most: int = INPUTS) -> np.ndarray:
    """At most so many rows, evenly spread over all."""
    return x[np.unique(np.linspace(0, len(x) - 1, min(most, len(x))).round().astype(int))]
