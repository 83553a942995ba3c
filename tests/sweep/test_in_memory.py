"""Experiments that Python code writes, with data that lie in memory."""

import dataclasses
import sys
from importlib import import_module
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pytest
import yaml

import pmbnn as pb
from pmbnn.core.errors import ConfigError
from pmbnn.core.spec import METRICS
from pmbnn.experiment.load import load_experiment
from pmbnn.fitting.job import _fit
from pmbnn.results.store import Results
from pmbnn.sweep.cells import prepare
from pmbnn.sweep.in_memory import experiment_in_memory

OUT = Path("out")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def a_frame(rows=40):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=rows), "colour": ["red", "blue"] * (rows // 2)})
    frame["shop"] = np.arange(rows) // 4
    return frame.assign(price=100 + 5 * frame["x"] + rng.normal(size=rows))


FRAME = a_frame()
SPLIT = pb.RandomSplit(group="shop")


def of_frame(frame=FRAME, **settings):
    return pb.Dataset.from_frame(frame, "price", split=SPLIT, **settings)


def content(dataset, **settings):
    sweep = {
        "name": "own",
        "dataset": dataset,
        "network": pb.Dense(hidden=(3,)),
        "prior": (pb.Laplace(),),
        "inference": {"steps": np.int64(20), "validation": 0, "restarts": 1},
        "predict": {"draws": 5, "trace_draws": 5},
    }
    return {"name": "own", "sweeps": [sweep | settings]}


def held(dataset, **settings):
    return experiment_in_memory(content(dataset, **settings), OUT)


def identities(experiment):
    return [task.identity for task in prepare(experiment, OUT).tasks.values()]


def test_cells_are_those_of_an_archive_of_the_same_rows():
    """What decides their numbers, of which random numbers come, is the same."""
    cells = identities(held([of_frame(seed=0), of_frame(seed=1)]))
    x = np.stack([FRAME["x"], FRAME["colour"] == "blue", FRAME["colour"] == "red"], axis=1)
    np.savez("rows.npz", x=x, y=FRAME["price"], shop=FRAME["shop"])
    assert cells == identities(held([pb.Npz(file="rows.npz", split=SPLIT, seed=s) for s in (0, 1)]))
    assert len(list((OUT / "data").iterdir())) == 1, "one archive for both seeds"
    [other] = identities(held(of_frame(FRAME.assign(x=FRAME["x"] + 1e-9))))
    assert other not in cells
    assert len(list((OUT / "data").iterdir())) == 2


def test_every_kind_of_rows_is_stored_as_it_is():
    rng = np.random.default_rng(1)
    bytes_ = rng.integers(256, size=(12, 4, 4)).astype(np.uint8)
    Path("test.txt").write_text("2\n3\n")
    rows, folds = pb.Indices(file="test.txt"), pb.Folds(folds=3, group="file")
    drop = {"missing": "drop", "redundant": "drop"}
    gaps = FRAME.assign(file=FRAME["shop"], kind=FRAME["colour"], shop=1.0)
    gaps.loc[1, "kind"] = gaps.loc[4, "x"] = None
    made = [
        pb.Dataset.from_arrays(bytes_, np.array(["a", "b"] * 6, dtype=object), split=rows),
        pb.Dataset.from_arrays(rng.normal(size=(12, 2)), [True, False] * 6, features=["up", "ä"]),
        pb.Dataset.from_frame(gaps, "kind", split=rows, name="a/b", **drop),
        pb.Dataset.from_frame(gaps, "price", missing="mean", without=["shop"], split=folds),
        pb.Dataset.from_arrays(
            rng.normal(size=(12, 2)),
            rng.normal(size=12),
            groups=pd.Series(list("abc") * 4),
            split=folds,
        ),
    ]
    for dataset in made:
        [spec] = held(dataset).sweeps[0].sections["dataset"]
        loaded = spec.load()
        assert loaded.fingerprint == dataset.fingerprint
        for name in ("features", "classes", "input_shape", "overlap", "categories"):
            assert getattr(loaded, name) == getattr(dataset, name)


def test_groups_that_no_split_asks_for():
    with pytest.raises(pb.DataError, match="`groups` must be left out unless `split` has a `gr"):
        pb.Dataset.from_arrays(np.eye(8), np.arange(8) / 7, groups=np.arange(8) // 2)


BY_HAND = pb.Moons(noise=0.3, train=20, test=10).load()

WRONG = [
    ([of_frame(), BY_HAND], {}, "`sweeps[0].dataset[1]` must be a data set that `pb.Dataset.from_"),
    (FRAME, {}, "`sweeps[0].dataset` must be a name, a number, a list, a mapping or an object of"),
    (of_frame(), {"prior": "normel"}, "`sweeps[0].prior` must be one of cauchy, cell, correlat"),
    ([of_frame(), of_frame()], {}, "`sweeps[0].dataset[1]` must not repeat `sweeps[0].dataset[0]`"),
    (
        dataclasses.replace(of_frame(), y_test=of_frame().y_test + 1),
        {},
        "`sweeps[0].dataset[0]` must be as it was made",
    ),
]


@pytest.mark.parametrize(("dataset", "settings", "message"), WRONG)
def test_errors_come_before_anything_is_written(dataset, settings, message):
    with pytest.raises(ConfigError) as error:
        pb.run(content(dataset, **settings))
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert not list(Path.cwd().iterdir())


def test_settings_of_rows_in_memory_are_checked_at_once():
    with pytest.raises(ConfigError, match="^`missing` must be one of drop, error, mean, got 'no'"):
        of_frame(missing="no")
    with pytest.raises(TypeError, match="no argument `shuffle`"):
        pb.Dataset.from_arrays(np.eye(4), np.arange(4), shuffle=True)


def test_a_list_of_test_rows_for_every_seed_needs_files():
    np.savez("splits.npz", test_0=[1, 2], test_1=[3])
    split = pb.Indices(file="splits.npz", test="test_{seed}")
    dataset = pb.Dataset.from_frame(FRAME, "price", split=split)
    with pytest.raises(ConfigError, match=r"the same test rows for every data seed, got a split"):
        held(dataset)


@pytest.mark.slow
def test_a_run_and_its_results(tmp_path, monkeypatch):
    """The results folder stands on its own, wherever it is read."""
    made = [of_frame(seed=seed) for seed in (0, 1)]
    results = pb.run(content(made), quiet=True)
    assert all(record.results for record in results.records)
    assert results.summary.shape[0] == 1, "data seeds of one data set"
    traces = [results.cell(name=name).folder / "trace.nc" for name in results.cells.index]
    before = [path.stat().st_mtime_ns for path in traces]
    pb.run(content(made), quiet=True)
    assert before == [path.stat().st_mtime_ns for path in traces]

    folder = (tmp_path / "results" / "own").rename(tmp_path / "moved")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = load_experiment(folder / "experiment.yaml")
    assert [s.load().fingerprint for s in again.sweeps[0].sections["dataset"]] == [
        dataset.fingerprint for dataset in made
    ]
    cell = pb.load_results(folder).cell(dataset_seed=1)
    network = cell.posterior.origin
    training = network.training()
    assert training.features == ("x", "colour=blue", "colour=red")
    np.testing.assert_array_equal(network.standardisation.mean, made[1].standardisation.mean)
    np.testing.assert_array_equal(training.x, made[1].x_train)
    assert not prepare(again, folder).missing(again.cells)


def test_what_pyyaml_reads_of_a_file_is_an_experiment(tmp_path):
    """The key ``on`` is true to YAML 1.1."""
    text = (
        "name: file\n"
        "sweeps:\n"
        "  - name: one\n"
        "    dataset: {kind: moons, noise: 0.3}\n"
        "    network: {kind: dense, hidden: [[2]]}\n"
        "    prior: laplace\n"
        "    hyperprior: {kind: half_normal, on: variance}\n"
    )
    content = yaml.safe_load(text)
    assert True in content["sweeps"][0]["hyperprior"]
    file = tmp_path / "file.yaml"
    file.write_text(text)
    (cell,) = experiment_in_memory(content, tmp_path / "out").cells
    assert (cell,) == load_experiment(file).cells
    assert cell.hyperprior.on == "variance"


def test_parts_of_a_script_are_refused_before_anything_is_fitted(registries):
    """Workers do not run it: cells failed, and a metric was missing without a word."""

    @pb.register
    class Typed(pb.Prior):
        __module__ = "__main__"
        kind: Literal["typed"] = "typed"
        distribution = "Laplace"

    with pytest.raises(ConfigError) as error:
        prepare(held(of_frame(), prior=Typed()), OUT)
    assert str(error.value) == (
        "`plugins` must name a file that registers the prior `typed`: worker processes do not run "
        "the script or notebook that does."
    )
    others = held(of_frame())
    assert prepare(others, OUT).tasks

    def spread(predictive: "Density", target):  # noqa: F821
        return 1.0

    spread.__module__ = "__main__"
    pb.register(spread)
    with pytest.raises(ConfigError, match="a file that registers the metric: worker"):
        prepare(others, OUT)


def test_metrics_of_an_imported_module_are_registered_in_workers(registries, tmp_path, monkeypatch):
    """Tasks hold the classes of priors and networks, which brings their modules, but no metrics."""
    text = (
        "import pmbnn as pb\n\n\n@pb.register\n"
        "def spread(predictive: 'Density', target):\n    return 1.0\n"
    )
    (tmp_path / "measures.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import_module("measures")
    run = prepare(held(of_frame()), OUT)
    (job,) = run.jobs([*run.tasks])
    del METRICS["density"]["spread"], sys.modules["measures"]
    monkeypatch.setattr("pmbnn.fitting.job.load_dataset", lambda task: 1 / 0)
    _fit(job, Results(OUT), None)
    assert "spread" in METRICS["density"]
