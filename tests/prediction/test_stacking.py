"""Weights of fits by what each says of rows left out."""

import numpy as np
import pytest

from pmbnn.prediction.leave_one_out import highest_log_score, stacking_weights


def test_weights_of_two_densities_by_hand():
    """Of n rows that only the first knows and m that only the second does: n to m."""
    logs = np.log(np.concatenate([np.tile([0.9, 1e-12], (30, 1)), np.tile([1e-12, 0.9], (10, 1))]))
    np.testing.assert_allclose(highest_log_score(logs), [0.75, 0.25], atol=1e-5)


def test_no_mixture_on_a_grid_scores_higher():
    logs = np.random.default_rng(1).normal(size=(60, 3))
    weights = highest_log_score(logs)

    def score(w):
        return np.log(np.exp(logs) @ w).mean()

    assert weights.sum() == pytest.approx(1)
    steps = np.linspace(0, 1, 21)
    others = [np.array([a, b, 1 - a - b]) for a in steps for b in steps if a + b <= 1]
    assert max(map(score, others)) <= score(weights) + 1e-9


def test_a_fit_that_is_worse_at_every_row_has_no_share():
    logs = np.random.default_rng(2).normal(size=50)
    found = highest_log_score(np.stack([logs, logs - 0.1], axis=1))
    np.testing.assert_array_equal(found, [1.0, 0.0])


def test_far_apart_densities_neither_overflow_nor_vanish():
    found = highest_log_score(np.array([[-1e4, -2e4], [-3e4, -1e4]]))
    np.testing.assert_allclose(found, [0.5, 0.5], atol=1e-6)


def test_weights_reach_those_of_a_mixture_that_rows_came_from():
    """Rows of a mixture of two normals; draws of each fit scatter little about its own."""
    rng = np.random.default_rng(3)
    first = rng.random(1000) < 0.7
    y = np.where(first, rng.normal(-1.0, 0.5, 1000), rng.normal(1.0, 0.5, 1000))
    fits = [-0.5 * ((y - m - 0.01 * rng.standard_normal((100, 1))) / 0.5) ** 2 for m in (-1.0, 1.0)]
    # The standard error of a share of 0.7 in 1,000 is 0.015; overlap adds a little.
    np.testing.assert_allclose(stacking_weights(fits), [0.7, 0.3], atol=0.05)


def test_scores_are_of_rows_left_out():
    """A fit whose draws follow single rows gains by them in sample, and not out of it."""
    rng = np.random.default_rng(4)
    flexible = rng.normal(-1.0, 1.0, (400, 60))
    steady = np.full((400, 60), -0.75)
    in_sample = np.log(np.exp(flexible).mean(axis=0)).mean()
    assert in_sample > -0.75
    assert stacking_weights([flexible, steady])[1] > 0.9
