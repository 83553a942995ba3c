"""Metrics against values computed by hand, and against scikit-learn."""

from itertools import product

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from pmbnn.prediction.metrics import (
    SMALLEST,
    accuracy,
    brier_score,
    classification_metrics,
    excess_error,
    excess_nll,
    expected_calibration_error,
    nll,
    recalls,
)

P = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.5, 0.25, 0.25], [0.0, 0.0, 1.0]])
LABEL = np.array([0, 2, 1, 2])


def random_probabilities(n, classes, random_seed, concentration=0.3):
    rng = np.random.default_rng(random_seed)
    return rng.dirichlet(np.full(classes, concentration), size=n)


def test_by_hand():
    assert accuracy(P, LABEL) == 0.5
    assert nll(P, LABEL) == pytest.approx(-np.log(0.7 * 0.3 * 0.25) / 4, rel=1e-12)
    squares = [0.09 + 0.04 + 0.01, 0.01 + 0.36 + 0.49, 0.25 + 0.5625 + 0.0625, 0]
    assert brier_score(P, LABEL) == pytest.approx(sum(squares) / 4, rel=1e-12)
    # Confidences 0.7, 0.6, 0.5 and 1 lie in bins of their own, and two of them are right.
    gaps = [0.3, 0.6, 0.5, 0]
    assert expected_calibration_error(P, LABEL) == pytest.approx(sum(gaps) / 4, rel=1e-12)


def test_calibration_error_within_a_bin():
    """Within one bin over- and underconfidence cancel; between bins they do not."""
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.6, 0.4]])
    label = np.array([0, 1, 1, 0])
    halves = expected_calibration_error(p, label, bins=2)
    assert halves == pytest.approx(abs(2 - 2.9) / 4)
    thirds = expected_calibration_error(p, label, bins=3)
    assert thirds == pytest.approx((abs(1 - 1.7) + abs(1 - 1.2)) / 4)


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_calibration_error_of_certainty(bins):
    """A confidence of exactly 1 has its place in the last bin."""
    certain = np.eye(2)[[0, 0, 1, 1]]
    assert expected_calibration_error(certain, np.array([0, 0, 1, 1]), bins) == 0
    assert expected_calibration_error(certain, np.array([1, 0, 1, 0]), bins) == 0.5
    mixed = np.array([[1.0, 0.0], [0.99, 0.01]])
    found = expected_calibration_error(mixed, np.array([1, 0]), bins)
    assert found == pytest.approx(abs(1 - 1.99) / 2)


def test_calibration_error_of_the_calibrated():
    """Labels drawn from the probabilities leave only chance: below two errors a bin."""
    rng = np.random.default_rng(0)
    p = rng.uniform(size=100_000)
    label = (rng.uniform(size=p.size) < p).astype(int)
    found = expected_calibration_error(np.stack([1 - p, p], axis=1), label)
    # Half of fifteen bins are in use; the error of each gap is at most √(n/4)/n.
    assert 0 < found < 2 * 8 * np.sqrt(p.size / 8 / 4) / p.size


def test_certain_mistake_is_finite():
    p = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert nll(p, np.array([1, 0])) == pytest.approx(-np.log(SMALLEST) / 2)
    assert nll(p, np.array([0, 0])) == 0
    assert brier_score(p, np.array([1, 1])) == 2


def test_ties_go_to_the_first_class():
    assert accuracy(np.full((2, 2), 0.5), np.array([0, 1])) == 0.5


@pytest.mark.parametrize("classes", [2, 10])
def test_equals_scikit_learn(classes):
    p = random_probabilities(500, classes, random_seed=classes, concentration=1.0)
    label = np.random.default_rng(0).integers(classes, size=500)
    names = list(range(classes))
    assert nll(p, label) == pytest.approx(log_loss(label, p, labels=names), rel=1e-12)
    # scikit-learn halves the score of two classes unless told.
    expected = brier_score_loss(
        label, p[:, 1] if classes == 2 else p, labels=names, scale_by_half=False
    )
    assert brier_score(p, label) == pytest.approx(expected, rel=1e-12)


