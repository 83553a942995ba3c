"""Draws of a stored cell, had again from its guide."""

from pathlib import Path

import numpy as np
import pytest

from pmbnn.config import load_experiment
from pmbnn.datasets import DataError
from pmbnn.inference.engines import ENGINES
from pmbnn.inference.fit import Fit, History
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.guides import build_guide
from pmbnn.job import run_job
from pmbnn.plan import jobs
from pmbnn.regenerate import sample_posterior
from pmbnn.runner import prepare
from pmbnn.storage import Results
from pmbnn.tasks import JobTask

TOY = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 60, test: 40}
    network: {kind: dense, hidden: %s}
    prior: %s
    hyperprior: %s
    inference: {%s}
    predict: {draws: 10, trace_draws: 6, map: {resolution: 4}, fresh: {size: 50, draws: 2}}
"""


HYPERPRIORS = "[{kind: fixed, scale: {tune: {log: [0.3, 3, 2]}}}, inverse_gamma]"


def stored(
    folder: Path,
    hidden: str,
    prior: str,
    hyperprior: str = HYPERPRIORS,
    inference: str = "steps: 100, restarts: 2, kl_weight: 0.5",
) -> list[Path]:
    """Folders of the cells of a tiny experiment, fitted in this process."""
    file = folder / "toy.yaml"
    file.write_text(TOY % (hidden, prior, hyperprior, inference))
    run = prepare(load_experiment(file), folder / "out")
    run.results.prepare()
    for job in jobs(list(run.tasks)):
        task = JobTask(job.group, job.width, tuple(run.tasks[cell] for cell in job.wanted))
        run_job(task, run.results.folder, lambda *_: None, lambda _: None)
    return sorted(run.results.cells.iterdir())


@pytest.fixture(scope="module")
def toy_cells(tmp_path_factory) -> list[Path]:
    return stored(tmp_path_factory.mktemp("toy"), "[[3]]", "cauchy")


def trace_of(cell: Path):
    return Results(cell.parent.parent).load_trace(cell.name)["posterior"].to_dataset()


def check_draws(cell):
    """Draws made again begin with those of the trace."""
    posterior = trace_of(cell)
    again = sample_posterior(cell, 9).sel(draw=slice(0, 5))
    assert set(again) == set(posterior)
    for name in posterior:
        assert again[name].dims == posterior[name].dims
        np.testing.assert_allclose(again[name], posterior[name], rtol=1e-6)


def test_draws_equal_those_of_the_trace(toy_cells):
    for cell in toy_cells:
        check_draws(cell)


class MadeEngine:
    """Guides that were never fitted, with covariances far from diagonal: no compilation."""

    def __init__(self, model, settings, rows, width):
        flat = flatten_model(model, rows=None)
        self.guide = build_guide(settings, flat.size, flat.improper)

    def fit(self, members, *_):
        return [self._made(member) for member in members]

    def _made(self, member):
        rng = np.random.default_rng(member.streams.initial)
        natural = {
            name: 0.3 * rng.normal(size=shape).astype("f4")
            for name, shape in self.guide.natural_shapes.items()
        }
        if "root" in natural:
            natural["root"] = np.tril(natural["root"])
            np.fill_diagonal(natural["root"], 0.2)
        if "diagonal" in natural:
            natural["diagonal"] = np.abs(natural["diagonal"]) + np.float32(0.1)
        one = np.ones(1)
        scale = np.ones(self.guide.size, "f4")
        history = History(one, one, one, one)
        return Fit(natural, scale, history, 0.0, "converged", "made", member.streams)


@pytest.mark.parametrize("guide", ["low_rank, rank: 3", "full_rank"])
def test_draws_of_other_guides(tmp_path, monkeypatch, guide):
    """With a factor or a root in the file, beside the scales that mean-field guides have."""
    monkeypatch.setitem(ENGINES, "compiled", MadeEngine)
    settings = f"guide: {guide}, restarts: 2, validation: 0"
    [cell] = stored(tmp_path, "[[3]]", "normal", "half_normal", settings)
    check_draws(cell)


def test_the_stored_history_adds_up(toy_cells):
    """At the weight that the settings give the divergence."""
    for cell in toy_cells:
        fit = Results(cell.parent.parent).load_trace(cell.name)["fit"].to_dataset()
        assert fit["elbo"].shape == (2, 100)
        elbo = fit["log_likelihood"] - 0.5 * fit["kl"]
        np.testing.assert_allclose(fit["elbo"], elbo, rtol=1e-12)
        assert (fit["log_likelihood"] < 0).all()


def test_large_network_has_every_layer_again(tmp_path):
    cell = stored(tmp_path, "[[50, 50]]", "flat")[0]
    kept = trace_of(cell)
    again = sample_posterior(cell, kept.sizes["draw"])
    assert "weight_1" not in kept
    assert again["weight_1"].shape == (2, kept.sizes["draw"], 2, 50)
    np.testing.assert_allclose(again["weight_3"], kept["weight_3"], rtol=1e-6)


def test_changed_data_are_refused(toy_cells, monkeypatch):
    load = Results.load_metrics
    monkeypatch.setattr(Results, "load_metrics", lambda *place: load(*place) | {"fingerprint": "0"})
    with pytest.raises(DataError, match="not those it was fitted on"):
        sample_posterior(toy_cells[0], 2)
