"""Commands of every day, by what they print: cells are made up, nothing is fitted."""

import os
from zipfile import ZipFile

import pytest
import yaml
from makers import FIXED, MOONS, changed, list_present, record, store, store_made_up_cells
from typer.testing import CliRunner

import pmbnn as pb
from pmbnn.cli import app
from pmbnn.cli.cell_tables import best_lines, reliability_table, state_table
from pmbnn.results.present import read_list
from pmbnn.results.store import Results, writing

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


# What is in a folder


def test_show_says_how_far_a_folder_is_and_what_is_best(folder):
    done = call("show", folder)
    assert done.exit_code == 0, done.output
    first, *_ = done.stdout.splitlines()
    assert first == f"toy ({folder}): 6 of 6 cells finished (6 converged)"
    words = " ".join(done.stdout.replace("│", " ").split())
    assert (
        "toy: moons, noise 0.4 6 6 0 0 0 normal × fixed 1 (NLL of held-out training rows" in words
    )
    listed = call("show", folder, "-v").stdout
    assert (
        listed.count("converged") == 7 and "moons, noise 0.4, seed 2, laplace × fixed 1" in listed
    )


def test_an_improper_fit_is_not_among_the_converged():
    proper, flat = record("normal", FIXED, nll=0.5), record("flat", FIXED, nll=0.4)
    cells = [proper, changed(flat, status="improper")]
    numbers = [[*map(str, column.cells)] for column in state_table(cells).columns[1:-1]]
    assert numbers == [["2"], ["1"], ["0"], ["1"], ["0"]]
    assert best_lines(cells)[-1] == "1 of 2 cells converged, 1 improper"


def test_refuted_chains_are_not_among_the_converged(tmp_path):
    fit = {"engine": "compiled", "guide": "mean_field", "kl_weight": 1.0, "kl_scaling": "sum"}
    chains = {"log_likelihood": -400.0, "log_likelihood_mcse": 1.0, "nll": 0.1}
    cells = [
        record(inference=fit, elbo=-300.0, nll=0.4),
        record(inference={"engine": "mclmc"}, **chains),
    ]
    table = state_table(cells)
    numbers = {str(column.header): [*map(str, column.cells)] for column in table.columns[1:-1]}
    assert numbers["finished"] == ["1", "1"] and numbers["failed"] == ["0", "0"]
    assert numbers["converged"] == ["1", "0"] and numbers["refuted"] == ["0", "1"]
    (refuted,) = [c for c in reliability_table(cells).columns if str(c.header) == "refuted"]
    assert [*map(str, refuted.cells)] == ["0 of 1", "1 of 1"]
    assert best_lines(cells)[-1] == "1 of 2 cells converged, 1 refuted"
    folder = store(tmp_path / "out", [(changed(c, predictive=None), None) for c in cells]).folder
    assert f"refuted: {cells[1].name}: these draws are not of" in call("show", folder).stdout


def test_show_beside_a_sweep_disturbs_nothing(folder):
    """Unfinished cells are counted, and tables that the sweep makes at its end are no news."""
    results = Results(folder)
    results.write_text("metrics.csv", "of other cells")
    lost = record("student_t", FIXED, failed=True)
    results.save_cell(changed(lost, reason="not finite"), {})
    list_present(results, [*results.cell_names(), "to-be-fitted"])
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    with writing(folder):
        done = call("show", folder)
        (line, *rest) = done.stdout.splitlines()
        assert "7 of 8 cells finished (6 converged, 1 diverged); being written by process" in line
        assert rest[-1] == "failed: moons, noise 0.4, seed 0, student_t × fixed 1: not finite"
    after = call("show", folder).stdout.splitlines()
    assert after[0].endswith("7 of 8 cells finished (6 converged, 1 diverged)")
    assert "1 missing: the same `pmbnn sweep` command fits them" in after
    assert any(line.startswith("stale, ") and "metrics.csv" in line for line in after)
    kept = {path: path.stat().st_mtime_ns for path in before if path.is_file()}
    assert kept == {path: before[path] for path in kept}


def test_show_of_cells_that_a_check_did_not_sample(folder):
    """A sweep does not fit them."""
    results = Results(folder)
    list_present(results, [*results.cell_names(), "sampled", "fitted"])
    content = read_list(folder).content
    results.write_json("cells.json", content | {"references": ["sampled"]})
    lines = call("show", folder).stdout.splitlines()
    assert [line for line in lines if "missing" in line] == [
        "1 missing: the same `pmbnn sweep` command fits them",
        "1 missing: the same `pmbnn check` command fits them",
    ]


def test_output_in_an_encoding_without_some_signs(folder):
    """As of a file on Windows: commands ended in a UnicodeEncodeError before they wrote tables."""
    done = CliRunner(charset="ascii").invoke(app, ["show", str(folder)])
    assert done.exit_code == 0 and "normal x fixed 1" in done.stdout


def test_show_of_a_writer_of_another_machine(folder):
    """It may have been killed there: nothing else removes the file that names it."""
    writer = {"host": "node7", "process": 12, "started": "2026-01-02 03:04:05 +0000"}
    results = Results(folder)
    results.write_json(".writer.json", writer)
    list_present(results, [*results.cell_names(), "to-be-fitted"])
    first, *rest = call("show", folder).stdout.splitlines()
    assert first.endswith(f"process 12 on node7 since {writer['started']}, unless that has ended")
    assert "1 missing: the same `pmbnn sweep` command fits them" in rest


