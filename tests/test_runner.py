"""Who runs which cells; which tables of a results folder are written, and when again."""

import csv
from types import SimpleNamespace

import pytest

from pmbnn.config import load_experiment
from pmbnn.runner import prepare, run_cells, tables_are_current, write_tables
from pmbnn.storage import Results


def record(name="a", **more):
    return {
        "sweep": "one",
        "name": name,
        "status": "converged",
        "reason": "",
        "settings": {"dataset": {"kind": "mnist", "seed": 0}},
        "results": {"accuracy": 0.5},
        "seconds": 1.0,
    } | more


def pictures(entropy=0.5):
    return {
        "rejection": {"accepted": 0.9},
        "test": {"pictures": 9, "entropy": 0.1},
        "unfamiliar": {"letters": {"pictures": 5, "entropy": entropy, "auroc_sd": 0.75}},
        "unavailable": {"fashion": "no network"},
    }


@pytest.fixture
def run(tmp_path):
    made = SimpleNamespace(results=Results(tmp_path))
    made.results.prepare()
    return made


def rows(run, file):
    with (run.results.folder / file).open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def files(run):
    return {path.name for path in run.results.folder.glob("*.csv")}


def test_pictures_have_a_table_of_their_own(run):
    write_tables(run, [record(pictures=pictures()), record("b")])
    assert files(run) == {"summary.csv", "metrics.csv", "unfamiliar.csv"}
    found = rows(run, "unfamiliar.csv")
    numbers = [[r[k] for k in ("name", "set", "entropy", "auroc_sd", "reason")] for r in found]
    assert numbers == [
        ["a", "test", "0.1", "", ""],
        ["a", "letters", "0.5", "0.75", ""],
        ["a", "fashion", "", "", "no network"],
    ]
    accepted = [r["rejection.accepted"] for r in rows(run, "metrics.csv")]
    assert accepted == ["0.9", ""]


def test_no_table_is_left_of_pictures_that_are_gone(run):
    write_tables(run, [record(pictures=pictures())])
    write_tables(run, [record()])
    assert files(run) == {"summary.csv", "metrics.csv"}


def draw(run):
    """What is there before the tables."""
    run.results.prepare()
    (run.results.figures / "overview.png").touch()
    (run.results.folder / "index.html").touch()


def test_tables_without_what_is_drawn_before_them_are_not_current(run):
    draw(run)
    write_tables(run, [record()])
    assert tables_are_current(run, [record()])
    for path in (run.results.figures / "overview.png", run.results.folder / "index.html"):
        draw(run)
        path.unlink()
        assert not tables_are_current(run, [record()])


def test_tables_that_hold_the_records_are_current(run):
    draw(run)
    records = [record(pictures=pictures())]
    assert not tables_are_current(run, records)
    write_tables(run, records)
    assert tables_are_current(run, records)
    # The same in metrics.csv.
    assert not tables_are_current(run, [record(pictures=pictures(0.6))])
    (run.results.folder / "unfamiliar.csv").unlink()
    assert not tables_are_current(run, records)
    write_tables(run, [record()])
    assert tables_are_current(run, [record()])


def test_the_table_that_says_all_are_there_is_written_last(run, monkeypatch):
    written, write = [], Results.write_table
    monkeypatch.setattr(
        Results, "write_table", lambda self, *given: (written.append(given[0]), write(self, *given))
    )
    write_tables(run, [record(pictures=pictures())])
    assert set(written) == {"summary.csv", "unfamiliar.csv", "metrics.csv"}
    assert written[-1] == "metrics.csv"


FOUR_SIZES = """
name: sizes
sweeps:
  - name: sizes
    dataset: {kind: mnist, source: embedded}
    network: {kind: dense, hidden: [[400, 400], [64, 64], [1], [200, 200]]}
    prior: normal
    hyperprior: half_normal
    inference: {steps: 10}
"""


def test_all_but_the_largest_networks_share_the_cores(tmp_path, monkeypatch):
    """On processes of one thread each; those that fill the machine come last, one by one."""
    import pmbnn.runner as runner

    started = []

    def run_jobs(tasks, folder, workers, single_threaded):
        hidden = {cell.cell.network.hidden for task in tasks for cell in task.cells}
        started.append((hidden, workers, single_threaded))
        return iter(())

    monkeypatch.setattr(runner, "run_jobs", run_jobs)
    (tmp_path / "sizes.yaml").write_text(FOUR_SIZES)
    run = prepare(load_experiment(tmp_path / "sizes.yaml"), tmp_path)
    assert list(run_cells(run, list(run.tasks), 3)) == []
    assert started == [({(64, 64), (1,), (200, 200)}, 3, True), ({(400, 400)}, 1, False)]