def test_all_by_name():
    """In double precision, whatever comes in."""
    found = classification_metrics(P.astype(np.float32), LABEL)
    assert found == {
        "accuracy": 0.5,
        "nll": pytest.approx(nll(P, LABEL), rel=1e-6),
        "brier_score": pytest.approx(brier_score(P, LABEL), rel=1e-6),
        "expected_calibration_error": pytest.approx(expected_calibration_error(P, LABEL), rel=1e-6),
    }
    assert all(type(value) is float for value in found.values())
    rare = np.array([[1.0, 1e-8]], np.float32)
    assert classification_metrics(rare, np.array([1]))["nll"] == pytest.approx(-np.log(1e-8))


# --- excess over the best possible --------------------------------------------------------


def expectation(metric, p, true_p):
    """Exact mean of a metric over all label vectors, weighed by their probability."""
    n, classes = true_p.shape
    labels = np.array(list(product(range(classes), repeat=n)))
    weight = np.prod(true_p[np.arange(n), labels], axis=1)
    return sum(w * metric(p, label) for w, label in zip(weight, labels, strict=True))


@pytest.mark.parametrize("classes", [2, 3])
def test_excess_is_an_expected_difference(classes):
    """Excess over the best predictor, the true distribution itself."""
    for seed in range(5):
        p = random_probabilities(4, classes, seed, concentration=1.0)
        true_p = random_probabilities(4, classes, 100 + seed, concentration=1.0)
        worse = expectation(accuracy, true_p, true_p) - expectation(accuracy, p, true_p)
        assert excess_error(p, true_p) == pytest.approx(worse, abs=1e-12)
        worse = expectation(nll, p, true_p) - expectation(nll, true_p, true_p)
        assert excess_nll(p, true_p) == pytest.approx(worse, rel=1e-10)


def test_recalls_by_hand():
    label = np.array([0, 0, 0, 1, 2, 2])
    p = np.eye(4)[[0, 0, 1, 1, 2, 3]]
    found = recalls(p, label, ("a", "b", "c", "none"))
    assert found == {
        "recall_a": pytest.approx(2 / 3),
        "recall_b": 1,
        "recall_c": 0.5,
        "balanced_accuracy": pytest.approx((2 / 3 + 1 + 0.5) / 3),
    }


def test_excess_by_hand():
    p = np.array([[0.4, 0.6], [0.8, 0.2]])
    true_p = np.array([[0.9, 0.1], [0.7, 0.3]])
    assert excess_error(p, true_p) == pytest.approx(0.8 / 2)
    divergences = 0.9 * np.log(0.9 / 0.4) + 0.1 * np.log(0.1 / 0.6)
    divergences += 0.7 * np.log(0.7 / 0.8) + 0.3 * np.log(0.3 / 0.2)
    assert excess_nll(p, true_p) == pytest.approx(divergences / 2)


def test_excess_of_the_best_is_zero():
    true_p = random_probabilities(1000, 3, random_seed=0)
    assert excess_error(true_p, true_p) == 0
    assert excess_nll(true_p, true_p) == 0


@pytest.mark.parametrize("concentration", [1e-3, 0.05, 1.0, 50.0])
def test_excess_is_never_negative(concentration):
    """Point by point; also where probabilities vanish, and close to the best."""
    true_p = random_probabilities(2000, 3, random_seed=1, concentration=concentration)
    other = random_probabilities(2000, 3, random_seed=2, concentration=concentration)
    near = true_p * (1 + 1e-9 * other)
    for p in (true_p, other, near / near.sum(axis=1, keepdims=True), true_p.astype(np.float32)):
        for row, true_row in zip(p, true_p, strict=True):
            assert excess_error(row[None], true_row[None]) >= 0
            assert 0 <= excess_nll(row[None], true_row[None]) < np.inf


def test_excess_of_a_certain_mistake_is_finite():
    assert excess_nll(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])) == pytest.approx(
        -np.log(SMALLEST)
    )
    assert excess_nll(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]])) == 0
