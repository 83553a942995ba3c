"""Free variables as functions of standard normals, against SciPy's quantile functions."""

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from scipy import stats

from pmbnn.inference.flat import flatten_model
from pmbnn.inference.normal_coordinates import place_of
from pmbnn.inference.xla.compile import jax_function, precision

Z = np.array([-9.0, -5.0, -2.0, -0.1, 0.3, 2.0, 5.0, 9.0])
ALL = slice(None)
WITHOUT_TAILS = slice(1, -1)

REAL = {
    "normal": (lambda: pm.Normal("x", 1.0, 3.0, shape=8), stats.norm(1, 3), ALL),
    "laplace": (lambda: pm.Laplace("x", 1.0, 3.0, shape=8), stats.laplace(1, 3), ALL),
    "cauchy": (lambda: pm.Cauchy("x", 1.0, 3.0, shape=8), stats.cauchy(1, 3), ALL),
    "logistic": (lambda: pm.Logistic("x", 1.0, 3.0, shape=8), stats.logistic(1, 3), WITHOUT_TAILS),
}
POSITIVE = {
    # The root of a gamma variable: SciPy's own loses what is close to 0.
    "half_normal": (lambda: pm.HalfNormal("x", 3.0, shape=8), stats.gengamma(0.5, 2, 0, 18**0.5)),
    "half_cauchy": (lambda: pm.HalfCauchy("x", 3.0, shape=8), stats.halfcauchy(0, 3)),
    "inverse_gamma": (lambda: pm.InverseGamma("x", 2.0, 3.0, shape=8), stats.invgamma(2, 0, 3)),
    "inverse_gamma_below_1": (
        lambda: pm.InverseGamma("x", 0.8, 3.0, shape=8),
        stats.invgamma(0.8, 0, 3),
    ),
    "inverse_gamma_large": (
        lambda: pm.InverseGamma("x", 40.0, 3.0, shape=8),
        stats.invgamma(40, 0, 3),
    ),
    "exponential": (lambda: pm.Exponential("x", scale=3.0, shape=8), stats.expon(0, 3)),
}


def at(model, z, dtype):
    """The flat vector at coordinates, and the gradient of its sum."""
    flat = flatten_model(model, 1)
    coordinates = pt.tensor("z", dtype="float64", shape=(flat.size,))
    with precision(dtype):
        of = jax_function([coordinates], [place_of(flat, coordinates)])
        z = np.asarray(z, dtype)
        return np.asarray(of(z)[0]), np.asarray(jax.grad(lambda z: of(z)[0].sum())(z))


def quantiles(distribution):
    """At Φ(z), from the nearer tail."""
    return np.where(Z > 0, distribution.isf(stats.norm.sf(Z)), distribution.ppf(stats.norm.cdf(Z)))


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-6), ("float32", 1e-3)])
@pytest.mark.parametrize("name", REAL)
def test_variables_on_the_line(name, dtype, rtol):
    build, distribution, within = REAL[name]
    with pm.Model() as model:
        build()
    found, gradient = at(model, Z, dtype)
    expected = quantiles(distribution)
    if name == "logistic" and dtype == "float32":
        within = slice(1, -2)  # by PyMC's formula, at a Φ(z) that is next to 1
    np.testing.assert_allclose(found[within], expected[within], rtol=rtol)
    # The densities are equal: φ(z) = p(x) dx/dz.
    slope = stats.norm.logpdf(Z) - distribution.logpdf(expected)
    np.testing.assert_allclose(np.log(gradient[within]), slope[within], atol=10 * rtol)


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-6), ("float32", 1e-3)])
@pytest.mark.parametrize("name", POSITIVE)
def test_positive_variables(name, dtype, rtol):
    """Their logarithms are what is laid out."""
    build, distribution = POSITIVE[name]
    with pm.Model() as model:
        build()
    found, gradient = at(model, Z, dtype)
    expected = quantiles(distribution)
    np.testing.assert_allclose(found, np.log(expected), rtol=rtol, atol=rtol)
    slope = stats.norm.logpdf(Z) - distribution.logpdf(expected) - np.log(expected)
    np.testing.assert_allclose(np.log(gradient), slope, atol=10 * rtol)


@pytest.mark.parametrize("name", [*REAL, *POSITIVE])
def test_slopes_near_the_median_are_numbers_in_single_precision(name):
    """Of a network's weights some are that near in every trajectory."""
    with pm.Model() as model:
        (REAL | POSITIVE)[name][0]()
    z = np.array([-1e-3, -1e-4, -1e-5, -1e-6, 1e-6, 1e-5, 1e-4, 1e-3])
    _, gradient = at(model, z, "float32")
    assert np.isfinite(gradient).all()
    np.testing.assert_allclose(gradient, np.median(gradient), rtol=0.02)


def test_parameters_may_be_variables_before():
    """In the order of the layout, which has those of one prior side by side."""
    with pm.Model() as model:
        first = pm.Normal("first", 2.0, 1.0)
        scale = pm.HalfNormal("scale", 1.0)
        pm.Normal("middle", first, scale, shape=2)
        pm.Normal("last", 2.0, 1.0)
    slots = {slot.name: slot for slot in flatten_model(model, 1).layout.slots}
    z = np.zeros(5)
    for name, value in {"first": 0.5, "middle": [1.0, -2.0], "last": -1.0}.items():
        z[slots[name].start : slots[name].stop] = value
    found, _ = at(model, z, "float64")
    parts = {name: slot.of(found) for name, slot in slots.items()}
    scale = stats.halfnorm.median()
    assert parts["scale_log__"] == pytest.approx(np.log(scale))
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
        at(model, np.zeros(3), "float64")
