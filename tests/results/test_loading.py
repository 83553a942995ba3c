"""A results folder opened for reading: tables, one cell by its settings, and its trace."""

import pandas as pd
import pytest
from makers import FIXED, HALF_NORMAL, MOONS, plane_trace, record, store

from pmbnn.results.loading import load_results
from pmbnn.results.store import ResultsError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two priors × two hyperpriors × two data seeds; one cell has no fit."""
    trace = plane_trace(resolution=(5, 4), points=10)
    cells = [
        (record(prior, hyperprior, MOONS | {"seed": seed}, accuracy=0.8 + 0.1 * seed), trace)
        for prior in ("normal", "laplace")
        for hyperprior in (FIXED, HALF_NORMAL)
        for seed in (0, 1)
    ]
    cells[-1] = (record("laplace", HALF_NORMAL, MOONS | {"seed": 1}, failed=True), None)
    return store(tmp_path_factory.mktemp("results"), cells).folder


@pytest.fixture(scope="module")
def results(folder):
    return load_results(folder)


def test_metrics_are_a_table_to_pivot(results):
    assert isinstance(results.metrics, pd.DataFrame)
    assert len(results.metrics) == 8
    pivot = results.metrics.pivot_table("accuracy", "prior.kind", "hyperprior.kind")
    assert pivot.loc["normal", "fixed"] == pytest.approx(0.85)
    assert pivot.loc["laplace", "half_normal"] == pytest.approx(0.8)


def test_a_summary_is_over_seeds(results):
    row = results.summary.set_index(["prior.kind", "hyperprior.kind"]).loc[("normal", "fixed")]
    assert row["accuracy"] == pytest.approx(0.85)
    assert row["accuracy_se"] == pytest.approx(0.05)


def test_one_cell_by_its_settings(results):
    cell = results.cell(prior="laplace", hyperprior="half_normal", dataset_seed=0)
    assert cell.record.settings["prior"]["kind"] == "laplace"
    assert cell.record.settings["dataset"]["seed"] == 0
    assert cell.trace["predictions"]["probability"].sizes["x1"] == 5


def test_a_cell_without_a_fit_has_no_trace(results):
    cell = results.cell(prior="laplace", hyperprior="half_normal", dataset_seed=1)
    with pytest.raises(ResultsError, match="has no fit"):
        _ = cell.trace


def test_settings_that_name_no_single_cell(results):
    with pytest.raises(ValueError, match=r"2 of 8 cells have .*differ in: dataset_seed \(0, 1\)\."):
        results.cell(prior="laplace", hyperprior="fixed")
    with pytest.raises(ValueError, match=r"0 of 8 cells have prior='cauchy'.*prior \(.*laplace"):
        results.cell(prior="cauchy")
    with pytest.raises(
        ValueError,
        match="`seed`: sections have it, as `dataset_seed`, `inf",
    ):
        results.cell(seed=0)


def test_cells_are_a_table_to_group_by_settings(results):
    cells = results.cells
    assert list(cells.index) == [record.name for record in results.records]
    assert set(cells["device"]) == {"cpu"}
    assert cells["dataset_seed"].dtype == "Int64" and cells["accuracy"].dtype == "Float64"
    means = cells.groupby(["prior", "hyperprior"])["accuracy"].mean()
    for (prior, hyperprior), mean in means.items():
        one = results.select(prior=prior, hyperprior=hyperprior)
        known = [r.results["accuracy"] for r in one.records if r.results]
        assert mean == pytest.approx(sum(known) / len(known))
    named = results.cell(name=cells.index[0])
    assert named.record.cell.prior.kind == cells["prior"].iloc[0]


def test_some_cells_alone(results):
    some = results.select(prior="laplace")
    assert len(some.cells) == len(some.metrics) == 4 and len(results.records) == 8
    assert (
        some.cell(hyperprior="fixed", dataset_seed=1).record.settings["prior"]["kind"] == "laplace"
    )
    with pytest.raises(ValueError, match=r"0 of 8 cells have prior='cauchy'.*prior \(.*laplace"):
        results.select(prior="cauchy")


def test_broken_cells_are_left_out_with_a_warning(folder, tmp_path):
    import shutil

    copy = shutil.copytree(folder, tmp_path / "copy")
    first = sorted((copy / "cells").iterdir())[0]
    (first / "metrics.json").write_text("{")
    with pytest.warns(UserWarning, match=f"left out: .*{first.name}"):
        assert len(load_results(copy).records) == 7
    assert first.is_dir(), "a reader changes nothing"


@pytest.mark.parametrize(("make", "problem"), [(False, "does not exist"), (True, "no finished")])
def test_folders_without_results(tmp_path, make, problem):
    folder = tmp_path / "results"
    if make:
        (folder / "cells").mkdir(parents=True)
    with pytest.raises(ResultsError, match=problem):
        load_results(folder)
