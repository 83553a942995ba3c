"""Learning rates, optimisers and averages, against optax's own and by hand."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiers import slow_but

from pmbnn.inference.program import averaged, build_optimiser, relative_rate
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import precision

STEPS = 400
SCHEDULES = ["constant", "one_cycle", "cosine", "exponential"]


def rates(schedule, steps=STEPS):
    with precision("float64"):
        return np.asarray(relative_rate(Inference(schedule=schedule), jnp.arange(steps), steps))


# --- schedules ----------------------------------------------------------------------------


def by_optax(schedule, steps):
    if schedule == "constant":
        return optax.constant_schedule(1.0)
    if schedule == "cosine":
        return optax.cosine_decay_schedule(1.0, steps)
    if schedule == "exponential":
        return optax.exponential_decay(1.0, steps, 0.1)
    warm_up = max(1, round(0.1 * steps))
    return optax.warmup_cosine_decay_schedule(1 / 25, 1.0, warm_up, steps)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", slow_but([2, 14, 25], [2, 3, 14, 25, 400, 1001]))
def test_equals_optax(schedule, steps):
    follow = by_optax(schedule, steps)
    with precision("float64"):
        expected = [float(follow(step)) for step in range(0, steps, 1 + steps // 100)]
    found = rates(schedule, steps)[:: 1 + steps // 100]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_constant():
    np.testing.assert_array_equal(rates("constant"), np.ones(STEPS))


def test_cosine():
    """Half a cosine, from the learning rate down to zero."""
    expected = (1 + np.cos(np.pi * np.arange(STEPS) / STEPS)) / 2
    np.testing.assert_allclose(rates("cosine"), expected, rtol=1e-12)
    assert rates("cosine")[-1] < 1e-4


def test_one_cycle():
    """A straight line up over the first tenth, half a cosine down to zero over the rest."""
    found, peak = rates("one_cycle"), STEPS // 10
    assert found.argmax() == peak
    np.testing.assert_allclose(found[: peak + 1], np.linspace(1 / 25, 1, peak + 1))
    down = np.arange(STEPS - peak) / (STEPS - peak)
    np.testing.assert_allclose(found[peak:], (1 + np.cos(np.pi * down)) / 2, rtol=1e-9)
    assert found[-1] < 1e-4


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_short_fits(schedule, steps):
    found = rates(schedule, steps)
    assert found.shape == (steps,)
    assert np.isfinite(found).all()
    assert (found > 0).all()
    assert found.max() <= 1 + 1e-12


# --- optimisers ---------------------------------------------------------------------------


def gradients(steps, size=1.0):
    rng = np.random.default_rng(0)
    return [
        {"loc": size * rng.normal(size=4), "rho": size * 0.1 * rng.normal(size=(2, 3))}
        for _ in range(steps)
    ]


def directions(optimiser, given):
    """What a gradient transformation makes of one gradient after the other."""
    state, found = optimiser.init(given[0]), []
    for gradient in given:
        direction, state = optimiser.update(gradient, state)
        found.append(direction)
    return found


def check_downhill(found, updates, rate):
    for direction, update in zip(found, updates, strict=True):
        for name, expected in update.items():
            np.testing.assert_allclose(-rate * direction[name], expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["adam", "adamax", "sgd"])
@pytest.mark.parametrize("clip", [None, 1.5])
def test_steps_equal_optax(name, clip):
    """Gradients of norm 2 or so, some of them clipped."""
    theirs = getattr(optax, name)(0.03)
    if clip is not None:
        theirs = optax.chain(optax.clip_by_global_norm(clip), theirs)
    with precision("float64"):
        given = gradients(7)
        found = directions(build_optimiser(Inference(optimiser=name, clip=clip)), given)
        check_downhill(found, directions(theirs, given), 0.03)


def test_clip_is_of_all_parameters_together():
    given = gradients(6)
    with precision("float64"):
        found = directions(build_optimiser(Inference(optimiser="sgd", clip=2.0)), given)
    norms = [np.sqrt(sum((g**2).sum() for g in gradient.values())) for gradient in given]
    assert min(norms) < 2 < max(norms)
    for gradient, direction, norm in zip(given, found, norms, strict=True):
        for name in gradient:
            expected = gradient[name] * min(1, 2 / norm)
            np.testing.assert_allclose(direction[name], expected, rtol=1e-12)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_adam_follows(schedule):
    """Under a gradient that never changes Adam steps by exactly the learning rate."""
    with precision("float64"):
        gradient = {"loc": jnp.array([5.0, -200.0])}
        found = directions(build_optimiser(Inference()), [gradient] * 20)
    steps = rates(schedule, 20)[:, None] * np.array([d["loc"] for d in found])
    np.testing.assert_allclose(steps, np.outer(rates(schedule, 20), [1, -1]), rtol=1e-6)


# --- averages -----------------------------------------------------------------------------


def weights_of_steps(share, steps):
    """Weight of the start and of every step's parameters in their running average."""
    average, units = {"w": jnp.zeros(steps + 1).at[0].set(1)}, jnp.eye(steps + 1)
    for step in range(1, steps + 1):
        average = averaged(average, {"w": units[step]}, jnp.asarray(step), share)
    return np.asarray(average["w"])


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_average_is_a_weighted_sum(share):
    """Polynomial decay: each step takes 1 / (share · step), and scales down all before it."""
    with precision("float64"):
        found = weights_of_steps(share, 40)
    taken = np.array([0, *(min(1, 1 / (share * step)) for step in range(1, 41))])
    left = np.append(np.cumprod((1 - taken)[::-1])[::-1][1:], 1)
    np.testing.assert_allclose(found[1:], (taken * left)[1:], rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(found.sum(), 1, rtol=1e-12)
    assert found[0] == 0


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_average_is_of_the_last_share(share):
    """Steps up to a share t of the fit weigh t ** (1 / share), so the last ones weigh most."""
    with precision("float64"):
        found = weights_of_steps(share, 300)
    last = found[-round(share * 300) :].sum()
    np.testing.assert_allclose(last, 1 - (1 - share) ** (1 / share), atol=0.02)
    assert last > 0.6


def test_average_keeps_precision():
    with precision("float64"):
        start, new = ({"w": jnp.full(2, v, "float32")} for v in (0, 1))
        assert averaged(start, new, jnp.asarray(7), 0.5)["w"].dtype == np.float32
