"""Custom training loops: `init`, `step` and `run` against `pb.fit`."""

from dataclasses import replace

import jax
import numpy as np
import pymc as pm
import pytest

import pmbnn as pb
from pmbnn.inference import advi
from pmbnn.inference.batches import batch_indices
from pmbnn.inference.groups import arrays_of

STEPS = 60
X = np.random.default_rng(0).normal(size=(30, 2))


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        x = pm.Data("x", X, dims=("observation", "feature"))
        target = pm.Data("target", X @ [1.0, -2.0], dims="observation")
        weight = pm.Laplace("weight", 0.0, 1.0, shape=2)
        sigma = pm.HalfNormal("sigma", 1.0)
        pm.Normal("y", x @ weight, sigma, observed=target, dims="observation")
    return model


@pytest.fixture(scope="module")
def start(model):
    """A program, a replica, its state and its data."""
    program = advi.build_program(model, pb.Inference(steps=STEPS), dtype="float64")
    [replica] = advi.build_replicas(model, random_seed=3)
    return program, replica, advi.init(replica, program), advi.prepare(replica, program)


def test_a_loop_of_steps_is_a_fit(model, start):
    """The same parameters, to the last bit; the states before are as they were."""
    program, replica, begun, data = start
    before, state, elbos = arrays_of(begun), begun, []
    for _ in range(program.steps):
        state, info = advi.step(replica.key, state, program, data)
        elbos.append(float(info.log_likelihood - info.kl))
    found = advi.constrained_parameters(state, program)
    fitted = pb.fit(model, steps=STEPS, random_seed=3, progress=False)
    for name, expected in fitted.sources[0].parameters.items():
        np.testing.assert_array_equal(found[name], expected)
    np.testing.assert_allclose(elbos, fitted.history["elbo"][0], rtol=1e-12)
    for array, other in zip(arrays_of(begun), before, strict=True):
        np.testing.assert_array_equal(array, other)
    assert int(state.step) == STEPS


@pytest.mark.slow
def test_steps_within_a_program_of_jax(start):
    """Traced into a scan, and mapped over keys, steps differ by rounding only."""
    program, replica, begun, data = start

    @jax.jit
    def scanned(key, state, data):
        return jax.lax.scan(lambda s, _: advi.step(key, s, program, data), state, length=STEPS)

    end, infos = scanned(replica.key, begun, data)
    expected, sums = advi.run(replica.key, begun, program, data, STEPS)
    for array, other in zip(arrays_of(end), arrays_of(expected), strict=True):
        np.testing.assert_allclose(array, other, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(infos.log_likelihood.sum(), sums.log_likelihood, rtol=1e-9)
    keys = np.stack([replica.key, replica.key + 1])
    ends, _ = jax.vmap(scanned, in_axes=(0, None, None))(keys, begun, data)
    loc = np.asarray(ends.parameters["loc"])
    np.testing.assert_allclose(loc[0], expected.parameters["loc"], rtol=1e-9, atol=1e-12)
    assert (np.abs(loc[1] - loc[0]) > 1e-6).all()


def test_what_does_not_fit_a_program(start):
    """Rows, replicas and rates are checked before anything runs."""
    program, replica, state, data = start
    with pytest.raises(ValueError, match=r"`rows` must be left out: a step sees all rows"):
        advi.step(replica.key, state, program, data, np.arange(3))
    with pytest.raises(ValueError, match=r"`replicas` must be 1 for this program, got 2\."):
        advi.init([replica, replica], program)
    search = pb.Inference(learning_rate=pb.Tune(log=(0.01, 0.1, 3)), steps=2)
    searching = replace(program, settings=search)
    with pytest.raises(ValueError, match="`learning_rate` must be given"):
        advi.run(replica.key, state, searching, data, 1)


@pytest.mark.slow
def test_minibatches(model):
    """A loop that says which rows each step sees takes the steps of a fit in minibatches."""
    program = advi.build_program(model, pb.Inference(steps=STEPS, batch=12), dtype="float64")
    [replica] = advi.build_replicas(model)
    state, data = advi.init(replica, program), advi.prepare(replica, program)
    with pytest.raises(ValueError, match=r"`rows` must be given: a step sees some"):
        advi.step(replica.key, state, program, data)
    for rows in batch_indices(replica.keys.batches, len(X), 12, 0, STEPS):
        state, _ = advi.step(replica.key, state, program, data, rows.astype(np.int32))
    fitted = pb.fit(model, steps=STEPS, batch=12, progress=False)
    found = advi.constrained_parameters(state, program)
    for name, expected in fitted.sources[0].parameters.items():
        np.testing.assert_array_equal(found[name], expected)
