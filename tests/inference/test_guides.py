"""The guide against SciPy, and where it starts."""

import numpy as np
import pytest
from scipy.stats import norm

from pmbnn.inference.flat import Slot
from pmbnn.inference.guides import (
    MeanField,
    MeanFieldParameters,
    initial_parameters,
    mean_field_log_density,
    softplus,
)
from pmbnn.inference.settings import Inference

SLOTS = (Slot("scale", 0, ()), Slot("weight", 1, (400, 25)), Slot("bias", 10_001, (25,)))
SIZE = 10_026


def start(random_seed=0, **settings):
    rng = np.random.default_rng(random_seed)
    return initial_parameters(SLOTS, Inference(**settings), rng)


def by_slot(loc):
    return {s.name: loc[s.start : s.stop] for s in SLOTS}


@pytest.mark.parametrize("scale", [1e-8, 1e-4, 0.05, np.log(2), 1.0, 10.0])
def test_initial_scale(scale):
    rho = start(initial_scale=scale).rho
    assert rho.shape == (SIZE,)
    np.testing.assert_allclose(softplus(rho), scale, rtol=1e-12)


def test_initial_mean_zero():
    np.testing.assert_array_equal(start(initial_mean="zero").loc, np.zeros(SIZE))


def check_normal(sample, sd):
    """Mean and mean square within four standard errors of those of a normal draw."""
    n = sample.size
    assert abs(sample.mean()) < 4 * sd / np.sqrt(n)
    assert abs(np.mean(sample**2) / sd**2 - 1) < 4 * np.sqrt(2 / n)


def test_initial_mean_random():
    loc = start(initial_mean="random").loc
    check_normal(loc, 0.1)
    assert all((part != 0).all() for part in by_slot(loc).values())


def test_initial_mean_fan_in():
    """Matrices by their fan-in; biases and scales at zero."""
    parts = by_slot(start(initial_mean="fan_in").loc)
    check_normal(parts["weight"], 1 / np.sqrt(400))
    assert not parts["scale"].any()
    assert not parts["bias"].any()


def test_fan_in_of_a_filter():
    """Every axis but the last counts as input."""
    rng = np.random.default_rng(0)
    slots = (Slot("filter", 0, (5, 4, 20, 25)),)
    check_normal(initial_parameters(slots, Inference(), rng).loc, 1 / 20)


@pytest.mark.parametrize("how", ["random", "fan_in"])
def test_initial_mean_is_the_streams(how):
    same, other = (start(random_seed=i, initial_mean=how).loc for i in (0, 1))
    np.testing.assert_array_equal(start(random_seed=0, initial_mean=how).loc, same)
    assert not np.array_equal(same, other)


def symbolic(cap, evaluate, noise):
    """Scale, draw and entropy of a guide of three variables, as its graphs have them."""
    guide = MeanField(3, cap)
    parameters = guide.parameters()
    loc, rho = np.array([1.0, -2.0, 0.5]), np.array([-20.0, 0.0, 30.0])
    graphs = [guide.scale(parameters), guide.draw(parameters, noise), guide.entropy(parameters)]
    return loc, rho, evaluate(graphs, {parameters.loc: loc, parameters.rho: rho})


@pytest.mark.parametrize("cap", [None, 5.0])
def test_graphs_equal_scipy(cap, evaluate):
    noise = np.array([0.3, -1.2, 2.0])
    loc, rho, (scale, draw, entropy) = symbolic(cap, evaluate, noise)
    expected = np.log1p(np.exp(rho))
    expected[2] = expected[2] if cap is None else cap
    np.testing.assert_allclose(scale, expected, rtol=1e-12)
    np.testing.assert_allclose(softplus(rho, cap), expected, rtol=1e-12)
    np.testing.assert_allclose(draw, loc + expected * noise, rtol=1e-12)
    np.testing.assert_allclose(entropy, norm(loc, expected).entropy().sum(), rtol=1e-12)


def test_softplus_does_not_overflow():
    np.testing.assert_array_equal(softplus(np.array([-800.0, 800.0])), [0.0, 800.0])


def test_log_density_equals_scipy():
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=4), np.array([1e-6, 0.1, 1.0, 30.0])
    draws = loc + scale * 3 * rng.normal(size=(7, 4))
    found = mean_field_log_density(draws, loc, scale)
    assert found.shape == (7,)
    np.testing.assert_allclose(found, norm(loc, scale).logpdf(draws).sum(axis=1), rtol=1e-10)


def test_parameters_are_named():
    assert [p.name for p in MeanField(2).parameters()] == ["loc", "rho"]
    assert MeanFieldParameters._fields == ("loc", "rho")
