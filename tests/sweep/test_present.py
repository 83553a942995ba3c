"""Readers take the cells that the experiment has as it is now, and no others.

Cells are made up: nothing is fitted here, and figures are left out.
"""

import io
import json
import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from makers import ranks, store_made_up_cells
from rich.console import Console
from typer.testing import CliRunner

import pmbnn as pb
from pmbnn.calibration.plan import plan_calibration
from pmbnn.calibration.run import present_ranks
from pmbnn.calibration.store import save_ranks
from pmbnn.cli import app
from pmbnn.core.machine import CPU
from pmbnn.experiment.load import load_experiment
from pmbnn.fitting.progress import RunOptions
from pmbnn.inference.samplers.settings import Mclmc
from pmbnn.prior_predictive.plan import plan_priors
from pmbnn.prior_predictive.run import run_priors
from pmbnn.prior_predictive.store import stored_priors
from pmbnn.results.derived import note_files
from pmbnn.results.loading import restore_cell
from pmbnn.results.names import pairs
from pmbnn.results.present import FILE, checkpoint_name, present_list, superseded_names
from pmbnn.results.store import Results, ResultsError, writing
from pmbnn.sweep import stages
from pmbnn.sweep.check import references
from pmbnn.sweep.merge import merge

TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: table, file: rows.csv, target: what, seed: [0, 1]}
    network: {kind: dense, hidden: [[2]]}
    prior: [normal, laplace]
    hyperprior: {kind: fixed, scale: 1}
    inference: {steps: 10, validation: 0}
    predict: {draws: 5, trace_draws: 4, map: {resolution: 5}}
