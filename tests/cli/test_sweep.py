"""The command line, run as a user runs it: results, interruptions, failures, bad input.

Runs are few and shared: each costs several seconds of imports and compilations.
"""

import csv
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
import yaml
from rich.console import Console
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.core.stages import on_progress
from pmbnn.experiment.load import load_experiment
from pmbnn.fitting import fit as fitting
from pmbnn.fitting import job
from pmbnn.fitting.fit import InferredCell
from pmbnn.fitting.progress import RunOptions
from pmbnn.fitting.tasks import JobTask
from pmbnn.inference.groups import Checkpoints
from pmbnn.inference.result import Fit, History, derive_keys
from pmbnn.results.record import CellRecord
from pmbnn.results.store import LOCK, Results
from pmbnn.sweep import stages
from pmbnn.sweep.cells import prepare

COMMON = {
    "network": {"kind": "dense", "hidden": [[3]]},
    "predict": {
        "draws": 20,
        "trace_draws": 10,
        "map": {"resolution": 10},
        "fresh": {"size": 500, "draws": 5},
    },
}
INFERENCE = {"steps": 100, "restarts": 2}
SIZE = {"noise": 0.3, "train": 60, "test": 40}
TUNED = {"kind": "fixed", "scale": {"tune": {"log": [0.1, 10, 5]}}}

MOONS = {
    "name": "moons",
    "dataset": {"kind": "moons", "seed": [0, 1], **SIZE},
    "prior": ["normal", "flat"],
    "hyperprior": TUNED,
    "inference": INFERENCE,
} | COMMON
CIRCLES = {
    "name": "circles",
    "dataset": {"kind": "circles", **SIZE},
    "prior": "flat",
    "hyperprior": ["fixed", "half_normal"],
    "inference": INFERENCE,
} | COMMON
DIVERGING = {
    "name": "diverging",
    "dataset": {"kind": "moons", **SIZE},
    "prior": "laplace",
    "inference": {"steps": 100, "learning_rate": [1e30], "validation": 0},
} | COMMON

WHOLE = {"name": "tiny", "sweeps": [MOONS, CIRCLES]}
"""Five cells in two groups; moons and circles share that of `flat`."""

REORDERED = {
    "name": "tiny",
    "sweeps": [
        CIRCLES,
        MOONS
        | {
            "dataset": [{"kind": "moons", "seed": [1, 0], **SIZE}],
            "prior": ["flat", "normal"],
        },
        DIVERGING,
    ],
}
"""The cells of `WHOLE` in another order, and one that diverges."""


@pytest.fixture(scope="module")
def environment():
    """Environment of every run, without a data folder."""
    return {k: v for k, v in os.environ.items() if k != "PMBNN_DATA"} | {"COLUMNS": "160"}


@pytest.fixture(scope="module")
def start(environment, tmp_path_factory):
    """Start a sweep of an experiment in a session of its own, as a terminal would."""
    logs = tmp_path_factory.mktemp("logs")
    started = []
    # Tests started in the background of a script ignore Ctrl-C, and so would what they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def run(experiment, out, *options):
        file = out.parent / f"{out.name}.yaml"
        file.write_text(yaml.safe_dump(experiment))
        logs_of = [logs / f"{len(started)}.{name}" for name in ("out", "err")]
        with logs_of[0].open("w") as stdout, logs_of[1].open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "pmbnn.sweep", str(file), "--out", str(out), *options],
                stdout=stdout,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )
        process.logs = logs_of
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def call(*arguments):
    """Call the command line in this process."""
    return CliRunner().invoke(app, ["sweep", *arguments])


def finish(process, timeout=300):
    """Exit status and what was printed."""
    code = process.wait(timeout)
    stdout, stderr = (path.read_text() for path in process.logs)
    return SimpleNamespace(code=code, stdout=stdout, stderr=stderr)


def wait_until(condition, what, timeout=120):
    """What a condition gives once it is true."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


# Reading results


def records(out) -> dict[str, CellRecord]:
    """Records of every stored cell, by name; the sweep may be running."""
    found = {}
    for path in sorted(out.glob("cells/[!.]*/metrics.json")):
        with suppress(FileNotFoundError):
            found[path.parent.name] = CellRecord.from_json(path.read_text())
    return found


def good(cells) -> dict[str, CellRecord]:
    """Those records that have results."""
    return {name: record for name, record in cells.items() if record.results}


def timeless(record: Mapping | CellRecord) -> dict:
    """All but the time taken and the sweep's name; traces are compared by their content."""
    content = record.model_dump() if isinstance(record, CellRecord) else record
    return {k: v for k, v in content.items() if k not in ("seconds", "sweep", "files")}


