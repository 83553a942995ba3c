"""How good predicted numbers are: NumPy in, numbers out.

Every metric is a mean over observations, whose arrays have shape ``(observation,)``.
"""

import numpy as np

LEVELS = (0.5, 0.9, 0.95)
"""Probabilities of the central intervals whose coverage is told."""


def rmse(mean: np.ndarray, target: np.ndarray) -> float:
    """Root of the mean squared error, in the targets' units."""
    return float(np.sqrt(np.mean((mean - target) ** 2)))


def coverage(cdf: np.ndarray, level: float) -> float:
    """Share of targets within their central predictive interval.

    Parameters
    ----------
    cdf
        Predicted probability of less than each target.
    level
        Probability of the interval, which a calibrated prediction reaches.
    """
    return float(np.mean(np.abs(cdf - 0.5) <= level / 2))


def regression_metrics(
    mean: np.ndarray,
    target: np.ndarray,
    log_density: np.ndarray,
    cdf: np.ndarray,
    crps: np.ndarray,
) -> dict[str, float]:
    """All metrics by name.

    ``nll`` is in nats an observation, of density in the targets' units; ``coverage_90`` is that
    of intervals of probability 0.9.
    """
    found = {
        "rmse": rmse(mean, target),
        "nll": float(-np.mean(log_density)),
        "crps": float(np.mean(crps)),
    }
    return found | {f"coverage_{100 * level:.0f}": coverage(cdf, level) for level in LEVELS}
