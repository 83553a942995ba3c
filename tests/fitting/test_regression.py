"""Regressions end to end, at a tiny size: tables, traces, figures, and going on."""

import csv
import io

import numpy as np
import pytest
import xarray as xr
import yaml
from rich.console import Console

from pmbnn.cli.cell_tables import accuracy_tables
from pmbnn.data import Sine
from pmbnn.data.arrays import Line
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import jobs
from pmbnn.figures import draw_cells, draw_files, overviews_of
from pmbnn.fitting.evaluation import Curve, bands, gaps
from pmbnn.fitting.job import run_job
from pmbnn.fitting.tasks import JobTask
from pmbnn.prediction.density import Density
from pmbnn.results.loading import restore_cell, sample_posterior
from pmbnn.results.present import present_records
from pmbnn.sweep.cells import prepare, write_header, write_tables
from pmbnn.sweep.outputs import Display

pytestmark = pytest.mark.slow

NETWORK = {"kind": "dense", "hidden": [[4]], "activation": "relu"}
PREDICT = {"draws": 20, "trace_draws": 8}
EXPERIMENT = {
    "name": "tiny",
    "sweeps": [
        {
            "name": "bayesian",
            "dataset": {"kind": "sine", "train": 10, "seed": [0, 1]},
            "network": NETWORK,
            "prior": {"kind": "scale_mixture", "learned": True},
            "inference": {"steps": 60, "restarts": 2},
            "predict": PREDICT | {"mixture": "equal"},
        },
        {
            "name": "deterministic",
            "dataset": {"kind": "sine", "train": 10},
            "network": NETWORK,
            "prior": "flat",
            "likelihood": {"kind": "normal", "sd": 0.5},
            "inference": {"guide": "maximum_likelihood", "steps": 60, "validation": 0},
            "predict": PREDICT,
        },
    ],
}


