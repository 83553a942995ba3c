"""Conformal intervals and sets: their coverage by simulation, and what they refuse."""

import math
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

import pmbnn as pb
from pmbnn.prediction.conformal import conformal_quantile, probability_above, rows_needed

LEVEL, ROWS, TIMES = 0.9, 20, 100
"""Of the simulations: the 19th of 20 scores is the quantile, which covers 19 / 21."""

EXACT = 19 / 21
ERROR = math.sqrt(EXACT * (1 - EXACT) * (1 / (ROWS + 2) + 1 / 200) / TIMES)
"""Standard error of the share covered: that of each calibration has a beta distribution (Vovk 2012,
Conditional Validity of Inductive Conformal Predictors), and is counted on 200 rows."""


def numbers(rows, seed):
    """Targets with a noise of 1, of which the model of `regressor` knows nothing."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    return x, x[:, 0] + rng.normal(size=rows)


def labelled(rows, seed, flipped):
    """Labels of three classes, a share of them any."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    labels = np.digitize(x[:, 0], [-0.5, 0.5])
    return x, np.where(rng.random(rows) < flipped, rng.integers(0, 3, rows), labels)


@pytest.fixture(scope="module")
def regressor():
    narrow = {"kind": "normal", "sd": 0.1}
    return pb.BNNRegressor((3,), steps=300, draws=20, likelihood=narrow).fit(*numbers(100, 0))


@pytest.fixture(scope="module")
def classifier():
    return pb.BNNClassifier((3,), steps=300, draws=20).fit(*labelled(100, 0, flipped=0))


# Coverage


def test_intervals_of_a_wrong_model_cover(regressor):
    own, conformal = [], []
    for seed in range(TIMES):
        regressor.calibrate(*numbers(ROWS, (seed, 1)))
        x, y = numbers(200, (seed, 2))
        low, high = regressor.predict_interval(x, LEVEL, conformal=True).T
        conformal.append(np.mean((low <= y) & (y <= high)))
        if seed < 5:
            low, high = regressor.predict_interval(x, LEVEL).T
            own.append(np.mean((low <= y) & (y <= high)))
    assert np.mean(own) < 0.4
    assert abs(np.mean(conformal) - EXACT) < 4 * ERROR


def test_sets_of_a_wrong_model_cover(classifier):
    own, conformal, sizes = [], [], []
    for seed in range(TIMES):
        classifier.calibrate(*labelled(ROWS, (seed, 1), flipped=0.4))
        x, y = labelled(200, (seed, 2), flipped=0.4)
        chosen = classifier.predict_set(x, LEVEL, conformal=True)
        conformal.append(np.mean(chosen[np.arange(200), y]))
        sizes.append(chosen.sum(axis=1))
        own.append(np.mean(classifier.predict_set(x, LEVEL)[np.arange(200), y]))
    assert np.mean(own) < LEVEL - 0.05
    assert abs(np.mean(conformal) - EXACT) < 4 * ERROR
    assert np.min(sizes) >= 1 and np.mean(sizes) < 2.8


def test_the_score_of_a_new_row_is_any_of_their_ranks():
    """Of n + 1 exchangeable scores the last is below the quantile as often as its rank says."""
    scores = np.arange(20.0)
    for level, rank in ((0.5, 11), (0.9, 19), (0.95, 20), (0.05, 2), (2 / 21, 2)):
        assert conformal_quantile(np.random.default_rng(0).permutation(scores), level) == rank - 1
    assert conformal_quantile(np.arange(99.0), 0.55) == 54  # 100 * 0.55 is 55.00000000000001


def test_rows_that_a_level_needs():
    levels = (0.5, 0.9, 0.95, 0.99, 0.999)
    assert [rows_needed(level) for level in levels] == [1, 9, 19, 99, 999]
    for level in levels:
        rows = rows_needed(level)
        assert conformal_quantile(np.arange(rows), level) == rows - 1
        said = (
            rf"`level` {level:g} needs {rows} calibration rows or more: `calibrate` got {rows - 1}"
        )
        with pytest.raises(ValueError, match=said):
            conformal_quantile(np.arange(rows - 1), level)


def test_probability_of_what_is_more_probable():
    probability = np.array([[0.5, 0.3, 0.2], [0.25, 0.25, 0.5], [0, 1, 0]])
    expected = [[0, 0.5, 0.8], [0.5, 0.5, 0], [1, 0, 1]]
    np.testing.assert_allclose(probability_above(probability), expected)


def test_sets_of_the_posterior_are_the_smallest(classifier):
    x, _ = labelled(50, 3, flipped=0)
    p, chosen = classifier.predict_proba(x), classifier.predict_set(x, 0.8)
    assert chosen.shape == (50, 3) and chosen.dtype == bool
    for probability, classes in zip(p, chosen, strict=True):
        sums = np.cumsum(np.sort(probability)[::-1])
        assert classes.sum() == np.searchsorted(sums, 0.8) + 1
        assert probability[classes].sum() >= 0.8


def test_intervals_are_nested_and_wider_where_the_model_is_less_certain(regressor):
    x, _ = numbers(50, 4)
    regressor.calibrate(*numbers(40, 5))
    narrow, wide = (regressor.predict_interval(x, p, conformal=True) for p in (0.5, 0.9))
    assert (wide[:, 0] < narrow[:, 0]).all() and (narrow[:, 1] < wide[:, 1]).all()
    mean, sd = regressor.predict(x, return_std=True)
    np.testing.assert_allclose(wide.mean(axis=1), mean)
    np.testing.assert_allclose(np.ptp(wide, axis=1) / sd, np.ptp(wide[0]) / sd[0])


