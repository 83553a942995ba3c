"""Gradient estimators: the expectation they share, and the variance they do not."""

import functools
from dataclasses import dataclass
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from jax.flatten_util import ravel_pytree
from scipy.signal import correlate
from scipy.stats import norm
from tiers import slow_but

from pmbnn.inference.advi import build_program
from pmbnn.inference.elbo import build_objective
from pmbnn.inference.estimators import Noise, rewrite_likelihood
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.guides import build_guide, inverse_softplus
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.build import ROW_DATA, dense_classifier
from pmbnn.models.layers import convolve, max_pool

ROWS = 12
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 3))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)
IMAGES = RNG.normal(size=(ROWS, 2, 4, 4))
LAYER = ("local_reparameterisation", "flipout")
EVERY = ("reparameterisation", *LAYER)
SEEDS = {name: i for i, name in enumerate((*EVERY, "path_derivative"))}
ONE = np.float64(1.0)  # Python's own would stay in single precision


# --- models -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A model, and the values of its data variables."""

    model: Any
    data: dict

    @property
    def rows(self):
        return len(self.data["x"])


def weight(*shape, name="w"):
    return pm.Normal(name, 0.0, ONE, shape=shape)


def row_data(x, y):
    dims = ("observation", *(f"axis_{i}" for i in range(1, x.ndim)))
    return pm.Data("x", x, dims=dims), pm.Data("target", y, dims="observation")


def dense(x=X, y=Y, **options):
    constant = "hyperprior_sigma" if "hyperprior" in options else "prior_scale"
    data = {"x": x, "target": y, constant: 1.0}
    return Case(dense_classifier(x, y, **({"hidden": (4,)} | options)), data)


def rows_first():
    """Two layers as ``X @ W``, without a bias in the second."""
    with pm.Model() as model:
        x, target = row_data(X, Y)
        hidden = pt.tanh(x @ weight(3, 4, name="w1") + weight(4, name="b1"))
        pm.Categorical("y", logit_p=hidden @ weight(4, 2, name="w2"), observed=target)
    return Case(model, {"x": X, "target": Y})


def linear_hidden():
    """Nothing between the layers: the columns of the second product are the first product."""
    with pm.Model() as model:
        x, target = row_data(X, Y)
        outputs = x @ weight(3, 4, name="w1") @ weight(4, 2, name="w2")
        pm.Categorical("y", logit_p=outputs, observed=target)
    return Case(model, {"x": X, "target": Y})


def convolutional(images=IMAGES, labels=Y):
    with pm.Model() as model:
        x, target = row_data(images, labels)
        maps = convolve(x.transpose(1, 2, 3, 0), weight(2, 3, 3, 3), (2, 4, 4), 3)
        maps = pt.tanh(maps + weight(3, name="b1")[:, None, None, None])
        features = max_pool(maps, (3, 2, 2), 2).reshape((3, -1))
        outputs = weight(2, 3, name="dense") @ features
        pm.Categorical("y", p=pm.math.softmax(outputs.T, axis=1), observed=target)
    return Case(model, {"x": images, "target": labels})


SIGMA, CONTRAST = np.float64(0.7), np.array([1.0, -0.5])
TARGET = X @ [0.3, 1.0, -2.0]


def linear(turned=False):
    """Linear regression on a contrast of two units with a bias each; ``X @ W`` or turned."""
    with pm.Model() as model:
        x, target = row_data(X, TARGET)
        if turned:
            outputs = CONTRAST @ (weight(2, 3) @ x.T + weight(2, name="b")[:, None])
        else:
            outputs = (x @ weight(3, 2) + weight(2, name="b")) @ CONTRAST
        pm.Normal("y", outputs, SIGMA, observed=target)
    return Case(model, {"x": X, "target": TARGET})


CASES = {
    "fixed": dense,
    "hierarchical": lambda: dense(hyperprior="half_normal"),
    "rows first": rows_first,
    "convolution": convolutional,
}


