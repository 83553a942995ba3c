"""Paired differences over data seeds, and their intervals: one by one, and simultaneous.

Every comparison takes its differences on the same data seeds, ``a`` less ``b``: below zero ``a`` is
better. There are three kinds of intervals:

- `t_interval`, of the paired t test, holds with probability 95 % for one comparison;
- those of `pmbnn.results.ranking`, of all pairs of methods on one data set, hold simultaneously,
  whichever method has the best mean. A bootstrap keeps the correlations of the pairs;
- those of `joint_intervals`, of contrasts on several data sets, hold simultaneously too. A
  hierarchical model estimates how far the standard deviations of the contrasts are alike: on one
  data set they may be a hundred times those on another.

Neither of the last two can take the other's place. ``benchmarks/smallest_effect.py`` compares their
level and their power (``--routines``, ``--ranking``).

Where data seeds split the same rows anew, all of them share an error, whose variance is that of one
split times the number of test rows for each training row (``overlap``). All intervals allow for it.

References
----------
Nadeau and Bengio (2003), Inference for the Generalization Error.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pmbnn.results.ranking import BETTER, EQUIVALENT, LEAST_SEEDS, LEVEL, UNDECIDED, WORSE
from pmbnn.results.tables import mean_and_error

# Paired differences

ROUNDING = 1e-9
"""Spread of differences over their mean that rounding alone may leave: of accuracies that differ by
one in a million rows."""


def paired_differences(
    scores: pd.DataFrame, pairs: Iterable[tuple[Hashable, Hashable]]
) -> pd.DataFrame:
    """A row for each pair and data seed: ``a``, ``b``, ``seed``, and the ``difference`` a less b.

    Data seeds on which one of the two has no score are left out.

    Parameters
    ----------
    scores
        A row for each method and data seed: ``name``, ``seed`` and ``score``, where less is better.
        Further columns are caveats, true or false: a difference has those of both scores.
    pairs
        Names of the methods to compare.
    """
    wanted = pd.DataFrame(list(pairs), columns=["a", "b"], dtype=object)
    named = scores.astype({"name": object})
    first, second = (named.rename(columns={"name": side}) for side in ("a", "b"))
    both = wanted.merge(first, on="a").merge(second, on=["b", "seed"], suffixes=("_a", "_b"))
    table = both[["a", "b", "seed"]].assign(difference=both["score_a"] - both["score_b"])
    caveats = scores.columns.difference(["name", "seed", "score"], sort=False)
    table = table.assign(**{name: both[f"{name}_a"] | both[f"{name}_b"] for name in caveats})
    return table.dropna(subset="difference")


def t_interval(differences: pd.Series | np.ndarray, overlap: float = 0.0) -> dict[str, float]:
    """Mean of paired differences with the interval of the t test.

    Parameters
    ----------
    differences
        One for each data seed.
    overlap
        As `mean_and_error` takes it.

    Returns
    -------
    dict
        Number of ``seeds``, mean ``difference``, its standard error ``se``, ``low`` and ``high``
        ends of the interval, and ``p_value``. The last three are NaN where no error is known: with
        one data seed, where all differences are the same but for rounding, or of an infinite
        `overlap`.
    """
    from scipy import stats

    seeds = len(differences)
    mean, error = mean_and_error(list(differences), overlap)
    low = high = p_value = math.nan
    if error > ROUNDING * abs(mean):
        low, high = map(float, stats.t.interval(LEVEL, seeds - 1, mean, error))
        p_value = 2 * float(stats.t.sf(abs(mean) / error, seeds - 1))
    ends = {"low": low, "high": high, "p_value": p_value}
    return {"seeds": seeds, "difference": mean, "se": error} | ends


def holm(p_values: pd.Series) -> pd.Series:
    """p-values of several tests, corrected for their number (Holm, 1979); NaN stays.

    References
    ----------
    Holm (1979), A simple sequentially rejective multiple test procedure.
    """
    ascending = p_values.dropna().sort_values()
    at_least = ascending * np.arange(len(ascending), 0, -1)
    return at_least.cummax().clip(upper=1.0).reindex(p_values.index)


def interval_verdict(low: float, high: float, margin: float = 0.0) -> str:
    """Where an interval of a less b lies: `BETTER`, `WORSE`, `EQUIVALENT`, or in none of the three.

    Ends are in the unit of the margin; where they are not known, it is `UNDECIDED`.
    """
    if high < -margin:
        return BETTER
    if low > margin:
        return WORSE
    return EQUIVALENT if -margin < low and high < margin else UNDECIDED


# Simultaneous intervals of contrasts on several data sets

STEP = 0.05
"""Step of the grids of logarithms of standard deviations that integrals are taken on."""

NEGLIGIBLE = 1e-4
"""Posterior density, relative to its largest value, that integrals leave out."""

WIDEST = 1e4
"""Standard errors beyond which no interval reaches."""

POWER = 0.8
"""Probability with which the smallest detectable difference is found."""


def joint_intervals(
    quantities: Mapping[str, pd.Series], overlap: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """Simultaneous intervals of the mean differences of contrasts on data sets.

    The differences of a contrast on a data set are normal with a mean of their own, whose prior is
    flat, and a standard deviation of their own. The logarithms of the standard deviations of one
    quantity are normal about a common mean. The prior of that mean is flat, and that of their
    standard deviation is half-normal with scale 1. From five data seeds alone a standard deviation
    would be known to within a factor of two. Every interval reaches the same number of standard
    errors to both sides of its mean, so far that all contain their true means with posterior
    probability `LEVEL`. A single interval is that of the t test.

    Differences of different contrasts are taken as independent, which makes intervals longer, not
    shorter, than they need to be (Šidák, 1967).

    Parameters
    ----------
    quantities
        Finite differences by name, indexed by ``contrast``, ``data`` and ``seed``. Those of fewer
        than `LEAST_SEEDS` data seeds are left out.
    overlap
        Test rows for each training row of data sets whose data seeds split the same rows anew; 0
        for data sets that are missing. Those of an infinite one are left out.

    Returns
    -------
    pd.DataFrame
        By name, contrast and data set: ``mean``, ``low`` and ``high``, which are equal where
        differences do not vary, and two numbers that are not known there. ``detectable`` is the
        smallest true difference whose interval leaves out zero with probability `POWER`, another
        time with as many data seeds. ``limit`` is how far an interval reaches to either side with
        infinitely many data seeds: 0 unless they split the same rows.

    References
    ----------
    Cohen (1988), Statistical power analysis for the behavioral sciences (of `POWER`); Corani and
    Benavoli (2015), A Bayesian approach for comparing cross-validated algorithms on multiple data
    sets; Gelman (2006), Prior distributions for variance parameters in hierarchical models; Smyth
    (2004), Linear models and empirical Bayes methods for assessing differential expression in
    microarray experiments (of variances that are estimated together); Šidák (1967), Rectangular
    confidence regions for the means of multivariate normal distributions.
    """
    from scipy import optimize, stats

    grouped = pd.concat(quantities, names=["name"]).groupby(
        level=["name", "contrast", "data"], sort=False
    )
    table = grouped.agg(["mean", "std", "size"])
    data = table.index.get_level_values("data")
    table["overlap"] = [(overlap or {}).get(name, 0.0) for name in data]
    table = table[(table["size"] >= LEAST_SEEDS) & np.isfinite(table["overlap"])]
    # What does not vary beyond rounding has no standard deviation to estimate.
    varying = table[table["std"] > 1e-12 * table["mean"].abs()]
    half_widths = pd.Series(0.0, table.index)
    detectable = limit = pd.Series(math.nan, table.index)
    if len(varying):
        posteriors = [
            _posterior_of_sds(rows["std"].to_numpy(), rows["size"].to_numpy())
            for _, rows in varying.groupby(level="name", sort=False)
        ]
        log_reach = optimize.brentq(
            lambda log: math.prod(one.coverage(math.exp(log)) for one in posteriors) - LEVEL,
            *(0, math.log(WIDEST)),
            xtol=1e-4,
        )
        sds = np.concatenate([one.typical for one in posteriors])
        errors = sds * np.sqrt(1 / varying["size"] + varying["overlap"])
        half_widths[varying.index] = math.exp(log_reach) * errors
        detectable = half_widths[varying.index] + stats.norm.ppf(POWER) * errors
        # With standard deviations known, by Šidák's inequality.
        reach = stats.norm.ppf((1 + LEVEL ** (1 / len(varying))) / 2)
        limit = reach * sds * np.sqrt(varying["overlap"])
    mean = table["mean"]
    ends = {"mean": mean, "low": mean - half_widths, "high": mean + half_widths}
    return pd.DataFrame(ends | {"detectable": detectable, "limit": limit}, table.index)


@dataclass(frozen=True)
class _StandardDeviations:
    """Posterior of the standard deviations of some contrasts on data sets, on a grid.

    Attributes
    ----------
    typical
        Geometric posterior means, ``(contrast,)``.
    ratios
        Typical standard deviations over those of the grid, ``(point, contrast)``.
    likelihood
        Of the standard deviations of the grid, ``(point, contrast)``.
    prior
        Probabilities of the grid's points under hyperparameters, ``(hyperparameters, point)``.
    marginal
        Likelihood of hyperparameters, ``(hyperparameters, contrast)``.
    weights
        Posterior probabilities of the hyperparameters, ``(hyperparameters,)``.
    """

    typical: np.ndarray
    ratios: np.ndarray
    likelihood: np.ndarray
    prior: np.ndarray
    marginal: np.ndarray
    weights: np.ndarray

    def coverage(self, reach: float) -> float:
        """Probability that all means lie within so many standard errors of their estimates."""
        from scipy import special

        within = special.erf(reach * self.ratios / math.sqrt(2))
        conditional = (self.prior @ (self.likelihood * within)) / self.marginal
        return float(self.weights @ conditional.prod(axis=1))


def _posterior_of_sds(sds: np.ndarray, seeds: np.ndarray) -> _StandardDeviations:
    """Posterior of standard deviations by their estimates and numbers of data seeds."""
    logs, freedom = np.log(sds), seeds - 1
    # Likelihoods fall as exp(-exp(-2 x)) to the left and as exp(-freedom x) to the right.
    points = np.arange(logs.min() - 2.5, logs.max() + 6, STEP)
    from_estimate = points[:, None] - logs
    likelihood = np.exp(-freedom * (from_estimate + (np.exp(-2 * from_estimate) - 1) / 2))
    spread = np.arange(STEP, 3, 2 * STEP)[:, None]
    prior = np.exp(-(((points - points[:, None, None]) / spread) ** 2) / 2)
    prior = (prior / prior.sum(axis=-1, keepdims=True)).reshape(-1, len(points))
    marginal = prior @ likelihood
    with np.errstate(divide="ignore"):
        log_weights = np.log(marginal).sum(axis=1)
    log_weights -= np.tile(spread.ravel() ** 2 / 2, len(points))
    weights = np.exp(log_weights - log_weights.max())
    kept = weights > NEGLIGIBLE
    prior, marginal, weights = prior[kept], marginal[kept], weights[kept] / weights[kept].sum()
    logs = weights @ ((prior @ (likelihood * points[:, None])) / marginal)
    ratios = np.exp(logs - points[:, None])
    return _StandardDeviations(np.exp(logs), ratios, likelihood, prior, marginal, weights)
