"""Fast forms of single operations against plain ones; whole graphs are tested in test_elbo."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
import pytest
from pytensor.gradient import disconnected_grad, zero_grad
from pytensor.graph.fg import FunctionGraph
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from scipy.special import expit, log_softmax
from tiers import slow_but

from pmbnn.inference.advi import build_program
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla import rewrites
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.inference.xla.rewrites import divided
from pmbnn.models.build import dense_classifier


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 5e-7), ("float64", 1e-15)])
def test_softplus(dtype, tolerance):
    """Relative to its value, however small that is; with its derivative."""
    x = np.concatenate([np.linspace(-80, 80, 4001), 10.0 ** np.arange(-12, 1), [0.0]]).astype(dtype)
    with precision(dtype):
        value = jax.jit(rewrites._softplus)(jnp.asarray(x))
        slope = jax.jit(jax.vmap(jax.grad(rewrites._softplus)))(jnp.asarray(x))
    assert value.dtype == dtype
    wide = x.astype(np.float64)
    np.testing.assert_allclose(value, np.logaddexp(0, wide), rtol=tolerance)
    np.testing.assert_allclose(slope, expit(wide), rtol=4 * tolerance)


@pytest.mark.parametrize("stop", [disconnected_grad, zero_grad])
def test_stopped_gradients(stop):
    """What PyTensor's gradients take as a constant, those of JAX take as one."""
    x = pt.vector("x", shape=(3,), dtype="float64")
    at = np.array([1.0, -2.0, 3.0])
    with precision("float64"):
        of = jax_function([x], [(stop(x) * x**2).sum()])
        value, slope = jax.value_and_grad(lambda x: of(x)[0])(jnp.asarray(at))
    assert value == (at**3).sum()
    np.testing.assert_allclose(slope, 2 * at**2)


AXES = [((1,), (4, 3, 9)), ((2, 4), (2, 3, 2, 3, 2, 5)), ((0,), (8, 2))]


SHORT_FORMS = [(jnp.max, rewrites._short_max), (jnp.sum, rewrites._short_sum)]


@pytest.mark.parametrize(("plain", "short"), SHORT_FORMS)
@pytest.mark.parametrize(("axes", "shape"), AXES)
def test_short_forms(axes, shape, plain, short):
    """Values and gradients, ties included, are those of a maximum or a sum."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, shape).astype(float)
    weight = rng.normal(size=np.max(x, axis=axes).shape)

    def total(form):
        return lambda x: jnp.sum(weight * form(x, axes) ** 2)

    with precision("float64"):
        slopes = (jax.jit(jax.value_and_grad(total(form))) for form in (plain, short))
        expected, found = (slope(x) for slope in slopes)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-14)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-14, atol=1e-14)
    assert np.count_nonzero(found[1]) > weight.size


@pytest.mark.parametrize(
    ("shape", "axis", "is_short"),
    [((2, 3, 7), 1, True), ((2, 9, 7), 1, False), ((2, 3, 7), 2, False), ((2, None, 7), 1, False)],
)
def test_which_axes_are_short(shape, axis, is_short):
    """Those of few elements, but the last, along which vectors lie."""
    x = pt.tensor("x", shape=shape, dtype="float64")
    graph = FunctionGraph([x], [pt.max(x, axis=axis), pt.sum(x, axis=axis)], clone=False)
    rewrites.use_fast_forms(graph)
    for output, form in zip(graph.outputs, (rewrites.ShortMax, rewrites.ShortSum), strict=True):
        assert isinstance(output.owner.op, form) == is_short


@pytest.mark.parametrize(
    ("dtype", "tolerance", "classes"),
    slow_but(
        [("float32", 5e-7, 2), ("float64", 1e-15, 3)],
        [
            (*precise, classes)
            for precise in [("float32", 5e-7), ("float64", 1e-15)]
            for classes in (2, 3)
        ],
    ),
)
def test_thin_log_softmax(dtype, tolerance, classes):
    """Log-probabilities and their gradients, near equal outputs and far from them."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(classes, 2000)) * np.geomspace(1e-3, 60, 2000)).astype(dtype)
    x[:, 0] = 1.5
    weight = rng.normal(size=x.shape).astype(dtype)
    with precision(dtype):
        value, pull = jax.vjp(rewrites._thin_log_softmax, jnp.asarray(x))
        (slope,) = pull(jnp.asarray(weight))
    wide = x.astype(np.float64)
    expected = log_softmax(wide, axis=0)
    np.testing.assert_allclose(value, expected, rtol=4 * tolerance, atol=60 * tolerance)
    exact = weight - np.exp(expected) * weight.sum(axis=0)
    np.testing.assert_allclose(slope, exact, atol=40 * tolerance)


