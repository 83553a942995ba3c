"""Made-up results folders: records, small traces, pictures."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from PIL import Image
from typer.testing import CliRunner

from pmbnn.report.command import app
from pmbnn.storage import Results, json_writer, trace_writer
from pmbnn.tables import metrics_row

HOSTILE = '<script>alert("1")</script></template>&'
"""Text that does harm on a page that does not escape it."""

PRIORS = {"normal": {"kind": "normal"}, "laplace": {"kind": "laplace"}, "flat": {"kind": "flat"}}
HYPERPRIORS = {
    "tuned": {"kind": "fixed", "scale": {"log": [0.1, 10.0, 3]}},
    "half_normal": {"kind": "half_normal", "sigma": 1.0},
    "none": {"kind": "fixed", "scale": None},
}


def make_record(prior="normal", hyperprior="tuned", seed=0, status="converged", **results):
    """What metrics.json of a cell of moons holds."""
    name = f"moons-{prior}-{hyperprior}-{seed}"
    return {
        "sweep": "synthetic",
        "name": name,
        "settings": {
            "dataset": {"kind": "moons", "seed": seed, "noise": 0.4, "train": 700, "test": 300},
            "network": {"kind": "dense", "hidden": [5, 5], "activation": "tanh"},
            "prior": PRIORS[prior],
            "hyperprior": HYPERPRIORS[hyperprior],
            "likelihood": {"kind": "categorical"},
            "inference": {"guide": "mean_field", "kl_weight": 1.0},
            "predict": {"draws": 100},
        },
        "results": results,
        "seconds": 1.5 + seed,
        "status": status,
        "reason": "it rose by 0.1",
    }


def make_records():
    """A grid of two priors, two hyperpriors and two seeds, a flat prior, and a failed cell."""
    records = []
    for at, (prior, hyperprior, seed) in enumerate(
        (p, h, s) for s in (0, 1) for p in ("normal", "laplace") for h in ("tuned", "half_normal")
    ):
        results = {"accuracy": 0.8 + 0.01 * at, "excess_error": 0.01 * (8 - at), "nll": 0.4}
        results |= {"elbo": -300.0 - at, "scale": 1.0, "validation_nll": 0.5 - 0.01 * at}
        records.append(make_record(prior, hyperprior, seed, **results))
    records[0]["choice"] = {"scales": [0.1, 1.0], "nll": [[None, 0.5], [0.4, 0.6]], "candidate": 1}
    records[0]["restarts"] = [
        {"status": "converged", "reason": "flat", "elbo": -300.0 - at, "weight": 1.0 - at}
        for at in (0, 1)
    ]
    records.append(make_record("flat", "none", 0, "improper", accuracy=0.86, nll=0.35, elbo=-200.0))
    failed = make_record("flat", "none", 1, "diverged")
    return [*records, failed | {"reason": HOSTILE}]


def make_trace(shift=0.0, weights=4):
    """Trace with what the page reads: an ELBO, weights of the last layer, a map."""
    rng = np.random.default_rng(0)
    elbo = -300 - 1000 / np.arange(1, 81)[None] + np.array([[0.0], [-5.0]])
    centre = np.where(np.arange(weights) < 2, 3.0, 0.0)
    draws = centre + 0.3 * rng.standard_normal((2, 50, weights))
    x1, x2 = np.linspace(-2, 2, 12), np.linspace(-1, 1, 10)
    first = 1 / (1 + np.exp(-3 * (x1[:, None] + x2 + shift)))
    both = np.stack([first, 1 - first], axis=-1)
    sd = 0.3 * np.exp(-((x1[:, None] + x2) ** 2))
    groups = {
        "/fit": xr.Dataset(
            {"elbo": (("chain", "window"), elbo), "step": ("window", np.arange(100, 8100, 100))},
            {"chain": [0, 1]},
            {"best": 1},
        ),
        "/posterior": xr.Dataset(
            {
                "weight_1": (
                    ("chain", "draw", "feature", "hidden_1"),
                    np.zeros((2, 50, 2, weights)),
                ),
                "weight_2": (("chain", "draw", "hidden_1"), draws),
            },
            {"chain": [0, 1]},
        ),
        "/predictions": xr.Dataset(
            {
                "probability": (("x1", "x2", "output"), both),
                "sd": (("x1", "x2", "output"), np.stack([sd, sd], axis=-1)),
            },
            {"x1": x1, "x2": x2, "output": ["0", "1"]},
        ),
    }
    return xr.DataTree.from_dict(groups)


def write_picture(path, size=(60, 30)):
    Image.fromarray(np.full((size[1], size[0], 3), 200, np.uint8)).save(path)


def write_results(folder, records, experiment="priors"):
    """A results folder with a trace and a picture for every cell that has results."""
    results = Results(folder)
    results.prepare()
    for record in records:
        files = {"metrics.json": json_writer(record)}
        if record["results"]:
            files |= {"trace.nc": trace_writer(make_trace()), "map.png": write_picture}
        results.save_cell(record["name"], files)
    results.write_table("metrics.csv", map(metrics_row, records))
    provenance = {
        "experiment": experiment,
        "written": "2026-01-02T03:04:05+0000",
        "versions": {"python": "3.12.1", "pymc": HOSTILE},
        "machine": {"system": "a machine", "cores": 2},
        "data": [{"dataset": {"kind": "moons"}, "fingerprint": "ab12" * 16, "source": HOSTILE}],
        "seeds": {"inference": [0]},
    }
    (folder / "provenance.json").write_text(json.dumps(provenance), encoding="utf-8")
    write_picture(results.figures / "synthetic-moons-noise-0.4-accuracy.png", (300, 200))
    write_picture(results.figures / "synthetic-moons-noise-0.4-maps.png", (300, 200))
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A whole results folder; tests only read it, but for the claims that the report writes."""
    return write_results(tmp_path_factory.mktemp("results") / "priors", make_records())


@pytest.fixture(scope="session")
def make():
    """The makers above."""
    return SimpleNamespace(
        record=make_record,
        records=make_records,
        trace=make_trace,
        results=write_results,
        hostile=HOSTILE,
    )


@pytest.fixture(scope="session")
def page(folder):
    """File of the report on that folder."""
    done = CliRunner().invoke(app, [str(folder), "--out", str(folder.parent / "out")])
    assert done.exit_code == 0, done.output
    return folder.parent / "out" / "report.html"