def table(path) -> list[dict]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def check_same_cells(one, other, names):
    """Numbers and traces, bit by bit; all but the time taken."""
    first, second = records(one), records(other)
    for name in names:
        assert timeless(first[name]) == timeless(second[name])
        traces = [Results(out).load_trace(name) for out in (one, other)]
        assert set(traces[0].children) == set(traces[1].children)
        for group in traces[0].children:
            xr.testing.assert_identical(*(trace[group].to_dataset() for trace in traces))


def mtimes(out, pattern="cells/**/*"):
    """Times of last change; the sweep may be running."""
    found = {}
    for path in sorted(out.glob(pattern)):
        with suppress(FileNotFoundError):
            found[path] = path.stat().st_mtime_ns
    return found


def contents(out, pattern):
    return {path: path.read_bytes() for path in sorted(out.glob(pattern))}


# An uninterrupted run


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An uninterrupted run of everything, by the command in this process."""
    out = tmp_path_factory.mktemp("whole") / "out"
    file = out.parent / "out.yaml"
    file.write_text(yaml.safe_dump(WHOLE))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COLUMNS", "160")
        environment.delenv("PMBNN_DATA", raising=False)
        done = call(str(file), "--out", str(out), "--workers", "1")
    assert done.exit_code == 0, done.output
    found = {"cells": records(out), "stdout": done.stdout, "stderr": done.stderr}
    return SimpleNamespace(out=out, file=file, **found)


def test_a_run_says_what_it_does(whole):
    lines = whole.stdout.splitlines()
    assert "Traceback" not in whole.stderr, "no more than what PyMC says itself"
    assert lines[0].startswith("circles: prior flat with half_normal: `flat` has no scale")
    assert "5 cells, 0 stored already, 5 to fit" in lines
    stored = [line for line in lines if line.startswith("[")]
    assert [line[:6] for line in stored] == [f"[{n}/5] " for n in range(1, 6)]
    assert all(re.search(r", accuracy 0\.\d{4} \(", line) for line in stored)
    words = " ".join(whole.stdout.split())
    assert "Test accuracy, circles: circles, noise 0.3, factor 0.5" in words
    (files,) = [line for line in lines if line.startswith("tables ")]
    assert files.startswith(f"tables {whole.out}/metrics.csv, {whole.out}/summary.csv;")
    assert lines[-1].startswith(f"next: the page {whole.out}/index.html")
    assert any(line.startswith("best, moons: moons, noise 0.3: ") for line in lines)


def test_a_run_leaves_every_file(whole):
    top = {path.name for path in whole.out.iterdir()}
    assert top == {
        LOCK,
        "cells",
        "cells.json",
        "derived.json",
        "index.html",
        "experiment.yaml",
        "figures",
        "metrics.csv",
        "times.csv",
        "provenance.json",
        "summary.csv",
    }
    assert len(whole.cells) == 5
    for name in whole.cells:
        files = {path.name for path in (whole.out / "cells" / name).iterdir()}
        assert files == {"trace.nc", "metrics.json", "map.png"}
        assert (whole.out / "cells" / name / "map.png").read_bytes()[:4] == b"\x89PNG"
    assert len(list(whole.out.glob("figures/*.png"))) >= 3
    assert [path.name for path in whole.out.rglob(".*")] == [LOCK]


def test_a_run_records_the_resolved_experiment(whole):
    assert load_experiment(whole.out / "experiment.yaml") == load_experiment(whole.file)


def test_a_run_records_where_its_numbers_come_from(whole):
    provenance = json.loads((whole.out / "provenance.json").read_text())
    assert {"python", "pymc", "jax", "arviz", "numpy"} <= set(provenance["versions"])
    assert [entry["source"] for entry in provenance["data"]] == ["scikit-learn"] * 3
    fingerprints = {entry["fingerprint"] for entry in provenance["data"]}
    assert {record.fingerprint for record in whole.cells.values()} == fingerprints
    assert provenance["seeds"] == {"inference": [0]}
    assert provenance["machine"]["cores"] >= 1


def test_statuses(whole):
    by_prior = {}
    for record in whole.cells.values():
        by_prior.setdefault(record.settings["prior"]["kind"], set()).add(record.status)
    assert by_prior["flat"] == {"improper"}
    assert by_prior["normal"] <= {"converged", "not_converged"}


def test_the_tables_hold_every_cell(whole):
    rows = table(whole.out / "metrics.csv")
    assert sorted(row["name"] for row in rows) == sorted(whole.cells)
    assert [row["sweep"] for row in rows] == ["moons"] * 4 + ["circles"]
    for row in rows:
        results = whole.cells[row["name"]].results
        for name in ("accuracy", "nll", "elbo", "excess_nll", "pooled_accuracy"):
            assert float(row[name]) == results[name]


def test_the_summary_is_over_data_seeds(whole):
    rows = table(whole.out / "metrics.csv")
    summary = table(whole.out / "summary.csv")
    assert [row["cells"] for row in summary] == ["2", "2", "1"]
    assert {row["failed"] for row in summary} == {"0"}
    moons, flat = ("dataset.kind", "moons"), ("prior.kind", "flat")
    (found,) = [row for row in summary if {moons, flat} <= row.items()]
    nlls = [float(row["nll"]) for row in rows if {moons, flat} <= row.items()]
    assert float(found["nll"]) == pytest.approx(np.mean(nlls))
    assert float(found["nll_se"]) == pytest.approx(np.std(nlls, ddof=1) / np.sqrt(2))


def test_a_tuned_scale_is_recorded(whole):
    tuned = [r for r in whole.cells.values() if "log" in str(r.settings["hyperprior"])]
    assert len(tuned) == 2
    for record in tuned:
        found = record.selection
        scores = [nll[restart] for nll, restart in zip(found.nll, found.restart, strict=True)]
        assert found.candidate == int(np.argmin(scores))
        assert record.results["scale"] == found.scales[found.candidate]
        assert record.results["validation_nll"] == min(scores)


# Again


def test_a_second_run_fits_nothing(whole, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    before, tables = mtimes(whole.out), contents(whole.out, "*.csv")
    figures = mtimes(whole.out, "figures/*")
    assert {path.name for path in tables} == {"metrics.csv", "summary.csv", "times.csv"} and figures
    done = call(str(whole.file), "--out", str(whole.out))
    assert (done.exit_code, done.stderr) == (0, "")
    assert "5 cells, 5 stored already, 0 to fit" in done.stdout
    assert not re.search(r"^\[\d", done.stdout, re.MULTILINE)
    assert (mtimes(whole.out), mtimes(whole.out, "figures/*")) == (before, figures)
    assert contents(whole.out, "*.csv") == tables
    tables_of = re.compile("Test accuracy, .*", re.DOTALL)
    assert tables_of.search(done.stdout)[0] == tables_of.search(whole.stdout)[0]


# Shards


@pytest.mark.slow
def test_shards_joined_have_the_numbers_of_a_whole_run(whole, start, tmp_path):
    """Whatever the number of workers."""
    folders = [tmp_path / f"part-{number}" for number in (1, 2)]
    for number, folder in enumerate(folders, 1):
        done = finish(start(WHOLE, folder, "--shard", f"{number}/2", "--workers", "2"))
        assert done.code == 0, done.stderr
    out = tmp_path / "out"
    done = CliRunner().invoke(app, ["merge", *map(str, folders), "--out", str(out)])
    assert done.exit_code == 0, done.stderr
    assert "5 cells copied, 0 there already, 0 missing" in done.stdout
    check_same_cells(whole.out, out, list(whole.cells))
    for file in ("metrics.csv", "summary.csv"):
        rows = [list(map(timeless, table(folder / file))) for folder in (out, whole.out)]
        assert rows[0] == rows[1]
    again = call(str(whole.file), "--out", str(out))
    assert "5 cells, 5 stored already, 0 to fit" in again.stdout


# Interruptions


def worker_pids(parent):
    """Process ids of the workers of a running sweep."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            words = (stat.parent / "cmdline").read_text()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == parent and "spawn_main" in words:
            found.append(int(stat.parent.name))
    return found


