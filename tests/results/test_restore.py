"""Draws of a stored cell, had again from its guide."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from tiers import slow_but

from pmbnn.data import DataError, Moons
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import jobs
from pmbnn.fitting.job import run_job
from pmbnn.fitting.tasks import JobTask
from pmbnn.inference.engines import ENGINES, Engine
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.guides import build_guide
from pmbnn.inference.result import Fit, History
from pmbnn.results.loading import StoredCell, load_results, restore_cell, sample_posterior
from pmbnn.results.store import Results, ResultsError
from pmbnn.sweep.cells import prepare, write_header

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


def opened(folder: Path) -> StoredCell:
    """The cell as `load_results` gives it."""
    return load_results(folder.parent.parent).cell(name=folder.name)


TUNED = "{kind: fixed, scale: {tune: {log: [0.3, 3, 2]}}}"


def stored(
    folder: Path,
    hidden: str,
    prior: str,
    hyperprior: str = TUNED,
    inference: str = "steps: 100, restarts: 2, kl_weight: 0.5",
) -> list[Path]:
    """Folders of the cells of a tiny experiment, fitted in this process."""
    file = folder / "toy.yaml"
    file.write_text(TOY % (hidden, prior, hyperprior, inference))
    run = prepare(load_experiment(file), folder / "out")
    write_header(run)
    for job in jobs(list(run.tasks)):
        task = JobTask(job.group, job.width, tuple(run.tasks[cell] for cell in job.wanted))
        run_job(task, run.results.folder, lambda _: None)
    return sorted(run.results.cells.iterdir())


@pytest.fixture(scope="module", params=slow_but([TUNED], [TUNED, "inverse_gamma"]))
def toy_cells(request, tmp_path_factory) -> list[Path]:
    return stored(tmp_path_factory.mktemp("toy"), "[[3]]", "cauchy", request.param)


def trace_of(cell: Path):
    return Results(cell.parent.parent).load_trace(cell.name)["restarts"].to_dataset()


def check_draws(cell):
    """Draws made again begin with those of the trace."""
    kept = trace_of(cell)
    again = sample_posterior(opened(cell), np.int64(9)).sel(draw=slice(0, 5))
    assert set(again) == set(kept)
    for name in kept:
        assert again[name].dims == kept[name].dims
        np.testing.assert_allclose(again[name], kept[name], rtol=1e-6)


def test_draws_equal_those_of_the_trace(toy_cells, monkeypatch):
    """Without the data."""

    def load(spec):
        raise AssertionError("the data set was loaded")

    monkeypatch.setattr(Moons, "load", load)
    for cell in toy_cells:
        check_draws(cell)


def build_nothing(model, settings, rows, width):
    """The guide alone: no compilation."""
    flat = flatten_model(model, rows=None)
    return SimpleNamespace(guide=build_guide(settings, flat.size, flat.improper))


def make_fits(program, replicas, *_, **__):
    """Guides that were never fitted, with covariances far from diagonal."""
    return [made_fit(program.guide, replica) for replica in replicas]


def made_fit(guide, replica):
    rng = np.random.default_rng(replica.keys.initial)
    constrained = {
        name: 0.3 * rng.normal(size=shape).astype("f4")
        for name, shape in guide.constrained_shapes.items()
    }
    if "root" in constrained:
        constrained["root"] = np.tril(constrained["root"])
        np.fill_diagonal(constrained["root"], 0.2)
    if "diagonal" in constrained:
        constrained["diagonal"] = np.abs(constrained["diagonal"]) + np.float32(0.1)
    one, scale = np.ones(1), np.ones(guide.size, "f4")
    history = History(one, one, one, one)
    return Fit(constrained, scale, history, 0.0, "converged", "made", replica.keys)


@pytest.mark.slow
@pytest.mark.parametrize("guide", ["low_rank, rank: 3", "full_rank"])
def test_draws_of_other_guides(tmp_path, monkeypatch, guide):
    """With a factor or a root in the file, beside the scales that mean-field guides have."""
    monkeypatch.setitem(ENGINES, "compiled", Engine(build_nothing, make_fits))
    settings = f"guide: {guide}, restarts: 2, validation: 0"
    [cell] = stored(tmp_path, "[[3]]", "normal", "half_normal", settings)
    check_draws(cell)


def test_draws_and_predictions_of_dropout(tmp_path):
    """With the masks of the file."""
    settings = "guide: dropout, dropout_rate: 0.2, steps: 50, restarts: 2, validation: 0"
    [cell] = stored(tmp_path, "[[3]]", "normal", "half_normal", settings)
    check_draws(cell)
    assert (trace_of(cell)["weight_1"] == 0).any()
    test_predictions_are_those_that_were_stored([cell])
    assert "pareto_k" not in Results(cell.parent.parent).load_record(cell.name).results


def test_the_stored_history_adds_up(toy_cells):
    """At the weight that the settings give the divergence."""
    for cell in toy_cells:
        fit = Results(cell.parent.parent).load_trace(cell.name)["fit"].to_dataset()
        assert fit["elbo"].shape == (2, 100)
        elbo = fit["log_likelihood"] - 0.5 * fit["kl"]
        np.testing.assert_allclose(fit["elbo"], elbo, rtol=1e-12)
        assert (fit["log_likelihood"] < 0).all()


@pytest.mark.slow
def test_large_network_has_every_layer_again(tmp_path):
    cell = stored(tmp_path, "[[50, 50]]", "flat")[0]
    kept = trace_of(cell)
    again = sample_posterior(cell, kept.sizes["draw"])
    assert "weight_1" not in kept
    assert again["weight_1"].shape == (2, kept.sizes["draw"], 2, 50)
    np.testing.assert_allclose(again["weight_3"], kept["weight_3"], rtol=1e-6)


def change_record(monkeypatch, **changes):
    load = Results.load_record
    monkeypatch.setattr(
        Results, "load_record", lambda *place: load(*place).model_copy(update=changes)
    )


def test_changed_data_are_rejected(toy_cells, monkeypatch):
    change_record(monkeypatch, fingerprint="0")
    with pytest.raises(DataError, match="not those it was fitted on"):
        _ = restore_cell(toy_cells[0]).model


def test_predictions_are_those_that_were_stored(toy_cells):
    """With every restart at the weight it had in them."""
    posterior = opened(toy_cells[0]).posterior
    stored = posterior.to_datatree()["test_predictions"].to_dataset()
    assert sum(posterior.weights.values()) == pytest.approx(1)
    found = posterior.predict_proba(stored["x"].values)
    np.testing.assert_allclose(found, stored["probability"], rtol=1e-3, atol=1e-5)


# Folders that are no cell


def test_a_folder_above_the_cells(toy_cells):
    experiment = toy_cells[0].parent.parent
    for folder in (experiment, toy_cells[0].parent, experiment.parent):
        with pytest.raises(
            ResultsError, match="must be the folder of a stored cell.* it holds `"
        ) as e:
            restore_cell(folder)
        assert str(toy_cells[0]) in str(e.value)


def test_a_folder_above_many_cells(tmp_path):
    for number in range(14):
        (tmp_path / "cells" / str(number)).mkdir(parents=True)
        (tmp_path / "cells" / str(number) / "metrics.json").touch()
    with pytest.raises(ResultsError, match="cells/0`, .* and 4 more"):
        restore_cell(tmp_path)


def test_a_folder_without_cells(tmp_path):
    with pytest.raises(ResultsError, match="must be the folder of a stored cell.* it holds none"):
        restore_cell(tmp_path)
    with pytest.raises(ResultsError, match="must be the folder of a stored cell"):
        restore_cell(tmp_path / "cells" / "gone")


def test_a_cell_that_failed(toy_cells, monkeypatch):
    change_record(monkeypatch, results={}, reason="every restart diverged")
    with pytest.raises(ResultsError, match="has no fit: every restart diverged"):
        restore_cell(toy_cells[0])


def test_a_cell_without_its_trace(toy_cells, monkeypatch):
    def gone(*place):
        raise FileNotFoundError("no trace.nc")

    monkeypatch.setattr(Results, "load_trace", gone)
    with pytest.raises(ResultsError, match="cannot be read: no trace.nc"):
        restore_cell(toy_cells[0])


def test_a_cell_of_another_version(toy_cells, monkeypatch):
    settings = Results(toy_cells[0].parent.parent).load_record(toy_cells[0].name).settings
    for changes in ({"network": {"kind": "unheard_of"}}, {"prior": {"kind": "flat", "new": 1}}):
        [section] = changes
        change_record(monkeypatch, settings=settings | changes)
        with pytest.raises(ResultsError, match=f"`{section}` of cell .* fit the experiment again"):
            restore_cell(toy_cells[0])
