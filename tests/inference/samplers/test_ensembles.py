"""Ensembles of chains that keep to modes of their own (MILE)."""

import numpy as np
import pytest
from posteriors import APART, drawn, regression, two_modes

import pmbnn as pb
from pmbnn.core.errors import ConfigError
from pmbnn.inference.samplers.settings import Mile

SHORT = {"chains": 8, "draws": 40, "tuning": 300, "descent": 300, "thin": 5}


@pytest.mark.slow
def test_members_stay_at_their_modes():
    """Of two that chains do not cross between, one has four times the mass of the other."""
    found = drawn(two_modes(), "mile", spread=3.0, energy_variance=5e-4, **SHORT)
    side = np.sign(found.chains.values[..., 0])
    assert set(side[:, 0]) == {-1.0, 1.0}
    assert (side == side[:, :1]).all()
    np.testing.assert_allclose(np.abs(found.chains.values).mean(axis=(0, 1)), APART, atol=0.1)
    assert found.convergence.largest > 1.5


@pytest.mark.slow
def test_members_that_agree_are_an_ensemble_too():
    found = drawn(regression(), "mile", **SHORT)
    assert (found.status, found.chains.draws) == ("ensemble", SHORT["draws"])
    assert "R-hat" in found.reason


def test_an_ensemble_is_no_reference():
    ensemble = pb.sample(regression(), engine="mile", progress=False, **SHORT)
    assert ensemble.status == "ensemble"
    fit = pb.fit(regression(), steps=20, progress=False)
    with pytest.raises(ValueError, match="`reference` must be of the posterior, got an ensemble"):
        pb.check(fit, ensemble)


def test_members_start_at_fits():
    with pytest.raises(ConfigError, match="`start` must be one of fit, map, got 'dispersed'"):
        Mile(start="dispersed")
    with pytest.raises(ConfigError, match="`draws` >= 25 to be stacked, got 24"):
        Mile(draws=24, pooling="stacked")
    assert (Mile().start, Mile().spread, Mile().descent) == ("map", 0.1, 2_000)