# Rows that a fit sets aside by itself


def test_a_fit_sets_rows_aside():
    """They are those of scikit-learn's split by the seed, and the fit has not seen them."""
    x, y = numbers(100, 13)
    kept, aside, y_kept, y_aside = train_test_split(x, y, test_size=0.3, random_state=5)
    expected = pb.BNNRegressor((3,), steps=50, draws=5, random_state=5).fit(kept, y_kept)
    expected.calibrate(aside, y_aside)
    found = pb.BNNRegressor((3,), steps=50, draws=5, random_state=5).fit(x, y, calibrate_on=0.3)
    assert len(found.calibration_scores_) == 30
    np.testing.assert_array_equal(found.calibration_scores_, expected.calibration_scores_)
    assert not hasattr(found.fit(x, y), "calibration_scores_")


def test_a_classifier_sets_the_same_share_of_each_class_aside():
    x, _ = numbers(80, 14)
    y = np.repeat(["usual", "rare"], [60, 20])
    found = pb.BNNClassifier((3,), steps=50, draws=5).fit(x, y, calibrate_on=0.25)
    assert len(found.calibration_scores_) == 20
    assert np.bincount(found.posterior_.origin.rows.y).tolist() == [15, 45]
    with pytest.raises(ValueError, match="test_size"):
        found.fit(x, y, calibrate_on=1.5)


# Files, and further fits


def test_a_calibration_is_kept_with_the_estimator(regressor, classifier, tmp_path):
    x, y = labelled(30, 6, flipped=0.4)
    classifier.calibrate(x, y)
    regressor.calibrate(*numbers(30, 6))
    for estimator, use in ((classifier, "predict_set"), (regressor, "predict_interval")):
        estimator.save(tmp_path / "fitted.nc")
        loaded = type(estimator).load(tmp_path / "fitted.nc")
        for again in (loaded, pickle.loads(pickle.dumps(estimator))):
            found = getattr(again, use)(x, 0.9, conformal=True)
            np.testing.assert_array_equal(found, getattr(estimator, use)(x, 0.9, conformal=True))


def test_another_fit_forgets_the_calibration():
    x, y = labelled(60, 7, flipped=0)
    estimator = pb.BNNClassifier((3,), steps=50, draws=5).fit(x, y)
    estimator.calibrate(*labelled(30, 8, flipped=0))
    assert estimator.fit(x, y) is estimator and not hasattr(estimator, "calibration_scores_")


# What cannot be


def test_calls_in_the_wrong_order(regressor, classifier):
    x, y = numbers(30, 9)
    with pytest.raises(NotFittedError, match="This BNNRegressor instance is not fitted yet"):
        pb.BNNRegressor().calibrate(x, y)
    with pytest.raises(NotFittedError, match="This BNNClassifier instance is not fitted yet"):
        pb.BNNClassifier().predict_set(x, conformal=True)
    for estimator, use in ((classifier, "predict_set"), (regressor, "predict_interval")):
        vars(estimator).pop("calibration_scores_", None)
        said = r"is not calibrated: call `calibrate\(X, y\)` with rows set aside first"
        with pytest.raises(NotFittedError, match=said):
            getattr(estimator, use)(x, conformal=True)


def test_rows_and_levels_that_cannot_be_used(regressor, classifier):
    x, y = numbers(30, 10)
    regressor.calibrate(x[:8], y[:8])
    with pytest.raises(ValueError, match="needs 9 calibration rows or more: `calibrate` got 8"):
        regressor.predict_interval(x, 0.9, conformal=True)
    with pytest.raises(ValueError, match="`noise` must be True for `conformal`"):
        regressor.predict_interval(x, 0.5, noise=False, conformal=True)
    for estimator, targets in ((regressor, y), (classifier, y > 0)):
        with pytest.raises(ValueError, match="X has 1 features, but"):
            estimator.calibrate(x[:, :1], targets)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            estimator.calibrate(x, targets[:-1])
    with pytest.raises(ValueError, match="y should be a 1d array"):
        regressor.calibrate(x, np.column_stack([y, y]))
    with pytest.raises(ValueError, match=r"`y` must have labels of the fit, got 7\."):
        classifier.calibrate(x, np.full(30, 7))
    with pytest.raises(ValueError, match="`level` must be between 0 and 1, got 90"):
        classifier.predict_set(x, 90)


def test_training_rows_are_noticed(regressor, classifier):
    for estimator, fitted in ((regressor, numbers(100, 0)), (classifier, labelled(100, 0, 0))):
        new = numbers(30, 11) if estimator is regressor else labelled(30, 11, 0)
        mixed = [np.concatenate([one[:10], other]) for one, other in zip(fitted, new, strict=True)]
        with pytest.warns(UserWarning, match="10 of 40 calibration rows are training rows too"):
            estimator.calibrate(*mixed)
        # The same inputs with other targets were not in the fit.
        estimator.calibrate(fitted[0][:10], (fitted[1][:10] + 1) % 3)


def test_columns_are_those_of_the_fit():
    x, y = numbers(60, 12)
    frame = pd.DataFrame(x, columns=["age", "height"])
    estimator = pb.BNNRegressor((3,), steps=50, draws=5).fit(frame[:30], y[:30])
    estimator.calibrate(frame[30:], y[30:])
    with pytest.raises(ValueError, match="feature names should match"):
        estimator.calibrate(frame[30:].rename(columns={"age": "weight"}), y[30:])