def is_running(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def flat(cells):
    """Those with a fit under a flat prior."""
    kinds = {name: record.settings["prior"]["kind"] for name, record in good(cells).items()}
    return {name: cells[name] for name, kind in kinds.items() if kind == "flat"}


@pytest.fixture(scope="module")
def interrupted(start, tmp_path_factory):
    """A sweep that was stopped twice before it came to its end, all on one worker.

    First its worker is killed before it can fit anything, and the sweep itself when the next
    worker has stored cells with a flat prior and with another. Then the cells with a flat prior
    are fitted afresh, which Ctrl-C stops at the first of them. Then it ends.
    """
    out = tmp_path_factory.mktemp("interrupted") / "out"
    command = (REORDERED, out, "--workers", "1")

    killed = start(*command)
    (victim,) = wait_until(lambda: worker_pids(killed.pid), "a worker")
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: 0 < len(flat(records(out))) < len(good(records(out))), "two priors' cells")
    orphans = worker_pids(killed.pid)
    os.kill(killed.pid, signal.SIGKILL)
    kill = finish(killed)
    wait_until(lambda: not any(map(is_running, orphans)), "the orphans' end")
    kill.orphans, kill.cells, kill.files = orphans, records(out), mtimes(out)

    stopped = start(*command, "--fresh", "--only", "prior=flat", "--quiet")
    fitted = "cells/[!.]*/metrics.json"
    wait_until(lambda: mtimes(out, fitted).items() - kill.files.items(), "a cell fitted again")
    os.killpg(stopped.pid, signal.SIGINT)
    stop = finish(stopped)
    stop.cells, stop.files = records(out), mtimes(out)

    end = finish(start(*command))
    end.cells, end.files = records(out), mtimes(out)
    return SimpleNamespace(out=out, kill=kill, stop=stop, end=end)


