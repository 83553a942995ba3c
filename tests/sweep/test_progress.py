"""What a sweep prints: plain lines in a log, tables with the right numbers."""

import io
import re
from types import SimpleNamespace

import pytest
from makers import changed
from rich.console import Console

from pmbnn.cli.cell_tables import accuracy_tables
from pmbnn.core.stages import StageUpdate, stage
from pmbnn.prediction.progress import duration
from pmbnn.results.names import cell_line
from pmbnn.results.record import CellRecord
from pmbnn.sweep import outputs
from pmbnn.sweep.outputs import Display, following

TUNED = {"kind": "fixed", "scale": {"log": [0.1, 10.0, 5]}}
HALF_NORMAL = {"kind": "half_normal", "sigma": 1.0}
NO_SCALE = {"kind": "fixed", "scale": None}


def record(seed=0, prior="normal", hyperprior=TUNED, accuracy=None, noise=0.4, **changes):
    """Record of a cell; one without an accuracy has diverged."""
    made = CellRecord(
        sweep="toy",
        name=f"cell-{seed}",
        status="diverged" if accuracy is None else "converged",
        reason="the ELBO was not finite by step 7",
        settings={
            "dataset": {"kind": "moons", "seed": seed, "noise": noise},
            "prior": {"kind": prior},
            "hyperprior": hyperprior,
            "inference": {"learning_rate": 0.02},
        },
        results={} if accuracy is None else {"accuracy": accuracy},
        seconds=2.25,
    )
    return changed(made, **changes)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(outputs.time, "monotonic", lambda: made.now)
    return made


def log(records, work=None, quiet=False, terminal=False, clock=None):
    """Text that a display writes for stored cells, a second apart."""
    console = Console(file=io.StringIO(), width=160, force_terminal=terminal)
    work = {r.name: 1.0 for r in records} if work is None else work
    with Display(console, work, quiet) as display:
        display.running_job(
            "job", [StageUpdate("choose"), StageUpdate("fit", 50, 100, "step", "ELBO -12.5")]
        )
        for one in records:
            if clock is not None:
                clock.now += 1
            display.stored(one)
        display.finished_job("job")
    return console.file.getvalue()


def shown(tables):
    """Rendered tables, one text."""
    console = Console(file=io.StringIO(), width=160)
    for table in tables:
        console.print(table)
    return console.file.getvalue()


# The log


def test_a_log_has_one_plain_line_a_cell(clock):
    records = [record(0, accuracy=0.8512), record(1, prior="flat", hyperprior=NO_SCALE)]
    assert log(records, clock=clock).splitlines() == [
        "[1/2] moons, noise 0.4, seed 0, normal × fixed (tuned): converged, accuracy 0.8512 "
        "(2.2 s; about 1 s left)",
        "[2/2] moons, noise 0.4, seed 1, flat × fixed: diverged, "
        "the ELBO was not finite by step 7 (2.2 s; about 0 s left)",
    ]


def test_a_log_holds_no_control_characters_and_never_wraps():
    long = record(0, accuracy=None, reason="[bold]x[/bold] " * 30)
    (line,) = log([long]).splitlines()
    assert "[bold]x[/bold] [bold]x" in line
    assert line.isprintable()


def test_quiet_shows_failures_only():
    assert log([record(0, accuracy=0.8)], quiet=True) == ""
    (line,) = log([record(0, accuracy=0.8), record(1)], quiet=True).splitlines()
    assert line.startswith("[2/2]")
    assert "diverged" in line


