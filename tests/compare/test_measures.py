"""Uncertainty against the truth."""

import numpy as np
import pytest
from scipy import stats

from pmbnn.compare.claims import (
    UncertaintyAndError,
    at_points,
    boundary_measures,
    rank_correlation,
)


def test_rank_correlation_with_ties():
    rng = np.random.default_rng(0)
    first, second = rng.integers(5, size=(2, 40))
    expected = stats.spearmanr(first, second).statistic
    assert rank_correlation(first, second) == pytest.approx(expected)
    assert rank_correlation(first, np.exp(first)) == pytest.approx(1)
    assert np.isnan(rank_correlation(first, np.ones(40)))


def test_values_of_the_nearest_pixel():
    x1, x2 = np.array([0.0, 1.0, 2.0]), np.array([10.0, 20.0])
    grid = np.arange(6.0).reshape(3, 2)
    x = np.array([[0.4, 14.0], [0.6, 16.0], [2.4, 10.0], [2.6, 10.0], [1.0, 4.0]])
    np.testing.assert_array_equal(at_points(grid, x1, x2, x), [0, 3, 4, np.nan, np.nan])


def test_measures():
    error = np.linspace(0.01, 0.5, 100)
    follows, opposes = UncertaintyAndError(error**2, error), UncertaintyAndError(1 - error, error)
    found = boundary_measures(follows, opposes)
    assert found["rank correlation, map"] == pytest.approx(1)
    assert found["rank correlation, data"] == pytest.approx(-1)
    assert found["true error rate"] == pytest.approx(error.mean())
    assert found["true error rate of the 5 % most unsure"] == pytest.approx(error[:5].mean())
