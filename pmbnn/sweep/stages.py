"""A sweep from its experiment to its tables: what the command does, and `pmbnn.run`."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pmbnn.calibration.run import keep_present_ranks
from pmbnn.compare.agreement import write_agreement
from pmbnn.compare.sensitivity import write_sensitivity
from pmbnn.core.errors import ConfigError
from pmbnn.core.machine import device_text, find_devices, processes, slowness, total_memory
from pmbnn.core.stages import measured, stage
from pmbnn.data.synthetic import GENERATED
from pmbnn.experiment.cells import Cell, Experiment
from pmbnn.experiment.cost import cell_work, memory_line, most_memory, too_large_lines
from pmbnn.experiment.expand import name_of
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.overrides import Overridden, override_texts, read_overrides
from pmbnn.experiment.plan import default_folder, job_label, read_shard, wanted_cells
from pmbnn.figures import (
    CellDrawer,
    draw_files,
    missing_cell_figures,
    outdated_overviews,
    overviews_of,
)
from pmbnn.fitting.helpers import Helpers
from pmbnn.fitting.progress import RunOptions
from pmbnn.fitting.workers import Progressed, Stored
from pmbnn.prior_predictive.figure import outdated_priors
from pmbnn.prior_predictive.run import keep_present_priors
from pmbnn.report.page import published_tables, report_page
from pmbnn.results.derived import (
    INDEX,
    STALE,
    TABLES,
    cells_digest,
    note_files,
    set_aside_stale,
    stale_line,
)
from pmbnn.results.integrity import set_aside_broken
from pmbnn.results.loading import ExperimentResults, load_results
from pmbnn.results.names import invalid_chains, other_scales
from pmbnn.results.present import FILE as CELLS
from pmbnn.results.present import (
    left_behind,
    left_behind_line,
    named_faults,
    present_records,
    read_list,
    superseded_line,
    superseded_names,
)
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results, ResultsError, writing
from pmbnn.sweep.cells import (
    Run,
    forget,
    list_cells,
    prepare,
    run_cells,
    update_stored,
    write_header,
    write_tables,
)
from pmbnn.sweep.in_memory import experiment_in_memory
from pmbnn.sweep.outputs import Display, following, make_outputs, shares, write_times

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
    overrides: Overridden = (),
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
        Results folder; ``results/<experiment>`` unless given, with the overrides in its name.
    only
        Cells to fit, as ``["prior=laplace", "dataset.seed=0"]``; all unless given.
    overrides
        Settings to change in every sweep, as ``{"inference.steps": 20000, "prior": ["normal",
        "laplace"]}`` with lists as axes, or as the command line has them,
        ``["inference.steps=20000", "prior=normal,laplace"]``.
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
        texts = override_texts(read_overrides(overrides, "overrides"))
        folder = folder or default_folder(name_of(experiment), part, texts)
        experiment = experiment_in_memory(experiment, folder, wait, overrides)
    elif not isinstance(experiment, Experiment):
        experiment = load_experiment(experiment, overrides=overrides)
    elif overrides:
        raise ConfigError("`overrides` need a file or a mapping, got an experiment that is loaded.")
    cluster = None
    if client is not None:
        from pmbnn.sweep.cluster.coordinator import cluster_of, device_of_workers

        cluster, device = cluster_of(client, shared_folder), device_of_workers(device)
    devices, console = find_devices(device), Console(stderr=True, quiet=quiet)
    wanted = wanted_cells(experiment, only, part, devices)
    folder = folder or default_folder(experiment.name, part, experiment.overrides)
    options = RunOptions(console, workers, fresh, wait, quiet, devices)
    run_experiment(experiment, wanted, folder, options, cluster)
    return load_results(folder)


def run_experiment(
    experiment: Experiment,
    wanted: Sequence[Cell],
    folder: Path,
    options: RunOptions,
    cluster: "Cluster | None" = None,
    are_references: bool = False,
) -> Outcome:
    """Fit the wanted cells that are missing, and draw and write what follows from them.

    Parameters
    ----------
    wanted
        Cells of the experiment, whose data were checked: see `wanted_cells`.
    folder
        The results folder.
    cluster
        Workers that fit, in place of processes of this machine.
    are_references
        Whether the wanted cells are those that `pmbnn check` samples.
    """
    with measured() as command_seconds:
        with following(options.console, options.quiet), stage("load"):
            prepared = prepare(experiment, folder, options.devices)
        results = prepared.results
        names = dict.fromkeys(prepared.tasks[cell].name for cell in wanted)
        with writing(folder, options.wait):
            _begin(prepared, wanted, names if are_references else (), options)
            missing = prepared.missing(wanted)
            if not options.quiet:
                _announce(prepared, wanted, missing, options, is_local=cluster is None)
            with CellDrawer(results) as drawer, stage("workers"), ExitStack() as stack:
                if cluster is not None and missing:
                    stack.callback(cluster.end)
                    cluster.begin(folder, options.print)
                local = processes(options.n_workers, options.devices)
                at_once = local if cluster is None else cluster.threads
                worker_seconds = _fit_missing(prepared, missing, at_once, drawer, options, cluster)
            if not prepared.missing(list(prepared.tasks)):
                # Of jobs that were stopped and fitted otherwise since.
                results.remove_checkpoints()
            # Without the jobs that left no checkpoints.
            results.write_json(CELLS, list_cells(prepared).content)
            records = present_records(results)
            with following(options.console, options.quiet):
                write_what_follows(prepared, records, options)
            if missing:
                write_times(results, len(missing), at_once, worker_seconds, command_seconds)
            if missing and not options.quiet:
                options.print(f"time of workers: {shares(worker_seconds)}")
    failed = tuple(record for record in records if record.name in names and record.failed)
    return Outcome(folder, tuple(records), failed)


def _begin(
    prepared: Run, wanted: Sequence[Cell], references: Iterable[str], options: RunOptions
) -> None:
    """Set broken cells aside, list the present ones, and write the header of the folder."""
    folder = prepared.results.folder
    before = read_list(folder)
    planned = [task.name for task in prepared.tasks.values()]
    # All that are stored, where none are listed yet. A folder of another format is rejected here,
    # before anything in it is changed.
    checked = None if before is None else [*planned, *before.references]
    problems = set_aside_broken(prepared.results, checked)
    problems += update_stored(prepared, before.references if before else ())
    for problem in problems:
        options.print(f"set aside, to be fitted again: {problem}")
    if options.fresh:
        forget(prepared, wanted)
    cells = list_cells(prepared, wanted, references)
    gone = left_behind(folder, cells.cells)
    if gone:
        options.print(left_behind_line(folder, len(gone)))
    write_header(prepared, cells)
    if gone:
        # Also if this run does not come to its end.
        _set_aside(prepared, present_records(prepared.results), options)


def _announce(
    prepared: Run,
    wanted: Sequence[Cell],
    missing: Sequence[Cell],
    options: RunOptions,
    is_local: bool,
) -> None:
    """Print what there is to do, and whether processes of this machine have memory for it."""
    for sweep in prepared.experiment.sweeps:
        options.print(*(f"{sweep.name}: {left_out}" for left_out in sweep.left_out))
    sources = {
        f"data set {spec.kind}: source {data.source}": None
        for spec, data in prepared.sources.items()
        if data.source not in ("scikit-learn", GENERATED)
    }
    options.print(*sources)
    if options.devices[0].is_accelerator:
        options.print(f"device {device_text(options.devices)}")
    stored = len(wanted) - len(missing)
    options.print(f"{len(wanted)} cells, {stored} stored already, {len(missing)} to fit")
    fitting = processes(options.n_workers, options.devices)
    if is_local and missing and most_memory(missing, fitting) > (total_memory() or math.inf):
        options.print(memory_line(missing, fitting), *too_large_lines(missing))


def _fit_missing(
    prepared: Run,
    missing: Sequence[Cell],
    at_once: int,
    drawer: CellDrawer,
    options: RunOptions,
    cluster: "Cluster | None",
) -> Counter[str]:
    """Fit cells, so many jobs at once, while figures of those that are stored are drawn.

    Returns
    -------
    Counter
        Seconds of all workers together by stages.
    """
    seconds: Counter[str] = Counter()
    pace = slowness() / at_once
    work = {prepared.tasks[cell].name: pace * cell_work(cell).seconds for cell in missing}
    with Display(options.console, work, options.quiet) as display:
        for job, event in run_cells(prepared, missing, options.n_workers, cluster):
            if isinstance(event, Stored):
                display.stored(event.record)
                drawer.add(event.record)
                continue
            label = job_label([task.cell for task in job.cells])
            if isinstance(event, Progressed):
                display.running_job(label, event.stages)
                continue
            seconds.update(event.seconds)
            if event.killed:
                options.print(f"{label}: {event.died}, as by a system out of memory")
            display.finished_job(label)
    return seconds


def write_what_follows(prepared: Run, records: Sequence[CellRecord], options: RunOptions) -> None:
    """Write tables, draw what is missing or stale, and write the page of it all.

    Tables and figures of other cells than these are set aside.
    """
    results, experiment = prepared.results, prepared.experiment
    digest = cells_digest(records)
    with stage("tables"):
        write_tables(prepared, records)
        write_agreement(results, records)
        options.print(*(f"refuted: {line}" for line in invalid_chains(records).values()))
        if apart := other_scales(records):
            options.print(
                f"{len(apart)} fits of another scale than their sampler chose: no distance"
            )
        keep_present_priors(results, experiment, prepared.sources)
        keep_present_ranks(results, experiment, prepared.devices, prepared.fingerprints)
        note_files(results, TABLES, digest)
        overviews = overviews_of(results, records)
    due = [
        *missing_cell_figures(results, records),
        *outdated_overviews(results, records, overviews),
        *outdated_priors(results, records),
    ]
    with Helpers(options.n_workers, max(len(due), len(records))) as helpers:
        draw_files(due, results, helpers, "drawing")
        if records:
            make_outputs(results, experiment.plugins, options.print)
        with stage("tables"):
            write_sensitivity(results, records)
            _set_aside(prepared, records, options)
        if records:
            _write_page(results, digest, helpers, options)
    if left_out := superseded_line(results.folder, len(superseded_names(results.folder))):
        options.print(left_out)


def _write_page(results: Results, digest: str, helpers: Helpers, options: RunOptions) -> None:
    """Write the page; a file of the folder that cannot be read costs the page, not the sweep."""
    try:
        folder = load_results(results.folder)
        with stage("page"):
            page = report_page([folder], published_tables([folder]), helpers)
    except (ResultsError, LookupError, ValueError) as error:
        options.print(f"{INDEX} left out, {type(error).__name__}: {' '.join(str(error).split())}")
        return
    results.write_text(INDEX, page)
    note_files(results, [INDEX], digest)


def _set_aside(prepared: Run, records: Sequence[CellRecord], options: RunOptions) -> None:
    """Set tables and figures of other cells aside, and print which."""
    moved = set_aside_stale(prepared.results, cells_digest(records))
    if moved:
        options.print(f"moved to {STALE}/, {stale_line(moved)}")