"""

SHORT = Mclmc(chains=4, draws=16)


@pytest.fixture
def fitted(monkeypatch):
    """Names of the cells that a made-up worker was asked for, which it stores at once."""
    return store_made_up_cells(
        monkeypatch, lambda task: {"accuracy": 0.5, "scale": 1}, figures=False
    )


@pytest.fixture
def file(tmp_path, fitted):
    path = tmp_path / "toy.yaml"
    path.write_text(TEXT)
    write_rows(tmp_path)
    return path


def write_rows(folder, typo=1.0, header="a,b,what", unit=1):
    x = np.random.default_rng(0).normal(size=(40, 2)) * unit
    x[0, 0] *= typo
    lines = [f"{a},{b},{'one' if a > b else 'two'}" for a, b in x]
    (folder / "rows.csv").write_text("\n".join([header, *lines]) + "\n")


def edit(file, old, new):
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def sweep(file, only=()):
    """Sweep a file into the folder beside it; what was printed, as one line."""
    experiment, console = load_experiment(file), Console(file=io.StringIO(), width=10_000)
    wanted = [cell for cell in experiment.cells if not only or cell.prior.kind in only]
    stages.run_experiment(experiment, wanted, file.parent / "out", RunOptions(console, 1))
    return console.file.getvalue()


def present(file):
    return pb.load_results(file.parent / "out")


def names(file):
    return [record.name for record in present(file).records]


def change_plugin(file, monkeypatch):
    monkeypatch.setattr("pmbnn.experiment.plan.sources_of", lambda cell: ["0123"])


CHANGES = {
    "data": lambda file, _: write_rows(file.parent, typo=2.0),
    "plugin": change_plugin,
    "settings": lambda file, _: edit(file, "steps: 10", "steps: 20"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_superseded_cells_are_read_nowhere(file, fitted, monkeypatch, change):
    assert "left behind" not in sweep(file)
    first = names(file)
    change(file, monkeypatch)
    said = sweep(file)
    assert "4 stored cells in" in said and "will be left behind" in said
    assert "4 superseded cells left out" in said
    results = present(file)
    assert len(results.records) == 4 and not set(first) & set(names(file))
    assert results.superseded == 4
    index = (file.parent / "out" / "index.html").read_text()
    assert "<dt>superseded cells</dt><dd>4, left out</dd>" in index and first[0] not in index
    assert set(results.summary["cells"]) == {2}
    assert results.cell(prior="normal", dataset_seed=0).record.name == fitted[4]
    with pytest.raises(ResultsError, match=f"{first[0]}` is superseded: .*pmbnn prune"):
        restore_cell(results.results.cells / first[0])
    # A second time nothing is left behind any more.
    assert "left behind" not in sweep(file)
    assert len(fitted) == 8


def test_what_is_mended_back_is_present_again_without_a_fit(file, fitted):
    sweep(file)
    first = names(file)
    write_rows(file.parent, typo=2.0)
    sweep(file)
    write_rows(file.parent)
    assert "4 cells, 4 stored already, 0 to fit" in sweep(file)
    assert names(file) == first
    assert len(fitted) == 8


def move_rows(file):
    (file.parent / "data").mkdir()
    (file.parent / "rows.csv").rename(file.parent / "data" / "rows.csv")
    edit(file, "file: rows.csv", "file: data/rows.csv")


RENAMES = {
    "sweep": lambda file: edit(file, "- name: toy", "- name: other"),
    "folder of the data": move_rows,
}


@pytest.mark.parametrize("rename", RENAMES.values(), ids=RENAMES)
def test_stored_cells_take_the_names_that_the_experiment_has_now(file, fitted, rename):
    """Or seeds that are added after a change of names would be another combination."""
    sweep(file)
    check(file)
    rename(file)
    edit(file, "seed: [0, 1]", "seed: [0, 1, 2]")
    assert "6 cells, 4 stored already, 2 to fit" in sweep(file)
    records = present(file).records
    assert [r.cell for r in records if not r.cell.is_sampled] == [*load_experiment(file).cells]
    assert sorted(present(file).summary["cells"]) == [2, 2, 3, 3]
    assert len(list(pairs(records))) == 4, "references are those of the fits"


OTHERS = {"names": {"header": "b,a,what"}, "units": {"unit": 4}}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_equal_numbers_of_other_names_or_units_are_fitted_again(file, fitted, change):
    """Their fits would be the same, but they would take new rows for others."""
    sweep(file)
    first, out = names(file), file.parent / "out"
    write_rows(file.parent, **change)
    shutil.copytree(out, file.parent / "shard")
    console = Console(file=io.StringIO(), width=10_000)
    assert merge([file.parent / "shard"], file.parent / "joined", console).missing == 4
    for said in (console.file.getvalue(), sweep(file)):
        assert said.count("was fitted to data of other names or in other units") == 4
    assert names(file) == first and len(fitted) == 8
    assert "4 cells, 4 stored already, 0 to fit" in sweep(file)


def test_the_list_is_of_the_whole_experiment_whatever_was_fitted(file, fitted):
    """Also of a run that was stopped: readers take what is finished of it."""
    sweep(file, only=["laplace"])
    listed = json.loads((file.parent / "out" / FILE).read_text())
    assert len(listed["cells"]) == 4 and listed["format"] == 3
    assert len(names(file)) == 2
    said = sweep(file, only=["normal"])
    assert "left behind" not in said and "superseded" not in said
    assert names(file) == list(listed["cells"])


def stopped(*_):
    """In place of workers: Ctrl-C before anything is stored."""
    raise KeyboardInterrupt
    yield


def test_jobs_that_may_have_checkpoints_are_listed_while_they_do(file, fitted, monkeypatch):
    with monkeypatch.context() as alone, pytest.raises(KeyboardInterrupt):
        alone.setattr(stages, "run_cells", stopped)
        sweep(file)
    listed = json.loads((file.parent / "out" / FILE).read_text())
    assert sorted(name for job in listed["jobs"] for name in job) == sorted(listed["cells"])
    sweep(file)
    assert json.loads((file.parent / "out" / FILE).read_text())["jobs"] == []


def test_a_folder_without_a_list_has_an_older_format(file, fitted):
    sweep(file)
    (file.parent / "out" / FILE).unlink()
    with pytest.raises(ResultsError, match=r"no list of its .*Run the experiment again in this"):
        present(file)
    for command in ("report", "baselines", "compare", "claims", "prune", "check"):
        done = CliRunner().invoke(app, [command, str(file.parent / "out")])
        assert done.exit_code == 2, command
        assert "has no list of its present cells" in done.output
    assert "0 to fit" in sweep(file)
    assert len(names(file)) == len(fitted) == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"format": 4}', "has format 4, this version reads 3: choose another folder"),
        ("{", "cannot be read: JSONDecodeError"),
        ('{"format": 3}', "cannot be read: KeyError"),
        ('{"format": 3, "experiment": "a", "cells": {"../a": ""}}', "must be the name of a cell"),
    ],
)
def test_a_list_that_cannot_be_read_is_an_error_and_changes_nothing(file, fitted, text, words):
    sweep(file)
    (file.parent / "out" / FILE).write_text(text)
    for read in (sweep, present):
        with pytest.raises(ResultsError, match=words):
            read(file)
    assert (file.parent / "out" / FILE).read_text() == text


# Tables and figures that are made of cells


def make_tables(file):
    """Tables and a figure as other commands make them of the present cells."""
    folder = file.parent / "out"
    files = ("baselines.csv", "evidence.csv", "figures/old.png")
    for name in files:
        (folder / name).write_text("made of cells")
    present(file).note_made(files)
    return {folder / name for name in files}


def test_tables_of_other_cells_are_set_aside_by_name(file, fitted):
    folder = file.parent / "out"
    sweep(file)
    made = make_tables(file)
    assert "stale" not in sweep(file)
    assert all(path.is_file() for path in made), "these are of the present cells"
    write_rows(file.parent, typo=2.0)
    said = sweep(file)
    assert (
        "moved to stale/, of other cells or published results than the present ones: "
        "baselines.csv, evidence.csv " in said
    )
    assert "(made anew by `pmbnn baselines`, `pmbnn compare`)" in said
    assert not any(path.exists() for path in made)
    names = {path.name for path in (folder / "stale").iterdir()}
    assert names == {"baselines.csv", "evidence.csv"}
    assert all(name in (folder / "metrics.csv").read_text() for name in present_list(folder).cells)


def test_figures_that_no_sweep_makes_are_kept(file, fitted):
    """A figure of `pmbnn predict` is moved as tables are; one that nobody noted is the user's."""
    folder = file.parent / "out"
    sweep(file)
    for name in ("own-images.png", "mine.png"):
        (folder / "figures" / name).write_text("drawn")
    results = present(file)
    note_files(results.results, ["figures/own-images.png"], results.digest, "predict")
    assert [path.name for path in present(file).figures] == ["own-images.png"]
    write_rows(file.parent, typo=2.0)
    assert "figures/own-images.png (made anew by `pmbnn predict`)" in sweep(file)
    assert (folder / "stale" / "figures" / "own-images.png").is_file()
    assert (folder / "figures" / "mine.png").is_file()
    assert "mine.png" not in prune(file)


