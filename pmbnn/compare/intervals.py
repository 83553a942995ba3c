"""Paired differences over data seeds, and their intervals: one by one, and all at once.

Every comparison takes its differences on the same data seeds, ``a`` less ``b``: below zero ``a`` is
better. There are three kinds of intervals. `t_interval` is that of the paired t test, which holds
with probability 95 % for one comparison. Those of `pairwise_half_widths`, of all pairs of methods
on one data set, hold all at once, whichever is found best. Those of `joint_intervals`, of contrasts
on several data sets, hold all at once too. They come from a model of the differences, which
estimates their standard deviations together: with few data seeds they are shorter than those of t
tests corrected for their number (``benchmarks/smallest_effect_routines.txt``), but a program must
be compiled and sampled for them.

In the model a difference on one data seed is normal about the mean of its *entry*, a contrast on a
data set, with a standard deviation of the entry's own. A share of that variance is the data seed's,
common to all contrasts of its data set. The logarithms of the standard deviations vary about a
common mean by as much as the data say: from five data seeds alone an entry would know its own to
within a factor of two. With a single entry the interval is that of the t test.

Where data seeds split the same rows anew, all of them share an error besides, whose variance is
that of one split times the test rows for each training row (``overlap``). All intervals allow for
it.

References
----------
Gelman (2006), Prior distributions for variance parameters in hierarchical models; Hothorn, Bretz
and Westfall (2008), Simultaneous inference in general parametric models (of max |t|); Nadeau and
Bengio (2003), Inference for the Generalization Error (of splits); Corani and Benavoli (2015), A
Bayesian approach for comparing cross-validated algorithms on multiple data sets.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from pmbnn.inference.samplers.settings import Mclmc
from pmbnn.results.tables import mean_and_error

# PyMC and JAX are imported where intervals are sampled: rankings need neither.
if TYPE_CHECKING:
    import pymc as pm

    from pmbnn.inference.samplers.chains import Sampler, Samples

LEVEL = 0.95
"""Probability that an interval holds, or that all intervals of a family hold together."""

BEST, NOT_WORSE = "best", "not significantly worse"
SIGNIFICANTLY_WORSE = "significantly worse"
"""Verdicts of a ranking, against its best."""

BETTER, WORSE, EQUIVALENT, UNDECIDED = "better", "worse", "equivalent", "undecided"
"""Verdicts on the difference between two named methods."""

LEAST_SEEDS = 3
"""Data seeds that simultaneous intervals need: of two, an assumption would decide their length."""

NO_INTERVAL = "no interval"
"""Verdict where the error of a difference is not known, as with one data seed."""


# Paired differences


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
        one data seed, or where all differences are the same.
    """
    from scipy import stats

    seeds = len(differences)
    mean, error = mean_and_error(list(differences), overlap)
    low = high = p_value = math.nan
    if error > 0:
        low, high = map(float, stats.t.interval(LEVEL, seeds - 1, mean, error))
        p_value = 2 * float(stats.t.sf(abs(mean) / error, seeds - 1))
    ends = {"low": low, "high": high, "p_value": p_value}
    return {"seeds": seeds, "difference": mean, "se": error} | ends


def interval_verdict(low: float, high: float, margin: float = 0.0) -> str:
    """Where an interval of a less b lies: `BETTER`, `WORSE`, `EQUIVALENT`, or in none of the three.

    Ends are in the unit of the margin; where they are not known, it is `UNDECIDED`.
    """
    if high < -margin:
        return BETTER
    if low > margin:
        return WORSE
    return EQUIVALENT if -margin < low and high < margin else UNDECIDED


# Intervals of all pairs of methods, which hold all at once

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
        or where no differences vary.

    References
    ----------
    Konietschke, Bathke, Harrar and Pauly (2015), Parametric and nonparametric bootstrap methods for
    general MANOVA (of covariances that are estimated from few rows).
    """
    seeds, methods = scores.shape
    half_widths = np.full((methods, methods), np.nan)
    finite = np.isfinite(scores).all(axis=0)
    if seeds < LEAST_SEEDS or finite.sum() < 2:
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


# Intervals of contrasts on several data sets, which hold all at once

ENTRY = ["contrast", "data"]
"""Names of the levels that make an entry."""

MOVES = Mclmc(
    chains=16, draws=500, spread=0.5, descent=200, tuning=2500, shares=(0.5, 0.3, 0.2), thin=10
)
"""Less than a network needs: differences are standardised, so that the solution is about zero.
With so many draws the ends of an interval are good to about 2 % of its length."""

TRIES = 3
"""Seeds that are tried: now and then the tuning of a chain ends where it cannot move."""

ONE_SD = 0.6827
"""Probability within a standard deviation of a normal variable's mean."""


