"""Rows of a table that a stored cell was not fitted on."""

import json
from io import StringIO
from zipfile import ZipFile

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from PIL import Image
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.cli.predict import is_table
from pmbnn.data import DataError
from pmbnn.data.frames import inputs_of_frame
from pmbnn.data.raw import Encoder
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import jobs
from pmbnn.fitting.job import run_job
from pmbnn.fitting.tasks import JobTask
from pmbnn.results import loading, new_rows
from pmbnn.results.export import export
from pmbnn.results.loading import StoredCell, load_results
from pmbnn.results.new_rows import choose_cell, predict_rows, stored_encoder
from pmbnn.results.store import Results, ResultsError
from pmbnn.sweep.cells import prepare, write_header

PLANTS = """
name: plants
sweeps:
  - name: {name}
    dataset: {{kind: table, file: plants.csv, target: {target}, without: [[{without}]],
               missing: mean}}
    network: {{kind: dense, hidden: [[3]]}}
    prior: normal
    hyperprior: {{kind: fixed, scale: 1}}
    likelihood: {likelihood}
    inference: {{steps: 30, restarts: 1, validation: 0}}
    predict: {{draws: 20, trace_draws: 2}}
"""


def plants() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"height": rng.normal(40, 9, 60), "site": rng.choice(["a", "b=c"], 60)})
    frame["width"] = 2 * frame["height"] + rng.normal(size=60)
    frame["depth"] = rng.normal(size=60)
    frame["health"] = np.where(frame["height"] > 40, "well", "ill")
    frame.loc[7, "height"] = np.nan
    return frame


def stored(folder, **settings):
    """Folder of the only cell of an experiment on the plants, fitted in this process."""
    plants().to_csv(folder / "plants.csv", index=False)
    file = folder / "plants.yaml"
    file.write_text(PLANTS.format(**settings))
    run = prepare(load_experiment(file), folder / "out")
    write_header(run)
    for job in jobs(list(run.tasks)):
        task = JobTask(job.group, job.width, tuple(run.tasks[cell] for cell in job.wanted))
        run_job(task, run.results.folder, lambda _: None)
    (cell,) = run.results.cells.iterdir()
    (data,) = (spec.load() for spec in run.sources)
    return cell, data


@pytest.fixture(scope="module")
def health(tmp_path_factory):
    folder = tmp_path_factory.mktemp("health")
    settings = {"name": "health", "target": "health", "likelihood": "categorical"}
    return stored(folder, without="width, depth", **settings)


@pytest.fixture(scope="module")
def restored(health):
    return loading.open_cell(health[0])


@pytest.fixture
def opened(restored, health, monkeypatch):
    """Folder of the cell, which is not restored anew by each command."""
    for module in (loading, new_rows):
        monkeypatch.setattr(module, "open_cell", lambda cell: restored)
    return health[0]


@pytest.fixture(scope="module")
def sizes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sizes")
    settings = {"name": "sizes", "target": "[[width, depth]]"}
    return stored(
        folder, without="health", likelihood="{kind: normal, sd: half_normal}", **settings
    )


def rows_of(data, features) -> pd.DataFrame:
    raw = data.standardisation.undo(data.x_test)
    frame = pd.DataFrame({"height": raw[:, features.index("height")]})
    frame["site"] = np.where(raw[:, features.index("site=a")] > 0.5, "a", "b=c")
    return frame


def kept(cell):
    return Results(cell.parent.parent).load_trace(cell.name)["test_predictions"].dataset


def test_classes_are_those_of_the_sweep(health):
    """As the cell said of its test rows, in another order of columns, beside others."""
    cell, data = health
    rows = rows_of(data, data.features)[["site", "height"]].assign(other="x")
    rows.index = range(100, 100 + len(rows))
    found = predict_rows(cell, rows, draws=20)
    assert list(found) == ["predicted", "probability", "sd", "probability_ill", "probability_well"]
    assert list(found.index) == list(rows.index)
    p = found[["probability_ill", "probability_well"]].to_numpy()
    np.testing.assert_allclose(p, kept(cell)["probability"].values, atol=1e-5)
    assert (found["predicted"] == np.where(p[:, 0] > p[:, 1], "ill", "well")).all()
    np.testing.assert_allclose(found["probability"], p.max(axis=1))


