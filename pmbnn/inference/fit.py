"""What goes into a fit and what comes out of it, whatever the engine."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

Status = Literal["converged", "not_converged", "diverged", "improper"]

Progress = Callable[[int, int, float], None]
"""Called with steps done, steps in all and the latest mean ELBO of the members still alive."""

WINDOW = 0.1
"""Share of the steps at the end whose mean is the final ELBO."""


@dataclass(frozen=True)
class Streams:
    """Independent random streams of one fit, each ``(4,)`` unsigned 32-bit words."""

    initial: np.ndarray
    noise: np.ndarray
    batches: np.ndarray
    draws: np.ndarray


def random_streams(identity: str) -> Streams:
    """Streams that depend on the identity of a fit, and on nothing around it."""
    entropy = list(hashlib.sha256(identity.encode()).digest())
    words = np.random.SeedSequence(entropy).generate_state(16)
    return Streams(*words.reshape(4, 4))


@dataclass(frozen=True)
class Member:
    """One fit of a group: the values of the model's data variables and its random streams."""

    data: Mapping[str, np.ndarray]
    streams: Streams


@dataclass(frozen=True)
class Fit:
    """A fitted mean-field guide.

    Attributes
    ----------
    loc, scale
        Means and standard deviations in unconstrained space, ``(size,)``.
    elbo_history
        Mean ELBO of each window of steps, ``(window,)``, in nats, summed over observations.
    elbo_step
        Steps done at the end of each window, ``(window,)``.
    elbo
        Mean ELBO over the last tenth of the steps.
    status, reason
        The verdict, and a few words on it.
    streams
        The random streams; draws are regenerated from them.
    """

    loc: np.ndarray
    scale: np.ndarray
    elbo_history: np.ndarray
    elbo_step: np.ndarray
    elbo: float
    status: Status
    reason: str
    streams: Streams

    @property
    def failed(self) -> bool:
        """Whether there is nothing to predict with."""
        return self.status == "diverged"


def final_elbo(history: np.ndarray) -> float:
    """Mean of the last tenth of the windows, at least one."""
    return float(np.mean(history[-max(1, round(WINDOW * len(history))) :]))


def verdict(
    history: np.ndarray, step: np.ndarray, loc: np.ndarray, scale: np.ndarray, improper: bool
) -> tuple[Status, str]:
    """Status of a fit and the reason, from its ELBO history and its final parameters.

    A fit has converged if the mean ELBO of its last tenth exceeds that of the tenth before by
    no more than three standard errors of the difference, or by a thousandth of its value.
    """
    bad = np.flatnonzero(~np.isfinite(history))
    if bad.size:
        return "diverged", f"the ELBO was not finite by step {step[bad[0]]}"
    if not (np.isfinite(loc).all() and np.isfinite(scale).all()):
        return "diverged", "some parameter of the guide is not finite"
    if improper:
        return "improper", "the posterior is improper, its ELBO has no maximum"
    n = max(1, round(WINDOW * len(history)))
    if len(history) < 2 * n or n < 2:
        return "not_converged", "too few steps to tell"
    last, before = history[-n:], history[-2 * n : -n]
    gain = float(last.mean() - before.mean())
    error = float(np.sqrt((last.var(ddof=1) + before.var(ddof=1)) / n))
    words = f"the last tenth of the steps raised the ELBO by {gain:.3g} ± {error:.2g}"
    settled = gain <= max(3 * error, 1e-3 * abs(float(last.mean())))
    return ("converged" if settled else "not_converged"), words
