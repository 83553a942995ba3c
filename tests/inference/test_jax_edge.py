"""PyTensor graphs as JAX functions, in the precision asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pmbnn.inference.jax_edge import jax_function, precision


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_precision(dtype):
    """A double-precision graph runs in either, silently, and the flag is put back."""
    before = jax.config.jax_enable_x64
    x = pt.vector("x", dtype="float64")
    function = jax_function([x], [pt.exp(x) + pt.cast(1 / 3, "float64")])
    with precision(dtype):
        [found] = function(jnp.asarray([1.0, 2.0], dtype))
        assert found.dtype == dtype
    assert jax.config.jax_enable_x64 == before
    tolerance = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(found, np.exp([1.0, 2.0]) + 1 / 3, rtol=tolerance)


def test_flag_is_put_back_after_an_error():
    before = jax.config.jax_enable_x64
    with pytest.raises(ZeroDivisionError), precision("float32" if before else "float64"):
        raise ZeroDivisionError
    assert jax.config.jax_enable_x64 == before


def test_parameter_checks_are_left_out():
    """JAX cannot raise: a negative scale gives a number that is none, and the graph stays."""
    sigma = pt.scalar("sigma", dtype="float64")
    graph = pm.logp(pm.Normal.dist(0.0, sigma), 1.0)
    function = jax_function([sigma], [graph])
    with precision("float64"):
        found = [float(function(jnp.asarray(s))[0]) for s in (2.0, -2.0)]
    assert found[0] == pytest.approx(-np.log(2) - 0.5 * np.log(2 * np.pi) - 0.125)
    assert np.isnan(found[1])
    with pytest.raises(ValueError, match="sigma > 0"):
        graph.eval({sigma: -2.0}, mode="FAST_COMPILE")
