"""Draws by microcanonical Langevin Monte Carlo against distributions that are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats
from blackjax.mcmc.integrators import IntegratorState
from posteriors import MCLMC, errors_of, regression, regression_moments, two_modes, walled
from posteriors import drawn as drawn_by
from posteriors import sampler_of as sampler_of_engine

from pmbnn.core.stages import on_progress
from pmbnn.inference.samplers import mclmc
from pmbnn.inference.samplers.chains import chain_keys
from pmbnn.inference.samplers.mclmc import (
    Draw,
    MclmcSampler,
    Steps,
    Window,
    move,
    next_step_size,
    step,
    windows,
)
from pmbnn.inference.samplers.run import sample_posterior
from pmbnn.inference.xla.compile import precision


def sampler_of(model, chains=8, draws=200, **settings):
    return sampler_of_engine(model, "mclmc", chains=chains, draws=draws, **settings)


def drawn(model, **settings):
    return drawn_by(model, "mclmc", **({"chains": 8, "draws": 200} | settings))


def test_conjugate_regression():
    """Mean and covariance are known in closed form."""
    found = drawn(regression(), **MCLMC)
    assert found.status == "converged", found.reason
    assert errors_of(found.chains.values, *regression_moments()).max() < 4


@pytest.mark.slow
def test_a_density_that_is_not_gaussian():
    """A funnel with a mild neck: log-scale normal, and given it a normal of that scale."""
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 0.7)
        pm.Normal("x", 0.0, pt.exp(level))
    found = drawn(model, draws=800)
    level, x = (found.chains.values[..., i] for i in range(2))
    assert found.status == "converged", found.reason
    # E x² = exp(2 · 0.49); x² has tails too heavy for its error, |x| does not.
    wanted = np.sqrt(2 / np.pi) * np.exp(0.49 / 2)
    error = array_stats.mcse(np.abs(x), chain_axis=0, draw_axis=1)
    assert abs(np.abs(x).mean() - wanted) < 4 * error
    assert errors_of(level[..., None], 0.0, 0.7).max() < 4


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits():
    sampler = sampler_of(regression(), chains=2, draws=20, descent=20, tuning=200, thin=2)
    first, again, other = (
        sample_posterior(sampler, {}, lambda v: v, identity=seed) for seed in "334"
    )
    np.testing.assert_array_equal(first.chains.values, again.chains.values)
    assert not np.isin(first.chains.values, other.chains.values).any()
    assert not np.isin(first.chains.values[0], first.chains.values[1]).any()
    assert first.tuned == again.tuned != other.tuned


@pytest.mark.slow
@pytest.mark.parametrize(
    ("threshold", "status"), [(0.0, "diverged"), (-np.inf, "converged"), (np.inf, "diverged")]
)
def test_a_density_that_is_not_a_number_somewhere(threshold, status):
    """Beyond a wall through the mode, nowhere, and everywhere."""
    found = drawn(walled(threshold), chains=4, draws=100)
    assert found.status == status, found.reason
    if status == "diverged":
        assert "of 4 chains met a log-density or a gradient that is not finite" in found.reason
        assert found.convergence is None


@pytest.mark.slow
def test_starts_are_where_the_density_is_a_number():
    """Half of the starts are not; the posterior is far from there."""
    with pm.Model() as model:
        x = pm.Normal("x", np.array([-20.0, 0.0]), 1.0)
        pm.Potential("wall", pt.switch(x[0] > 0, np.nan, 0.0))
    found = drawn(model, chains=4, draws=100)
    assert found.status == "converged", found.reason
    assert found.chains.values[..., 0].mean() == pytest.approx(-20, abs=0.3)


@pytest.mark.parametrize("longest", [None, 50])
@pytest.mark.parametrize("steps", [1, 10, 35, 200, 2_000])
def test_windows_of_a_warm_up_are_all_of_its_steps(steps, longest):
    found = list(windows(steps, longest))
    assert sum(found) == steps
    assert max(found) < 2 * (longest or steps)
    assert found == sorted(found)


def window_of(energy_error, position=None, n_not_finite=0, turned=0.0):
    shape = np.shape(energy_error)
    position = np.zeros((*shape, 3)) if position is None else position
    window = Window(3)
    for half in np.array_split(np.arange(shape[1]), 2):
        errors, not_finite = np.asarray(energy_error)[:, half], np.full(shape, n_not_finite)
        share = np.broadcast_to(turned, shape)[:, half]
        draws = Draw(position[:, half], errors, errors, not_finite[:, half], share)
        window.add(draws, errors)
    return window


def test_a_chain_far_away_does_not_slow_the_others():
    errors = np.full((5, 40), 5e-4)
    for far in (5e-4, 1e9):
        errors[0] = far
        window = window_of(errors)
        found = MclmcSampler.of_all(None, window.not_finite, window.excess(5e-4, 9.0))
        assert found == (False, pytest.approx(1, rel=1e-6))


def test_it_is_remembered_which_chains_met_what_is_not_finite():
    assert window_of(np.ones((3, 4)), n_not_finite=1).not_finite.tolist() == [True] * 3
    assert window_of(np.ones((3, 4))).not_finite.tolist() == [False] * 3


def test_a_chain_that_turns_round_at_more_than_a_tenth_of_its_steps_is_stuck():
    turned = np.array([[0.0] * 9 + [0.9], [0.0] * 8 + [1.0, 0.1], [1.0] * 10])
    assert window_of(np.ones((3, 10)), turned=turned).is_stuck.tolist() == [False, True, True]


def test_the_decoherence_length_is_of_the_variances_of_all_chains():
    values = np.random.default_rng(0).normal([1e3, 0, -5], [1, 2, 3], size=(4, 50_000, 3))
    assert window_of(np.ones((4, 50_000)), values).spread == pytest.approx(np.sqrt(14), rel=0.01)


@pytest.mark.parametrize("power", [4, 6, 16])
def test_the_step_size_is_found_whatever_the_law_of_the_error(power):
    """Energy errors of 100 times the target and of nearly none at first."""
    for first in (100 ** (1 / power), 1e-3):
        step_size = first
        for _ in range(20):
            step_size = next_step_size(step_size, step_size**power + 1e-8, 6.0)
        assert step_size == pytest.approx(1, rel=0.05)


def test_the_energy_error_is_a_mean_over_steps_and_dimensions(monkeypatch):
    """Of steps that all change the energy by 6 in 3 dimensions: 36 / 3, however many they are."""
    walk = IntegratorState(jnp.zeros(3), jnp.ones(3), jnp.zeros(()), jnp.zeros(3))
    monkeypatch.setattr(mclmc, "step", lambda *_: (walk, jnp.asarray(6.0), jnp.asarray(True)))
    with jax.disable_jit():
        for steps in (1, 5):
            _, draw = move(jax.random.key(0), 0, walk, None, steps, Steps(1.0, 1.0, jnp.inf))
            assert draw.energy_error == pytest.approx(12)


def test_steps_that_are_too_long_at_first_are_halved(monkeypatch):
    """They leave the support; in the warm-up that breaks no chain."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=2)
        pm.Potential("wall", pt.switch((x**2).sum() > 100, np.nan, 0.0))
    monkeypatch.setattr(MclmcSampler, "first_step", 50.0)
    found = drawn(model, **MCLMC)
    assert found.status == "converged", found.reason
    assert found.tuned["step_size"] < 10
    assert not found.chains.broken.any()


