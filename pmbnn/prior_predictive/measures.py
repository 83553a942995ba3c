"""What functions drawn from a prior have in common: NumPy in, numbers with their errors out.

Names that end in ``_mcse`` are Monte-Carlo standard errors of what stands before.
"""

import numpy as np

from pmbnn.prediction.chain_errors import jackknife_error, without_each

BLOCKS = 20
"""Blocks of draws for jackknife errors of what is not a mean over draws."""

TINY = np.finfo(np.float64).tiny


def boundary_length(x1: np.ndarray, x2: np.ndarray, probability: np.ndarray) -> float:
    """Length of all lines where another class becomes the most probable, in widths of the map.

    Marching squares on the difference of logarithms, which unlike probabilities of a steep function
    is near a straight line between two points. Where it jumps from one point to the next, lines
    run in eight directions and are 7 % too long on average and up to 16 %, however fine the map;
    what is narrower than a point is not seen. Of networks whose units are nearly all saturated, on
    maps of 100 points a side, the two nearly make up for each other.

    Parameters
    ----------
    x1, x2
        Coordinates of the points, in one unit; the width is the reach of `x1`.
    probability
        Of each class, ``(x1, x2, class)``.
    """
    from contourpy import LineType, contour_generator

    log = np.log(np.maximum(np.asarray(probability, np.float64), TINY))
    classes, total = log.shape[-1], 0.0
    # Of two classes one has the lines of both; of more, every line is found from both sides.
    for own in range(classes if classes > 2 else 1):
        ahead = log[..., own] - np.delete(log, own, axis=-1).max(axis=-1)
        lines = contour_generator(x1, x2, ahead.T, line_type=LineType.Separate).lines(0.0)
        total += sum(np.hypot(*np.diff(line, axis=0).T).sum() for line in lines)
    return float(total / (2 if classes > 2 else 1) / (x1[-1] - x1[0]))


def class_measures(probability: np.ndarray) -> dict[str, float]:
    """Numbers of functions that give class probabilities.

    ``constant`` is the share of functions whose most probable class is the same at all inputs;
    ``expected_entropy`` the entropy of one function's probabilities, a mean over inputs and
    functions, and ``entropy`` that of their mean over functions, both in nats; ``common_class``
    the larger of a function's mean class probabilities over inputs, its mean over functions and
    its standard deviation ``common_class_sd``.

    Parameters
    ----------
    probability
        ``(draw, observation, class)``.
    """
    p = np.asarray(probability, np.float64)
    label = p.argmax(axis=-1)
    numbers = share("constant", (label == label[:, :1]).all(axis=1))
    numbers |= mean("expected_entropy", _entropy(p).mean(axis=1))
    numbers |= {"entropy": float(_entropy(p.mean(axis=0)).mean())}
    blocks = [part.mean(axis=0) for part in np.array_split(p, min(BLOCKS, len(p)))]
    entropies = [_entropy(others).mean() for others in without_each(blocks)]
    numbers |= {"entropy_mcse": jackknife_error(entropies)}
    common = p.mean(axis=1).max(axis=-1)
    return numbers | mean("common_class", common) | {"common_class_sd": float(common.std())}


def number_measures(function: np.ndarray, noise: np.ndarray) -> dict[str, float]:
    """Numbers of functions that give numbers; medians, which heavy tails have as well.

    ``output_range`` is the median over functions of largest less smallest value at the inputs,
    ``output_sd`` the median over inputs of the half width of the central 68 % of the functions;
    ``noise`` the median standard deviation of the noise; all in the units of the targets.

    Parameters
    ----------
    function
        ``(draw, observation)``.
    noise
        Standard deviations, ``(draw, observation)`` or ``(draw, 1)``.
    """
    low, high = np.quantile(function, (0.16, 0.84), axis=0)
    return (
        median("output_range", np.ptp(function, axis=1))
        | {"output_sd": float(np.median((high - low) / 2))}
        | median("noise", np.median(noise, axis=1))
    )


def for_target(numbers: dict[str, float], target: str) -> dict[str, float]:
    """Numbers of one of several targets: its name stands in theirs, before ``_mcse``."""
    return {
        f"{name.removesuffix('_mcse')}_{target}{'_mcse' * name.endswith('_mcse')}": value
        for name, value in numbers.items()
    }


def mean(name: str, values: np.ndarray) -> dict[str, float]:
    """Mean over draws, ``(draw,)``, and its error."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return {name: float(values.mean()), f"{name}_mcse": float(error)}


def share(name: str, is_one: np.ndarray) -> dict[str, float]:
    """Share of draws that something is true of, and its error.

    References
    ----------
    Agresti and Coull (1998), Approximate is better than "exact" for interval estimation of binomial
    proportions: the error of two more successes and two more failures, which is not zero where
    all draws say the same.
    """
    draws = len(is_one) + 4
    p = (is_one.sum() + 2) / draws
    return {name: float(is_one.mean()), f"{name}_mcse": float(np.sqrt(p * (1 - p) / draws))}


def median(name: str, values: np.ndarray) -> dict[str, float]:
    """Median over draws, ``(draw,)``, and its error.

    References
    ----------
    Maritz and Jarrett (1978), A note on estimating the variance of the sample median.
    """
    from scipy.stats.mstats import mjci

    # Rounding may take the variance of equal draws below zero.
    with np.errstate(invalid="ignore"):
        error = np.nan_to_num(mjci(values, prob=[0.5])[0])
    return {name: float(np.median(values)), f"{name}_mcse": float(error)}


def _entropy(p: np.ndarray) -> np.ndarray:
    """Entropy over the last axis, nats."""
    return -np.sum(p * np.log(np.maximum(p, TINY)), axis=-1)