@pytest.mark.slow
def test_a_killed_worker_is_reported_and_the_sweep_goes_on(interrupted):
    lines = interrupted.kill.stdout.splitlines()
    dead = [line for line in lines if "the worker process was ended by SIGKILL" in line]
    assert len(dead) == 1, "its job, whose cells are tried again in the end"
    assert not [r for r in interrupted.kill.cells.values() if r.status == "error"]
    assert good(interrupted.kill.cells)


@pytest.mark.slow
def test_a_killed_sweep_leaves_whole_cells_and_no_processes(interrupted, whole):
    assert interrupted.kill.code == -signal.SIGKILL
    assert len(interrupted.kill.orphans) in (1, 2), "the worker, and one that draws"
    # A process that is being started when its parent is killed says so before it is ours.
    stderr = interrupted.kill.stderr
    assert stderr.count("Traceback") == stderr.count("in spawn_main")
    assert len(interrupted.kill.cells) < 6, "it was killed in the middle"
    for name, record in good(interrupted.kill.cells).items():
        assert timeless(record) == timeless(whole.cells[name])


@pytest.mark.slow
def test_ctrl_c_says_one_line_and_keeps_what_is_finished(interrupted):
    stop = interrupted.stop
    assert stop.code == 130
    (line,) = stop.stderr.splitlines()
    assert line.startswith("interrupted: finished results are kept")
    assert stop.stdout == "", "quiet"
    assert 1 <= len(flat(stop.cells)) <= 3
    for name in good(stop.cells):
        for file in ("trace.nc", "metrics.json"):
            path = interrupted.out / "cells" / name / file
            assert interrupted.end.files[path] == stop.files[path], "and not fitted again"


@pytest.mark.slow
def test_fresh_fits_the_chosen_cells_again_and_no_others(interrupted, whole):
    before, after = interrupted.kill, interrupted.stop
    for name, record in flat(after.cells).items():
        path = interrupted.out / "cells" / name / "metrics.json"
        assert after.files[path] != before.files.get(path)
        assert timeless(record) == timeless(whole.cells[name])
    assert flat(before.cells).keys() & flat(after.cells).keys(), "one was stored before"
    others = {path: time for path, time in before.files.items() if "flat" not in str(path)}
    assert others
    assert others.items() <= after.files.items()


@pytest.mark.slow
def test_cells_lost_with_a_worker_are_fitted_by_the_next_run(interrupted):
    assert not [r for r in interrupted.end.cells.values() if r.status == "error"]


@pytest.mark.slow
def test_an_interrupted_sweep_ends_with_the_numbers_of_an_uninterrupted_one(interrupted, whole):
    """Whatever the number of workers and the order of sweeps, data sets, priors."""
    names = list(whole.cells)
    check_same_cells(whole.out, interrupted.out, names)
    rows = {row["name"]: timeless(row) for row in table(whole.out / "metrics.csv")}
    again = {row["name"]: timeless(row) for row in table(interrupted.out / "metrics.csv")}
    # Names tell settings apart from those of the other cells.
    labels = ("dataset", "network", "prior", "hyperprior", "likelihood", "inference")
    for name in names:
        both = rows[name].keys() & again[name].keys() - set(labels)
        assert len(both) > 20
        assert all(rows[name][key] == again[name][key] for key in both)


@pytest.mark.slow
def test_nothing_half_written_is_left(interrupted):
    assert [path.name for path in interrupted.out.rglob(".*")] == [LOCK]


# Failures


@pytest.mark.slow
def test_a_fit_that_diverges_is_recorded_and_named(interrupted):
    end = interrupted.end
    assert end.code == 1
    assert end.stderr == ""
    (lost,) = [r for r in end.cells.values() if not r.results]
    assert lost.status == "diverged"
    assert "not finite" in lost.reason
    (named,) = [line for line in end.stdout.splitlines() if line.startswith("failed: ")]
    assert "moons, noise 0.3, seed 0, laplace × fixed 1: " in named
    assert lost.reason in named
    assert {p.name for p in (interrupted.out / "cells" / lost.name).iterdir()} == {"metrics.json"}
    assert len(good(end.cells)) == 5, "the others are finished"


