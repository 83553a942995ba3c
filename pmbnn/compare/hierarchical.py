"""Means of paired differences over data seeds, with intervals that all hold at once.

A difference between two cells on one data seed is normal about the mean of its *entry*, a contrast
on a data set, with a standard deviation of the entry's own. A share of that variance is the data
seed's, common to all contrasts of its data set. Deviations of entries are alike on a logarithmic
scale, as far as the data have them so: from five data seeds alone an entry would know its own to
within a factor of two. With a single entry the interval is that of the t test. Where data seeds
split the same rows anew, all of them share an error besides, whose variance is that of one split
times the test rows for each training row.

References
----------
Gelman (2006), Prior distributions for variance parameters in hierarchical models; Hothorn, Bretz
and Westfall (2008), Simultaneous inference in general parametric models (of max |t|); Nadeau and
Bengio (2003), Inference for the Generalization Error (of splits); Corani and Benavoli (2015), A
Bayesian approach for comparing cross-validated algorithms on multiple data sets.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pandas as pd
import pymc as pm

from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.samplers.chains import Sampler, Samples
from pmbnn.inference.samplers.run import build_sampler, sample_posterior
from pmbnn.inference.samplers.settings import Mclmc

LEVEL = 0.95
"""Probability that all intervals of a family hold together."""

LEAST_SEEDS = 3
"""Data seeds that an entry must have: of two, the prior would decide the interval's length."""

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
    kept = {name: draws[:: len(draws) // length][:length] for name, draws in drawn.items()}
    together = pd.concat({n: d.reset_index(drop=True) for n, d in kept.items()}, axis=1)
    return simultaneous_intervals(together)


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
    layout = Layout(tuple(by_entry.ngroup()), tuple(_seed_numbers(kept)))
    overlap = {} if overlap is None else overlap
    shared = [overlap.get(data, 0.0) for data in centre.index.get_level_values("data")]
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


def build_model(layout: Layout) -> pm.Model:
    """Model of differences less the mean of their entry, in units of their standard deviation.

    Its scales are therefore the data's, and its priors say little: the typical deviation is known
    to within a factor of twenty, deviations of entries differ by a factor of 2.7 or less, means
    are flat. Effects of data seeds are integrated out, which leaves equal correlations within one.
    """
    at, of = np.array(layout.entry), np.array(layout.seed)
    member = (of == np.arange(of.max() + 1)[:, None]).astype(float)
    sizes, seeds = np.bincount(of), np.bincount(at)
    with pm.Model() as model:
        y = pm.Data("y", np.zeros(len(at)))
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
        rest = (y - mean[at]) * pm.math.exp(-log_sd[at])
        within, whole = 1 - share, 1 - share + sizes * share
        common = share * pm.math.dot(member, rest) ** 2 / whole
        squares = ((rest**2).sum() - common.sum()) / within
        determinant = ((sizes - 1) * pm.math.log(within) + pm.math.log(whole)).sum()
        pm.Potential("differences", -0.5 * (squares + determinant) - log_sd[at].sum())
    return model


def _seed_numbers(differences: pd.Series) -> np.ndarray:
    """Number of each difference's data seed: those of two data sets are different data."""
    return differences.groupby(level=["data", "seed"], sort=False).ngroup().to_numpy()


def _standardised_draws(
    layout: Layout, values: np.ndarray, random_seed: int, overlap: Sequence[float]
) -> np.ndarray:
    """Draws of means of standardised differences, ``(draw, entry)``.

    Parameters
    ----------
    overlap
        Variance of the error that all data seeds of an entry share, in those of one.
    """
    read = {slot.name: slot for slot in _sampler(layout).density.flat.layout.slots}

    def of(vectors: np.ndarray, name: str) -> np.ndarray:
        return vectors[..., read[name].start : read[name].stop]

    def deviations(vectors: np.ndarray) -> np.ndarray:
        differing = np.exp(of(vectors, "differing_log_sd_log__"))
        return np.exp(of(vectors, "typical_log_sd") + differing * of(vectors, "own_log_sd"))

    def means(vectors: np.ndarray) -> np.ndarray:
        return of(vectors, "z") * deviations(vectors) / np.sqrt(np.bincount(layout.entry))

    found = _sampled(layout, values, means, random_seed).chains.values
    errors = np.random.default_rng(random_seed).normal(size=(*found.shape[:-1], len(overlap)))
    drawn = means(found) + np.sqrt(overlap) * deviations(found) * errors
    return drawn.reshape(-1, drawn.shape[-1])


def _sampled(layout: Layout, values: np.ndarray, means, random_seed: int) -> Samples:
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
def _sampler(layout: Layout) -> Sampler:
    """Compiled programs of a layout: between fits of it only the differences vary."""
    density = build_log_density(build_model(layout), len(layout.entry), "float64")
    return build_sampler(density, MOVES)