def test_a_cell_is_named_by_its_folder_or_as_it_was_opened(health, restored):
    folder, data = health
    rows = rows_of(data, data.features)
    expected = predict_rows(folder, rows, draws=5)
    results = load_results(folder.parent.parent)
    for cell in (results.cell(), restored):
        pd.testing.assert_frame_equal(predict_rows(cell, rows, draws=np.int64(5)), expected)
    with pytest.raises(TypeError, match="`cell` must be a cell of `load_results`.* got Experiment"):
        predict_rows(results, rows)
    with pytest.raises(TypeError, match="`rows` must be a DataFrame, got ndarray"):
        predict_rows(folder, rows.to_numpy())
    with pytest.raises(ValueError, match="`draws` must be >= 1, got 0"):
        predict_rows(folder, rows, draws=0)


@pytest.mark.slow
def test_several_targets_in_their_own_units(sizes):
    cell, data = sizes
    found = predict_rows(str(cell), rows_of(data, data.features), draws=20)
    assert [name for name in found if name.startswith("depth")] == [
        f"depth_{name}" for name in ("mean", "sd", "epistemic_sd", "low_95", "high_95")
    ]
    means = found[["width_mean", "depth_mean"]].to_numpy()
    np.testing.assert_allclose(means, kept(cell)["mean"].values, rtol=1e-4, atol=1e-4)
    assert (found["width_low_95"] < found["width_mean"]).all()
    assert (found["width_sd"] > found["width_epistemic_sd"]).all()
    first = predict_rows(str(cell), rows_of(data, data.features)[:1], draws=20)
    pd.testing.assert_frame_equal(first, found[:1], rtol=1e-5)
    more = predict_rows(str(cell), rows_of(data, data.features), draws=20, uncertainty=True)
    pd.testing.assert_frame_equal(more[list(found)], found)
    np.testing.assert_allclose(more["depth_uncertainty_total"], more["depth_sd"] ** 2)
    np.testing.assert_allclose(more["depth_uncertainty_epistemic"], more["depth_epistemic_sd"] ** 2)


def test_the_encoder_is_kept_with_the_cell(restored, health):
    _, data = health
    encoder = stored_encoder(restored)
    assert (encoder.features, encoder.categories) == (data.features, data.categories)
    np.testing.assert_array_equal(encoder.fill, data.fill)
    assert encoder.categories == (("site", "a"), ("site", "b=c"))


def test_the_data_have_the_encoder_of_a_cell_that_was_stored_without_it(restored, health):
    _, data = health
    trace = restored.trace.copy()
    constants = trace["constant_data"].to_dataset().drop_vars(["categories", "fill"])
    trace["constant_data"] = xr.DataTree(constants)
    older = StoredCell(restored.record, restored.folder)
    vars(older)["trace"] = trace
    encoder = stored_encoder(older)
    assert encoder.categories == data.categories
    np.testing.assert_allclose(encoder.fill, data.fill)


def test_what_is_missing_is_the_mean_of_the_training_rows(health, restored):
    _, data = health
    mean = data.standardisation.mean[data.features.index("height")]
    rows = pd.DataFrame({"height": [np.nan, mean], "site": ["a", "a"]})
    found = predict_rows(restored, rows)
    assert found.loc[0, "probability"] == pytest.approx(found.loc[1, "probability"], abs=1e-6)


def run(cell, *arguments):
    return CliRunner().invoke(app, ["predict", str(cell), *map(str, arguments)])


def test_parts_of_the_uncertainty_on_demand(opened, tmp_path):
    plants().to_csv(tmp_path / "new.csv", index=False)
    parts = [f"uncertainty_{name}" for name in ("total", "aleatoric", "epistemic")]
    done = run(opened, tmp_path / "new.csv", "--uncertainty")
    assert done.exit_code == 0, done.output
    table = pd.read_csv(StringIO(done.stdout))
    assert list(table)[-3:] == parts
    total, aleatoric, epistemic = (table[name] for name in parts)
    p = table[["probability_ill", "probability_well"]]
    np.testing.assert_allclose(total, -(p * np.log(p)).sum(axis=1), atol=1e-3)
    np.testing.assert_allclose(total, aleatoric + epistemic, atol=2e-4)
    (tmp_path / "digit.png").write_bytes(b"")
    done = run(opened, tmp_path / "digit.png", "--uncertainty")
    assert done.exit_code == 2 and "`--uncertainty` is not for files such as" in done.stderr


