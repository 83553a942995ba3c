"""The one-hot contraction is PyMC's categorical log-probability, however p is computed."""

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.graph.traversal import ancestors
from pytensor.tensor.subtensor import AdvancedSubtensor
from scipy import stats
from scipy.special import log_softmax
from tiers import slow_but

from pmbnn.inference.flat import flat_vector, flatten_model
from pmbnn.inference.observed import elementwise_logp, observations_last
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.build import dense_classifier

ROWS = 40


def data(classes):
    """Random inputs, and labels in which every class occurs."""
    rng = np.random.default_rng(classes)
    return rng.normal(size=(ROWS, 3)), rng.permutation(ROWS) % classes


def outputs(x, classes):
    """Outputs ``(observation, class)`` of a linear classifier without coordinates."""
    weight = pm.Normal("weight", shape=(x.shape[1], classes))
    return x @ weight


def built(x, y, classes):
    return dense_classifier(x, y, hidden=(4,))


def softmax(x, y, classes):
    with pm.Model() as model:
        pm.Categorical("y", p=pt.special.softmax(outputs(x, classes), axis=-1), observed=y)
    return model


def logits(x, y, classes):
    with pm.Model() as model:
        pm.Categorical("y", logit_p=outputs(x, classes), observed=y)
    return model


def softmax_then_transposed(x, y, classes):
    with pm.Model() as model:
        p = pt.special.softmax(outputs(x, classes).T, axis=0).T
        pm.Categorical("y", p=p, observed=y)
    return model


def normalised(x, y, classes):
    with pm.Model() as model:
        size = pt.exp(outputs(x, classes))
        pm.Categorical("y", p=size / size.sum(axis=1, keepdims=True), observed=y)
    return model


def mixture(x, y, classes):
    with pm.Model() as model:
        p = pt.special.softmax(outputs(x, classes), axis=1)
        pm.Categorical("y", p=0.9 * p + 0.1 / classes, observed=y)
    return model


WAYS = [built, softmax, logits, softmax_then_transposed, normalised, mixture]


def random_point(model, random_seed=3):
    """Standard normal values of every free variable, by value variable."""
    rng = np.random.default_rng(random_seed)
    shapes = {slot.name: slot.shape for slot in flatten_model(model, ROWS).layout.slots}
    return {v: rng.normal(size=shapes[v.name]) for v in model.value_vars}


def logp(model):
    """On the model's own values, as `flatten_model` asks for it."""
    return elementwise_logp(model, model["y"], typed_inputs(model))


def typed_inputs(model):
    flat = flatten_model(model, ROWS)
    values = {v: flat.free[v.name] for v in model.value_vars}
    return values | {v: flat.data[v.name] for v in model.data_vars}


@pytest.mark.parametrize(("way", "classes"), [*((way, 2) for way in WAYS), (built, 10)])
def test_equals_pymc(way, classes, evaluate):
    model = way(*data(classes), classes)
    expected = model.logp(vars=model.observed_RVs, sum=False)[0]
    found, expected = evaluate([logp(model), expected], random_point(model))
    assert found.shape == (ROWS,)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    # The contraction, and no gathering.
    nodes = [v.owner.op for v in ancestors([logp(model)]) if v.owner]
    assert not any(isinstance(op, AdvancedSubtensor) for op in nodes)


def log_likelihood(flat):
    """JAX function of the flat vector and the data variables."""
    vector = flat_vector(flat)
    graphs = flat.at(vector, [flat.log_likelihoods["y"]])
    return jax_function([vector, *flat.data.values()], graphs)


