"""The figures stage: what is due, and drawing it by several processes."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest

from pmbnn.figures import (
    CellDrawer,
    Drawing,
    draw_cells,
    draw_files,
    missing_cell_figures,
    outdated_overviews,
    overviews_of,
)
from pmbnn.figures.stage import NICENESS
from pmbnn.figures.style import new_figure
from pmbnn.fitting.helpers import ENOUGH, Helpers
from pmbnn.results.store import Results

FILES = [f"{number}.png" for number in range(2 * ENOUGH)]


@pytest.fixture
def results(tmp_path):
    found = Results(tmp_path)
    found.prepare()
    return found


@pytest.fixture
def cells(made):
    """One cell that has a map, one that has curves, images without either, and a failed one."""
    return [
        (made.record(), made.plane_trace(resolution=(6, 5), points=20)),
        (made.record("laplace", predictive="density", rmse=0.2), made.curves_trace()),
        (made.record("cauchy", dataset=made.MNIST), made.small_image_trace()),
        (made.record("flat", failed=True), None),
    ]


@pytest.fixture
def stored(made, tmp_path, cells):
    """Results folder of those cells, and their records."""
    return made.store(tmp_path, cells), [record for record, _ in cells]


def wait_for(condition, seconds=300):  # helpers of lower priority may starve
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def blank():
    return new_figure(1, 1)


def signed(folder):
    """A figure, and a file named after the process that drew it, once every process has one."""
    (folder / str(os.getpid())).touch()
    wait_for(lambda: len(list(folder.iterdir())) == 2)
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


def drawings(results, draw, files=FILES):
    return [Drawing(results.figures / file, draw) for file in files]


def draw(some, results, processes=2):
    with Helpers(processes, len(some)) as helpers:
        return draw_files(some, results, helpers)


def is_whole(results, files):
    signatures = [(results.figures / file).read_bytes()[:4] for file in files]
    return signatures == [b"\x89PNG"] * len(files) and not list(results.folder.glob(".part-*"))


@pytest.mark.slow
def test_all_take_part(results, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    paths = draw(drawings(results, partial(signed, marks)), results)
    assert paths == [results.figures / file for file in FILES]
    assert is_whole(results, FILES)
    drawn_by = {int(mark.name) for mark in marks.iterdir()}
    assert os.getpid() in drawn_by
    assert len(drawn_by) == 2
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(("figures", "processes"), [(2 * ENOUGH - 1, 2), (2 * ENOUGH, 1), (0, 4)])
def test_few_figures_are_drawn_here(results, figures, processes, monkeypatch):
    monkeypatch.setattr(
        "pmbnn.fitting.helpers.ProcessPoolExecutor", lambda *_, **__: pytest.fail("started")
    )
    files = FILES[:figures]
    draw(drawings(results, blank, files), results, processes)
    assert is_whole(results, files)


def test_an_error_is_that_of_the_figure(results):
    """No process is left."""
    some = drawings(results, blank)
    some[-1] = some[-1]._replace(draw=fail)
    with pytest.raises(ValueError, match="nothing to draw"):
        draw(some, results)
    assert multiprocessing.active_children() == []


@pytest.mark.slow
@pytest.mark.parametrize("act", [end_helper, interrupt_helper])
def test_what_ends_or_interrupts_a_helper_loses_no_figure(results, act):
    some = drawings(results, partial(act, os.getpid()))
    assert draw(some, results) == [results.figures / file for file in FILES]
    assert is_whole(results, FILES)


@pytest.mark.slow
def test_helpers_do_not_run_the_script_that_draws(results, tmp_path):
    """One that does not ask for its name would draw within each of them."""
    script = tmp_path / "script.py"
    script.write_text(
        "from functools import partial\n"
        "from pathlib import Path\n"
        "from pmbnn.figures import Drawing, draw_files\n"
        "from pmbnn.fitting.helpers import Helpers\n"
        "from pmbnn.figures.style import new_figure\n"
        "from pmbnn.results.store import Results\n"
        "print('ran', flush=True)\n"
        f"results = Results(Path({str(tmp_path)!r}))\n"
        f"files = [results.figures / file for file in {FILES}]\n"
        "drawings = [Drawing(file, partial(new_figure, 1, 1)) for file in files]\n"
        "with Helpers(2, len(files)) as helpers:\n"
        "    draw_files(drawings, results, helpers)\n"
    )
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=120, check=True
    )
    assert (done.stdout, done.stderr) == ("ran\n", "")
    assert is_whole(results, FILES)


# Figures of single cells


def own_files(results):
    return sorted(results.cells.glob("*/*.png"))


def test_each_cell_gets_the_figure_of_what_it_predicts(stored):
    results, records = stored
    files = ((0, "map.png"), (1, "curves.png"))
    expected = [results.cells / records[i].name / file for i, file in files]
    assert [drawing.path for drawing in missing_cell_figures(results, records)] == expected
    assert draw_cells(results, records) == expected
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in expected)
    assert missing_cell_figures(results, records) == []
    expected[0].unlink()
    assert draw_cells(results, records) == expected[:1]


def test_a_cell_that_is_stored_again_lacks_its_figure(made, stored, cells):
    results, records = stored
    draw_cells(results, records)
    made.store(results.folder, cells[:1])
    assert [drawing.path.name for drawing in missing_cell_figures(results, records)] == ["map.png"]


def test_without_a_fit_or_a_known_type_there_is_nothing_to_draw(made, stored):
    results, records = stored
    other = made.changed(records[0], predictive="ranks")
    assert missing_cell_figures(results, [other, records[3]]) == []


@pytest.mark.slow
def test_cells_are_drawn_as_they_are_stored(stored):
    """By a process of lower priority, and as they are drawn afterwards."""
    results, records = stored
    with CellDrawer(results) as drawer:
        for record in records:
            drawer.add(record)
        (helper,) = multiprocessing.active_children()
        wait_for(lambda: len(own_files(results)) == 2)
        lower = os.getpriority(os.PRIO_PROCESS, os.getpid()) + NICENESS
        assert os.getpriority(os.PRIO_PROCESS, helper.pid) == min(19, lower)
    assert multiprocessing.active_children() == []
    together = {path: path.read_bytes() for path in own_files(results)}
    for path in together:
        path.unlink()
    draw_cells(results, records)
    assert {path: path.read_bytes() for path in own_files(results)} == together
    assert not list(results.folder.glob(".part-*"))


def test_a_drawer_without_anything_to_draw_starts_no_process(stored):
    results, records = stored
    with CellDrawer(results) as drawer:
        drawer.add(records[2])
        assert multiprocessing.active_children() == []


@pytest.mark.slow
def test_a_drawer_whose_process_is_ended_stops_nothing(stored):
    """What it has not drawn is missing still, and drawn afterwards."""
    results, records = stored
    with CellDrawer(results) as drawer:
        drawer.add(records[0])
        (helper,) = multiprocessing.active_children()
        os.kill(helper.pid, signal.SIGKILL)
        helper.join()
        for _ in range(10):
            drawer.add(records[1])
            time.sleep(0.05)
    draw_cells(results, records)
    assert len(own_files(results)) == 2


# Overviews that are out of date


def test_overviews_are_due_if_they_are_missing_or_of_other_cells(stored):
    results, (record, *others) = stored

    def due(records=(record,)):
        return [drawing.path for drawing in outdated_overviews(results, records)]

    first, second, *_ = drawn = draw_files(overviews_of(results, [record]), results)
    assert due() == []
    first.unlink()
    assert due() == [first]
    draw_files(outdated_overviews(results, [record]), results)
    assert due() == []
    second.write_bytes(first.read_bytes())
    assert due() == [second]
    for path in drawn:
        os.utime(path, (0, 0))
    assert due() == [second], "when it was drawn says nothing"
    assert set(due([record, *others])) >= set(drawn)
    assert set(due([record.model_copy(update={"seconds": 2.0})])) == set(drawn)


def test_of_no_cells_nothing_is_due(results):
    assert outdated_overviews(results, []) == []
