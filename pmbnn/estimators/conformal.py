"""Split-conformal prediction: intervals and sets whose coverage rows set aside guarantee.

A score says how badly a target agrees with the prediction at its row. If calibration rows and new
rows are exchangeable, the score of a new row is below a quantile of the calibration scores with
the probability that is asked for, however wrong the model.
"""

import math

import numpy as np

ROUNDING = 1e-9
"""Products of a level and a number of rows that are this close to a whole number are that number:
0.55 of 100 rows is 55, not 55.00000000000001."""


def checked_level(level: float) -> float:
    """The level, which is a probability; a ValueError if it is not between 0 and 1."""
    if not 0 < level < 1:
        raise ValueError(f"`level` must be between 0 and 1, got {level}.")
    return level


def rows_needed(level: float) -> int:
    """Smallest number of calibration rows whose scores have the quantile of `level`."""
    return math.ceil(level / (1 - level) - ROUNDING)


def conformal_quantile(scores: np.ndarray, level: float) -> float:
    """Score that a new row's does not exceed with probability `level` or more.

    The ⌈(n + 1) · level⌉-th smallest of the n calibration scores ``(observation,)``. The
    probability is over the new row and the calibration rows. It is at most 1 / (n + 1) above
    `level` if no two scores are equal.

    Raises
    ------
    ValueError
        If `level` needs more rows.

    References
    ----------
    Vovk, Gammerman and Shafer (2005), Algorithmic Learning in a Random World, chapter 4; Lei et al.
    (2018), Distribution-Free Predictive Inference for Regression, section 2.2.
    """
    rows, needed = len(scores), rows_needed(level)
    if rows < needed:
        raise ValueError(
            f"`level` {level:g} needs {needed} calibration rows or more: `calibrate` got {rows}."
        )
    rank = math.ceil((rows + 1) * level - ROUNDING)
    return float(np.sort(scores)[rank - 1])


def probability_above(probability: np.ndarray) -> np.ndarray:
    """Probability of all classes that are more probable than each, ``(observation, class)``.

    Zero of the most probable class. Classes of equal probability have the same.

    References
    ----------
    Angelopoulos et al. (2021), Uncertainty Sets for Image Classifiers using Conformal Prediction,
    section 2: the score of Romano, Sesia and Candès (2020) without randomisation.
    """
    columns = probability.T[:, :, None]
    return np.stack([np.sum(probability * (probability > p), axis=1) for p in columns], axis=1)
