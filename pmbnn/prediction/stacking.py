"""Stacking: weights of several fits, chosen by what each says of rows that it leaves out."""

from collections.abc import Sequence

import numpy as np

from pmbnn.prediction.leave_one_out import leave_one_out

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
    left_out = [leave_one_out(of_fit)[0] for of_fit in log_likelihoods]
    return highest_log_score(np.stack(left_out, axis=1))


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
    found = minimize(
        loss,
        np.full(count, 1 / count),
        jac=gradient,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-10, "maxiter": 500},
    )
    weights = np.clip(found.x, 0.0, None)
    # What the optimiser leaves of a fit without a share is rounding.
    weights[weights < SMALLEST] = 0.0
    return weights / weights.sum()
