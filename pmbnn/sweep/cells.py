"""The cells of an experiment: their data and names, fits of missing ones, their tables."""

import os
import platform
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pmbnn.core.machine import CPU, Device, device_text
from pmbnn.data import DatasetSpec
from pmbnn.experiment.cells import Cell, Experiment, cell_label
from pmbnn.experiment.cost import takes_all_cores
from pmbnn.experiment.load import DataSource, data_source, resolved_text
from pmbnn.experiment.plan import (
    RECORDED,
    content_digest,
    decisive_versions,
    identity,
    installed_versions,
    jobs,
    search_cells,
    width,
)
from pmbnn.experiment.plugins import check_reached, experiment_parts, metric_modules
from pmbnn.experiment.published import FILE as PUBLISHED
from pmbnn.experiment.published import read_published
from pmbnn.fitting.tasks import CellTask, JobTask
from pmbnn.fitting.workers import Event, Finished, Stored, run_jobs, turns
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.results.integrity import Problem, set_aside
from pmbnn.results.names import group_by_settings
from pmbnn.results.present import FILE as CELLS
from pmbnn.results.present import CellList, checkpoint_name, read_list
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.results.tables import metrics_table, ood_table, readable, summary_table

if TYPE_CHECKING:
    from pmbnn.sweep.cluster.coordinator import Cluster

TWICE = "the worker process was killed, and again with no other beside it: too little memory"


@dataclass(frozen=True)
class Run:
    """An experiment ready to be run: its results folder and every cell of the full plan.

    Attributes
    ----------
    tasks
        What a worker needs of each cell.
    search_cells
        Cells that learning rates are searched on, by the cells that search.
    sources
        Fingerprint, encoding and source of each data set.
    devices
        Devices that fits run on.
    """

    experiment: Experiment
    results: Results
    tasks: Mapping[Cell, CellTask]
    search_cells: Mapping[Cell, Cell]
    sources: Mapping[DatasetSpec, DataSource]
    devices: tuple[Device, ...] = (CPU,)

    @property
    def fingerprints(self) -> dict[DatasetSpec, str]:
        """Fingerprint of each data set."""
        return {spec: data.fingerprint for spec, data in self.sources.items()}

    def missing(self, cells: Sequence[Cell]) -> list[Cell]:
        """Cells that are not stored yet; where equal rows in two files make one cell, the first."""
        by_name = {self.tasks[cell].name: cell for cell in reversed(cells)}
        return [cell for name, cell in reversed(by_name.items()) if not self._is_settled(name)]

    def _is_settled(self, name: str) -> bool:
        # An exception may have had a passing cause, so such a cell is tried again, and another
        # machine may have more memory; a fit that diverged would diverge the same way.
        if not self.results.is_finished(name):
            return False
        return self.results.load_record(name).status not in ("error", "out_of_memory")

    def jobs(self, cells: Sequence[Cell]) -> list[JobTask]:
        """Jobs that fit some cells, as they are cut from the full plan."""
        return [
            JobTask(
                job.group,
                job.width,
                tuple(self.tasks[cell] for cell in job.wanted),
                self.tasks.get(self.search_cells.get(job.wanted[0])),
            )
            for job in jobs(list(self.tasks), cells, self.devices[0])
        ]


def prepare(experiment: Experiment, folder: Path, devices: tuple[Device, ...] = (CPU,)) -> Run:
    """Load every data set of an experiment and name every cell; nothing is written.

    Its data were checked: see `pmbnn.experiment.plan.wanted_cells`. Cells that are fitted on
    another kind of device than a processor have other names.

    Raises
    ------
    ConfigError
        If the table of published numbers is not as it must be, or worker processes lack a part.
    DataError
        If some data set is unavailable.
    """
    if experiment.published is not None:
        read_published(experiment.published, PUBLISHED)
    cells = experiment.cells
    sources = {spec: data_source(spec) for spec in dict.fromkeys(cell.dataset for cell in cells)}
    searched_on, versions = search_cells(cells), decisive_versions()
    with experiment_parts(experiment.plugins):
        check_reached(cells)
        tasks = {
            cell: _cell_task(cell, sources, versions, devices[0], searched_on.get(cell))
            for cell in cells
        }
    return Run(experiment, Results(folder), tasks, searched_on, sources, devices)


