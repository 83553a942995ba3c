"""Ranks of truths: uniform for exact draws, at the level that is promised, and found out else.

Everything here is simulated from a posterior in closed form: linear regression with known noise.
"""

import numpy as np
import pytest
from scipy import stats

from pmbnn.calibration.ranks import (
    ERROR,
    FAILED,
    RankEcdf,
    rank_ecdfs,
    ranks_among,
    uniform_band,
    valid_ranks,
)

X = np.column_stack([np.ones(20), np.linspace(-1, 2, 20)])
AT = np.array([[1.0, 0.5], [1.0, 4.0]])
PRIOR_SD, NOISE = 1.5, 0.7

COVARIANCE = np.linalg.inv(X.T @ X / NOISE**2 + np.eye(2) / PRIOR_SD**2)
ROOT = np.linalg.cholesky(COVARIANCE)

SIMULATIONS, DRAWS = 300, 39


def quantities(weights, y):
    """Predictions at two inputs and the log-likelihood up to a constant, ``(draw, quantity)``."""
    errors = (y - weights @ X.T) / NOISE
    return np.column_stack([weights @ AT.T, -0.5 * (errors**2).sum(axis=1)])


def exact(rng, y, wide=1.0, shift=0.0):
    """Draws of the posterior; too wide or too narrow by a factor, or off by a share of its sd."""
    mean = COVARIANCE @ X.T @ y / NOISE**2
    standard = shift + wide * rng.normal(size=(DRAWS, 2))
    return mean + standard @ ROOT.T


def unmoved(rng, y):
    """Draws of the prior, whatever was observed."""
    return PRIOR_SD * rng.normal(size=(DRAWS, 2))


