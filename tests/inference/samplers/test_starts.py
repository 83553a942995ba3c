"""Where chains start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from posteriors import drawn, regression, regression_moments, regression_precision, sampler_of

from pmbnn.inference.samplers.chains import chain_keys, find_start, key_of
from pmbnn.inference.samplers.settings import Mclmc
from pmbnn.inference.xla.compile import precision

CHAINS = 400


def starts(**settings):
    """Starts of many chains on a regression whose posterior is normal, ``(chain, weight)``."""
    chosen = Mclmc(chains=CHAINS, **settings)
    density = sampler_of(regression(), "mclmc").density
    keys, *_ = chain_keys("0", CHAINS)
    with precision("float64"):
        prepared = density.prepare({})

        def one(words):
            log_density = lambda x: density.value(x, prepared)  # noqa: E731
            return find_start(key_of(words), log_density, 2, chosen, jnp.float64).position

        return np.asarray(jax.jit(jax.vmap(one))(keys))


def test_up_the_density_lies_the_mode():
    mean, sd = regression_moments()
    found = starts(descent=2000, descent_rate=0.02)
    np.testing.assert_allclose(found, np.tile(mean, (CHAINS, 1)), atol=0.05 * sd.min())


@pytest.mark.slow
def test_a_fitted_guide_is_where_the_mass_is():
    """Draws of the mean-field optimum, which is narrower than the posterior."""
    mean, sd = regression_moments()
    found = starts(descent=2000, descent_rate=0.02, start="fit")
    # Of a normal posterior: 1 over the root of the precision's diagonal.
    narrow = 1 / np.sqrt(np.diag(regression_precision()))
    np.testing.assert_allclose(found.std(axis=0), narrow, rtol=0.15)
    np.testing.assert_allclose(found.mean(axis=0), mean, atol=0.3 * sd.min())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "wide"), [("dispersed", 2.0), ("map", 0.1), ("fit", np.hypot(0.1, 0.01))]
)
def test_without_a_step_starts_are_the_first_points(start, wide):
    """A guide's start is drawn from about the point, a tenth as wide."""
    found = starts(descent=0, start=start)
    np.testing.assert_allclose(found.std(axis=0), wide, rtol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("start", ["map", "fit"])
def test_chains_that_start_so_come_to_the_posterior(start):
    """As those from dispersed points do."""
    mean, sd = regression_moments()
    found = drawn(regression(), "mclmc", chains=8, draws=800, start=start)
    assert found.status == "converged", found.reason
    values = found.chains.values.reshape(-1, 2)
    np.testing.assert_allclose(values.mean(axis=0), mean, atol=0.1 * sd.max())
    np.testing.assert_allclose(values.std(axis=0), sd, rtol=0.1)


def test_a_setting_is_stored_where_it_differs_from_its_default():
    """Under the first names of the setting and of its value."""
    assert not {"start", "uphill"} & Mclmc().model_dump(by_alias=True).keys()
    assert Mclmc(start="fit").model_dump(by_alias=True)["uphill"] == "elbo"


def test_fits_start_near_zero_unless_told_otherwise():
    near, told = Mclmc(start="map"), Mclmc(start="map", spread=1.0, descent=7)
    assert (near.spread, near.descent) == (0.1, 2_000)
    assert (told.spread, told.descent) == (1.0, 7)
    assert (Mclmc().spread, Mclmc().descent) == (2.0, 500)
