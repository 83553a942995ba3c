"""Where truths lie among draws, over data simulated from the prior.

Ranks are uniform if and only if draws are those of the posterior, over all data that the prior
makes likely (Talts et al. 2018, Validating Bayesian Inference Algorithms with Simulation-Based
Calibration).
"""

import numpy as np
import pymc as pm
import pytest
from posteriors import sampler_of
from scipy import stats

from pmbnn.inference.xla.compile import precision

pytestmark = pytest.mark.slow

DATA_SETS, DRAWS, BINS = 100, 19, 5
X = np.column_stack([np.ones(8), np.linspace(-1, 1, 8)])

SETTINGS = {
    "mclmc": {"chains": 4, "draws": 100, "descent": 200, "tuning": 2_000},
    "nuts": {"chains": 4, "draws": 50, "descent": 200, "tuning": 200},
    "smc": {"chains": 2, "draws": 64, "moves": 3, "leapfrogs": (4, 8)},
}


def regression_with_noise():
    """Two weights and the logarithm of the noise, from eight observations."""
    with pm.Model() as model:
        weight = pm.Normal("weight", 0.0, 1.0, shape=2)
        sigma = pm.HalfNormal("sigma", 1.0)
        y = pm.Data("targets", np.zeros(8))
        pm.Normal("y", X @ weight, sigma, observed=y)
    return model


def simulated(rng):
    """A truth, as the flat vector has it, and its data."""
    weight, sigma = rng.normal(size=2), abs(rng.normal())
    return np.append(weight, np.log(sigma)), X @ weight + sigma * rng.normal(size=8)


def some_of(chains, rng):
    """A few draws of all chains."""
    values = chains.values.reshape(-1, chains.values.shape[-1])
    return values[rng.choice(len(values), DRAWS, replace=False)]


def p_values(ranks):
    """That ranks, ``(data set, scalar)`` from 0 to `DRAWS`, are uniform."""
    bins = ranks * BINS // (DRAWS + 1)
    counts = [np.bincount(column, minlength=BINS) for column in bins.T]
    return stats.chisquare(counts, axis=1).pvalue


@pytest.mark.parametrize("engine", SETTINGS)
def test_truths_lie_anywhere_among_the_draws(engine):
    sampler = sampler_of(regression_with_noise(), engine, **SETTINGS[engine])
    rng, ranks = np.random.default_rng(0), []
    for i in range(DATA_SETS):
        truth, y = simulated(rng)
        with precision("float64"):
            prepared = sampler.density.prepare({"targets": y})
            state = sampler.start(prepared, f"calibration/{i}")
            chains = sampler.extend(state, prepared, f"calibration/{i}")[1]
        assert not chains.broken.any()
        ranks.append((some_of(chains, rng) < truth).sum(axis=0))
    # Of three sampled scalars, one falls below that by chance in 330 tries.
    assert p_values(np.array(ranks)).min() > 1e-3


@pytest.mark.parametrize(("shift", "scale"), [(0.6, 1.0), (0.0, 0.5)])
def test_draws_off_the_posterior_would_show(shift, scale):
    """Normal draws that are moved by a fraction of their standard deviation, or too narrow."""
    rng = np.random.default_rng(0)
    truths, draws = rng.normal(size=(DATA_SETS, 1, 3)), rng.normal(size=(DATA_SETS, DRAWS, 3))
    assert p_values((draws < truths).sum(axis=1)).min() > 1e-3
    assert p_values((shift + scale * draws < truths).sum(axis=1)).max() < 1e-3
