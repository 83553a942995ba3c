"""Cells of a gap between two clusters end to end, at a tiny size."""

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import yaml

import pmbnn as pb
from pmbnn.data import InBetween, Sine
from pmbnn.data.arrays import fit_standardisation
from pmbnn.experiment.load import load_experiment
from pmbnn.fitting.sampling import across_gaps
from pmbnn.prediction.density import mixture
from pmbnn.prediction.predictor import functions_of
from pmbnn.results.loading import restore_cell

pytestmark = pytest.mark.slow

EXPERIMENT = {
    "name": "tiny",
    "data_folder": str(Path(__file__).parents[2] / "experiments"),
    "plugins": ["reproduction/study"],
    "sweeps": [
        {
            "name": "gap",
            "dataset": "in_between",
            "network": {"kind": "dense", "hidden": [[4]], "activation": "relu"},
            "prior": {"kind": "normal", "fan_in": True, "bias_scale": 1},
            "likelihood": {"kind": "normal", "sd": 0.1},
            "inference": [
                {"steps": 200, "validation": 0},
                {"engine": "mclmc", "chains": 4, "draws": 12, "tuning": 200, "thin": 1},
            ],
            "predict": {"draws": 30, "trace_draws": 8},
        }
    ],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory, made):
    folder = tmp_path_factory.mktemp("gap")
    made.write_in_between(folder)
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PMBNN_DATA", str(folder))
        yield pb.run(file, out=folder / "out", workers=1, quiet=True)


def trace_of(results, record):
    path = results.results.cells / record.name / "trace.nc"
    with xr.open_datatree(path, engine="netcdf4") as tree:
        return tree.load()


def test_a_sampled_cell_tells_its_chains_apart(results):
    """Their moments come to those of all, and are those of the draws that are kept."""
    _, record = results.records
    trace = trace_of(results, record)
    for group in ("test_predictions", "curve_1"):
        of = trace[group]
        mean, sd = of["chain_mean"].values, of["chain_sd"].values
        assert mean.shape[0] == 4
        np.testing.assert_allclose(mean.mean(axis=0), of["mean"], atol=1e-5)
        variance = (sd**2 + mean**2).mean(axis=0) - mean.mean(axis=0) ** 2
        np.testing.assert_allclose(np.sqrt(variance), of["epistemic_sd"], rtol=1e-3, atol=1e-4)
    restored = restore_cell(results.results.cells / record.name)
    line = trace["curve_1"]
    inputs = line["x"].values[:, None] * line["direction"].values
    drawn = restored.predictor.single_draws(restored.sources[2], restored.data, inputs, 12)
    alone = mixture(restored.predictor.likelihood, [drawn], [1.0])
    np.testing.assert_allclose(line["chain_sd"][2], alone.epistemic_sd, rtol=1e-3, atol=1e-5)
    assert "chain_mean" not in trace_of(results, results.records[0])["curve_1"]


def test_results_tell_of_the_gap(results):
    for record in results.records:
        line = trace_of(results, record)["curve_1"]
        sd = line["epistemic_sd"].values
        assert record.results["smallest_sd"] == pytest.approx(sd.min(), rel=1e-5)
        found = np.interp(0, line["x"].values, sd)
        assert record.results["sd_at_0"] == pytest.approx(found, rel=1e-5)
        assert "band_inside" not in record.results


def test_tables_and_figures_are_written(results):
    folder = results.results.folder
    agreement, gap = (pd.read_csv(folder / f"{n}.csv") for n in ("agreement", "in_between"))
    assert {"wasserstein", "wasserstein_curve", "nll_difference"} <= set(agreement.columns)
    assert list(gap["method"]) == ["mean_field", "mclmc", "gaussian_process"]
    assert np.isfinite(gap["ratio_median"][0]) and gap["reference"][0] == "mclmc"
    names = {path.name for path in results.figures}
    assert {"in-between-points-origin-gap.png", "in-between-points-origin-curves.png"} <= names


def test_chains_are_compared_across_the_gap_too(results):
    """At 100 rows and 400 points of the line, and the noise; of the sine, at its rows alone."""
    restored = restore_cell(results.results.cells / results.records[1].name)
    values = np.zeros((2, 3, restored.predictor.flat.size), "f4")
    cell = load_experiment(results.results.folder / "experiment.yaml").cells[1]
    x = np.random.default_rng(0).normal(size=(100, 2))
    dataset = dataclasses.replace(Sine().load(), standardisation=fit_standardisation(x, "feature"))
    (line,) = across_gaps(cell, dataset)
    np.testing.assert_allclose(line, dataset.standardisation(InBetween().lines()[0].inputs))
    data = dict(restored.data) | {"x": x}
    found = functions_of(restored.predictor, data, line)(values)
    assert found.shape == (2, 3, 100 + 400 + 1)
    assert across_gaps(dataclasses.replace(cell, dataset=Sine()), Sine().load()) == []
