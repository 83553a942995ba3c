"""Run a calibration on worker processes: ``calibration/*.nc``, its table and figures."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

from pmbnn.calibration.plan import CalibrationTask, Plan, calibration_task
from pmbnn.calibration.ranks import valid_ranks
from pmbnn.calibration.store import (
    StoredRanks,
    all_ranks,
    load_ranks,
    missing_simulations,
    path_of,
)
from pmbnn.calibration.table import FILE, calibration_table
from pmbnn.core.machine import CPU, Device
from pmbnn.data import DatasetSpec
from pmbnn.experiment.cells import Experiment
from pmbnn.experiment.load import data_source
from pmbnn.experiment.plugins import experiment_parts
from pmbnn.figures.stage import Drawing, draw_files
from pmbnn.fitting.progress import RunOptions, run_tasks
from pmbnn.results.derived import is_current
from pmbnn.results.store import Results, sha256, writing

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd


def calibrate(
    experiment: Experiment, plan: Plan, folder: "Path", options: RunOptions
) -> "tuple[pd.DataFrame, dict[str, str]]":
    """Simulate what a plan lacks, and write the table and the figures of all stored ranks.

    Stored ranks are kept whatever stops it; a combination that fails does not stop the others.

    Returns
    -------
    table : DataFrame
        That of `calibration_table`, of the combinations of the plan that have ranks.
    failed : dict
        Why combinations lack some, by the names of their files.
    """
    results, seconds = Results(folder), {}
    with writing(folder, options.wait):
        results.prepare()
        for task in plan.tasks:
            if missing := missing_simulations(load_ranks(results, task.name), task.simulations):
                seconds[task] = len(missing) * task.seconds_per_simulation
        if not options.quiet:
            options.print(*(f"left out: {line}" for line in plan.left_out))
            options.print(f"{len(plan.tasks)} combinations, {len(seconds)} to simulate")
        failed = run_tasks(seconds, folder, options, experiment.plugins)
        fingerprints = {task.cell.dataset: task.fingerprint for task in plan.tasks}
        present = present_ranks(results, experiment, options.devices, fingerprints)
        results.replace_table(FILE, calibration_table(present))
        by_name = {ranks.name: ranks for ranks in present}
        stored = {task: by_name[task.name] for task in plan.tasks if task.name in by_name}
        draw_files(_outdated(results, stored), results)
    return calibration_table(stored.values()), failed


def present_ranks(
    results: Results,
    experiment: Experiment,
    devices: Sequence[Device],
    fingerprints: Mapping[DatasetSpec, str],
) -> list[StoredRanks]:
    """Stored ranks of combinations that the experiment has with its data and plugins as they are.

    Those of other plans of it, such as of another number of draws, are among them.

    Parameters
    ----------
    fingerprints
        Fingerprints of data sets that were loaded already.
    """
    stored = list(all_ranks(results))
    settings = {(0, ranks.draws, ranks.restarts, ranks.truths) for ranks in stored}
    cells = experiment.cells if stored else ()
    specs = {cell.dataset for cell in cells}
    data = {spec: fingerprints.get(spec) or data_source(spec).fingerprint for spec in specs}
    with experiment_parts(experiment.plugins):
        names = {
            calibration_task(cell, data[cell.dataset], *numbers, device).name
            for cell, numbers, device in product(cells, settings, {CPU, devices[0]})
        }
    return [ranks for ranks in stored if ranks.name in names]


def keep_present_ranks(
    results: Results,
    experiment: Experiment,
    devices: Sequence[Device],
    fingerprints: Mapping[DatasetSpec, str],
) -> None:
    """Leave combinations that the experiment no longer has out of the table, if there is one."""
    if (results.folder / FILE).is_file():
        present = present_ranks(results, experiment, devices, fingerprints)
        results.replace_table(FILE, calibration_table(present))


def _outdated(results: Results, stored: Mapping[CalibrationTask, StoredRanks]) -> list[Drawing]:
    """Figures of combinations that have ranks, where they are missing or of fewer simulations."""
    from pmbnn.calibration.figure import plot_calibration

    drawings = []
    for task, ranks in stored.items():
        path, digest = results.calibration / f"{task.name}.png", sha256(path_of(results, task.name))
        file = f"{results.calibration.name}/{path.name}"
        if len(valid_ranks(ranks.ranks)) and not is_current(results, file, digest):
            drawings.append(Drawing(path, partial(plot_calibration, ranks, task.label), digest))
    return drawings
