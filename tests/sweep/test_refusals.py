"""A system that refuses: every call over the results folder in turn, and sweeps one after another.

``benchmarks/faults.py`` does the same by force, with real calls, kills and a long soak. Cells are
made up: nothing is fitted here.
"""

import csv
import errno
import io
import multiprocessing
import os
from itertools import product
from pathlib import Path

import pytest
from makers import plane_trace
from rich.console import Console
from tiers import pairwise, slow_but

from pmbnn.core.files import TEMPORARY
from pmbnn.experiment.load import load_experiment
from pmbnn.fitting.progress import RunOptions
from pmbnn.fitting.workers import Stored
from pmbnn.results.integrity import verify
from pmbnn.results.present import StorageError
from pmbnn.results.store import trace_writer
from pmbnn.sweep import stages

TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 40, test: 20, seed: [0, 1]}
    network: {kind: dense, hidden: [[2]]}
    prior: normal
    inference: {steps: 10, validation: 0}
    predict: {draws: 5, trace_draws: 4, map: {resolution: 5}, fresh: {size: 50, draws: 2}}
"""

CALLS = ("fsync", "replace", "mkdir", "open")
"""What brings something into the folder: names of functions of `os`."""

NUMBERS = (errno.EIO, errno.ENOSPC, errno.EACCES)
QUICK = [("fsync", 4, errno.EIO), ("replace", 3, errno.ENOSPC), ("mkdir", 1, errno.EACCES)]
REFUSED = list(dict.fromkeys([*QUICK, *pairwise(list(product(CALLS, (1, 3, 4), NUMBERS)))]))
"""Calls, which of them, and what the system says: any two meet."""


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Run the sweep into a folder; figures are left out."""
    file = tmp_path_factory.mktemp("file") / "toy.yaml"
    file.write_text(TEXT)
    experiment = load_experiment(file)
    trace = trace_writer(plane_trace(resolution=(5, 4), points=10))

    def run_cells(run, wanted, workers, cluster=None):
        for cell in wanted:
            known = {"predictive": "class_probabilities", "results": {"accuracy": 0.5}}
            record = run.tasks[cell].record(status="converged", **known)
            yield None, Stored(0, run.results.save_cell(record, {"trace.nc": trace}))

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(stages, "run_cells", run_cells)
        for name in ("missing_cell_figures", "outdated_overviews", "overviews_of"):
            monkeypatch.setattr(stages, name, lambda *_: [])
        monkeypatch.setattr(stages.CellDrawer, "add", lambda *_: None)
        console = Console(file=io.StringIO())
        yield lambda out: stages.run_experiment(
            experiment, experiment.cells, out, RunOptions(console, 1, quiet=True)
        )


@pytest.fixture(scope="module")
def whole(sweep, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "out"
    sweep(out)
    return out


def rows(out):
    found = []
    for name in ("metrics.csv", "summary.csv"):
        with (out / name).open(newline="") as lines:
            found += [
                {k: v for k, v in r.items() if "seconds" not in k} for r in csv.DictReader(lines)
            ]
    return found


def refuse(monkeypatch, call, number, at, out):
    """Refuse the call of that number over the folder, and all later ones if the disk is full."""
    real, seen = getattr(os, call), []

    def refused(path, *rest, **named):
        of = path if isinstance(path, int) else os.fspath(path)
        inside = isinstance(of, int) or str(of).startswith(str(out))
        seen.extend([path] * inside)
        if inside and (len(seen) == at + 1 or (number == errno.ENOSPC and len(seen) > at)):
            raise OSError(number, os.strerror(number))
        return real(path, *rest, **named)

    monkeypatch.setattr(os, call, refused)
    return seen


@pytest.mark.parametrize(
    ("call", "at", "number"),
    slow_but(QUICK, REFUSED),
)
def test_a_refused_call_is_one_line_and_the_same_command_goes_on(
    sweep, whole, tmp_path, monkeypatch, call, at, number
):
    out = tmp_path / "out"
    with monkeypatch.context() as refusing:
        seen = refuse(refusing, call, number, at, out)
        try:
            sweep(out)
        except StorageError as error:
            assert len(str(error).splitlines()) == 1
            assert os.strerror(number) in str(error)
        else:
            # So many calls there are not, or it was one that something else can do without.
            assert len(seen) <= at or call in ("open", "mkdir")
    sweep(out)
    assert rows(out) == rows(whole)
    assert verify(out) == []
    assert [path for path in out.rglob(f"{TEMPORARY}*")] == []


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system shows no open files")
def test_sweeps_of_one_process_leave_nothing_open(sweep, whole):
    counts = []
    for _ in range(3):
        sweep(whole)
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[1] == counts[2]
    assert multiprocessing.active_children() == []
