"""Data of one's own as an experiment file names them: read while planning, found again later."""

import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.core.errors import ConfigError
from pmbnn.data import (
    DataError,
    Folds,
    Idx,
    Images,
    Indices,
    Npz,
    OpenML,
    RandomSplit,
    Sklearn,
    Table,
    openml,
)
from pmbnn.data.base import stamp_of
from pmbnn.experiment.cells import cell_label
from pmbnn.experiment.load import check_data, load_experiment, resolved_text
from pmbnn.experiment.plan import jobs
from pmbnn.figures import draw_cells, missing_cell_figures
from pmbnn.figures.image_sheets import plot_samples
from pmbnn.fitting.job import run_job
from pmbnn.fitting.tasks import JobTask
from pmbnn.results.loading import restore_cell
from pmbnn.results.store import Results
from pmbnn.sweep.cells import prepare, write_header

HEAD = """
name: own
sweeps:
  - name: own
    network: {kind: dense, hidden: [[3]]}
    prior: normal
    inference: {steps: 20, validation: 0, restarts: 1}
    predict: {draws: 5, trace_draws: 5, map: {resolution: 4}}
    dataset: """


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Files of data in a folder of experiments; another is the working directory."""
    monkeypatch.delenv("PMBNN_DATA", raising=False)
    folder, elsewhere = tmp_path / "experiments", tmp_path / "elsewhere"
    (folder / "data").mkdir(parents=True)
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 2)), np.array(["one", "two"] * 20)
    lines = [f"{a},{b},{c}" for (a, b), c in zip(x.tolist(), y, strict=True)]
    (folder / "data" / "plane.csv").write_text("\n".join(["left,up,what", *lines]))
    lines = [f"{a},{100 * a + b}" for a, b in x.tolist()]
    (folder / "data" / "line.csv").write_text("\n".join(["at,y", *lines]))
    np.savez(folder / "data" / "arrays.npz", x=x, y=y)
    np.savez(folder / "data" / "splits.npz", test_0=np.arange(8), test_1=np.arange(8, 16))
    for part in ("train", "test"):
        for name in ("a", "b"):
            (folder / "data" / "pictures" / part / name).mkdir(parents=True)
            for i in range(6):
                pixels = rng.integers(256, size=(4, 4, 3)).astype(np.uint8)
                path = folder / "data" / "pictures" / part / name / f"{i}.png"
                Image.fromarray(pixels).save(path)
    (folder / "data" / "idx").mkdir()
    for part, rows in (("train", 20), ("t10k", 10)):
        arrays = {"images": rng.integers(256, size=(rows, 4, 4)), "labels": np.arange(rows) % 2}
        for (what, array), magic in zip(arrays.items(), (2051, 2049), strict=True):
            header = np.array([magic, *array.shape], dtype=">u4").tobytes()
            name = f"{part}-{what}-idx{array.ndim}-ubyte"
            content = header + array.astype(np.uint8).tobytes()
            (folder / "data" / "idx" / name).write_bytes(content)
    return folder


def write(folder, dataset, validation=0):
    path = folder / "own.yaml"
    path.write_text(HEAD.replace("validation: 0", f"validation: {validation}") + dataset)
    return path


KINDS = [
    (
        "{kind: table, file: data/plane.csv, target: what}",
        Table(file="data/plane.csv", target="what"),
    ),
    (
        "{kind: table, file: data/plane.csv, target: what, features: [[up]], seed: 3,"
        " split: {kind: random, test_size: 0.5}}",
        Table(
            file="data/plane.csv",
            target="what",
            features=("up",),
            seed=3,
            split=RandomSplit(test_size=0.5),
        ),
    ),
    (
        "{kind: table, file: data/line.csv, target: y, split: {kind: folds, folds: 4}}",
        Table(file="data/line.csv", target="y", split=Folds(folds=4)),
    ),
    (
        "{kind: npz, file: data/arrays.npz, seed: 1,"
        " split: {kind: indices, file: data/splits.npz, test: 'test_{seed}'}}",
        Npz(
            file="data/arrays.npz",
            seed=1,
            split=Indices(file="data/splits.npz", test="test_{seed}"),
        ),
    ),
    ("{kind: sklearn, name: iris}", Sklearn(name="iris")),
    ("{kind: openml, name: few, version: 1}", OpenML(name="few", version=1)),
    (
        "{kind: images, path: data/pictures, colour: true, classes: [[b, a]], size: [[2, 3]]}",
        Images(path="data/pictures", colour=True, classes=("b", "a"), size=(2, 3)),
    ),
    ("{kind: idx, path: data/idx, train: 10}", Idx(path="data/idx", train=10)),
]


@pytest.fixture
def few(monkeypatch):
    """OpenML without a network."""
    import pandas as pd

    frame = pd.DataFrame({"a": np.arange(12.0), "b": ["x", "y", "z"] * 4})
    table = SimpleNamespace(frame=frame, target_names=["b"])
    monkeypatch.setattr(openml, "load_table", lambda named: table)


@pytest.mark.parametrize(("text", "spec"), KINDS, ids=lambda value: getattr(value, "kind", ""))
def test_a_file_says_what_python_says(here, monkeypatch, few, text, spec):
    """Each kind is read beside its file, and reads back from what results keep."""
    experiment = load_experiment(write(here, text))
    (cell,) = experiment.cells
    assert (cell.dataset, hash(cell.dataset)) == (spec, hash(spec))
    assert pickle.loads(pickle.dumps(cell)).dataset.load().fingerprint
    loaded = cell.dataset.load()
    monkeypatch.chdir(here)
    assert spec.load().fingerprint == loaded.fingerprint
    assert cell.dataset.rows == (len(loaded.y_train), len(loaded.y_test))
    assert cell.dataset.input_shape == loaded.input_shape
    assert cell.likelihood.kind == ("categorical" if loaded.classes else "normal")
    results = here.parent / "results"
    results.mkdir()
    (results / "experiment.yaml").write_text(resolved_text(experiment, results))
    monkeypatch.chdir(results)
    again = load_experiment(results / "experiment.yaml")
    assert again == experiment
    assert str(here.parent) not in resolved_text(experiment, results)


def test_axes_of_a_split(here):
    text = (
        "{kind: table, file: data/plane.csv, target: what, split: {kind: folds, fold: [0, 1, 2]}}"
    )
    cells = load_experiment(write(here, text)).cells
    assert [cell.dataset.split.fold for cell in cells] == [0, 1, 2]
    assert len({cell_label(cell) for cell in cells}) == 3


def names_of(experiment):
    return {task.name for task in prepare(experiment, Path("results")).tasks.values()}


def test_a_cell_is_known_by_its_data(here):
    """Not by where they lie; other rows are another cell."""
    text = "{kind: table, file: FILE, target: what}"
    first = names_of(load_experiment(write(here, text.replace("FILE", "data/plane.csv"))))
    (here / "deep").mkdir()
    shutil.copy(here / "data" / "plane.csv", here / "deep" / "plane.csv")
    moved = load_experiment(write(here, text.replace("FILE", "deep/plane.csv")))
    assert names_of(moved) == first
    content = (here / "deep" / "plane.csv").read_text()
    (here / "deep" / "plane.csv").write_text(content.replace("one", "an"))
    assert names_of(moved) == first  # labels are numbers
    (here / "deep" / "plane.csv").write_text(content.replace("one", "two", 1))
    assert names_of(moved) != first


@pytest.mark.parametrize("where", ["beside", "working directory", "PMBNN_DATA"])
def test_where_files_are_looked_up(here, monkeypatch, where):
    file = write(here, "{kind: table, file: data/plane.csv, target: what}")
    data = here / "data"
    if where == "working directory":
        shutil.move(data, Path.cwd() / "data")
    if where == "PMBNN_DATA":
        shutil.move(data, here.parent / "shared" / "data")
        monkeypatch.setenv("PMBNN_DATA", str(here.parent / "shared"))
    assert load_experiment(file).cells[0].dataset.rows == (32, 8)


BROKEN = [
    ("{kind: table, file: data/plane.csv}", "`sweeps[0].dataset.target` is missing."),
    (
        "{kind: table, file: data/none.csv, target: y}",
        "`sweeps[0].dataset.file` must be there: beside the experiment file, in the working "
        "directory or in the folder that PMBNN_DATA names, got 'data/none.csv'.",
    ),
    (
        "[iris, {kind: table, file: data/line.csv, target: what}]",
        "`sweeps[0].dataset[0]` must be one of circles, idx, images, in_between, mnist, moons, "
        "npz, openml, quartic, sine, sklearn, table, got 'iris'.",
    ),
    (
        "[{kind: sklearn, name: iris}, {kind: table, file: data/line.csv, target: what}]",
        "`sweeps[0].dataset[1].target` must be one of `at`, `y` of data/line.csv, got 'what'.",
    ),
    (
        "{kind: table, file: data/plane.csv, target: what, features: [[up, down]]}",
        "`sweeps[0].dataset.features[0]` must be one of `left`, `up`, `what` of data/plane.csv, "
        "got 'down'.",
    ),
    (
        "{kind: table, file: data/plane.csv, target: what, features: [up]}",
        "`sweeps[0].dataset.features` must be a list of lists, because a list alone is an axis of "
        "the grid: write [['up']], got ['up'].",
    ),
    (
        "{kind: table, file: data/ragged.csv, target: y}",
        "`sweeps[0].dataset`: data/ragged.csv, line 3: must have 2 entries, one for each column, "
        "got 1.",
    ),
    (
        "{kind: table, file: data/words.csv, target: y}",
        "`sweeps[0].dataset`: data/words.csv, row 2: column `a` must be a number, got 'few'; name "
        "it under `categorical` if it is none.",
    ),
    (
        "{kind: table, file: data/gap.csv, target: y}",
        "`sweeps[0].dataset`: data/gap.csv, row 3: column `a` is missing: say `missing: mean`, "
        "`missing: drop`, or leave the column out with `without`.",
    ),
    (
        "{kind: table, file: data/one.csv, target: y}",
        "`sweeps[0].dataset`: data/one.csv: target `y` must have at least two classes, got `same` "
        "only.",
    ),
    (
        "{kind: table, file: data/empty.csv, target: y}",
        "`sweeps[0].dataset`: data/empty.csv: is empty.",
    ),
    (
        "{kind: npz, file: data/splits.npz}",
        "`sweeps[0].dataset.x` must be one of `test_0`, `test_1` of data/splits.npz, got 'x'.",
    ),
    (
        "{kind: npz, file: data/arrays.npz, split: {kind: random, test_size: 1.5}}",
        "`sweeps[0].dataset.split.test_size` must be < 1, got 1.5.",
    ),
    (
        "{kind: npz, file: data/arrays.npz, split: {kind: share, test: 0.5}}",
        "`sweeps[0].dataset.split.kind` must be one of folds, indices, random, got 'share'; did "
        "you mean `random`?",
    ),
    (
        "{kind: npz, file: data/arrays.npz, missing: refuse}",
        "`sweeps[0].dataset.missing` must be one of drop, error, mean, got 'refuse'; did you mean "
        "`error`?",
    ),
    (
        "{kind: npz, file: data/arrays.npz, split: {kind: half}}",
        "`sweeps[0].dataset.split.kind` must be one of folds, indices, random, got 'half'.",
    ),
    (
        "{kind: npz, file: data/arrays.npz, seed: 7,"
        " split: {kind: indices, file: data/splits.npz, test: 'test_{seed}'}}",
        "`sweeps[0].dataset.split.test` must be one of `test_0`, `test_1` of data/splits.npz, got "
        "'test_7'.",
    ),
    (
        "{kind: images, path: data/pictures, classes: [[a, z]]}",
        "`sweeps[0].dataset.classes[0]` must be one of `a`, `b` of data/pictures, got 'z'.",
    ),
    (
        "{kind: images, path: data/broken}",
        "Data set `images`: data/broken: a/1.png is no image, or of a format that is not known.",
    ),
    (
        "{kind: sklearn, name: roses}",
        "`sweeps[0].dataset.name` must be one of breast_cancer, diabetes, digits, iris, wine, got "
        "'roses'.",
    ),
    (
        "{kind: openml, id: 61}",
        "`sweeps[0].dataset`: data set 61 is unavailable from OpenML (no way out).",
    ),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_errors_come_before_anything_is_written(here, monkeypatch, text, message):
    def reject():
        raise OSError("no way out")

    monkeypatch.setattr(openml, "_check_reachable", reject)
    monkeypatch.setenv("XDG_CACHE_HOME", str(here.parent / "cache"))
    contents = {
        "ragged": "a,y\n1,2.5\n2\n",
        "words": "a,y\n1,2.5\nfew,3.5\n2,9\n",
        "gap": "a,y\n1,2.5\n2,3.5\n,9\n",
        "one": "a,y\n1,same\n2,same\n",
        "empty": "",
    }
    for name, content in contents.items():
        (here / "data" / f"{name}.csv").write_text(content)
    for name in "ab":
        (here / "data" / "broken" / name).mkdir(parents=True)
        for i in range(5):
            good = (here / "data" / "pictures" / "train" / name / f"{i}.png").read_bytes()
            path = here / "data" / "broken" / name / f"{i}.png"
            path.write_bytes(b"nothing" if (name, i) == ("a", 1) else good)
    done = CliRunner().invoke(app, ["sweep", str(write(here, text)), "--device", "cpu", "--quiet"])
    assert done.exit_code == 2, done.output
    assert done.stderr == f"error: {message}\n"
    assert not list(Path.cwd().iterdir())


def fitted(here, dataset, validation=0):
    """Folder of a cell, fitted in this process, with its record."""
    run = prepare(load_experiment(write(here, dataset, validation)), Path("results/own"))
    write_header(run)
    (job,) = jobs(list(run.tasks))
    task = JobTask(job.group, job.width, tuple(run.tasks[cell] for cell in job.wanted))
    run_job(task, run.results.folder, lambda _: None)
    (cell,) = run.results.cells.iterdir()
    return cell, run.results.load_record(cell.name)


@pytest.mark.slow
def test_a_plane_is_fitted_mapped_and_read_back(here):
    """Also where the file is no longer."""
    cell, record = fitted(here, "{kind: table, file: data/plane.csv, target: what}")
    assert record.results, record.reason
    assert record.overlap == 8 / 32
    assert {"recall_one", "recall_two", "balanced_accuracy"} <= set(record.results)
    trace = Results(cell.parent.parent).load_trace(cell.name)
    assert trace["predictions"]["probability"].shape == (4, 4, 2)
    content = yaml.safe_load(Path("results/own/experiment.yaml").read_text())
    assert content["data_folder"] == os.path.join("..", "..", "..", "experiments")
    # Rows of other contents would be an error.
    assert restore_cell(cell).origin.training().x.shape[1] == 2
    shutil.rmtree(here / "data")
    posterior = restore_cell(cell)
    assert posterior.origin.standardisation.mean.shape == (2,)
    with pytest.raises(DataError, match="plane.csv"):
        posterior.origin.training()
    for path in (*Path("results").rglob("*.json"), *Path("results").rglob("*.yaml")):
        assert str(here.parent) not in path.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("targets", ["at", "[[at, more]]"])
def test_numbers_over_a_plane_are_mapped_in_their_own_units(here, targets):
    """Far from 0 and of another unit: what was fitted is standardised."""
    plane = np.random.default_rng(0).normal(size=(40, 2))
    frame = pd.DataFrame(plane, columns=["left", "up"])
    frame["at"], frame["more"] = 1000 + 100 * plane[:, 0], -50 + plane[:, 1]
    frame.to_csv(here / "data" / "numbers.csv", index=False)
    settings = f"file: data/numbers.csv, target: {targets}, features: [[left, up]]"
    cell, record = fitted(here, f"{{kind: table, {settings}}}", validation=0.2)
    assert record.results, record.reason
    # Of standardised targets it would be lower by log(100), 4.6.
    assert record.results["validation_nll"] == pytest.approx(record.results["nll"], abs=2)
    assert record.results["validation_nll"] == record.selection.nll[0][0]
    results = Results(cell.parent.parent)
    predictions = results.load_trace(cell.name)["predictions"].dataset
    several = targets != "at"
    assert predictions["mean"].dims == ("x1", "x2", *["target_name"] * several)
    first = predictions.isel(target_name=0) if several else predictions
    assert 500 < float(first["mean"].min()) < float(first["mean"].max()) < 1500
    assert (first["total_sd"] > first["epistemic_sd"]).all()
    (drawn,) = missing_cell_figures(results, [record])
    assert drawn.path == cell / "map.png"
    maps, bars = np.split(np.array(drawn.draw().axes), 2)
    assert [axes.get_xlabel() for axes in maps] == ["left"] * len(maps)
    assert len(bars) == 2 + 2 * several
    shown = maps[0].images[0].get_array()
    np.testing.assert_allclose(shown, first["mean"].transpose("x2", "x1"), rtol=1e-6)
    draw_cells(results, [record])
    assert missing_cell_figures(results, [record]) == []


@pytest.mark.slow
def test_pictures_are_kept_and_drawn_in_colour(here, words):
    cell, record = fitted(here, "{kind: images, path: data/pictures, colour: true}")
    assert record.results, record.reason
    trace = Results(cell.parent.parent).load_trace(cell.name)
    test = trace["test_predictions"].dataset
    assert test["image"].dims == ("image", "row", "column", "channel")
    for number, pixels in zip(test["image_index"].values, test["image"].values, strict=True):
        name, of_class = "ab"[number // 6], number % 6
        file = here / "data" / "pictures" / "test" / name / f"{of_class}.png"
        np.testing.assert_array_equal(pixels, np.asarray(Image.open(file)))
    figure = plot_samples(trace, "pictures")
    assert {"a", "b"} <= set(words(figure))
    shown = [image.get_array() for axes in figure.axes for image in axes.images]
    assert {array.shape for array in shown} == {(4, 4, 3)}


@pytest.mark.slow
def test_a_curve_of_standardised_targets_is_recorded(here):
    cell, record = fitted(here, "{kind: table, file: data/line.csv, target: y}")
    assert record.results, record.reason
    trace = Results(cell.parent.parent).load_trace(cell.name)
    assert trace["curve_1"].attrs["position"] == "at"
    loaded = load_experiment(here / "own.yaml").cells[0].dataset.load()
    kept = trace["constant_data"]
    for name in ("mean", "sd"):
        expected = getattr(loaded.target_standardisation, name)
        np.testing.assert_allclose(kept[f"target_{name}"].values, expected)


# Reading needs no data, planning does


WITHOUT_DATA = [
    "{kind: table, file: data/none.csv, target: y}",  # neither likelihood nor targets are known
    "{kind: table, file: data/none.csv, target: y, task: regression}",
    "{kind: npz, file: data/none.npz}",
    "{kind: images, path: data/none}",
    "{kind: idx, path: data/none}",
    "{kind: openml, id: 61}",
]


@pytest.mark.parametrize("dataset", WITHOUT_DATA)
def test_a_file_is_read_without_its_data(here, monkeypatch, dataset):
    def reject():
        raise OSError("no way out")

    monkeypatch.setattr(openml, "_check_reachable", reject)
    monkeypatch.setenv("XDG_CACHE_HOME", str(here.parent / "cache"))
    file = write(here, f"[{{kind: moons, noise: 0.3}}, {dataset}]")
    text = file.read_text().replace("prior: normal", "prior: [normal, laplace]")
    file.write_text(text)
    experiment = load_experiment(file)
    # The first data set says what the likelihood is.
    assert len(experiment.cells) == 4
    assert {cell.likelihood.kind for cell in experiment.cells} == {"categorical"}
    with pytest.raises(DataError, match=r"^`sweeps\[0\]\.dataset\[1\]"):
        check_data(experiment)
    done = CliRunner().invoke(app, ["sweep", str(file), "--device", "cpu", "--dry-run"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: `sweeps[0].dataset[1]")
    assert len(done.stderr.splitlines()) == 1


def test_cells_are_known_without_data_as_far_as_a_file_says_them(here):
    """Where only the rows tell which likelihood there is, cells need them."""
    text = "{kind: table, file: data/none.csv, target: y%s}"
    said = load_experiment(write(here, text % ", task: regression"))
    assert [cell.likelihood.kind for cell in said.cells] == ["normal"]
    (images,) = load_experiment(write(here, "{kind: images, path: data/none}")).cells
    assert images.likelihood.kind == "categorical"
    unsaid = load_experiment(write(here, text % ""))
    with pytest.raises(DataError, match=r"^`sweeps\[0\]\.dataset\.file` must be there"):
        _ = unsaid.cells


def test_what_no_data_are_needed_for_is_checked_while_a_file_is_read(here):
    file = write(here, "[{kind: moons, noise: 0.3}, {kind: idx, path: data/none}]")
    file.write_text(file.read_text().replace("steps: 20", "steps: 20, batch: 9999"))
    with pytest.raises(ConfigError, match=r"`sweeps\[0\]\.inference\.batch` must be <= "):
        load_experiment(file)


def test_a_contrast_of_a_file_without_data_is_checked_by_the_plan(here):
    file = write(here, "{kind: table, file: data/plane.csv, target: what}")
    contrast = "{name: none, first: {prior: laplace}, second: {prior: normal}}"
    file.write_text(file.read_text() + f"\ncontrasts: [{contrast}]\n")
    experiment = load_experiment(file)
    with pytest.raises(ConfigError, match=r"`contrasts\[0\]\.first` must match a cell"):
        check_data(experiment)


def test_a_file_that_vanishes_between_its_finding_and_its_reading(tmp_path):
    with pytest.raises(DataError, match=r"rows.csv is not there\."):
        stamp_of(tmp_path / "rows.csv")
