"""The command line, run as a user runs it: results, interruptions, failures, bad input.

Runs are few and shared: each costs several seconds of imports and compilations.
"""

import csv
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
import yaml

from pmbnn import job
from pmbnn.config import load_experiment
from pmbnn.fitting import FittedCell
from pmbnn.inference.fit import Fit, random_streams
from pmbnn.runner import prepare
from pmbnn.storage import Results, json_writer
from pmbnn.tasks import JobTask

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

PYMC = {
    "name": "reference",
    "dataset": {"kind": "moons", **SIZE},
    "prior": "normal",
    "inference": {"engine": "pymc", "steps": 50, "validation": 0},
} | COMMON
MOONS = {
    "name": "moons",
    "dataset": {"kind": "moons", "seed": [0, 1], **SIZE},
    "prior": ["normal", "flat"],
    "hyperprior": [TUNED, "half_normal"],
    "inference": INFERENCE,
} | COMMON
CIRCLES = {
    "name": "circles",
    "dataset": {"kind": "circles", **SIZE},
    "prior": "normal",
    "hyperprior": "half_normal",
    "inference": INFERENCE,
} | COMMON
DIVERGING = {
    "name": "diverging",
    "dataset": {"kind": "moons", **SIZE},
    "prior": "laplace",
    "inference": {"steps": 100, "learning_rate": [1e30], "validation": 0},
} | COMMON

WHOLE = {"name": "tiny", "sweeps": [PYMC, MOONS, CIRCLES]}
"""Eight cells in four groups; moons and circles share that of `half_normal`."""

REORDERED = {
    "name": "tiny",
    "sweeps": [
        CIRCLES,
        MOONS
        | {
            "dataset": [{"kind": "moons", "seed": [1, 0], **SIZE}],
            "prior": ["flat", "normal"],
            "hyperprior": ["half_normal", TUNED],
        },
        DIVERGING,
    ],
}
"""The cells of `WHOLE` in another order, without the slow one, and one that diverges."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Environment of every run: one cache of compiled programs for all, and no data folder."""
    cache = tmp_path_factory.mktemp("cache")
    kept = {k: v for k, v in os.environ.items() if k != "PMBNN_DATA"}
    return kept | {"XDG_CACHE_HOME": str(cache), "COLUMNS": "160"}


@pytest.fixture(scope="module")
def start(environment, tmp_path_factory):
    """Start a sweep of an experiment in a session of its own, as a terminal would."""
    logs = tmp_path_factory.mktemp("logs")
    started = []

    def run(experiment, out, *options):
        file = out.parent / f"{out.name}.yaml"
        file.write_text(yaml.safe_dump(experiment))
        streams = [logs / f"{len(started)}.{name}" for name in ("out", "err")]
        with streams[0].open("w") as stdout, streams[1].open("w") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", "pmbnn.sweep", str(file), "--out", str(out), *options],
                stdout=stdout,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )
        process.streams = streams
        started.append(process)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def finish(process, timeout=300):
    """Exit status and what was printed."""
    code = process.wait(timeout)
    out, err = (path.read_text() for path in process.streams)
    return SimpleNamespace(code=code, out=out, err=err)


def wait_until(condition, what, timeout=120):
    """What a condition gives once it is true."""
    end = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)
    return found


# Reading results


def records(out) -> dict[str, dict]:
    """Records of every stored cell, by name."""
    paths = sorted(out.glob("cells/[!.]*/metrics.json"))
    return {path.parent.name: json.loads(path.read_text()) for path in paths}


def good(out) -> set[str]:
    """Names of cells that have results."""
    return {name for name, record in records(out).items() if record["results"]}


def timeless(record: Mapping) -> dict:
    return {key: value for key, value in record.items() if key not in ("seconds", "sweep")}


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
    return {path: path.stat().st_mtime_ns for path in sorted(out.glob(pattern))}


# An uninterrupted run


@pytest.fixture(scope="module")
def whole(start, tmp_path_factory):
    """An uninterrupted run of everything on two workers."""
    out = tmp_path_factory.mktemp("whole") / "deep" / "out"
    out.parent.mkdir()
    done = finish(start(WHOLE, out, "--workers", "2"))
    assert done.code == 0, done.err
    return SimpleNamespace(out=out, cells=records(out), **vars(done))


def test_a_run_says_what_it_does(whole):
    lines = whole.out.splitlines()
    assert whole.err == ""
    assert "moons: prior flat with half_normal: `flat` has no scale" in lines[0]
    assert "8 cells, 0 stored already, 8 to fit" in lines
    stored = [line for line in lines if re.match(r"\[\d/8\] ", line)]
    assert [line[:5] for line in stored] == [f"[{n}/8]" for n in range(1, 9)]
    assert sum("accuracy 0." in line for line in stored) == 8
    assert "Test accuracy, circles: circles, noise 0.3, factor 0.5" in whole.out
    assert f"{whole.out_folder if False else ''}metrics.csv" in whole.out


def test_a_run_leaves_every_file(whole):
    out = whole.out