class Layout(NamedTuple):
    """Number of the entry, and of the data set's data seed, that each difference is of."""

    entry: tuple[int, ...]
    seed: tuple[int, ...]


def joint_intervals(
    quantities: Mapping[str, pd.Series],
    random_seed: int = 0,
    overlap: Mapping[str, float] | None = None,
) -> pd.DataFrame:
    """Intervals of all entries of several quantities, which hold all at once.

    Parameters
    ----------
    quantities
        Differences by name, each as `mean_draws` takes them. Quantities are fitted one by one,
        and their draws taken as independent, which makes intervals of related ones longer.
    random_seed, overlap
        As `mean_draws` takes them.

    Returns
    -------
    pd.DataFrame
        As `simultaneous_intervals` makes it, by name, contrast and data set; entries without
        enough data seeds are missing.
    """
    drawn = {n: mean_draws(values, random_seed, overlap) for n, values in quantities.items()}
    drawn = {name: draws for name, draws in drawn.items() if not draws.empty}
    if not drawn:
        return pd.DataFrame(columns=["mean", "low", "high"])
    # Where chains doubled their draws there are more of them.
    length = min(map(len, drawn.values()))
    kept = {
        name: draws[:: len(draws) // length][:length].reset_index(drop=True)
        for name, draws in drawn.items()
    }
    return simultaneous_intervals(pd.concat(kept, axis=1))


def mean_draws(
    differences: pd.Series, random_seed: int = 0, overlap: Mapping[str, float] | None = None
) -> pd.DataFrame:
    """Draws from the posterior of every entry's mean difference.

    Parameters
    ----------
    differences
        Finite values indexed by ``contrast``, ``data`` and ``seed``; entries of fewer than
        `LEAST_SEEDS` data seeds are left out.
    random_seed
        Decides the draws: the same seed gives the same bits.
    overlap
        Test rows for each training row of data sets whose data seeds split the same rows anew; 0
        of those that are missing.

    Returns
    -------
    pd.DataFrame
        A row a draw and a column an entry, in the unit of the differences.

    Raises
    ------
    RuntimeError
        If chains disagree however often they are tried.
    """
    number = differences.groupby(level=ENTRY, sort=False).transform("size")
    kept = differences[number >= LEAST_SEEDS]
    by_entry = kept.groupby(level=ENTRY, sort=False)
    centre, rest = by_entry.mean(), kept - by_entry.transform("mean")
    if kept.empty:
        return pd.DataFrame(columns=centre.index)
    scale = np.sqrt(by_entry.var().mean())
    # What does not vary beyond rounding has no deviation to estimate.
    if scale <= 1e-12 * max(centre.abs().max(), 1e-300):
        return pd.DataFrame([centre.to_numpy()] * MOVES.chains, columns=centre.index)
    # Data seeds of two data sets are different data.
    seeds = kept.groupby(level=["data", "seed"], sort=False).ngroup()
    layout = Layout(tuple(by_entry.ngroup()), tuple(seeds))
    shared = [(overlap or {}).get(data, 0.0) for data in centre.index.get_level_values("data")]
    draws = _standardised_draws(layout, (rest / scale).to_numpy(), random_seed, shared)
    return pd.DataFrame(centre.to_numpy() + scale * draws, columns=centre.index)


def simultaneous_intervals(draws: pd.DataFrame, level: float = LEVEL) -> pd.DataFrame:
    """Intervals that hold all at once, for each column of draws: ``mean``, ``low`` and ``high``.

    They are as many times each column's own spread to both sides of its mean as the largest of
    all standardised deviations of a draw stays within, with probability `level`.
    """
    centre, values = draws.median(), draws.to_numpy()
    # Half of a central interval: tails as heavy as those of t with two degrees have no variance.
    spread = np.quantile(np.abs(values - centre.to_numpy()), ONE_SD, axis=0)
    deviation = np.abs(values - centre.to_numpy()) / np.where(spread > 0, spread, 1)
    reach = np.quantile(deviation.max(axis=1), level) * spread
    return pd.DataFrame({"mean": centre, "low": centre - reach, "high": centre + reach})


def build_model(layout: Layout) -> "pm.Model":
    """Model of differences less the mean of their entry, in units of their standard deviation.

    Its scales are therefore the data's, and its priors say little: the typical deviation is known
    to within a factor of twenty, deviations of entries differ by a factor of 2.7 or less, means
    are flat. Effects of data seeds are integrated out, which leaves equal correlations within one.
    """
    import pymc as pm

    entry, seed = np.array(layout.entry), np.array(layout.seed)
    member = (seed == np.arange(seed.max() + 1)[:, None]).astype(float)
    sizes, seeds = np.bincount(seed), np.bincount(entry)
    with pm.Model() as model:
        y = pm.Data("y", np.zeros(len(entry)))
        typical = pm.Normal("typical_log_sd", 0.0, 3.0)
        differing = pm.HalfNormal("differing_log_sd", 1.0)
        own = pm.Normal("own_log_sd", 0.0, 1.0, shape=len(seeds))
        share = pm.Uniform("share_of_seed", 0.0, 1.0)
        # A mean in standard errors does not depend on its deviation; with the Jacobian the prior
        # of the mean itself is flat.
        z = pm.Normal("z", 0.0, 100.0, shape=len(seeds))
        log_sd = typical + differing * own
        pm.Potential("jacobian", log_sd.sum())
        mean = pm.Deterministic("mean", z * pm.math.exp(log_sd) / np.sqrt(seeds))
        rest = (y - mean[entry]) * pm.math.exp(-log_sd[entry])
        within, whole = 1 - share, 1 - share + sizes * share
        common = share * pm.math.dot(member, rest) ** 2 / whole
        squares = ((rest**2).sum() - common.sum()) / within
        determinant = ((sizes - 1) * pm.math.log(within) + pm.math.log(whole)).sum()
        pm.Potential("differences", -0.5 * (squares + determinant) - log_sd[entry].sum())
    return model


def _standardised_draws(
    layout: Layout, values: np.ndarray, random_seed: int, overlap: Sequence[float]
) -> np.ndarray:
    """Draws of means of standardised differences, ``(draw, entry)``.

    Parameters
    ----------
    overlap
        Variance of the error that all data seeds of an entry share, in those of one.
    """
    slots = {slot.name: slot for slot in _sampler(layout).density.flat.layout.slots}

    def values_of(vectors: np.ndarray, name: str) -> np.ndarray:
        return vectors[..., slots[name].start : slots[name].stop]

    def deviations(vectors: np.ndarray) -> np.ndarray:
        differing = np.exp(values_of(vectors, "differing_log_sd_log__"))
        own = differing * values_of(vectors, "own_log_sd")
        return np.exp(values_of(vectors, "typical_log_sd") + own)

    def means(vectors: np.ndarray) -> np.ndarray:
        return values_of(vectors, "z") * deviations(vectors) / np.sqrt(np.bincount(layout.entry))

    chains = _sampled(layout, values, means, random_seed).chains.values
    errors = np.random.default_rng(random_seed).normal(size=(*chains.shape[:-1], len(overlap)))
    drawn = means(chains) + np.sqrt(overlap) * deviations(chains) * errors
    return drawn.reshape(-1, drawn.shape[-1])


def _sampled(layout: Layout, values: np.ndarray, means, random_seed: int) -> "Samples":
    from pmbnn.inference.samplers.run import sample_posterior

    for attempt in range(TRIES):
        samples = sample_posterior(
            _sampler(layout),
            {"y": values},
            means,
            identity=f"differences/{random_seed}/{attempt}",
        )
        if samples.status == "converged":
            return samples
    raise RuntimeError(f"The means of the differences cannot be sampled: {samples.reason}.")


@lru_cache(maxsize=16)
def _sampler(layout: Layout) -> "Sampler":
    """Compiled programs of a layout: between fits of it only the differences vary."""
    from pmbnn.inference.log_density import build_log_density
    from pmbnn.inference.samplers.run import build_sampler
    from pmbnn.inference.xla.compile import use_compilation_cache

    # Most of the time of a table of contrasts is compiling (19 of 32 s of one of four).
    use_compilation_cache()
    density = build_log_density(build_model(layout), len(layout.entry), "float64")
    return build_sampler(density, MOVES)
