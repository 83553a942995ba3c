"""Ensembles of chains that keep to modes of their own (MILE)."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
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


def test_members_have_step_sizes_of_their_own_and_the_length_of_the_settings():
    """Of two modes far apart, the left one is narrower, and needs shorter steps."""
    with pm.Model() as modes:
        x = pm.Flat("x", shape=2)
        squares = (abs(x[0]) - APART) ** 2 + x[1] ** 2
        pm.Potential("modes", -squares / (2 * pt.switch(x[0] < 0, 0.1, 0.5) ** 2))
    settings = SHORT | {"tuning": 1_000, "energy_variance": 1e-3, "decoherence": 0.5}
    found = drawn(modes, "mile", spread=3.0, **settings)
    assert found.tuned["length"] == pytest.approx(0.5 * np.sqrt(2))
    narrow = found.chains.values[:, 0, 0] < 0
    step_sizes = found.chains.statistics["step_size"]
    assert 0 < narrow.sum() < len(narrow)
    assert (step_sizes == step_sizes[:, :1]).all()
    assert step_sizes[narrow].max() < 0.5 * step_sizes[~narrow].min()


def test_members_start_at_fits():
    with pytest.raises(ConfigError, match="`start` must be one of fit, map, got 'dispersed'"):
        Mile(start="dispersed")
    with pytest.raises(ConfigError, match="`draws` >= 25 to be stacked, got 24"):
        Mile(draws=24, pooling="stacked")
    assert (Mile().start, Mile().spread, Mile().descent) == ("map", 0.1, 2_000)
