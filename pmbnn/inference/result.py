"""What goes into a fit and what comes out of it, whatever the engine."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pmbnn.inference.convergence import Status
from pmbnn.inference.settings import Inference
from pmbnn.spec.display import Summarised

Progress = Callable[[int, int, float, Callable[[], "Fit"]], str | None]
"""Called with steps done, steps in all, the latest mean ELBO of the replicas still alive, and a
function that gives the fit as it is then: that of the first replica where a program runs several.
Its ``replica`` tells whose it is. What it returns is told with the stage."""


@dataclass(frozen=True, repr=False)
class PrngKeys(Summarised):
    """Independent PRNG keys of one fit, each ``(4,)`` unsigned 32-bit words."""

    initial: np.ndarray
    noise: np.ndarray
    batches: np.ndarray
    draws: np.ndarray


def derive_keys(identity: str) -> PrngKeys:
    """PrngKeys that depend on the identity of a fit, and on nothing around it."""
    entropy = list(hashlib.sha256(identity.encode()).digest())
    words = np.random.SeedSequence(entropy).generate_state(16)
    return PrngKeys(*words.reshape(4, 4))


@dataclass(frozen=True, repr=False)
class Replica(Summarised):
    """One fit of a group: the values of the model's data variables and its PRNG keys.

    ``learning_rate`` is that of the settings unless given.
    """

    data: Mapping[str, np.ndarray]
    keys: PrngKeys
    learning_rate: float | None = None

    @property
    def key(self) -> np.ndarray:
        """Key of the noise of its steps, ``(2,)`` unsigned 32-bit words."""
        return np.asarray(self.keys.noise[:2], np.uint32)

    def highest_rate(self, settings: Inference) -> float:
        """The highest learning rate of its fit by these settings."""
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
        What is maximised at the full KL weight: log-likelihood less the weighted divergence.
    log_likelihood
        Expected log-likelihood of all observations.
    kl
        Divergence of the guide from the prior, unweighted; where it is exact, its mean over a
        window is that of a straight line between the window's ends.
    """

    step: np.ndarray
    elbo: np.ndarray
    log_likelihood: np.ndarray
    kl: np.ndarray


@dataclass(frozen=True, repr=False)
class Snapshot(Summarised):
    """A fit on its way, after ``step`` steps.

    Attributes
    ----------
    constrained, scale
        As those of `Fit`.
    kl
        Divergence of the guide from the prior in nats, unweighted; at one draw where it is not
        known exactly.
    """

    step: int
    constrained: Mapping[str, np.ndarray]
    scale: np.ndarray
    kl: float


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
        The ELBO on the way there.
    elbo
        Mean ELBO over the last tenth of the steps.
    status, reason
        The verdict, and a few words on it.
    keys
        The PRNG keys; draws are regenerated from them.
    learning_rate
        The highest that was used.
    kl_forms
        How the divergence of each free variable was taken: ``exact`` or ``monte_carlo``.
    snapshots
        The fit at the steps that were asked for.
    replica
        Which of the replicas of one call it is of, from 0.
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

    @property
    def draw_key(self) -> np.ndarray:
        """Key that its draws come from, unsigned 32-bit words."""
        return self.keys.draws

    @property
    def loc(self) -> np.ndarray:
        """Means of the guide, ``(size,)``."""
        return self.constrained["loc"]

    @property
    def failed(self) -> bool:
        """Whether there is nothing to predict with."""
        return self.status == "diverged"
