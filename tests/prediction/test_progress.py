"""What calls from Python show in a notebook, and what stays of it."""

import sys
import time
from collections import Counter
from types import ModuleType

import pytest
from rich.console import Console

from pmbnn.core.stages import StageUpdate, stage
from pmbnn.prediction import notebook
from pmbnn.prediction.progress import shown, times_text
from pmbnn.sweep.outputs import Display


@pytest.fixture
def outputs(monkeypatch):
    """Texts of each output of a notebook, first to last; IPython's display functions stand in."""
    made = []

    def text(drawn):
        return drawn._repr_mimebundle_((), ())["text/plain"]

    class Handle:
        def __init__(self, drawn):
            self.texts = [text(drawn)]
            made.append(self.texts)

        def update(self, drawn):
            self.texts.append(text(drawn))

    module = ModuleType("IPython.display")
    module.display = lambda drawn, display_id: Handle(drawn)
    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr(notebook, "EVERY", 0.001)
    return made


def wait_for(outputs, words):
    """Until the drawing thread has come to show it."""
    give_up = time.monotonic() + 20
    while not any(words in text for texts in outputs for text in list(texts)):
        assert time.monotonic() < give_up, f"{words!r} is not shown"
        time.sleep(0.001)


def test_one_output_shows_every_stage_and_keeps_how_long_they_took(outputs, monkeypatch):
    monkeypatch.setattr("pmbnn.prediction.progress.times_text", lambda seconds: str([*seconds]))
    with shown(console=Console(force_jupyter=True)):
        with stage("compile"):
            wait_for(outputs, "compile")
        with stage("fit", 200, "step") as report_progress:
            report_progress(50, words="ELBO -12.5")
            wait_for(outputs, "50/200")
            wait_for(outputs, "ELBO -12.5")
    (texts,) = outputs
    assert texts[-1].strip() == "['compile', 'fit']"


def test_a_sweep_s_display_is_one_output_and_ends_with_all_cells(outputs):
    with Display(Console(force_jupyter=True), {}, quiet=False) as display:
        display.running_job("a job", [StageUpdate("choose"), StageUpdate("fit", 50, 100, "step")])
        wait_for(outputs, "a job: choose, fit step 50/100")
    (texts,) = outputs
    assert "0/0" in texts[-1] and "in 0 s" in texts[-1]
    assert "a job" not in texts[-1]


def test_times_in_words():
    assert (
        times_text(Counter(fit=83.2, build=0.04, compile=4.26)) == "fit 1 min 23 s, compile 4.3 s"
    )
