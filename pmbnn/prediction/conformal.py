"""Split-conformal prediction: intervals and sets whose coverage rows set aside guarantee.

A score says how badly a target agrees with the prediction at its row. If calibration rows and new
rows are exchangeable, the score of a new row is below a quantile of the calibration scores with
the probability that is asked for, however wrong the model.
"""

import math
from functools import singledispatch

import numpy as np

from pmbnn.prediction.class_probabilities import ClassProbabilities, Predictive
from pmbnn.prediction.density import LEVEL, Density

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


# Scores, and how often intervals and sets contain the target


def standardised_error(density: Density, target: np.ndarray) -> np.ndarray:
    """Distance of each target from the mean, in standard deviations of a new observation.

    The score of numbers, in the shape of the targets.

    References
    ----------
    Lei et al. (2018), Distribution-Free Predictive Inference for Regression, section 5.2.
    """
    return np.abs(target - density.mean) / density.total_sd


@singledispatch
def conformal_metrics(
    test: Predictive, target: np.ndarray, aside: Predictive, aside_target: np.ndarray
) -> dict[str, float]:
    """Coverage and mean size of conformal intervals or sets of probability `LEVEL`, by name.

    Beside them the mean size of those of the posterior, and of sets the coverage, which for
    intervals is a metric already (``coverage_95``). Each kind of prediction registers its own
    function.

    Parameters
    ----------
    test, target
        Prediction and targets of the rows that are counted.
    aside, aside_target
        Prediction and targets of the calibration rows: `rows_needed` of them or more.
    """
    raise TypeError(f"There are no conformal intervals of a {type(test).__name__}.")


@conformal_metrics.register
def _interval_metrics(test: Density, target, aside, aside_target) -> dict[str, float]:
    """Of several targets, the mean coverage of their intervals, whose widths differ in units."""
    scores = standardised_error(aside, aside_target).reshape(len(aside_target), -1)
    multiple = np.array([conformal_quantile(column, LEVEL) for column in scores.T])
    covered = standardised_error(test, target).reshape(len(target), -1) <= multiple
    results = {_named("conformal_coverage"): float(covered.mean())}
    if test.mean.ndim > 1:
        return results
    low, high = test.total_interval
    return results | {
        _named("conformal_width"): float(2 * multiple.item() * test.total_sd.mean()),
        _named("width"): float((high - low).mean()),
    }


@conformal_metrics.register
def _set_metrics(test: ClassProbabilities, target, aside, aside_target) -> dict[str, float]:
    above = probability_above(normalised(test.mean))
    scores = probability_above(normalised(aside.mean))[np.arange(len(aside_target)), aside_target]
    sets = {"conformal": above <= conformal_quantile(scores, LEVEL), "set": above < LEVEL}
    results = {}
    for name, chosen in sets.items():
        covered = chosen[np.arange(len(target)), target]
        results[_named(f"{name}_coverage")] = float(covered.mean())
        results[_named(f"{name}_size")] = float(chosen.sum(axis=1).mean())
    return results


def normalised(probability: np.ndarray) -> np.ndarray:
    """Class probabilities in double precision, with sums of 1."""
    probability = np.asarray(probability, np.float64)
    return probability / probability.sum(axis=1, keepdims=True)


def _named(what: str) -> str:
    return f"{what}_{100 * LEVEL:.0f}"
