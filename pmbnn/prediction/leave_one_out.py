"""Pareto-smoothed importance sampling: leave-one-out log densities, and k-hat of ratios."""

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

USABLE = 0.7
"""Largest k-hat of importance weights whose averages can be relied on (Vehtari et al., 2024, Pareto
Smoothed Importance Sampling)."""

LEAST_DRAWS = 30
"""Fewer draws have no tail to fit a Pareto distribution to: the largest fifth are five or fewer, of
which ArviZ has no k-hat."""


EQUAL = 1e-12
"""Largest difference of the logarithms of ratios that are the same but for rounding."""


def pareto_k(log_ratio: np.ndarray) -> float:
    """Pareto k-hat of importance ratios, given their logarithms ``(draw,)``.

    Not a number for fewer than `LEAST_DRAWS`, or where some ratio is not finite; −∞ where the
    largest are all the same.
    """
    from arviz_stats.base import array_stats

    if len(log_ratio) < LEAST_DRAWS or not np.isfinite(log_ratio).all():
        return float("nan")
    if not _have_tails(-log_ratio[None])[0]:
        return float("-inf")
    # It takes what leave-one-out has: the logarithms of the ratios' inverses.
    return float(array_stats.psislw(-log_ratio)[1])


def leave_one_out(log_likelihood: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Leave-one-out log density of each row, and k-hat of its importance ratios.

    Parameters
    ----------
    log_likelihood
        Log-likelihood of every row at draws given all rows, ``(draw, observation)``, nats.

    Returns
    -------
    tuple of np.ndarray
        Nats and k-hat, ``(observation,)`` each; k-hat is −∞ for a row whose largest ratios are
        all the same.

    References
    ----------
    Vehtari, Gelman and Gabry (2017), Practical Bayesian model evaluation using leave-one-out
    cross-validation and WAIC.
    """
    # Not at the top: it loads xarray and SciPy's statistics.
    from arviz_stats.base import array_stats

    by_row = log_likelihood.T.astype(np.float64)
    draws = by_row.shape[1]
    log_density = np.log(draws) - logsumexp(-by_row, axis=1)
    k = np.full(len(by_row), -np.inf)
    # A likelihood that rounds to one at many draws, or to zero, has no tail to fit, and needs none
    # smoothed.
    has_tail = _have_tails(by_row)
    if has_tail.any():
        log_density[has_tail], k[has_tail], _ = array_stats.loo(by_row[has_tail], chain_axis=None)
    return log_density, k


def _have_tails(log_inverse: np.ndarray) -> np.ndarray:
    """Whether the largest ratios differ, ``(row,)``, from logs of inverses ``(row, draw)``."""
    draws = log_inverse.shape[1]
    tail = int(min(draws / 5, 3 * np.sqrt(draws)))
    lowest = np.partition(log_inverse, tail - 1, axis=1)[:, :tail]
    return np.ptp(lowest, axis=1) > EQUAL


def leave_one_out_of_guide(
    log_likelihood: np.ndarray, log_ratio: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Leave-one-out log density of each row by draws of a guide, and k-hat of their weights.

    Weights are from the guide to the posterior without the row.

    Parameters
    ----------
    log_likelihood
        Log-likelihood of every row at draws of the guide, ``(draw, observation)``, nats.
    log_ratio
        Logarithm of the joint density less that of the guide, ``(draw,)``.

    Returns
    -------
    tuple of np.ndarray
        Nats and k-hat, ``(observation,)`` each.

    References
    ----------
    Magnusson, Andersen, Jonasson and Vehtari (2019), Bayesian leave-one-out cross-validation for
    large data, section 2.
    """
    from arviz_stats.base import array_stats

    by_row = log_likelihood.T.astype(np.float64)
    weights, k = array_stats.psislw(by_row - log_ratio)
    return logsumexp(weights + by_row, axis=1) - logsumexp(weights, axis=1), k


# Stacking: weights of several fits, by their leave-one-out densities


SMALLEST = 1e-4
"""Weights below are zero: they move no probability by more, and cost as many draws as others."""


def stacking_weights(log_likelihoods: Sequence[np.ndarray]) -> np.ndarray:
    """Weights whose mixture of fits has the highest leave-one-out log score, ``(fit,)``.

    Each fit's density of a row left out is estimated by Pareto-smoothed importance sampling, its
    draws taken as those of a posterior of its own.

    Parameters
    ----------
    log_likelihoods
        Log-likelihood of every row at every draw of a fit, ``(draw, observation)``, nats.

    References
    ----------
    Yao, Vehtari and Gelman (2022), Stacking for non-mixing Bayesian computations, equations 2-4.
    """
    log_densities = [leave_one_out(log_likelihood)[0] for log_likelihood in log_likelihoods]
    return highest_log_score(np.stack(log_densities, axis=1))


def highest_log_score(log_densities: np.ndarray) -> np.ndarray:
    """Weights on the simplex whose mixture has the highest mean log-density.

    Parameters
    ----------
    log_densities
        ``(observation, fit)``, nats.
    """
    from scipy.optimize import minimize

    count = log_densities.shape[1]
    best = log_densities.max(axis=1, keepdims=True)
    relative = np.exp(log_densities - best)

    def loss(weights):
        return -float(np.mean(np.log(relative @ weights)))

    def gradient(weights):
        return -(relative / (relative @ weights)[:, None]).mean(axis=0)

    # The mean log-density is concave, and mixtures of every fit are finite: any start will do.
    optimum = minimize(
        loss,
        np.full(count, 1 / count),
        jac=gradient,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-10, "maxiter": 500},
    )
    weights = np.clip(optimum.x, 0.0, None)
    # Smaller weights are rounding of the optimiser.
    weights[weights < SMALLEST] = 0.0
    return weights / weights.sum()
