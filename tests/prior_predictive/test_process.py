"""Functions before and after scales are matched, beside those of the Gaussian process."""

import io
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from pmbnn.experiment.load import load_experiment
from pmbnn.fitting.progress import RunOptions
from pmbnn.models.matching import match_of
from pmbnn.prior_predictive import evaluate
from pmbnn.prior_predictive import run as module
from pmbnn.prior_predictive.figure import plot_match
from pmbnn.prior_predictive.plan import plan_priors
from pmbnn.prior_predictive.process import FUNCTIONS, GROUP, KINDS, POINTS, match_functions
from pmbnn.prior_predictive.run import run_priors
from pmbnn.prior_predictive.store import figure_path, load_functions, match_path, summary
from pmbnn.results.prune import prune
from pmbnn.results.store import Results
from pmbnn.sweep.cells import prepare, write_header

TEXT = """
name: toy
sweeps:
  - name: numbers
    dataset: {kind: sine, train: 20}
    network: {kind: dense, hidden: [[3]]}
    prior: [normal, cauchy]
    hyperprior: {kind: fixed, scale: [1, {match: {lengthscale: 0.4, amplitude: 2}}]}
    inference: {steps: 60}
  - name: classes
    dataset: {kind: moons, noise: 0.3, train: 40, test: 20}
    network: {kind: dense, hidden: [[3]]}
    prior: normal
    hyperprior: {kind: fixed, scale: {match: {}}}
    inference: {steps: 60}
    predict: {map: {resolution: 5}}
"""


def run_here(tasks, folder, *_, **__):
    """Tasks one after the other in this process."""
    reasons, programs = {}, None
    for task in tasks:
        programs = task.run(folder, partial(reasons.__setitem__, task.name), programs)
    return {name: reason for name, reason in reasons.items() if reason is not None}


@pytest.fixture(scope="module")
def experiment(tmp_path_factory):
    path = tmp_path_factory.mktemp("experiment") / "toy.yaml"
    path.write_text(TEXT)
    return load_experiment(path)


def run(experiment, folder):
    options = RunOptions(Console(file=io.StringIO()), 1)
    return run_priors(experiment, plan_priors(experiment, experiment.cells), folder, options)


@pytest.fixture(scope="module")
def whole(experiment, tmp_path_factory):
    """A results folder with the priors, and what `run_priors` returned."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "DRAWS", 40)
        patch.setattr(evaluate, "AT_ONCE", 20)
        patch.setattr(module, "run_tasks", run_here)
        return folder, *run(experiment, folder)


@pytest.fixture(scope="module")
def match(experiment):
    cell = experiment.cells[1]
    return match_functions(cell, cell.dataset.load())


def test_functions_of_each_kind(match):
    assert match["function"].sizes == {
        "kind": len(KINDS), "function": FUNCTIONS, "point": POINTS
    }  # fmt: skip
    assert np.isfinite(match["function"]).all()
    assert match["position"][-1] == pytest.approx(float(match["distance"].max()))


def test_increments_of_the_process(match):
    """Their standard deviation at distance d is 2 √(2 - 2 exp(-d² / (2 · 0.4²)))."""
    distance = match["distance"].values
    expected = 2 * np.sqrt(2 - 2 * np.exp(-(distance**2) / (2 * 0.4**2)))
    # 500 functions: the error of a half width of 68 % is 4 % of it.
    ratio = match["spread"].sel(kind="process").values / expected
    assert np.median(ratio) == pytest.approx(1, abs=0.08)
    assert ratio.std() < 0.08


def test_a_match_is_nearer_than_scale_1(match):
    process, matched, one = (
        np.log(match["spread"].sel(kind=kind).values) for kind in ("process", "matched", "scale 1")
    )
    assert np.abs(matched - process).mean() < np.abs(one - process).mean()
    assert match.attrs["match_after"] < match.attrs["match_before"]


def test_a_given_scale_has_no_match(experiment):
    cell = experiment.cells[0]
    assert match_functions(cell, cell.dataset.load()) is None


def test_the_figure_shows_before_after_and_the_process(match):
    figure = plot_match(match, "title")
    titles = [axes.get_title() for axes in figure.axes]
    assert [title.split(",")[0] for title in titles[:3]] == [
        "scale 1",
        "matched",
        "Gaussian process",
    ]
    for axes, kind in zip(figure.axes, KINDS, strict=False):
        shown = np.stack([line.get_ydata() for line in axes.lines])
        np.testing.assert_array_equal(shown, match["function"].sel(kind=kind))
    assert "scales of layers" in figure.get_suptitle()


def test_numbers_and_figures_are_stored(whole, experiment):
    folder, stored, failed = whole
    assert not failed and len(stored) == 5
    table = pd.read_csv(folder / "prior.csv")
    for prior, row in zip(stored, table.to_dict("records"), strict=True):
        cell = prior.cell
        found = match_of(cell.hyperprior, cell.prior, cell.network, cell.dataset.load().training)
        assert figure_path(Results(folder), prior.name).is_file()
        assert match_path(Results(folder), prior.name).is_file() == (found is not None)
        assert (GROUP in prior.groups) == (found is not None)
        if found is not None:
            assert [row["prior_scale_1"], row["prior_scale_2"]] == pytest.approx(found.scales)
            assert row["match_after"] == pytest.approx(found.after)
            functions = load_functions(Results(folder), prior.name)[GROUP]
            assert functions.sizes["point"] == POINTS
    headings, rows, _ = summary(stored)
    assert headings[-1] == "distance"
    assert [row[-1] != "" for row in rows] == [False, True, False, True, True]


def test_draws_have_the_matched_scales(whole):
    """Their half width of 68 % is near that of the process, 2 standardised targets."""
    _, stored, _ = whole
    of_normal = {p.cell.scale == 1: p for p in stored[:2]}
    sd = of_normal[False].cell.dataset.load().target_standardisation.sd[0]
    assert of_normal[False].numbers["output_sd"] / sd == pytest.approx(2, rel=0.4)


def test_a_second_run_draws_nothing(whole, experiment, monkeypatch):
    folder, *_ = whole
    before = {p.name: p.stat().st_mtime_ns for p in folder.glob("prior/*")}
    monkeypatch.setattr(module, "run_tasks", run_here)
    run(experiment, folder)
    assert {p.name: p.stat().st_mtime_ns for p in folder.glob("prior/*")} == before


def test_figures_of_present_priors_are_not_superseded(whole, experiment, tmp_path):
    folder = shutil.copytree(whole[0], tmp_path / "out")
    write_header(prepare(experiment, folder))
    (folder / "cells").mkdir(exist_ok=True)
    assert prune(folder, dry_run=True) == []
    (folder / "prior" / "of-another.match.png").touch()
    (superseded,) = prune(folder, dry_run=True)
    assert superseded.path.name == "of-another.match.png"
