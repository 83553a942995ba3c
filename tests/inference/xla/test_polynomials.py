"""Polynomials against NumPy and SciPy in double precision."""

import jax.numpy as jnp
import numpy as np
import pytest

from pmbnn.inference.xla.compile import precision
from pmbnn.inference.xla.rewrites import cos_and_sin, exp_minus, log, log_1p


def of(function, x, dtype):
    with precision(dtype):
        found = function(jnp.asarray(x, dtype))
        assert found.dtype == dtype
        return np.asarray(found, np.float64)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-7), ("float64", 1e-15)])
def test_log_1p(dtype, tolerance):
    """Of small numbers too: a scale of 1e-9 is one."""
    t = np.concatenate([np.linspace(0, 1, 10_001), 10.0 ** np.arange(-37, 0)]).astype(dtype)
    np.testing.assert_allclose(of(log_1p, t, dtype), np.log1p(t.astype(float)), rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 3e-7), ("float64", 1e-15)])
def test_log(dtype, tolerance):
    """Relative near 1 too, where it is small."""
    x = np.concatenate([np.geomspace(1e-37, 1e37, 10_001), 1 + np.linspace(-0.5, 0.5, 9_999)])
    x = np.concatenate([x, 2.0 ** -np.arange(25)]).astype(dtype)
    np.testing.assert_allclose(of(log, x, dtype), np.log(x.astype(float)), rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 4e-7), ("float64", 1e-15)])
def test_cos_and_sin(dtype, tolerance):
    """Of a whole turn, and at its quarters."""
    t = np.concatenate([np.linspace(-1, 1, 100_001), [-0.5, 0, 0.5, 1e-30]]).astype(dtype)
    for number, expected in enumerate((np.cos, np.sin)):
        found = of(lambda t, n=number: cos_and_sin(t)[n], t, dtype)
        np.testing.assert_allclose(found, expected(np.pi * t.astype(float)), atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 3e-7), ("float64", 1e-15)])
def test_exp_minus(dtype, tolerance):
    """As far as single precision has its numbers in full, and at what is no number."""
    a = np.concatenate([np.linspace(0, 87, 100_001), 10.0 ** np.arange(-37, 0)]).astype(dtype)
    np.testing.assert_allclose(of(exp_minus, a, dtype), np.exp(-a.astype(float)), rtol=tolerance)
    beyond, nothing = of(exp_minus, [np.inf, np.nan], dtype)
    assert 0 <= beyond < 2e-38
    assert np.isnan(nothing)