@pytest.mark.parametrize("limit", [0.0, np.inf])
def test_a_step_beyond_the_limit_is_not_taken_and_the_chain_turns_round(limit):
    """Its error counts as far as the limit."""

    def log_density(at):
        return -50.0 * jnp.sum(at**2)

    with precision("float64"):
        at, momentum = jnp.array([1.0, 0.5]), jnp.array([0.6, 0.8])
        walk = IntegratorState(at, momentum, *jax.value_and_grad(log_density)(at))
        settings = jnp.array(0.3), jnp.array(jnp.inf), jnp.array(limit)
        after, change, finite = step(jax.random.key(0), walk, log_density, *settings)
    assert finite
    if limit == 0:
        assert change == 0
        np.testing.assert_array_equal(after.position, at)
        np.testing.assert_array_equal(after.momentum, -momentum)
    else:
        assert abs(change) > 1
        assert not np.allclose(after.position, at)


def test_draws_in_which_one_chain_is_stuck_are_drawn_again_with_shorter_steps():
    """A chain in a narrow part of the density, where the steps of the others do not fit.

    Those that are still too long after all retries are no result.
    """
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, np.array([100.0, 1.0, 1.0, 1.0]))
        # A ridge beyond x = 150, a thousandth as wide in the other directions.
        pm.Potential("narrow", pt.switch(x[0] > 150, -0.5e6 * (x[1:] ** 2).sum(), 0.0))
    for retries in (12, 1):
        sampler = sampler_of(model, chains=8, draws=50, thin=1, retries=retries, largest_error=20)
        with precision("float64"):
            prepared = sampler.density.prepare({})
            state = sampler.start(prepared, "0")
            inside = np.asarray(state.walk.position).copy()
            inside[0] = [250, 0, 0, 0]
            density, gradient = jax.vmap(jax.value_and_grad(sampler.density.at(prepared)))(inside)
            walk = state.walk._replace(
                position=jnp.asarray(inside), logdensity=density, logdensity_grad=gradient
            )
            after, found = sampler.extend(state._replace(walk=walk), prepared, "0")
        assert float(after.step_size) < 0.6 * float(state.step_size)
        assert ("draws are biased" in sampler.tuning(after).doubt) == (retries == 1)


