"""Contrasts over all data sets at once: ``compare_over_data.csv``.

A contrast may be undecided on each of five data sets, and above zero on all five. A random-effects
meta-analysis answers what it is over data sets *like these*: true differences are normal about a
common mean, and a data set's estimate is normal about its own true difference. It is a second
answer beside the verdicts on single data sets (`contrasts`), and rests on more: that data sets are
a sample of something, and that a nat on one is worth as much as on another.

The prior of the common mean is flat. That of the standard deviation between data sets, ``t``, has
the density ``1 / sqrt(t)``, which has no scale to choose. The error of a data set is that of
Nadeau and Bengio (`t_interval`). How often intervals hold is simulated for five data sets, whose
errors are alike or differ tenfold, with splits that share rows and without
(`tests/compare/test_over_data.py`).

References
----------
DerSimonian and Laird (1986), Meta-analysis in clinical trials; Röver (2020), Bayesian
random-effects meta-analysis using the bayesmeta R package (of priors of the standard deviation
between studies).
"""

import math

import numpy as np
import pandas as pd

from pmbnn.compare.intervals import interval_verdict, t_interval
from pmbnn.results.ranking import LEVEL

FILE = "compare_over_data.csv"
"""File of a results folder that holds the table."""

COLUMNS = (
    "contrast", "exploratory", "metric", "method", "data_sets", "mean", "low", "high",
    "sd_between", "margin", "verdict",
)  # fmt: skip
"""Of every contrast and method: the number of data sets, the mean difference over data sets like
these, in nats an observation, with both ends of its simultaneous interval, the posterior median of
the standard deviation between data sets, and where the interval lies."""

LEAST_DATA_SETS = 3
"""Data sets that a mean over them needs: two say nothing of how far data sets differ."""

LEAST_SEEDS = 4
"""Data seeds that a data set needs: with three its error has no finite variance."""

SPREAD = np.geomspace(1e-4, 1e4, 801)
"""Grid of standard deviations between data sets, in typical standard errors of one."""


def over_data_table(deltas: pd.DataFrame, margin: float) -> pd.DataFrame:
    """Means of contrasts over data sets, with simultaneous intervals and verdicts; see `COLUMNS`.

    On a data set, the difference of a data seed is the mean over networks and other settings.
    Contrasts on fewer than `LEAST_DATA_SETS` data sets of `LEAST_SEEDS` data seeds are left out. A
    difference that is infinite on one data set is so on average.

    Parameters
    ----------
    deltas
        As `pmbnn.compare.contrasts.delta_table` makes it.
    margin
        Of practical equivalence, nats an observation.
    """
    keys = ["contrast", "exploratory", "metric", "method"]
    columns = {name: f"delta_{name}" for name in ("reference", "advi", "ensemble")}
    long = deltas.rename(columns={column: name for name, column in columns.items()}).melt(
        id_vars=["contrast", "exploratory", "metric", "data_set", "seed", "overlap"],
        value_vars=list(columns),
        var_name="method",
        value_name="difference",
    )
    estimates = {}
    for key, group in long.dropna(subset="difference").groupby(keys, sort=False):
        # Several networks on one data set are no data sets more.
        means = group.groupby(["data_set", "seed"], as_index=False)[
            ["difference", "overlap"]
        ].mean()
        by_data = [_estimate(seeds) for _, seeds in means.groupby("data_set")]
        known = np.array([one for one in by_data if one is not None])
        if len(known) >= LEAST_DATA_SETS:
            estimates[key] = known
    level = LEVEL ** (1 / max(len(estimates), 1))  # Šidák
    rows = [
        dict(zip(keys, key, strict=True))
        | {"data_sets": len(known), "margin": margin}
        | mean_over_data(known[:, 0], known[:, 1], level)
        for key, known in estimates.items()
    ]
    table = pd.DataFrame(rows, columns=COLUMNS)
    ends = zip(table["low"], table["high"], strict=True)
    return table.assign(verdict=[interval_verdict(*pair, margin) for pair in ends])


def mean_over_data(means: np.ndarray, errors: np.ndarray, level: float) -> dict[str, float]:
    """The mean that true differences vary about, by the model of this module.

    Parameters
    ----------
    means, errors
        Estimates and their standard errors, ``(data set,)`` each. Of an infinite estimate the mean
        is infinite, of some of either sign it is not a number.
    level
        Posterior probability of the interval, whose tails are equal.

    Returns
    -------
    dict
        Posterior ``mean``, ``low`` and ``high`` ends of its interval, and ``sd_between``, the
        posterior median of the standard deviation between data sets.
    """
    from scipy import optimize, special

    if not np.isfinite(means).all():
        mean = sum(means[~np.isfinite(means)].tolist())
        return {"mean": mean, "low": mean, "high": mean, "sd_between": math.nan}
    # As the prior has no scale, neither has the answer.
    between = SPREAD * len(errors) ** 0.5 / math.sqrt((errors**-2.0).sum())
    weight = 1 / (errors**2 + between[:, None] ** 2)
    precision = weight.sum(axis=1)
    mean, sd = (weight * means).sum(axis=1) / precision, precision**-0.5
    squares = (weight * (means - mean[:, None]) ** 2).sum(axis=1)
    # The density 1 / sqrt(t) is sqrt(t) on a grid of logarithms.
    log_density = (np.log(weight).sum(axis=1) - np.log(precision) - squares + np.log(between)) / 2
    density = np.exp(log_density - log_density.max())
    density /= density.sum()

    def end(probability: float) -> float:
        return optimize.brentq(
            lambda value: density @ special.ndtr((value - mean) / sd) - probability,
            *((mean - 40 * sd).min(), (mean + 40 * sd).max()),
        )

    low, high = end((1 - level) / 2), end((1 + level) / 2)
    return {
        "mean": float(density @ mean),
        "low": low,
        "high": high,
        "sd_between": float(np.interp(0.5, density.cumsum(), between)),
    }


def _estimate(seeds: pd.DataFrame) -> tuple[float, float] | None:
    """Mean difference on a data set and its standard error, where both are known.

    The error is that of a normal distribution with the variance of Student's t.
    """
    one = t_interval(seeds["difference"], seeds["overlap"].max())
    freedom = one["seeds"] - 1
    if one["seeds"] < LEAST_SEEDS:
        return None
    if not math.isfinite(one["difference"]):
        return one["difference"], math.nan
    if math.isnan(one["low"]):
        return None
    return one["difference"], one["se"] * math.sqrt(freedom / (freedom - 2))
