"""Where the means of a guide start."""

import numpy as np

from pmbnn.inference.flat import Slot


def initial_means(slots: tuple[Slot, ...], how: str, rng: np.random.Generator) -> np.ndarray:
    """Means of the flat vector, ``(size,)``, double precision; see `Inference` for `how`."""
    return np.concatenate([_initial_mean(slot.shape, how, rng) for slot in slots])


def _initial_mean(shape: tuple[int, ...], how: str, rng: np.random.Generator) -> np.ndarray:
    if how == "random":
        return 0.1 * rng.standard_normal(int(np.prod(shape)))
    if how == "fan_in" and len(shape) > 1:
        return rng.standard_normal(int(np.prod(shape))) / np.sqrt(np.prod(shape[:-1]))
    return np.zeros(int(np.prod(shape)))