# --- evaluation ---------------------------------------------------------------------------


class Estimate:
    """The objective of a fit as a JAX function; build and call it within `precision`."""

    def __init__(self, case, estimator, batch=None, dtype="float64"):
        settings, batch = Inference(estimator=estimator), batch or case.rows
        self.flat, self.dtype = flatten_model(case.model, batch), dtype
        guide = build_guide(settings, self.flat.size, self.flat.improper)
        self.objective = o = build_objective(self.flat, guide, settings, case.rows, batch)
        noise = [n.variable for n in o.noise.values()]
        inputs = [*o.parameters.values(), *noise, *o.data.values()]
        self._function = jax_function(inputs, [o.log_likelihood, o.kl])

    def parts(self, parameters, noise, data):
        """Log-likelihood and divergence."""
        o = self.objective
        arrays = [parameters[n] for n in o.parameters] + [noise[n] for n in o.noise]
        arrays += [data[n] for n in o.data]
        return self._function(*arrays)

    def elbo(self, parameters, noise, data):
        log_likelihood, kl = self.parts(parameters, noise, data)
        return log_likelihood - kl


def at(flat, scale=0.3):
    """Parameters of a mean-field guide: means that differ, one scale."""
    loc = 0.6 * np.random.default_rng(1).normal(size=flat.size)
    return {"loc": loc, "rho": np.full(flat.size, inverse_softplus(scale))}


def cast(arrays, dtype="float64"):
    return {
        k: jnp.asarray(v, "int32" if np.asarray(v).dtype.kind == "i" else dtype)
        for k, v in arrays.items()
    }


def random_noises(n, inputs, random_seed=3):
    """Arrays of noise by name, ``(draw, ...)``."""
    rng = np.random.default_rng(random_seed)
    draw = {"normal": rng.standard_normal, "sign": lambda shape: rng.choice([-1.0, 1.0], shape)}
    return {k: draw[x.kind]((n, *x.variable.type.shape)) for k, x in inputs.items()}


def samples(case, estimator, n, batch=None, scale=0.3, fixed_rows=False):
    """ELBO and gradient, ``(draw, 1 + parameter)``, over noise and minibatches."""
    with precision("float64"):
        estimate = Estimate(case, estimator, batch)
        parameters, data = cast(at(estimate.flat, scale)), cast(case.data)

        def of(noise, rows):
            seen = {k: v[rows] if k in ROW_DATA else v for k, v in data.items()}
            value, gradient = jax.value_and_grad(estimate.elbo)(parameters, noise, seen)
            return jnp.append(value, ravel_pytree(gradient)[0])

        noises = cast(random_noises(n, estimate.objective.noise, SEEDS[estimator]))
        rng = np.random.default_rng(7)
        order = rng.permuted(np.tile(np.arange(case.rows), (1 if fixed_rows else n, 1)), axis=1)
        rows = np.broadcast_to(order[:, : batch or case.rows], (n, batch or case.rows))
        return np.asarray(jax.jit(jax.vmap(of))(noises, jnp.asarray(rows)))


def check_same_mean(found, expected):
    """Every mean within 4.5 standard errors: one of 700 such tests of 100 means fails."""
    error = np.hypot(*(s.std(axis=0, ddof=1) / np.sqrt(len(s)) for s in (found, expected)))
    distance = np.abs(found.mean(axis=0) - expected.mean(axis=0))
    assert (distance < 4.5 * error + 1e-12).all()


# --- the same expectation -----------------------------------------------------------------

PAIRS = [
    (name, estimator)
    for name in CASES
    for estimator in (*LAYER, "path_derivative")
    if (name, estimator) != ("convolution", "local_reparameterisation")
]


@functools.cache
def plain(name):
    """Case, and samples of plain reparameterisation."""
    case = CASES[name]()
    return case, samples(case, "reparameterisation", 4000)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "estimator"), PAIRS)
