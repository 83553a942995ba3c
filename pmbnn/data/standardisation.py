"""Standardisation of inputs and targets, fitted on training rows."""

from dataclasses import dataclass

import numpy as np

from pmbnn.data.base import Standardise
from pmbnn.spec.display import Summarised


@dataclass(frozen=True, repr=False)
class Standardisation(Summarised):
    """Affine map ``(x - mean) / sd``, fitted on training rows only.

    ``mean`` and ``sd`` have shape ``(feature,)``, in the units of the raw inputs; of targets,
    ``(target,)``.
    """

    mean: np.ndarray
    sd: np.ndarray

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Standardised copy of raw inputs ``(observation, feature)``."""
        return (x - self.mean) / self.sd

    def undo(self, x: np.ndarray) -> np.ndarray:
        """Raw inputs of standardised ones, ``(observation, feature)``."""
        return x * self.sd + self.mean

    @property
    def log_scale(self) -> float:
        """Sum of the logarithms of ``sd``, by which standardising raises a row's log-density."""
        return float(np.log(self.sd).sum())

    @property
    def is_identity(self) -> bool:
        """Whether it leaves everything as it is."""
        return not self.mean.any() and bool((self.sd == 1).all())


def identity_standardisation(features: int = 1) -> Standardisation:
    """The standardisation that leaves so many columns as they are."""
    return Standardisation(np.zeros(features), np.ones(features))


def fit_standardisation(x: np.ndarray, how: Standardise) -> Standardisation:
    """Standardisation of training inputs ``(observation, feature)``.

    ``feature`` uses one mean and standard deviation a column, ``global`` one for all columns
    together, ``none`` leaves the inputs as they are. A column that `is_constant` keeps its scale.
    """
    features = x.shape[1]
    if how == "none":
        return identity_standardisation(features)
    axis = 0 if how == "feature" else None
    mean = np.broadcast_to(x.mean(axis=axis), features).astype(np.float64)
    sd = np.broadcast_to(x.std(axis=axis), features).astype(np.float64)
    return Standardisation(mean, np.where(is_constant(x, axis), 1.0, sd))


def is_constant(x: np.ndarray, axis: int | None = 0) -> np.ndarray:
    """Whether the values along an axis differ by no more than rounding errors.

    The rule is that of ``sklearn.preprocessing.StandardScaler``: the variance is at most the error
    that computing it in two passes may have. The standard deviation of 0.1 in every row can be
    1e-17 instead of 0, and no value may be divided by it.

    References
    ----------
    T. F. Chan, G. H. Golub and R. J. LeVeque (1983), Algorithms for computing the sample variance.
    """
    rows = x.size if axis is None else x.shape[axis]
    mean, variance = x.mean(axis=axis), x.var(axis=axis)
    epsilon = np.finfo(np.float64).eps
    return variance <= rows * epsilon * variance + (rows * mean * epsilon) ** 2