@pytest.mark.slow
def test_a_fit_that_diverged_is_in_the_tables(interrupted):
    (row,) = [r for r in table(interrupted.out / "metrics.csv") if r["status"] == "diverged"]
    assert (row["accuracy"], row["inference.learning_rate"]) == ("", "1e+30")
    (row,) = [r for r in table(interrupted.out / "summary.csv") if r["failed"] == "1"]
    assert row["prior.kind"] == "laplace"


@pytest.fixture
def run(tmp_path):
    """Two cells of one job, ready to be run in this process."""
    return prepared(tmp_path)


def prepared(tmp_path, **inference):
    file = tmp_path / "experiment.yaml"
    settings = {"inference": INFERENCE | inference, "prior": "normal", "hyperprior": "fixed"}
    file.write_text(yaml.safe_dump({"name": "two", "sweeps": [MOONS | settings]}))
    made = prepare(load_experiment(file), tmp_path / "out")
    made.results.prepare()
    return made


class Fitter:
    """Finds every fit diverged, except for cells that make it raise."""

    def __init__(self, *bad):
        self.bad, self.asked = bad, []

    def fit_job(self, cells, datasets, programs, search_cell=None, checkpoints=None):
        self.asked.append(cells)
        if set(cells) & set(self.bad):
            raise FloatingPointError("no number\nat all")
        one, keys = np.ones(1), derive_keys("x")
        history = History(one, one, one, one)
        lost = Fit({"loc": one}, one, history, np.nan, "diverged", "scripted", keys)
        return [InferredCell(c, c.hyperprior, {}, {}, {}, None, 1.5, (lost,)) for c in cells]


def run_in_process(run, fitter, monkeypatch):
    """Records of the cells, in the order stored."""
    monkeypatch.setattr(job, "fit_job", fitter.fit_job)
    stored = []
    task = JobTask("group", 16, tuple(run.tasks.values()))
    job.run_job(task, run.results.folder, stored.append)
    return stored


def test_a_cell_that_raises_is_recorded_and_the_others_are_fitted(run, monkeypatch):
    bad, fine = run.tasks
    fitter = Fitter(bad)
    failed, other = run_in_process(run, fitter, monkeypatch)
    assert fitter.asked == [[bad, fine], [bad], [fine]], "together first, then each alone"
    assert (failed.status, failed.reason) == ("error", "FloatingPointError: no number")
    assert "fit_job" in failed.traceback
    assert failed.results == {}
    assert (other.status, other.reason) == ("diverged", "scripted")
    assert other.seconds >= 1.5
    for record in (failed, other):
        assert run.results.load_record(record.name) == record


@pytest.mark.parametrize("where", ["evaluating", "writing"])
def test_a_cell_that_fails_after_its_fit_is_recorded(run, monkeypatch, where):
    def fail(*_):
        raise RuntimeError(f"failed while {where}")

    def evaluate(*_):
        if where == "writing":
            return {"images": {"judged": "before"}, "diagnostics": {}}, None
        fail()

    def writer(_):
        def write(path):
            path.write_text("half")
            fail()

        return write

    monkeypatch.setattr(job, "_evaluate", evaluate)
    monkeypatch.setattr(job, "trace_writer", writer)
    fitter = Fitter()
    fit_job = fitter.fit_job
    monkeypatch.setattr(
        fitter,
        "fit_job",
        lambda *given, **named: [replace(cell, best=0) for cell in fit_job(*given, **named)],
    )
    stored = run_in_process(run, fitter, monkeypatch)
    assert [r.reason for r in stored] == [f"RuntimeError: failed while {where}"] * 2
    assert sorted(os.listdir(run.results.cells)) == sorted(r.name for r in stored)
    for record in stored:
        assert os.listdir(run.results.cells / record.name) == ["metrics.json"]
        assert run.results.load_record(record.name) == record
        assert record.images is None and record.diagnostics is None


@pytest.mark.parametrize("digest", ["fingerprint", "encoding"])
def test_data_that_change_in_between_are_noticed(run, monkeypatch, digest):
    """Their numbers, or the names of their columns."""
    tasks = {c: replace(t, **{digest: "of yesterday"}) for c, t in run.tasks.items()}
    changed = replace(run, tasks=tasks)
    for record in run_in_process(changed, Fitter(), monkeypatch):
        assert record.reason == "DataError: the data changed while the sweep was running"


def test_errors_are_tried_again_and_verdicts_are_not(run):
    first, second = run.tasks.values()
    for status, missing in [("error", 2), ("diverged", 1), ("converged", 1), ("improper", 1)]:
        run.results.save_cell(first.record(status=status), {})
        assert len(run.missing(list(run.tasks))) == missing
    run.results.save_cell(second.record(status="converged"), {})
    assert run.missing(list(run.tasks)) == []


