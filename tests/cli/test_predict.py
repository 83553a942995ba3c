"""The command line that predicts a user's own images."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from makers import embedded_digits
from PIL import Image
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.data import Mnist
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import jobs
from pmbnn.fitting.job import forget_datasets, run_job
from pmbnn.fitting.tasks import JobTask
from pmbnn.prediction.posterior import Posterior
from pmbnn.results.loading import restore_cell
from pmbnn.results.store import Results
from pmbnn.sweep.cells import prepare

pytestmark = pytest.mark.slow

TINY = """
name: tiny
sweeps:
  - name: digits
    dataset: {kind: mnist, source: embedded, train: 1000, test: 100}
    network: {kind: dense, hidden: [[16]]}
    prior: normal
    hyperprior: {kind: fixed, scale: 0.3}
    inference: {steps: 400, batch: 100, restarts: 2, validation: 0, initial_scale: 0.02,
                learning_rate: 0.01}
    predict: {draws: 20, trace_draws: 2, mixture: equal}
  - name: plane
    dataset: {kind: moons, noise: 0.3, train: 60, test: 40}
    network: {kind: dense, hidden: [[3]]}
    prior: normal
    hyperprior: {kind: fixed, scale: 1}
    inference: {steps: 30, restarts: 1, validation: 0}
    predict: {draws: 4, trace_draws: 2, map: {resolution: 4}, fresh: {size: 50, draws: 2}}
"""


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """Folders of two fitted cells: of digits, and of points in the plane."""
    return fitted_cells(TINY, tmp_path_factory.mktemp("tiny"))


def fitted_cells(experiment, folder):
    file = folder / "experiment.yaml"
    file.write_text(experiment)
    run = prepare(load_experiment(file), folder / "out")
    run.results.prepare()
    for job in jobs(list(run.tasks)):
        task = JobTask(job.group, job.width, tuple(run.tasks[cell] for cell in job.wanted))
        run_job(task, run.results.folder, lambda _: None)
    return sorted(run.results.cells.iterdir())


@pytest.fixture(scope="module")
def cell(cells):
    return cells[0]


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Image files of six digits, one of noise, and two files that are none."""
    folder = tmp_path_factory.mktemp("images")
    x, y = embedded_digits()
    for row in range(0, 5000, 900):
        Image.fromarray(x[row].reshape(28, 28).astype(np.uint8)).save(folder / f"{int(y[row])}.png")
    noise = np.random.default_rng(0).integers(256, size=(28, 28))
    noise[0], noise[-1], noise[:, 0], noise[:, -1] = 0, 0, 0, 0
    Image.fromarray(noise.astype(np.uint8)).save(folder / "noise.png")
    (folder / "bad.png").write_text("no image")
    return folder


def digit_files(images):
    return sorted(images.glob("[0-9].png"))


@pytest.fixture(scope="module")
def whole_run(cell, images):
    """A run as a user starts it: two files cannot be read. Its figure is asked for as well."""
    figure = images / "figure.png"
    files = [*digit_files(images), images / "bad.png", images / "gone.png"]
    done = subprocess.run(
        [sys.executable, "-m", "pmbnn", "predict", cell, *files, "--figure", figure],
        capture_output=True,
        text=True,
        timeout=120,
        env={key: value for key, value in os.environ.items() if key != "PMBNN_DATA"},
    )
    return done, figure


def run(*arguments):
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


