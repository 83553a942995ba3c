"""Every experiment file runs to its figures, at a tiny size."""

from pathlib import Path

import pytest
import yaml

from pmbnn.config import load_experiment
from pmbnn.figures import write_figures
from pmbnn.job import run_job
from pmbnn.plan import jobs
from pmbnn.runner import prepare, write_header, write_tables
from pmbnn.tasks import JobTask

FILES = sorted((Path(__file__).parents[1] / "experiments").glob("*.yaml"))

SHOWN = {
    ("normal", "fixed"),
    ("laplace", "half_cauchy"),
    ("cauchy", "inverse_gamma"),
    ("flat", "fixed"),
}
"""Each prior once; that every combination builds and fits is tested where models are."""


def shrunk(content: dict) -> dict:
    """The same experiment with few rows, steps, draws and seeds."""
    for sweep in content["sweeps"]:
        datasets = sweep["dataset"] if isinstance(sweep["dataset"], list) else [sweep["dataset"]]
        for dataset in datasets:
            dataset |= {"train": 100, "test": 60, "seed": 0}
            if dataset["kind"] == "mnist":
                dataset["source"] = "embedded"
            else:
                dataset["noise"] = 0.3
        sweep["dataset"] = datasets
        inference = {**sweep["inference"], "steps": 30, "restarts": 1}
        sweep["inference"] = {k: v for k, v in inference.items() if k not in ("epochs", "batch")}
        if "batch" in inference:
            sweep["inference"]["batch"] = 20
        sweep["predict"] = {
            "draws": 5,
            "trace_draws": 4,
            "map": {"resolution": 5},
            "fresh": {"size": 50, "draws": 2},
        }
    return content


def test_there_are_the_three_files():
    assert [file.stem for file in FILES] == ["mnist_priors", "noise", "priors"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_is_named_after_its_experiment(file):
    experiment = load_experiment(file)
    assert experiment.name == file.stem
    assert jobs(experiment.cells)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_runs_to_its_figures(file, tmp_path):
    tiny = tmp_path / file.name
    tiny.write_text(yaml.safe_dump(shrunk(yaml.safe_load(file.read_text(encoding="utf-8")))))
    run = prepare(load_experiment(tiny), tmp_path / "out")
    write_header(run)
    wanted = [cell for cell in run.tasks if (cell.prior.kind, cell.hyperprior.kind) in SHOWN]
    stored = []
    for job in jobs(list(run.tasks), wanted):
        task = JobTask(job.group, job.width, tuple(run.tasks[cell] for cell in job.wanted))
        run_job(task, run.results.folder, lambda *_: None, stored.append)
    assert len(stored) == len(wanted) > 0
    assert {record["status"] for record in stored} <= {"converged", "not_converged", "improper"}
    records = run.records()
    figures = write_figures(run.results, records)
    write_tables(run, records)
    assert figures and all(path.stat().st_size > 5_000 for path in figures)
    assert len((tmp_path / "out" / "metrics.csv").read_text().splitlines()) == len(wanted) + 1
