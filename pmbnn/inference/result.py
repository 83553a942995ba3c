"""Inputs and results of a fit, whatever the engine."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pmbnn.core.display import Summarised
from pmbnn.inference.convergence import Status
from pmbnn.inference.settings import Inference


@dataclass(frozen=True, repr=False)
class PrngKeys(Summarised):
    """Independent PRNG keys of one fit, each ``(4,)`` unsigned 32-bit words."""

    initial: np.ndarray
    noise: np.ndarray
    batches: np.ndarray
    draws: np.ndarray


def derive_keys(identity: str) -> PrngKeys:
    """PRNG keys from the identity of a fit alone."""
    entropy = list(hashlib.sha256(identity.encode()).digest())
    return PrngKeys(*np.random.SeedSequence(entropy).generate_state(16).reshape(4, 4))


@dataclass(frozen=True, repr=False)
class Replica(Summarised):
    """One fit of a group: the values of the model's data variables and its PRNG keys.

    ``learning_rate`` is by default that of the settings.
    """

    data: Mapping[str, np.ndarray]
    keys: PrngKeys
    learning_rate: float | None = None

    @property
    def key(self) -> np.ndarray:
        """Key of the noise of the steps, ``(2,)`` unsigned 32-bit words."""
        return np.asarray(self.keys.noise[:2], np.uint32)

    def highest_rate(self, settings: Inference) -> float:
        """The highest learning rate of the fit under these settings."""
        rate = settings.learning_rate if self.learning_rate is None else self.learning_rate
        return float(rate)


@dataclass(frozen=True, repr=False)
class History(Summarised):
    """Means over windows of steps, ``(window,)`` each; nats, summed over observations.

    Attributes
    ----------
    step
        Steps done at the end of each window.
    elbo
        Log-likelihood minus the divergence at its full weight, which is maximised.
    log_likelihood
        Expected log-likelihood of all observations.
    kl
        Divergence of the guide from the prior, unweighted. The mean of an exact divergence over a
        window is that of a straight line between the ends of the window.
    """

    step: np.ndarray
    elbo: np.ndarray
    log_likelihood: np.ndarray
    kl: np.ndarray


@dataclass(frozen=True, repr=False)
class Snapshot(Summarised):
    """A fit after ``step`` steps.

    Attributes
    ----------
    constrained, scale
        See `Fit`.
    kl
        Divergence of the guide from the prior in nats, unweighted; at one draw if it is not known
        exactly.
    """

    step: int
    constrained: Mapping[str, np.ndarray]
    scale: np.ndarray
    kl: float


class ToOptimum(NamedTuple):
    """Distance of the means of a guide from those of highest ELBO.

    Attributes
    ----------
    distance
        The largest of its elements, in standard deviations of the guide.
    error
        The largest Monte-Carlo error of its elements, in the same unit.
    gain
        Gain of the ELBO on the way there, in nats.
    """

    distance: float
    error: float
    gain: float


@dataclass(frozen=True, repr=False)
class Fit(Summarised):
    """A fitted guide.

    Attributes
    ----------
    constrained
        Constrained parameters of the guide in unconstrained space, by name.
    scale
        Standard deviation of every element, ``(size,)``.
    history
        The ELBO during the fit.
    elbo
        Mean ELBO over the last tenth of the steps.
    status, reason
        The verdict on convergence, and its reason.
    keys
        The PRNG keys; draws are regenerated from them.
    learning_rate
        The highest learning rate that was used.
    kl_forms
        How the divergence of each free variable was computed: ``exact`` or ``monte_carlo``.
    snapshots
        The fit at the requested steps.
    replica
        Number of the replica in the call, from 0.
    to_optimum
        Distance from the optimum; None where it was not looked for or not found.
    """

    constrained: Mapping[str, np.ndarray]
    scale: np.ndarray
    history: History
    elbo: float
    status: Status
    reason: str
    keys: PrngKeys
    learning_rate: float = float("nan")
    kl_forms: Mapping[str, str] = field(default_factory=dict)
    snapshots: tuple[Snapshot, ...] = ()
    replica: int = 0
    to_optimum: ToOptimum | None = None

    @property
    def draw_key(self) -> np.ndarray:
        """Key of the draws, unsigned 32-bit words."""
        return self.keys.draws

    @property
    def loc(self) -> np.ndarray:
        """Means of the guide, ``(size,)``."""
        return self.constrained["loc"]

    @property
    def failed(self) -> bool:
        """Whether the fit diverged, so that it has no predictions."""
        return self.status == "diverged"


Progress = Callable[[int, int, float, Callable[[], Fit]], str | None]
"""Called with the number of steps done and in all, the latest mean ELBO of the replicas that have
not diverged, and a function that returns the current fit of the first replica of the program, whose
number is its ``replica``. The text that it returns is shown with the progress."""
