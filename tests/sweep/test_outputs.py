"""Figures and tables of plugins: made of stored cells, noted, and removed with what made them."""

import re
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
from typer.testing import CliRunner

from pmbnn.cli import app
from pmbnn.experiment.plugins import load_plugins
from pmbnn.results.derived import set_aside_stale
from pmbnn.results.loading import load_results
from pmbnn.results.present import StorageError
from pmbnn.results.store import Results, ResultsError
from pmbnn.sweep.outputs import make_outputs, write_times

DOCS = Path(__file__).parents[2] / "docs" / "experiment_files.md"

PLUGIN = """
import matplotlib.figure
import pandas as pd
import pmbnn as pb


def empty(title):
    figure = matplotlib.figure.Figure()
    figure.suptitle(title)
    return figure


@pb.register
def of_all(results: pb.ExperimentResults) -> matplotlib.figure.Figure:
    return empty("all")


@pb.register
def of_each(results: pb.ExperimentResults) -> "dict[str, matplotlib.figure.Figure]":
    return {name: empty(name) for name in results.metrics["name"]}


@pb.register
def names(results: pb.ExperimentResults) -> pd.DataFrame:
    return results.metrics[["name"]]
"""

EXPERIMENT = """
name: toy
plugins: [own.py]
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 40, test: 20}
    network: {kind: dense, hidden: [[2]]}
    prior: normal
"""

EVERY = ["figures/a-of-each.png", "figures/b-of-each.png", "figures/of-all.png", "names.csv"]

pytestmark = pytest.mark.usefixtures("registries")


@pytest.fixture
def store(made, tmp_path):
    cells = [(made.changed(made.record(nll=0.3), name=name), None) for name in "ab"]
    return made.store(tmp_path / "results", cells)


@pytest.fixture
def make(store, tmp_path):
    """Makes what a plugin of this text registers; paths of figures, and what is said."""

    def make(text):
        (tmp_path / "own.py").write_text(text)
        sources, said = load_plugins(["own.py"], [tmp_path]), []
        return make_outputs(store, sources, said.append), said

    return make


def files(store):
    every = [*store.figures.glob("*.png"), *store.folder.glob("*.csv")]
    return sorted(path.relative_to(store.folder).as_posix() for path in every)


def test_figures_and_tables_lie_in_the_results_folder(make, store):
    figures, said = make(PLUGIN)
    assert [path.name for path in figures] == ["of-all.png", "a-of-each.png", "b-of-each.png"]
    assert (files(store), said) == (EVERY, [])
    assert list(pd.read_csv(store.folder / "names.csv")["name"]) == ["a", "b"]
    shown = load_results(store.folder).figures
    assert sorted(shown) == sorted(figures)


def test_figures_are_drawn_again_where_one_is_missing_or_something_has_changed(make, store, made):
    def times():
        return {path.name: path.stat().st_mtime_ns for path in store.figures.glob("*.png")}

    make(PLUGIN)
    first = times()
    make(PLUGIN)
    assert times() == first
    (store.figures / "a-of-each.png").unlink()
    make(PLUGIN)
    second = times()
    changed = {name for name in first if first[name] != second.get(name)}
    assert changed == {"a-of-each.png", "b-of-each.png"}
    make(PLUGIN + "\n# edited\n")
    assert not set(times().values()) & set(second.values())
    store.save_cell(made.changed(made.record(nll=9.0), name="b"), {})
    assert load_results(store.folder).figures == ()
    figures, _ = make(PLUGIN + "\n# edited\n")
    assert len(load_results(store.folder).figures) == len(figures) == 3


def test_what_is_no_longer_registered_is_removed(make, store):
    (store.folder / "mine.csv").write_text("x\n1\n")
    make(PLUGIN)
    make(PLUGIN.replace("of_each(", "of_some(").replace("names(", "titles("))
    assert files(store) == [
        "figures/a-of-some.png",
        "figures/b-of-some.png",
        "figures/of-all.png",
        "mine.csv",
        "titles.csv",
    ]
    make_outputs(store, (), pytest.fail)
    assert files(store) == ["mine.csv"]


def test_tables_and_figures_of_other_cells_are_set_aside_with_the_rest(make, store):
    make(PLUGIN)
    assert set_aside_stale(store, "of other cells") == {}
    assert files(store) == []


