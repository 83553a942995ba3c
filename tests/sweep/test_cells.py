"""Who runs which cells; which tables of a results folder are written, and when again."""

import csv
import json
from types import SimpleNamespace

import pytest

from pmbnn.core.machine import CPU, Device
from pmbnn.experiment.load import load_experiment
from pmbnn.fitting.workers import ENDED_BY, Finished, Stored
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.sweep.cells import prepare, run_cells, write_header, write_tables


def record(name="a", images=None):
    return CellRecord(
        sweep="one",
        name=name,
        status="converged",
        settings={"dataset": {"kind": "mnist", "seed": 0}},
        results={"accuracy": 0.5},
        images=images,
    )


def images(entropy=0.5):
    return {
        "rejection": {"accepted": 0.9},
        "test": {"size": 9, "entropy": 0.1},
        "ood": {"letters": {"size": 5, "entropy": entropy, "auroc_sd": 0.75}},
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


def test_images_have_a_table_of_their_own(run):
    write_tables(run, [record(images=images()), record("b")])
    assert files(run) == {"summary.csv", "metrics.csv", "ood.csv"}
    found = rows(run, "ood.csv")
    numbers = [[r[k] for k in ("name", "set", "entropy", "auroc_sd", "reason")] for r in found]
    assert numbers == [
        ["a", "test", "0.1", "", ""],
        ["a", "letters", "0.5", "0.75", ""],
        ["a", "fashion", "", "", "no network"],
    ]
    accepted = [r["rejection.accepted"] for r in rows(run, "metrics.csv")]
    assert accepted == ["0.9", ""]


def test_no_table_is_left_of_images_that_are_gone(run):
    write_tables(run, [record(images=images())])
    write_tables(run, [record()])
    assert files(run) == {"summary.csv", "metrics.csv"}


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


SEARCHED = """
name: searched
sweeps:
  - name: searched
    dataset: {kind: moons, noise: 0.4, train: 20, test: 10, seed: [0, 1, 2, 3]}
    network: {kind: dense, hidden: [[2], [3]]}
    prior: normal
    inference: {steps: 10, restarts: 16, learning_rate: {tune: {log: [0.01, 0.1, 2]}}}
"""


def test_search_cells_are_found_once_for_all_jobs(tmp_path, monkeypatch):
    """Each job of a group knows the group's first cell, even where that is not wanted."""
    import pmbnn.sweep.cells as runner

    (tmp_path / "searched.yaml").write_text(SEARCHED)
    run = prepare(load_experiment(tmp_path / "searched.yaml"), tmp_path)
    monkeypatch.setattr(
        runner, "search_cells", lambda cells: pytest.fail("looked for search cells again")
    )
    handed = []
    monkeypatch.setattr(runner, "run_jobs", lambda tasks, *_: iter(handed.extend(tasks) or ()))
    assert list(run_cells(run, list(run.tasks)[2:], 1)) == []
    assert [len(task.cells) for task in handed] == [1] * 6
    first = {cell.network: cell for cell in reversed(run.tasks)}
    assert all(t.search_cell == run.tasks[first[t.cells[0].cell.network]] for t in handed)


def test_all_but_the_largest_networks_share_the_cores(tmp_path, monkeypatch):
    """On processes of one thread each; those that fill the machine come last, one by one."""
    import pmbnn.sweep.cells as runner

    started = []

    def run_jobs(tasks, folder, workers, single_threaded, plugins, devices):
        hidden = {cell.cell.network.hidden for task in tasks for cell in task.cells}
        started.append((hidden, workers, single_threaded))
        return iter(())

    monkeypatch.setattr(runner, "run_jobs", run_jobs)
    (tmp_path / "sizes.yaml").write_text(FOUR_SIZES)
    run = prepare(load_experiment(tmp_path / "sizes.yaml"), tmp_path)
    assert list(run_cells(run, list(run.tasks), 3)) == []
    assert started == [({(64, 64), (1,), (200, 200)}, 3, True), ({(400, 400)}, 1, False)]


@pytest.mark.parametrize(("workers", "processes"), [(1, 1), (2, 2), (16, 2)])
def test_accelerators_have_a_process_each(tmp_path, monkeypatch, workers, processes):
    """Whatever the cores: for large networks too, which come last."""
    import pmbnn.sweep.cells as runner

    started = []

    def run_jobs(tasks, folder, *given):
        hidden = [task.cells[0].cell.network.hidden for task in tasks]
        started.append((hidden[-1], len(hidden), given))
        return iter(())

    monkeypatch.setattr(runner, "run_jobs", run_jobs)
    (tmp_path / "sizes.yaml").write_text(FOUR_SIZES)
    two = (Device("gpu", 0), Device("gpu", 1))
    run = prepare(load_experiment(tmp_path / "sizes.yaml"), tmp_path, two)
    assert list(run_cells(run, list(run.tasks), workers)) == []
    assert started == [((400, 400), 4, (processes, False, (), two))]


def test_cells_of_another_device_have_names_and_records_of_their_own(tmp_path):
    (tmp_path / "searched.yaml").write_text(SEARCHED)
    experiment = load_experiment(tmp_path / "searched.yaml")
    on_cpu, on_gpu = (
        prepare(experiment, tmp_path, devices) for devices in ((CPU,), (Device("gpu", 0, "A"),))
    )
    names = [{task.name for task in run.tasks.values()} for run in (on_cpu, on_gpu)]
    assert not names[0] & names[1]
    for run, told in ((on_cpu, ("cpu", None)), (on_gpu, ("gpu", 256))):
        task = next(iter(run.tasks.values()))
        kept = CellRecord.from_json(task.record(status="converged").to_json())
        assert (kept.device, kept.width) == told
    write_header(on_gpu)
    machine = json.loads((tmp_path / "provenance.json").read_text())["machine"]
    assert machine["device"] == "gpu, 1 × A"


def test_fits_on_two_devices_are_no_seeds_of_each_other(run):
    one = record()
    write_tables(run, [one, one.model_copy(update={"name": "b", "device": "gpu"})])
    assert [(r["cells"], r["device"]) for r in rows(run, "summary.csv")] == [
        ("1", ""),
        ("1", "gpu"),
    ]
    assert [r["device"] for r in rows(run, "metrics.csv")] == ["", "gpu"]


# Killed workers


@pytest.fixture
def scripted(tmp_path, monkeypatch):
    """What becomes of the sizes of `FOUR_SIZES`, whose workers end as a test says.

    Ends are those of a job's first try, its second, and so on; None is a good one.
    """
    import pmbnn.sweep.cells as runner

    (tmp_path / "sizes.yaml").write_text(FOUR_SIZES)
    run = prepare(load_experiment(tmp_path / "sizes.yaml"), tmp_path)
    run.results.prepare()
    tries = []

    def follow(ends):
        def run_jobs(tasks, folder, workers, *_):
            for number, task in enumerate(tasks):
                (cell,) = task.cells
                tries.append((cell.cell.network.hidden, workers, len(tasks)))
                died = ends.get(cell.cell.network.hidden, [None]).pop(0)
                if died is None:
                    record = run.results.save_cell(cell.record(status="converged"), {})
                    yield Stored(number, record)
                yield Finished(number, died)

        monkeypatch.setattr(runner, "run_jobs", run_jobs)
        found = list(run_cells(run, list(run.tasks), 2))
        stored = map(run.results.load_record, run.results.cell_names())
        records = {r.settings["network"]["hidden"][0]: r for r in stored}
        return found, records, tries

    follow.run = run
    return follow


KILLED = ENDED_BY.format("SIGKILL")


def test_a_killed_job_is_tried_once_more_alone(scripted):
    found, records, tries = scripted({(64, 64): [KILLED, None]})
    assert tries[:4] == [((64, 64), 2, 3), ((1,), 2, 3), ((200, 200), 2, 3), ((64, 64), 1, 1)]
    assert {record.status for record in records.values()} == {"converged"}
    assert sum(isinstance(event, Finished) and event.killed for _, event in found) == 1


def test_a_job_that_is_killed_twice_is_out_of_memory(scripted):
    found, records, tries = scripted({(1,): [KILLED, KILLED], (200, 200): [KILLED, "exit 3"]})
    assert {size: record.status for size, record in records.items()} == {
        64: "converged",
        1: "out_of_memory",
        200: "error",
        400: "converged",
    }
    assert "again with no other beside it: too little memory" in records[1].reason
    assert records[200].reason == "exit 3"
    assert records[1].failed
    assert CellRecord.from_json(records[1].to_json()) == records[1]
    assert len(tries) == 6
    lost = [event.record.name for job, event in found if isinstance(event, Stored)]
    assert len(lost) == len(set(lost)) == 4


def test_a_cell_that_was_out_of_memory_is_tried_by_the_next_command(scripted):
    scripted({(1,): [KILLED, KILLED]})
    missing = scripted.run.missing(list(scripted.run.tasks))
    assert [cell.network.hidden for cell in missing] == [(1,)]


def test_other_deaths_are_failures_at_once(scripted):
    _, records, tries = scripted({(1,): [ENDED_BY.format("SIGSEGV")]})
    assert (records[1].status, records[1].reason) == ("error", ENDED_BY.format("SIGSEGV"))
    assert len(tries) == 4
