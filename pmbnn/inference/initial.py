"""Where the means of a guide start."""

import numpy as np

from pmbnn.inference.flat import Slot
from pmbnn.inference.settings import Inference


def initial_means(
    slots: tuple[Slot, ...], settings: Inference, rng: np.random.Generator
) -> np.ndarray:
    """Means of the flat vector, ``(size,)``, double precision."""
    how, spread = settings.initial_mean, settings.initial_spread
    return np.concatenate([_initial_mean(slot.shape, how, spread, rng) for slot in slots])


def _initial_mean(shape: tuple[int, ...], how: str, spread: float, rng) -> np.ndarray:
    if how == "random":
        return spread * rng.standard_normal(int(np.prod(shape)))
    if how == "uniform":
        return rng.uniform(-spread, spread, int(np.prod(shape)))
    if how == "fan_in" and len(shape) > 1:
        return rng.standard_normal(int(np.prod(shape))) / np.sqrt(np.prod(shape[:-1]))
    return np.zeros(int(np.prod(shape)))