def answers(cell, *arguments):
    done = run(cell, *arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def usual(cell, images):
    """Answers for the digits, then for noise, without any option."""
    return answers(cell, *digit_files(images), images / "noise.png")


# A run from outside


def test_what_is_printed(whole_run, images):
    done, _ = whole_run
    assert done.returncode == 1, done.stderr
    for path in digit_files(images):
        assert path.name in done.stdout.replace("\n", "")
    for words in ("probability of each class", "accepted", "entropy", "expected error"):
        assert words in done.stdout
    assert "which is percentile 99 of the 100 test images; 400 draws" in done.stdout


def test_images_that_cannot_be_read_are_named(whole_run, images):
    done, _ = whole_run
    assert [line for line in done.stderr.splitlines() if not line.startswith("warning: ")] == [
        f"error: {images / 'bad.png'} is no image, or of a format that is not known.",
        f"error: {images / 'gone.png'} cannot be read: No such file or directory.",
    ]


def test_the_figure(whole_run):
    done, figure = whole_run
    assert f"figure {figure}" in done.stdout.replace("\n", "")
    with Image.open(figure) as image:
        image.load()
        assert image.height > image.width
        assert len(set(image.convert("L").resize((50, 50)).tobytes())) > 20


# Numbers


def test_digits_are_recognised(usual, images):
    found = usual["images"][:-1]
    names = [path.stem for path in digit_files(images)]
    assert np.mean([a["class"] == n for a, n in zip(found, names, strict=True)]) >= 0.5
    for answer in found:
        p = list(answer["class_probability"].values())
        assert list(answer["class_probability"]) == list("0123456789")
        assert sum(p) == pytest.approx(1, abs=1e-5)
        assert answer["probability"] == max(p) == answer["class_probability"][answer["class"]]
        assert answer["sd"] == answer["class_sd"][answer["class"]]
        assert 0 <= answer["mutual_information_bits"] <= answer["entropy_bits"] <= np.log2(10)
        assert 0 <= answer["expected_error_rate"] <= 1
        assert not answer["inverted"]


def test_predictions_are_those_of_the_sweep(cell, tmp_path):
    """A test digit, written to a file and read again, with as many draws as the sweep took."""
    dataset = Mnist(source="embedded", train=1000, test=100).load()
    raw = dataset.standardisation.undo(dataset.x_test[:5]).reshape(-1, 28, 28)
    files = [tmp_path / f"{i}.png" for i in range(5)]
    for path, image in zip(files, raw, strict=True):
        Image.fromarray((255 * image).round().astype(np.uint8)).save(path)
    found = answers(cell, *files, "--draws", 20)
    assert found["draws"] == 40
    kept = Results(cell.parent.parent).load_trace(cell.name)["test_predictions"]
    for key, name in (("class_probability", "probability"), ("class_sd", "sd")):
        values = [list(answer[key].values()) for answer in found["images"]]
        # The faintest pixels at the edge of a digit are lost.
        np.testing.assert_allclose(values, kept[name].values[:5], atol=0.03)


def test_what_is_unsure_is_rejected(cell, images, usual):
    """Everything, where no held-out digit is less uncertain than the threshold."""
    limit = usual["threshold"]
    assert (limit["of"], limit["rows"], limit["percentile"]) == ("test_predictions", 100, 99)
    for answer in usual["images"]:
        assert answer["rejected"] == (answer["sd"] > limit["sd"])
    strict = answers(cell, images / "noise.png", "--percentile", 0)
    assert strict["threshold"]["percentile"] == 0
    assert strict["threshold"]["sd"] < limit["sd"]
    assert strict["images"][0]["rejected"]


def test_a_restart_without_weight_has_no_part(cell, images, usual, monkeypatch):
    load = Results.load_trace

    def load_trace(*place):
        trace = load(*place)
        trace["fit"]["weight"].values[:] = [0.0, 1.0]
        return trace

    monkeypatch.setattr(Results, "load_trace", load_trace)
    alone = answers(cell, digit_files(images)[0])
    assert (usual["draws"], alone["draws"]) == (400, 200)
    assert usual["images"][0]["probability"] != alone["images"][0]["probability"]


def test_options_reach_the_images(cell, images, usual, tmp_path):
    light = tmp_path / "light.png"
    with Image.open(digit_files(images)[0]) as image:
        image.point(lambda grey: 255 - grey).save(light)
    [found] = answers(cell, light, "--whole", "--invert")["images"]
    assert found["inverted"]
    assert found["probability"] == pytest.approx(usual["images"][0]["probability"], abs=0.02)
    done = run(cell, light, "--no-invert")
    assert done.exit_code == 2
    assert "shows no foreground" in done.stderr


# Bad input


def test_no_image_can_be_read(images):
    """The cell is not even looked at."""
    done = run("nowhere", images / "bad.png", images)
    assert done.exit_code == 2
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["error", "error"]
    assert done.stdout == ""


def test_a_folder_that_is_no_cell(cell, images):
    done = run(cell.parent, digit_files(images)[0])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: `")
    assert "results/<experiment>/cells/<name>; it holds" in done.stderr
    assert str(cell) in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_cell_of_other_data(cells, images):
    done = run(cells[1], digit_files(images)[0])
    assert done.exit_code == 2
    assert (
        "must be fitted on classes of images of 28 × 28 pixels, got data set `moons`."
        in done.stderr
    )


LOGIT = """
name: logit
sweeps:
  - name: two
    dataset: {kind: images, path: two}
    network: {kind: dense, hidden: [[]]}
    prior: normal
    hyperprior: {kind: fixed, scale: 0.3}
    likelihood: bernoulli
    inference: {steps: 100, restarts: 1, validation: 0}
    predict: {draws: 4, trace_draws: 2}
"""


def test_two_classes_of_one_logit(images, tmp_path):
    """The output is of the second class alone; the answer names both."""
    x, y = embedded_digits()
    for digit in (0, 1):
        folder = tmp_path / "two" / f"digit {digit}"
        folder.mkdir(parents=True)
        for i, row in enumerate(x[y == digit][:30]):
            Image.fromarray(row.reshape(28, 28).astype(np.uint8)).save(folder / f"{i}.png")
    (logit,) = fitted_cells(LOGIT, tmp_path)
    found = answers(logit, *(images / f"{digit}.png" for digit in (0, 1)))["images"]
    assert [one["class"] for one in found] == ["digit 0", "digit 1"]
    assert [*found[0]["class_probability"]] == ["digit 0", "digit 1"]


def test_own_images_are_read_as_the_training_images_were(tmp_path):
    """Dark strokes on white, at an edge: they are neither inverted nor moved to the middle."""
    x, y = embedded_digits()
    for digit in (0, 1):
        folder = tmp_path / "two" / f"digit {digit}"
        folder.mkdir(parents=True)
        for i, row in enumerate(x[y == digit][:30]):
            moved = np.roll(row.reshape(28, 28), 4, axis=0)
            Image.fromarray((255 - moved).astype(np.uint8)).save(folder / f"{i}.png")
    forget_datasets()  # of another folder of this name
    (logit,) = fitted_cells(LOGIT, tmp_path)
    files = [tmp_path / "two" / f"digit {digit}" / "0.png" for digit in (0, 1)]
    found = answers(logit, *files)["images"]
    pixels = np.stack([np.asarray(Image.open(file)).ravel() / 255 for file in files])
    expected = restore_cell(logit).predict(pixels, 200).mean
    shares = [[*one["class_probability"].values()] for one in found]
    np.testing.assert_allclose(shares, expected, atol=1e-5)
    assert [one["inverted"] for one in found] == [False, False]
    done = run(logit, *files, "--whole")
    assert done.exit_code == 2 and "`--whole` is not for files such as" in done.stderr
    Image.fromarray(np.eye(30, 28, dtype=np.uint8) * 255).save(files[0])
    done = run(logit, files[0])
    assert done.exit_code == 2 and "must have 28 × 28 pixels like the others" in done.stderr


def test_a_figure_in_no_folder(cell, images, tmp_path):
    done = run(cell, digit_files(images)[0], "--figure", tmp_path / "gone" / "a.png")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: `--figure` must lie in a folder that exists, got `")


def test_a_figure_that_cannot_be_written(cell, images, tmp_path):
    done = run(cell, digit_files(images)[0], "--figure", tmp_path)
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1] == f"error: `{tmp_path}` cannot be written: Is a directory."