def test_a_table_without_rows_and_a_figure_of_nothing_leave_no_file(make, store):
    nothing = PLUGIN.replace('["name"]]', '["name"]].iloc[:0]').replace('empty("all")', "None")
    make(PLUGIN)
    make(nothing)
    assert files(store) == ["figures/a-of-each.png", "figures/b-of-each.png"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('empty("all")', "empty(1 / 0)", "`of_all` ({file}, line 15) raised ZeroDivisionError: "),
        ('empty("all")', "[3]", "figure `of_all` ({file}, line 13) raised TypeError: must return"),
        ("empty(name) for", "3 for", "raised TypeError: must return a Figure, a dictionary of"),
        ("{name: empty", "{'-' * ord(name): empty", "must name figures by different letters and"),
        ('[["name"]]', '["nothing"]', "`names` ({file}, line 25) raised KeyError: 'nothing'."),
        ('results.metrics[["name"]]', "7", "raised TypeError: must return a DataFrame, got 7."),
    ],
)
def test_what_raises_is_left_out_and_said(make, store, tmp_path, before, after, message):
    assert before in PLUGIN
    figures, said = make(PLUGIN.replace(before, after))
    (line,) = said
    assert line.startswith("left out: ") and message.format(file=tmp_path / "own.py") in line
    assert "\n" not in line
    assert len(files(store)) in (2, 3) and len(figures) in (1, 2, 3)


def test_a_sweep_makes_them_and_its_page_shows_them(tmp_path, monkeypatch, made):
    asked = made.store_made_up_cells(monkeypatch, lambda task: {"accuracy": 0.5}, figures=False)
    raising = "\n@pb.register\ndef broken(results) -> pd.DataFrame:\n    return 1 / 0\n"
    (tmp_path / "own.py").write_text(PLUGIN + raising)
    file, out = tmp_path / "toy.yaml", tmp_path / "out"
    file.write_text(EXPERIMENT)
    done = CliRunner().invoke(app, ["sweep", str(file), "--out", str(out), "--quiet"])
    assert done.exit_code == 0, done.output
    assert "left out: table `broken`" in done.stderr + done.stdout
    page = (out / "index.html").read_text()
    (name,) = asked
    drawn = [path.name for path in (out / "figures").glob("*.png")]
    assert len(drawn) == 2 and all(f"figures/{figure}" in page for figure in drawn)
    assert list(pd.read_csv(out / "names.csv")["name"]) == [name]
    assert [path.parent for path in out.glob("plugins/*.py")] == [out / "plugins"]


def test_an_error_of_the_system_stops_the_sweep(make, store, monkeypatch):
    (store.folder / "names.csv").mkdir()
    with pytest.raises(StorageError, match=r"names\.csv"):
        make(PLUGIN)


def test_the_example_of_the_documentation(make, store):
    (example,) = re.findall(r'```python\n("""my_figures.*?)```', DOCS.read_text("utf-8"), re.S)
    figures, said = make(example)
    assert ([path.name for path in figures], said) == (["time-and-error.png"], [])
    assert files(store) == ["figures/time-and-error.png", "slowest.csv"]
    assert list(pd.read_csv(store.folder / "slowest.csv")) == ["name", "seconds"]


@pytest.mark.parametrize("changed", ["finished;cells;seconds\n2026;1;0,5\n", "a\n1,2\n1,2,3\n", ""])
def test_a_table_of_times_that_a_spreadsheet_has_saved_is_set_aside(tmp_path, changed):
    """Runs were added to columns of other names, or the sweep ended in an error of pandas."""
    results = Results(tmp_path)
    for _ in range(2):
        write_times(results, 1, 2, Counter(fit=1.5), Counter(load=0.2))
    assert len(pd.read_csv(tmp_path / "times.csv")) == 4
    (tmp_path / "times.csv").write_text(changed)
    write_times(results, 1, 2, Counter(fit=1.5), Counter(load=0.2))
    assert pd.read_csv(tmp_path / "times.csv")["stage"].tolist() == ["fit", "load"]
    assert (tmp_path / "stale" / "times.csv").read_text() == changed


def test_a_table_without_the_names_of_cells_is_an_error(tmp_path):
    (tmp_path / "prior.csv").write_text("sweep;name\ntoy;moons\n")
    with pytest.raises(ResultsError, match="prior.csv` is not as it was written: Usecols"):
        Results(tmp_path).names_in_table("prior.csv")