def test_same_expectation(name, estimator):
    """Of the ELBO and of its gradient in every parameter of the guide."""
    case, expected = plain(name)
    check_same_mean(samples(case, estimator, 4000), expected)


def cubature(inputs):
    """Points whose mean is that of any quadratic function of all normal noise, exactly.

    Two a dimension: plus and minus its unit vector times the root of their number. Signs are
    drawn once.
    """
    normal = {k: n.variable.type.shape for k, n in inputs.items() if n.kind == "normal"}
    sizes = [int(np.prod(shape)) for shape in normal.values()]
    n = sum(sizes)
    points = np.sqrt(n) * np.concatenate([np.eye(n), -np.eye(n)])
    parts = np.split(points, np.cumsum(sizes)[:-1], axis=1)
    found = {k: p.reshape(2 * n, *normal[k]) for k, p in zip(normal, parts, strict=True)}
    rng = np.random.default_rng(2)
    for k, noise in inputs.items():
        if noise.kind == "sign":
            signs = rng.choice([-1.0, 1.0], noise.variable.type.shape)
            found[k] = np.broadcast_to(signs, (2 * n, *signs.shape))
    return found


@pytest.mark.parametrize(
    ("estimator", "turned"),
    slow_but(
        [("local_reparameterisation", False), ("flipout", True)], [*product(EVERY, (False, True))]
    ),
)
def test_linear_regression(estimator, turned):
    """Expected log-likelihood and its slopes, exactly: it is quadratic in the noise."""
    case = linear(turned)
    with precision("float64"):
        estimate = Estimate(case, estimator)
        flat, data = estimate.flat, cast(case.data)
        parameters = cast(at(flat))

        def of(noise):
            likelihood = jax.value_and_grad(lambda p: estimate.parts(p, noise, data)[0])
            return likelihood(parameters)

        values, slopes = jax.jit(jax.vmap(of))(cast(cubature(estimate.objective.noise)))
        expected = jax.value_and_grad(lambda p: expected_log_likelihood(p, flat))(parameters)
    np.testing.assert_allclose(values.mean(), expected[0], rtol=1e-10)
    for name, slope in slopes.items():
        np.testing.assert_allclose(slope.mean(axis=0), expected[1][name], rtol=1e-8, atol=1e-8)


def design(flat):
    """What multiplies every weight in the outputs, in the order of the flat vector."""
    turned = flat.free["w"].type.shape == (2, 3)
    products = [np.kron(CONTRAST, x) if turned else np.kron(x, CONTRAST) for x in X]
    columns = {"w": np.array(products), "b": np.tile(CONTRAST, (ROWS, 1))}
    return np.concatenate([columns[slot.name] for slot in flat.layout.slots], axis=1)


def expected_log_likelihood(parameters, flat):
    """Of linear regression under a mean-field guide."""
    x, scale = design(flat), jax.nn.softplus(parameters["rho"])
    square = (TARGET - x @ parameters["loc"]) ** 2 + x**2 @ scale**2
    return (-0.5 * square / SIGMA**2 - 0.5 * jnp.log(2 * jnp.pi * SIGMA**2)).sum()


@pytest.mark.slow
def test_no_scale():
    """Where the guide is a point, every estimator is the log-likelihood there."""
    case, values = dense(), []
    with precision("float64"):
        for estimator in EVERY:
            estimate = Estimate(case, estimator)
            loc = at(estimate.flat)["loc"]
            parameters = cast({"loc": loc, "rho": np.full(loc.size, -40.0)})
            noise = {k: v[0] for k, v in random_noises(1, estimate.objective.noise).items()}
            values.append(jax.jit(estimate.parts)(parameters, cast(noise), cast(case.data))[0])
    np.testing.assert_allclose(values, values[0], rtol=1e-8)


# --- rows ---------------------------------------------------------------------------------


