"""Polynomials against NumPy and SciPy in double precision."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from pmbnn.inference.jax_edge import precision
from pmbnn.inference.polynomials import exp_minus, log_1p, normal_quantile


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


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 4e-7), ("float64", 1e-12)])
def test_normal_quantile(dtype, tolerance):
    """From the middle to the last number before the end."""
    x = np.concatenate([np.linspace(0, 1, 9_999)[:-1], 1 - 2.0 ** -np.arange(1, 24)])
    x = np.concatenate([-x, x]).astype("float32")
    expected = np.sqrt(2) * special.erfinv(x.astype(float))
    np.testing.assert_allclose(of(normal_quantile, x, dtype), expected, rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 3e-7), ("float64", 1e-15)])
def test_exp_minus(dtype, tolerance):
    """As far as single precision has its numbers in full, and at what is no number."""
    a = np.concatenate([np.linspace(0, 87, 100_001), 10.0 ** np.arange(-37, 0)]).astype(dtype)
    np.testing.assert_allclose(of(exp_minus, a, dtype), np.exp(-a.astype(float)), rtol=tolerance)
    beyond, nothing = of(exp_minus, [np.inf, np.nan], dtype)
    assert 0 <= beyond < 2e-38
    assert np.isnan(nothing)
