"""Accuracy on held-out rows of fits on their way."""

from types import SimpleNamespace

import numpy as np
import pytest
from scripted import ScriptedPredictor

from pmbnn.fitting import fit
from pmbnn.fitting.fit import DRAWS, EVERY, ROWS, SHARE, ValidationCallback
from pmbnn.inference.guides import Point
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.density import Density

GUIDE = Point(1)
LABEL = np.arange(3 * ROWS) % 4
HELD_OUT = (LABEL[:, None].astype(float), LABEL)


class Predictions(ScriptedPredictor):
    """Predicts the first input, wrong for one row in four where the replica's data say so."""

    def __init__(self, clock) -> None:
        self.clock, self.took, self.asked = clock, 0.0, []

    def moments(self, fit, data, x, draws):
        self.clock.now += self.took
        self.asked.append((fit, len(x), draws))
        predicted = x[:, 0].astype(int)
        predicted = np.where(predicted == data["wrong"], 4, predicted)
        mean = np.eye(5)[predicted]
        return ClassProbabilities(draws, mean, mean, mean[:, 0], mean, mean)


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(fit.time, "monotonic", lambda: made.now)
    return made


@pytest.fixture
def predictions(clock):
    return Predictions(clock)


def replica(name, wrong=-5):
    return Replica({"wrong": wrong}, derive_keys(name))


def fit_of(number=0, failed=False):
    constrained, keys = {"loc": np.zeros(1)}, derive_keys("fit")
    return SimpleNamespace(replica=number, failed=failed, constrained=constrained, keys=keys)


def not_now():
    pytest.fail("nothing is judged so soon")


def test_validation_is_rare(clock, predictions):
    one = replica("a", wrong=2)
    callback = ValidationCallback(GUIDE, lambda: predictions, [one], [HELD_OUT])
    assert callback(1, not_now) is None
    clock.now += EVERY - 0.1
    assert callback(2, not_now) is None
    clock.now += 0.2
    assert callback(3, lambda: fit_of()) == 0.75
    assert callback(4, not_now) == 0.75, "the latest is told until there is another"
    assert [asked[1:] for asked in predictions.asked] == [(ROWS, DRAWS)]


def test_slow_validation_is_rarer(clock, predictions):
    """A validation of a second is not repeated before it is a small share of the time."""
    one = replica("a")
    callback = ValidationCallback(GUIDE, lambda: predictions, [one], [HELD_OUT])
    predictions.took = 1.0
    clock.now += EVERY
    assert callback(1, lambda: fit_of()) == 1.0
    clock.now += 1.0 / SHARE - 0.1
    callback(2, not_now)
    clock.now += 0.2
    callback(3, lambda: fit_of())
    assert len(predictions.asked) == 2


def test_every_replica_has_its_own_data_and_rows(clock, predictions):
    """The accuracy of one fit is not told of the next."""
    right, wrong, unjudged = replica("a"), replica("b", wrong=0), replica("c")
    few = (HELD_OUT[0][:3], LABEL[:3])
    callback = ValidationCallback(
        GUIDE, lambda: predictions, [right, wrong, unjudged], [HELD_OUT, few, None]
    )
    found = []
    for number in range(3):
        assert callback(1, not_now) is None
        clock.now += EVERY
        found.append(callback(2, lambda number=number: fit_of(number)))
    assert found == [1.0, pytest.approx(2 / 3), None]


def test_a_fit_that_diverged_is_not_judged(clock, predictions):
    one = replica("a")
    callback = ValidationCallback(GUIDE, lambda: predictions, [one], [HELD_OUT])
    clock.now += EVERY
    assert callback(1, lambda: fit_of(failed=True)) is None
    assert predictions.asked == []


def test_numbers_have_no_accuracy(clock):
    """Neither right nor wrong: nothing is told of a regression."""
    one, found = replica("a"), Density(*(np.zeros(3) for _ in range(8)))
    predictor = SimpleNamespace(predict=lambda *_: found)
    callback = ValidationCallback(GUIDE, lambda: predictor, [one], [HELD_OUT])
    clock.now += EVERY
    assert callback(1, lambda: fit_of()) is None
