"""Commands of every day, by what they print: cells are made up, nothing is fitted."""

import pytest
import yaml
from makers import FIXED, MOONS, record, store, store_made_up_cells
from typer.testing import CliRunner

import pmbnn as pb
from pmbnn.cli import app

TEXT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 20, test: 10}
    network: {kind: dense, hidden: [[2]]}
    prior: [normal, laplace]
    hyperprior: {kind: fixed, scale: 1}
    inference: {steps: 10, validation: 0}
    predict: {draws: 5, trace_draws: 4, map: {resolution: 5}, fresh: {size: 20, draws: 2}}
"""


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


# Settings that are changed without editing the file


@pytest.fixture
def file(tmp_path, monkeypatch):
    """An experiment file in the working directory, whose cells a sweep makes up."""
    store_made_up_cells(monkeypatch, lambda task: {"accuracy": 0.5, "scale": 1}, figures=False)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "toy.yaml"
    path.write_text(TEXT)
    return path


def test_a_sweep_with_settings_changed_has_a_folder_of_its_own(file):
    assert call("sweep", file, "--quiet").exit_code == 0
    changes = ("--set", "inference.steps=20000", "--set", "prior=normal,student_t")
    planned = call("sweep", file, *changes, "--dry-run")
    assert planned.exit_code == 0 and "toy: 2 cells" in planned.output
    assert "results/toy-inference.steps=20000-prior=normal,student_t" in planned.output
    assert call("sweep", file, *changes, "--quiet").exit_code == 0
    texts = ["inference.steps=20000", "prior=normal,student_t"]
    folders = {path.name: pb.load_results(path) for path in (file.parent / "results").iterdir()}
    assert set(folders) == {"toy", "toy-inference.steps=20000-prior=normal,student_t"}
    before, after = folders.values() if [*folders][0] == "toy" else [*folders.values()][::-1]
    assert [r.cell.prior.kind for r in after.records] == ["normal", "student_t"]
    assert {r.cell.inference.steps for r in after.records} == {20000}
    assert after.provenance["overrides"] == texts
    assert "overrides" not in before.provenance and before.superseded == 0
    # A further command of the folder knows them too.
    again = pb.run(after.results.folder / "experiment.yaml", quiet=True)
    assert again.results.folder == after.results.folder.relative_to(file.parent)
    assert again.provenance["overrides"] == texts


def test_settings_are_changed_from_python(file):
    changed = pb.run(file, overrides={"prior": ["flat"], "inference.steps": 7}, quiet=True)
    assert changed.results.folder.name.startswith("toy-prior=flat-")
    (record,) = changed.records
    assert (record.cell.prior.kind, record.cell.inference.steps) == ("flat", 7)
    content = yaml.safe_load(TEXT)
    done = pb.run(content, overrides=["prior=student_t"], quiet=True)
    assert done.results.folder.name == "toy-prior=student_t"
    assert [record.cell.prior.kind for record in done.records] == ["student_t"]
    with pytest.raises(ValueError, match="`sweeps.0..prior` must be one of"):
        pb.run(content, overrides=["prior=lap"], quiet=True)
    with pytest.raises(ValueError, match="`overrides` need a file or a mapping"):
        pb.run(pb.load_experiment(file), overrides=["prior=flat"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("prior=normal,lap", "error: `sweeps[0].prior[1]` must be one of "),
        (
            "inference.stps=1",
            "error: `sweeps[0].inference` has no key `stps`; did you mean `steps`",
        ),
        ("prior", "error: `--set` must be KEY=VALUE, got 'prior'."),
    ],
)
def test_a_wrong_setting_is_one_line_and_nothing_is_written(file, change, message):
    done = call("sweep", file, "--set", change)
    assert (done.exit_code, len(done.output.splitlines())) == (2, 1)
    assert message in done.output
    assert not (file.parent / "results").exists()


# Tables for papers


@pytest.fixture
def folder(tmp_path):
    """A results folder of two priors on three data seeds."""
    cells = [
        record(prior, FIXED, MOONS | {"seed": seed}, nll=nll + step * seed)
        for prior, nll, step in (("normal", 0.4, 0.01), ("laplace", 0.7, 0.012))
        for seed in range(3)
    ]
    return store(tmp_path / "out", [(cell, None) for cell in cells]).folder


def test_a_table_is_printed_or_written(folder, tmp_path):
    done = call("table", folder)
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[:6] == [
        "NLL (nats), moons, noise 0.4",
        "",
        "| prior | fixed 1 |",
        "| :-- | --: |",
        "| normal | **0.410 ± 0.006** |",
        "| Laplace | 0.712 ± 0.007 |",
    ]
    latex = call("table", folder, "--format", "latex", "-o", tmp_path / "table.tex")
    assert (latex.exit_code, latex.stdout) == (0, "")
    assert r"normal & $\mathbf{0.410 \pm 0.006}$ \\" in (tmp_path / "table.tex").read_text()
    lines = call("table", folder, "--format", "csv", "--only", "prior=normal").stdout.splitlines()
    assert len(lines) == 2 and lines[0].startswith("data,variant,prior,hyperprior,mean,se,seeds")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--format", "tex", "error: `--format` must be one of csv, latex, markdown, got 'tex'"),
        ("--rows", "priors", "error: `--rows` must be one of "),
        ("--only", "prior=lap", "error: `--only prior` must be one of laplace, normal, got 'lap'"),
    ],
)
def test_a_table_of_what_is_not_there(folder, option, value, message):
    done = call("table", folder, option, value)
    assert done.exit_code == 2 and message in done.output
