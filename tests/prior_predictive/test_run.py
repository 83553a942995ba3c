"""What priors say, from the command to the results folder: written whole, resumed, drawn beside."""

import io
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
from makers import list_present, plane_trace
from rich.console import Console
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.selection import select_cells
from pmbnn.fitting import progress
from pmbnn.fitting.progress import RunOptions
from pmbnn.prior_predictive import evaluate, figure
from pmbnn.prior_predictive import run as module
from pmbnn.prior_predictive.plan import plan_priors
from pmbnn.prior_predictive.run import run_priors
from pmbnn.prior_predictive.store import (
    figure_path,
    load_functions,
    posterior_beside,
    stored_priors,
    summary,
)
from pmbnn.results.integrity import verify
from pmbnn.results.store import Results, trace_writer
from pmbnn.sweep.cells import prepare

TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 40, test: 20, seed: [0, 1]}
    network: {kind: dense, hidden: [[2]]}
    prior: [normal, flat]
    hyperprior: [{kind: fixed, scale: {tune: {log: [0.1, 10, 3]}}}, half_normal]
    inference: [{steps: 60, kl_weight: [1, 0.1]}, mclmc]
    predict: {draws: 10, map: {resolution: 6}}
"""

CURVES = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: sine, train: 8}
    network: {kind: dense, hidden: [[2]]}
    prior: cauchy
    hyperprior: half_normal
    inference: {steps: 60}
"""


def run_here(tasks, folder, *_, **__):
    """Tasks one after the other in this process, with the settings that it has."""
    reasons, programs = {}, None
    for task in tasks:
        stored = partial(reasons.__setitem__, task.name)
        programs = task.run(folder, stored, programs)
    return {name: reason for name, reason in reasons.items() if reason is not None}


@pytest.fixture(scope="module", autouse=True)
def few():
    """Few draws, in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "DRAWS", 40)
        patch.setattr(evaluate, "AT_ONCE", 20)
        patch.setattr(module, "run_tasks", run_here)
        yield


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("experiment") / "toy.yaml"
    path.write_text(TEXT)
    return path


def run(file, folder, only=(), **options):
    experiment, console = load_experiment(file), Console(file=io.StringIO(), width=500)
    cells = select_cells(list(experiment.cells), list(only))
    plan = plan_priors(experiment, cells)
    found, failed = run_priors(experiment, plan, folder, RunOptions(console, 1, **options))
    return found, failed, console.file.getvalue()


def written(folder):
    """Files that are the same whenever they were written, and when that was."""
    paths = [*folder.glob("prior/*"), folder / "prior.csv"]
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}


@pytest.fixture(scope="module")
def whole(few, file, tmp_path_factory):
    """A folder with all priors of the experiment; tests copy it."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    run(file, folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "out")


