"""Leave-one-out densities against closed forms."""

import numpy as np
import pytest
from scipy import stats

from pmbnn.prediction.leave_one_out import (
    LEAST_DRAWS,
    leave_one_out,
    leave_one_out_of_guide,
    pareto_k,
)

RNG = np.random.default_rng(0)


def test_a_normal_mean_with_known_variance():
    """Each row's density given all others is known."""
    y = RNG.normal(1.0, 1.0, 30)
    mean = RNG.normal(y.mean(), 1 / np.sqrt(30), 4000)
    found, k = leave_one_out(stats.norm.logpdf(y, mean[:, None], 1.0))
    others = (y.sum() - y) / 29
    expected = stats.norm.logpdf(y, others, np.sqrt(1 + 1 / 29))
    np.testing.assert_allclose(found, expected, atol=0.02)
    assert k.max() < 0.5
    in_sample = stats.norm.logpdf(y, y.mean(), np.sqrt(1 + 1 / 30))
    assert found.mean() < in_sample.mean()


def test_weights_from_a_guide_correct_it():
    """The same densities by draws of a normal distribution that is wider and off."""
    y = RNG.normal(1.0, 1.0, 30)
    posterior = stats.norm(y.mean(), 1 / np.sqrt(30))
    guide = stats.norm(y.mean() + 0.1, 1.5 / np.sqrt(30))
    mean = guide.rvs(20_000, random_state=RNG)
    log_likelihood = stats.norm.logpdf(y, mean[:, None], 1.0)
    # The joint density is the posterior times a constant that nothing depends on.
    log_ratio = posterior.logpdf(mean) - 70 - guide.logpdf(mean)
    found, k = leave_one_out_of_guide(log_likelihood, log_ratio)
    expected = stats.norm.logpdf(y, (y.sum() - y) / 29, np.sqrt(1 + 1 / 29))
    np.testing.assert_allclose(found, expected, atol=0.02)
    assert k.max() < 0.5
    unweighted, _ = leave_one_out(log_likelihood)
    assert np.abs(unweighted - expected).max() > 0.05


def test_rows_of_which_draws_say_the_same():
    """Probabilities that round to one have no tail: as such rows occur beside others."""
    certain = np.zeros((200, 1), np.float32)
    few = np.zeros((200, 1), np.float32)
    few[:5] = -1e-7
    usual = RNG.normal(-1, 0.1, (200, 1))
    found, k = leave_one_out(np.concatenate([certain, few, usual], axis=1))
    assert found[0] == 0
    assert found[1] == pytest.approx(0, abs=1e-8)
    assert found[2] == pytest.approx(-1.005, abs=0.02)
    assert k[0] == -np.inf
    assert np.isfinite(k[2])


def test_rows_that_many_draws_rule_out():
    """Probabilities that round to zero at more draws than a tail has, and not at the next."""
    impossible = np.full((200, 1), -1.0)
    impossible[:40] = -100.0
    found, k = leave_one_out(np.concatenate([impossible, RNG.normal(-1, 0.1, (200, 1))], axis=1))
    assert found[0] == pytest.approx(-100 - np.log(40 / 200), abs=1e-6)
    assert k[0] == -np.inf
    assert np.isfinite(k[1])


def test_rows_whose_draws_differ_by_less_than_rounding():
    """As of a logit of 40: another row's k-hat must not be lost to theirs."""
    certain = -np.exp(RNG.normal(-40, 2, (200, 1)))
    found, k = leave_one_out(np.concatenate([certain, RNG.normal(-1, 0.1, (200, 1))], axis=1))
    assert found[0] == pytest.approx(0, abs=1e-14)
    assert k[0] == -np.inf
    assert np.isfinite(k[1])


def test_a_guide_that_is_the_posterior():
    """Its ratios differ by rounding alone."""
    same = np.full(1000, -500.0)
    assert pareto_k(same) == pareto_k(same + 1e-13 * RNG.standard_normal(1000)) == -np.inf
    assert pareto_k(RNG.standard_normal(1000)) < 0.5


def test_the_fewest_draws_have_a_k_hat():
    """Of fewer draws ArviZ has none, and leave-one-out densities would not be smoothed."""
    few = RNG.normal(-1, 0.5, (LEAST_DRAWS, 3))
    assert np.isfinite(leave_one_out(few)[1]).all()
    assert np.isfinite(pareto_k(few[:, 0]))
    assert np.isnan(leave_one_out(few[1:])[1]).all()
