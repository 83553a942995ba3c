"""Monte-Carlo errors of what independent chains predict together, told by leaving each out."""

from collections.abc import Iterator, Sequence

import numpy as np
from scipy.special import logsumexp

from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.predictive import Predictive


def jackknife_error(of_others: Sequence[float] | Sequence[np.ndarray]) -> np.ndarray:
    """Standard error of a statistic of all chains, or of an array of them.

    Parameters
    ----------
    of_others
        The statistic without each of the chains in turn, ``(chain, ...)``.

    References
    ----------
    Efron and Stein (1981), The Jackknife Estimate of Variance.
    """
    return np.sqrt((len(of_others) - 1) * np.var(of_others, axis=0))


def probabilities_without_each(chains: Sequence[ClassProbabilities]) -> Iterator[np.ndarray]:
    """Class probabilities without each of the chains in turn, ``(observation, class)``."""
    return without_each([np.asarray(chain.mean, np.float64) for chain in chains])


def nll_without_each(chains: Sequence[Predictive], target: np.ndarray) -> list[float]:
    """Mean negative log-score of the targets without each chain in turn, nats, ``(chain,)``."""
    scores = np.stack([chain.log_score(target) for chain in chains])
    # As logarithms: the density of a target far from every other chain is too small for a number.
    others = (np.delete(scores, left, axis=0) for left in range(len(scores)))
    return [-float((logsumexp(of, axis=0) - np.log(len(of))).mean()) for of in others]


def without_each(values: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Means of non-negative values without each of them in turn."""
    # Rounding may leave a probability of the others a trace below zero.
    return (np.maximum(left, 0) for left in means_without_each(values))


def means_without_each(values: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Means of values without each of them in turn."""
    total, others = sum(values), len(values) - 1
    return ((total - value) / others for value in values)


# Moments of an output: over chains they average, as its standard deviation does not


def moments_about(centre: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """First two moments about a centre, ``(..., 2, row)``, double precision.

    Parameters
    ----------
    centre
        ``(row,)``; close to the means, so that no digits are lost.
    mean, sd
        ``(..., row)``, as of each of several chains.
    """
    mean, sd = (np.asarray(v, np.float64) for v in (mean, sd))
    return np.stack([mean - centre, sd**2 + (mean - centre) ** 2], axis=-2)


def sd_of(moments: np.ndarray) -> np.ndarray:
    """Standard deviations of moments about some centre, ``(..., 2, row)``; never zero."""
    first, second = moments[..., 0, :], moments[..., 1, :]
    return np.sqrt(np.maximum(second - first**2, np.finfo(float).tiny))