def test_a_run_that_is_stopped_leaves_nothing_of_other_cells(file, fitted, monkeypatch):
    folder = file.parent / "out"
    sweep(file)
    made = make_tables(file)
    write_rows(file.parent, typo=2.0)
    with monkeypatch.context() as alone, pytest.raises(KeyboardInterrupt):
        alone.setattr(stages, "run_cells", stopped)
        sweep(file)
    assert not any(path.exists() for path in made)
    assert [path.name for path in folder.glob("*.csv")] == ["times.csv"]
    assert not (folder / "index.html").exists()


def test_a_table_of_fewer_cells_is_stale(file, fitted):
    sweep(file, only=["normal"])
    made = make_tables(file)
    assert not present(file).is_stale("baselines.csv")
    sweep(file)
    assert not any(path.exists() for path in made)


def test_verdicts_on_other_contrasts_are_stale(file, fitted):
    """Also by another margin: the page would have it beside verdicts by the earlier one."""
    sweep(file)
    folder, text = file.parent / "out", file.read_text()
    for changed in (f"margin: 0.01{text}", text):
        for name in ("compare.csv", "evidence.csv"):
            (folder / name).write_text("made of cells")
        present(file).note_made(["compare.csv", "evidence.csv"])
        assert "stale" not in sweep(file)
        file.write_text(changed)
        said = sweep(file)
        assert "moved to stale/, of other cells or contrasts than the present ones: compare" in said
        assert (folder / "evidence.csv").is_file() and not (folder / "compare.csv").exists()


