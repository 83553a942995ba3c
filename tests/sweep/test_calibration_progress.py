"""What a running calibration shows, on a terminal and in a log."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from pmbnn.core.stages import News
from pmbnn.sweep import calibration_progress
from pmbnn.sweep.calibration_progress import CalibrationDisplay


@pytest.fixture
def show(monkeypatch):
    """Text of a display that two combinations went by on."""
    now = iter(range(0, 10_000, 40))
    clock = SimpleNamespace(monotonic=lambda: next(now))
    monkeypatch.setattr(calibration_progress, "time", clock)

    def of(terminal=False, quiet=False):
        console = Console(file=io.StringIO(), force_terminal=terminal, width=120)
        with CalibrationDisplay(console, 2, quiet) as display:
            for done in (16, 32, 48):
                display.running("moons [normal]", [News("simulate", done, 500)])
            display.finished("moons [normal]", None)
            display.finished("circles", "ValueError: no luck")
        return console.file.getvalue()

    return of


def test_a_log_has_a_line_a_minute_and_one_at_the_end(show):
    assert show().splitlines() == [
        "simulate 48/500: moons [normal]",
        "[1/2] moons [normal]: done",
        "[2/2] circles: failed, ValueError: no luck",
    ]


def test_a_quiet_one_shows_failures(show):
    assert show(quiet=True) == "[2/2] circles: failed, ValueError: no luck\n"


def test_a_terminal_has_bars_that_go(show):
    text = show(terminal=True)
    assert "moons [normal]: done" not in text
    assert "failed, ValueError: no luck" in text
    assert "combinations" in text
