"""Made-up results folders: records, small traces, figures."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hostile import INJECTIONS, harmless, records
from makers import list_present
from PIL import Image
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.compare.baselines import BY_ELBO, CHOSEN, PAIRED_COLUMNS, Baselines, write_baselines
from pmbnn.results.derived import cells_digest, note_files, overview_files
from pmbnn.results.loading import load_results
from pmbnn.results.present import present_records
from pmbnn.results.record import CellRecord, Restart, ScaleSelection
from pmbnn.results.store import Results, trace_writer
from pmbnn.results.tables import metrics_table

HOSTILE = '<script>alert("1")</script></template>&'
"""Text that does harm on a page that does not escape it."""

TABLE = Path(__file__).parents[2] / "experiments" / "reproduction" / "published.yaml"
"""Published numbers of the experiments of this project."""

PRIORS = {"normal": {"kind": "normal"}, "laplace": {"kind": "laplace"}, "flat": {"kind": "flat"}}
HYPERPRIORS = {
    "tuned": {"kind": "fixed", "scale": {"log": [0.1, 10.0, 3]}},
    "half_normal": {"kind": "half_normal", "sigma": 1.0},
    "none": {"kind": "fixed", "scale": None},
}


def make_record(prior="normal", hyperprior="tuned", seed=0, status="converged", **results):
    """Record of a cell of moons; fields of it, settings by section and results are replaced."""
    settings = {
        "dataset": {"kind": "moons", "seed": seed, "noise": 0.4, "train": 700, "test": 300},
        "network": {"kind": "dense", "hidden": [5, 5], "activation": "tanh"},
        "prior": PRIORS[prior],
        "hyperprior": HYPERPRIORS[hyperprior],
        "likelihood": {"kind": "categorical"},
        "inference": {"guide": "mean_field", "kl_weight": 1.0},
        "predict": {"draws": 100},
    }
    for section in list(settings):
        settings[section] = settings[section] | results.pop(section, {})
    fields = {name: results.pop(name) for name in list(results) if name in CellRecord.model_fields}
    given = {
        "sweep": "synthetic",
        "name": f"moons-{prior}-{hyperprior}-{settings['dataset']['noise']}-{seed}",
        "settings": settings,
        "predictive": "class_probabilities" if results else None,
        "results": results,
        "seconds": 1.5 + seed,
        "status": status,
        "reason": "it rose by 0.1",
    }
    return CellRecord(**(given | fields))


def make_records():
    """A grid of two priors, two hyperpriors and two seeds, a flat prior, and a failed cell."""
    records = []
    for at, (prior, hyperprior, seed) in enumerate(
        (p, h, s) for s in (0, 1) for p in ("normal", "laplace") for h in ("tuned", "half_normal")
    ):
        results = {"accuracy": 0.8 + 0.01 * at, "excess_error": 0.01 * (8 - at), "nll": 0.4}
        results |= {"elbo": -300.0 - at, "scale": 1.0, "validation_nll": 0.5 - 0.01 * at}
        records.append(make_record(prior, hyperprior, seed, **results))
    restarts = tuple(
        Restart(status="converged", reason="flat", elbo=-300.0 - at, weight=1.0 - at)
        for at in (0, 1)
    )
    selection = ScaleSelection(
        scales=(0.1, 1.0), nll=((None, 0.5), (0.4, 0.6)), restart=(1, 0), candidate=1
    )
    records[0] = records[0].model_copy(update={"selection": selection, "restarts": restarts})
    records.append(make_record("flat", "none", 0, "improper", accuracy=0.86, nll=0.35, elbo=-200.0))
    return [*records, make_record("flat", "none", 1, "diverged", reason=HOSTILE)]


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
            {"elbo": (("restart", "window"), elbo), "step": ("window", np.arange(100, 8100, 100))},
            {"restart": [0, 1]},
            {"best": 1},
        ),
        "/posterior": xr.Dataset(
            {
                "weight_1": (
                    ("chain", "draw", "feature", "hidden_1"),
                    np.zeros((1, 50, 2, weights)),
                ),
                "weight_2": (("chain", "draw", "hidden_1"), draws[1:]),
            },
            {"chain": [0]},
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


def make_contrast(name, posterior, advi, **changes):
    """Row of a table of verdicts; columns of it are replaced."""
    ends = {"": -0.002, "_low": -0.003, "_high": -0.001}
    of = ("reference", "advi", "delta")
    numbers = {f"{name}{end}": v for name in of for end, v in ends.items()}
    row = {"contrast": name, "exploratory": False, "data": "moons, noise 0.4", "seeds": 5}
    row |= {"metric": "excess_nll", "margin": 0.001, "note": "", **numbers}
    row |= dict.fromkeys(("ensemble", "ensemble_low", "ensemble_high"), np.nan)
    verdicts = {"posterior_verdict": posterior, "advi_verdict": advi, "ensemble_verdict": ""}
    return row | verdicts | changes


def make_baselines(data="moons, noise 0.4"):
    """Tables of the chosen network, better than one method and undecided against another."""
    methods = {CHOSEN: "chosen network", BY_ELBO: "chosen network", "random forest": "baseline"}
    methods |= {HOSTILE: "published", "normal × tuned": "combination", "far": "combination"}
    chosen = {CHOSEN: "normal × tuned (2)"}
    means = [
        {"data": data, "method": method, "kind": kind, "seeds": 2, "accuracy": 0.9,
         "accuracy_se": np.nan, "nll": 0.3456, "nll_se": 0.0123, "rmse": np.nan,
         "combination": chosen.get(method, "")}
        for method, kind in methods.items()
    ]  # fmt: skip
    intervals = {BY_ELBO: (np.nan, np.nan, "undecided"), "random forest": (-0.3, -0.1, "better")}
    intervals |= {HOSTILE: (-0.5, 0.1, "undecided"), "normal × tuned": (-0.4, 0.0, "undecided")}
    paired = [
        (
            data,
            CHOSEN,
            method,
            methods[method],
            metric,
            2,
            -0.2,
            0.05,
            low,
            high,
            0.03,
            0.06,
            2,
            0,
            0,
            verdict,
            0.0,
        )
        for method, (low, high, verdict) in intervals.items()
        for metric in ("nll", "error")
    ]
    return Baselines(pd.DataFrame(means), pd.DataFrame(paired, columns=PAIRED_COLUMNS))


def write_figure(path, size=(60, 30)):
    Image.fromarray(np.full((size[1], size[0], 3), 200, np.uint8)).save(path)


def write_results(folder, records, experiment="priors", published=None):
    """A results folder with a trace and a figure for every cell that has results."""
    results = Results(folder)
    results.prepare()
    for record in records:
        files = {"trace.nc": trace_writer(make_trace())} if record.results else {}
        results.save_cell(record, files)
        if record.results:
            write_figure(results.cells / record.name / "map.png")
    list_present(results, [record.name for record in records])
    results.write_table("metrics.csv", metrics_table(records))
    if published is not None:
        results.write_text("published.yaml", published)
    provenance = {
        "experiment": experiment,
        "written": "2026-01-02T03:04:05+0000",
        "versions": {"python": "3.12.1", "pymc": HOSTILE},
        "machine": {"system": "a machine", "cores": 2},
        "data": [{"dataset": {"kind": "moons"}, "fingerprint": "ab12" * 16, "source": HOSTILE}],
        "seeds": {"inference": [0]},
    }
    (folder / "provenance.json").write_text(json.dumps(provenance), encoding="utf-8")
    write_figure(results.figures / "synthetic-moons-noise-0.4-accuracy.png", (300, 200))
    write_figure(results.figures / "synthetic-moons-noise-0.4-maps.png", (300, 200))
    note_files(results, overview_files(results), cells_digest(present_records(results)))
    return folder


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A whole results folder; tests only read it, but for the claims that the report writes."""
    folder = tmp_path_factory.mktemp("results") / "priors"
    write_results(folder, make_records(), published=TABLE.read_text(encoding="utf-8"))
    load_results(folder).note_made(write_baselines(Results(folder), make_baselines()))
    return folder


