"""Free variables as functions of standard normals, against SciPy's quantile functions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats
from tiers import slow_but

from pmbnn.inference.flat import flatten_model
from pmbnn.inference.log_density import place_of
from pmbnn.inference.xla.compile import jax_function, precision

Z = np.array([-9.0, -5.0, -2.0, -0.1, 0.3, 2.0, 5.0, 9.0])
NEAR = np.array([-1e-3, -1e-4, -1e-5, -1e-6, 1e-6, 1e-5, 1e-4, 1e-3])
ALL = slice(None)
WITHOUT_TAILS = slice(1, -1)

REAL = {
    "normal": (lambda name: pm.Normal(name, 1.0, 3.0, shape=16), stats.norm(1, 3), ALL),
    "laplace": (lambda name: pm.Laplace(name, 1.0, 3.0, shape=16), stats.laplace(1, 3), ALL),
    "cauchy": (lambda name: pm.Cauchy(name, 1.0, 3.0, shape=16), stats.cauchy(1, 3), ALL),
    "logistic": (
        lambda name: pm.Logistic(name, 1.0, 3.0, shape=16),
        stats.logistic(1, 3),
        WITHOUT_TAILS,
    ),
}
POSITIVE = {
    # The root of a gamma variable: SciPy's own loses what is close to 0.
    "half_normal": (
        lambda name: pm.HalfNormal(name, 3.0, shape=16),
        stats.gengamma(0.5, 2, 0, 18**0.5),
    ),
    "half_cauchy": (lambda name: pm.HalfCauchy(name, 3.0, shape=16), stats.halfcauchy(0, 3)),
    "inverse_gamma": (
        lambda name: pm.InverseGamma(name, 2.0, 3.0, shape=16),
        stats.invgamma(2, 0, 3),
    ),
    "inverse_gamma_below_1": (
        lambda name: pm.InverseGamma(name, 0.8, 3.0, shape=16),
        stats.invgamma(0.8, 0, 3),
    ),
    "inverse_gamma_large": (
        lambda name: pm.InverseGamma(name, 40.0, 3.0, shape=16),
        stats.invgamma(40, 0, 3),
    ),
    "exponential": (lambda name: pm.Exponential(name, scale=3.0, shape=16), stats.expon(0, 3)),
}


def function_at(model, dtype):
    """What gives the flat vector at coordinates, and the gradient of its sum; and its slots."""
    flat = flatten_model(model, 1)
    coordinates = pt.tensor("z", dtype="float64", shape=(flat.size,))
    with precision(dtype):
        of = jax_function([coordinates], [place_of(flat, coordinates)])

    @jax.jit
    def value_and_slope(z):
        value, back = jax.vjp(lambda z: of(z)[0], z)
        return value, back(jnp.ones_like(value))[0]

    def at(z):
        with precision(dtype):
            return [np.asarray(part) for part in value_and_slope(np.asarray(z, dtype))]

    return at, {slot.name.removesuffix("_log__"): slot for slot in flat.layout.slots}


PRECISIONS = slow_but([("float64", 1e-6)], [("float64", 1e-6), ("float32", 1e-3)])
RARE = ("inverse_gamma_below_1", "inverse_gamma_large")
VARIABLES = {name: build for name, (build, *_) in (REAL | POSITIVE).items()}
COMMON = tuple(name for name in VARIABLES if name not in RARE)


def values_of(name, dtype):
    """A variable's values and slopes at `Z`, and those at `NEAR`."""
    values, slopes = evaluated((name,) if name in RARE else COMMON, dtype)[name]
    return (values[:8], slopes[:8]), (values[8:], slopes[8:])


@functools.cache
def evaluated(names, dtype):
    """Values and slopes by name, from one program."""
    with pm.Model() as model:
        for name in names:
            VARIABLES[name](name)
    at, slots = function_at(model, dtype)
    found = at(np.tile([*Z, *NEAR], len(slots)))
    return {name: [slot.of(part) for part in found] for name, slot in slots.items()}


def quantiles(distribution):
    """At Φ(z), from the nearer tail."""
    return np.where(Z > 0, distribution.isf(stats.norm.sf(Z)), distribution.ppf(stats.norm.cdf(Z)))


@pytest.mark.parametrize(("dtype", "rtol"), PRECISIONS)
@pytest.mark.parametrize("name", REAL)
def test_variables_on_the_line(name, dtype, rtol):
    _, distribution, within = REAL[name]
    found, gradient = values_of(name, dtype)[0]
    expected = quantiles(distribution)
    if name == "logistic" and dtype == "float32":
        within = slice(1, -2)  # by PyMC's formula, at a Φ(z) that is next to 1
    np.testing.assert_allclose(found[within], expected[within], rtol=rtol)
    # The densities are equal: φ(z) = p(x) dx/dz.
    slope = stats.norm.logpdf(Z) - distribution.logpdf(expected)
    np.testing.assert_allclose(np.log(gradient[within]), slope[within], atol=10 * rtol)


@pytest.mark.parametrize(("dtype", "rtol"), PRECISIONS)
@pytest.mark.parametrize("name", slow_but(COMMON[len(REAL) :], list(POSITIVE)))
def test_positive_variables(name, dtype, rtol):
    """Their logarithms are what is laid out."""
    _, distribution = POSITIVE[name]
    found, gradient = values_of(name, dtype)[0]
    expected = quantiles(distribution)
    np.testing.assert_allclose(found, np.log(expected), rtol=rtol, atol=rtol)
    slope = stats.norm.logpdf(Z) - distribution.logpdf(expected) - np.log(expected)
    np.testing.assert_allclose(np.log(gradient), slope, atol=10 * rtol)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(VARIABLES))
def test_slopes_near_the_median_are_numbers_in_single_precision(name):
    """Of a network's weights some are that near in every trajectory."""
    _, gradient = values_of(name, "float32")[1]
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(gradient, np.median(gradient), rtol=0.02)


def test_parameters_may_be_variables_before():
    """In the order of the layout, which has those of one prior side by side."""
    with pm.Model() as model:
        first = pm.Normal("first", 2.0, 1.0)
        scale = pm.HalfNormal("scale", 1.0)
        pm.Normal("middle", first, scale, shape=2)
        pm.Normal("last", 2.0, 1.0)
    at, slots = function_at(model, "float64")
    z = np.zeros(5)
    for name, value in {"first": 0.5, "middle": [1.0, -2.0], "last": -1.0}.items():
        z[slots[name].start : slots[name].stop] = value
    found, _ = at(z)
    parts = {name: slot.of(found) for name, slot in slots.items()}
    scale = stats.halfnorm.median()
    assert parts["scale"] == pytest.approx(np.log(scale))
    assert (parts["first"], parts["last"]) == pytest.approx((2.5, 1.0))
    np.testing.assert_allclose(parts["middle"], 2.5 + scale * np.array([1.0, -2.0]))


def ordered():
    pm.Normal("x", 0.0, 1.0, shape=2, transform=pm.distributions.transforms.ordered, initval=[0, 1])


@pytest.mark.parametrize(
    "build",
    [
        lambda: pm.Gamma("x", 2.0, 1.0),
        lambda: pm.Dirichlet("x", np.ones(3)),
        lambda: pm.Flat("x"),
        ordered,
    ],
)
def test_what_has_no_quantile_function_is_named(build):
    with pm.Model() as model:
        build()
    with pytest.raises(ValueError, match="quantile function of `x` is not available"):
        function_at(model, "float64")
