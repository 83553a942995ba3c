"""Guides: families of distributions on the flat vector that approximate the posterior."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from pmbnn.inference.flat import Slot
from pmbnn.inference.settings import Inference

LOG_2PI = float(np.log(2 * np.pi))


class MeanFieldParameters(NamedTuple):
    """Means and unconstrained scales, ``(size,)`` each; the scale is ``softplus(rho)``."""

    loc: np.ndarray
    rho: np.ndarray


@dataclass(frozen=True)
class MeanField:
    """Independent normal distributions; ``scale_cap`` limits their standard deviations.

    References
    ----------
    Kucukelbir et al. (2017), Automatic Differentiation Variational Inference, equations 5-7.
    """

    size: int
    scale_cap: float | None = None

    def parameters(self) -> MeanFieldParameters:
        """Symbolic parameters, the inputs of a graph."""
        return MeanFieldParameters(
            *(pt.tensor(name, dtype="float64", shape=(self.size,)) for name in ("loc", "rho"))
        )

    def scale(self, parameters: MeanFieldParameters) -> TensorVariable:
        """Standard deviations, ``(size,)``."""
        scale = pt.softplus(parameters.rho)
        return scale if self.scale_cap is None else pt.minimum(scale, self.scale_cap)

    def draw(self, parameters: MeanFieldParameters, noise: TensorVariable) -> TensorVariable:
        """One draw of the flat vector from standard normal `noise`, both ``(size,)``."""
        return parameters.loc + self.scale(parameters) * noise

    def entropy(self, parameters: MeanFieldParameters) -> TensorVariable:
        """Differential entropy, in nats."""
        return pt.log(self.scale(parameters)).sum() + 0.5 * self.size * (1 + LOG_2PI)


def mean_field_log_density(draws: np.ndarray, loc: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Log-density of `draws` ``(draw, size)`` under a mean-field guide, ``(draw,)``, in nats."""
    standard = (draws - loc) / scale
    return (-0.5 * standard**2 - np.log(scale) - 0.5 * LOG_2PI).sum(axis=-1)


def softplus(rho: np.ndarray, scale_cap: float | None = None) -> np.ndarray:
    """Standard deviations of a guide with unconstrained scales `rho`."""
    with np.errstate(invalid="ignore"):  # a fit that diverged has no numbers to warn about
        return np.minimum(np.logaddexp(0, rho), np.inf if scale_cap is None else scale_cap)


def initial_parameters(
    slots: tuple[Slot, ...], settings: Inference, rng: np.random.Generator
) -> MeanFieldParameters:
    """Where a fit starts, double precision; see `Inference` for the choices."""
    loc = np.concatenate([_initial_mean(s.shape, settings.initial_mean, rng) for s in slots])
    # The inverse of softplus, written so that it neither overflows nor cancels.
    rho = settings.initial_scale + np.log(-np.expm1(-settings.initial_scale))
    return MeanFieldParameters(loc, np.full(loc.shape, rho))


def _initial_mean(shape: tuple[int, ...], how: str, rng: np.random.Generator) -> np.ndarray:
    if how == "random":
        return 0.1 * rng.standard_normal(int(np.prod(shape)))
    if how == "fan_in" and len(shape) > 1:
        return rng.standard_normal(int(np.prod(shape))) / np.sqrt(np.prod(shape[:-1]))
    return np.zeros(int(np.prod(shape)))