def test_a_row_and_a_figure_for_each_prior(whole):
    table = pd.read_csv(whole / "prior.csv")
    assert list(table["hyperprior.scale"].dropna()) == pytest.approx([0.1, 1, 10])
    assert list(table["candidate"]) == [True, True, True, False]
    assert set(table["dataset.seed"]) == {0}
    measured = ["constant", "expected_entropy", "entropy", "boundary_length", "saturated"]
    for name in (*measured, "common_class"):
        assert table[name].notna().all() and (table[f"{name}_mcse"] >= 0).all()
    # Entropies of wide priors are smaller, and their units more saturated.
    assert table["expected_entropy"][:3].is_monotonic_decreasing
    assert table["saturated"][:3].is_monotonic_increasing
    for name in table["name"]:
        assert (whole / "prior" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        functions = load_functions(Results(whole), name)["predictions"]["function"]
        assert functions.sizes["function"] == 8
    assert not list(whole.glob(".part-*"))


def test_a_second_run_does_nothing(folder, file):
    before = written(folder)
    found, failed, said = run(file, folder)
    assert "4 priors, 4 stored already, 0 to draw from" in said
    assert "left out: prior flat: improper" in said
    after = written(folder)
    assert {k: v for k, v in after.items() if k != "prior.csv"} == {
        k: v for k, v in before.items() if k != "prior.csv"
    }
    assert after["prior.csv"][0] == before["prior.csv"][0]
    assert len(found) == 4 and not failed
    headings, rows, _ = summary(found)
    assert headings[:5] == ["data", "network", "prior", "hyperprior", "constant"]
    assert [row[3] for row in rows][2:] == ["fixed 10 (candidate)", "half-normal"]


def test_what_was_interrupted_goes_on_to_the_same_numbers(file, folder, whole, monkeypatch):
    evaluate_prior, done = evaluate.evaluate_prior, []
    for path in [*folder.glob("prior/*half_normal*"), *sorted(folder.glob("prior/*.nc"))[:1]]:
        path.unlink()
    left = len(list(folder.glob("prior/*.nc")))

    def interrupted(*arguments):
        if done:
            raise KeyboardInterrupt
        done.append(arguments)
        return evaluate_prior(*arguments)

    with monkeypatch.context() as alone, pytest.raises(KeyboardInterrupt):
        alone.setattr(evaluate, "evaluate_prior", interrupted)
        run(file, folder)
    assert left == 2 and len(list(folder.glob("prior/*.nc"))) == 3
    *_, said = run(file, folder)
    assert "3 stored already, 1 to draw from" in said
    assert (folder / "prior.csv").read_text() == (whole / "prior.csv").read_text()


def test_only_and_fresh(folder, file):
    before = written(folder)
    only = ["hyperprior=half_normal", "dataset.seed=1"]
    found, _, said = run(file, folder, only, fresh=True)
    assert "1 priors, 0 stored already, 1 to draw from" in said
    after = written(folder)
    assert after["prior.csv"][0] == before["prior.csv"][0]
    changed = [name for name in before if after[name][1] != before[name][1]]
    assert {name.rpartition("-")[0].rpartition("_")[2] for name in changed} == {"", "normal"}
    assert len(found) == 4, "the table is of the whole experiment"


def test_what_cannot_be_drawn_from_is_a_failure_with_its_reason(file, tmp_path, monkeypatch):
    def refuse(*arguments):
        raise ValueError("it has a potential")

    monkeypatch.setattr(evaluate, "evaluate_prior", refuse)
    found, failed, _ = run(file, tmp_path / "out", ["hyperprior=half_normal"])
    assert found == []
    assert list(failed.values()) == ["ValueError: it has a potential"]
    assert not (tmp_path / "out" / "prior.csv").exists()


def test_a_broken_figure_is_found(folder):
    (folder / "cells").mkdir(exist_ok=True)
    path = next(folder.glob("prior/*.png"))
    path.write_bytes(b"not a figure")
    assert [problem.path for problem in verify(folder)] == [path]


# Beside posteriors


def stored_cells(file, folder, **fields):
    """Made-up cells of the experiment, by their record; each chose the scale 1."""
    made = prepare(load_experiment(file), folder)
    made.results.prepare()
    records = []
    for cell, task in made.tasks.items():
        scale = 1.0 if cell.hyperprior.kind == "fixed" else None
        known = {"predictive": "class_probabilities", "results": {"accuracy": 0.5, "scale": scale}}
        record = task.record(status="converged", **(known | fields))
        trace = trace_writer(plane_trace(resolution=(6, 6), points=10))
        records.append(made.results.save_cell(record, {"trace.nc": trace}))
    list_present(made.results)
    return records


def test_the_posterior_beside_a_prior(file, whole, tmp_path):
    """Sampled, else fitted to it; of the chosen scale; of the data seed looked at."""
    records = stored_cells(file, tmp_path / "cells")
    *candidates, learned = stored_priors(Results(whole))
    narrow, chosen, wide = (posterior_beside(prior, records) for prior in candidates)
    assert (narrow, wide) == (None, None)
    for record in (chosen, posterior_beside(learned, records)):
        assert record.settings["inference"]["engine"] == "mclmc"
        assert record.settings["dataset"]["seed"] == 0
        assert record.settings["prior"]["kind"] == "normal"
    fitted = [r for r in records if r.settings["inference"]["engine"] != "mclmc"]
    beside = posterior_beside(learned, fitted)
    assert beside.settings["inference"]["kl_weight"] == 1
    tempered = [r for r in fitted if r.settings["inference"]["kl_weight"] != 1]
    assert posterior_beside(learned, tempered) is None
    undecided = [r.model_copy(update={"status": "undecided"}) for r in records]
    both = [*undecided, *records]
    assert posterior_beside(learned, both).status == "converged"
    assert posterior_beside(learned, undecided).status == "undecided"


@pytest.mark.slow
def test_figures_are_drawn_again_once_there_is_a_posterior(file, folder, words):
    results = Results(folder)
    assert figure.outdated_priors(results, []) == []
    records = stored_cells(file, folder)
    due = figure.outdated_priors(results, records)
    assert len(due) == 4
    drawn = [" ".join(words(drawing.draw())) for drawing in due]
    assert ["another scale was chosen" in text for text in drawn] == [True, False, True, False]
    assert ["posterior by MCLMC, converged" in text for text in drawn] == [False, True, False, True]
    assert not any("no cell here yet" in text for text in drawn)
    run(file, folder)
    assert figure.outdated_priors(results, records) == []
    records = [record.model_copy(update={"seconds": 7.0}) for record in records]
    assert len(figure.outdated_priors(results, records)) == 4


@pytest.mark.slow
def test_curves_are_drawn(tmp_path, words):
    (tmp_path / "toy.yaml").write_text(CURVES)
    (prior,), *_ = run(tmp_path / "toy.yaml", tmp_path / "out")
    results = Results(tmp_path / "out")
    assert figure_path(results, prior.name).is_file()
    assert prior.numbers["output_range"] > 0
    text = " ".join(words(figure.draw_prior(results, prior, None)))
    assert "no cell here yet" in text
    assert "x from −1.5 to 1.5" in text


# The command


def invoke(*arguments):
    return CliRunner().invoke(app, ["prior", *map(str, arguments)])


@pytest.mark.slow
def test_the_command(file, tmp_path, monkeypatch):
    """With worker processes, which draw as many functions as users get."""
    monkeypatch.setattr(module, "run_tasks", progress.run_tasks)
    done = invoke(file, "--out", tmp_path / "out", "--only", "hyperprior=half_normal", "--quiet")
    assert done.exit_code == 0, done.output
    assert "Functions drawn from the prior" in done.output
    assert not (tmp_path / "out" / "metrics.csv").exists()
    assert np.isfinite(pd.read_csv(tmp_path / "out" / "prior.csv")["constant"]).all()


@pytest.mark.parametrize(("failed", "status"), [({}, 0), ({"normal": "no luck"}, 1)])
def test_the_exit_status_tells_whether_all_priors_were_drawn_from(
    failed, status, file, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "run_priors", lambda *_: ([], failed))
    done = invoke(file, "--out", tmp_path / "out")
    assert done.exit_code == status, done.output


def test_a_flat_prior_alone_is_an_error(file, tmp_path):
    done = invoke(file, "--out", tmp_path / "out", "--only", "prior=flat")
    assert done.exit_code == 2
    assert "error: There must be a prior to draw from: prior flat: improper" in done.output
    assert not (tmp_path / "out").exists()


def test_the_plan(file, tmp_path):
    done = invoke(file, "--out", tmp_path / "out", "--dry-run")
    assert done.exit_code == 0
    assert done.output.startswith("toy: 4 combinations, nothing is fitted")
    assert "left out: prior flat" in done.output
    assert not (tmp_path / "out").exists()
