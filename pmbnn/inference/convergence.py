"""Has a fit converged? Told from window means of its noisy ELBO."""

from typing import Literal, NamedTuple

import numpy as np

Status = Literal["converged", "not_converged", "diverged", "improper"]

TAIL = 0.1
"""Share of the way at the end whose ELBO is compared with that of an equal share before."""

FEWEST_WINDOWS = 5
"""Windows that such a share needs for its standard error to mean something."""

STANDARD_ERRORS = 2.0
"""Gains within this many standard errors are noise."""

OF_ELBO, A_ROW = 1e-3, 1e-4
"""Gains within this share of the ELBO, or this many nats an observation, are small enough."""


class Gain(NamedTuple):
    """By how much the ELBO rose over the end of a fit, its standard error, and enough to stop.

    Nats, summed over observations.
    """

    value: float
    error: float
    is_small: bool


def final_mean(history: np.ndarray) -> float:
    """Mean of the last tenth of the windows, at least one."""
    return float(np.mean(history[-max(1, round(TAIL * len(history))) :]))


def late_gain(history: np.ndarray, way: np.ndarray, rows: int) -> Gain | None:
    """Gain of the last tenth of the way over the tenth before; None if it is too short to tell.

    Parameters
    ----------
    history
        Mean ELBO of each window, ``(window,)``.
    way
        Sum of the learning rates of the steps in each window, ``(window,)``. Under a schedule
        that falls to zero, the last steps hardly move, and would make any fit look settled.
    rows
        Observations that the ELBO is summed over.
    """
    done = np.cumsum(way) / np.sum(way)
    last = history[done > 1 - TAIL + 1e-9]
    before = history[(done > 1 - 2 * TAIL + 1e-9) & (done <= 1 - TAIL + 1e-9)]
    if min(len(last), len(before)) < FEWEST_WINDOWS:
        return None
    value = float(last.mean() - before.mean())
    error = float(np.sqrt(last.var(ddof=1) / len(last) + before.var(ddof=1) / len(before)))
    enough = max(STANDARD_ERRORS * error, OF_ELBO * abs(float(last.mean())), A_ROW * rows)
    return Gain(value, error, value <= enough)


def verdict(
    history: np.ndarray,
    step: np.ndarray,
    way: np.ndarray,
    rows: int,
    is_finite: bool,
    improper: bool,
) -> tuple[Status, str]:
    """Status of a fit, and a few words on it.

    Parameters
    ----------
    history, step, way
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
    gain = late_gain(history, way, rows)
    if gain is None:
        return "not_converged", "too few steps to tell"
    words = f"the last tenth of the way raised the ELBO by {gain.value:.3g} ± {gain.error:.2g}"
    return ("converged" if gain.is_small else "not_converged"), words