# --- transpositions before products ---------------------------------------------------------


def test_products_take_their_matrices_transposed():
    """What stands between a transposition and a product is done before it, rows as they lie."""
    w, scale, x = pt.matrix("w", shape=(4, 3)), pt.vector("scale", shape=(4,)), pt.matrix("x")
    output = pt.dot((2.0 * (w * scale[:, None]).T) ** 2, x.T - 1.0)
    graph = FunctionGraph([w, scale, x], [output], clone=True)
    rewrites.use_fast_forms(graph)
    (dot,) = (node for node in graph.toposort() if isinstance(node.op, Dot))
    assert [isinstance(v.owner.op, DimShuffle) for v in dot.inputs] == [True, True]
    rng = np.random.default_rng(0)
    at = [rng.normal(size=shape) for shape in ((4, 3), (4,), (5, 4))]
    expected = (2 * (at[0] * at[1][:, None]).T) ** 2 @ (at[2].T - 1)
    with precision("float64"):
        (found,) = jax_function([w, scale, x], [output])(*at)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_other_matrices_stay_as_they_are():
    """One of which a part is not transposed would be transposed in that part."""
    w, v = pt.matrix("w", shape=(3, 3)), pt.matrix("v", shape=(3, 3))
    graph = FunctionGraph([w, v], [pt.dot(w.T + v, v)], clone=True)
    before = graph.outputs[0].owner.inputs[0]
    rewrites.use_fast_forms(graph)
    assert graph.outputs[0].owner.inputs[0] is before


# --- arrays that are computed once -----------------------------------------------------------


def test_materialised():
    """PyTensor's rewrites leave it where it is, and its gradient passes as if it were not there."""
    x = pt.vector("x", shape=(3,))
    at = np.array([0.5, -1.0, 2.0])
    with precision("float64"):
        function = jax_function([x], [(rewrites.materialised(pt.exp(x)) ** 2).sum()])
        text = str(jax.make_jaxpr(jax.grad(lambda x: function(x)[0]))(at))
        slope = jax.grad(lambda x: function(x)[0])(at)
    assert text.count("optimization_barrier") == 1
    np.testing.assert_allclose(slope, 2 * np.exp(2 * at), rtol=1e-12)


@pytest.mark.parametrize(
    ("estimator", "large"),
    slow_but(
        [("local_reparameterisation", 6)],
        [*product(("reparameterisation", "local_reparameterisation"), (2**14, 6))],
    ),
)
def test_scales_are_computed_once(estimator, large, monkeypatch):
    """Once a piece, where weights are drawn; a rewrite of the likelihood has them unmarked."""
    monkeypatch.setattr(rewrites, "LARGE", large)
    x, y = np.zeros((8, 2)), np.zeros(8, int)
    model = dense_classifier(x, y, hidden=(3,), prior="normal")
    loop = build_program(model, Inference(steps=10, estimator=estimator), 8, 1)
    objective = loop.objective
    with precision("float32"):
        noise = {name: jnp.zeros(n.variable.type.shape) for name, n in objective.noise.items()}
        noise = divided(noise, objective.leaves)
        parameters = {name: jnp.zeros(v.type.shape) for name, v in objective.parameters.items()}
        prepared = loop.prepare({"x": x, "target": y, "prior_scale": np.float64(1)})
        text = str(jax.make_jaxpr(lambda p: loop.parts(p, noise, prepared))(parameters))
    kept = len(objective.leaves) if estimator == "reparameterisation" else 0
    assert (len(objective.leaves) > 1) == (large == 6)
    assert text.count("= optimization_barrier") == kept
