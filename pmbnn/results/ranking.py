"""Intervals of all pairs of methods on one data set, and the words of a ranking.

A method is significantly worse than the best if the whole interval of its paired difference is
above zero. The intervals of all pairs hold at once with probability 95 %: however many methods
there are, and although the best is chosen on the same data.
"""

import math
from collections.abc import Collection, Hashable

import numpy as np
import pandas as pd

from pmbnn.results.tables import mean_and_error

LEVEL = 0.95
"""Probability that an interval holds, or that all intervals of a family hold together."""

BEST, NOT_WORSE = "best", "not significantly worse"
SIGNIFICANTLY_WORSE = "significantly worse"
"""Verdicts of a ranking, against its best."""

BETTER, WORSE, EQUIVALENT, UNDECIDED = "better", "worse", "equivalent", "undecided"
"""Verdicts on the difference between two named methods; a ranking has the last two as well."""

DIFFERENCE_COLUMNS = ("difference", "difference_se", "low", "high", "shared", "verdict")
"""Of a method: its mean paired difference to the best with standard error, both ends of the
interval, the number of data seeds that the two share, and the verdict."""

LEAST_SEEDS = 3
"""Data seeds that simultaneous intervals need: of two, an assumption would decide their length."""

BOOTSTRAP = 10_000
"""Simulated sets of scores: the probability of 5 % is met to within 0.4 %."""

BLOCK = 500
"""Sets that are in memory at once."""


