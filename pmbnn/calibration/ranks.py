"""Ranks of truths among posterior draws, compared with uniform ranks: NumPy in, verdicts out.

A truth is drawn from a distribution, data are simulated from it, and draws of the posterior given
these data are taken. If they are draws of that posterior, the rank of a function of the truth among
the same function of the draws is uniform on 0, …, number of draws. Uniform ranks of one function
are necessary, not sufficient: functions of the parameters alone find nothing wrong with draws from
the prior; a function of the data as well, such as the log-likelihood, does.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

type Verdict = Literal["calibrated", "miscalibrated"]

ERROR = 0.05
"""Probability that some quantity of exact draws is found miscalibrated, over all of them."""

TRIALS = 4_000
"""Simulated sets of uniform ranks that a band is computed from: with eight quantities, 25 of them
lie beyond it, and its error is known to a fifth."""

FAILED = -1
"""Stands for the rank of a truth whose posterior draws are missing: the fit diverged."""

ONE_SIGN = 0.5
"""Share of a curve's area, less that of the other sign, from which it is mostly of one sign."""


@dataclass(frozen=True, eq=False)
class RankEcdf:
    """Difference of the ECDF of the ranks of a quantity from a uniform one, and its band.

    Attributes
    ----------
    rank
        Fractional ranks in the open interval from 0 to 1, ``(point,)``.
    difference
        At them, ``(point,)``.
    low, high
        Edges of the simultaneous band of the difference, ``(point,)``.
    """

    rank: np.ndarray
    difference: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def deviation(self) -> float:
        """Largest difference, in units of the distance of the band's edge from zero there.

        Above 1, it leaves the band.
        """
        edge = np.where(self.difference > 0, self.high, self.low)
        return float((self.difference / edge).max())

    @property
    def verdict(self) -> Verdict:
        """Whether the band is left."""
        return "miscalibrated" if self.deviation > 1 else "calibrated"

    @property
    def direction(self) -> str:
        """What is wrong with draws that leave the band; empty for those that do not.

        ``under-dispersed``, too close together; ``over-dispersed``, too far apart; ``biased low``,
        below the truths, or ``biased high``; ``other``, where it is none of these alone. What is
        equal on both sides of the middle rank is bias, what is opposite is dispersion; the larger
        of the two counts, if it is mostly of one sign.
        """
        if self.deviation <= 1:
            return ""
        mirrored = self.difference[::-1]
        equal, opposite = 0.5 * (self.difference + mirrored), 0.5 * (self.difference - mirrored)
        if np.sum(equal**2) >= np.sum(opposite**2):
            part, names = equal, ("biased high", "biased low")
        else:
            part = opposite * np.sign(0.5 - self.rank)
            names = ("under-dispersed", "over-dispersed")
        if abs(part.sum()) < ONE_SIGN * np.abs(part).sum():
            return "other"
        return names[0] if part.sum() > 0 else names[1]


def ranks_among(truth: np.ndarray, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rank of each quantity of a truth among draws of it, from 0 to the number of draws.

    Parameters
    ----------
    truth
        ``(quantity,)``.
    draws
        ``(draw, quantity)``.
    rng
        Draws the rank where draws equal the truth, uniformly from all ranks between them.
    """
    less, equal = (draws < truth).sum(axis=0), (draws == truth).sum(axis=0)
    return less + rng.integers(0, equal + 1)


def valid_ranks(ranks: np.ndarray) -> np.ndarray:
    """Ranks ``(simulation, quantity)`` of the simulations that did not fail."""
    return ranks[(ranks != FAILED).all(axis=1)]


def rank_ecdfs(ranks: np.ndarray, draws: int) -> list[RankEcdf]:
    """How far the ranks of several quantities are from uniform.

    Each quantity has a band that is left with probability `ERROR` over their number: together they
    leave their bands with at most that probability if all are uniform, whatever their dependence
    (Bonferroni).

    Parameters
    ----------
    ranks
        ``(simulation, quantity)``; simulations that are `FAILED` are left out.
    draws
        Largest possible rank.

    Raises
    ------
    ValueError
        If no simulation has ranks.
    """
    level, valid = 1 - ERROR / ranks.shape[1], valid_ranks(ranks)
    if not len(valid):
        raise ValueError("`ranks` must have one simulation at least that did not fail, got none.")
    points, low, high = uniform_band(len(valid), draws, level)
    # At these points the counts of uniform ranks are binomial, however few ranks there are.
    counts = (np.bincount(column, minlength=draws + 1)[:-1].cumsum() for column in valid.T)
    return [RankEcdf(points, count / len(valid) - points, low, high) for count in counts]


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
        Largest possible rank.
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
