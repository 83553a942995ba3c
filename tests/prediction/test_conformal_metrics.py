"""Coverage and size of conformal intervals and sets of a sweep: by simulation and by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.conformal import conformal_metrics
from pmbnn.prediction.density import LEVEL, Density

ROWS, TEST, TIMES = 20, 200, 200
"""Of the simulations: the 20th of 20 scores is the quantile of 0.95, which covers 20 / 21."""

EXACT = 20 / 21
ERROR = math.sqrt(EXACT * (1 - EXACT) * (1 / (ROWS + 2) + 1 / TEST) / TIMES)
"""Standard error of the mean share; see ``tests/estimators/test_conformal.py``."""


def density(mean, sd):
    """A normal density, as far as intervals are concerned."""
    unknown, interval = np.full(mean.shape, np.nan), np.stack([mean - 1.96 * sd, mean + 1.96 * sd])
    return Density(mean, unknown, sd, interval, interval, unknown, unknown, unknown)


def classes(mean):
    zero = np.zeros(mean.shape)
    return ClassProbabilities(1, mean, zero, zero[:, 0], zero, zero)


def numbers(rng, rows):
    """Targets with a noise of 1, of which the prediction says 0.1 to 0.3."""
    mean = rng.normal(size=rows)
    return density(mean, rng.uniform(0.1, 0.3, size=rows)), mean + rng.normal(size=rows)


def labels(rng, rows):
    """Labels, a third of them any, of which the prediction is sure."""
    p = rng.dirichlet(np.full(4, 0.1), size=rows)
    label = np.array([rng.choice(4, p=row) for row in p])
    return classes(p), np.where(rng.random(rows) < 1 / 3, rng.integers(0, 4, rows), label)


@pytest.mark.parametrize(
    ("simulate", "own"), [(numbers, None), (labels, "set_coverage_95")], ids=["numbers", "labels"]
)
def test_a_wrong_prediction_covers(simulate, own):
    """As often as the rank says, however wrong the prediction; and no more often than that."""
    rng, results = np.random.default_rng(0), []
    for _ in range(TIMES):
        aside, test = simulate(rng, ROWS), simulate(rng, TEST)
        results.append(conformal_metrics(*test, *aside))
    covered = np.mean([one["conformal_coverage_95"] for one in results])
    assert abs(covered - EXACT) < 4 * ERROR
    if own:
        assert np.mean([one[own] for one in results]) < 0.9
    else:
        half = np.array([[one["width_95"], one["conformal_width_95"]] for one in results]).T / 2
        # The prediction's intervals are for noise of 0.2; those that cover are for noise of 1.
        assert half[0].mean() == pytest.approx(1.96 * 0.2, rel=0.01)
        assert half[1].mean() > stats.norm.ppf((1 + LEVEL) / 2)


def test_intervals_by_hand():
    aside, sd = density(np.zeros(19), np.full(19, 2.0)), np.array([1.0, 3.0, 5.0])
    target = np.arange(19.0)  # the largest of 19 scores, 18 / 2, is the multiple
    test = density(np.array([1.0, 0.0, -1.0]), sd)
    found = conformal_metrics(test, np.array([10.0, 27.1, -46.0]), aside, target)
    assert found == pytest.approx(
        {"conformal_coverage_95": 2 / 3, "conformal_width_95": 2 * 9 * 3, "width_95": 3.92 * 3}
    )


def test_each_of_several_targets_has_its_own_multiple():
    aside = density(np.zeros((19, 2)), np.ones((19, 2)))
    target = np.arange(19.0)[:, None] * [1.0, 10.0]
    test = density(np.zeros((2, 2)), np.ones((2, 2)))
    found = conformal_metrics(test, np.array([[18.0, 19.0], [19.0, 181.0]]), aside, target)
    assert found == {"conformal_coverage_95": 0.5}


def test_sets_by_hand():
    p = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.02, 0.96, 0.02]], "f4")
    # The most probable class is right but once, where the second one is: 0.6 is more probable.
    aside, label = classes(np.tile(p[0], (19, 1))), np.array([0] * 18 + [1])
    found = conformal_metrics(classes(p), np.array([1, 2, 0]), aside, label)
    # Of the rows: classes 0 and 1; class 1 alone; class 1 alone. Of the posterior: all; all; 1.
    assert found == pytest.approx(
        {
            "conformal_coverage_95": 1 / 3,
            "conformal_size_95": 4 / 3,
            "set_coverage_95": 2 / 3,
            "set_size_95": 7 / 3,
        }
    )
