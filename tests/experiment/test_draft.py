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
    assert first.hyperprior.scale.log == (0.01, 10, 7)
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
    [
        ("price", "regression", "normal"),
        ("heating", "classification", None),
        ("garden", "classification", None),
    ],
)
def test_what_is_predicted(new, target, kind, likelihood):
    assert new(frame(), "--target", target).exit_code == 0
    [sweep] = read_yaml("houses.yaml")["sweeps"]
    assert (sweep["dataset"]["target"], sweep["dataset"]["task"]) == (target, kind)
    assert sweep.get("likelihood", {}).get("kind") == likelihood


def test_few_whole_numbers_are_classes(new):
    table = frame()[["area", "built"]].assign(stars=np.arange(ROWS) % 3)
    assert new(table).exit_code == 0
    assert load_experiment("houses.yaml").cells[0].dataset.n_classes == 3


def test_many_rows_come_in_parts(new):
    rng = np.random.default_rng(1)
    assert new(pd.DataFrame(rng.normal(size=(4000, 2)), columns=["x", "y"])).exit_code == 0
    assert load_experiment("houses.yaml").cells[0].inference.batch == 512


HOSTILE = [
    *("2024", "1e5", "0x10", "1_000", "2024-01-01", "12:30", ".5", "null", "~", "true", "on", "no"),
    *(
        "Größe in m²",
        "数据",
        "two words",
        " spaces ",
        "a: b",
        "a #b",
        "- a",
        "? x",
        "[a",
        "{a}",
        "c, [d]",
    ),
    *(
        "&a",
        "*a",
        "!a",
        "%a",
        "@a",
        "`a`",
        "|",
        ">",
        "'",
        '"',
        "''",
        "\\",
        "<<",
        "=",
        "a=b",
        "-",
        "--",
    ),
    *(
        "line\nbreak",
        "tab\tstop",
        "bell\a",
        "next\x85line",
        "sep\u2028line",
        "\U0001f600",
        "x" * 300,
    ),
]


def test_columns_of_any_name(new):
    """As inputs and as columns that are left out."""
    rng = np.random.default_rng(2)
    named = {name: rng.normal(size=20) for name in HOSTILE}
    left_out = {f"{name} left out": [f"{name} {i}" for i in range(20)] for name in HOSTILE}
    done = new(pd.DataFrame(named | left_out).assign(price=rng.normal(size=20)))
    assert done.exit_code == 0, done.output
    spec = load_experiment("houses.yaml").cells[0].dataset
    assert spec.target == "price"
    assert set(spec.without) == {name.strip() for name in left_out}
    assert set(spec.raw().features) == {name.strip() for name in HOSTILE}


@pytest.mark.parametrize(
    "target", ["2024", "null", "yes", "a: b", "c, [d]", "#e\nf", "'g'", "line\nbreak", "x" * 300]
)
def test_each_of_these_columns_may_be_the_target(new, target):
    table = frame()[["area", "price"]].rename(columns={"price": target})
    assert new(table).exit_code == 0
    assert load_experiment("houses.yaml").cells[0].dataset.target == target


FILES = [
    *("2024.csv", "2024.05.csv", "1e5.csv", "null.csv", "true.csv", "no.csv", ".csv", "-.csv", "a"),
    *(
        "Häuser in München.csv",
        "数据.csv",
        "two words.tsv",
        "a#b.csv",
        "it's.csv",
        "[x].txt",
        "a:b.csv",
    ),
    *("x.csv.gz", "2024.tsv.xz", "name.with.dots.csv", "%20.csv", "&.csv", "x" * 120 + ".csv"),
]


@pytest.mark.parametrize("name", FILES)
def test_files_of_any_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    frame()[["area", "price"]].to_csv(name, index=False)
    done = CliRunner().invoke(app, ["new", f"./{name}"])
    assert done.exit_code == 0, done.output
    (file,) = (path for path in tmp_path.glob("*.yaml"))
    experiment = load_experiment(file)
    assert experiment.cells[0].dataset.rows == (32, 8)
    assert read_yaml(file)["name"] == experiment.name


def test_a_german_table(new, tmp_path):
    """What was detected stands in the file, which says the same without detecting it."""
    frame().to_csv("houses.txt", index=True, sep=";", decimal=",", encoding="utf-16")
    done = CliRunner().invoke(app, ["new", "houses.txt"])
    assert done.exit_code == 0, done.output
    dataset = read_yaml("houses.yaml")["sweeps"][0]["dataset"]
    found = {name: dataset[name] for name in ("separator", "decimal", "encoding")}
    assert found == {"separator": ";", "decimal": ",", "encoding": "utf-16"}
    assert "# The first column has no name and numbers or names the rows" in done.stdout
    german = load_experiment("houses.yaml").cells[0].dataset.load()
    assert new(frame(), "--force").exit_code == 0
    plain = load_experiment("houses.yaml").cells[0].dataset.load()
    assert (german.features, german.fingerprint) == (plain.features, plain.fingerprint)


def test_text_that_is_no_category_is_left_out(new):
    table = frame()[["area", "heating", "price"]]
    table.insert(0, "owner", [f"owner {i % 30}" for i in range(ROWS)])
    table.insert(0, "fee", [f"${i % 3 + 5}" for i in range(ROWS)])
    table.insert(0, "opens", [f"{i % 3 + 8}:30" for i in range(ROWS)])
    done = new(table)
    assert done.exit_code == 0, done.output
    [sweep] = read_yaml("houses.yaml")["sweeps"]
    assert sweep["dataset"]["without"] == [["opens", "fee", "owner"]]
    words = " ".join(done.stdout.replace("#", "").split())
    assert "opens (dates or times such as '8:30')" in words
    assert "fee (no plain numbers, such as '$5')" in words
    assert "owner (30 different words in 40 rows)" in words


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (["$5", "$6"] * 20, "row 1: target `price` must be a number, got '$5'"),
        (["5", "6.5", "oo", "3"] * 10, "row 3: target `price` must be a number, got 'oo'"),
    ],
)
def test_targets_that_look_like_numbers(new, column, words):
    done = new(frame()[["area"]].assign(price=column))
    assert done.exit_code == 2
    assert words in done.stderr


def test_a_table_without_inputs_says_why(new):
    done = new(frame()[["seen", "price"]])
    assert done.exit_code == 2
    assert "no column can be an input: seen (dates or times such as '2020-01-01')" in done.stderr


def test_inputs_that_repeat_one_another_once_encoded(new):
    """Also a column of numbers whose values differ by their rounding errors."""
    table = frame()[["area", "garden", "price"]]
    table.insert(0, "yard", np.where(table["garden"], "yes", "no"))
    table.insert(0, "third", np.where(np.arange(ROWS) % 2, 0.3, 0.1 + 0.2))
    done = new(table)
    assert done.exit_code == 0, done.output
    features = load_experiment("houses.yaml").cells[0].dataset.load().features
    assert features == ("yard=no", "yard=yes", "area")
    assert "# Constant, or like another: third, garden." in done.stdout


def test_nothing_is_overwritten(new):
    assert new(frame()).exit_code == 0
    again = new(frame(), "--target", "garden")
    assert again.exit_code == 2
    assert again.stderr.startswith("error: houses.yaml is there already")
    assert new(frame(), "--target", "garden", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--target", "cost"], "`target` must be one of `id`, `area`, "),
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