def pairwise_half_widths(
    scores: np.ndarray, overlap: float = 0.0, level: float = LEVEL
) -> np.ndarray:
    """Half-widths of intervals of the differences of all methods, which hold all at once.

    They reach as many standard errors as the largest of all pairs' differences stays within, by a
    parametric bootstrap: scores are simulated that are normal with the covariances of the residuals
    over data seeds. Methods may therefore vary by different amounts, and together. The variance of
    a pair is the mean of its own and that of all pairs: from few data seeds neither alone will do.

    Parameters
    ----------
    scores
        ``(seed, method)``, a value for each. Methods with one that is not finite have no interval.
    overlap
        As `mean_and_error` takes it.
    level
        Probability that all intervals hold.

    Returns
    -------
    np.ndarray
        ``(method, method)``; NaN where no error is known: with fewer than `LEAST_SEEDS` data seeds,
        where no differences vary, or of an infinite `overlap`.

    References
    ----------
    Konietschke, Bathke, Harrar and Pauly (2015), Parametric and nonparametric bootstrap methods for
    general MANOVA (of covariances that are estimated from few rows).
    """
    seeds, methods = scores.shape
    half_widths = np.full((methods, methods), np.nan)
    finite = np.isfinite(scores).all(axis=0)
    if seeds < LEAST_SEEDS or finite.sum() < 2 or math.isinf(overlap):
        return half_widths
    scores = scores[:, finite]
    residuals = scores - scores.mean(axis=0)
    # What does not vary beyond rounding has no variance.
    residuals[np.abs(residuals) <= 1e-12 * np.abs(scores).max()] = 0
    _, errors = _pairwise(residuals)
    if not errors.any():
        return half_widths
    # Of no more rows than there are methods, with the same products.
    factor = np.linalg.qr(residuals, mode="r")
    rng, largest = np.random.default_rng(0), []
    for _ in range(BOOTSTRAP // BLOCK):
        differences, simulated = _pairwise(rng.normal(size=(BLOCK, seeds, len(factor))) @ factor)
        largest.append((differences / simulated).max(axis=(-1, -2)))
    reach = np.quantile(largest, level) * errors * np.sqrt(1 + seeds * overlap)
    np.fill_diagonal(reach, 0)
    half_widths[np.ix_(finite, finite)] = reach
    return half_widths


def _pairwise(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Absolute mean differences of all pairs of methods and their standard errors.

    Both are ``(..., method, method)``, of scores ``(..., seed, method)``.
    """
    mean = scores.mean(axis=-2, keepdims=True)
    rest = scores - mean
    products = rest.swapaxes(-1, -2) @ rest
    squares = np.diagonal(products, axis1=-2, axis2=-1)[..., None]
    variance = (squares + squares.swapaxes(-1, -2) - 2 * products) / (scores.shape[-2] - 1)
    pairs = scores.shape[-1] * (scores.shape[-1] - 1)
    typical = variance.sum(axis=(-1, -2), keepdims=True) / pairs
    errors = np.sqrt((np.maximum(variance, 0) + typical) / 2 / scores.shape[-2])
    return np.abs(mean.swapaxes(-1, -2) - mean), errors


def differences_to_best(
    scores: pd.DataFrame,
    overlap: float = 0.0,
    margin: float | None = None,
    less_is_better: bool = True,
    unrepeated: Collection[Hashable] = (),
) -> pd.DataFrame:
    """Paired differences of methods to the best, with simultaneous intervals and verdicts.

    The best has the best mean score among those with a score on the most data seeds: failing on
    some is no advantage.

    Parameters
    ----------
    scores
        A row for each data seed and a column for each method; missing where it has none.
    overlap
        As `mean_and_error` takes it.
    margin
        Of practical equivalence. A method whose whole interval lies within it is equivalent to the
        best.
    less_is_better
        Whether a lower score is better.
    unrepeated
        Methods whose score is that of one ensemble: no verdict is about them.

    Returns
    -------
    pd.DataFrame
        A row for each method with a score; see `DIFFERENCE_COLUMNS`. That of the best has a verdict
        alone.
    """
    number = scores.count()
    scores, number = scores.loc[:, number > 0], number[number > 0]
    if number.empty:
        return pd.DataFrame(columns=DIFFERENCE_COLUMNS)
    means = scores.loc[:, number == number.max()].mean()
    best = means.idxmin() if less_is_better else means.idxmax()
    differences = scores.sub(scores[best], axis=0)
    half_widths = _half_widths_to_best(scores, differences, best, overlap)
    if best in unrepeated:
        half_widths = {}
    rows = []
    for method, difference in differences.items():
        if method == best:
            rows.append({"verdict": BEST})
            continue
        paired = list(difference.dropna())
        mean, error = mean_and_error(paired, overlap)
        half_width = math.nan if method in unrepeated else half_widths.get(method, math.nan)
        if math.isinf(mean) and method not in unrepeated:
            half_width = 0.0  # a score that is infinite once is so on average
        low, high = mean - half_width, mean + half_width
        verdict = _verdict(*((low, high) if less_is_better else (-high, -low)), margin)
        values = (mean, error, low, high, len(paired), verdict)
        rows.append(dict(zip(DIFFERENCE_COLUMNS, values, strict=True)))
    return pd.DataFrame(rows, scores.columns, DIFFERENCE_COLUMNS)


def _verdict(low: float, high: float, margin: float | None) -> str:
    """Verdict on a method by the interval of its difference to the best, above zero if worse."""
    if math.isnan(low):
        return UNDECIDED
    if margin is not None and -margin < low and high < margin:
        return EQUIVALENT
    return SIGNIFICANTLY_WORSE if low > 0 else NOT_WORSE


def _half_widths_to_best(
    scores: pd.DataFrame, differences: pd.DataFrame, best: Hashable, overlap: float
) -> dict[Hashable, float]:
    """Half-widths of the intervals of differences to the best, by method, where they are known.

    Combinations that failed on some data seeds are compared on the others: each set of data seeds
    has intervals of its own, and all of them hold at once.
    """
    families: dict[tuple, list[tuple[int, int]]] = {}
    for place, paired in differences.drop(columns=[best]).items():
        seeds = tuple(paired.dropna().index)
        if len(seeds) >= LEAST_SEEDS:
            families.setdefault(seeds, []).append(place)
    half_widths = {}
    for seeds, places in families.items():
        block = scores.loc[list(seeds)].dropna(axis="columns")
        level = 1 - (1 - LEVEL) / len(families)
        widths = pairwise_half_widths(block.to_numpy(), overlap, level)[block.columns.get_loc(best)]
        by_place = dict(zip(block.columns, widths, strict=True))
        half_widths |= {place: float(by_place[place]) for place in places}
    return half_widths
