"""Looks at fits on their way."""

from types import SimpleNamespace

import numpy as np
import pytest

from pmbnn import watching
from pmbnn.inference.fit import Member, random_streams
from pmbnn.watching import DRAWS, EVERY, ROWS, SHARE, Watch

LABEL = np.arange(3 * ROWS) % 4
HELD_OUT = (LABEL[:, None].astype(float), LABEL)


class Predictions:
    """Predicts the first input, wrong for one row in four where the member's data say so."""

    def __init__(self, clock) -> None:
        self.clock, self.took, self.asked = clock, 0.0, []

    def moments(self, fit, data, x, draws):
        self.clock.now += self.took
        self.asked.append((fit, len(x), draws))
        predicted = x[:, 0].astype(int)
        return SimpleNamespace(predicted=np.where(predicted == data["wrong"], -1, predicted))


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(watching.time, "monotonic", lambda: made.now)
    return made


@pytest.fixture
def predictions(clock):
    return Predictions(clock)


def member(name, wrong=-5):
    return Member({"wrong": wrong}, random_streams(name))


def fit_of(member, failed=False):
    return SimpleNamespace(streams=member.streams, failed=failed)


def no_look():
    pytest.fail("nothing is looked at so soon")


def test_looks_are_rare(clock, predictions):
    one = member("a", wrong=2)
    watch = Watch(lambda: predictions, [one], [HELD_OUT])
    assert watch(1, no_look) is None
    clock.now += EVERY - 0.1
    assert watch(2, no_look) is None
    clock.now += 0.2
    assert watch(3, lambda: fit_of(one)) == 0.75
    assert watch(4, no_look) == 0.75, "the latest is told until there is another"
    assert [asked[1:] for asked in predictions.asked] == [(ROWS, DRAWS)]


def test_slow_looks_are_rarer(clock, predictions):
    """A look of a second is not repeated before it is a small share of the time."""
    one = member("a")
    watch = Watch(lambda: predictions, [one], [HELD_OUT])
    predictions.took = 1.0
    clock.now += EVERY
    assert watch(1, lambda: fit_of(one)) == 1.0
    clock.now += 1.0 / SHARE - 0.1
    watch(2, no_look)
    clock.now += 0.2
    watch(3, lambda: fit_of(one))
    assert len(predictions.asked) == 2


def test_every_member_has_its_own_data_and_rows(clock, predictions):
    """The accuracy of one fit is not told of the next."""
    right, wrong, unjudged = member("a"), member("b", wrong=0), member("c")
    few = (HELD_OUT[0][:3], LABEL[:3])
    watch = Watch(lambda: predictions, [right, wrong, unjudged], [HELD_OUT, few, None])
    found = []
    for one in (right, wrong, unjudged):
        assert watch(1, no_look) is None
        clock.now += EVERY
        found.append(watch(2, lambda one=one: fit_of(one)))
    assert found == [1.0, pytest.approx(2 / 3), None]


def test_a_fit_that_diverged_is_not_judged(clock, predictions):
    one = member("a")
    watch = Watch(lambda: predictions, [one], [HELD_OUT])
    clock.now += EVERY
    assert watch(1, lambda: fit_of(one, failed=True)) is None
    assert predictions.asked == []
