"""What is told of stages, and how their seconds are counted."""

from types import SimpleNamespace

import pytest

from pmbnn.core import stages
from pmbnn.core.stages import StageUpdate, measured, on_progress, recount, stage, staged


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(stages.time, "perf_counter", lambda: made.now)
    return made


def test_time_is_the_innermost_stages(clock):
    with measured() as seconds:
        clock.now += 1000
        with stage("fit"):
            clock.now += 1
            with stage("predict"):
                clock.now += 10
            clock.now += 2
        clock.now += 1000
        with stage("predict"):
            clock.now += 20
    clock.now += 1000
    assert seconds == {"fit": 3, "predict": 30}


def test_measures_within_one_another_count_alike(clock):
    with measured() as outer, stage("fit"):
        clock.now += 1
        with measured() as inner:
            clock.now += 2
        clock.now += 4
    assert (outer, inner) == ({"fit": 7}, {"fit": 2})


def test_two_measures_with_the_same_content_are_two(clock):
    with measured() as outer:
        with measured() as inner:
            pass
        with stage("fit"):
            clock.now += 1
    assert (outer, inner) == ({"fit": 1}, {})


def test_an_error_ends_a_stage(clock):
    with measured() as seconds:
        with pytest.raises(ZeroDivisionError), stage("fit"):
            clock.now += 1
            raise ZeroDivisionError
        clock.now += 10
    assert seconds == {"fit": 1}


def test_seconds_are_counted_to_another_stage(clock):
    recount("compile", 1)
    with measured() as seconds:
        recount("compile", 1)
        with stage("predict"):
            clock.now += 5
            recount("compile", 2)
    assert seconds == {"predict": 3, "compile": 2}


def test_who_listens_hears_of_all_that_is_open():
    heard = []
    fitting = stage("fit", 100, "step")
    with (
        stage("not heard of"),
        on_progress(heard.append),
        stage("choose"),
        fitting as report_progress,
    ):
        report_progress(10, words="ELBO -1.0")
        report_progress(20, 50)
    of_fit = [("fit", 0, 100), ("fit", 10, 100), ("fit", 20, 50)]
    told = [[(news.stage, news.done, news.total) for news in one[1:]] for one in heard]
    choose = ("choose", 0, 0)
    assert told == [[choose], *([choose, one] for one in of_fit), [choose], []]
    assert heard[2][-1] == StageUpdate("fit", 10, 100, "step", "ELBO -1.0")


def test_a_stage_goes_on_while_another_is_open_within():
    heard = []
    with (
        on_progress(heard.append),
        stage("simulate", 3, "simulation") as report_progress,
        stage("fit"),
    ):
        report_progress(2)
    assert heard[2] == (StageUpdate("simulate", 2, 3, "simulation"), StageUpdate("fit"))


def test_the_last_to_listen_is_the_one_who_hears():
    first, second = [], []
    with on_progress(first.append):
        with on_progress(second.append), stage("fit"):
            pass
        with stage("write"):
            pass
    assert [len(one) for one in second] == [1, 0]
    assert first == [(StageUpdate("write"),), ()]


def test_a_function_may_be_a_stage(clock):
    @staged("load")
    def load(rows, *, seed):
        clock.now += 1
        return rows + seed

    with measured() as seconds:
        assert load(1, seed=2) == 3
    assert seconds == {"load": 1}
    assert load.__name__ == "load"