# Checkpoints


@pytest.fixture
def eager(monkeypatch):
    """Checkpoints after every window, however short it is."""
    monkeypatch.setattr(fitting, "Checkpoints", partial(Checkpoints, interval=0.0))


def keep_parameters(task, fitted, programs):
    """In place of an evaluation: what was fitted, all of its digits."""
    results = {
        f"{restart}/{place}": float(value)
        for restart, made in enumerate(fitted.fits)
        for place, value in enumerate(made.loc)
    }
    return {"results": results}, None


def run_job(run, stop=None):
    """Fit the run's only job in this process; records stored, news in their order."""
    (cut,) = run.jobs(list(run.tasks))
    stored, news = [], []

    def told(of):
        if of and of[-1].stage == "fit" and of[-1].done:
            news.append(of)
            if len(news) == stop:
                raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), on_progress(told):
        job.run_job(cut, run.results.folder, stored.append)
    return [timeless(record) for record in stored], news


@pytest.mark.slow
def test_a_job_goes_on_from_its_checkpoints_and_removes_them(eager, tmp_path, monkeypatch):
    """Those of another job stay where they are, and do not matter."""
    monkeypatch.setattr(job, "_evaluate", keep_parameters)
    monkeypatch.setattr(job, "trace_writer", lambda _: lambda path: path.write_text(""))
    run = prepared(tmp_path, validation=0)
    straight = replace(run, results=Results(tmp_path / "straight"))
    for one in (run, straight):
        one.results.prepare()
    whole, every = run_job(straight)
    assert (len(whole), len(every)) == (2, 100)
    assert not (straight.results.folder / "checkpoints").exists()

    kept = run.results.folder / "checkpoints"
    (kept / "0123456789abcdef" / "fit").mkdir(parents=True)
    (kept / "0123456789abcdef" / "fit" / "0.npz").write_bytes(b"of another job")
    stored, news = run_job(run, stop=40)
    assert stored == []
    assert len(list(kept.iterdir())) == 2
    again, rest = run_job(run)
    assert news + rest == every[:40] + every[39:], "the window just done, and no other, twice"
    assert again == whole
    assert [path.name for path in kept.iterdir()] == ["0123456789abcdef"]
    assert not run.missing(list(run.tasks))


def test_fresh_forgets_the_checkpoints_of_its_jobs_only(run, monkeypatch):
    monkeypatch.setattr(stages, "_fit_missing", lambda *_: Counter())
    wanted = [next(iter(run.tasks))]
    [only] = run.jobs(wanted)
    names = (only.identity, "0123456789abcdef")
    own, other = (run.results.checkpoints(name) for name in names)
    for fresh in (False, True):
        for kept in (own, other):
            kept.mkdir(parents=True, exist_ok=True)
            (kept / "0.npz").write_bytes(b"half a fit")
        stages.run_experiment(
            run.experiment, wanted, run.results.folder, RunOptions(Console(), 1, fresh, quiet=True)
        )
        assert own.exists() != fresh
        assert other.exists()


def test_no_checkpoint_is_left_when_nothing_is_missing(run, monkeypatch):
    monkeypatch.setattr(stages, "_fit_missing", lambda *_: None)
    monkeypatch.setattr(type(run), "missing", lambda *_: [])
    kept = run.results.checkpoints("0123456789abcdef")
    kept.mkdir(parents=True)
    stages.run_experiment(
        run.experiment, list(run.tasks), run.results.folder, RunOptions(Console(), 1, quiet=True)
    )
    assert not kept.parent.exists()


# Guides, estimators and what else a fit can be asked for

QUICK = INFERENCE | {"validation": 0}
PYMC = {
    "name": "reference",
    "dataset": {"kind": "moons", **SIZE},
    "prior": "normal",
    "inference": {"engine": "pymc", "steps": 50, "validation": 0},
} | COMMON
ADVANCED = {
    "name": "advanced",
    "sweeps": [
        {
            "name": "guides",
            "dataset": {"kind": "moons", **SIZE},
            "prior": "normal",
            "hyperprior": "half_normal",
            "inference": [
                QUICK
                | {"estimator": "local_reparameterisation"}
                | {"learning_rate": {"tune": {"log": [0.003, 0.3, 3]}}},
                QUICK | {"guide": ["low_rank", "map"], "rank": 2},
            ],
        }
        | COMMON
        | {"predict": COMMON["predict"] | {"mixture": "elbo"}},
        PYMC,
    ],
}
"""Three cells, each in a group of its own, and one that PyMC fits."""


