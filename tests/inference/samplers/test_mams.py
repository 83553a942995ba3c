"""Draws by Metropolis-adjusted microcanonical trajectories against distributions that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.mcmc.integrators import IntegratorState
from posteriors import drawn as drawn_by
from posteriors import errors_of, regression, regression_moments, walled

from pmbnn.inference.samplers import mams
from pmbnn.inference.samplers.mams import move
from pmbnn.inference.samplers.mclmc import Steps


def drawn(model, **settings):
    return drawn_by(model, "mams", **({"chains": 8, "draws": 400, "descent": 100} | settings))


@pytest.mark.slow
@pytest.mark.parametrize("acceptance", [0.7, 0.9])
def test_conjugate_regression(acceptance):
    """Long steps make draws repeat, and do not move them."""
    found = drawn(regression(), target_acceptance=acceptance, tuning=2_000, draws=1_600)
    assert found.status == "converged", found.reason
    assert errors_of(found.chains.values, *regression_moments()).max() < 4
    assert found.chains.statistics["acceptance_rate"].mean() == pytest.approx(acceptance, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("threshold", "status"), [(0.0, "diverged"), (-np.inf, "converged")])
def test_a_density_that_is_not_a_number_somewhere(threshold, status):
    found = drawn(walled(threshold), chains=4, draws=100)
    assert found.status == status, found.reason


WALK = IntegratorState(jnp.ones(3), jnp.ones(3), jnp.zeros(()), jnp.zeros(3))


def draws_after(monkeypatch, change, length):
    """64 draws, at zero or, if the trajectory is rejected, at one; a step has length 1."""

    def integrate(walk, step_size):
        return walk._replace(position=jnp.zeros(3)), jnp.asarray(change)

    monkeypatch.setattr(mams, "isokinetic_mclachlan", lambda *_: integrate)
    moving = Steps(1.0, length, np.inf)
    draw = jax.vmap(lambda number: move(jax.random.key(0), number, WALK, None, 1, moving)[1])
    return jax.device_get(jax.jit(draw)(jnp.arange(64)))


@pytest.mark.parametrize(("change", "probability"), [(0.5, np.exp(-0.5)), (-3.0, 1.0), (np.nan, 0)])
def test_a_trajectory_is_accepted_by_its_change_of_energy(monkeypatch, change, probability):
    draws = draws_after(monkeypatch, change, length=0.5)
    np.testing.assert_allclose(draws.statistics["acceptance_rate"], probability, rtol=1e-6)
    accepted = (draws.position == 0).all(axis=1)
    assert accepted.mean() == pytest.approx(probability, abs=0.2)
    assert (draws.n_not_finite == np.isnan(change)).all()


def test_lengths_are_spread_about_their_mean(monkeypatch):
    steps = draws_after(monkeypatch, 0.0, length=10.0).statistics["n_steps"]
    assert set(steps) == set(range(1, 21))
    assert steps.mean() == pytest.approx(10.5, abs=0.5)
