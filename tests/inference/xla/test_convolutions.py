"""Convolutions by the backend's own kernels against products with patches, on a processor."""

import jax
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest
from tiers import slow_but

from pmbnn.data.arrays import Rows
from pmbnn.inference.advi import build_program
from pmbnn.inference.device import CPU, Device, running_on
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.inference.xla.convolutions import KernelProduct
from pmbnn.models.build import build_model, model_data
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Convolution, DenseLayer, Flatten, Layered, MaxPool
from pmbnn.models.networks.convolution import convolve
from pmbnn.models.priors import HalfNormal, Normal
from pmbnn.prediction.predictor import Predictor

OWN = Device("gpu", platform="cpu")
"""Programs as for a GPU, which a processor runs: with convolutions of its own."""

SHAPE, SIZE, ROWS = (2, 7, 9), 3, 6
N = 12


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [rng.normal(size=shape) for shape in shapes]


IMAGES, KERNELS, BIAS = arrays((*SHAPE, ROWS), (2, SIZE, SIZE, 4), (4,))


def convolutions(function, *given):
    """Convolutions of a program."""
    return str(jax.make_jaxpr(function)(*given)).count("conv_general_dilated[")


def on(device, inputs, outputs, given):
    """Outputs, gradients of a function of the first one, and how many convolutions there are."""
    with running_on(device), precision("float64"):
        function = jax_function(inputs, outputs)
        slope = jax.grad(lambda *v: (function(*v)[0] ** 3).sum(), tuple(range(len(given))))
        found = jax.jit(lambda *v: [*function(*v), *slope(*v)])(*given)
        return [np.asarray(one) for one in found], convolutions(function, *given)


def check_equal(found, expected, rtol=1e-12):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * np.abs(other).max())


@pytest.mark.parametrize(
    ("padding", "rows"),
    slow_but([("same", None)], [("valid", ROWS), ("valid", None), ("same", ROWS), ("same", None)]),
)
def test_values_and_gradients(padding, rows):
    """In images, kernels and bias; for a number of rows that is known, or open."""
    a, b, c = pt.tensor(shape=(*SHAPE, rows)), pt.tensor(shape=KERNELS.shape), pt.vector()
    maps = convolve(a, b, SHAPE, SIZE, padding, c, 4)
    given = (IMAGES, KERNELS, BIAS)
    expected, none = on(CPU, [a, b, c], [maps], given)
    found, one = on(OWN, [a, b, c], [maps], given)
    assert (none, one) == (0, 1)
    check_equal(found, expected)


@pytest.mark.parametrize("padding", slow_but(["valid"], ["valid", "same"]))
def test_a_stride(padding):
    a, b = pt.tensor(shape=(*SHAPE, ROWS)), pt.tensor(shape=KERNELS.shape)
    maps = convolve(a, b, SHAPE, SIZE, padding, units=4, stride=2)
    expected, none = on(CPU, [a, b], [maps], (IMAGES, KERNELS))
    found, one = on(OWN, [a, b], [maps], (IMAGES, KERNELS))
    assert (none, one) == (0, 1)
    check_equal(found, expected)