@pytest.fixture(scope="module")
def advanced(start, tmp_path_factory):
    out = tmp_path_factory.mktemp("advanced") / "out"
    done = finish(start(ADVANCED, out, "--workers", "1"))
    assert done.code == 0, done.stdout + done.stderr
    rows = [row for row in table(out / "metrics.csv") if row["sweep"] == "guides"]
    return SimpleNamespace(out=out, cells=records(out), rows=rows)


@pytest.mark.slow
def test_every_guide_runs_through_the_file(advanced):
    assert [row["inference.guide"] for row in advanced.rows] == ["mean_field", "low_rank", "map"]
    assert {record.status for record in advanced.cells.values()} <= {
        "converged",
        "not_converged",
    }
    for row in advanced.rows:
        parts = [float(row[name]) for name in ("learning_rate", "kl", "log_likelihood")]
        assert np.isfinite(parts).all()
        assert float(row["elbo"]) == pytest.approx(parts[2] - parts[1], rel=1e-5)
    assert [float(row["learning_rate"]) for row in advanced.rows[1:]] == [0.02, 0.02]


@pytest.mark.slow
def test_the_reference_engine_runs_through_the_file(advanced):
    (record,) = [r for r in advanced.cells.values() if r.sweep == "reference"]
    assert record.settings["inference"]["engine"] == "pymc"
    assert 0 <= record.results["accuracy"] <= 1
    trace = Results(advanced.out).load_trace(record.name)
    assert trace["fit"]["step"].values[-1] == 50
    assert np.isfinite(trace["fit"]["elbo"]).all()


@pytest.mark.slow
def test_a_tuned_learning_rate_is_recorded(advanced):
    row = advanced.rows[0]
    search = advanced.cells[row["name"]].learning_rate_search
    assert search.candidates == pytest.approx([0.003, 0.03, 0.3])
    assert search.chosen == search.candidates[int(np.argmax(search.elbo))]
    assert float(row["learning_rate"]) == search.chosen
    assert "tuned" in row["name"]
    others = [r for name, r in advanced.cells.items() if name != row["name"]]
    assert all(record.learning_rate_search is None for record in others)


@pytest.mark.slow
def test_weights_of_the_restarts_are_recorded(advanced):
    for row in advanced.rows:
        record = advanced.cells[row["name"]]
        weights = np.array([restart.weight for restart in record.restarts])
        elbo = np.array([restart.elbo for restart in record.restarts])
        expected = np.exp(elbo - elbo.max())
        if row["inference.guide"] == "map":
            expected = np.ones(2)
        np.testing.assert_allclose(weights, expected / expected.sum(), rtol=1e-12)
        trace = Results(advanced.out).load_trace(row["name"])
        np.testing.assert_array_equal(trace["fit"]["weight"], weights)