def test_show_of_no_results(tmp_path):
    for name, message in (("gone", "does not exist"), ("", "must be a results folder")):
        done = call("show", tmp_path / name)
        assert done.exit_code == 2 and message in done.output


def test_refuted_chains_are_left_out_with_a_word(tmp_path):
    """Fits that `--only` leaves out refute them still; differences and claims had them."""
    fit = {"engine": "compiled", "guide": "mean_field", "kl_weight": 1.0, "kl_scaling": "sum"}
    cells = []
    for prior, likelihood in (("normal", -400.0), ("laplace", -250.0)):
        chains = {"log_likelihood": likelihood, "log_likelihood_mcse": 1.0, "nll": 0.1}
        cells.append(record(prior, FIXED, inference=fit, elbo=-300.0, nll=0.4))
        cells.append(record(prior, FIXED, inference={"engine": "mclmc"}, **chains))
    cells = [changed(one, predictive=None) for one in cells]
    folder = store(tmp_path / "out", [(one, None) for one in cells]).folder
    line = f"left out: {cells[1].name}: these draws are not of the posterior"
    done = call("table", folder, "--only", "inference.engine=mclmc")
    assert done.stderr.startswith(line) and "| normal |" not in done.stdout
    assert "| Laplace | **0.1** |" in done.stdout
    chosen = ["--only", "inference.engine=mclmc", "--only", "prior=normal"]
    done = call("predict", folder, tmp_path / "new.csv", *chosen)
    assert done.stderr.startswith(line.replace("left out", "warning"))
    both = call("diff", folder, folder, "--metric", "nll")
    assert both.stderr.count(line) == 2 and both.stdout.count("0.1000") == 2


def test_readers_say_how_many_cells_are_missing(folder):
    """Means of a sweep that was stopped, or of which cells were removed, were of the others."""
    assert "missing" not in call("table", folder).stderr
    removed = Results(folder).cell_names()[:2]
    for name in removed:
        Results(folder).remove(name)
    line = f"2 cells of {folder} are missing: not fitted yet, or removed\n"
    assert call("table", folder).stderr.startswith(line)
    assert call("diff", folder, folder).stderr == 2 * line
    read = pb.load_results(folder)
    assert read.missing == 2 and "missing=2" in repr(read)


# Two folders


def test_diff_names_settings_and_pairs_metrics(folder, tmp_path):
    cells = [
        record(prior, FIXED, MOONS | {"seed": seed}, nll=nll + 0.01 * seed - 0.001 * seed**2,
               inference={"steps": 20000, "seed": 0})
        for prior, nll in (("normal", 0.38), ("student_t", 0.5))
        for seed in range(3)
    ]  # fmt: skip
    other = store(tmp_path / "other", [(cell, None) for cell in cells]).folder
    done = call("diff", folder, other, "--metric", "nll")
    assert done.exit_code == 0, done.output
    words = " ".join(done.stdout.replace("│", " ").split())
    assert "inference.steps 10000 20000" in words
    assert "prior.kind normal, laplace normal, student_t" in words
    assert "normal × fixed 1 nll 3 0.4100 0.3883 −0.0217 −0.0268 to −0.0165" in words
    assert done.stdout.splitlines()[-2:] == [
        "only in a: moons, noise 0.4: laplace × fixed 1",
        "only in b: moons, noise 0.4: student_t × fixed 1",
    ]
    same = call("diff", folder, folder).stdout
    assert "the same settings and versions" in same


def test_diff_of_an_unknown_metric(folder):
    done = call("diff", folder, folder, "--metric", "nlll")
    assert done.exit_code == 2 and "did you mean `nll`?" in done.output


# One file for a colleague


def test_export_has_the_present_cells_and_no_rubbish(folder, tmp_path):
    results = Results(folder)
    results.save_cell(record("student_t", FIXED), {})  # superseded
    (folder / "checkpoints" / "job").mkdir(parents=True)
    for name in ("checkpoints/job/state", "metrics.csv", "data.txt", ".lock"):
        (folder / name).write_text("text")
    os.utime(folder / "data.txt", (0, 0))  # a date that ZIP files do not have
    (folder / "plugins").mkdir()
    (folder / "plugins" / "mine.py").write_text("text")
    (folder / "data").mkdir()
    (folder / "data" / "rows.npz").write_bytes(b"the user's own rows, which were not asked for")
    done = call("export", folder, "--to", tmp_path / "toy.zip")
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{tmp_path / 'toy.zip'}: 6 cells, 9 files, ")
    names = ZipFile(tmp_path / "toy.zip").namelist()
    assert {name for name in names if "/cells/" not in name} == {
        "out/cells.json",
        "out/data.txt",
        "out/plugins/mine.py",
    }
    assert sum(name.endswith("/metrics.json") for name in names) == 6
    again = call("export", folder, "--to", tmp_path / "toy.zip")
    assert again.exit_code == 2 and "exists already" in again.output
    wrong = call("export", folder, "--to", "mlflow")
    assert wrong.exit_code == 2 and "must be a file that ends in .zip, got `mlflow`" in wrong.output


@pytest.mark.slow
def test_a_colleague_makes_the_page_from_the_unzipped_folder(file, tmp_path):
    assert call("sweep", file, "--quiet").exit_code == 0
    assert call("export", "results/toy", "--to", "toy.zip").exit_code == 0
    with ZipFile("toy.zip") as archive:
        archive.extractall("theirs")
    done = call("report", "theirs/toy")
    assert done.exit_code == 0, done.output
    assert "laplace" in next((tmp_path / "theirs" / "toy").glob("*.html")).read_text().lower()