def _cell_task(
    cell: Cell,
    sources: Mapping[DatasetSpec, DataSource],
    versions: Mapping[str, str],
    device: Device,
    search_cell: Cell | None = None,
) -> CellTask:
    """The task of a cell, with its name."""
    data = sources[cell.dataset]
    search = search_cell and (search_cell, sources[search_cell.dataset].fingerprint)
    digest = identity(cell, data.fingerprint, versions, search, device)
    others = {"encoding": data.encoding, "modules": metric_modules(cell)}
    others |= device.decides(width(cell, device))
    return CellTask(cell, f"{cell_label(cell)}-{digest}", digest, data.fingerprint, **others)


def run_cells(
    run: Run, wanted: Sequence[Cell], workers: int, cluster: "Cluster | None" = None
) -> Iterator[tuple[JobTask, Event]]:
    """Fit the given cells, smaller networks first, yielding each event with its job.

    Those that fill a processor run on all its cores one after the other, the rest on `workers`
    processes of one thread each; on accelerators, a process for each. See `turns`. Or all on the
    workers of a cluster. A job whose process is killed, as by a system out of memory, is tried
    once more with no other beside it.
    """
    for batch, processes, single_threaded in turns(
        run.jobs(wanted), lambda job: takes_all_cores(job.cells[0].cell), workers, run.devices
    ):
        for job in (yield from _run(run, batch, processes, single_threaded, cluster)):
            again = run.jobs(run.missing([task.cell for task in job.cells]))
            for killed in (yield from _run(run, again, 1, single_threaded, cluster)):
                yield from _record_failure(run, killed, "out_of_memory", TWICE)


def _run(
    run: Run,
    batch: Sequence[JobTask],
    processes: int,
    single_threaded: bool,
    cluster: "Cluster | None",
) -> Generator[tuple[JobTask, Event], None, list[JobTask]]:
    """Run jobs; those whose process was killed are returned, other deaths are recorded."""
    plugins, killed = run.experiment.plugins, []
    if cluster is None:
        folder = run.results.folder
        events = run_jobs(batch, folder, processes, single_threaded, plugins, run.devices)
    else:
        events = cluster.run_jobs(batch, run.results, single_threaded, plugins)
    for event in events:
        job = batch[event.job]
        if isinstance(event, Finished) and event.killed:
            killed.append(job)
        elif isinstance(event, Finished) and event.died:
            yield from _record_failure(run, job, "error", event.died)
        yield job, event
    return killed


def _record_failure(
    run: Run, job: JobTask, status: str, reason: str
) -> Iterator[tuple[JobTask, Stored]]:
    """Record the cells that a dead worker had not stored as failed."""
    for task in job.cells:
        if run.missing([task.cell]):
            record = task.record(status=status, reason=reason)
            yield job, Stored(0, run.results.save_cell(record, {}))


def forget(run: Run, cells: Sequence[Cell]) -> None:
    """Remove what is stored of some cells, and the checkpoints of the jobs that fit them."""
    for cell in cells:
        run.results.remove(run.tasks[cell].name)
    for job in run.jobs(cells):
        run.results.remove_checkpoints(job.identity)


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
    fitted = before.cells.keys() - before.references
    references = dict.fromkeys([*before.references, *(n for n in sampled if n not in fitted)])
    with experiment_parts(run.experiment.plugins):
        kept = _references(run, [name for name in references if name not in planned])
    present = planned | {name: content_digest(task.cell) for name, task in kept.items()}
    started = [job for job in before.jobs if run.results.checkpoints(checkpoint_name(job)).is_dir()]
    begun = [tuple(task.name for task in job.cells) for job in run.jobs(run.missing(wanted))]
    jobs = dict.fromkeys([*started, *begun])
    return CellList(run.experiment.name, present, tuple(references), tuple(jobs))