def row_log_likelihoods(case, estimator, noises_of, targets=None, scale=0.3):
    """Log-likelihood of every row, ``(target, draw, observation)``; and the flat model.

    `targets` are values of the data to take in turn, those of the case unless given.
    """
    flat, targets = flatten_model(case.model, case.rows), targets or [case.data["target"]]
    guide = build_guide(Inference(), flat.size, improper=False)
    constrained = {k: pt.tensor(k, dtype="float64", shape=(flat.size,)) for k in ("loc", "scale")}
    noise = {"noise": Noise(pt.tensor("noise", dtype="float64", shape=(flat.size,)), "normal")}
    log_likelihoods, _, likelihood_noise = rewrite_likelihood(flat, constrained, estimator)
    draw = guide.draw(constrained, {"noise": noise["noise"].variable})
    noise |= likelihood_noise
    inputs = [*constrained.values(), *(n.variable for n in noise.values()), *flat.data.values()]
    with precision("float64"):
        function = jax_function(inputs, flat.at(draw, log_likelihoods))
        noises = cast(noises_of(noise))
        own = [jnp.asarray(at(flat)["loc"]), jnp.full(flat.size, scale)]

        @jax.jit
        @functools.partial(jax.vmap, in_axes=(0, None))
        def of(noises, data):
            arrays = [noises[name] for name in noise]
            return function(*own, *arrays, *(data[name] for name in flat.data))[0]

        found = [np.asarray(of(noises, cast(case.data | {"target": t}))) for t in targets]
    return found, flat


def many_noises(inputs):
    return random_noises(4000, inputs)


def outputs_of(estimator, noises_of, case=None):
    """Outputs of linear regression for every row, ``(draw, observation)``; and the flat model.

    Log-densities at the targets 1 and -1 differ by 2 · output / sigma².
    """
    targets = [np.full(ROWS, t) for t in (1.0, -1.0)]
    (up, down), flat = row_log_likelihoods(case or linear(), estimator, noises_of, targets)
    return (up - down) * SIGMA**2 / 2, flat


@pytest.mark.parametrize("estimator", EVERY)
def test_marginal_law(estimator):
    """Each row's output has the mean and the variance that the weights give it, exactly.

    Flipout's, whatever the signs; between rows, weights correlate what local noise does not.
    """
    outputs, flat = outputs_of(estimator, cubature)
    x = design(flat)
    np.testing.assert_allclose(outputs.mean(axis=0), x @ at(flat)["loc"], rtol=1e-9)
    covariance = np.cov(outputs.T, ddof=0)
    expected = 0.3**2 * x @ x.T
    np.testing.assert_allclose(np.diag(covariance), np.diag(expected), rtol=1e-9)
    assert np.abs(expected[0, 1:]).max() > 0.1
    if estimator != "flipout":
        keep = 1.0 if estimator == "reparameterisation" else np.eye(ROWS)
        np.testing.assert_allclose(covariance, expected * keep, atol=1e-9)


def correlations(values):
    """Correlations between different rows."""
    found = np.corrcoef(values.T)
    return found[np.triu_indices(len(found), k=1)]


def test_flipout_decorrelates_outputs():
    """Over signs too, the outputs of two rows are uncorrelated."""
    outputs, _ = outputs_of("flipout", many_noises)
    assert np.abs(correlations(outputs)).max() < 4.5 / np.sqrt(4000)


@pytest.mark.parametrize("build", slow_but([linear_hidden], [dense, linear_hidden]))
def test_rows_of_local_reparameterisation(build):
    """Rows' log-likelihoods are uncorrelated through both layers; plain draws correlate them."""
    case = build()
    local, shared = (
        row_log_likelihoods(case, estimator, many_noises)[0][0]
        for estimator in ("local_reparameterisation", "reparameterisation")
    )
    assert np.abs(correlations(local)).max() < 4.5 / np.sqrt(4000)
    assert np.abs(correlations(shared)).max() > 0.5
    for a, b in ((local, shared), (local**2, shared**2)):
        check_same_mean(a, b)


