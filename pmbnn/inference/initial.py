"""Where the means of a guide start."""

import numpy as np
from scipy.special import ndtr, ndtri

from pmbnn.inference.layout import Layout
from pmbnn.inference.settings import Inference


def initial_means(layout: Layout, settings: Inference, rng: np.random.Generator) -> np.ndarray:
    """Means of the flat vector, ``(size,)``, double precision."""
    how, spread = settings.initial_mean, settings.initial_spread
    return np.concatenate([_initial_mean(slot.shape, how, spread, rng) for slot in layout.slots])


def _initial_mean(shape: tuple[int, ...], how: str, spread: float, rng) -> np.ndarray:
    size = int(np.prod(shape))
    if how == "random":
        return spread * rng.standard_normal(size)
    if how == "uniform":
        return rng.uniform(-spread, spread, size)
    if how in FAN_IN_DRAWS and len(shape) > 1:
        return FAN_IN_DRAWS[how](size, rng) / np.sqrt(np.prod(shape[:-1]))
    return np.zeros(size)


def _normal(size: int, rng) -> np.ndarray:
    return rng.standard_normal(size)


def _truncated(size: int, rng) -> np.ndarray:
    """Standard normal draws given that they are within two of zero."""
    return ndtri(rng.uniform(ndtr(-2), ndtr(2), size))


FAN_IN_DRAWS = {"fan_in": _normal, "truncated_fan_in": _truncated}
"""What matrices start at, times the root of their fan-in."""
