"""What follows from stored cells is made where it is missing, and what is broken is fitted again.

Cells are made up: nothing is fitted here but where it says so.
"""

import io
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import xarray as xr
from makers import store_made_up_cells
from rich.console import Console

import pmbnn
from pmbnn.experiment.load import load_experiment
from pmbnn.fitting.progress import RunOptions
from pmbnn.results.loading import load_results
from pmbnn.results.store import FolderBusyError, Results, ResultsError, writing
from pmbnn.sweep import stages
from pmbnn.sweep.cells import prepare

TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 40, test: 20, seed: [0, 1]}
    network: {kind: dense, hidden: [[2]]}
    prior: normal
    hyperprior: half_normal
    inference: {steps: 10, validation: 0}
    predict: {draws: 5, trace_draws: 4, map: {resolution: 5}, fresh: {size: 50, draws: 2}}
"""


def results_of(task):
    return {"accuracy": 0.5}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    file = tmp_path_factory.mktemp("experiment") / "toy.yaml"
    file.write_text(TEXT)
    return load_experiment(file)


@pytest.fixture
def fitted(monkeypatch):
    """Names of the cells that a made-up worker was asked for, which it stores at once."""
    return store_made_up_cells(monkeypatch, results_of)


@pytest.fixture
def undrawn(monkeypatch):
    """The same, where no figures are drawn."""
    return store_made_up_cells(monkeypatch, results_of, figures=False)


@pytest.fixture(scope="module")
def whole(experiment, tmp_path_factory):
    """Results folder of the experiment, what was printed, and names of the cells; only read."""
    with pytest.MonkeyPatch.context() as alone:
        names = store_made_up_cells(alone, results_of)
        folder = tmp_path_factory.mktemp("whole") / "out"
        return folder, sweep(experiment, folder)[1], names


@pytest.fixture
def out(whole, tmp_path):
    """A copy of that folder, which a test may change."""
    return shutil.copytree(whole[0], tmp_path / "out")


def sweep(experiment, folder, **options):
    console = Console(file=io.StringIO(), width=500)
    settings = RunOptions(console, 1, **options)
    outcome = stages.run_experiment(experiment, experiment.cells, folder, settings)
    return outcome, console.file.getvalue()


def written(folder):
    """Every file but those that say when, with its content."""
    names = (".lock", "provenance.json", "times.csv", "index.html", "derived.json")
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in names]
    derived = json.loads((folder / "derived.json").read_text())
    del derived["index.html"]
    return {path.relative_to(folder): path.read_bytes() for path in files} | {
        Path("derived.json"): derived
    }


def test_a_second_run_fits_and_draws_nothing(experiment, fitted, whole, out):
    before = written(out)
    assert {"metrics.csv", "summary.csv"} <= {path.name for path in out.iterdir()}
    assert (out / "index.html").is_file()
    assert len(list(out.rglob("map.png"))) == 2
    _, again = sweep(experiment, out)
    assert len(whole[2]) == 2 and not fitted
    assert "drawing figure 0/" in whole[1] and "drawing" not in again
    assert written(out) == before


@pytest.mark.parametrize("name", ["metrics.csv", "index.html", "map.png", "summary.csv"])
def test_what_is_missing_is_made_again(experiment, fitted, out, name):
    before = written(out)
    next(out.rglob(name)).unlink()
    sweep(experiment, out)
    assert not fitted
    assert written(out) == before and (out / "index.html").is_file()


def test_a_broken_cell_is_named_and_fitted_again(experiment, fitted, whole, out):
    before, (_, second) = written(out), whole[2]
    trace = out / "cells" / second / "trace.nc"
    trace.write_bytes(trace.read_bytes()[:-1])
    _, shown = sweep(experiment, out)
    assert fitted == [second]
    assert f"set aside, to be fitted again: `{trace}`: has" in shown
    aside = out / "cells" / f".broken-{second}"
    assert aside.is_dir()
    now = {k: v for k, v in written(out).items() if aside.name not in k.parts}
    # A trace says when it was written, and so the note of which cells a file was made says another.
    other = {k.name for k in before if now.get(k) != before[k]}
    assert other <= {"trace.nc", "metrics.json", "derived.json"}
    read = [Results(folder).load_trace(second) for folder in (out, whole[0])]
    xr.testing.assert_identical(*read)


def test_a_folder_of_another_format_is_rejected_as_it_is(experiment, fitted, tmp_path):
    old = tmp_path / "out" / "cells" / "old"
    old.mkdir(parents=True)
    (old / "metrics.json").write_text('{"sweep": "toy", "name": "old", "results": {}}')
    with pytest.raises(ResultsError, match="was written by a version before format 3.*`--out`"):
        sweep(experiment, tmp_path / "out")
    assert not fitted
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"cells", ".lock"}


def test_a_second_writer_changes_nothing(experiment, fitted, tmp_path):
    folder = tmp_path / "out"
    with writing(folder), pytest.raises(FolderBusyError, match=str(os.getpid())):
        sweep(experiment, folder)
    assert not fitted
    assert not (folder / "experiment.yaml").exists()


def test_readers_work_beside_a_writer(out):
    with writing(out):
        assert len(load_results(out).records) == 2


def test_failed_cells_are_reported(experiment, undrawn, tmp_path):
    run = prepare(experiment, tmp_path / "out")
    first, second = run.tasks.values()
    run.results.prepare()
    run.results.save_cell(first.record(status="diverged", reason="as scripted"), {})
    outcome, _ = sweep(experiment, tmp_path / "out")
    assert [record.name for record in outcome.failed] == [first.name]
    assert undrawn == [second.name], "a fit that diverged would diverge again"


def test_run_takes_a_file_or_an_experiment(experiment, undrawn, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(TEXT)
    found = pmbnn.run("toy.yaml", only=["dataset.seed=1"], quiet=True)
    assert found.results.folder.resolve() == (tmp_path / "results" / "toy").resolve()
    assert [r.settings["dataset"]["seed"] for r in found.records] == [1]
    renamed = replace(experiment, name="other")
    assert len(pmbnn.run(renamed, quiet=True).records) == 2
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(("there", "warned"), [(1e9, True), (1e12, False), (None, False)])
def test_a_sweep_says_beforehand_what_does_not_fit(
    experiment, undrawn, tmp_path, monkeypatch, there, warned
):
    for module in ("pmbnn.sweep.stages", "pmbnn.experiment.cost"):
        monkeypatch.setattr(f"{module}.total_memory", lambda: there)
    console = Console(file=io.StringIO(), width=300)
    stages.run_experiment(
        experiment, list(experiment.cells), tmp_path / "out", RunOptions(console, 2)
    )
    text = console.file.getvalue()
    assert ("TOO MUCH for this machine" in text) == warned
    assert ("too large: toy moons dense-2" in text) == warned