# Without fitting


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder that commands are called in."""
    (tmp_path / "experiment.yaml").write_text(yaml.safe_dump(WHOLE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PMBNN_DATA", raising=False)
    return tmp_path


def test_a_dry_run_prints_the_plan_and_writes_nothing(folder):
    done = call("experiment.yaml", "--dry-run")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:3:2] == [
        "tiny: 5 cells",
        "  circles: 1 cells = 1 prior × hyperprior",
    ]
    assert os.listdir(folder) == ["experiment.yaml"]


def test_a_dry_run_of_a_selection(folder):
    done = call("experiment.yaml", "--dry-run", "--only", "prior=flat")
    assert done.stdout.startswith("tiny: 3 of 5 cells\n")


def test_a_dry_run_tells_the_time_with_so_many_workers(folder):
    done = call("experiment.yaml", "--dry-run", "--workers", "3")
    *_, time, memory = done.stdout.splitlines()
    assert time.endswith("with 3 workers, compiling included")
    assert memory.startswith("memory: about ")


def test_help():
    done = call("--help")
    assert done.exit_code == 0
    for option in ("--out", "--only", "--dry-run", "--fresh", "--workers", "--device", "--quiet"):
        assert option in done.stdout


def check_rejected(folder, *arguments, match):
    """Exit status 2, one line that says why, and not a file more than before."""
    before = sorted(folder.rglob("*"))
    done = call(*arguments)
    assert done.exit_code == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert re.search(match, line), line
    assert done.stdout == ""
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"prior": ["normal", "laplas"]},
            r"`sweeps\[0\].prior\[1\]` must be one of cauchy, cell, correlated_normal, flat, "
            "horseshoe, laplace, matrix_normal, multivariate_t, normal, pymc, "
            "r2d2, scale_mixture, student_t, trainable_mean, got 'laplas'; did you mean `laplace`",
        ),
        (
            {"prior": "flat", "hyperprior": "half_normal"},
            r"`sweeps\[0\].hyperprior` must include fixed for prior `flat`",
        ),
        (
            {"dataset": {"kind": "moons", "noise": -1}},
            r"`sweeps\[0\].dataset.noise` must be > 0, got -1\.",
        ),
        ({"prior": []}, r"`sweeps\[0\].prior` must not be empty"),
        (
            {"inference": {"stepps": 100}},
            r"`sweeps\[0\].inference` has no key `stepps`; did you mean `steps`",
        ),
        (
            {
                "network": {"kind": "dense", "hidden": [[3], [100, 100]]},
                "inference": {"guide": "full_rank"},
            },
            r"`sweeps\[0\].inference.guide` must not be full_rank with the 10,602 free variables "
            r"of `sweeps\[0\].network.*` with prior `normal` and hyperprior `fixed`: it takes at "
            "most 5,000, `low_rank` any number",
        ),
        (
            {
                "network": {"kind": "dense", "hidden": [[60, 60]]},
                "prior": ["normal", "horseshoe"],
                "inference": {"guide": "full_rank"},
            },
            "must not be full_rank with the 7,924 free variables of .* with prior `horseshoe`",
        ),
        (
            {"inference": {"early_stop": True, "schedule": "one_cycle"}},
            r"`sweeps\[0\].inference` must have `schedule` constant with `early_stop`, "
            "got one_cycle",
        ),
        (
            {"inference": {"guide": ["mean_field", "low_rank"], "estimator": "flipout"}},
            r"`sweeps\[0\].inference.*` must have `guide` mean_field with `estimator` flipout, "
            "got low_rank",
        ),
        (
            {"inference": {"guide": "structured"}},
            r"`sweeps\[0\].inference.guide` must be one of dropout, full_rank, laplace, low_rank, "
            "map, maximum_likelihood, mean_field, got 'structured'",
        ),
    ],
)
def test_a_bad_value_is_rejected(folder, changes, match):
    sweeps = [MOONS | changes]
    (folder / "experiment.yaml").write_text(yaml.safe_dump({"name": "bad", "sweeps": sweeps}))
    check_rejected(folder, "experiment.yaml", match=match)


def test_broken_yaml_is_rejected_with_its_line(folder):
    (folder / "experiment.yaml").write_text("name: bad\nsweeps:\n  - {name: one,\n")
    check_rejected(folder, "experiment.yaml", match="experiment.yaml, line 4, column 1")


@pytest.mark.parametrize(
    ("file", "match"),
    [
        ("nowhere.yaml", "nowhere.yaml cannot be read: No such file"),
        (".", "cannot be read: Is a directory"),
    ],
)
def test_a_file_that_is_none_is_rejected(folder, file, match):
    check_rejected(folder, file, match=match)


@pytest.mark.parametrize(
    ("condition", "match"),
    [
        ("prior", "`--only` must be KEY=VALUE, got 'prior'"),
        ("priro=flat", "`--only` must be one of .*; did you mean `prior`"),
        ("prior=cauchy", "`--only prior` must be one of flat, normal, got 'cauchy'"),
    ],
)
def test_a_bad_selection_is_rejected(folder, condition, match):
    check_rejected(folder, "experiment.yaml", "--only", condition, match=match)


@pytest.mark.parametrize(
    ("device", "match"),
    [
        ("gpu", r"`--device` must be auto or cpu here, got 'gpu': .*pip install '\.\[cuda\]'"),
        ("tpu", "`--device` must be one of auto, cpu, gpu, got 'tpu'"),
    ],
)
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_device_that_is_not_there_is_rejected(folder, device, match, dry, monkeypatch):
    """Before anything else is done; here, as wherever JAX is told to stay on the processor."""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    check_rejected(folder, "experiment.yaml", "--device", device, *dry, match=match)


def test_a_results_folder_that_cannot_be_written_is_rejected(folder):
    """Below a regular file nobody can write, not even root."""
    (folder / "file").write_text("mine")
    match = "The results folder `file/results` cannot be written: "
    check_rejected(folder, "experiment.yaml", "--out", "file/results", match=match)
    assert (folder / "file").read_text() == "mine"


def test_a_damaged_data_file_is_rejected(folder):
    whole = gzip.compress(bytes(5000))
    (folder / "train-images-idx3-ubyte.gz").write_bytes(whole[: len(whole) // 2])
    dataset = {"kind": "mnist", "source": "local", "folder": str(folder)}
    sweep = {"name": "digits", "dataset": dataset, "network": "dense", "prior": "normal"}
    (folder / "experiment.yaml").write_text(yaml.safe_dump({"name": "bad", "sweeps": [sweep]}))
    check_rejected(folder, "experiment.yaml", match="Data set `mnist`: .*train-images-idx3-ubyte")