@pytest.mark.parametrize(
    ("way", "dtype"),
    slow_but(
        [(softmax, "float32")], [(softmax, "float32"), (logits, "float64"), (built, "float32")]
    ),
)
def test_saturated_outputs(way, dtype):
    """Outputs of ±200, right and wrong: closed form of value and gradient, nothing infinite."""
    labels = np.array([0, 1, 0, 1])
    x = np.eye(4)
    model = dense_classifier(x, labels, hidden=()) if way is built else way(x, labels, 2)
    # The rows of the weights are the outputs: x is the identity, and biases are zero.
    logit = 200.0 * np.array([[1, -1], [1, -1], [-1, 1], [-1, 1]])
    flat = flatten_model(model, rows=4)
    values = np.concatenate([logit.ravel(), np.zeros(flat.size - logit.size)])
    data = {"x": x, "target": labels, "prior_scale": 1.0}
    with precision(dtype):
        log_p = log_likelihood(flat)
        arrays = [jax.numpy.asarray(data[n]) for n in flat.data]
        at = jax.numpy.asarray(values, dtype)
        found = log_p(at, *arrays)[0]
        gradient = jax.grad(lambda v: log_p(v, *arrays)[0].sum())(at)
    chosen = log_softmax(logit, axis=1)[range(4), labels]
    np.testing.assert_allclose(found, chosen, rtol=1e-6)
    assert chosen.min() == -400
    expected = np.eye(2)[labels] - (logit > 0)
    np.testing.assert_allclose(gradient[:8].reshape(4, 2), expected, atol=1e-6)


def test_saturated_probabilities():
    """A probability of exactly 0 for a class that was not seen is no accident."""
    labels = np.array([1, 1, 0])
    with pm.Model() as model:
        odds = pm.Normal("odds", shape=3)
        p = pt.sigmoid(odds)
        pm.Categorical("y", p=pt.stack([1 - p, p], axis=1), observed=labels)
    flat = flatten_model(model, rows=3)
    with precision("float64"):
        log_p = log_likelihood(flat)
        at = jax.numpy.asarray([200.0, 0.0, -1000.0])
        found = log_p(at)[0]
        gradient = jax.grad(lambda v: log_p(v)[0].sum())(at)
    np.testing.assert_allclose(found, [0.0, np.log(0.5), 0.0], atol=1e-15)
    np.testing.assert_allclose(gradient, [0.0, 0.5, 0.0], atol=1e-15)


def test_other_likelihoods_are_pymcs(evaluate):
    x, _ = data(2)
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 2.0, observed=x[:, 0])
    point = random_point(model)
    expected = model.logp(vars=model.observed_RVs, sum=False)[0]
    found, expected = evaluate([logp(model), expected], point)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("dtype", "error"), [("float32", 2e-6), ("float64", 1e-11)])
def test_any_degrees_of_freedom(dtype, error):
    """The difference of log-gamma functions of a million was wrong by 0.06 in single precision."""
    targets = np.linspace(-3, 40, ROWS)
    with pm.Model() as model:
        nu, mu = pm.Data("nu", 4.0), pm.Normal("mu")
        pm.StudentT("y", nu, mu, sigma=0.7, observed=targets)
    with precision(dtype):
        log_p = log_likelihood(flatten_model(model, rows=ROWS))
        for nu in (0.5, 4.0, 19.9, 20.1, 300.0, 1e4, 1e6, 1e9):
            expected = stats.t(nu, 0.3, 0.7).logpdf(targets)
            found = log_p(jax.numpy.asarray([0.3], dtype), jax.numpy.asarray(nu, dtype))[0]
            np.testing.assert_allclose(found, expected, rtol=error, atol=3 * error)


def test_probabilities_are_pymcs(evaluate):
    """On value variables, rows sum to one, and give the log-probability."""
    model = built(*data(10), 10)
    point = random_point(model)
    (p,) = model["y"].owner.op.dist_params(model["y"].owner)
    last = observations_last(model.replace_rvs_by_values([p])[0])
    assert last.owner.inputs[0].owner.op.axis == (0,)
    p, log_p = evaluate([last, logp(model)], point)
    assert p.shape == (ROWS, 10)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.log(p[range(ROWS), data(10)[1]]), log_p, rtol=1e-10)
