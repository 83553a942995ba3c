"""Convergence of a fit, from window means of its noisy ELBO."""

from typing import Literal, NamedTuple

import numpy as np

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
    objective: str = "ELBO",
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
    objective
        What is maximised, in words.
    """
    bad = np.flatnonzero(~np.isfinite(history))
    if bad.size:
        return "diverged", f"the {objective} was not finite by step {step[bad[0]]}"
    if not is_finite:
        return "diverged", "some parameter of the guide is not finite"
    if improper:
        return "improper", "the posterior is improper, its ELBO has no maximum"
    gain = late_gain(history, step, rate_sums)
    if gain is None:
        return "not_converged", "too few steps to tell"
    status = "converged" if gain.is_within(STANDARD_ERRORS) else "not_converged"
    change = f"{gain.value:.3g} ± {gain.error:.2g}"
    return status, f"the last tenth of the way raised the {objective} by {change}"