def test_a_terminal_keeps_lines_of_failures_only(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    text = log([record(0, accuracy=0.8), record(1)], terminal=True)
    assert text.count("[2/2] moons") == 1
    assert "[1/2]" not in text


def test_jobs_come_and_go():
    display = Display(Console(file=io.StringIO()), {"a": 1.0}, False)
    display.running_job("a", [StageUpdate("fit", 1000, 20000, "step", "ELBO nan")])
    display.running_job("b", [StageUpdate("fit", 1, 2, "step")])
    display.finished_job("b")
    display.finished_job("never heard of")
    display.console.print(display._render())
    *_, bar, running = display.console.file.getvalue().splitlines()
    assert "0/1" in bar
    assert running == "a: fit step 1,000/20,000, ELBO nan"


def news(display, done, *outer):
    display.running_job("job", [*outer, StageUpdate("fit", done, 1000, "step", "ELBO -2.0")])
    return display.running["job"].line


def test_a_running_fit_tells_its_own_time_left(clock):
    """By its pace since it was first heard of, a fit that was resumed as well."""
    display = Display(Console(file=io.StringIO()), {"a": 1.0}, False)
    assert news(display, 500) == "job: fit step 500/1,000, ELBO -2.0"
    clock.now += 30
    assert "600/1,000, 2 min 00 s left, ELBO" in news(display, 600)
    clock.now += 30
    assert "step 100/1,000, ELBO" in news(display, 100), "the next fit of the job"
    clock.now += 9
    assert "190/1,000, 1 min 21 s left," in news(display, 190)
    display.running_job("job", [StageUpdate("write")])
    assert display.running["job"].line == "job: write"
    assert "step 300/1,000, ELBO" in news(display, 300), "another fit"


def test_stages_around_the_innermost_are_named():
    display = Display(Console(file=io.StringIO()), {"a": 1.0}, False)
    line = news(display, 10, StageUpdate("simulate", 16, 100), StageUpdate("choose"))
    assert line == "job: simulate 16/100, choose, fit step 10/1,000, ELBO -2.0"
    display.running_job("normal × fixed, moons dense-5 and 2 more", [StageUpdate("write")])
    (*_, long) = display.running.values()
    assert long.line == "normal × fixed: write (moons dense-5 and 2 more)"
    display.running_job("job", [])
    assert display.running["job"].line == line, "between two stages"


@pytest.mark.parametrize("quiet", [False, True])
def test_a_log_hears_of_a_long_fit_now_and_then(clock, quiet):
    display = Display(Console(file=io.StringIO(), width=160), {"a": 1.0}, quiet)
    for done in range(1, 301):
        clock.now += 1
        news(display, done)
    lines = display.console.file.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == (
        [] if quiet else [f"job: fit step {n}/1" for n in (61, 121, 181, 241)]
    )


# Time left


def test_time_left_is_weighed_by_work(clock):
    records = [record(s, accuracy=0.8) for s in range(3)]
    text = log(records, {"cell-0": 1.0, "cell-1": 8.0, "cell-2": 1.0}, clock=clock)
    assert re.findall("about (.*) left", text) == ["9 s", "0 s", "0 s"]


@pytest.mark.parametrize("work", [{}, {"cell-0": 0.0}, {"cell-0": 1e-300, "cell-1": 0.1}])
def test_time_left_is_never_negative(clock, work):
    """Not even when more is stored than was planned, or rounding leaves less than nothing."""
    records = [record(s % 2, accuracy=0.8) for s in range(6)]
    text = log(records, work, clock=clock)
    assert len(text.splitlines()) == 6
    assert "-" not in "".join(re.findall(r"\(2.2 s;(.*)\)", text))


def test_the_estimate_stands_in_before_anything_is_known(clock):
    display = Display(Console(file=io.StringIO()), {"cell-0": 40.0}, False)
    display.stored(record(name="unknown", accuracy=0.5))
    assert "about 40 s left" in display.console.file.getvalue()


def test_the_pace_outweighs_the_estimate_as_work_is_done(clock):
    """Ten cells said to take a second each take ten."""
    display = Display(Console(file=io.StringIO()), {f"cell-{s}": 1.0 for s in range(10)}, False)
    left = []
    for seed in range(10):
        clock.now += 10
        display.stored(record(seed, accuracy=0.8))
        left.append(display._time_left())
    assert left[0] == "about 50 s left", "half way between 9 s and 90 s, roughly"
    assert left[7] == "about 18 s left"
    assert left[9] == "about 0 s left"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.7, "1 min 00 s"),
        (60, "1 min 00 s"),
        (125, "2 min 05 s"),
        (7200, "120 min 00 s"),
    ],
)
def test_duration(seconds, words):
    assert duration(seconds) == words


