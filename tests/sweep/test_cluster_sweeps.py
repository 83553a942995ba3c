"""Whole sweeps on clusters of real processes: the same numbers, and what is lost on the way."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import dask
import numpy as np
import pytest
import xarray as xr
from clusters import SERVE, finished, script, stored
from distributed import Client, LocalCluster

import pmbnn as pb
from pmbnn.results.loading import load_results
from pmbnn.results.store import Results
from pmbnn.sweep.cluster.coordinator import cluster_of

pytestmark = pytest.mark.slow

PLUGIN = """
from typing import Literal

import numpy as np

import pmbnn as pb
from pmbnn.data.base import find
from pmbnn.data.ood import OodImages

@pb.register
def first_target(predictive: "ClassProbabilities", target):
    return float(target[0])

@pb.register
class Drawings(pb.OodSpec):
    kind: Literal["drawings"] = "drawings"

    def load(self, digits):
        x = np.load(find("drawings.npy", (), "ood"))
        return OodImages(self.name, x, ("",) * len(x), "own")
"""

SMALL = {
    "network": {"kind": "dense", "hidden": [[3]]},
    "prior": "normal",
    "hyperprior": "half_normal",
    "inference": {"steps": 50, "restarts": 2, "validation": 0},
    "predict": {"draws": 5, "trace_draws": 4, "map": {"resolution": 5}},
}


@contextmanager
def local_cluster(**options):
    """Client of a cluster of two processes, whose nannies start another for one that dies."""
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            **options,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


# The same numbers


def test_numbers_are_those_of_one_machine(tmp_path, monkeypatch, registries):
    """To the last bit: of generated data, rows in memory, files that workers do not have."""
    (tmp_path / "parts.py").write_text(PLUGIN)
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    lines = [f"{a},{b},{'yes' if a > b else 'no'}" for a, b in x]
    (here / "own.csv").write_text("\n".join(["a,b,target", *lines]))
    np.save(here / "drawings.npy", rng.random((20, 784), np.float32))
    rows = pb.Dataset.from_arrays(x, np.where(x[:, 0] > 0, "up", "down"), name="memory")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PMBNN_DATA", str(here))
    moons = {"kind": "moons", "noise": 0.3, "train": 60, "test": 40, "seed": [0, 1]}
    digits = {"kind": "mnist", "source": "embedded", "train": 200, "test": 50}
    table = {"kind": "table", "file": "own.csv", "target": "target"}
    experiment = {
        "name": "everywhere",
        "plugins": ["parts.py"],
        "sweeps": [
            {"name": "points", "dataset": moons, **SMALL},
            {"name": "own", "dataset": [rows, table], **SMALL},
            {"name": "images", "dataset": digits, **SMALL, "predict": {"ood": [["drawings"]]}},
        ],
    }
    local = pb.run(experiment, out=tmp_path / "local", quiet=True)
    with local_cluster(env={"PMBNN_DATA": str(there)}) as client:
        on_cluster = pb.run(experiment, out=tmp_path / "cluster", quiet=True, client=client)
        assert client.status == "running", "it is the user's"
    names = [record.name for record in local.records]
    assert len(names) == 5
    (images,) = [record for record in local.records if record.sweep == "images"]
    assert "drawings" in images.images["ood"]
    assert [record.name for record in on_cluster.records] == names
    for ours, theirs in zip(local.records, on_cluster.records, strict=True):
        assert "first_target" in "".join(theirs.results)
        own = {"seconds": 0.0, "files": {}}
        assert theirs.model_copy(update=own) == ours.model_copy(update=own)
    assert [text_of(tmp_path / n / "summary.csv") for n in ("local", "cluster")] == 2 * [
        text_of(tmp_path / "local" / "summary.csv")
    ]
    for name in names:
        of = [Results(tmp_path / folder).load_trace(name) for folder in ("local", "cluster")]
        assert of[0].groups == of[1].groups
        for group in of[0].groups:
            xr.testing.assert_equal(of[0][group].dataset, of[1][group].dataset)


def text_of(path):
    return path.read_text(encoding="utf-8")


# What is lost


@pytest.fixture
def run(tmp_path, scripted):
    """Events of scripted jobs on a cluster whose workers start scripted processes."""
    preload = tmp_path / "preload.py"
    preload.write_text(f"from pmbnn.sweep.cluster import worker\nworker.SERVE = {SERVE!r}\n")
    results = Results(tmp_path / "results")
    results.prepare()
    with ExitStack() as stack:
        stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": 1}))
        client = stack.enter_context(local_cluster(preload=[str(preload)]))
        cluster = cluster_of(client)
        lines = []
        cluster.begin(results.folder, lines.append)

        def events(*jobs):
            return cluster.run_jobs(jobs, results, True, script())

        events.client, events.results, events.lines = client, results, lines
        yield events
        cluster.end()


def test_a_lost_worker_loses_nothing(run, scripted):
    jobs = [scripted(f"cell{number}", seconds=0.3) for number in range(12)]
    found = []
    for event in run(*jobs):
        found.append(event)
        if len(stored(found)) == 3 and event is found[-1] and len(finished(found)) == 2:
            pid = next(iter(run.client.run(os.getpid).values()))
            os.kill(pid, signal.SIGKILL)
    assert finished(found) == dict.fromkeys(range(12))
    assert len(found) == len({(type(e), e.job) for e in found if not hasattr(e, "stages")}) + sum(
        hasattr(e, "stages") for e in found
    ), "nothing twice"
    assert len(run.results.cell_names()) == 12


def test_a_job_that_kills_workers_fails_alone(run, scripted):
    jobs = [scripted(f"cell{number}", seconds=0.1) for number in range(6)]
    jobs[1] = scripted("cell1", "kill worker")
    found = list(run(*jobs))
    died = finished(found)
    assert re.fullmatch("[2-9] workers died while they had it", died.pop(1))
    assert died == dict.fromkeys([0, 2, 3, 4, 5])
    assert sorted(stored(found)) == [0, 2, 3, 4, 5]


# The command


@pytest.fixture
def start(tmp_path):
    """Start a part of a cluster, or a sweep, as a process of its own."""
    started = []

    def run(*arguments, **options):
        process = subprocess.Popen([sys.executable, "-m", *arguments], **options)
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.wait()


def test_a_lost_scheduler_ends_the_sweep_and_the_same_command_goes_on(start, tmp_path):
    file, out, log = tmp_path / "scheduler.json", tmp_path / "results", tmp_path / "log"
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(EXPERIMENT)

    def cluster():
        file.unlink(missing_ok=True)
        with (tmp_path / "cluster.log").open("a") as noise:
            options = {"stdout": noise, "stderr": noise, "cwd": tmp_path}
            address = ["--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file)]
            scheduler = start(
                "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", *address,
                **options,
            )  # fmt: skip
            while not file.exists():
                assert scheduler.poll() is None
                time.sleep(0.1)
            worker = start(
                "distributed.cli.dask_worker", "--scheduler-file", str(file), "--nthreads", "1",
                "--dashboard-address", "127.0.0.1:0", "--death-timeout", "60", **options,
            )  # fmt: skip
        return scheduler, worker

    def sweep():
        with log.open("w") as text:
            return start(
                "pmbnn.sweep", str(experiment), "--out", str(out), "--scheduler", str(file),
                stdout=text, stderr=text,
            )  # fmt: skip

    scheduler, worker = cluster()
    process = sweep()
    while not any(out.glob("cells/*/metrics.json")):
        assert process.poll() is None, text_of(log)
        time.sleep(0.05)
    scheduler.kill()
    assert process.wait(60) == 3
    *others, last = text_of(log).splitlines()
    assert last.startswith("error: the scheduler tcp://127.0.0.1:")
    assert not [line for line in others if "distributed" in line], "Dask's own words"
    assert last.endswith("finished cells are kept; the same command goes on from here.")
    assert "Traceback" not in text_of(log)
    worker.terminate()
    worker.wait()
    cluster()
    process = sweep()
    assert process.wait(240) == 0, text_of(log)
    assert len(load_results(out).records) == 12
    assert "12 cells, " in text_of(log) and " 0 stored already" not in text_of(log)


EXPERIMENT = """
name: lost
sweeps:
  - name: points
    dataset: {kind: moons, noise: 0.3, train: 60, test: 40, seed: [0, 1, 2, 3]}
    network: {kind: dense, hidden: [[3]]}
    prior: [normal, laplace, cauchy]
    hyperprior: half_normal
    inference: {steps: 50, restarts: 16, validation: 0}
    predict: {draws: 5, trace_draws: 4, map: {resolution: 5}}
"""
