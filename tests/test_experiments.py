"""Every experiment file runs to its figures, at a tiny size."""

import functools
import itertools
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from local_data import write_local_data
from notebooks import printed, read_notebook, run_notebook, shown

from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import jobs
from pmbnn.figures import draw_files, overviews_of
from pmbnn.fitting.job import run_job
from pmbnn.fitting.tasks import JobTask
from pmbnn.results.present import present_records
from pmbnn.results.record import CellRecord
from pmbnn.sweep.cells import prepare, write_header, write_tables
from pmbnn.sweep.outputs import make_outputs

PROJECT = Path(__file__).parents[1]
FILES = sorted((PROJECT / "experiments").glob("*.yaml"))

SHOWN = {
    ("normal", "inverse_gamma"),
    ("laplace", "half_cauchy"),
    ("cauchy", "inverse_gamma"),
    ("flat", "fixed"),
}
"""Each prior once in `priors`, beside the first cell of every sweep and of every engine;
that every combination builds and fits is tested where models are."""


IMAGES = ("mnist", "images", "idx")

SPLIT = ("sklearn", "table")
"""Kinds of data of which each seed is another split of the same rows."""


def shrunk(content: dict) -> dict:
    """The same experiment with few rows, steps, draws and seeds.

    A large network takes seconds to compile and to store, and so do snapshots and images
    that nobody knows: the first sweep alone keeps them.
    """
    content.pop("published", None)
    for number, sweep in enumerate(content["sweeps"]):
        datasets = sweep["dataset"] if isinstance(sweep["dataset"], list) else [sweep["dataset"]]
        kind = datasets[0]["kind"]
        if kind in IMAGES and (number or kind != "mnist"):
            # Another in each sweep of networks of several kinds, lest cells be the same.
            several = {str(one["network"]) for one in content["sweeps"]}
            units = 8 + number if len(several) > 1 else 8
            sweep["network"] = {"kind": "dense", "hidden": [[units]]}
        for dataset in datasets:
            seeds = dataset.get("seed", 0)
            dataset["seed"] = seeds[0] if isinstance(seeds, list) else seeds
            if dataset["kind"] in ("sine", "quartic", "in_between", "sklearn", "table"):
                continue
            dataset |= {"train": 100, "test": 60}
            if dataset["kind"] in IMAGES:
                if dataset["kind"] == "mnist":
                    dataset["source"] = "embedded"
                if "validation" in dataset:
                    dataset["validation"] = 50
            else:
                dataset["noise"] = 0.3
        sweep["dataset"] = datasets
        given = sweep["inference"]
        listed = given if isinstance(given, list) else [given]
        short = [shorter(inference) for inference in listed]
        # What differed in a length only is the same now.
        sweep["inference"] = [one for at, one in enumerate(short) if one not in short[:at]]
        if "mclmc" in listed:
            # Each combination compiles a sampler of its own.
            if isinstance(sweep["hyperprior"], list):
                sweep["hyperprior"] = ["fixed", "half_normal"]
            sweep["prior"] = "normal"
            sweep["dataset"] = datasets[:1]
            if "contrasts" in content:
                content["contrasts"] = content["contrasts"][:1]
        sweep["predict"] = fewer(sweep.get("predict", {}))
        if number:
            for name in ("diagnostics", "ood"):
                sweep["predict"].pop(name, None)
    return content


FEW = {
    "mclmc": {"draws": 8, "descent": 20, "tuning": 200, "thin": 1},
    "mile": {"draws": 8, "descent": 20, "tuning": 20, "thin": 1},
    "nuts": {"draws": 8, "descent": 20, "tuning": 50, "max_treedepth": 3},
    "smc": {"draws": 16, "moves": 1, "leapfrogs": [[2, 3]]},
}
"""Settings of the samplers that leave a few draws."""


def shorter(inference: dict | str) -> dict:
    """Settings of a fit of thirty steps, or of a few draws."""
    given = {"engine": inference} if isinstance(inference, str) else inference
    if given.get("engine") in FEW:
        return given | {"chains": 2} | FEW[given["engine"]]
    found = {k: v for k, v in given.items() if k not in ("epochs", "batch")}
    seed = given.get("seed", 0)
    found |= {"steps": 30, "restarts": 1, "seed": seed[0] if isinstance(seed, list) else seed}
    return found | ({"batch": 20} if "batch" in given else {})


