"""Fast forms of single operations against plain ones; whole graphs are tested in test_elbo."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit

from pmbnn.inference import xla_forms
from pmbnn.inference.jax_edge import precision


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 5e-7), ("float64", 1e-15)])
def test_softplus(dtype, tolerance):
    """Relative to its value, however small that is; with its derivative."""
    x = np.concatenate([np.linspace(-80, 80, 4001), 10.0 ** np.arange(-12, 1), [0.0]]).astype(dtype)
    with precision(dtype):
        value = jax.jit(xla_forms._softplus)(jnp.asarray(x))
        slope = jax.jit(jax.vmap(jax.grad(xla_forms._softplus)))(jnp.asarray(x))
    assert value.dtype == dtype
    wide = x.astype(np.float64)
    np.testing.assert_allclose(value, np.logaddexp(0, wide), rtol=tolerance)
    np.testing.assert_allclose(slope, expit(wide), rtol=4 * tolerance)