@pytest.fixture(scope="session")
def make():
    """The makers above."""
    return SimpleNamespace(
        record=make_record,
        records=make_records,
        trace=make_trace,
        contrast=make_contrast,
        baselines=make_baselines,
        results=write_results,
        hostile=HOSTILE,
    )


@pytest.fixture(scope="session")
def page(folder):
    """File of the report on that folder, for which no figure is drawn."""
    with pytest.MonkeyPatch.context() as alone:
        alone.setattr("pmbnn.report.rebuild.draw_files", lambda *_: [])
        alone.setattr("pmbnn.core.machine.cores", lambda: 1)
        done = CliRunner().invoke(app, ["report", str(folder), "--out", str(folder.parent / "out")])
    assert done.exit_code == 0, done.output
    return folder.parent / "out" / "index.html"


@pytest.fixture(scope="session")
def hostile_folders(tmp_path_factory):
    """Hostile results and harmless ones of the same kind, each with its page."""
    found = []
    for words in (INJECTIONS, tuple(map(harmless, INJECTIONS))):
        folder = tmp_path_factory.mktemp("hostile")
        said = records(make_record, words)
        write_results(folder, said, experiment=words[0])
        with pytest.MonkeyPatch.context() as alone:
            # What is drawn is no part of the page's text.
            alone.setattr("pmbnn.report.rebuild.rebuild", lambda folder, *_: folder)
            alone.setattr("pmbnn.core.machine.cores", lambda: 1)
            done = CliRunner().invoke(app, ["report", str(folder)])
        assert done.exit_code == 0, done.output
        found.append(folder)
    return found