def test_a_moved_folder_keeps_its_tables(file, fitted):
    sweep(file)
    make_tables(file)
    copy = shutil.copytree(file.parent / "out", file.parent / "copy", copy_function=shutil.copyfile)
    moved = pb.load_results(copy)
    assert not moved.is_stale("baselines.csv")
    assert [path.name for path in moved.figures] == ["old.png"]
    assert moved.is_stale("claims.csv")


# Cells that `pmbnn check` sampled


def check(file):
    folder, options = file.parent / "out", RunOptions(Console(file=io.StringIO()), 1, quiet=True)
    wanted = references(folder, SHORT)
    cells = wanted.cells
    stages.run_experiment(wanted.experiment, cells, folder, options, are_references=True)


def sampled(file):
    return [record.name for record in present(file).records if record.cell.is_sampled]


def test_references_stay_present_as_long_as_their_fits_do(file, fitted):
    sweep(file)
    check(file)
    before = sampled(file)
    assert len(before) == 4
    said = sweep(file)
    assert "left behind" not in said and "superseded" not in said
    assert sampled(file) == before
    assert len(list(pairs(present(file).records))) == 4
    assert all(name in (file.parent / "out" / "metrics.csv").read_text() for name in before)
    edit(file, "prior: [normal, laplace]", "prior: laplace")
    assert "4 stored cells in" in sweep(file)
    assert sampled(file) == [name for name in before if "laplace" in name]
    write_rows(file.parent, typo=2.0)
    sweep(file)
    assert sampled(file) == []
    write_rows(file.parent)
    sweep(file)
    assert sampled(file) == [name for name in before if "laplace" in name]
    assert len(fitted) == 10, "nothing is sampled or fitted twice"


def test_sampled_cells_of_the_experiment_itself_are_no_references(file, fitted):
    """What the file samples is superseded once the file samples it in another way."""
    edit(file, "inference: {steps: 10, validation: 0}", "inference: [{engine: smc, draws: 20}]")
    sweep(file)
    before = sampled(file)
    edit(file, "draws: 20", "draws: 30")
    assert "4 stored cells in" in sweep(file)
    assert not set(sampled(file)) & set(before)


def test_references_are_merged_with_their_fits(file, fitted):
    sweep(file)
    check(file)
    sweep(file)
    out = file.parent / "out"
    shutil.copytree(out / "cells" / fitted[0], out / "cells" / "other")
    merge([out], file.parent / "joined", Console(file=io.StringIO()), quiet=True)
    assert present_list(file.parent / "joined").cells == present_list(out).cells
    assert superseded_names(file.parent / "joined") == []


# Before anything is fitted


def test_a_dry_run_says_what_other_settings_leave_behind(file, fitted):
    sweep(file)
    check(file)

    def planned():
        asked = ["sweep", str(file), "--out", str(file.parent / "out"), "--dry-run"]
        done = CliRunner().invoke(app, asked)
        assert done.exit_code == 0, done.output
        return done.output

    assert "left behind" not in planned()
    edit(file, "steps: 10", "steps: 20")
    assert "4 stored cells in" in planned()
    assert json.loads((file.parent / "out" / FILE).read_text())["references"] == sampled(file)


# Removing what is superseded