def test_learned_scale_is_shared():
    """A draw of a learned scale is one for all rows: it keeps them correlated."""
    [found], _ = row_log_likelihoods(
        dense(hyperprior="half_normal"), "local_reparameterisation", many_noises, scale=1.0
    )
    assert correlations(found).mean() > 0.05


# --- signs --------------------------------------------------------------------------------


def test_noise_of_flipout():
    """Two arrays of signs a product beside the guide's normal noise; a fit draws them all."""
    case, settings = dense(), Inference(estimator="flipout")
    program = build_program(case.model, settings, ROWS, width=1)
    kinds = {name: n.kind for name, n in program.objective.noise.items()}
    names = [f"sign_{side}_{i}" for i in (1, 2) for side in ("in", "out")]
    assert kinds == {"noise": "normal"} | dict.fromkeys(names, "sign")
    with precision("float32"):
        key = jnp.array([1, 2], "uint32")
        noise_of = jax.jit(program.noise)
        noise, later = (noise_of(key, jnp.array(step)) for step in (0, 1))
    assert [noise[name].shape[0] for name in names] == [3, 4, 4, 2]
    assert all(noise[name].shape[1] == ROWS for name in names)
    assert all(set(np.unique(noise[name])) == {-1.0, 1.0} for name in names)
    signs = [np.asarray(found[name])[:2].tobytes() for found in (noise, later) for name in names]
    assert len(set(signs)) == 2 * len(names)


def linear_convolution(rows_last):
    """Normal model of a weighted sum over a convolution's units and positions."""
    shares = np.random.default_rng(4).normal(size=(3, 2, 2, 1))
    with pm.Model() as model:
        x, target = row_data(IMAGES, TARGET)
        kernels = weight(2, 3, 3, 3)
        if rows_last:
            maps = convolve(x.transpose(1, 2, 3, 0), kernels, (2, 4, 4), 3)
        else:
            windows = [x[:, :, i : i + 2, j : j + 2] for i in range(3) for j in range(3)]
            patches = pt.stack(windows, axis=2).transpose(1, 2, 0, 3, 4).reshape((18, ROWS * 4))
            maps = (kernels.reshape((18, 3)).T @ patches).reshape((3, ROWS, 2, 2))
            maps = maps.transpose(0, 2, 3, 1)
        pm.Normal("y", (shares * maps).sum(axis=(0, 1, 2)), SIGMA, observed=target)
    return Case(model, {"x": IMAGES, "target": TARGET}), shares


@pytest.mark.parametrize("rows_last", slow_but([True], [True, False]))
def test_signs_of_a_convolution(rows_last):
    """Every observation has one kernel of its own, at all its positions."""
    case, shares = linear_convolution(rows_last)
    drawn = {}

    def one_draw(inputs):
        drawn.update(random_noises(1, inputs))
        return drawn

    [outputs], flat = outputs_of("flipout", one_draw, case)
    noise, flip_in, flip_out = (
        np.asarray(drawn[name][0]) for name in ("noise", "sign_in_1", "sign_out_1")
    )
    mean, deviation = (a.reshape(18, 3) for a in (at(flat)["loc"], 0.3 * noise))
    expected = [
        output_of(image, mean + deviation * np.outer(flip_in[:, r], flip_out[:, r]), shares)
        for r, image in enumerate(IMAGES)
    ]
    np.testing.assert_allclose(outputs, expected, rtol=1e-9, atol=1e-9)


def output_of(image, kernels, shares):
    kernels = kernels.reshape(2, 3, 3, 3)
    maps = [correlate(image, kernels[..., unit], mode="valid")[0] for unit in range(3)]
    return (shares[..., 0] * np.array(maps)).sum()


# --- variance -----------------------------------------------------------------------------

MANY = 400


