"""Where the means of a guide start."""

import numpy as np
import pytest
from scipy import stats

from pmbnn.inference.flat import Layout
from pmbnn.inference.guides import initial_means
from pmbnn.inference.settings import Inference

LAYOUT = Layout.of({"scale": (), "weight": (400, 25), "bias": (25,)})
SIZE = 10_026


def start(how, random_seed=0):
    return initial_means(LAYOUT, Inference(initial_mean=how), np.random.default_rng(random_seed))


def by_slot(loc):
    return {s.name: loc[s.start : s.stop] for s in LAYOUT.slots}


def check_normal(sample, sd):
    """Mean and mean square within four standard errors of those of a normal draw."""
    n = sample.size
    assert abs(sample.mean()) < 4 * sd / np.sqrt(n)
    assert abs(np.mean(sample**2) / sd**2 - 1) < 4 * np.sqrt(2 / n)


def test_zero():
    np.testing.assert_array_equal(start("zero"), np.zeros(SIZE))


def test_random():
    loc = start("random")
    check_normal(loc, 0.1)
    assert all((part != 0).all() for part in by_slot(loc).values())


def test_uniform():
    settings = Inference(initial_mean="uniform", initial_spread=0.6)
    loc = initial_means(LAYOUT, settings, np.random.default_rng(0))
    assert abs(loc).max() < 0.6
    assert stats.kstest(loc, stats.uniform(-0.6, 1.2).cdf).pvalue > 1e-4


def test_fan_in():
    """Matrices by their fan-in; biases and scales at zero."""
    parts = by_slot(start("fan_in"))
    check_normal(parts["weight"], 1 / np.sqrt(400))
    assert not parts["scale"].any()
    assert not parts["bias"].any()


def test_truncated_fan_in():
    """Cut at two standard deviations of the whole normal; biases and scales at zero."""
    parts = by_slot(start("truncated_fan_in"))
    sd = 1 / np.sqrt(400)
    assert abs(parts["weight"]).max() < 2 * sd
    assert stats.kstest(parts["weight"], stats.truncnorm(-2, 2, scale=sd).cdf).pvalue > 1e-4
    assert not parts["scale"].any()
    assert not parts["bias"].any()


@pytest.mark.parametrize(
    ("how", "law"), [("fan_in", stats.norm), ("truncated_fan_in", stats.truncnorm(-2, 2))]
)
def test_fan_in_of_a_filter(how, law):
    """Every axis but the last counts as input."""
    layout, settings = Layout.of({"filter": (5, 4, 20, 25)}), Inference(initial_mean=how)
    loc = initial_means(layout, settings, np.random.default_rng(0))
    check_normal(loc, law.std() / 20)


@pytest.mark.parametrize("how", ["zero", "random", "uniform", "fan_in", "truncated_fan_in"])
def test_double_precision(how):
    loc = start(how)
    assert loc.shape == (SIZE,)
    assert loc.dtype == np.float64


@pytest.mark.parametrize("how", ["random", "uniform", "fan_in", "truncated_fan_in"])
def test_the_prng_key_decides(how):
    same, other = (start(how, random_seed=i) for i in (0, 1))
    np.testing.assert_array_equal(start(how, random_seed=0), same)
    assert not np.array_equal(same, other)
