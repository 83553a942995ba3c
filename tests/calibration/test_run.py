"""A calibration from its experiment to its table: what is left out, resumed, written."""

import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from pmbnn.calibration.plan import plan_calibration
from pmbnn.calibration.ranks import FAILED
from pmbnn.calibration.run import calibrate
from pmbnn.calibration.store import load_ranks, save_ranks
from pmbnn.calibration.table import FILE, calibration_table, notes
from pmbnn.cli import app
from pmbnn.core.machine import CPU, Device
from pmbnn.core.stages import StageUpdate
from pmbnn.experiment.load import ConfigError, load_experiment
from pmbnn.fitting import progress
from pmbnn.fitting.progress import RunOptions
from pmbnn.fitting.workers import Finished, Progressed, Stored
from pmbnn.results.store import Results

TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 60, test: 40}
    network: {kind: dense, hidden: [[2]]}
    prior: %s
    hyperprior: %s
    inference: %s
    predict: {draws: [10, 20]}
"""


def experiment(tmp_path, prior="normal", hyperprior="fixed", inference="{steps: 60}"):
    (file := tmp_path / "toy.yaml").write_text(TEXT % (prior, hyperprior, inference))
    return file


def plan(file, only=(), **asked):
    return plan_calibration(load_experiment(file), only, **asked)


# The plan


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"prior": "[normal, flat]"}, "prior flat: improper"),
        (
            {"hyperprior": "[fixed, {kind: fixed, scale: {tune: {log: [0.1, 10, 3]}}}]"},
            "tuned scales: give a fixed one",
        ),
        ({"inference": "[{steps: 60}, {guide: map}]"}, "guide map: a point has no draws"),
        (
            {"inference": "[{steps: 60}, {learning_rate: {tune: {log: [0.1, 1, 3]}}}]"},
            "learning rates to be searched for",
        ),
        (
            {"inference": "[{steps: 60}, {engine: mclmc, chains: 2, draws: 40}]"},
            "mclmc with fewer than 99 draws",
        ),
    ],
)
def test_what_cannot_be_calibrated_is_named(tmp_path, settings, reason):
    found = plan(experiment(tmp_path, **settings))
    # Cells that differ in what is predicted are one combination.
    (task,) = found.tasks
    assert task.cell.prior.kind == "normal"
    (line,) = found.left_out
    assert line.startswith(reason)


def test_simulations_on_a_gpu_are_combinations_of_their_own(tmp_path):
    """Hundreds of them in a program; another of its like is the same device."""
    file = experiment(tmp_path)
    devices = [(CPU,), (Device("gpu", 0),), (Device("gpu", 1), Device("gpu", 2))]
    (on_cpu,), (on_gpu,), (on_two,) = (plan(file, devices=of).tasks for of in devices)
    assert (on_cpu.width, on_gpu.width) == (16, 256)
    assert plan(file).tasks == (on_cpu,)
    assert on_gpu == on_two
    assert on_gpu.identity != on_cpu.identity


def test_nothing_left_is_an_error(tmp_path):
    file = experiment(tmp_path, prior="[normal, flat]")
    with pytest.raises(ConfigError, match="There must be something to calibrate: prior flat"):
        plan(file, ["prior=flat"])
    with pytest.raises(ConfigError, match="prior"):
        plan(file, ["prior=cauchy"])


def test_no_more_truths_around_the_data_than_the_posterior_has_draws(tmp_path):
    file = experiment(tmp_path, inference="[{steps: 60}, {engine: mclmc, chains: 4, draws: 30}]")
    assert len(plan(file, simulations=120, truths="posterior").tasks) == 2
    words = "at most 120 around the data.*normal × fixed, .* mclmc.*; got 121"
    with pytest.raises(ConfigError, match=words):
        plan(file, simulations=121, truths="posterior")
    # A fitted cell's posterior is sampled by MCLMC as it is by default.
    only = ["inference.steps=60"]
    assert plan(file, only, simulations=6400, truths="posterior")
    with pytest.raises(ConfigError, match="at most 6400"):
        plan(file, only, simulations=6401, truths="posterior")
    assert plan(file, simulations=9000)


def test_identities_depend_on_what_decides_a_rank(tmp_path):
    file = experiment(tmp_path, inference="{steps: 60, restarts: 3}")
    (first,) = plan(file).tasks
    assert first.restarts == 3
    assert first.width == 15  # whole restarts of 3
    (more,) = plan(file, simulations=900).tasks
    assert (more.name, more.simulations) == (first.name, 900)
    others = [
        *plan(file, draws=49).tasks,
        *plan(file, restarts=1).tasks,
        *plan(file, truths="posterior").tasks,
        *plan(experiment(tmp_path, inference="{steps: 61, restarts: 3}")).tasks,
    ]
    assert len({first.name, *(task.name for task in others)}) == 5
    assert "-posterior-" in others[2].name


# The run, with workers that are scripted


@pytest.fixture
def scripted(made, monkeypatch):
    """Workers that store uniform ranks, or do what the list says."""
    done = []

    def run_jobs(tasks, folder, workers, single_threaded, plugins, devices):
        for number, task in enumerate(tasks):
            done.append(task.name)
            yield Progressed(number, (StageUpdate("simulate", 5, task.simulations),))
            if task.cell.prior.kind == "laplace":
                yield Stored(number, "ValueError: no luck")
            elif task.cell.prior.kind == "cauchy":
                yield Finished(number, "the worker process was ended by SIGKILL")
                continue
            else:
                own = {"name": task.name, "cell": task.cell, "truths": task.truths}
                ranks = made.ranks("narrow", simulations=task.simulations)
                save_ranks(Results(folder), replace(ranks, **own))
                yield Stored(number, None)
            yield Finished(number)

    monkeypatch.setattr(progress, "run_jobs", run_jobs)
    return done


def test_failures_do_not_stop_the_others(tmp_path, scripted):
    file = experiment(tmp_path, prior="[normal, laplace, cauchy]")
    console = Console(file=io.StringIO(), width=200)
    one = load_experiment(file)
    asked = plan(file, simulations=300)
    table, failed = calibrate(one, asked, tmp_path / "out", RunOptions(console, workers=1))
    assert len(scripted) == 3
    assert sorted(failed.values()) == [
        "ValueError: no luck",
        "the worker process was ended by SIGKILL",
    ]
    assert list(table["verdict"]) == ["calibrated", "miscalibrated"]
    text = console.file.getvalue()
    assert "3 combinations, 3 to simulate" in text
    assert (
        "[2/3] laplace × fixed, moons-noise0.3-train60-test40-seed0 dense-2 steps60: failed" in text
    )


def test_a_combination_whose_fits_all_diverged_has_no_figure(tmp_path, scripted, made):
    file, out = experiment(tmp_path), tmp_path / "out"
    one, asked = load_experiment(file), plan(file, simulations=60)
    (task,) = asked.tasks
    results = Results(out)
    results.prepare()
    ranks = made.ranks("narrow", simulations=60)
    failed = np.full_like(ranks.ranks, FAILED)
    own = {"name": task.name, "cell": task.cell, "truths": task.truths, "ranks": failed}
    save_ranks(results, replace(ranks, **own))
    table, _ = calibrate(one, asked, out, RunOptions(Console(file=io.StringIO()), workers=1))
    assert not scripted
    assert table["failed"].tolist() == [60, 60]
    assert not list((out / "calibration").glob("*.png"))


def test_numbers_of_restarts_are_combinations_of_their_own(tmp_path):
    file = experiment(tmp_path, inference="{steps: 60, restarts: [1, 3]}")
    assert [task.restarts for task in plan(file).tasks] == [1, 3]
    assert [task.restarts for task in plan(file, restarts=2).tasks] == [2]


def test_what_is_there_stays_and_more_goes_on(tmp_path, scripted):
    file, out = experiment(tmp_path), tmp_path / "out"

    def run(*arguments):
        done = CliRunner().invoke(app, ["calibrate", str(file), "--out", str(out), *arguments])
        assert done.exit_code == 0, done.output
        return done.output

    output = run("--simulations", "60")
    table = pd.read_csv(out / FILE)
    assert table["simulations"].tolist() == [60, 60]
    assert "1 of 2" in output
    (figure,) = (out / "calibration").glob("*.png")
    assert figure.read_bytes().startswith(b"\x89PNG")
    before = figure.stat().st_mtime_ns
    run("--simulations", "50")
    assert len(scripted) == 1
    assert figure.stat().st_mtime_ns == before
    run("--simulations", "80")
    assert len(scripted) == 2
    assert figure.stat().st_mtime_ns > before
    assert len(load_ranks(Results(out), figure.stem).numbers) == 80
    # Ranks of a run that was interrupted before it drew its figures.
    ranks = load_ranks(Results(out), figure.stem)
    save_ranks(Results(out), replace(ranks, ranks=ranks.ranks[:70], numbers=ranks.numbers[:70]))
    old = figure.read_bytes()
    run("--simulations", "70")
    assert len(scripted) == 2
    assert figure.read_bytes() != old
    # Around the data is another combination, in the same table.
    assert "posterior" in run("--simulations", "80", "--around-data")
    assert pd.read_csv(out / FILE)["truths"].tolist() == ["posterior"] * 2 + ["prior"] * 2


def test_the_command_says_what_is_wrong(tmp_path, scripted):
    file = experiment(tmp_path, prior="[normal, laplace]")

    def run(*arguments):
        return CliRunner().invoke(app, ["calibrate", str(file), *arguments])

    done = run("--only", "prior=cauchy")
    assert done.exit_code == 2
    assert "`--only prior` must be one of" in done.output
    done = run("--simulations", "60", "--out", str(tmp_path / "out"))
    assert done.exit_code == 1
    label = "laplace × fixed, moons-noise0.3-train60-test40-seed0 dense-2 steps60"
    assert f"{label}: failed, ValueError: no luck" in done.output
    done = run("--dry-run")
    assert done.exit_code == 0
    assert "500 simulations" in done.output
    assert "in all: " in done.output


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"reference": "", "effective_draws": np.nan}, []),
        ({"reference": "MCLMC, converged", "effective_draws": 300.0}, []),
        ({"reference": "MCLMC, converged", "effective_draws": 299.0}, ["worth 299 independent"]),
        ({"reference": "MCLMC, undecided", "effective_draws": 900.0}, ["disagree"]),
    ],
)
def test_dependent_truths_are_noted(made, changes, words):
    found = notes(calibration_table([made.ranks(**changes)]))
    assert len(found) == len(words)
    assert all(word in line for word, line in zip(words, found, strict=True))


# For real


@pytest.mark.slow
def test_a_small_experiment_is_calibrated(tmp_path):
    inference = "[{steps: 60}, {guide: map}]"
    file = experiment(tmp_path, hyperprior="half_normal", inference=inference)
    out = tmp_path / "out"
    call = ["calibrate", str(file), "--simulations", "20", "--draws", "19", "--out", str(out)]
    done = CliRunner().invoke(app, call)
    assert done.exit_code == 0, done.output
    assert "left out: guide map" in done.output
    table = pd.read_csv(out / FILE)
    assert table["quantity"].tolist()[-3:] == ["layer_1_scale", "layer_2_scale", "log-likelihood"]
    assert (table["simulations"] == 20).all()
    assert len(list((out / "calibration").glob("*.png"))) == 1
