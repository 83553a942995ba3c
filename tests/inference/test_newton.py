"""Newton's decrement on functions whose optimum is known."""

import numpy as np
import pymc as pm
import pytest

from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.newton import (
    Expectations,
    Ratios,
    conjugate_gradients,
    distance_to_optimum,
    polish,
    variance_ratios,
)
from pmbnn.inference.xla.compile import precision

SIZE = 6
RNG = np.random.default_rng(0)
ROOT = np.exp(RNG.normal(size=SIZE))[:, None] * (np.eye(SIZE) + 0.5 * RNG.normal(size=(SIZE, SIZE)))
PRECISION = np.linalg.inv(ROOT @ ROOT.T)
MEAN = 10 * RNG.normal(size=SIZE)


def expectations(model):
    density = build_log_density(model, 1, "float64")
    return Expectations.of(density, density.prepare({}), 1)


@pytest.fixture(scope="module")
def normal():
    with pm.Model() as model, precision("float64"):
        pm.MvNormal("x", MEAN, tau=PRECISION)
        return expectations(model)


def test_averages_over_any_number_of_vectors(normal):
    """Of value, gradient and Hessian, by hand."""
    vectors, direction = RNG.normal(size=(73, SIZE)), RNG.normal(size=SIZE)
    with precision("float64"):
        found = normal.average(vectors)
        product = normal.product(vectors, direction)
        hessian = normal.hessian(vectors[0])
    steps = vectors - MEAN
    values = -0.5 * np.einsum("di,ij,dj->d", steps, PRECISION, steps)
    values += 0.5 * np.linalg.slogdet(PRECISION)[1] - 0.5 * SIZE * np.log(2 * np.pi)
    assert found.value == pytest.approx(values.mean(), rel=1e-9)
    np.testing.assert_allclose(found.gradient, -PRECISION @ steps.mean(axis=0), rtol=1e-9)
    np.testing.assert_allclose(product, PRECISION @ direction, rtol=1e-9)
    np.testing.assert_allclose(hessian, PRECISION, rtol=1e-9)


def test_conjugate_gradients():
    target = RNG.normal(size=SIZE)
    exact = np.linalg.solve(PRECISION, target)
    for root in (np.eye(SIZE), ROOT):
        found = conjugate_gradients(lambda v: PRECISION @ v, target, root)
        np.testing.assert_allclose(found, exact, rtol=1e-2)
    assert conjugate_gradients(lambda v: -v, target, np.eye(SIZE)) is None
    np.testing.assert_array_equal(
        conjugate_gradients(lambda v: v, np.zeros(SIZE), np.eye(SIZE)), np.zeros(SIZE)
    )
    wide = np.geomspace(1, 1e12, 2_000)
    assert conjugate_gradients(lambda v: wide * v, np.ones(2_000), np.eye(2_000)) is None


def test_distance_of_a_normal_distribution_is_exact(normal):
    """In standard deviations of the guide, and one step is all there is."""
    scale, loc = 1 / np.sqrt(np.diag(PRECISION)), MEAN + RNG.normal(size=SIZE)
    half = scale * RNG.normal(size=(50, SIZE))
    offsets = np.stack([half, -half], axis=1).reshape(100, SIZE)
    with precision("float64"):
        at = normal.average(loc + offsets)
        found = distance_to_optimum(normal, at, loc + offsets, scale, ROOT)
        end = polish(normal, loc, offsets, scale, ROOT)
        unmoved = polish(normal, loc, offsets, scale, ROOT, most=0)
    np.testing.assert_allclose(found.step, MEAN - loc, rtol=1e-6)
    assert found.largest == pytest.approx(np.max(np.abs(MEAN - loc) / scale), rel=1e-6)
    assert found.gain == pytest.approx(0.5 * (loc - MEAN) @ PRECISION @ (loc - MEAN), rel=1e-6)
    assert not found.is_near and end.distance.is_near and end.is_quadratic and end.steps == 1
    np.testing.assert_allclose(end.loc, MEAN, rtol=1e-6)
    assert end.average.value == pytest.approx(at.value + found.gain, rel=1e-9)
    np.testing.assert_array_equal(unmoved.loc, loc)
    assert unmoved.average.value == at.value and unmoved.steps == 0


def test_steps_that_are_too_long_are_halved():
    """Of -√(1 + x²), a full step from 2 leads to -8; of -|x|, there is no curvature to tell."""
    with pm.Model() as model, precision("float64"):
        x = pm.Flat("x", shape=1)
        pm.Potential("p", -pm.math.sqrt(1 + x**2).sum())
        averages = expectations(model)
        point, one = np.zeros((1, 1)), np.ones(1)
        first = polish(averages, 2 * one, point, one, np.eye(1), most=1)
        end = polish(averages, 2 * one, point, one, np.eye(1))
        far = polish(averages, 2e3 * one, point, one, np.eye(1))
    assert first.steps == 1 and not first.is_quadratic
    np.testing.assert_allclose(first.loc, [-0.5])
    assert end.distance.is_near and abs(end.loc[0]) < 0.25
    # The step is a billion long, and no halving of it is short enough.
    assert far.steps == 0 and not far.is_quadratic and far.distance.largest > 1e9


def test_no_steps_without_a_positive_curvature():
    with pm.Model() as model, precision("float64"):
        x = pm.Flat("x", shape=1)
        pm.Potential("p", pm.math.log(1 + x**2).sum())
        averages = expectations(model)
        end = polish(averages, 0.1 * np.ones(1), np.zeros((1, 1)), np.ones(1), np.eye(1))
    assert end.steps == 0 and end.is_quadratic and not end.distance.is_known
    assert not end.distance.is_near and np.isnan(end.distance.largest)


@pytest.mark.parametrize("has_correlations", [False, True])
def test_ratios_of_variances_of_a_normal_distribution_are_exact(normal, has_correlations):
    """With no noise where the control variate is the density itself."""
    shape = np.diag(np.exp(RNG.normal(size=SIZE)))
    if has_correlations:
        shape = shape @ (np.eye(SIZE) + 0.3 * RNG.normal(size=(SIZE, SIZE)))
    half = RNG.normal(size=(20, SIZE)) @ shape.T
    offsets = np.stack([half, -half], axis=1).reshape(40, SIZE)
    covariance = shape @ shape.T
    with precision("float64"):
        at = normal.average(MEAN + offsets)
    given = covariance if has_correlations else np.diagonal(covariance)
    found = variance_ratios(at, offsets, given, ROOT)
    product = covariance @ PRECISION
    in_coordinates = np.linalg.inv(ROOT) @ product @ ROOT if has_correlations else product
    np.testing.assert_allclose(found.value, np.diagonal(in_coordinates), rtol=1e-6)
    np.testing.assert_allclose(found.error, 0, atol=1e-6 * np.abs(found.value).max())
    other = variance_ratios(at, offsets, given, np.eye(SIZE))
    assert (np.abs(other.value - np.diagonal(product)) < 5 * other.error + 1e-9).all()


def test_ratios_that_are_near():
    assert Ratios(np.array([0.6, 1.9]), np.zeros(2)).are_near
    assert not Ratios(np.array([1.0, 2.1]), np.zeros(2)).are_near
    assert Ratios(np.array([1.0, 2.1]), np.array([0.0, 0.1])).are_near
    assert not Ratios(np.array([0.2, 1.0]), np.full(2, 0.01)).are_near
    assert Ratios(np.array([0.2, 3.0]), np.zeros(2)).farthest == 0.2
