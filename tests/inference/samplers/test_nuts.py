"""Draws by the No-U-Turn Sampler against distributions that are known."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from posteriors import drawn, errors_of, regression, regression_moments, two_modes, walled
from posteriors import sampler_of as sampler_of_engine

from pmbnn.inference.samplers.run import sample_posterior

pytestmark = pytest.mark.slow


def test_conjugate_regression():
    found = drawn(regression(), "nuts", chains=4)
    assert found.status == "converged", found.reason
    assert errors_of(found.chains.values, *regression_moments()).max() < 4
    of = found.chains.statistics
    names = {"lp", "diverging", "tree_depth", "n_steps", "acceptance_rate", "energy", "step_size"}
    assert set(of) == names
    assert (of["n_steps"] < 2 ** of["tree_depth"]).all()
    # Adapted to 0.8 by the doubling of a trajectory: the mean comes out above.
    assert 0.75 < of["acceptance_rate"].mean() < 0.97
    # Kinetic energy of two dimensions: 1 in the mean.
    assert (of["energy"] + of["lp"]).mean() == pytest.approx(1.0, abs=0.1)
    assert found.log_evidence is None


def test_log_density_is_that_of_the_draw(evaluate):
    model = regression()
    found = drawn(model, "nuts", chains=2, draws=20, tuning=50)
    for chain, draw in ((0, 0), (1, 7)):
        point = {model.value_vars[0]: found.chains.values[chain, draw]}
        (expected,) = evaluate([model.logp()], point)
        assert found.chains.statistics["lp"][chain, draw] == pytest.approx(float(expected))


def test_chains_in_two_modes_are_not_said_to_agree():
    """None of eight crosses from one bump to the other."""
    found = drawn(two_modes(), "nuts", draws=50, tuning=100, descent=100)
    sides = np.sign(found.chains.values[..., 0])
    assert (sides == sides[:, :1]).all()
    assert len(np.unique(sides)) == 2
    assert found.status == "undecided"
    assert found.convergence.largest > 1.5


def test_the_same_seed_gives_the_same_bits():
    sampler = sampler_of_engine(regression(), "nuts", chains=2, draws=20, descent=20, tuning=50)
    first, again, other = (
        sample_posterior(sampler, {}, lambda v: v, identity=seed) for seed in "334"
    )
    np.testing.assert_array_equal(first.chains.values, again.chains.values)
    assert not np.isin(first.chains.values, other.chains.values).any()
    assert not np.isin(first.chains.values[0], first.chains.values[1]).any()
    assert first.tuned == again.tuned != other.tuned


@pytest.mark.parametrize(
    ("threshold", "status"), [(0.0, "diverged"), (-np.inf, "converged"), (np.inf, "diverged")]
)
def test_a_density_that_is_not_a_number_somewhere(threshold, status):
    """Beyond a wall through the mode, nowhere, and everywhere."""
    found = drawn(walled(threshold), "nuts", chains=4, draws=200, tuning=100)
    assert found.status == status, found.reason
    if status == "diverged":
        assert "of 4 chains met a log-density or a gradient that is not finite" in found.reason


def test_a_density_that_is_zero_somewhere_breaks_nothing():
    """Trajectories over the edge are divergences; draws are those of the half that is left."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=2)
        pm.Potential("edge", pt.switch(x[0] < 0, -np.inf, 0.0))
    found = drawn(model, "nuts", chains=4, draws=500)
    assert found.status == "converged", found.reason
    assert found.chains.statistics["diverging"].any()
    expected = np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi)
    assert errors_of(found.chains.values[..., :1], *expected).max() < 4
