"""Figures drawn by several processes."""

import multiprocessing
import os
import signal
from functools import partial

import pytest

from pmbnn.figures.drawing import ENOUGH, Drawing, draw_files
from pmbnn.figures.style import new_figure
from pmbnn.storage import Results

FILES = [f"{number}.png" for number in range(2 * ENOUGH)]


@pytest.fixture
def results(tmp_path):
    found = Results(tmp_path)
    found.prepare()
    return found


def blank():
    return new_figure(1, 1)


def signed(folder):
    """A figure, and a file named after the process that drew it."""
    (folder / str(os.getpid())).touch()
    return blank()


def fail():
    raise ValueError("nothing to draw")


def end_helper(parent):
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    return blank()


def interrupt_helper(parent):
    if os.getpid() != parent:
        os.kill(os.getpid(), signal.SIGINT)
    return blank()


def is_whole(results, files):
    signatures = [(results.figures / file).read_bytes()[:4] for file in files]
    return signatures == [b"\x89PNG"] * len(files) and not list(results.folder.glob(".part-*"))


def test_all_take_part(results, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    # So many that the helper has started long before they are drawn.
    files = [f"{number}.png" for number in range(200)]
    paths = draw_files(results, [Drawing(file, partial(signed, marks)) for file in files], 2)
    assert paths == [results.figures / file for file in files]
    assert is_whole(results, files)
    drawn_by = {int(mark.name) for mark in marks.iterdir()}
    assert os.getpid() in drawn_by
    assert len(drawn_by) == 2
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("figures", "processes"), [(2 * ENOUGH - 1, 2), (2 * ENOUGH, 1), (0, 4)])
def test_few_figures_are_drawn_here(results, figures, processes, monkeypatch):
    import pmbnn.figures.drawing as drawing

    monkeypatch.setattr(drawing, "ProcessPoolExecutor", lambda *_, **__: pytest.fail("started"))
    files = FILES[:figures]
    draw_files(results, [Drawing(file, blank) for file in files], processes)
    assert is_whole(results, files)


def test_an_error_is_that_of_the_figure(results):
    """Wherever it was drawn; no process is left."""
    for number in (0, len(FILES) - 1):
        drawings = [Drawing(file, fail if i == number else blank) for i, file in enumerate(FILES)]
        with pytest.raises(ValueError, match="nothing to draw"):
            draw_files(results, drawings, 2)
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("act", [end_helper, interrupt_helper])
def test_what_ends_or_interrupts_a_helper_loses_no_figure(results, act):
    drawings = [Drawing(file, partial(act, os.getpid())) for file in FILES]
    assert draw_files(results, drawings, 2) == [results.figures / file for file in FILES]
    assert is_whole(results, FILES)
