"""A sweep from its experiment to its tables: what the command does, and `pmbnn.run`."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pmbnn.calibration.run import keep_present_ranks
from pmbnn.compare.agreement import write_agreement
from pmbnn.compare.sensitivity import write_sensitivity
from pmbnn.core.machine import (
    CPU,
    Device,
    cores,
    device_text,
    find_devices,
    processes,
    slowness,
    total_memory,
)
from pmbnn.core.stages import measured, stage
from pmbnn.data.synthetic import GENERATED
from pmbnn.experiment.cells import Cell, Experiment
from pmbnn.experiment.cost import memory_line, most_memory, too_large_lines
from pmbnn.experiment.expand import name_of
from pmbnn.experiment.load import check_data, load_experiment
from pmbnn.experiment.plan import cell_work, job_label
from pmbnn.experiment.selection import default_folder, in_shard, read_shard, select_cells
from pmbnn.figures import (
    CellDrawer,
    draw_files,
    missing_cell_figures,
    outdated_overviews,
    overviews_of,
)
from pmbnn.prior_predictive.figure import outdated_priors
from pmbnn.prior_predictive.run import keep_present_priors
from pmbnn.processes.helpers import Helpers
from pmbnn.processes.workers import Progressed, Stored
from pmbnn.report.index_page import index_page
from pmbnn.results.derived import (
    INDEX,
    STALE,
    TABLES,
    cells_digest,
    note_files,
    set_aside_stale,
    stale_line,
)
from pmbnn.results.faults import named_faults
from pmbnn.results.groups import invalid_chains, other_scales
from pmbnn.results.integrity import set_aside_broken
from pmbnn.results.loading import ExperimentResults, load_results
from pmbnn.results.present import (
    left_behind,
    left_behind_line,
    present_records,
    read_list,
    superseded_line,
    superseded_names,
)
from pmbnn.results.record import CellRecord
from pmbnn.results.store import writing
from pmbnn.sweep.cells import (
    Run,
    forget,
    list_cells,
    prepare,
    run_cells,
    write_header,
    write_list,
    write_tables,
)
from pmbnn.sweep.in_memory import experiment_in_memory
from pmbnn.sweep.outputs import make_outputs
from pmbnn.sweep.progress import Display, following, shares, write_times

if TYPE_CHECKING:
    from distributed import Client

    from pmbnn.sweep.cluster.coordinator import Cluster


@dataclass(frozen=True)
class Outcome:
    """What a sweep has come to.

    Attributes
    ----------
    folder
        The results folder.
    records
        Every stored cell of the experiment, whether it was asked for or not.
    failed
        Those without a fit that were asked for.
    """

    folder: Path
    records: tuple[CellRecord, ...]
    failed: tuple[CellRecord, ...]


@named_faults()
def run(
    experiment: Path | str | Experiment | Mapping[str, Any],
    *,
    out: Path | str | None = None,
    only: Sequence[str] = (),
    workers: int | None = None,
    fresh: bool = False,
    wait: bool = False,
    quiet: bool = False,
    device: str = "auto",
    shard: tuple[int, int] | None = None,
    client: "Client | None" = None,
    shared_folder: bool = False,
) -> ExperimentResults:
    """Results of an experiment, fitted as far as they were missing: what the command does.

    It runs from a notebook, and from a script that need not ask for its name. A cell whose fit
    fails is recorded with its reason and does not stop the others.

    Parameters
    ----------
    experiment
        An experiment file, one that was loaded, or a mapping of what a file would say. In a
        mapping, names may be objects (``pb.Laplace()``), and data sets may be those of
        `Dataset.from_arrays` and `from_frame`: the results folder keeps their rows.
    out
        Results folder; ``results/<experiment>`` unless given.
    only
        Cells to fit, as ``["prior=laplace", "dataset.seed=0"]``; all unless given.
    workers
        Processes for all but the largest networks; one for each core unless given.
    fresh
        Whether to fit again what is stored already.
    wait
        Whether to wait where another process writes the same folder.
    quiet
        Whether to suppress progress output.
    device
        What fits run on: ``cpu``, ``gpu``, or GPUs where JAX finds some.
    shard
        ``(3, 8)``: the third of eight fixed parts of the experiment alone, in a folder of its
        own unless `out` says otherwise; ``pmbnn merge`` joins them.
    client
        Of a Dask cluster (``dask.distributed.Client``), whose workers fit the cells then, on their
        processors; processes of this machine unless given.
    shared_folder
        Whether those workers see the results folder under the path that it has here, and write
        cells and checkpoints there themselves.

    Raises
    ------
    ConfigError, DataError, DeviceError
        If the experiment, its data or the device are not as they must be; nothing was fitted.
    ClusterError
        If the cluster cannot be used, or its scheduler does not answer any more.
    FolderBusyError
        If another process writes the folder, and `wait` is false.
    StorageError
        If the system stands in the way: a full disk, missing rights. What is finished by then is
        stored, and the same call goes on from there.
    """
    folder = None if out is None else Path(out)
    part = None if shard is None else read_shard(shard, "shard")
    if isinstance(experiment, Mapping):
        folder = folder or default_folder(name_of(experiment), part)
        experiment = experiment_in_memory(experiment, folder, wait)
    elif not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment)
    check_data(experiment)
    cluster = None
    if client is not None:
        from pmbnn.sweep.cluster.coordinator import cluster_of, device_of_workers

        cluster, device = cluster_of(client, shared_folder), device_of_workers(device)
    console, devices = Console(stderr=True, quiet=quiet), find_devices(device)
    wanted = in_shard(experiment, select_cells(list(experiment.cells), list(only)), part, devices)
    folder = folder or default_folder(experiment.name, part)
    run_experiment(
        experiment, wanted, folder, console, workers, fresh, wait, quiet, devices, cluster
    )
    return load_results(folder)


def run_experiment(
    experiment: Experiment,
    wanted: Sequence[Cell],
    folder: Path,
    console: Console,
    workers: int | None = None,
    fresh: bool = False,
    wait: bool = False,
    quiet: bool = False,
    devices: tuple[Device, ...] = (CPU,),
    cluster: "Cluster | None" = None,
    references: Sequence[Cell] = (),
) -> Outcome:
    """Fit the wanted cells that are missing, and draw and write what follows from them.

    Parameters are as those of `run`; progress goes to the console. `references` are those of the
    wanted cells that `pmbnn check` samples.
    """
    workers = workers or cores()
    fitting = processes(workers, devices)
    with measured() as of_command:
        with following(console, quiet), stage("load"):
            one = prepare(experiment, folder, devices)
        with writing(folder, wait):
            # A folder of another format is rejected here, before anything in it is changed.
            for problem in set_aside_broken(one.results, _to_check(one)):
                _say(console, f"set aside, to be fitted again: {problem}")
            if fresh:
                forget(one, wanted)
            cells = list_cells(one, wanted, [one.tasks[cell].name for cell in references])
            gone = left_behind(folder, cells.cells)
            if gone:
                _say(console, left_behind_line(folder, len(gone)))
            write_header(one, cells)
            if gone:
                # Also if this run does not come to its end.
                _set_aside(console, one, present_records(one.results))
            missing = one.missing(wanted)
            if not quiet:
                _announce(console, one, wanted, missing, None if cluster else fitting)
            with (
                CellDrawer(one.results) as drawer,
                stage("workers"),
                _working(cluster if missing else None, folder, console),
            ):
                fitting = cluster.threads if cluster else fitting
                of_workers = _fit_missing(
                    console, one, missing, workers, fitting, quiet, drawer, cluster
                )
            if not one.missing(list(one.tasks)):
                # Of jobs that were stopped and fitted otherwise since.
                one.results.remove_checkpoints()
            write_list(one, list_cells(one))  # without the jobs that left no checkpoints
            records = present_records(one.results)
            with following(console, quiet):
                write_what_follows(console, one, records, workers)
            if missing:
                write_times(one.results, len(missing), fitting, of_workers, of_command)
            if missing and not quiet:
                console.print(f"time of workers: {shares(of_workers)}", highlight=False)
    names = {one.tasks[cell].name for cell in wanted}
    failed = tuple(record for record in records if record.name in names and record.failed)
    return Outcome(folder, tuple(records), failed)


def _to_check(one: Run) -> list[str] | None:
    """Names of the cells whose files must be whole; None, all, where none are listed yet."""
    before = read_list(one.results.folder)
    planned = [task.name for task in one.tasks.values()]
    return None if before is None else [*planned, *before.references]


def _say(console: Console, line: str) -> None:
    """Print a line as it is."""
    console.print(line, soft_wrap=True, highlight=False, markup=False)


def _announce(
    console: Console,
    one: Run,
    wanted: Sequence[Cell],
    missing: Sequence[Cell],
    fitting: int | None,
) -> None:
    """Say what there is to do, and whether so many processes here have memory for it."""
    for sweep in one.experiment.sweeps:
        for left_out in sweep.left_out:
            console.print(f"{sweep.name}: {left_out}", highlight=False, markup=False)
    told = (
        f"data set {s.kind}: source {source}"
        for s, (_, source) in one.sources.items()
        if source not in ("scikit-learn", GENERATED)
    )
    for line in dict.fromkeys(told):
        console.print(line, highlight=False)
    if one.devices[0].is_accelerator:
        console.print(f"device {device_text(one.devices)}", highlight=False, markup=False)
    stored = len(wanted) - len(missing)
    console.print(f"{len(wanted)} cells, {stored} stored already, {len(missing)} to fit")
    if fitting and missing and most_memory(missing, fitting) > (total_memory() or math.inf):
        for line in (memory_line(missing, fitting), *too_large_lines(missing)):
            console.print(line, soft_wrap=True, highlight=False, markup=False)


@contextmanager
def _working(cluster: "Cluster | None", folder: Path, console: Console) -> Iterator[None]:
    """Have the workers of a cluster ready, if there is one."""
    if cluster is None:
        yield
        return
    try:
        cluster.begin(
            folder,
            lambda line: console.print(line, soft_wrap=True, highlight=False, markup=False),
        )
        yield
    finally:
        cluster.end()


def _fit_missing(
    console: Console,
    one: Run,
    missing: Sequence[Cell],
    workers: int,
    fitting: int,
    quiet: bool,
    drawer: CellDrawer,
    cluster: "Cluster | None",
) -> Counter[str]:
    """Fit cells in so many processes, having figures of those that are stored drawn beside it.

    Returns
    -------
    Counter
        Seconds of all workers together by stages.
    """
    seconds: Counter[str] = Counter()
    pace = slowness() / fitting
    work = {one.tasks[cell].name: pace * cell_work(cell).seconds for cell in missing}
    with Display(console, work, quiet) as display:
        for job, event in run_cells(one, missing, workers, cluster):
            if isinstance(event, Progressed):
                display.running_job(job_label(job), event.stages)
            elif isinstance(event, Stored):
                display.stored(event.record)
                drawer.add(event.record)
            else:
                seconds.update(event.seconds)
                if event.killed:
                    words = f"{job_label(job)}: {event.died}, as by a system out of memory"
                    console.print(words, soft_wrap=True, highlight=False, markup=False)
                display.finished_job(job_label(job))
    return seconds


def write_what_follows(
    console: Console, one: Run, records: Sequence[CellRecord], workers: int
) -> None:
    """Write tables, draw what is missing or stale, and write the page of it all.

    Tables and figures of other cells than these are set aside.
    """
    digest = cells_digest(records)
    with stage("tables"):
        write_tables(one, records)
        write_agreement(one.results, records)
        for line in invalid_chains(records).values():
            console.print(f"refuted: {line}", soft_wrap=True, highlight=False, markup=False)
        if apart := other_scales(records):
            words = f"{len(apart)} fits of another scale than their sampler chose: no distance"
            console.print(words, soft_wrap=True, highlight=False, markup=False)
        fingerprints = {spec: fingerprint for spec, (fingerprint, _) in one.sources.items()}
        keep_present_priors(one.results, one.experiment, fingerprints)
        keep_present_ranks(one.results, one.experiment, one.devices, fingerprints)
        note_files(one.results, TABLES, digest)
        overviews = overviews_of(one.results, records)
    due = [
        *missing_cell_figures(one.results, records),
        *outdated_overviews(one.results, records, overviews),
        *outdated_priors(one.results, records),
    ]
    with Helpers(workers, len(due)) as helpers:
        draw_files(due, one.results, helpers, "drawing")
    figures = [drawing.path for drawing in overviews]
    if records:
        plugins = one.experiment.plugins
        figures += make_outputs(one.results, plugins, lambda line: _say(console, line))
    with stage("tables"):
        folder = one.results.folder
        left_out = superseded_line(folder, len(superseded_names(folder)))
        page = index_page(one.experiment.name, figures, records, one.results.cells, left_out)
        one.results.write_text(INDEX, page)
        note_files(one.results, [INDEX], digest)
        write_sensitivity(one.results, records)
        _set_aside(console, one, records)
    if left_out:
        _say(console, left_out)


def _set_aside(console: Console, one: Run, records: Sequence[CellRecord]) -> None:
    """Set tables and figures of other cells aside, and say which."""
    moved = set_aside_stale(one.results, cells_digest(records))
    if moved:
        _say(console, f"moved to {STALE}/, {stale_line(moved)}")
