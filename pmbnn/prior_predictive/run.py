"""Run prior predictive checks on worker processes: ``prior/*.nc``, their table and figures."""

from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from pmbnn.core.machine import cores
from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Experiment
from pmbnn.experiment.load import data_source
from pmbnn.figures.stage import draw_files
from pmbnn.prior_predictive.figure import outdated_priors
from pmbnn.prior_predictive.plan import Plan, prior_tasks
from pmbnn.prior_predictive.store import (
    StoredPrior,
    data_path,
    is_stored,
    stored_priors,
    write_priors,
)
from pmbnn.processes.helpers import Helpers
from pmbnn.processes.progress import run_tasks
from pmbnn.results.present import present_list, present_records
from pmbnn.results.store import PRIORS, Results, writing

SECONDS = 4.0
"""Rough time of one check, of a small network over a map."""


def run_priors(
    experiment: Experiment,
    plan: Plan,
    folder: Path,
    console: Console,
    workers: int | None = None,
    fresh: bool = False,
    wait: bool = False,
    quiet: bool = False,
) -> tuple[list[StoredPrior], dict[str, str]]:
    """Evaluate the priors of a plan that are not stored yet, and write the table and the figures.

    Stored checks are kept whatever stops it; a prior that fails does not stop the others.

    Parameters
    ----------
    folder
        Results folder; cells of the same prior, where it has some, are shown beside it.
    workers
        Processes; one for each core unless given.
    fresh, wait, quiet
        As `pmbnn.run` has them.

    Returns
    -------
    priors : list of StoredPrior
        All that are stored of the experiment.
    failed : dict
        Why priors of the plan could not be evaluated, by the names of their files.

    Raises
    ------
    DataError
        If a data set is unavailable.
    FolderBusyError
        If another process writes the folder, and `wait` is false.
    """
    specs = {one.cell.dataset for one in plan.combinations}
    tasks = prior_tasks(experiment, {spec: data_source(spec)[0] for spec in specs})
    wanted = [tasks[one] for one in plan.combinations]
    results, workers = Results(folder), workers or cores()
    with writing(folder, wait):
        results.prepare()
        present_list(folder)  # an older format is an error before anything is drawn
        if fresh:
            for task in wanted:
                data_path(results, task.name).unlink(missing_ok=True)
        due = [task for task in wanted if not is_stored(results, task.name)]
        if not quiet:
            for line in plan.left_out:
                console.print(f"left out: {line}", soft_wrap=True, highlight=False, markup=False)
            stored = f"{len(wanted) - len(due)} stored already"
            console.print(f"{len(wanted)} priors, {stored}, {len(due)} to draw from")
        # In double precision, which GPUs are slow at: whatever fits run on, the processor draws.
        seconds = dict.fromkeys(due, SECONDS)
        failed = run_tasks(seconds, folder, console, workers, experiment.plugins, quiet=quiet)
        write_priors(results, [task.name for task in tasks.values()])
        drawings = outdated_priors(results, present_records(results))
        with Helpers(workers, len(drawings)) as helpers:
            draw_files(drawings, results, helpers)
        return stored_priors(results), failed


def keep_present_priors(
    results: Results, experiment: Experiment, fingerprints: Mapping[DatasetSpec, str]
) -> None:
    """Leave priors that the experiment no longer has out of the table, if there is one."""
    if (results.folder / PRIORS).is_file():
        tasks = prior_tasks(experiment, fingerprints)
        write_priors(results, [task.name for task in tasks.values()])
