"""The loop of gradient steps against optax's optimisers, called by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiers import slow_but

from pmbnn.inference import advi
from pmbnn.inference.advi import build_program
from pmbnn.inference.batches import cast
from pmbnn.inference.program import relative_rate
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import precision
from pmbnn.models.build import dense_classifier

ROWS, RATE, STEPS = 30, 0.03, 10
KEY = np.array([3, 4], np.uint32)
X = np.random.default_rng(0).normal(size=(ROWS, 2))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)


def build(**settings):
    model = dense_classifier(X, Y, hidden=(3,))
    program = build_program(model, Inference(steps=STEPS, **settings), ROWS, 1, "float64")
    with precision("float64"):
        data = cast({"x": X, "target": Y, "prior_scale": 1.0}, program.dtype)
        shapes, rng = program.guide.shapes, np.random.default_rng(1)
        start = program.guide.initial(rng.normal(size=shapes["loc"]), 0.3, rng)
        state = program.start(start)
    return program, state, data, jnp.asarray(KEY)


def rows_of(batch):
    return (
        None if batch is None else jnp.asarray(np.arange(STEPS * batch) % ROWS).reshape(-1, batch)
    )


def by_loop(program, state, data, key, n=STEPS):
    batches = rows_of(program.settings.batch)
    given = program.prepare(data) if batches is None else data
    return advi.run(key, state, program, given, n, batches, RATE, STEPS)


def by_hand(program, state, data, key):
    """Parameters after every step, and the parts of the ELBO before each step and at the end."""
    settings = program.settings
    rates = RATE * relative_rate(settings, jnp.arange(STEPS), STEPS)
    optimiser = getattr(optax, settings.optimiser)(lambda step: rates[step])
    if settings.clip is not None:
        optimiser = optax.chain(optax.clip_by_global_norm(settings.clip), optimiser)
    parameters, memory = state.parameters, optimiser.init(state.parameters)
    slope = jax.jit(jax.value_and_grad(program.loss, has_aux=True))
    path, parts = [], []
    for step in range(STEPS):
        weight = settings.kl_weight
        if settings.kl_annealing:
            weight *= min(1.0, step / (settings.kl_annealing * STEPS))
        seen, batches = data, rows_of(settings.batch)
        if batches is not None:
            seen = data | {name: data[name][batches[step]] for name in ("x", "target")}
        noise = program.noise(key, jnp.asarray(step))
        (_, part), gradient = slope(parameters, noise, program.prepare(seen), weight)
        update, memory = optimiser.update(gradient, memory)
        parameters = optax.apply_updates(parameters, update)
        path.append(parameters)
        parts.append(part)
    parts.append(slope(parameters, noise, program.prepare(seen), weight)[0][1])
    return path, np.array(parts)


def expected_sums(program, parts):
    """Sum of the log-likelihoods; that of the divergences, or its estimate by both ends."""
    log_likelihood, kl = parts[:-1].sum(axis=0)
    if not program.objective.has_noisy_kl:
        # As if it went from what it is at the start to that at the end in equal steps.
        kl = np.linspace(parts[0, 1], parts[-1, 1], STEPS + 1)[:-1].sum()
    return [log_likelihood, kl]


WAYS = {
    "default": {},
    "minibatch": {"batch": 20, "schedule": "cosine"},
    "average": {
        "optimiser": "adamax",
        "schedule": "cosine",
        "clip": 1.0,
        "iterate_averaging": 0.5,
        "batch": 20,
    },
    "annealing": {"optimiser": "sgd", "clip": 5.0, "kl_weight": 0.3, "kl_annealing": 0.6},
    "weight": {"schedule": "constant", "kl_weight": 3.0},
    "low_rank": {"guide": "low_rank", "rank": 2},
    "full_rank": {"guide": "full_rank"},
    "point": {"guide": "map"},
    "flipout": {"estimator": "flipout"},
    "path_derivative": {"estimator": "path_derivative"},
}


@pytest.mark.parametrize("way", slow_but(["average"], list(WAYS)))
def test_steps_equal_optax(way):
    """Parameters after ten steps, their average, and sums of the ELBO's unweighted parts."""
    with precision("float64"):
        program, state, data, key = build(**WAYS[way])
        end, sums = by_loop(program, state, data, key)
        path, parts = by_hand(program, state, data, key)
    assert int(end.step) == STEPS
    np.testing.assert_allclose(sums, expected_sums(program, parts), rtol=1e-8)
    assert program.objective.has_noisy_kl == (way == "path_derivative")
    for name, expected in path[-1].items():
        np.testing.assert_allclose(end.parameters[name], expected, rtol=1e-7, atol=1e-9)
        assert not np.allclose(expected, state.parameters[name], atol=1e-3)
    if way == "average":
        average = path[0]
        for step, parameters in enumerate(path, 1):
            w = min(1.0, 1 / (0.5 * step))
            average = {k: (1 - w) * average[k] + w * parameters[k] for k in parameters}
        for name, expected in average.items():
            np.testing.assert_allclose(end.average[name], expected, rtol=1e-7, atol=1e-9)
            assert not np.allclose(expected, path[-1][name], atol=1e-3)
    else:
        assert end.average == {}