def _references(run: Run, names: Sequence[str]) -> dict[str, CellTask]:
    """Tasks of the stored sampled cells whose posterior the plan fits, by name."""
    records = [run.results.load_record(n) for n in names if run.results.is_finished(n)]
    versions, stored = decisive_versions(), {record.name: record.cell for record in records}
    tasks: dict[str, CellTask] = {}
    for sampler in dict.fromkeys(record.cell.inference for record in records):
        if not isinstance(sampler, Sampling):  # of another version, as all its cells are then
            continue
        for cell in run.tasks:
            if not cell.is_sampled:
                sampled = replace(cell.posterior, inference=sampler)
                task = _cell_task(sampled, run.sources, versions, run.devices[0])
                # Of sweeps that share a posterior, that which the cell was sampled for.
                if task.name not in tasks or stored.get(task.name) == sampled:
                    tasks[task.name] = task
    return {record.name: tasks[record.name] for record in records if record.name in tasks}


def update_stored(run: Run, references: Sequence[str] = ()) -> list[Problem]:
    """Bring stored cells up to date in what is no part of their identity.

    Records take over the sweep, and the places of files, that their cells have in the plan: tables
    tell combinations apart by them. Cells of equal numbers under other names or in other units are
    set aside, as they would predict new rows wrong.

    Parameters
    ----------
    references
        Names of cells that `pmbnn check` sampled.

    Returns
    -------
    list of Problem
        Cells that were set aside.
    """
    # Of cells that share a name, the first.
    planned = {task.name: task for task in reversed(run.tasks.values())}
    problems = []
    with experiment_parts(run.experiment.plugins):
        sampled = _references(run, [name for name in references if name not in planned])
        for name, task in (planned | sampled).items():
            if not run.results.is_finished(name):
                continue
            record = run.results.load_record(name)
            if record.encoding not in ("", task.encoding):
                reason = "was fitted to data of other names or in other units"
                problems.append(Problem(run.results.cells / name, name, reason))
                set_aside(run.results, name)
            elif record.cell != task.cell:
                update = {"sweep": task.cell.sweep, "settings": task.cell.stored_settings}
                run.results.save_record(record.model_copy(update=update))
    return problems


def write_header(run: Run, cells: CellList | None = None) -> None:
    """Write the list of present cells, the resolved experiment, its plugins, and where it ran.

    The list is that of `list_cells` unless given.
    """
    results = run.results
    results.prepare()
    for source in run.experiment.plugins:
        for file, text in source.kept_files.items():
            results.write_file(file, lambda path, text=text: path.write_bytes(text))
    results.write_json(CELLS, (cells or list_cells(run)).content)
    results.write_text("experiment.yaml", resolved_text(run.experiment, results.folder))
    if run.experiment.published is None:
        results.remove_table(PUBLISHED)
    else:
        results.write_text(PUBLISHED, run.experiment.published)
    results.write_json("provenance.json", _provenance(run))


def write_tables(run: Run, records: Sequence[CellRecord]) -> None:
    """Write ``summary.csv``, ``ood.csv`` and ``metrics.csv``."""
    combinations = [group[0].cell for group in group_by_settings(records)]
    run.results.write_table("summary.csv", readable(summary_table(records), combinations))
    run.results.replace_table("ood.csv", ood_table(records))  # of classifiers of images
    cells = [record.cell for record in records]
    run.results.write_table("metrics.csv", readable(metrics_table(records), cells))


def _provenance(run: Run) -> dict:
    data = [
        {
            "dataset": spec.model_dump(mode="json"),
            "fingerprint": data.fingerprint,
            "source": data.source,
        }
        for spec, data in run.sources.items()
    ]
    overrides = list(run.experiment.overrides)
    return {
        "experiment": run.experiment.name,
        **({"overrides": overrides} if overrides else {}),
        "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "versions": {"python": platform.python_version()} | installed_versions(RECORDED),
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": os.cpu_count(),
            "device": device_text(run.devices),
        },
        "data": data,
        "seeds": {"inference": sorted({cell.inference.seed for cell in run.tasks})},
    }