def test_predictions_that_are_not_finite(cell, images, monkeypatch):
    predict = Posterior.predict

    def without_numbers(*given):
        found = predict(*given)
        return replace(found, mean=np.nan * found.mean)

    monkeypatch.setattr(Posterior, "predict", without_numbers)
    done = run(cell, digit_files(images)[0])
    assert done.exit_code == 2
    assert "are not finite" in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--draws", 0],
        ["--percentile", 101],
        ["--percentile", -1],
        ["--device", "tpu"],
        ["--unknown"],
    ],
)
def test_wrong_options(cell, images, options):
    done = run(cell, digit_files(images)[0], *options)
    assert done.exit_code == 2
    assert options[0] in done.output


# --- beside another cell ------------------------------------------------------------------


def test_another_cell_beside(cell, images, usual, tmp_path):
    """Each answers as it does alone; one figure shows both."""
    files, figure = [*digit_files(images), images / "noise.png"], tmp_path / "both.png"
    done = run(cell, *files, "--json", "--beside", cell, "--draws", 5, "--figure", figure)
    found = json.loads(done.stdout)
    alone = answers(cell, *files, "--draws", 5)
    assert found["beside"]["cell"] == str(cell)
    for both in (found, found["beside"]):
        assert both["images"] == alone["images"]
        assert both["threshold"] == alone["threshold"]
    one = tmp_path / "one.png"
    assert run(cell, *files, "--draws", 5, "--figure", one).exit_code == 0
    with Image.open(figure) as both, Image.open(one) as single:
        assert both.width > 1.2 * single.width


def test_tables_of_two_cells_name_them(cell, images):
    done = run(cell, *digit_files(images)[:1], "--draws", 5, "--beside", cell)
    assert done.exit_code == 0
    assert done.stdout.count(cell.name[-12:]) == 2


def test_another_cell_that_is_none(cell, images, tmp_path):
    done = run(cell, *digit_files(images)[:1], "--beside", tmp_path)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