@pytest.mark.slow
@pytest.mark.parametrize("way", ["default", "average"])
def test_segments_join(way):
    """Where a fit is cut does not show, in a single bit; in an exact divergence's sum it does."""
    with precision("float64"):
        program, state, data, key = build(**WAYS[way])
        whole, sums = by_loop(program, state, data, key)
        middle, first = by_loop(program, state, data, key, n=3)
        end, second = by_loop(program, middle, data, key, n=STEPS - 3)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(end), strict=True):
        np.testing.assert_array_equal(a, b)
    both = np.add(first, second)
    np.testing.assert_allclose(both[0], sums[0], rtol=1e-12)
    # Ten steps at this rate change it by a tenth, and not in a straight line.
    np.testing.assert_allclose(both[1], sums[1], rtol=2e-2)


@pytest.mark.slow
def test_sum_of_one_step():
    """A snapshot takes one step to learn the divergence where it is."""
    with precision("float64"):
        program, state, data, key = build()
        _, sums = by_loop(program, state, data, key, n=1)
        _, parts = by_hand(program, state, data, key)
    np.testing.assert_allclose(sums, parts[0], rtol=1e-12)


@pytest.mark.parametrize("share", slow_but([0.2], [0.0, 0.2, 0.5, 1.0]))
def test_annealing(share):
    """From nothing to the KL weight on a straight line, and on from there."""
    with precision("float64"):
        program, *_ = build(kl_weight=0.8, kl_annealing=share)
        found = [float(program.kl_weight(jnp.asarray(i), 100)) for i in range(100)]
    rising = round(100 * share)
    np.testing.assert_allclose(found[:rising], 0.8 * np.arange(rising) / max(rising, 1))
    np.testing.assert_allclose(found[rising:], 0.8)


@pytest.mark.parametrize("dtype", slow_but(["float32"], ["float32", "float64"]))
def test_start(dtype):
    """No average unless asked for."""
    for settings in ({}, {"iterate_averaging": 0.2}):
        program = build_program(
            dense_classifier(X, Y, hidden=()), Inference(**settings), ROWS, 1, dtype
        )
        loc = np.linspace(0, 1, 6)
        with precision(dtype):
            state = program.start(program.guide.initial(loc, 0.1, np.random.default_rng(0)))
        assert set(state.average) == ({"loc", "rho"} if settings else set())
        assert int(state.step) == 0
        np.testing.assert_array_equal(state.parameters["loc"], loc.astype(dtype))
        assert {a.dtype for a in state.parameters.values()} == {np.dtype(dtype)}


def noise_of_steps(program, steps=200):
    draw = jax.jit(jax.vmap(lambda i: program.noise(KEY, i)))
    return {name: np.asarray(value) for name, value in draw(jnp.arange(steps)).items()}


@pytest.mark.slow
def test_noise():
    """Normal numbers and signs, new ones for every step and every input."""
    with precision("float64"):
        program, *_ = build(estimator="flipout")
        noise = noise_of_steps(program)
    assert set(noise) == set(program.objective.noise)
    signs = {n for n, i in program.objective.noise.items() if i.kind == "sign"}
    assert signs == {f"sign_{at}_{layer}" for at in ("in", "out") for layer in (1, 2)}
    for name, values in noise.items():
        assert values.dtype == np.float64
        assert len(np.unique(values.reshape(200, -1), axis=0)) == 200
        error = 1 / np.sqrt(values.size)
        assert abs(values.mean()) < 4.5 * error
        if name in signs:
            assert set(np.unique(values)) == {-1.0, 1.0}
        else:
            assert abs(np.mean(values**2) - 1) < 4.5 * np.sqrt(2) * error


@pytest.mark.slow
def test_noise_of_inputs_is_independent():
    with precision("float64"):
        program, *_ = build(guide="low_rank", rank=17)
        noise = noise_of_steps(program)
    first, second = noise["noise"], noise["factor_noise"]
    assert first.shape == second.shape
    assert abs(np.mean(first * second)) < 4.5 / np.sqrt(first.size)
