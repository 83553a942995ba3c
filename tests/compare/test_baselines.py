"""Usual methods on the rows of cells, judged as the cells are."""

from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from makers import record, store
from scipy import stats
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.compare import baselines
from pmbnn.compare.baselines import BASELINES, CHOSEN, baselines_table
from pmbnn.data.arrays import Dataset
from pmbnn.data.splits import Share
from pmbnn.results.store import Results


def numbers(seed=0, rows=80):
    """A line with noise of 2, far from zero."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    y = 100 + 10 * x[:, 0] + rng.normal(0, 2, rows)
    return Dataset.from_arrays(x, y, split=Share(test=0.25), seed=seed)


def classes(seed=0, rows=80):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    return Dataset.from_arrays(x, np.where(x[:, 0] > 0, "a", "b"), split=Share(test=0.25))


@pytest.fixture(autouse=True)
def small_forests(monkeypatch):
    monkeypatch.setattr(baselines, "TREES", 60)


@pytest.mark.parametrize("method", BASELINES["numbers"], ids=lambda method: method.name)
def test_numbers_are_predicted_in_their_own_units(method):
    found = method.predict(numbers(), 0)
    close = {"ridge regression": 2.8, "Gaussian process": 2.8, "random forest": 6}[method.name]
    assert 1.2 < found["rmse"] < close
    # The least NLL is that of the noise itself.
    assert stats.norm(0, 2).entropy() - 0.4 < found["nll"] < stats.norm(0, close).entropy() + 0.5
    assert found["coverage_90"] > 0.6


def test_ridge_by_hand():
    data = numbers()
    method, *_ = BASELINES["numbers"]
    found = method.predict(data, 0)
    x = np.column_stack([np.ones(len(data.x_train)), data.x_train])
    weights, *_ = np.linalg.lstsq(x, data.raw_targets(data.y_train), rcond=None)
    mean = np.column_stack([np.ones(len(data.x_test)), data.x_test]) @ weights
    target = data.raw_targets(data.y_test)
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean((target - mean) ** 2)), rel=0.02)


@pytest.mark.parametrize("method", BASELINES["classes"], ids=lambda method: method.name)
def test_classes(method):
    found = method.predict(classes(), 0)
    assert found["accuracy"] > 0.85
    assert 0 < found["nll"] < 0.4


def test_a_class_that_training_rows_lack():
    data = classes()
    rows = data.y_train == 0
    lacking = Dataset(
        x_train=np.concatenate([data.x_train, data.x_train[:5] + 9]),
        y_train=np.concatenate([data.y_train, np.full(5, 2)]),
        x_test=data.x_test,
        y_test=data.y_test,
        features=data.features,
        classes=("a", "b", "c", "d"),
        standardisation=data.standardisation,
        source="test",
    )
    assert rows.any()
    for method in BASELINES["classes"]:
        assert method.predict(lacking, 0)["accuracy"] > 0.85


class Known(NamedTuple):
    """In the place of a data set's specification."""

    dataset: Dataset

    def load(self):
        return self.dataset


OWN = {"kind": "table", "file": "houses.csv"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Cells of two priors and two data seeds, whose data set is the line above."""
    records = [
        record(
            prior,
            dataset=OWN | {"seed": seed},
            predictive="density",
            validation_nll=score + seed,
            rmse=2.0 + seed,
            nll=2.1,
            crps=1.0,
            coverage_90=0.9,
        )
        for prior, score in (("normal", 1.0), ("laplace", 0.5))
        for seed in (0, 1)
    ]
    store(tmp_path, [(one, None) for one in records])

    def specifications(cell, one):
        return {"dataset": Known(numbers(one.settings["dataset"]["seed"]))}

    monkeypatch.setattr(baselines, "stored_specifications", specifications)
    return tmp_path, records


def test_one_table_has_networks_and_usual_methods(folder):
    path, records = folder
    table = baselines_table(Results(path), records).set_index("method")
    assert list(table.index[:1]) == [CHOSEN]
    assert "Laplace" in table.loc[CHOSEN, "combination"]
    assert table.loc[CHOSEN, ["rmse", "seeds"]].tolist() == [2.5, 2]
    assert {method.name for method in BASELINES["numbers"]} <= set(table.index)
    both = [BASELINES["numbers"][0].predict(numbers(seed), seed)["rmse"] for seed in (0, 1)]
    assert table.loc["ridge regression", "rmse"] == pytest.approx(np.mean(both))
    assert table.loc["ridge regression", "rmse_se"] == pytest.approx(stats.sem(both))


def test_large_data_have_no_gaussian_process(folder, monkeypatch):
    path, records = folder
    small = [method._replace(most=method.most and 10) for method in BASELINES["numbers"]]
    monkeypatch.setitem(baselines.BASELINES, "numbers", tuple(small))
    assert "Gaussian process" not in set(baselines_table(Results(path), records)["method"])


def test_the_command(folder, monkeypatch):
    path, records = folder
    (path / "experiment.yaml").write_text("name: houses\nsweeps: []\n")
    done = CliRunner().invoke(app, ["baselines", str(path)])
    assert done.exit_code == 0, done.output
    assert "ridge regression" in done.stdout
    assert len(pd.read_csv(path / "baselines.csv")) == 6
    nothing = CliRunner().invoke(app, ["baselines", str(path / "none")])
    assert nothing.exit_code == 2
