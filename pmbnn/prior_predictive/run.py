"""Run prior predictive checks on worker processes: ``prior/*.nc``, their table and figures."""

from collections.abc import Mapping
from pathlib import Path

from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Experiment
from pmbnn.experiment.load import DataSource, data_source
from pmbnn.figures.stage import draw_files
from pmbnn.fitting.helpers import Helpers
from pmbnn.fitting.progress import RunOptions, run_tasks
from pmbnn.prior_predictive.figure import outdated_priors
from pmbnn.prior_predictive.plan import Plan, prior_tasks
from pmbnn.prior_predictive.store import StoredPrior, data_path, stored_priors, write_priors
from pmbnn.results.present import present_list, present_records
from pmbnn.results.store import PRIORS, Results, writing

SECONDS = 4.0
"""Rough time of one check, of a small network over a map."""


def run_priors(
    experiment: Experiment, plan: Plan, folder: Path, options: RunOptions
) -> tuple[list[StoredPrior], dict[str, str]]:
    """Evaluate the priors of a plan that are not stored yet, and write the table and the figures.

    Stored checks are kept whatever stops it; a prior that fails does not stop the others.

    Parameters
    ----------
    folder
        Results folder; cells of the same prior, where it has some, are shown beside it.
    options
        Without devices: draws are in double precision, which GPUs are slow at.

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
        If another process writes the folder, and it is not to wait.
    """
    specs = {combination.cell.dataset for combination in plan.combinations}
    tasks = prior_tasks(experiment, {spec: data_source(spec) for spec in specs})
    wanted, results = [tasks[combination] for combination in plan.combinations], Results(folder)
    with writing(folder, options.wait):
        results.prepare()
        present_list(folder)  # an older format is an error before anything is drawn
        if options.fresh:
            for task in wanted:
                data_path(results, task.name).unlink(missing_ok=True)
        due = [task for task in wanted if not data_path(results, task.name).is_file()]
        if not options.quiet:
            options.print(*(f"left out: {line}" for line in plan.left_out))
            stored = f"{len(wanted) - len(due)} stored already"
            options.print(f"{len(wanted)} priors, {stored}, {len(due)} to draw from")
        seconds = dict.fromkeys(due, SECONDS)
        failed = run_tasks(seconds, folder, options, experiment.plugins)
        write_priors(results, [task.name for task in tasks.values()])
        drawings = outdated_priors(results, present_records(results))
        with Helpers(options.n_workers, len(drawings)) as helpers:
            draw_files(drawings, results, helpers)
        return stored_priors(results), failed


def keep_present_priors(
    results: Results, experiment: Experiment, sources: Mapping[DatasetSpec, DataSource]
) -> None:
    """Leave priors that the experiment no longer has out of the table, if there is one."""
    if (results.folder / PRIORS).is_file():
        tasks = prior_tasks(experiment, sources)
        write_priors(results, [task.name for task in tasks.values()])
