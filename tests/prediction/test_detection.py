"""Areas under curves by counting pairs and prefixes, and the other scores by their formulas."""

import numpy as np
import pytest

from pmbnn.prediction.class_probabilities import (
    area_under_risk_coverage,
    detection_metrics,
    geometric_entropy,
    risk_coverage,
    threshold,
)


def counted_auroc(known, unknown):
    """Share of pairs in which the unknown one scores higher, ties counting half."""
    return np.mean([(u > k) + 0.5 * (u == k) for u in unknown for k in known])


def counted_aupr(known, unknown):
    """Gain in recall at each distinct threshold times the precision there."""
    area, recall = 0.0, 0.0
    for limit in sorted({*known, *unknown}, reverse=True):
        caught, false = np.sum(unknown >= limit), np.sum(known >= limit)
        area += (caught / len(unknown) - recall) * caught / (caught + false)
        recall = caught / len(unknown)
    return area


@pytest.mark.parametrize("levels", [3, 7, 10**6])
@pytest.mark.parametrize("sizes", [(40, 25), (5, 60)])
def test_areas_equal_those_counted(levels, sizes):
    """With many ties, and with none."""
    rng = np.random.default_rng(levels)
    known, unknown = (rng.integers(0, levels, size) for size in sizes)
    unknown = np.minimum(unknown + 1, levels)
    found = detection_metrics(known.astype("f4"), unknown.astype("f4"))
    assert found["auroc"] == pytest.approx(counted_auroc(known, unknown), rel=1e-12)
    assert found["aupr"] == pytest.approx(counted_aupr(known, unknown), rel=1e-12)


@pytest.mark.parametrize(
    ("unknown", "auroc", "aupr"),
    [([2.0, 3.0], 1, 1), ([-1.0], 0, 1 / 4), ([1.0, 1.0], 0.5, 2 / 5)],
)
def test_areas_at_the_ends(unknown, auroc, aupr):
    found = detection_metrics(np.ones(3), np.array(unknown))
    assert found == pytest.approx({"auroc": auroc, "aupr": aupr})


def test_geometric_entropy():
    """Of two draws the geometric mean, which does not sum to one."""
    p = np.array([[[0.5, 0.5], [0.9, 0.1]], [[0.25, 0.75], [0.9, 0.1]]])
    geometric = np.sqrt(p[0] * p[1])
    expected = -np.sum(geometric * np.log2(geometric), axis=1)
    np.testing.assert_allclose(geometric_entropy(np.log(p).mean(axis=0)), expected, rtol=1e-12)
    assert geometric_entropy(np.log([[0.5, 0.5]]))[0] == pytest.approx(1)


def test_geometric_entropy_of_a_class_that_is_ruled_out():
    tiny = np.log(np.finfo(np.float32).tiny)
    found = geometric_entropy(np.array([[0.0, tiny]], np.float32))
    assert found[0] == pytest.approx(0, abs=1e-30)


def test_threshold():
    scores = np.random.default_rng(0).permutation(np.arange(101.0))
    assert threshold(scores) == 99
    assert threshold(scores, 50) == 50
    assert np.mean(scores > threshold(scores)) == pytest.approx(0.01, abs=1e-3)


# Risk and coverage


def test_risk_coverage_by_hand():
    score = np.array([0.4, 0.1, 0.3, 0.2])
    coverage, risk = risk_coverage(score, np.array([False, True, True, False]))
    np.testing.assert_allclose(coverage, [1 / 4, 1 / 2, 3 / 4, 1])
    np.testing.assert_allclose(risk, [0, 1 / 2, 1 / 3, 1 / 2])


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1], [1, 0, 4, 3, 2]])
def test_ties_are_accepted_together(order):
    """Two at 0, then two at 1, then one at 2, in whatever order they come."""
    score = np.array([0, 0, 1, 1, 2], np.float32)[order]
    correct = np.array([True, False, True, True, False])[order]
    coverage, risk = risk_coverage(score, correct)
    np.testing.assert_allclose(coverage, [0.2, 0.4, 0.6, 0.8, 1])
    np.testing.assert_allclose(risk, [1 / 2, 1 / 2, 1 / 4, 1 / 4, 2 / 5])
    area = area_under_risk_coverage(score, correct)
    assert area == pytest.approx((1 / 2 + 1 / 2 + 1 / 4 + 1 / 4 + 2 / 5) / 5)


def test_a_score_that_says_nothing_has_the_error_rate_for_area():
    correct = np.arange(50) % 5 > 0
    assert area_under_risk_coverage(np.zeros(50), correct) == pytest.approx(0.2)
    assert area_under_risk_coverage(-1.0 * correct, correct) < 0.05
    assert area_under_risk_coverage(1.0 * correct, correct) > 0.3
