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


def fit_of_draws(inferred: InferredCell, draws: int) -> np.ndarray:
    """The restart, or chain, that each draw of a cell's mixture is from, ``(draw,)``.

    Each as often as its weight says; draw ``k`` is the ``k``-th of its restart. The first few of
    many draws are the same as few.
    """
    used = [i for i, weight in enumerate(inferred.weights) if weight > 0]
    rng = np.random.default_rng([*inferred.fits[inferred.best].draw_key, 2])
    return rng.choice(used, size=draws, p=[inferred.weights[i] for i in used])


def single_draws_of_mixture(
    inferred: InferredCell, predictor: Predictor, x: np.ndarray, draws: int
) -> dict[str, np.ndarray]:
    """What the likelihood names, at single draws of a cell's mixture, ``(draw, observation, ...)``.

    Of a single point there is one draw, as all are the same.
    """
    fits, data, chosen = inferred.fits, inferred.data, fit_of_draws(inferred, draws)
    found = {i: predictor.single_draws(fits[i], data, x, draws) for i in np.unique(chosen)}
    if len(found) == 1:
        return next(iter(found.values()))
    return {
        name: np.stack([found[i][name][k % len(found[i][name])] for k, i in enumerate(chosen)])
        for name in found[chosen[0]]
    }
