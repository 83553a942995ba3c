"""Whether a classifier is least sure where the classes truly meet: NumPy in, numbers out."""

from typing import NamedTuple

import numpy as np

MOST_UNSURE = 0.05
"""Share of the points that counts as the most unsure ones."""


class Sureness(NamedTuple):
    """Uncertainty at some points, and the truth there, each ``(point,)``.

    ``sd`` is the standard deviation of the class probability over posterior draws; ``error`` the
    smaller of the two true class probabilities, which is how often the best possible classifier
    errs there: one half on the true boundary, and falling away from it.
    """

    sd: np.ndarray
    error: np.ndarray


def boundary_measures(plane: Sureness, data: Sureness) -> dict[str, float]:
    """Three measures of whether uncertainty follows the true boundary, by name.

    Parameters
    ----------
    plane
        All pixels of a map, most of which hold next to no data.
    data
        Points drawn from the true distribution of the data.
    """
    unsure = np.argsort(-data.sd, kind="stable")[: max(1, round(MOST_UNSURE * len(data.sd)))]
    return {
        "rank correlation, map": rank_correlation(*plane),
        "rank correlation, data": rank_correlation(*data),
        "true error rate of the 5 % most unsure": float(data.error[unsure].mean()),
        "true error rate": float(data.error.mean()),
    }


def rank_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Spearman's correlation of two arrays; equal values share their mean rank.

    It is not a number where either array is constant.
    """
    from scipy import stats

    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(stats.spearmanr(first, second).statistic)


def at_points(grid: np.ndarray, x1: np.ndarray, x2: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Value of the nearest pixel of a map ``(x1, x2)``; NaN at points outside the map.

    Parameters
    ----------
    grid
        The map.
    x1, x2
        Evenly spaced centres of its pixels.
    x
        Points, ``(point, 2)``.
    """
    places, inside = [], np.ones(len(x), dtype=bool)
    for centres, values in ((x1, x[:, 0]), (x2, x[:, 1])):
        step = (centres[-1] - centres[0]) / (len(centres) - 1)
        index = np.rint((values - centres[0]) / step).astype(int)
        inside &= (index >= 0) & (index < len(centres))
        places.append(np.clip(index, 0, len(centres) - 1))
    return np.where(inside, grid[places[0], places[1]], np.nan)
