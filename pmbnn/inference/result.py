"""Inputs and results of a fit, whatever the engine."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from pmbnn.core.display import Summarised
from pmbnn.inference.settings import Inference

# Convergence of a fit, from window means of its noisy ELBO


Status = Literal["converged", "not_converged", "diverged", "improper"]

TAIL = 0.1
"""Share of a fit at its end whose ELBO is compared with that of an equal share before. Shares refer
to the sum of all learning rates."""

FEWEST_WINDOWS = 5
"""Fewest windows of such a share, for its standard error to be meaningful."""

STANDARD_ERRORS = 3.0
"""A fit whose ELBO gained at most this number of standard errors has converged."""

STOPPING_TAIL, STOPPING_WINDOWS, STOPPING_ERRORS = 0.25, 20, 1.0
"""The same for early stopping, with a longer share and a smaller tolerance: a fit that stops gives
up further gains."""

TREND = 4
"""Number of shares of a fit that a trend is estimated from under a falling learning rate."""

COLLINEAR = 2e-3
"""Smallest relative singular value of that regression for a trend to be distinguished from the fall
of the learning rate. That of cosine and one-cycle schedules is above .013, that of an exponential
one below 4e-4 whatever the windows, that of a constant one 0."""

A_NAT, OF_ELBO = 1.0, 1e-3
"""Gains that are small whatever the noise: one nat, which as evidence is not worth more than a bare
mention (Kass and Raftery 1995, section 3.2), or this share of the ELBO."""


class Gain(NamedTuple):
    """Rise of the ELBO over the end of a fit.

    Attributes
    ----------
    value, error
        The gain and its standard error, in nats, summed over observations.
    small
        A gain that is small whatever the noise.
    """

    value: float
    error: float
    small: float

    def is_within(self, errors: float) -> bool:
        """Whether the gain is small, or within this number of standard errors."""
        return self.value <= max(errors * self.error, self.small)


def final_mean(history: np.ndarray) -> float:
    """Mean of the last tenth of the windows, at least one."""
    return float(np.mean(history[-max(1, round(TAIL * len(history))) :]))


def late_gain(
    history: np.ndarray,
    step: np.ndarray,
    rate_sums: np.ndarray,
    share: float = TAIL,
    fewest: int = FEWEST_WINDOWS,
) -> Gain | None:
    """Gain of the last `share` of a fit over an equal share before.

    None if either share has fewer than `fewest` windows. Under a falling learning rate, the gain
    that the fall explains is excluded, unless the two cannot be distinguished: an exponential fall
    is a straight line in the sum of rates. Windows are weighted by their lengths.

    Parameters
    ----------
    history
        Mean ELBO of each window, ``(window,)``.
    step
        Steps done at the end of each window, ``(window,)``.
    rate_sums
        Sum of the learning rates of the steps in each window, ``(window,)``. Shares of steps would
        not do: under a schedule that falls to zero, the last steps hardly change any fit.
    """
    done = np.cumsum(rate_sums) / np.sum(rate_sums)
    last = done > 1 - share + 1e-9
    before = (done > 1 - 2 * share + 1e-9) & ~last
    if min(last.sum(), before.sum()) < fewest:
        return None
    small = max(A_NAT, OF_ELBO * abs(float(history[last].mean())))
    length = np.diff(step, prepend=0)
    # Relative to the longest, so that windows of one length all have weight 1.
    weight = length / length.max()
    rate, tail = rate_sums / weight, done > 1 - TREND * share
    design = np.stack([np.ones_like(done), rate / rate[tail].max(), done], axis=1)[tail]
    if np.linalg.matrix_rank(design, rtol=COLLINEAR) < design.shape[1]:
        parts = ((history[part], weight[part]) for part in (last, before))
        return Gain(*_difference(*parts), small)
    return Gain(*_drift(history[tail], design, weight[tail], share), small)


def _difference(last: tuple, before: tuple) -> tuple[float, float]:
    """Difference of two weighted means and its standard error."""
    (mean, variance), (mean_before, variance_before) = _mean(*last), _mean(*before)
    return float(mean - mean_before), float(np.sqrt(variance + variance_before))


def _mean(history: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Weighted mean and its variance, for noise whose variance falls with the weight."""
    mean = np.average(history, weights=weight)
    variance = np.sum(weight * (history - mean) ** 2) / (len(history) - 1)
    return mean, variance / weight.sum()


def _drift(
    history: np.ndarray, design: np.ndarray, weight: np.ndarray, share: float
) -> tuple[float, float]:
    """Rise of the ELBO over a share of a fit at an unchanged rate, and its standard error.

    A falling rate lets the parameters settle and so raises the ELBO of any fit, in proportion to
    the rate. Weighted least squares on a constant, the rate, and the share of the fit that is done
    separate that part.
    """
    root = np.sqrt(weight)
    design, history = design * root[:, None], history * root
    solution, *_ = np.linalg.lstsq(design, history)
    residual = history - design @ solution
    variance = residual @ residual / (len(history) - design.shape[1])
    covariance = variance * np.linalg.inv(design.T @ design)
    return float(share * solution[2]), float(share * np.sqrt(covariance[2, 2]))


def may_stop(history: np.ndarray, step: np.ndarray, rate_sums: np.ndarray) -> bool:
    """Whether a fit has no visible gain any more, so that it may stop early."""
    gain = late_gain(history, step, rate_sums, STOPPING_TAIL, STOPPING_WINDOWS)
    return gain is not None and gain.is_within(STOPPING_ERRORS)


def verdict(
    history: np.ndarray,
    step: np.ndarray,
    rate_sums: np.ndarray,
    is_finite: bool,
    improper: bool,
) -> tuple[Status, str]:
    """Status of a fit, and the reason.

    Parameters
    ----------
    history, step, rate_sums
        Mean ELBO of each window, steps done at its end, and sum of its learning rates.
    is_finite
        Whether all parameters of the guide are.
    improper
        Whether the ELBO has no maximum.
    """
    bad = np.flatnonzero(~np.isfinite(history))
    if bad.size:
        return "diverged", f"the ELBO was not finite by step {step[bad[0]]}"
    if not is_finite:
        return "diverged", "some parameter of the guide is not finite"
    if improper:
        return "improper", "the posterior is improper, its ELBO has no maximum"
    gain = late_gain(history, step, rate_sums)
    if gain is None:
        return "not_converged", "too few steps to tell"
    status = "converged" if gain.is_within(STANDARD_ERRORS) else "not_converged"
    reason = f"the last tenth of the way raised the ELBO by {gain.value:.3g} ± {gain.error:.2g}"
    return status, reason


Progress = Callable[[int, int, float, Callable[[], "Fit"]], str | None]
"""Called with the number of steps done and in all, the latest mean ELBO of the replicas that have
not diverged, and a function that returns the current fit of the first replica of the program, whose
number is its ``replica``. The text that it returns is shown with the progress."""


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