def simulated_ranks(seed, draw, simulations=SIMULATIONS, **settings):
    """Ranks ``(simulation, quantity)`` of truths from the prior among draws of a 'guide'."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(simulations):
        truth = PRIOR_SD * rng.normal(size=(1, 2))
        y = (truth @ X.T)[0] + NOISE * rng.normal(size=len(X))
        of_draws = quantities(draw(rng, y, **settings), y)
        found.append(ranks_among(quantities(truth, y)[0], of_draws, rng))
    return np.stack(found)


def verdicts(ranks):
    return [one.verdict for one in rank_ecdfs(ranks, DRAWS)]


def test_simulations_with_a_missing_rank_are_left_out():
    ranks = np.array([[3, FAILED], [1, 2], [FAILED, FAILED]])
    np.testing.assert_array_equal(valid_ranks(ranks), [[1, 2]])


# Level


@pytest.mark.parametrize(("simulations", "draws", "n"), [(100, 99, 5), (64, 19, 1)])
def test_uniform_ranks_leave_their_bands_as_often_as_promised(simulations, draws, n):
    repeats = 1500
    rng = np.random.default_rng(simulations)
    found = [
        any(one.deviation > 1 for one in rank_ecdfs(ranks, draws))
        for ranks in rng.integers(0, draws + 1, size=(repeats, simulations, n))
    ]
    # The band is simulated as well: its own error is known to a fifth or so.
    error = np.sqrt(ERROR * (1 - ERROR) / repeats) + 0.2 * ERROR / 2
    assert np.mean(found) == pytest.approx(ERROR, abs=3 * error)
    assert np.mean(found) > 0


def test_exact_draws_pass_at_their_level():
    repeats = 100
    found = [
        "miscalibrated" in verdicts(simulated_ranks(seed, exact, simulations=100))
        for seed in range(repeats)
    ]
    # Quantities hang together, and Bonferroni's correction is careful.
    assert sum(found) <= stats.binom.ppf(0.999, repeats, ERROR)


# Power


@pytest.mark.parametrize(
    ("settings", "direction", "quantity"),
    [
        ({"wide": 0.6}, "under-dispersed", 0),
        ({"shift": 0.6}, "biased high", 0),
        # Draws that are too wide have a lower likelihood than the truth.
        ({"wide": 1.7}, "biased low", 2),
    ],
)
def test_wrong_draws_are_found_out(settings, direction, quantity):
    for seed in range(10):
        found = rank_ecdfs(simulated_ranks(seed, exact, **settings), DRAWS)[quantity]
        assert (found.verdict, found.direction) == ("miscalibrated", direction)


def test_draws_that_never_moved_are_found_out_by_the_log_likelihood_alone():
    missed = 0
    for seed in range(10):
        *functions, log_likelihood = rank_ecdfs(simulated_ranks(seed, unmoved), DRAWS)
        assert (log_likelihood.verdict, log_likelihood.direction) == (
            "miscalibrated",
            "biased low",
        )
        missed += all(one.verdict == "calibrated" for one in functions)
    # Without a quantity that hangs on the data they pass, as exact draws do.
    assert missed >= 8


# Ranks


def test_ranks_are_uniform_under_ties():
    """Quantities of few values: a tie is broken at random, all ranks between being alike."""
    rng, draws = np.random.default_rng(0), 9
    ranks = np.stack(
        [
            ranks_among(v[0], v[1:], rng)
            for v in rng.integers(0, 3, size=(4000, draws + 1, 1)).astype(float)
        ]
    )
    counts = np.bincount(ranks[:, 0], minlength=draws + 1)
    assert stats.chisquare(counts).pvalue > 1e-3
    # And of what is the same in all draws.
    same = np.stack([ranks_among(np.ones(1), np.ones((draws, 1)), rng) for _ in range(4000)])
    assert stats.chisquare(np.bincount(same[:, 0], minlength=draws + 1)).pvalue > 1e-3


def test_ranks_without_ties_are_counts():
    rng = np.random.default_rng(0)
    draws = np.array([[1.0, -np.inf], [2.0, 5.0], [3.0, np.inf]])
    assert ranks_among(np.array([2.5, np.inf]), draws[:2], rng).tolist() == [2, 2]
    assert ranks_among(np.array([0.0, 4.0]), draws, rng).tolist() == [0, 1]


def test_failed_simulations_are_left_out():
    rng = np.random.default_rng(0)
    ranks = rng.integers(0, 20, size=(100, 2))
    lost = np.concatenate([ranks, np.full((5, 2), FAILED)])
    for one, other in zip(rank_ecdfs(lost, 19), rank_ecdfs(ranks, 19), strict=True):
        assert (one.difference == other.difference).all()
        assert (one.high == other.high).all()
    with pytest.raises(ValueError, match="`ranks` must have one simulation at least"):
        rank_ecdfs(lost[100:], 19)


# Bands and directions


def test_a_band_has_its_level_and_widens_with_it():
    points, low, high = uniform_band(200, 19, 0.95)
    assert points == pytest.approx(np.arange(1, 20) / 20)
    assert (low < 0).all()
    assert (high > 0).all()
    _, wider_low, wider_high = uniform_band(200, 19, 0.99)
    assert (wider_low <= low).all()
    assert (wider_high >= high).all()
    # At the middle, near the normal approximation of a simultaneous bound (Kolmogorov 1.36).
    assert high[9] == pytest.approx(1.36 / np.sqrt(200), rel=0.1)


def test_the_edge_of_a_band_belongs_to_it():
    points, low, high = uniform_band(50, 9, 0.95)
    assert RankEcdf(points, high, low, high).deviation == 1
    assert RankEcdf(points, low, low, high).deviation == 1


def curve_of(ranks, draws=99):
    return rank_ecdfs(np.asarray(ranks)[:, None], draws)[0]


@pytest.mark.parametrize(
    ("ranks", "direction"),
    [
        (np.full(100, 99), "biased low"),
        (np.full(100, 0), "biased high"),
        (np.arange(50, 100), "biased low"),
        (np.repeat([0, 99], 50), "under-dispersed"),
        (np.full(100, 49), "over-dispersed"),
        (np.repeat([20, 70], 50), "other"),
    ],
)
def test_directions(ranks, direction):
    assert curve_of(ranks).direction == direction
