"""Whether posterior draws are calibrated, told by the ranks of known truths among them.

Truths are drawn from a distribution, data simulated from each, and draws of the posterior given
those data taken: if the draws are of that posterior, the rank of a function of the truth among
the same function of the draws is uniform on 0, …, number of draws. That the ranks of one function
are uniform is necessary, not sufficient: a function of the parameters alone finds nothing wrong
with draws from the prior, which a function of the data as well, such as the log-likelihood, does.

References
----------
Talts et al. (2018), Validating Bayesian Inference Algorithms with Simulation-Based Calibration;
Modrák et al. (2023), Simulation-Based Calibration Checking for Bayesian Computation: The Choice of
Test Quantities Shapes Sensitivity; Yao et al. (2018), Yes, but Did It Work?: Evaluating Variational
Inference, section 3 (the same of variational approximations).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

type Verdict = Literal["calibrated", "miscalibrated"]

ERROR = 0.05
"""Probability that some quantity of exact draws is found miscalibrated, over all of them."""

TRIALS = 4_000
"""Simulated sets of uniform ranks that a band is told from: with eight quantities, 25 of them lie
beyond it, and its error is known to a fifth."""

FAILED = -1
"""In the place of the rank of a truth that there are no draws to hold against."""

ONE_SIGN = 0.5
"""Share of a curve's area, less that of the other sign, from which it is mostly of one sign."""


@dataclass(frozen=True)
class Uniformity:
    """How far the ranks of one quantity are from uniform.

    Attributes
    ----------
    deviation
        Largest difference of the ranks' distribution function from a uniform one, in units of the
        distance of the band's edge from zero there: above 1, the band is left.
    direction
        What is wrong with draws that leave the band: ``under-dispersed``, too close together;
        ``over-dispersed``, too far apart; ``biased low``, below the truths, or ``biased high``;
        ``other``, where it is none of these alone. Empty of what does not leave it.
    """

    deviation: float
    direction: str

    @property
    def verdict(self) -> Verdict:
        """Whether the band is left."""
        return "miscalibrated" if self.deviation > 1 else "calibrated"


@dataclass(frozen=True)
class Curve:
    """Difference of a distribution function of ranks from a uniform one, and its band.

    Attributes
    ----------
    rank
        Fractional ranks in the open interval from 0 to 1, ``(point,)``.
    difference
        At them, ``(point,)``.
    low, high
        Edges of the band of the difference, ``(point,)``.
    """

    rank: np.ndarray
    difference: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def deviation(self) -> float:
        """Largest difference, in units of the distance of the band's edge from zero."""
        edge = np.where(self.difference > 0, self.high, self.low)
        return float((self.difference / edge).max())


def ranks_among(truth: np.ndarray, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rank of each quantity of a truth among draws of it, from 0 to the number of draws.

    Parameters
    ----------
    truth
        ``(quantity,)``.
    draws
        ``(draw, quantity)``.
    rng
        Decides the rank where draws equal the truth, all ranks between them being alike.
    """
    less, equal = (draws < truth).sum(axis=0), (draws == truth).sum(axis=0)
    return less + rng.integers(0, equal + 1)


def uniformity(ranks: np.ndarray, draws: int) -> list[Uniformity]:
    """How far the ranks of several quantities are from uniform, all of them judged together.

    Each is held against a band that is left with `ERROR` over their number: together they leave
    their bands with at most that probability if all are uniform, however they hang together
    (Bonferroni).

    Parameters
    ----------
    ranks
        ``(simulation, quantity)``; simulations that are `FAILED` are left out.
    draws
        Largest rank that there can be.

    Raises
    ------
    ValueError
        If no simulation has ranks.
    """
    found = []
    for curve in curves(ranks, draws):
        direction = direction_of(curve) if curve.deviation > 1 else ""
        found.append(Uniformity(curve.deviation, direction))
    return found


def curves(ranks: np.ndarray, draws: int) -> list[Curve]:
    """Differences of the distribution functions of ranks from uniform ones, as `uniformity`."""
    level, kept = 1 - ERROR / ranks.shape[1], alive(ranks)
    if not len(kept):
        raise ValueError("`ranks` must have one simulation at least that did not fail, got none.")
    return [_curve(column, draws, level) for column in kept.T]


def alive(ranks: np.ndarray) -> np.ndarray:
    """Ranks ``(simulation, quantity)`` of the simulations that have some."""
    return ranks[(ranks != FAILED).all(axis=1)]


def _curve(ranks: np.ndarray, draws: int, level: float) -> Curve:
    # At these points the counts of uniform ranks are binomial, however few ranks there are.
    points, low, high = uniform_band(len(ranks), draws, level)
    counts = np.bincount(ranks, minlength=draws + 1)[:-1].cumsum()
    return Curve(points, counts / len(ranks) - points, low, high)


@lru_cache(maxsize=64)
def uniform_band(
    simulations: int, draws: int, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, and edges of the band that uniform ranks stay within at all of them at once.

    Parameters
    ----------
    simulations
        Number of ranks.
    draws
        Largest rank that there can be.
    level
        Probability with which they stay within.

    References
    ----------
    Säilynoja, Bürkner and Vehtari (2022), Graphical test for discrete uniformity and its
    applications in goodness-of-fit evaluation and multiple sample comparison, section 2.
    """
    from arviz_stats.ecdf_utils import get_pointwise_confidence_band, simulate_confidence_bands

    points, rng = np.arange(1, draws + 1) / (draws + 1), np.random.default_rng(0)
    pointwise = simulate_confidence_bands(simulations, 1, points, level, TRIALS, rng)
    low, high = get_pointwise_confidence_band(pointwise, simulations, points)
    return points, low - points, high - points


def direction_of(curve: Curve) -> str:
    """Which way ranks are off; see `Uniformity`.

    What is alike on both sides of the middle rank is bias, what is opposite is dispersion; the
    larger of the two counts, if it is mostly of one sign.
    """
    alike, opposite = (0.5 * (curve.difference + sign * curve.difference[::-1]) for sign in (1, -1))
    if np.sum(alike**2) >= np.sum(opposite**2):
        part, words = alike, ("biased high", "biased low")
    else:
        part = opposite * np.sign(0.5 - curve.rank)
        words = ("under-dispersed", "over-dispersed")
    if abs(part.sum()) < ONE_SIGN * np.abs(part).sum():
        return "other"
    return words[0] if part.sum() > 0 else words[1]


def fixed_inputs(x: np.ndarray) -> np.ndarray:
    """Four inputs at which functions are looked at, ``(input, feature)``.

    The row nearest to the mean, the row furthest from it, the row furthest from both, and, outside
    the data, a point twice as far from the mean as the second.

    Parameters
    ----------
    x
        Inputs, ``(observation, feature)``.
    """
    centre = x.mean(axis=0)
    near = x[_distances(x, [centre]).argmin()]
    far = x[_distances(x, [centre]).argmax()]
    third = x[_distances(x, [near, far]).argmax()]
    return np.stack([near, far, third, centre + 2 * (far - centre)])


def _distances(x: np.ndarray, points: Sequence[np.ndarray]) -> np.ndarray:
    """Distance of each row from the nearest of some points, ``(observation,)``."""
    return np.min([np.linalg.norm(x - point, axis=1) for point in points], axis=0)
