"""Predictions of a cell from those of its restarts, which are scripted here."""

from types import SimpleNamespace

import numpy as np
from scripted import ScriptedPredictor

from pmbnn.fitting.fit import predict_mixture, single_draws_of_mixture
from pmbnn.prediction.class_probabilities import ClassProbabilities, mix
from pmbnn.prediction.posterior import source_of_draws

KEY = np.array([3, 7, 1, 2], np.uint32)
X = np.random.default_rng(0).normal(size=(7, 2))


def moments(restart, x, draws):
    p = 1 / (1 + np.exp(-(restart - 0.7) * x[:, 0]))
    mean = np.stack([p, 1 - p], axis=1)
    return ClassProbabilities(
        draws, mean, 0.1 * (1 + restart) * mean, 0.2 * p, mean.round(), np.log(mean)
    )


class Scripted(ScriptedPredictor):
    """A predictor whose sources are numbered, and which keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def moments(self, fit, data, x, draws):
        self.asked.append((fit.number, data, draws))
        return moments(fit.number, x, draws)


def numbered_sources(count, distinct=1000):
    return {
        i: SimpleNamespace(number=i, draw_key=KEY, n_distinct=lambda n: min(n, distinct))
        for i in range(count)
    }


def cell_with(*weights, distinct=1000):
    sources = numbered_sources(len(weights), distinct)
    mixed = dict(enumerate(weights))
    best = len(weights) - 1
    return SimpleNamespace(weights=mixed, sources=sources, data={"a": 1}, best=best)


def test_weights_of_restarts():
    predictor, weights = Scripted(), (0.25, 0.0, 0.75)
    found = predict_mixture(cell_with(*weights), predictor, X, 9)
    assert predictor.asked == [(0, {"a": 1}, 9), (2, {"a": 1}, 9)]
    parts = [(0.25, moments(0, X, 9)), (0.75, moments(2, X, 9))]
    mean = sum(w * part.mean for w, part in parts)
    square = sum(w * (part.sd**2 + part.mean**2) for w, part in parts)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.sd, np.sqrt(square - mean**2), rtol=1e-9)
    for name in ("expected_entropy", "votes", "mean_log"):
        expected = sum(w * getattr(part, name) for w, part in parts)
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-12)
    assert found.draws == 18


def test_one_restart_is_taken_as_it_is():
    found = predict_mixture(cell_with(0.0, 1.0), Scripted(), X, 9)
    expected = moments(1, X, 9)
    for name in ("mean", "sd", "expected_entropy", "votes", "mean_log"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.draws == 9


def test_parts_without_weight_are_left_out():
    known = [moments(i, X, 5) for i in range(3)]
    assert mix(known, [0.0, 1.0, 0.0]) is known[1]
    found = mix(known, [0.5, 0.5, 0.0]).mean
    np.testing.assert_allclose(found, (known[0].mean + known[1].mean) / 2, rtol=1e-12)


def test_several_mixtures_are_of_the_same_draws():
    """Each source that any of them needs is predicted with once."""
    predictor, mixtures = Scripted(), [(0.0, 1.0, 0.0), (0.0, 0.5, 0.5)]
    one, both = predictor.predict_mixtures([*numbered_sources(3).values()], mixtures, {}, X, 5)
    assert [asked[0] for asked in predictor.asked] == [1, 2]
    np.testing.assert_array_equal(one.mean, moments(1, X, 5).mean)
    expected = (moments(1, X, 5).mean + moments(2, X, 5).mean) / 2
    np.testing.assert_allclose(both.mean, expected, rtol=1e-12)
    pooled = predictor.predict([*numbered_sources(3).values()], [1 / 3] * 3, {}, X, 5)
    expected = np.mean([moments(i, X, 5).mean for i in range(3)], axis=0)
    np.testing.assert_allclose(pooled.mean, expected, rtol=1e-12)
    assert pooled.draws == 15


class NumberedDraws:
    """Draw ``k`` of fit ``i`` is ``100 i + k`` at every input; points have one draw."""

    def single_draws(self, fit, data, x, draws):
        values = 100 * fit.number + np.arange(fit.n_distinct(draws))
        return {"probability": np.broadcast_to(values[:, None], (len(values), len(x)))}


def test_single_draws_are_of_the_mixture():
    """Each is of a restart as often as its weight says, and the draw of its own number there."""
    cell = cell_with(0.25, 0.0, 0.75)
    found = single_draws_of_mixture(cell, NumberedDraws(), X, 99)["probability"]
    assert found.shape == (99, len(X))
    restart, draw = found[:, 0] // 100, found[:, 0] % 100
    chosen = source_of_draws(cell.sources, cell.weights, cell.best, 99)
    np.testing.assert_array_equal(restart, chosen)
    np.testing.assert_array_equal(draw, np.arange(99))
    assert set(restart) == {0, 2} and 15 < (restart == 0).sum() < 35
    few = source_of_draws(cell.sources, cell.weights, cell.best, 9)
    np.testing.assert_array_equal(few, restart[:9])


def test_single_draws_of_one_restart_are_its_own():
    found = single_draws_of_mixture(cell_with(0.0, 1.0), NumberedDraws(), X, 9)["probability"]
    np.testing.assert_array_equal(found[:, 0], 100 + np.arange(9))
    found = single_draws_of_mixture(cell_with(0.0, 1.0, distinct=1), NumberedDraws(), X, 9)[
        "probability"
    ]
    assert found.shape == (1, len(X))


def test_single_draws_of_several_points_are_of_each():
    found = single_draws_of_mixture(cell_with(0.5, 0.5, distinct=1), NumberedDraws(), X, 20)[
        "probability"
    ]
    assert set(found[:, 0]) == {0, 100} and len(found) == 20