def test_the_limit_changes_no_distribution():
    """Of the conjugate regression, where a limit this low turns chains round at many steps."""
    low = MCLMC | {"start": "map", "largest_error": 2.0}
    sampler = sampler_of(regression(), **low | {"draws": 400})
    *_, keys = chain_keys("0", sampler.settings.chains)
    with precision("float64"):
        prepared = sampler.density.prepare({})
        state = sampler.start(prepared, "0")
        _, draws = sampler._extend(keys, state, 400, 1, prepared)
    stayed = (np.diff(draws.position, axis=1) == 0).all(axis=2)
    assert 0.05 < stayed.mean() < 0.5
    found = drawn(regression(), **low)
    assert found.status == "converged", found.reason
    assert errors_of(found.chains.values, *regression_moments()).max() < 4
    assert 0.05 < found.chains.statistics["turned"].mean() < 0.5


@pytest.mark.slow
def test_a_gradient_that_is_not_a_number():
    """The density is finite, so that nothing but a chain which stays where it is would show."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=2)
        # Derivative of the branch not taken: infinity times zero.
        pm.Potential("root", pt.switch(x[0] > 100, pt.sqrt(x[0] - 100), 0.0).sum())
    found = drawn(model, chains=4, draws=20, descent=10, tuning=100)
    assert found.status == "diverged"
    assert found.reason.startswith("4 of 4 chains")


@pytest.mark.slow
def test_chains_in_two_modes_are_not_said_to_agree():
    found = drawn(two_modes(), draws=50, descent=100, tuning=500)
    assert found.status == "undecided"
    assert found.convergence.largest > 1.5


def test_one_variable_is_too_few():
    with pm.Model() as model:
        pm.Normal("x", 0.0, 1.0)
    with pytest.raises(ValueError, match="two unconstrained scalars.*pm.sample"):
        drawn(model)


@pytest.mark.parametrize(("retries", "status"), [(4, "converged"), (0, "undecided")])
def test_steps_that_turn_out_too_long_are_tuned_anew(monkeypatch, retries, status):
    """As if the posterior had become narrower after the warm-up."""
    first = MclmcSampler.start

    def start(sampler, *arguments):
        state = first(sampler, *arguments)
        return state.moving_at(4 * state.step_size, float(state.length))

    monkeypatch.setattr(MclmcSampler, "start", start)
    updates = []
    with on_progress(updates.append):
        found = drawn(regression(), **MCLMC, retries=retries)
    assert found.status == status, found.reason
    words = {stages[-1].words for stages in updates if stages and stages[-1].words}
    again = "with shorter steps, attempt 1 of 4"
    assert (again in words) == (status == "converged")
    if status == "converged":
        assert errors_of(found.chains.values, *regression_moments()).max() < 4
    else:
        assert found.reason.startswith("the energy error has ")


def test_one_block_of_long_steps_is_remembered():
    """A later block with a small error does not make up for the draws of the first."""
    sampler, identity = sampler_of(regression(), **MCLMC, retries=0), "0"
    with precision("float64"):
        prepared = sampler.density.prepare({})
        state = sampler.start(prepared, identity)
        step_size, length = np.asarray(state.step_size), float(state.length)
        state, _ = sampler.extend(state.moving_at(4 * step_size, length), prepared, identity)
        state, _ = sampler.extend(state.moving_at(step_size / 4, length), prepared, identity)
    assert sampler.tuning(state).doubt.startswith("the energy error has ")