def test_the_command(health, tmp_path):
    cell, _ = health
    plants().to_csv(tmp_path / "new.csv", index=False)
    done = run(cell, tmp_path / "new.csv")
    assert done.exit_code == 0, done.output
    lines = [
        line.partition("well,")[2] or line.partition("ill,")[2] for line in done.stdout.splitlines()
    ]
    assert done.stdout.startswith(
        "width,depth,health,predicted,probability,sd,probability_ill,probability_well\n"
    )
    assert len(lines) == 61
    done = run(cell, tmp_path / "new.csv", "--json", "--out", tmp_path / "answers.json")
    assert (done.exit_code, done.stdout) == (0, "")
    records = json.loads((tmp_path / "answers.json").read_text())
    assert len(records) == 60
    assert records[0]["predicted"] == lines[1].split(",")[0]
    assert len(str(records[0]["probability_ill"])) > len(lines[1].split(",")[3])


def test_a_results_folder_predicts_with_the_best_cell(health, tmp_path):
    """Columns that the network does not use are copied as they are, numbers have four digits."""
    cell, _ = health
    (tmp_path / "new.csv").write_text("id,site,height,sd\n007,a,31.5,2\n08,b=c,50,3\n")
    for choice in (["--best"], ["--only", "prior=normal"], []):
        done = run(cell.parent.parent, tmp_path / "new.csv", *choice)
        assert done.exit_code == 0, done.output
        header, *rows = done.stdout.splitlines()
        assert header == "id,predicted,probability,sd,probability_ill,probability_well"
        assert [row.split(",")[0] for row in rows] == ["007", "08"]
        numbers = [number for row in rows for number in row.split(",")[2:]]
        assert all(len(number) <= len("0.1234") for number in numbers)
        which, warning, left_out = done.stderr.splitlines()
        assert which.startswith("cell: table plants, seed 0, normal × fixed 1")
        assert warning.startswith("warning: this cell has not converged")
        assert left_out == "left out, as predictions have these names: sd"
    done = run(cell, tmp_path / "new.csv", "--best")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "`--best` and `--only` need a results folder" in done.stderr


def test_scores_of_several_data_sets_name_no_best_cell(made, tmp_path):
    cells = [
        (made.record(dataset=made.MOONS | {"noise": noise}, validation_nll=noise), None)
        for noise in (0.1, 0.4)
    ]
    results = load_results(made.store(tmp_path / "out", cells).folder)
    with pytest.raises(ResultsError, match=r"several data sets \(moons, noise 0.1, moons, noise"):
        choose_cell(results, best=True)
    assert choose_cell(results, best=True, only=["dataset.noise=0.4"]).record == cells[1][0]


def test_a_colleague_predicts_from_the_exported_folder(health, tmp_path):
    """Without the data, and wherever it was unpacked."""
    cell, data = health
    export(cell.parent.parent, tmp_path / "plants.zip")
    with ZipFile(tmp_path / "plants.zip") as archive:
        archive.extractall(tmp_path / "theirs")
    rows = rows_of(data, data.features)
    there = load_results(tmp_path / "theirs" / "out")
    found = predict_rows(choose_cell(there, best=True), rows, draws=5)
    pd.testing.assert_frame_equal(found, predict_rows(cell, rows, draws=5))


def test_the_data_are_exported_if_asked_for(health, tmp_path):
    names = export(health[0].parent.parent, tmp_path / "plants.zip", data=True)
    assert "out/plants.csv" in names
    with ZipFile(tmp_path / "plants.zip") as archive:
        archive.extractall(tmp_path / "theirs")
    experiment = load_experiment(tmp_path / "theirs" / "out" / "experiment.yaml")
    (found,) = {cell.dataset.load().fingerprint for cell in experiment.cells}
    assert found == health[1].fingerprint


def test_numbers_have_the_decimals_of_their_uncertainty():
    columns = {"mean": [2015.23456, 3.0], "sd": [0.51234, 2.0], "epistemic_sd": [1e-9, 1.0]}
    table = pd.DataFrame(columns | {"low_95": [2014.2, 0.0], "high_95": [2016.2, 6.0]})
    assert new_rows.rounded(table)["mean"].tolist() == [2015.2346, 3.0]
    variances = table.assign(uncertainty_total=[0.262515, 4.0])
    assert new_rows.rounded(variances)["uncertainty_total"].tolist() == [0.2625, 4.0]
    large = new_rows.rounded(1e6 * table.add_prefix("y_"))
    assert large["y_mean"].tolist() == [2015234560.0, 3000000.0]


def test_json_has_all_digits():
    """Means of small targets were 0.0, as pandas writes ten decimals."""
    day = pd.date_range("2020-01-01", periods=3)
    table = pd.DataFrame({"mean": [1.23456e-12, np.inf, 3.0], "id": ["7", None, "ü"], "day": day})
    first, second, third = json.loads(new_rows.records_text(table))
    assert first == {"mean": 1.23456e-12, "id": "7", "day": "2020-01-01 00:00:00"}
    assert (second["mean"], second["id"]) == (None, None) and third["id"] == "ü"