def run_all(run):
    """Fit what is missing, as a worker does; the names of the cells that were fitted."""
    stored = []
    missing = run.missing(list(run.tasks))
    for job in jobs(list(run.tasks), missing) if missing else []:
        task = JobTask(job.group, job.width, tuple(run.tasks[cell] for cell in job.wanted))
        run_job(task, run.results.folder, stored.append)
    return [record.name for record in stored]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, its records and figures."""
    folder = tmp_path_factory.mktemp("regression")
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(EXPERIMENT))
    run = prepare(load_experiment(file), folder / "out")
    write_header(run)
    assert len(run_all(run)) == 3
    records = present_records(run.results)
    draw_cells(run.results, records)
    figures = draw_files(overviews_of(run.results, records), run.results)
    write_tables(run, records)
    return run, records, figures


@pytest.fixture(scope="module")
def cell(finished):
    """Folder and record of a Bayesian cell."""
    run, records, _ = finished
    return run.results.cells / records[0].name, records[0]


def test_every_cell_has_its_metrics(finished):
    run, records, _ = finished
    assert {record.status for record in records} <= {"converged", "not_converged"}
    with (run.results.folder / "metrics.csv").open() as table:
        rows = list(csv.DictReader(table))
    names = ("rmse", "nll", "crps", "coverage_50", "coverage_90", "coverage_95", "pooled_rmse")
    assert all(np.isfinite(float(row[name])) for row in rows for name in names)
    with (run.results.folder / "summary.csv").open() as table:
        summary = list(csv.DictReader(table))
    assert [row["cells"] for row in summary] == ["2", "1"]
    assert float(summary[0]["rmse_se"]) > 0
    assert float(rows[0]["validation_nll"]) > 0 and rows[2]["validation_nll"] == ""


def test_bands_are_recorded(finished):
    _, records, _ = finished
    bayesian, point = records[0].results, records[2].results
    smaller = min(bayesian["band_at_-1.5"], bayesian["band_at_1.5"])
    assert bayesian["band_ratio_1.5"] == pytest.approx(smaller / bayesian["band_inside"])
    assert point["band_at_1.5"] == 0 and point["band_ratio_1.5"] is None
    assert point["mean_total_sd"] == pytest.approx(0.5)


def test_bands_by_hand():
    def curve(*sd):
        sd = np.array(sd)
        line = Line(np.array([-3.0, 0.0, 3.0]), np.ones(1), truth=sd)
        return Curve(line, Density(10 * sd, sd, *[sd] * 6))

    found = bands((curve(1.0, 2.0, 3.0), curve(8.0, 0.0, 12.0)))
    assert found == {
        "band_inside": 4.0,
        "mean_at_-3": 80.0,
        "mean_at_3": 120.0,
        "band_at_-3": 16.0,
        "band_at_3": 24.0,
        "band_ratio_3": 4.0,
    }


def test_a_gap_by_hand():
    """Half way between two points of a line, whose spread is no band of a range."""
    line = Line(np.array([-3.0, -1.0, 1.0]), np.array([0.6, 0.8]), gap=0.0)
    sd = np.array([0.5, 2.0, 4.0])
    curve = Curve(line, Density(sd, sd, *[sd] * 6))
    assert gaps((curve,)) == {"sd_at_0": 3.0, "smallest_sd": 0.5}
    assert bands((curve,)) == {}
    assert gaps((Curve(Line(line.position, np.ones(1)), Density(sd, sd, *[sd] * 6)),)) == {}


def test_the_trace_tells_everything(cell):
    folder, record = cell
    with xr.open_datatree(folder / "trace.nc", engine="netcdf4") as tree:
        trace = tree.load()
    data = Sine(train=10).load()
    assert {"noise", "weight_1", "mixture_sigma_1", "mixture_proportion"} <= set(trace["posterior"])
    assert trace["log_likelihood"]["y"].shape == (1, 8, 10)
    assert trace["restarts"]["weight_1"].shape == (2, 8, 1, 4)
    assert trace["posterior_predictive"]["y"].dtype == np.float32
    np.testing.assert_allclose(trace["observed_data"]["y"], data.y_train)
    test = trace["test_predictions"]
    rmse = np.sqrt(np.mean((test["mean"] - test["target"]).values ** 2))
    assert rmse == pytest.approx(record.results["rmse"], rel=1e-5)
    for number, (low, high) in enumerate(Sine.ranges, 1):
        curve = trace[f"curve_{number}"]
        x = curve["x"].values
        assert (x[0], x[-1]) == (low, high)
        np.testing.assert_allclose(curve["truth"], 10 * np.sin(2 * np.pi * x))
        assert (curve["total_sd"] > curve["epistemic_sd"]).all()
        assert (curve["output_interval"][0] <= curve["output_interval"][1]).all()
    assert (folder / "trace.nc").stat().st_size < 2_000_000


def test_a_second_run_fits_nothing_and_fills_a_gap(finished):
    run, records, _ = finished
    assert run_all(run) == []
    name = records[2].name
    run.results.remove(name)
    assert run_all(run) == [name]
    same = {"seconds": 0.0, "files": {}}
    again = run.results.load_record(name).model_copy(update=same)
    assert again == records[2].model_copy(update=same)


def test_a_cell_is_restored(cell):
    folder, record = cell
    restored = restore_cell(folder)
    data = record.cell.dataset.load()
    sources, weights = list(restored.sources.values()), list(restored.weights.values())
    found = restored.predictor.predict(sources, weights, restored.data, data.x_test, 20)
    rmse = np.sqrt(np.mean((found.mean - data.y_test) ** 2))
    assert rmse == pytest.approx(record.results["rmse"], rel=1e-3)
    assert (sample_posterior(folder, 3)["noise"] > 0).all()


def test_figures_are_drawn(finished, cell):
    _, _, figures = finished
    kinds = ("curves", "predicted-observed", "pit", "uncertainty-parts")
    assert [path.name for path in figures] == [
        *(f"bayesian-sine-noise-1-{kind}.png" for kind in kinds),
        *(f"deterministic-sine-noise-1-{kind}.png" for kind in kinds),
        "sine-noise-1-curves.png",
    ]
    paths = [*figures, cell[0] / "curves.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)
    assert all(path.stat().st_size > 10_000 for path in paths)


def test_the_tables_and_the_lines_speak_of_errors(finished):
    _, records, _ = finished
    titles = [str(table.title).split(",")[0] for table in accuracy_tables(records)]
    assert titles == ["Test RMSE (target's units)"] * 2
    console = Console(record=True, width=200, file=io.StringIO())
    with Display(console, {records[0].name: 1.0}, quiet=False) as display:
        display.stored(records[0])
    assert f"RMSE {records[0].results['rmse']:.4g} (" in console.export_text()
