"""Run an experiment: load its data, fit what is missing, write tables and figures."""

import os
import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pmbnn.config import Cell, Experiment, resolved_text
from pmbnn.datasets import DataError, DatasetSpec
from pmbnn.plan import Job, cell_label, identity, jobs, pilots, takes_all_cores
from pmbnn.storage import Results, json_writer
from pmbnn.tables import Record, metrics_row, summarise, unfamiliar_rows
from pmbnn.tasks import CellTask, JobTask
from pmbnn.workers import Event, Finished, Stored, run_jobs

DECISIVE = ("pmbnn", "pymc", "pytensor", "jax", "jaxlib", "optax", "numpy")
"""Packages whose versions can change the numbers of a cell."""

RECORDED = (*DECISIVE, "scipy", "scikit-learn", "mlxtend", "arviz", "xarray", "matplotlib")


@dataclass(frozen=True)
class Run:
    """An experiment ready to be run: its results folder and every cell of the full plan."""

    experiment: Experiment
    results: Results
    tasks: Mapping[Cell, CellTask]
    sources: Mapping[DatasetSpec, tuple[str, str]]

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Cells that are not stored yet."""
        return [c for c in cells if not self._is_settled(self.tasks[c].name)]

    def records(self) -> list[dict]:
        """Records of every stored cell of the plan, in its order."""
        names = [task.name for task in self.tasks.values()]
        return [self.results.load_metrics(n) for n in names if self.results.is_finished(n)]

    def _is_settled(self, name: str) -> bool:
        # An exception may have had a passing cause, so such a cell is tried again; a fit that
        # diverged would diverge the same way.
        return (
            self.results.is_finished(name) and self.results.load_metrics(name)["status"] != "error"
        )


def prepare(experiment: Experiment, folder: Path) -> Run:
    """Load every data set and name every cell; nothing is written.

    Raises
    ------
    DataError
        If some data set cannot be had; the message names its place in the file.
    """
    cells = [cell for sweep in experiment.sweeps for cell in sweep.cells]
    sources = {}
    for spec in dict.fromkeys(cell.dataset for cell in cells):
        sources[spec] = _load(spec)
    versions = {name: version(name) for name in DECISIVE}
    tasks, searched_on = {}, pilots(cells)
    for cell in cells:
        fingerprint, _ = sources[cell.dataset]
        pilot = searched_on.get(cell)
        digest = identity(cell, fingerprint, versions, pilot and (pilot, sources[pilot.dataset][0]))
        tasks[cell] = CellTask(cell, f"{cell_label(cell)}-{digest}", digest, fingerprint)
    return Run(experiment, Results(folder), tasks, sources)


def _load(spec: DatasetSpec) -> tuple[str, str]:
    """Fingerprint and source of a data set."""
    try:
        dataset = spec.load()
    except DataError as error:
        raise DataError(f"Data set `{spec.kind}`: {error}") from error
    return dataset.fingerprint, dataset.source


def run_cells(run: Run, wanted: Sequence[Cell], workers: int) -> Iterator[tuple[Job, Event]]:
    """Fit the given cells, smaller networks first, yielding what happens.

    They run on `workers` processes of one thread each; those that fill the machine one after
    the other on all cores. Which of the two is decided by the cell alone, for the number of
    threads can change the last digits of its results.
    """
    cut = jobs(list(run.tasks), wanted)
    for alone in (False, True):
        batch = [job for job in cut if takes_all_cores(_first(job)) == alone]
        tasks = [_task(run, job) for job in batch]
        processes = 1 if alone else workers
        for event in run_jobs(tasks, run.results.folder, processes, not alone):
            if isinstance(event, Finished) and event.died:
                yield from ((batch[event.job], e) for e in _bury(run, tasks, event))
            yield batch[event.job], event


def forget(run: Run, cells: Sequence[Cell]) -> None:
    """Remove what is stored of some cells, and the checkpoints of the jobs that fit them."""
    for cell in cells:
        run.results.remove(run.tasks[cell].name)
    for job in jobs(list(run.tasks), cells):
        run.results.remove_checkpoints(_task(run, job).identity)


def _first(job: Job) -> Cell:
    return next(cell for cell in job.cells if cell is not None)


def _task(run: Run, job: Job) -> JobTask:
    pilot = pilots(list(run.tasks)).get(_first(job))
    tasks = tuple(run.tasks[c] for c in job.cells if c is not None)
    return JobTask(job.group, job.width, tasks, pilot and run.tasks[pilot])


def _bury(run: Run, tasks: Sequence[JobTask], event: Finished) -> Iterator[Stored]:
    """Record the cells that a dead worker had not stored as failed."""
    for task in tasks[event.job].cells:
        if not run.missing([task.cell]):
            continue
        record = task.record() | {"status": "error", "reason": event.died}
        run.results.save_cell(task.name, {"metrics.json": json_writer(record)})
        yield Stored(event.job, record)


def write_header(run: Run) -> None:
    """Write the resolved experiment and where its numbers come from."""
    run.results.prepare()
    run.results.write_text("experiment.yaml", resolved_text(run.experiment))
    run.results.write_json("provenance.json", _provenance(run))


def write_tables(run: Run, records: Sequence[Record]) -> None:
    """Write ``summary.csv``, ``unfamiliar.csv`` and, last of all, ``metrics.csv``."""
    run.results.write_table("summary.csv", summarise(records))
    unfamiliar = _unfamiliar(records)
    if unfamiliar:
        run.results.write_table("unfamiliar.csv", unfamiliar)
    else:
        run.results.remove_table("unfamiliar.csv")
    run.results.write_table("metrics.csv", map(metrics_row, records))


def tables_are_current(run: Run, records: Sequence[Record]) -> bool:
    """Whether the tables, and what is written before them, are those of the given records."""
    unfamiliar = _unfamiliar(records)
    return (
        run.results.holds_table("metrics.csv", map(metrics_row, records))
        and (not unfamiliar or run.results.holds_table("unfamiliar.csv", unfamiliar))
        and any(run.results.figures.iterdir())
        and (run.results.folder / "index.html").is_file()
    )


def _unfamiliar(records: Sequence[Record]) -> list[dict]:
    """Rows of ``unfamiliar.csv``; there is none without classifiers of pictures."""
    return [row for record in records for row in unfamiliar_rows(record)]


def _provenance(run: Run) -> dict:
    data = [
        {"dataset": spec.model_dump(mode="json"), "fingerprint": fingerprint, "source": source}
        for spec, (fingerprint, source) in run.sources.items()
    ]
    seeds = sorted({cell.inference.seed for cell in run.tasks})
    return {
        "experiment": run.experiment.name,
        "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": {"python": platform.python_version()} | {n: version(n) for n in RECORDED},
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
        },
        "data": data,
        "seeds": {"inference": seeds},
    }
