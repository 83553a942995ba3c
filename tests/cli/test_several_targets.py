"""One experiment of two targets a row, fitted and sampled, from its table to the page."""

import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import pmbnn as pb
from pmbnn.cli import app
from pmbnn.compare.baselines import make_baselines
from pmbnn.data import DataError
from pmbnn.figures.regression import (
    plot_compared_curves,
    plot_curves,
    plot_pit,
    plot_predicted_observed,
)
from pmbnn.results.loading import restore_cell
from pmbnn.results.store import Results

FILE = """
name: two
sweeps:
  - name: two
    dataset: {kind: table, file: two.csv, target: [[height, weight]]}
    network: {kind: dense, hidden: [[2]]}
    prior: normal
    likelihood: {kind: normal, sd: [[0.4, 0.6]]}
    inference: [{steps: 60}, {engine: mclmc, chains: 8, draws: 60, tuning: 500, descent: 50}]
    predict: {draws: 40, trace_draws: 20}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Folder that has the table."""
    home = tmp_path_factory.mktemp("two")
    rng = np.random.default_rng(0)
    at = rng.normal(size=40)
    targets = {"height": 3 * at + rng.normal(size=40), "weight": 100 + 40 * np.sin(2 * at)}
    pd.DataFrame({"at": at} | targets).to_csv(home / "two.csv", index=False)
    return home


@pytest.fixture(scope="module")
def folder(home):
    """Folder of the experiment's results; tests only read it."""
    (home / "two.yaml").write_text(FILE)
    command = [sys.executable, "-m", "pmbnn.sweep", "two.yaml", "--out", "out", "--workers", "1"]
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    subprocess.run([*command, "--device", "cpu"], cwd=home, env=environment, check=True)
    return home / "out"


@pytest.fixture(scope="module")
def results(folder):
    return pb.load_results(folder)


@pytest.mark.slow
def test_scores_are_of_each_target_in_its_units_and_of_rows(folder, results):
    for record in results.records:
        test = Results(folder).load_trace(record.name)["test_predictions"].dataset
        assert test["target"].dims == ("test_observation", "target_name")
        raw = pd.read_csv(folder.parent / "two.csv")
        for name in ("height", "weight"):
            own = test.sel(target_name=name)
            assert np.isin(own["target"].values.round(9), raw[name].round(9)).all()
            error = np.sqrt(np.mean((own["mean"] - own["target"]).values ** 2))
            assert record.results[f"rmse_{name}"] == pytest.approx(error, rel=1e-5)
            covered = np.mean(np.abs(own["pit"].values - 0.5) <= 0.45)
            assert record.results[f"coverage_90_{name}"] == pytest.approx(covered)
        assert "rmse" not in record.results
        both = [record.results[f"coverage_90_{name}"] for name in ("height", "weight")]
        assert record.results["coverage_90"] == pytest.approx(np.mean(both))


@pytest.mark.slow
def test_a_trace_keeps_rows_whole_and_is_predicted_from_again(folder, results):
    for record in results.records:
        cell = folder / "cells" / record.name
        trace = Results(folder).load_trace(record.name)
        assert trace["log_likelihood"]["y"].dims == ("chain", "draw", "observation")
        assert trace["posterior_predictive"]["y"].dims[-2:] == ("observation", "target_name")
        assert list(trace["observed_data"]["target_name"].values) == ["height", "weight"]
        test = trace["test_predictions"]
        found = restore_cell(cell).predict(test["x"].values, 40)
        np.testing.assert_allclose(found.mean, test["mean"].values, rtol=1e-4)


@pytest.mark.slow
def test_figures_have_a_panel_for_each_target(folder, results):
    trace = Results(folder).load_trace(results.records[0].name)
    for plot in (plot_curves, plot_pit, plot_predicted_observed):
        assert len(plot(trace, "title").axes) == 2
    assert [axes.get_ylabel() for axes in plot_curves(trace, "title").axes] == ["height", "weight"]
    assert len(plot_compared_curves([trace, trace], ["one", "other"], "title").axes) == 4
    drawn = " ".join(path.name for path in (folder / "figures").iterdir())
    for kind in ("curves.png", "predicted-observed.png", "pit.png"):
        assert kind in drawn


@pytest.mark.slow
def test_the_page_has_columns_of_each_target(folder, tmp_path):
    done = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "RMSE height" in page
    assert "CRPS weight" in page


@pytest.mark.slow
def test_a_fit_is_held_against_its_sample(folder):
    (row,) = pd.read_csv(folder / "agreement.csv").to_dict("records")
    assert row["wasserstein"] > 0
    quantities = set(pd.read_csv(folder / "sensitivity.csv")["quantity"].str.split(" at ").str[0])
    assert {"output height", "output weight"} <= quantities


@pytest.mark.slow
def test_baseline_models_say_that_they_are_of_one_target(folder, results):
    with pytest.raises(DataError, match="baseline models are of one target, got height, weight"):
        make_baselines(Results(folder), results.records)
    means = make_baselines(Results(folder), results.records, models=()).means
    assert means["nll"].notna().all()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (
            "likelihood: bernoulli",
            "`sweeps[0].likelihood` must be normal or student_t with data set `table` "
            "(`sweeps[0].dataset`), whose targets are 2 numbers a row, got 'bernoulli'.",
        ),
        (
            "likelihood: {kind: normal, sd: [[0.1, 0.2, 0.3]]}",
            "`sweeps[0].likelihood.sd[0]` must be a number, or 2 of them, one for each target, "
            "got [0.1, 0.2, 0.3].",
        ),
        (
            "dataset: {kind: table, file: two.csv, target: [[height, height]]}",
            "`sweeps[0].dataset.target[0]` must name each target once, got 'height' twice.",
        ),
        (
            "dataset: {kind: table, file: two.csv, target: [[at, weight]], features: [[weight]]}",
            "`sweeps[0].dataset.features[0]` must not name the target, got 'weight'.",
        ),
    ],
)
def test_errors_come_before_anything_is_fitted(home, section, message):
    name = section.partition(":")[0]
    lines = [f"    {section}" if f" {name}:" in line else line for line in FILE.splitlines()]
    file = home / "wrong.yaml"
    file.write_text("\n".join(lines))
    done = CliRunner().invoke(app, ["sweep", str(file), "--dry-run"])
    assert (done.exit_code, done.stderr) == (2, f"error: {message}\n")
