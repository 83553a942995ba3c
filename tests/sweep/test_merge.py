"""Results folders joined: all that belongs together, nothing else, nothing twice.

Cells are made up: nothing is fitted here.
"""

import csv
import io
import json
import shutil

import numpy as np
import pytest
from makers import store_made_up_cells
from rich.console import Console

import pmbnn
from pmbnn.results.store import ResultsError
from pmbnn.sweep.merge import Merged, merge

TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 40, test: 20, seed: [0, 1, 2]}
    network: {kind: dense, hidden: [[2], [3]]}
    prior: normal
    inference: {steps: 10, validation: 0, restarts: 16}
    predict: {draws: 5, trace_draws: 4, map: {resolution: 5}, fresh: {size: 50, draws: 2}}
"""


@pytest.fixture(scope="module")
def fitted():
    """Names of the cells that a made-up worker was asked for; figures are left out."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield store_made_up_cells(
            monkeypatch, lambda task: {"accuracy": int(task.identity, 16) / 16**12}, figures=False
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory, fitted):
    """Three shards of an experiment, beside its file."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "toy.yaml").write_text(TEXT)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.chdir(folder)
        for number in (1, 2, 3):
            pmbnn.run("toy.yaml", shard=(number, 3), quiet=True)
    return folder


@pytest.fixture
def shards(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return [tmp_path / "results" / f"toy-shard-{number}-of-3" for number in (1, 2, 3)]


def joined(folders, out):
    return merge(folders, out, Console(file=io.StringIO()), quiet=True)


def rows(folder, file):
    with (folder / file).open(newline="") as lines:
        table = list(csv.DictReader(lines))
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in table]


def test_shards_joined_are_a_whole_run(shards, tmp_path, fitted):
    out = tmp_path / "results" / "toy"
    assert joined(shards, out) == Merged(copied=6, there=0, left_out=0, missing=0)
    whole = pmbnn.run("toy.yaml", out=tmp_path / "whole", quiet=True)
    assert len(whole.records) == 6
    for file in ("metrics.csv", "summary.csv"):
        assert rows(out, file) == rows(tmp_path / "whole", file)
    before = len(fitted)
    pmbnn.run("toy.yaml", quiet=True)
    assert len(fitted) == before, "a sweep finds every cell stored"
    assert (out / "index.html").is_file()
    assert pmbnn.verify(out) == []


def test_nothing_is_done_twice_and_what_is_missing_is_counted(shards, tmp_path):
    out = tmp_path / "out"
    assert joined(shards[:2], out) == Merged(copied=4, there=0, left_out=0, missing=2)
    times = {path: path.stat().st_mtime_ns for path in out.glob("cells/*/*")}
    assert joined(shards, out) == Merged(copied=2, there=4, left_out=0, missing=0)
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    merged = json.loads((out / "provenance.json").read_text())["merged"]
    assert [one["folder"] for one in merged] == [shard.name for shard in shards]


def test_a_fit_takes_the_place_of_a_failure(shards, tmp_path):
    out = tmp_path / "out"
    results = pmbnn.load_results(shards[0]).results
    (first, *_) = results.cell_names()
    joined(shards[:1], out)
    lost = results.load_record(first).model_copy(update={"status": "error", "results": {}})
    pmbnn.load_results(out).results.save_cell(lost, {})
    assert joined(shards[:1], out).copied == 1
    assert pmbnn.load_results(out).results.load_record(first).results
    results.save_cell(lost, {})
    assert joined(shards[:1], out).copied == 0, "and a failure takes the place of no fit"


def test_cells_that_the_experiment_does_not_have_are_left_out(shards, tmp_path):
    results = pmbnn.load_results(shards[0]).results
    record = results.load_record(results.cell_names()[0])
    results.save_cell(record.model_copy(update={"name": "other"}), {})
    assert joined(shards, tmp_path / "out").left_out == 1
    assert not (tmp_path / "out" / "cells" / "other").exists()


def test_the_same_rows_may_come_from_other_sources(shards, tmp_path):
    """As those of MNIST, from a folder of one machine and from OpenML on another."""
    change(shards[1] / "provenance.json", '"source": "', '"source": "another ')
    assert joined(shards, tmp_path / "out").missing == 0


def change(file, old, new):
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_what_does_not_belong_is_rejected_and_nothing_is_written(shards, tmp_path):
    out, (one, two, three) = tmp_path / "out", shards
    change(two / "experiment.yaml", "noise: 0.3", "noise: 0.4")
    with pytest.raises(ResultsError, match=r"of-3` must be of the same experiment as `.*1-of-3`"):
        joined([one, two], out)
    change(two / "experiment.yaml", "noise: 0.4", "noise: 0.3")
    change(two / "provenance.json", f'"numpy": "{np.__version__}"', '"numpy": "1.0"')
    with pytest.raises(ResultsError, match=r"was fitted with numpy 1\.0, here is .* may be others"):
        joined([one, two], out)
    change(two / "provenance.json", '"numpy": "1.0"', f'"numpy": "{np.__version__}"')
    content = json.loads((two / "provenance.json").read_text())
    fingerprint = content["data"][0]["fingerprint"]
    change(two / "provenance.json", fingerprint, "0" * len(fingerprint))
    with pytest.raises(ResultsError, match="must be of the same data"):
        joined([one, two], out)
    change(two / "provenance.json", "0" * len(fingerprint), fingerprint)
    trace = next(three.glob("cells/*/trace.nc"))
    trace.write_bytes(trace.read_bytes()[:-1] + b"x")
    with pytest.raises(ResultsError, match=r"trace\.nc`: is not what was written.*--repair"):
        joined(shards, out)
    with pytest.raises(ResultsError, match=r"must be a results folder of a sweep"):
        joined([one, tmp_path], out)
    assert not out.exists()


def test_rows_that_python_handed_over_come_with_the_cells(tmp_path, monkeypatch, fitted):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    data = pmbnn.Dataset.from_arrays(x, np.where(x[:, 0] > 0, "a", "b"))
    network = {"kind": "dense", "hidden": [[2]]}
    sweep = {"name": "own", "dataset": data, "network": network, "prior": ["normal", "laplace"]}
    content = {"name": "own", "sweeps": [sweep | {"inference": {"steps": 10}}]}
    before = len(fitted)
    for number in (1, 2):
        pmbnn.run(content, shard=(number, 2), quiet=True)
    folders = sorted((tmp_path / "results").iterdir())
    assert joined(folders, tmp_path / "out").copied == 2
    assert len(list((tmp_path / "out" / "data").glob("*.npz"))) == 1
    assert pmbnn.run(tmp_path / "out" / "experiment.yaml", out=tmp_path / "out", quiet=True)
    assert len(fitted) == before + 2