def test_the_operation_with_a_stride_by_itself():
    a, b = pt.tensor(shape=(*SHAPE, ROWS)), pt.tensor(shape=KERNELS.shape)
    plain = convolve(a, b, SHAPE, SIZE, stride=2).owner.inputs[0]
    own = KernelProduct(SIZE, 2)(plain.owner.inputs[0], a)
    assert own.type.shape == plain.type.shape == (4, 3 * 4 * ROWS)
    values, mode = {a: IMAGES, b: KERNELS}, pytensor.compile.mode.Mode("py", None)
    found, expected = (v.eval(values, mode=mode) for v in (own, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_layers_follow_each_other():
    a, b = pt.tensor(shape=(*SHAPE, ROWS)), pt.tensor(shape=KERNELS.shape)
    (second,) = arrays((4, 3, 3, 2))
    first = pt.tanh(convolve(a, b, SHAPE, SIZE, units=4))
    maps = convolve(first, pt.constant(second), (4, 5, 7), 3, "same", units=2)
    expected, _ = on(CPU, [a, b], [maps], (IMAGES, KERNELS))
    found, two = on(OWN, [a, b], [maps], (IMAGES, KERNELS))
    assert two == 2
    check_equal(found, expected)


def test_the_operation_by_itself():
    """Its value without JAX, and its shape without values."""
    a, b = pt.tensor(shape=(*SHAPE, ROWS)), pt.tensor(shape=KERNELS.shape)
    maps = convolve(a, b, SHAPE, SIZE)
    plain = maps.owner.inputs[0]
    own = KernelProduct(SIZE)(plain.owner.inputs[0], a)
    assert own.type.shape == plain.type.shape == (4, 5 * 7 * ROWS)
    values, mode = {a: IMAGES, b: KERNELS}, pytensor.compile.mode.Mode("py", None)
    found, expected = (v.eval(values, mode=mode) for v in (own, plain))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)
    opened = KernelProduct(SIZE)(pt.matrix(), pt.tensor4())
    shape = pytensor.compile.mode.Mode("py", "fast_run")
    inputs = list(opened.owner.inputs)
    shown = pytensor.function(inputs, opened.shape, mode=shape)(KERNELS.reshape(4, -1), IMAGES)
    assert tuple(shown) == (4, 5 * 7 * ROWS)


def stacked(images, order, rows=5, columns=7):
    """A product with windows in an order, where a convolution has them row by row."""
    windows = [images[:, i : i + rows, j : j + columns, :] for i, j in order]
    return pt.stack(windows, axis=1).reshape((2 * len(order), -1))


def beside(images, order):
    """The rows of such a product, in another order."""
    windows = [pt.expand_dims(images[:, i : i + 5, j : j + 7, :], 1) for i, j in order]
    return pt.concatenate(windows, axis=0).reshape((2 * len(order), -1))


PLACES = [(i, j) for i in range(SIZE) for j in range(SIZE)]


@pytest.mark.parametrize(
    "patches",
    [
        lambda x: stacked(x, PLACES[::-1]),  # the kernel turned
        lambda x: stacked(x, [(2 * i, 2 * j) for i, j in PLACES], 3, 5),  # with holes
        lambda x: stacked(x, PLACES, 4, 7),  # not every place
        lambda x: stacked(x, PLACES[:8]),
        lambda x: beside(x, PLACES),  # all channels of a place, then those of the next
        lambda x: 2 * stacked(x, PLACES),
        lambda x: stacked(x, PLACES) * pt.exp(stacked(x, PLACES)),
        lambda x: pt.concatenate([stacked(x, PLACES[:4]), stacked(x, PLACES[4:])]),
    ],
)
def test_what_is_no_convolution_stays_a_product(patches):
    a, matrix = pt.tensor(shape=(*SHAPE, ROWS)), pt.matrix()
    product = matrix @ patches(a)
    given = (IMAGES, *arrays((4, int(patches(a).type.shape[0]))))
    with running_on(OWN), precision("float64"):
        assert convolutions(jax_function([a, matrix], [product]), *given) == 0


# Whole models


def rows_of(channels=2):
    (x,) = arrays((N, 64 * channels))
    features = tuple(f"pixel_{i}" for i in range(64 * channels))
    return Rows(x, np.arange(N) % 3, features, ("a", "b", "c"), (channels, 8, 8))


HYPERPRIOR = HalfNormal()


def model_of(padding="valid", size=3):
    convolution = Convolution(filters=4, size=size, padding=padding)
    pool = (MaxPool(),) if size == 3 else ()
    layers = (convolution, *pool, Flatten(), DenseLayer(units=5))
    return build_model(Layered(layers=layers), Normal(), HYPERPRIOR, Categorical(), rows_of())


def objective_on(device, model, settings):
    """Negative ELBO and its gradient at some parameters and noise; convolutions in it."""
    with running_on(device), precision("float64"):
        program = build_program(model, settings, N, 1, "float64")
        loop, rng = program, np.random.default_rng(1)
        parameters = loop.start(
            program.guide.initial(0.1 * rng.normal(size=program.flat.size), 0.3, rng)
        ).parameters
        noise = loop.noise(np.array([3, 4], np.uint32), jax.numpy.asarray(0))
        prepared = loop.prepare(model_data(HYPERPRIOR, rows_of()))

        def loss(parameters):
            return loop.loss(parameters, noise, prepared, 1.0)[0]

        value, gradient = jax.jit(jax.value_and_grad(loss))(parameters)
        found = [np.asarray(value), *(np.asarray(g) for g in jax.tree.leaves(gradient))]
        return found, convolutions(loss, parameters)


CASES = [
    ("valid", 3, "reparameterisation", 1),
    ("same", 3, "reparameterisation", 1),
    ("valid", 3, "path_derivative", 1),
    # The kernel's mean meets patches as they are; signs are others at every row.
    ("valid", 3, "flipout", 1),
    ("same", 3, "flipout", 1),
    # One position: the only convolution whose rows have noise of their own. Its mean; the variance
    # is of squares.
    ("valid", 8, "local_reparameterisation", 1),
]


@pytest.mark.slow
@pytest.mark.parametrize(("padding", "size", "estimator", "expected"), CASES)
def test_objectives(padding, size, estimator, expected):
    """Values and gradients of the ELBO are those by patches, whatever estimators make of them."""
    model, settings = model_of(padding, size), Inference(steps=10, estimator=estimator)
    by_patches, none = objective_on(CPU, model, settings)
    found, number = objective_on(OWN, model, settings)
    assert (none, number) == (0, expected)
    check_equal(found, by_patches, rtol=1e-10)


def fit_on(device, model, settings, width):
    """A fit, and its predictions for other rows than it saw."""
    with running_on(device):
        program = build_program(model, settings, N, width, "float64")
        data = model_data(HYPERPRIOR, rows_of())
        replicas = [Replica(data, derive_keys(f"own/{i}")) for i in range(width)]
        *_, fit = fit_replicas(program, replicas)
        predictor = Predictor(model, Categorical(), settings, "float64")
        draws = predictor.values(fit, 3)
        x = rows_of().x[:5] + 0.1
        found = predictor.parameters(data, draws, x)["probability"]
        return fit, found, predictor.predict([fit], None, data, x, 3).mean


@pytest.mark.slow
@pytest.mark.parametrize(
    ("padding", "estimator", "width"),
    [("valid", "reparameterisation", 3), ("same", "flipout", 1)],
)
def test_a_whole_fit_and_its_predictions(padding, estimator, width):
    """Of a network alone, and of one among several that are mapped over."""
    model, settings = model_of(padding), Inference(steps=30, batch=6, estimator=estimator)
    fit, probabilities, streamed = fit_on(OWN, model, settings, width)
    by_patches, expected, expected_streamed = fit_on(CPU, model, settings, width)
    assert not fit.failed
    np.testing.assert_allclose(fit.history.elbo, by_patches.history.elbo, rtol=1e-8)
    np.testing.assert_allclose(fit.loc, by_patches.loc, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-7)
    np.testing.assert_allclose(streamed, expected_streamed, rtol=1e-6)
