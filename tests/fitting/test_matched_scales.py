"""Cells with a scale for each layer, given or matched to a process, from file to folder."""

import numpy as np
import pandas as pd
import pytest
from tiers import slow_but

import pmbnn as pb
from pmbnn.data.arrays import Rows
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import group_key
from pmbnn.experiment.selection import select_cells
from pmbnn.fitting.job import run_job
from pmbnn.inference.engines import fit_model
from pmbnn.inference.settings import Inference
from pmbnn.models.build import build_model, parts_of
from pmbnn.models.hyperpriors import Fixed, Match
from pmbnn.models.matching import match_of
from pmbnn.results.loading import load_results
from pmbnn.results.names import combination_label, combination_title
from pmbnn.sweep.cells import prepare, write_header, write_tables

TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: %s
    network: {kind: dense, hidden: [[3]]}
    prior: normal
    hyperprior: {kind: fixed, scale: [1, [1, 0.5], {match: {}}, {match: {amplitude: 2}}]}
    inference: {%s}
    predict: {draws: 10, trace_draws: 6, map: {resolution: 4}, fresh: {size: 50, draws: 2}}
"""
MOONS = "{kind: moons, noise: 0.3, train: 40, test: 20}"
SINE = "{kind: sine, train: 20}"
FITTED, SAMPLED = "steps: 60, restarts: 2", "engine: mclmc, chains: 2, draws: 20, tuning: 100"
X = np.random.default_rng(0).normal(size=(30, 2))
ROWS = Rows(X, X[:, 0] ** 2, ("a", "b"), ())


def run(folder, dataset=MOONS, inference=FITTED, only=()):
    """Results of a tiny experiment, fitted in this process."""
    file = folder / "toy.yaml"
    file.write_text(TEXT % (dataset, inference))
    prepared = prepare(load_experiment(file), folder / "out")
    write_header(prepared)
    cells = list(prepared.tasks)
    for job in prepared.jobs(select_cells(cells, only)):
        run_job(job, prepared.results.folder, lambda _: None)
    results = load_results(folder / "out")
    write_tables(prepared, results.records)
    return results


def cell_of(results, scale):
    (record,) = [r for r in results.records if r.cell.scale == scale]
    return record


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    return run(tmp_path_factory.mktemp("fitted"))


def check_matched(results, amplitude):
    match = Match(amplitude=amplitude)
    record = cell_of(results, match)
    cell = record.cell
    found = match_of(Fixed(scale=match), cell.prior, cell.network, cell.dataset.load().training)
    stored = [record.results["prior_scale_1"], record.results["prior_scale_2"]]
    assert stored == pytest.approx(found.scales)
    assert record.results["match_before"] == pytest.approx(found.before)
    assert record.results["match_after"] == pytest.approx(found.after)
    assert found.after < found.before
    assert record.results["scale"] is None
    posterior = results.cell(name=record.name).posterior
    assert posterior.origin.parts.hyperprior.scale == pytest.approx(found.scales)


def test_a_record_has_the_match(results):
    check_matched(results, 1.0)
    check_matched(results, 2.0)


@pytest.mark.parametrize("inference", slow_but(["fitted"], ["fitted", "sampled"]))
def test_of_numbers(tmp_path, inference):
    check_matched(run(tmp_path, SINE, FITTED if inference == "fitted" else SAMPLED), 1.0)


def test_given_scales_are_restored(results):
    record = cell_of(results, (1.0, 0.5))
    assert "match_after" not in record.results
    assert results.cell(name=record.name).posterior.origin.parts.hyperprior.scale == (1.0, 0.5)


def test_names(results):
    names = [combination_label(record.cell) for record in results.records]
    start = "normal × fixed"
    assert names == [f"{start} 1", f"{start} 1-0.5", f"{start} (matched)", f"{start} (matched)"]
    record = cell_of(results, Match())
    assert combination_title(record.cell) == "Normal prior, fixed scale (matched)"


def test_tables_have_columns_of_the_match(results):
    table = pd.read_csv(results.results.folder / "metrics.csv")
    assert table["match_after"].notna().sum() == table["prior_scale_2"].notna().sum() == 2
    assert table["hyperprior.scale.amplitude"].dropna().tolist() == [1, 2]


def test_lists_and_matches_share_a_program(results):
    keys = [group_key(record.cell) for record in results.records]
    assert keys[0] != keys[1] == keys[2] == keys[3]


def test_a_match_does_not_depend_on_other_cells(results, tmp_path):
    """Neither its scales nor, bit by bit, the fit."""
    alone = run(tmp_path, only=["hyperprior.scale=match"])
    assert len(alone.records) == 2
    for record in alone.records:
        assert record.results == cell_of(results, record.cell.scale).results


def test_equal_scales_of_layers_are_a_common_scale():
    """The same ELBO with the same noise, and the same form of the KL divergence."""
    fits = []
    for scale in (0.7, (0.7, 0.7)):
        model = build_model(pb.Dense(hidden=(4,)), "normal", Fixed(scale=scale), "normal", ROWS)
        fits.append(fit_model(model, Inference(steps=50))[1][0])
    assert fits[0].kl_forms == fits[1].kl_forms
    np.testing.assert_allclose(fits[0].loc, fits[1].loc, rtol=1e-9)
    assert fits[0].elbo == pytest.approx(fits[1].elbo, rel=1e-9)


def test_estimators():
    hyperprior = pb.Fixed(scale=pb.Match(lengthscale=0.5))
    model = pb.BNNRegressor(hidden=3, hyperprior=hyperprior, steps=30, draws=5).fit(X, ROWS.y)
    found = model.posterior_.origin.parts.hyperprior.scale
    standardised = (X - X.mean(axis=0)) / X.std(axis=0)
    rows = Rows(standardised, ROWS.y, ("a", "b"), ())
    prior, network = pb.Normal(), pb.Dense(hidden=(3,))
    assert found == pytest.approx(match_of(hyperprior, prior, network, rows).scales)
    with pytest.raises(ValueError, match="must have 2 scales"):
        pb.BNNRegressor(hidden=3, hyperprior=pb.Fixed(scale=(1.0,))).fit(X, ROWS.y)


def test_saved_posteriors_keep_their_scales(tmp_path):
    hyperprior = Fixed(scale=Match())
    model = build_model(pb.Dense(hidden=(3,)), "normal", hyperprior, "normal", ROWS)
    pb.fit(model, steps=20, progress=False).save(tmp_path / "fit.nc")
    loaded = pb.load(tmp_path / "fit.nc")
    assert loaded.origin.parts.hyperprior == parts_of(model).hyperprior
