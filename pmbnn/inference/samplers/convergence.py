"""Have chains converged? Told from functions of their draws.

Weights of a network have many equivalent places, which chains need not visit all of to agree on
every prediction. What is compared between chains is therefore what is predicted.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

Status = Literal["converged", "undecided", "diverged"]

PERCENTILE, AT_PERCENTILE = 95, 1.02
LARGEST = 1.05
"""R-hat of this percentile of the functions, and of the worst of them, may be as large as that.

For single parameters 1.01 is the advice (Vehtari et al. 2021); the largest of hundreds of
functions is above that by chance alone."""


@dataclass(frozen=True)
class Convergence:
    """How well chains agree on functions of their draws.

    Attributes
    ----------
    percentile, largest
        R-hat that 95 % of the functions are below, and that of the worst; 1 where all are constant.
    draws
        Draws of each chain that it was told from.
    """

    percentile: float
    largest: float
    draws: int

    @property
    def passed(self) -> bool:
        """Whether the draws may be taken for those of one distribution."""
        return self.percentile <= AT_PERCENTILE and self.largest <= LARGEST

    def __str__(self) -> str:
        at_percentile = f"R-hat {self.percentile:.3f} at the {PERCENTILE}th percentile"
        return f"{at_percentile}, {self.largest:.3f} at most"

    @classmethod
    def of(cls, values: np.ndarray) -> "Convergence":
        """From values of functions, ``(chain, draw, function)``."""
        found = function_rhat(values)
        with np.errstate(invalid="ignore"):
            percentile = np.percentile(found, PERCENTILE)
        # Between two infinities there is no number.
        percentile = np.inf if np.isnan(percentile) else percentile
        return cls(float(percentile), float(found.max()), values.shape[1])


def function_rhat(values: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of every function, ``(function,)``.

    Parameters
    ----------
    values
        ``(chain, draw, function)``, of which at least two chains and four draws.

    Returns
    -------
    np.ndarray
        1 of a function that is the same constant in every draw, infinity where it has none: some
        value is not finite, or it is another constant in each chain.

    References
    ----------
    Vehtari et al. (2021), Rank-normalization, folding, and localization: An improved R-hat for
    assessing convergence of MCMC, section 4.
    """
    from arviz_stats.base import array_stats

    values = np.asarray(values)
    usable = np.isfinite(values).all(axis=(0, 1))
    constant = usable & (np.ptp(values, axis=(0, 1)) == 0)
    found = np.where(constant, 1.0, np.inf)
    varying = usable & ~constant
    if varying.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            of = array_stats.rhat(values[..., varying], chain_axis=0, draw_axis=1)
        found[varying] = np.where(np.isnan(of), np.inf, of)
    return found
