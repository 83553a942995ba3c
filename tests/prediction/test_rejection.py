"""What draws say of one image, and the threshold of uncertainty."""

import numpy as np
import pytest
import xarray as xr

from pmbnn.prediction.rejection import classify, rejection_threshold

AGREE = [[0.9, 0.1], [0.7, 0.3]]
DISAGREE = [[1.0, 0.0], [0.0, 1.0]]


def draws(*observations):
    """Probabilities ``(draw, observation, class)``."""
    return np.array(observations).swapaxes(0, 1)


def test_draws_that_agree():
    [found] = classify(draws(AGREE), np.array([0.5, 0.5]))
    assert found.predicted == 0
    np.testing.assert_allclose(found.probability, [0.8, 0.2])
    np.testing.assert_allclose(found.sd, [0.1, 0.1])
    assert found.uncertainty == pytest.approx(0.1)
    assert found.entropy == pytest.approx(-(0.8 * np.log2(0.8) + 0.2 * np.log2(0.2)))
    assert found.expected_error_rate == 0


def test_sure_draws_that_disagree():
    """All uncertainty is about the weights: a label would bring one bit."""
    found = classify(draws(AGREE, DISAGREE), np.array([0.5, 0.5]))[1]
    assert found.entropy == pytest.approx(1)
    assert found.mutual_information == pytest.approx(1)
    assert found.uncertainty == pytest.approx(0.5)
    assert found.expected_error_rate == pytest.approx(0.5)


def test_draws_of_unequal_weight():
    [found] = classify(draws(DISAGREE), np.array([0.2, 0.8]))
    assert found.predicted == 1
    np.testing.assert_allclose(found.probability, [0.2, 0.8])
    assert found.uncertainty == pytest.approx(0.4)
    assert found.expected_error_rate == pytest.approx(0.2)


def test_equal_draws_are_certain():
    """No rounding turns no information into a negative one."""
    p = np.full((7, 1, 10), 0.1)
    [found] = classify(p, np.full(7, 1 / 7))
    assert found.entropy == pytest.approx(np.log2(10))
    assert 0 <= found.mutual_information < 1e-12


def trace(**groups):
    rng = np.random.default_rng(0)
    tree = {}
    for group, scale in groups.items():
        p = rng.dirichlet(np.ones(3), size=200)
        sd = np.where(p == p.max(axis=1, keepdims=True), scale * np.arange(200)[:, None], 9.0)
        axes = ("test_observation", "output")
        tree[f"/{group}"] = xr.Dataset({"probability": (axes, p), "sd": (axes, sd)})
    return xr.DataTree.from_dict(tree)


def test_the_threshold_is_a_percentile_of_the_predicted_classes():
    limit = rejection_threshold(trace(test_predictions=0.001), 90)
    assert limit.sd == pytest.approx(0.9 * 0.199)
    assert (limit.percentile, limit.group, limit.rows) == (90, "test_predictions", 200)


def test_validation_rows_come_first():
    limit = rejection_threshold(trace(test_predictions=0.001, validation_predictions=0.002), 50)
    assert limit.sd == pytest.approx(0.5 * 0.398)
    assert limit.group == "validation_predictions"


def test_what_is_rejected():
    """More uncertain than the threshold, and not as uncertain."""
    [found] = classify(draws(AGREE), np.array([0.5, 0.5]))
    for scale, rejected in ((0.0005, True), (0.002, False)):
        assert rejection_threshold(trace(test_predictions=scale), 99).rejects(found) == rejected


def test_a_trace_without_predictions():
    with pytest.raises(ValueError, match="must have one of the groups test_predictions, valid"):
        rejection_threshold(trace(), 99)