def fewer(predict: dict) -> dict:
    """Few predictions of every kind that are asked for; none of images to be downloaded."""
    found = {
        "draws": 5,
        "trace_draws": 4,
        "map": {"resolution": 5},
        "fresh": {"size": 50, "draws": 2},
    }
    if "diagnostics" in predict:
        found["diagnostics"] = {"steps": [[0, 10, 30]], "draws": 2, "rows": 20}
    if "ood" in predict:
        shown = [{"kind": "normal_noise", "size": 20}, {"kind": "letters", "letters": "AB"}]
        found["ood"] = [shown]
    return found


def test_each_file_is_in_the_table_of_the_docs():
    lines = (PROJECT / "docs" / "experiments.md").read_text().splitlines()
    rows = lines[lines.index("| `experiments/` | what | takes | reads |") + 2 :]
    named = [row.split("`")[1] for row in itertools.takewhile(lambda row: row, rows)]
    assert sorted(named) == [file.stem for file in FILES]


@pytest.fixture(scope="module")
def local_data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_local_data(folder)
    return folder


@pytest.fixture(autouse=True)
def _at_hand(local_data, monkeypatch):
    monkeypatch.setenv("PMBNN_DATA", str(local_data))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_is_named_after_its_experiment(file):
    experiment = load_experiment(file)
    assert experiment.name == file.stem
    assert jobs(experiment.cells)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_is_read_without_data(file, monkeypatch, tmp_path):
    monkeypatch.delenv("PMBNN_DATA")
    monkeypatch.chdir(tmp_path)
    assert load_experiment(file).cells


def _roles(cell):
    """What of a cell must run once; networks of pictures are all one when they are shrunk."""
    if cell.dataset.kind in ("images", "idx"):
        return [(cell.dataset.rows, cell.inference.guide)]
    return [("sweep", cell.sweep), ("engine", cell.inference.engine)]


class Swept(NamedTuple):
    """What the tiny form of a file has become."""

    folder: Path
    asked: int
    stored: list[CellRecord]
    figures: list[Path]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    """Fits the tiny form of a file, and draws its figures; each file once."""

    @functools.cache
    def swept(file):
        return _swept(file, tmp_path_factory.mktemp(file.stem))

    return swept


def _swept(file, folder):
    tiny = folder / file.name
    content = shrunk(yaml.safe_load(file.read_text(encoding="utf-8")))
    if "plugins" in content:
        content["data_folder"] = str(file.parent)
    tiny.write_text(yaml.safe_dump(content))
    run = prepare(load_experiment(tiny), folder / "results" / file.stem)
    write_header(run)
    first = {role: cell for cell in reversed(list(run.tasks)) for role in _roles(cell)}
    shown = SHOWN if file.stem == "priors" else ()
    main = next(iter(run.tasks)).sweep
    wanted = [
        cell
        for cell in run.tasks
        if (cell.sweep == main and (cell.prior.kind, cell.hyperprior.kind) in shown)
        or cell in first.values()
    ]
    stored = []
    for job in jobs(list(run.tasks), wanted):
        task = JobTask(job.group, job.width, tuple(run.tasks[cell] for cell in job.wanted))
        run_job(task, run.results.folder, stored.append)
    records = present_records(run.results)
    figures = draw_files(overviews_of(run.results, records), run.results)
    figures += make_outputs(run.results, run.experiment.plugins, pytest.fail)
    write_tables(run, records)
    return Swept(run.results.folder, len(wanted), stored, figures)


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_runs_to_its_figures(file, sweep):
    found = sweep(file)
    assert len(found.stored) == found.asked > 0
    # A few draws of two chains need not agree.
    fine = {"converged", "not_converged", "undecided", "ensemble", "improper"}
    assert {record.status for record in found.stored} <= fine
    for record in found.stored:
        splits_anew = record.source == "embedded" or record.settings["dataset"]["kind"] in SPLIT
        assert (record.overlap > 0) == splits_anew
    assert found.figures and all(path.stat().st_size > 5_000 for path in found.figures)
    table = (found.folder / "metrics.csv").read_text()
    assert len(table.splitlines()) == found.asked + 1


@pytest.mark.slow
def test_the_notebook_of_the_reports_figures_runs(sweep):
    """In a kernel, where each of its figures is a picture."""
    [priors] = [file for file in FILES if file.stem == "priors"]
    folder = sweep(priors).folder.parents[1]
    first, *figures = run_notebook(read_notebook("report_figures.ipynb"), folder)
    assert "cells" in printed(first)
    assert [len(shown(cell, "image/png")) for cell in figures] == [1] * 14