def many_rows():
    """Four hundred rows in four dimensions, eight hidden units."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(MANY, 4))
    return dense(x, (x[:, 0] * x[:, 1] > 0).astype(int), hidden=(8,))


@pytest.mark.slow
def test_variance_of_minibatches():
    """Over noise and minibatches, local noise has the least and shared draws the most.

    Measured with 50 of 400 rows and scales of 0.3: 3.8 times less than plain draws have for
    local reparameterisation and 3.0 times for flipout, most of it that of the minibatch. At
    fixed rows, 9 and 4.9 times less.
    """
    case = many_rows()
    found = {e: samples(case, e, 1000, batch=50) for e in EVERY}
    plain, local, flipout = (s[:, 1:].var(axis=0, ddof=1).sum() for s in found.values())
    assert local < 0.9 * flipout
    assert local < plain / 2.5
    assert flipout < plain / 2
    for estimator in LAYER:
        check_same_mean(found[estimator], found["reparameterisation"])


@pytest.mark.slow
def test_variance_of_noise():
    """At fixed rows nothing hides the difference."""
    case = many_rows()
    found = (samples(case, e, 1000, batch=50, fixed_rows=True) for e in EVERY)
    plain, local, flipout = (s[:, 1:].var(axis=0, ddof=1).sum() for s in found)
    assert local < plain / 5
    assert flipout < plain / 3
    assert local < flipout / 1.3


def many_images():
    """Four hundred images of positive pixels, as real ones have them."""
    images = np.random.default_rng(5).uniform(0.0, 2.0, (MANY, 2, 4, 4))
    return convolutional(images, (images[:, 0, 1, 1] > images[:, 1, 2, 2]).astype(int))


@pytest.mark.slow
def test_variance_of_a_convolution():
    """At fixed images and over minibatches, of all slopes and of those of the kernels.

    Measured with 40 of 400 images and scales of 0.3: 3.7 times less than plain draws have at
    fixed ones (kernels 3.0), 2.8 times over minibatches (kernels 2.5). The standard errors of
    the kernels' are 0.2 and 0.15.
    """
    case = many_images()
    flat = flatten_model(case.model, case.rows)
    kernels = next(slot for slot in flat.layout.slots if slot.name == "w")
    for fixed_rows, least in ((True, 2.0), (False, 1.6)):
        plain, flipout = (
            samples(case, e, 1000, batch=40, fixed_rows=fixed_rows)[:, 1:].var(axis=0, ddof=1)
            for e in ("reparameterisation", "flipout")
        )
        assert flipout.sum() < plain.sum() / least
        for start in (0, flat.size):  # in the means, then in the scales
            own = slice(start + kernels.start, start + kernels.stop)
            assert flipout[own].sum() < plain[own].sum() / least


# --- limits -------------------------------------------------------------------------------


def test_convolution_has_no_local_form():
    message = "must not be local_reparameterisation .* `w` is used at 4 places .* Choose flipout"
    with pytest.raises(ValueError, match=message):
        Estimate(convolutional(), "local_reparameterisation")


@pytest.mark.parametrize("estimator", LAYER)
def test_no_product(estimator):
    with pm.Model() as model:
        pm.Normal("y", (X * weight(3)).sum(axis=1), ONE, observed=TARGET)
    with pytest.raises(ValueError, match=f"`estimator` must not be {estimator}"):
        build_program(model, Inference(estimator=estimator), ROWS, width=1)


def joined(kind):
    """A regression whose rows are correlated, or whose log-likelihood is a potential."""
    target = X @ [1.0, -0.5, 0.0]
    with pm.Model() as model:
        x, y = row_data(X, target)
        mean = (x @ weight(3, 1)).flatten()
        if kind == "normal":
            pm.MvNormal("y", mean, 0.8 + 0.2 * np.eye(ROWS), observed=y)
        elif kind == "neighbours":
            residual = y - mean
            pm.Potential("y", -0.5 * ((residual[1:] - 0.5 * residual[:-1]) ** 2).sum())
        elif kind == "covariance":
            places = pm.Data("places", X, dims=("observation", "axis"))
            distances = ((places[:, None] - places[None]) ** 2).sum(axis=-1)
            pm.MvNormal("y", mean, pt.exp(-distances) + 0.1 * pt.eye(ROWS), observed=y)
        else:
            pm.Potential("y", pm.logp(pm.Normal.dist(mean, ONE), y).sum())
    return model


def rewritten(model, estimator):
    flat = flatten_model(model, rows=ROWS)
    guide = build_guide(Inference(estimator=estimator), flat.size, False)
    return build_objective(flat, guide, Inference(estimator=estimator), ROWS, ROWS)


@pytest.mark.parametrize("estimator", LAYER)
@pytest.mark.parametrize("kind", ["normal", "neighbours", "covariance"])
def test_rows_that_are_joined_are_refused(kind, estimator):
    """Noise of their own would change the expectation."""
    with pytest.raises(ValueError, match="its log-likelihood is no sum over observations"):
        rewritten(joined(kind), estimator)


@pytest.mark.parametrize("estimator", LAYER)
def test_a_potential_that_is_a_sum_is_rewritten(estimator):
    assert rewritten(joined("sum"), estimator).noise


def relu_network(bias):
    """Two layers, a bias in the first one only, or in none."""
    with pm.Model() as model:
        x, target = row_data(X, Y)
        hidden = x @ weight(3, 4, name="w1") + (weight(4, name="b1") if bias else 0.0)
        outputs = pt.maximum(hidden, 0.0) @ weight(4, 2, name="w2")
        pm.Categorical("y", logit_p=outputs, observed=target)
    return model


def blank(columns):
    x = X.copy()
    x[:, columns] = 0.0
    return x


def where_biases_kill(flat):
    """Parameters whose first layer is dead in every row."""
    parameters = at(flat)
    for slot in flat.layout.slots:
        if slot.name == "b1":
            parameters["loc"][slot.start : slot.stop] = -100.0
    return parameters


WITHOUT_INPUT = {
    "dead layer": (True, []),
    "constant input": (False, [1]),
    "no input": (False, [0, 1, 2]),
}


@pytest.mark.parametrize(
    ("name", "estimator"),
    slow_but(
        [("dead layer", "local_reparameterisation")],
        [*product(WITHOUT_INPUT, LAYER)],
    ),
)
def test_units_without_input(name, estimator):
    """Where a unit has no variance its gradients are finite, in single precision."""
    bias, columns = WITHOUT_INPUT[name]
    x = blank(columns)
    case = Case(relu_network(bias), {"x": x, "target": Y})
    with precision("float32"):
        estimate = Estimate(case, estimator, dtype="float32")
        parameters = cast(where_biases_kill(estimate.flat), "float32")
        data = cast(case.data, "float32")
        noises = cast(random_noises(50, estimate.objective.noise), "float32")

        def of(noise):
            return jax.value_and_grad(estimate.elbo)(parameters, noise, data)

        elbos, gradients = jax.jit(jax.vmap(of))(noises)
    assert elbos.dtype == "float32"
    assert np.isfinite(elbos).all()
    # The divergence pulls the killing biases back by about a hundred each.
    assert all(np.isfinite(g).all() and np.abs(g).max() < 1000 for g in gradients.values())


def test_expected_log_likelihood_by_scipy():
    """The closed form above: SciPy's densities, averaged over draws of the weights."""
    flat = flatten_model(linear().model, ROWS)
    parameters = at(flat)
    weights = parameters["loc"] + 0.3 * np.random.default_rng(6).normal(size=(20_000, flat.size))
    values = norm(weights @ design(flat).T, SIGMA).logpdf(TARGET).sum(axis=1)
    with precision("float64"):
        expected = float(expected_log_likelihood(cast(parameters), flat))
    assert abs(values.mean() - expected) < 4 * values.std() / np.sqrt(len(values))
