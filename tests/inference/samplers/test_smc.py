"""Draws and evidences by tempered sequential Monte Carlo against what is known."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from posteriors import (
    SHARE,
    drawn,
    regression,
    regression_evidence,
    regression_moments,
    sampler_of,
    two_modes,
    walled,
)
from scipy import integrate, stats

from pmbnn.inference.samplers.chains import Evidence
from pmbnn.inference.samplers.run import sample_posterior
from pmbnn.inference.xla.compile import precision

RUNS = 8


def standard_error(of_runs):
    """Of a mean over independent runs."""
    return of_runs.std(ddof=1) / np.sqrt(len(of_runs))


def test_evidence_of_runs_is_a_mean_of_evidences():
    found = Evidence.of(np.log([[1.0, 1.0], [2.0, 2.0], [6.0, 6.0]]) - 1000)
    assert found.value == pytest.approx(np.log(3) - 1000)
    assert found.error == pytest.approx(np.std([1, 2, 6], ddof=1) / np.sqrt(3) / 3)
    assert str(Evidence(-249.87, 0.123)) == "-249.87 ± 0.12"


def test_runs_with_equal_evidences():
    """As of a model that observes nothing: they are several runs all the same."""
    assert Evidence.of(np.zeros((3, 4))) == (0.0, 0.0)


@pytest.mark.slow
def test_conjugate_regression():
    """Mean, covariance and evidence are known in closed form."""
    found = drawn(regression(), "smc", chains=RUNS)
    assert found.status == "converged", found.reason
    mean, sd = regression_moments()
    # Particles of a run are not independent, runs are.
    for of_runs, expected in ((np.mean, mean), (np.std, sd)):
        values = of_runs(found.chains.values, axis=1)
        errors = np.abs(values.mean(axis=0) - expected) / standard_error_of_columns(values)
        assert errors.max() < 4
    value, error = found.log_evidence
    assert abs(value - regression_evidence()) < 4 * error
    assert error < 0.1
    of = found.chains.statistics
    assert not of["diverging"].any()
    for name in ("log_evidence", "acceptance_rate", "n_temperatures"):
        assert (of[name] == of[name][:, :1]).all()
    assert len(np.unique(of["log_evidence"])) == RUNS
    assert of["acceptance_rate"].mean() == pytest.approx(0.8, abs=0.1)


def standard_error_of_columns(values):
    return np.array([standard_error(column) for column in values.T])


@pytest.mark.slow
def test_log_density_is_that_of_the_draw_on_the_model_s_own_scale(evaluate):
    """With a bounded variable, whose coordinates are other ones within the sampler."""
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 2.0)
        pm.Normal("y", 0.0, sigma, observed=[0.5, -1.0, 2.0])
    found = drawn(model, "smc", draws=32)
    vector = found.chains.values[1, 5]
    (expected,) = evaluate([model.logp()], {model.value_vars[0]: vector[0]})
    assert found.chains.statistics["lp"][1, 5] == pytest.approx(float(expected), rel=1e-9)


@pytest.mark.slow
def test_two_modes_have_their_shares():
    found = drawn(two_modes(), "smc", chains=RUNS)
    shares = (found.chains.values[..., 0] > 0).mean(axis=1)
    assert abs(shares.mean() - SHARE) < 4 * standard_error(shares)
    assert standard_error(shares) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("centred", [True, False])
def test_heavy_tails_and_a_learned_scale(centred):
    """One observation far out, under a Cauchy prior of half-Cauchy scale; by quadrature."""
    with pm.Model() as model:
        scale = pm.HalfCauchy("scale", 1.0)
        x = pm.Cauchy("x", 0.0, scale) if centred else scale * pm.Cauchy("x_z", 0.0, 1.0)
        pm.Normal("y", x, 1.0, observed=20.0)
    found = drawn(model, "smc", chains=RUNS)

    def density(x, log_scale):
        of_scale = stats.halfcauchy.pdf(np.exp(log_scale)) * np.exp(log_scale)
        return of_scale * stats.cauchy.pdf(x, 0, np.exp(log_scale)) * stats.norm.pdf(20 - x)

    expected, _ = integrate.dblquad(density, -12, 16, 12, 28)
    value, error = found.log_evidence
    assert abs(value - np.log(expected)) < 4 * error
    assert error < 0.2


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits():
    sampler = sampler_of(regression(), "smc", chains=2, draws=32, moves=1, leapfrogs=(2, 4))
    first, again, other = (
        sample_posterior(sampler, {}, lambda v: v, identity=seed) for seed in "334"
    )
    np.testing.assert_array_equal(first.chains.values, again.chains.values)
    assert not np.isin(first.chains.values, other.chains.values).any()
    assert not np.isin(first.chains.values[0], first.chains.values[1]).any()


@pytest.mark.slow
def test_each_block_has_runs_of_its_own():
    sampler = sampler_of(regression(), "smc", chains=2, draws=16, moves=1, leapfrogs=(2, 4))
    with precision(sampler.density.dtype):
        prepared = sampler.density.prepare({})
        state, first = sampler.extend(sampler.start(prepared, "0"), prepared, "0")
        blocks = [first, sampler.extend(state, prepared, "0")[1]]
    assert not np.isin(blocks[0].values, blocks[1].values).any()
    both = blocks[0].followed_by(blocks[1])
    assert len(np.unique(both.statistics["log_evidence"])) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("threshold", "status"), [(0.0, "diverged"), (-np.inf, "converged"), (np.inf, "diverged")]
)
def test_a_density_that_is_not_a_number_somewhere(threshold, status):
    """Beyond a wall through the mode, nowhere, and everywhere."""
    found = drawn(walled(threshold), "smc", draws=256)
    assert found.status == status, found.reason
    if status == "diverged":
        assert "4 of 4 chains met a log-density or a gradient that is not finite" in found.reason
        assert found.log_evidence is None


@pytest.mark.slow
def test_a_density_that_is_zero_somewhere():
    """What is left of the prior is the evidence."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=2)
        pm.Potential("edge", pt.switch(x[0] < 1, -np.inf, 0.0))
    found = drawn(model, "smc", chains=RUNS)
    assert found.status == "converged", found.reason
    value, error = found.log_evidence
    assert abs(value - stats.norm.logsf(1)) < 4 * error
    assert found.chains.values[..., 0].min() > 1


@pytest.mark.slow
def test_draws_outside_the_domain_of_a_parameter():
    """Half of the prior has a negative standard deviation, and no part in the evidence."""
    observed = np.array([0.5, -1.0])
    with pm.Model() as model:
        pm.Normal("x", 0.0, pm.Normal("sd"), observed=observed)
    found = drawn(model, "smc", chains=RUNS)
    assert found.status == "converged", found.reason
    sd = np.linspace(0, 10, 20_001)[1:]
    likelihood = stats.norm.pdf(observed[:, None], 0, sd).prod(axis=0)
    evidence = np.trapezoid(stats.norm.pdf(sd) * likelihood, sd)
    value, error = found.log_evidence
    assert abs(value - np.log(evidence)) < 4 * error
    assert found.chains.values.min() > 0
