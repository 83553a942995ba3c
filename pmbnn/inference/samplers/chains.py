"""Draws of chains, whichever sampler makes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import numpy as np

from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.spec.display import Summarised

# Have chains converged? Told from functions of their draws
#
# Weights of a network have many equivalent places, which chains need not visit all of to agree on
# every prediction. What is compared between chains is therefore what is predicted.


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


@dataclass(frozen=True, eq=False, repr=False)
class Chains(Summarised):
    """Draws of all chains.

    Attributes
    ----------
    values
        Unconstrained vectors, ``(chain, draw, size)``.
    statistics
        Of each draw, ``(chain, draw)``, by the name that ArviZ has for it: ``lp``, the log-density
        in nats, ``diverging``, and what else a sampler knows.
    broken
        Chains that draws are not to be taken from: they met a log-density or a gradient that is not
        finite, ``(chain,)``.
    """

    values: np.ndarray
    statistics: Mapping[str, np.ndarray]
    broken: np.ndarray

    @property
    def draws(self) -> int:
        """Draws of each chain."""
        return self.values.shape[1]

    @property
    def merged(self) -> np.ndarray:
        """Draws of all chains one after the other, ``(chain · draw, size)``."""
        return self.values.reshape(-1, self.values.shape[-1])

    def followed_by(self, later: "Chains") -> "Chains":
        """The same chains with later draws."""
        return Chains(
            np.concatenate([self.values, later.values], axis=1),
            {
                name: np.concatenate([array, later.statistics[name]], axis=1)
                for name, array in self.statistics.items()
            },
            self.broken | later.broken,
        )


class Evidence(NamedTuple):
    """Logarithm of the evidence, and its standard error as independent runs tell it; in nats."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"

    @classmethod
    def of(cls, runs: np.ndarray) -> "Evidence":
        """From log-evidences of runs, each as often as it has draws; two runs at least.

        The estimate of a run is unbiased before its logarithm is taken: the mean is one of
        evidences.
        """
        runs = np.unique(np.asarray(runs, np.float64))
        ratios = np.exp(runs - runs.max())
        error = ratios.std(ddof=1) / np.sqrt(len(runs)) / ratios.mean()
        return cls(float(runs.max() + np.log(ratios.mean())), float(error))


class Tuning(NamedTuple):
    """How chains move.

    Attributes
    ----------
    failed
        Chains that could not be tuned, ``(chain,)``.
    values
        What they were tuned to, by name.
    """

    failed: np.ndarray
    values: Mapping[str, float]


class Sampler[State](Protocol):
    """All chains of a model as compiled programs, for any data of the same shapes.

    Its methods are called within ``precision(density.dtype)``, with the prepared data and an
    identity that decides every random number. The state of its chains is a tree of arrays.

    Attributes
    ----------
    density, settings
        Whose draws, and how.
    """

    density: LogDensity
    settings: Sampling

    def start(self, prepared: tuple, identity: str) -> State:
        """Chains that are tuned, before their first draw."""

    def shapes(self, prepared: tuple) -> State:
        """Shapes and types of the arrays of a state; nothing is computed."""

    def extend(self, state: State, prepared: tuple, identity: str) -> tuple[State, Chains]:
        """Chains after their next `settings.draws` draws, and these."""

    def tuning(self, state: State) -> Tuning:
        """How chains were tuned."""


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Summarised):
    """Draws from a posterior, and what is to be thought of them.

    Attributes
    ----------
    chains
        The draws.
    status, reason
        ``converged``; ``undecided``, where chains still disagree; ``diverged``, where some chain
        met a density that is not finite. And a few words on it, among them whether a prior has no
        density that integrates to one.
    convergence
        Agreement of the chains; None where some chain is broken.
    tuned
        What the chains were tuned to, by name.
    evidence
        That of all draws, where the chains hold a part of them only.
    """

    chains: Chains
    status: Status
    reason: str
    convergence: Convergence | None
    tuned: Mapping[str, float]
    evidence: Evidence | None = None

    @property
    def log_evidence(self) -> Evidence | None:
        """Logarithm of the evidence; None where a sampler does not know it or a run is broken."""
        runs = self.chains.statistics.get("log_evidence")
        if self.evidence is not None:
            return self.evidence
        return None if runs is None or self.chains.broken.any() else Evidence.of(runs)
