"""``pmbnn new``: an experiment file after a look at a table."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.yaml_file import read_yaml

ROWS = 40


def frame():
    rng = np.random.default_rng(0)
    area = rng.uniform(30, 150, ROWS)
    return pd.DataFrame(
        {
            "id": np.arange(ROWS) + 1000,
            "area": area,
            "heating": rng.choice(["gas", "oil"], ROWS),
            "built": np.where(np.arange(ROWS) % 9 == 0, np.nan, rng.integers(1950, 2020, ROWS)),
            "same": 1.0,
            "again": area,
            "seen": pd.date_range("2020-01-01", periods=ROWS).astype(str),
            "garden": rng.random(ROWS) < 0.5,
            "price": 1000 * area + rng.normal(0, 5000, ROWS),
        }
    )


@pytest.fixture
def new(tmp_path, monkeypatch):
    """A call of the command on a table in a folder, and the folder."""
    monkeypatch.chdir(tmp_path)

    def call(table, *options):
        table.to_csv("houses.csv", index=False)
        return CliRunner().invoke(app, ["new", "houses.csv", *options])

    return call


def test_a_table_becomes_an_experiment(new):
    done = new(frame())
    assert done.exit_code == 0, done.output
    experiment = load_experiment("houses.yaml")
    assert len(experiment.cells) == 18
    [first, *_] = experiment.cells
    assert first.dataset.without == ("id", "seen")
    assert (first.dataset.missing, first.dataset.redundant) == ("mean", "drop")
    loaded = first.dataset.load()
    assert loaded.features[:3] == ("area", "heating=gas", "heating=oil")
    assert not {"id", "same", "again"} & set(loaded.features)
    assert len(loaded.y_test) == ROWS // 5
    assert "pmbnn sweep houses.yaml" in done.stderr
    assert done.stdout == Path("houses.yaml").read_text()
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("target", "kind", "likelihood"),
    [("price", "numbers", "normal"), ("heating", "classes", None), ("garden", "classes", None)],
)
def test_what_is_predicted(new, target, kind, likelihood):
    assert new(frame(), "--target", target).exit_code == 0
    [sweep] = read_yaml("houses.yaml")["sweeps"]
    assert (sweep["dataset"]["target"], sweep["dataset"]["target_is"]) == (target, kind)
    assert sweep.get("likelihood", {}).get("kind") == likelihood


def test_few_whole_numbers_are_classes(new):
    table = frame()[["area", "built"]].assign(stars=np.arange(ROWS) % 3)
    assert new(table).exit_code == 0
    assert load_experiment("houses.yaml").cells[0].dataset.n_classes == 3


def test_many_rows_come_in_parts(new):
    rng = np.random.default_rng(1)
    assert new(pd.DataFrame(rng.normal(size=(4000, 2)), columns=["x", "y"])).exit_code == 0
    assert load_experiment("houses.yaml").cells[0].inference.batch == 512


def test_names_of_any_kind(new):
    names = ["a: b", "c, [d]", "#e\nf", "'g'", "yes"]
    rng = np.random.default_rng(2)
    assert new(pd.DataFrame(rng.normal(size=(20, 5)), columns=names)).exit_code == 0
    assert load_experiment("houses.yaml").cells[0].dataset.target == "yes"


def test_nothing_is_overwritten(new):
    assert new(frame()).exit_code == 0
    again = new(frame(), "--target", "garden")
    assert again.exit_code == 2
    assert again.stderr.startswith("error: houses.yaml is there already")
    assert new(frame(), "--target", "garden", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "cost"], "`target` must be one of id, area, "),
        (["--target", "seen"], "class `2020-01-01` must have at least 2 rows"),
    ],
)
def test_what_cannot_be_is_said(new, options, words):
    done = new(frame(), *options)
    assert done.exit_code == 2
    assert words in done.stderr and done.stderr.count("\n") == 1
    assert os.listdir() == ["houses.csv"]


def test_no_table(tmp_path):
    done = CliRunner().invoke(app, ["new", str(tmp_path / "none.csv")])
    assert done.exit_code == 2
    assert done.stderr == f"error: {tmp_path / 'none.csv'} does not exist.\n"


def test_other_separators_are_seen(new, tmp_path):
    frame()[["area", "price"]].to_csv("semi.csv", sep=";", index=False)
    done = CliRunner().invoke(app, ["new", "semi.csv"])
    assert done.exit_code == 0, done.output
    assert load_experiment("semi.yaml").cells[0].dataset.separator == ";"