def test_predictions_do_not_take_the_place_of_their_table(opened, tmp_path):
    file = tmp_path / "new.csv"
    plants().to_csv(file, index=False)
    before = file.read_bytes()
    done = run(opened, file, "--out", file)
    assert done.exit_code == 2 and "`--out` must be another file than the table" in done.stderr
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["neu.txt", "neu.tsv", "neu.dat", "neu", "neu.csv", "neu.xlsx"])
def test_a_table_of_another_program_under_any_name(opened, tmp_path, monkeypatch, name):
    """The rows that are predicted for are those that were written."""
    given = []

    def predict_rows(it, rows, *_, **__):
        given.append(rows)
        return rows

    monkeypatch.setattr(new_rows, "predict_rows", predict_rows)
    if name.endswith("xlsx"):
        plants().to_excel(tmp_path / name, index=False)
    else:
        german = plants().to_csv(sep=";", decimal=",")
        (tmp_path / name).write_text(german, encoding="utf-16")
    done = run(opened, tmp_path / name)
    assert done.exit_code == 0, done.output
    columns = ["height", "site"]
    pd.testing.assert_frame_equal(given[0][columns], plants()[columns], check_dtype=False)


def test_images_are_no_tables(tmp_path):
    Image.new("L", (4, 4)).save(tmp_path / "digit", "png")
    (tmp_path / "bad.png").write_text("no image")
    assert not any(is_table(tmp_path / name) for name in ("digit", "bad.png", "gone"))


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        ("height,site\n", [], "new.csv: has no rows."),
        ("", [], "new.csv: is empty."),
        ("height\n1\n", [], "must have a column `site`, got `height`."),
        ("height,site\n1,a\n2,d\n", [], "row 2: column `site` must be one of `a`, `b=c`, got 'd'."),
        ("height,site\n1,a\ntall,a\n", [], "row 2: column `height` must be a number, got 'tall'."),
        ("height,site\n1,a\n", ["--figure", "a.png"], "`--figure` is not for files such as"),
        ("height,site\n1,a\n", ["other.csv"], "A table must be given alone, got"),
    ],
)
def test_rows_that_cannot_be_predicted(opened, tmp_path, table, options, words):
    (tmp_path / "new.csv").write_text(table)
    done = run(opened, tmp_path / "new.csv", *options)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_table_that_is_not_there(opened, tmp_path):
    done = run(opened, tmp_path / "gone.csv")
    assert done.exit_code == 2
    assert done.stderr == f"error: {tmp_path / 'gone.csv'} does not exist.\n"


# Inputs of new rows


def test_a_column_that_is_there_twice():
    """Also as a number and as text; one that is not used may be."""
    for names in (["n", "n", "m"], [1, "1", "m"]):
        frame = pd.DataFrame([[1.0, 2.0, 3.0]], columns=names)
        with pytest.raises(DataError, match="new: column `(n|1)` must be there once, got it twice"):
            inputs_of_frame(frame, Encoder((str(names[0]),)), "new")
        assert inputs_of_frame(frame, Encoder(("m",)), "new") == [[3.0]]


def test_inputs_take_columns_as_they_were_encoded():
    frame = pd.DataFrame({"n": [1, 2], "is": [True, False], "a=b": [3, 4], "size": [10.0, 12.5]})
    categories = (("n", "1"), ("n", "2"), ("size", "10"), ("size", "12.5"))
    encoder = Encoder(("a=b", "n=1", "n=2", "is", "size=10", "size=12.5"), categories)
    found = inputs_of_frame(frame, encoder, "")
    np.testing.assert_array_equal(found, [[3, 1, 0, 1, 1, 0], [4, 0, 1, 0, 0, 1]])


@pytest.mark.parametrize(
    ("value", "fill", "words"),
    [
        (np.nan, None, "new, row 2: column `n` is missing."),
        (np.inf, None, "new, row 2: column `n` must be finite, got inf."),
        (np.inf, np.zeros(1), "new, row 2: column `n` must be finite, got inf."),
    ],
)
def test_inputs_that_are_no_numbers(value, fill, words):
    with pytest.raises(DataError) as error:
        inputs_of_frame(pd.DataFrame({"n": [1, value]}), Encoder(("n",), fill=fill), "new")
    assert str(error.value) == words
