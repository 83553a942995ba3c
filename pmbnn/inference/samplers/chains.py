"""Draws of chains, whichever sampler makes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.samplers.convergence import Convergence, Status
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.spec.display import Summarised


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