# Words


@pytest.mark.parametrize(
    ("status", "lost"),
    [
        ("converged", False),
        ("not_converged", False),
        ("improper", False),
        ("diverged", True),
        ("error", True),
    ],
)
def test_failed(status, lost):
    assert record(status=status).failed is lost


def test_a_cell_in_words():
    assert cell_line(record(3, "cauchy", HALF_NORMAL).cell) == (
        "moons, noise 0.4, seed 3, cauchy × half_normal"
    )


# Tables


def test_a_table_has_mean_and_error_by_prior_and_hyperprior():
    text = shown(
        accuracy_tables(
            [
                record(0, accuracy=0.80),
                record(1, accuracy=0.90),
                record(0, hyperprior=HALF_NORMAL, accuracy=0.75),
                record(0, "flat", NO_SCALE, accuracy=0.70),
            ]
        )
    )
    lines = [[cell.strip() for cell in re.split("[┃│]", line)] for line in text.splitlines()]
    assert "Test accuracy, toy: moons, noise 0.4" in text
    assert ["", "prior", "fixed (tuned)", "half_normal", "no scale", ""] in lines
    assert ["", "normal", "0.85 ± 0.05", "0.7500", "", ""] in lines
    assert ["", "flat", "", "", "0.7000", ""] in lines


def test_columns_that_would_be_named_the_same_say_what_differs():
    centred = HALF_NORMAL | {"centred": True}
    other = HALF_NORMAL | {"centred": False}
    records = [
        record(0, hyperprior=other, accuracy=0.75),
        record(0, hyperprior=centred, accuracy=0.85),
    ]
    [table] = accuracy_tables(records)
    assert [str(column.header) for column in table.columns] == [
        "prior",
        "half_normal, centred False",
        "half_normal, centred True",
    ]
    assert [list(map(str, column.cells)) for column in table.columns] == [
        ["normal"],
        ["0.7500"],
        ["0.8500"],
    ]


def test_a_table_counts_what_failed():
    lost, half_lost = record(0, "laplace"), record(1)
    text = shown(accuracy_tables([record(0, accuracy=0.8), half_lost, lost]))
    assert "0.8000 (1 failed)" in text
    assert re.search(r"laplace │ +failed │", text)


def test_each_data_set_has_its_table():
    records = [record(0, accuracy=0.8), record(0, accuracy=0.7, noise=0.1)]
    assert [str(t.title) for t in accuracy_tables(records)] == [
        "Test accuracy, toy: moons, noise 0.4",
        "Test accuracy, toy: moons, noise 0.1",
    ]


def test_other_settings_are_not_mixed_into_one_mean():
    other = record(0, accuracy=0.6)
    other = changed(other, settings=other.settings | {"inference": {"learning_rate": 0.5}})
    text = shown(accuracy_tables([record(0, accuracy=0.8), other]))
    assert "0.8000" in text
    assert "0.6000" in text
    assert "0.7000" not in text


def test_no_records_no_tables():
    assert accuracy_tables([]) == []


@pytest.mark.parametrize("quiet", [False, True])
def test_a_log_has_what_follows_the_fits(monkeypatch, quiet):
    """A stage of many parts has a line as it begins, and others where it lasts."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(outputs, "time", SimpleNamespace(monotonic=lambda: clock.now))
    console = Console(file=io.StringIO(), width=100)
    with following(console, quiet):
        with stage("tables"):
            pass
        with stage("overviews", 3, "figure") as report_progress:
            report_progress(1)
            clock.now = outputs.LOG_EVERY
            report_progress(2)
        with stage("sensitivity", 4, "cell"):
            pass
    lines = (
        [] if quiet else ["overviews figure 0/3", "overviews figure 2/3", "sensitivity cell 0/4"]
    )
    assert console.file.getvalue().splitlines() == lines


def test_a_terminal_shows_what_follows_the_fits():
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with following(console, quiet=False), stage("overviews", 3, "figure"):
        pass
    assert "overviews figure 0/3" in console.file.getvalue()