def prune(file, *arguments):
    done = CliRunner().invoke(app, ["prune", str(file.parent / "out"), *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def held(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_prune_removes_what_is_superseded_and_nothing_else(file, fitted):
    folder = file.parent / "out"
    sweep(file)
    before = held(folder)
    assert prune(file) == "nothing superseded\n"
    assert held(folder) == before
    first = names(file)
    make_tables(file)
    write_rows(file.parent, typo=2.0)
    sweep(file)
    (folder / "cells" / f".broken-{names(file)[0]}").mkdir()
    (folder / "figures" / "old.png").write_text("of superseded cells")
    note_files(present(file).results, ["figures/old.png"], "digest of others")
    (folder / "checkpoints" / "of-no-job").mkdir(parents=True)
    before = held(folder)
    planned = prune(file, "--dry-run").splitlines()
    assert held(folder) == before, "nothing is removed yet"
    for name in (*first, "stale", "figures/old.png", ".broken-", "of-no-job"):
        assert sum(name in line for line in planned) == 1, name
    assert len(planned) == len(first) + 5
    sizes = [path.stat().st_size for path in (folder / "cells" / first[0]).iterdir()]
    words = f"{first[0]} ({sum(sizes):,} bytes): a superseded cell"
    assert any(line.endswith(words) for line in planned)
    assert planned[-1].endswith("bytes would be removed")
    assert prune(file).splitlines()[:-1] == planned[:-1]
    results = present(file)
    assert results.superseded == 0 and results.results.cell_names() == sorted(names(file))
    assert prune(file) == "nothing superseded\n"
    sweep(file)
    assert len(fitted) == 8
    write_rows(file.parent)
    assert "4 to fit" in sweep(file)


def test_prune_keeps_failed_cells_and_checkpoints_that_a_job_goes_on_from(
    file, fitted, monkeypatch
):
    folder = file.parent / "out"
    sweep(file, only=["normal"])
    with monkeypatch.context() as alone, pytest.raises(KeyboardInterrupt):
        alone.setattr(stages, "run_cells", stopped)
        sweep(file)
    listed = json.loads((folder / FILE).read_text())
    for job in listed["jobs"]:
        (folder / "checkpoints" / checkpoint_name(job)).mkdir(parents=True)
    results = present(file).results
    lost = present(file).records[0].model_copy(update={"status": "error", "results": {}})
    results.save_cell(lost, {})
    broken = next(name for name in listed["cells"] if name not in names(file))
    (results.cells / f".broken-{broken}").mkdir()
    for path in folder.glob("*.csv"):
        path.unlink()  # of other cells since
    (folder / "index.html").unlink()
    assert prune(file) == "nothing superseded\n"
    assert len(list((folder / "checkpoints").iterdir())) == len(listed["jobs"]) > 0


def test_prune_respects_a_writer(file, fitted):
    sweep(file)
    with writing(file.parent / "out"):
        done = CliRunner().invoke(app, ["prune", str(file.parent / "out")])
        assert done.exit_code == 3
        assert "is being written by" in done.output
        prune(file, "--dry-run")
    missing = CliRunner().invoke(app, ["prune", str(file.parent / "gone")])
    assert missing.exit_code == 2
    assert not (file.parent / "gone").exists()


# Ranks and priors of the experiment as it was


def test_ranks_of_other_data_leave_the_table(file, fitted):
    folder = file.parent / "out"
    experiment = load_experiment(file)
    Results(folder).prepare()
    task, *_ = plan_calibration(experiment, simulations=10).tasks
    made = {"draws": task.draws, "restarts": task.restarts, "truths": task.truths}
    stored = ranks(simulations=10, **made)
    save_ranks(Results(folder), replace(stored, name=task.name))
    save_ranks(Results(folder), replace(stored, name=f"{task.name[:-12]}{'0' * 12}"))
    table = folder / "calibration.csv"
    table.write_text("name\nold\n")
    sweep(file)
    assert set(pd.read_csv(table)["name"]) == {task.name}
    write_rows(file.parent, typo=2.0)
    sweep(file)
    assert not table.exists()
    write_rows(file.parent)
    assert len(present_ranks(Results(folder), load_experiment(file), [CPU], {})) == 1


@pytest.mark.slow
def test_priors_of_other_data_leave_the_table(file, fitted):
    folder, console = file.parent / "out", Console(file=io.StringIO())
    experiment = load_experiment(file)
    plan = plan_priors(experiment, experiment.cells)
    found, _ = run_priors(experiment, plan, folder, RunOptions(console, 1, quiet=True))
    sweep(file)
    assert {prior.name for prior in stored_priors(Results(folder))} == {p.name for p in found}
    write_rows(file.parent, typo=2.0)
    sweep(file)
    assert stored_priors(Results(folder)) == []
    assert sum("/prior/" in line for line in prune(file).splitlines()) >= len(found)
