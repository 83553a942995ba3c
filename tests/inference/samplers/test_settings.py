"""What an experiment file may say of samplers, and what it costs."""

import pytest

from pmbnn.core.errors import ConfigError
from pmbnn.inference.samplers.settings import SAMPLING, Mclmc, Nuts, Smc


def test_every_engine_has_settings():
    assert all(of().engine == name for name, of in SAMPLING.items())


def test_gradients_of_a_chain():
    assert Mclmc(descent=100, tuning=1_000, draws=50, thin=3).gradients == 2_400
    assert Nuts().gradients == pytest.approx(300_000, rel=0.01)
    assert Smc(moves=10).gradients == 2 * Smc().gradients == 4 * Smc(draws=256).gradients


def test_the_fewest_leapfrogs_are_not_more_than_the_most():
    with pytest.raises(ConfigError, match="fewest <= most in `leapfrogs`, got 32 and 16"):
        Smc(leapfrogs=(32, 16))
