"""Learning rates over a fit, and that the optimiser follows them."""

import jax.numpy as jnp
import numpy as np
import pytest

from pmbnn.inference.jax_edge import precision
from pmbnn.inference.optimisers import build_optimiser, build_schedule
from pmbnn.inference.settings import Inference

RATE = 0.03
STEPS = 400


def rates(schedule, steps=STEPS):
    follow = build_schedule(Inference(schedule=schedule, learning_rate=RATE), steps)
    with precision("float64"):
        return np.array([float(follow(step)) for step in range(steps)])


def test_constant():
    np.testing.assert_allclose(rates("constant"), RATE, rtol=1e-12)


def test_cosine():
    """Half a cosine, from the learning rate down to zero."""
    expected = RATE * (1 + np.cos(np.pi * np.arange(STEPS) / STEPS)) / 2
    np.testing.assert_allclose(rates("cosine"), expected, rtol=1e-12)
    assert rates("cosine")[-1] < 1e-4 * RATE


def test_one_cycle():
    """A straight line up over the first tenth, half a cosine down to zero over the rest."""
    found, peak = rates("one_cycle"), STEPS // 10
    assert found.argmax() == peak
    np.testing.assert_allclose(found[: peak + 1], np.linspace(RATE / 25, RATE, peak + 1))
    down = np.arange(STEPS - peak) / (STEPS - peak)
    np.testing.assert_allclose(found[peak:], RATE * (1 + np.cos(np.pi * down)) / 2, rtol=1e-9)
    assert found[-1] < 1e-4 * RATE


@pytest.mark.parametrize("schedule", ["constant", "one_cycle", "cosine"])
@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_short_fits(schedule, steps):
    found = rates(schedule, steps)
    assert np.isfinite(found).all()
    assert (found > 0).all()
    assert found.max() <= RATE * (1 + 1e-12)


@pytest.mark.parametrize("schedule", ["constant", "one_cycle", "cosine"])
def test_adam_follows(schedule):
    """Under a gradient that never changes Adam steps by exactly the learning rate."""
    settings = Inference(schedule=schedule, learning_rate=RATE)
    optimiser = build_optimiser(settings, 20)
    gradient, found = jnp.array([5.0, -200.0]), []
    with precision("float64"):
        gradient = jnp.array([5.0, -200.0])
        state = optimiser.init(gradient)
        for _ in range(20):
            update, state = optimiser.update(gradient, state)
            found.append(np.asarray(update))
    expected = np.outer(rates(schedule, 20), [-1, 1])
    np.testing.assert_allclose(found, expected, rtol=1e-6)
