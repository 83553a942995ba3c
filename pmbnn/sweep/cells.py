"""The cells of an experiment: their data and names, fits of what is missing, their tables."""

import os
import platform
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from pmbnn.core.machine import CPU, Device, device_text
from pmbnn.data import DatasetSpec
from pmbnn.experiment.cells import Cell, Experiment
from pmbnn.experiment.load import check_data, data_source, resolved_text
from pmbnn.experiment.plan import (
    Job,
    cell_label,
    content_digest,
    identity,
    jobs,
    search_cells,
    takes_all_cores,
    width,
)
from pmbnn.experiment.plugins import experiment_parts
from pmbnn.experiment.published import FILE as PUBLISHED
from pmbnn.experiment.published import read_published
from pmbnn.experiment.versions import RECORDED, decisive_versions
from pmbnn.fitting.tasks import CellTask, JobTask
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.processes.workers import Event, Finished, Stored, run_jobs, turns
from pmbnn.results.present import FILE as CELLS
from pmbnn.results.present import CellList, checkpoint_name, read_list
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.results.tables import metrics_table, ood_table, summary_table

if TYPE_CHECKING:
    from pmbnn.sweep.cluster.coordinator import Cluster

TWICE = "the worker process was killed, and again with no other beside it: too little memory"


@dataclass(frozen=True)
class Run:
    """An experiment ready to be run: its results folder and every cell of the full plan.

    ``search_cells`` are those that learning rates are searched on, by the cells that search;
    ``devices`` what fits run on.
    """

    experiment: Experiment
    results: Results
    tasks: Mapping[Cell, CellTask]
    search_cells: Mapping[Cell, Cell]
    sources: Mapping[DatasetSpec, tuple[str, str]]
    devices: tuple[Device, ...] = (CPU,)

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Cells that are not stored yet; one of those that the same rows in two files make."""
        named = {self.tasks[cell].name: cell for cell in reversed(cells)}
        return [cell for name, cell in reversed(named.items()) if not self._is_settled(name)]

    def _is_settled(self, name: str) -> bool:
        # An exception may have had a passing cause, so such a cell is tried again, and another
        # machine may have more memory; a fit that diverged would diverge the same way.
        if not self.results.is_finished(name):
            return False
        return self.results.load_record(name).status not in ("error", "out_of_memory")


def prepare(experiment: Experiment, folder: Path, devices: tuple[Device, ...] = (CPU,)) -> Run:
    """Check the data, load every data set and name every cell; nothing is written.

    Cells that are fitted on another kind of device than a processor have names of their own.

    Raises
    ------
    ConfigError
        If the table of published numbers is not as it must be, or the experiment does not fit its
        data.
    DataError
        If some data set is unavailable; the message names its place in the file.
    """
    if experiment.published is not None:
        read_published(experiment.published, PUBLISHED)
    check_data(experiment)
    cells = [cell for sweep in experiment.sweeps for cell in sweep.cells]
    sources = {}
    for spec in dict.fromkeys(cell.dataset for cell in cells):
        sources[spec] = data_source(spec)
    searched_on = search_cells(cells)
    versions = decisive_versions()
    with experiment_parts(experiment.plugins):
        tasks = {
            cell: _cell_task(cell, sources, versions, devices[0], searched_on.get(cell))
            for cell in cells
        }
    return Run(experiment, Results(folder), tasks, searched_on, sources, devices)


def _cell_task(
    cell: Cell,
    sources: Mapping[DatasetSpec, tuple[str, str]],
    versions: Mapping[str, str],
    device: Device,
    search_cell: Cell | None = None,
) -> CellTask:
    """What a worker is handed of a cell, with its name."""
    fingerprint, _ = sources[cell.dataset]
    search = search_cell and (search_cell, sources[search_cell.dataset][0])
    digest = identity(cell, fingerprint, versions, search, device)
    own = device.decides(width(cell, device))
    return CellTask(cell, f"{cell_label(cell)}-{digest}", digest, fingerprint, **own)


def run_cells(
    run: Run, wanted: Sequence[Cell], workers: int, cluster: "Cluster | None" = None
) -> Iterator[tuple[Job, Event]]:
    """Fit the given cells, smaller networks first, yielding what happens.

    Those that fill a processor run on all its cores one after the other, the rest on `workers`
    processes of one thread each; on accelerators, a process for each. See `turns`. Or all on the
    workers of a cluster. A job whose process is killed, as by a system out of memory, is tried
    once more with no other beside it.
    """
    cut = jobs(list(run.tasks), wanted, run.devices[0])
    for batch, processes, single_threaded in turns(
        cut, lambda job: takes_all_cores(_first(job)), workers, run.devices
    ):
        killed = []
        for job, event in _run(run, batch, processes, single_threaded, cluster):
            if isinstance(event, Finished) and event.killed:
                killed.append(job)
            elif isinstance(event, Finished) and event.died:
                yield from ((job, e) for e in _record_failure(run, job, "error", event.died))
            yield job, event
        for job in killed:
            yield from _try_alone(run, job, single_threaded, cluster)


def _run(
    run: Run,
    batch: Sequence[Job],
    processes: int,
    single_threaded: bool,
    cluster: "Cluster | None",
) -> Iterator[tuple[Job, Event]]:
    tasks, plugins = [_task(run, job) for job in batch], run.experiment.plugins
    if cluster is None:
        folder = run.results.folder
        events = run_jobs(tasks, folder, processes, single_threaded, plugins, run.devices)
    else:
        events = cluster.run_jobs(tasks, run.results, single_threaded, plugins)
    for event in events:
        yield batch[event.job], event


def _try_alone(
    run: Run, job: Job, single_threaded: bool, cluster: "Cluster | None"
) -> Iterator[tuple[Job, Event]]:
    """Fit what a job whose worker was killed had not stored, with no other worker beside it."""
    for again in jobs(list(run.tasks), run.missing(job.wanted), run.devices[0]):
        for _, event in _run(run, [again], 1, single_threaded, cluster):
            if isinstance(event, Finished) and event.died:
                status, reason = ("out_of_memory", TWICE) if event.killed else ("error", event.died)
                yield from ((again, e) for e in _record_failure(run, again, status, reason))
            yield again, event


def forget(run: Run, cells: Sequence[Cell]) -> None:
    """Remove what is stored of some cells, and the checkpoints of the jobs that fit them."""
    for cell in cells:
        run.results.remove(run.tasks[cell].name)
    for job in _job_tasks(run, cells):
        run.results.remove_checkpoints(job.identity)


def _job_tasks(run: Run, wanted: Sequence[Cell]) -> list[JobTask]:
    """Jobs that fit some cells."""
    return [_task(run, job) for job in jobs(list(run.tasks), wanted, run.devices[0])]


def _first(job: Job) -> Cell:
    return next(cell for cell in job.cells if cell is not None)


def _task(run: Run, job: Job) -> JobTask:
    search_cell = run.search_cells.get(_first(job))
    tasks = tuple(run.tasks[c] for c in job.cells if c is not None)
    return JobTask(job.group, job.width, tasks, search_cell and run.tasks[search_cell])


def _record_failure(run: Run, job: Job, status: str, reason: str) -> Iterator[Stored]:
    """Record the cells that a dead worker had not stored as failed."""
    for task in _task(run, job).cells:
        if run.missing([task.cell]):
            record = task.record(status=status, reason=reason)
            yield Stored(0, run.results.save_cell(record, {}))


def list_cells(run: Run, wanted: Sequence[Cell] = (), sampled: Iterable[str] = ()) -> CellList:
    """The present cells of a results folder, once this run writes there.

    They are the cells of the plan; and those that `pmbnn check` sampled before, where the plan has
    a fit of the same posterior: of the same rows, plugins and settings but for how it is fitted.

    Parameters
    ----------
    wanted
        Cells that are to be fitted now, as far as they are missing.
    sampled
        Names of cells that `pmbnn check` samples now.
    """
    before = read_list(run.results.folder) or CellList("", {})
    planned = {task.name: content_digest(cell) for cell, task in run.tasks.items()}
    known = set(before.cells).difference(before.references)
    references = dict.fromkeys([*before.references, *(n for n in sampled if n not in known)])
    with experiment_parts(run.experiment.plugins):
        present = planned | _references(run, [name for name in references if name not in planned])
    begun = [tuple(t.name for t in job.cells) for job in _job_tasks(run, run.missing(wanted))]
    started = [job for job in before.jobs if run.results.checkpoints(checkpoint_name(job)).is_dir()]
    jobs = dict.fromkeys([*started, *begun])
    return CellList(run.experiment.name, present, tuple(references), tuple(jobs))


def _references(run: Run, names: Sequence[str]) -> dict[str, str]:
    """Those of some stored sampled cells that the plan has fits of the posterior of."""
    records = [run.results.load_record(n) for n in names if run.results.is_finished(n)]
    samplers = dict.fromkeys(record.cell.inference for record in records)
    versions, found = decisive_versions(), {}
    for sampler in samplers:
        if not isinstance(sampler, Sampling):  # of another version, as all its cells are then
            continue
        for cell in run.tasks:
            if not cell.is_sampled:
                predict = cell.predict.model_copy(update={"mixture": "best"})
                one = replace(cell, inference=sampler, predict=predict)
                task = _cell_task(one, run.sources, versions, run.devices[0])
                found[task.name] = content_digest(one)
    return {record.name: found[record.name] for record in records if record.name in found}


def write_list(run: Run, cells: CellList) -> None:
    """Write the list of present cells."""
    run.results.write_json(CELLS, cells.content)


def write_header(run: Run, cells: CellList | None = None) -> None:
    """Write the list of present cells, the resolved experiment, its plugins, and where it ran.

    The list is that of `list_cells` unless given.
    """
    run.results.prepare()
    for source in run.experiment.plugins:
        for file, text in source.kept_files.items():
            run.results.write_file(file, lambda path, text=text: path.write_bytes(text))
    write_list(run, cells or list_cells(run))
    run.results.write_text("experiment.yaml", resolved_text(run.experiment, run.results.folder))
    if run.experiment.published is None:
        run.results.remove_table(PUBLISHED)
    else:
        run.results.write_text(PUBLISHED, run.experiment.published)
    run.results.write_json("provenance.json", _provenance(run))


def write_tables(run: Run, records: Sequence[CellRecord]) -> None:
    """Write ``summary.csv``, ``ood.csv`` and ``metrics.csv``."""
    run.results.write_table("summary.csv", summary_table(records))
    run.results.replace_table("ood.csv", ood_table(records))  # of classifiers of images
    run.results.write_table("metrics.csv", metrics_table(records))


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
            "device": device_text(run.devices),
        },
        "data": data,
        "seeds": {"inference": seeds},
    }
