"""Calibration of an experiment's combinations: what is simulated, on which processes, its table."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pmbnn.core.device import CPU, Device
from pmbnn.data import DatasetSpec
from pmbnn.experiment.cells import Cell, Experiment
from pmbnn.experiment.load import check_data, data_source
from pmbnn.experiment.machine import cores, slowness
from pmbnn.experiment.names import cell_label, model_words, spec_label
from pmbnn.experiment.plan import cell_work, group_key, settings_digest, takes_all_cores, width
from pmbnn.experiment.plugins import Source, experiment_parts, own_sources
from pmbnn.experiment.selection import select_cells
from pmbnn.experiment.versions import decisive_versions
from pmbnn.fitting.tasks import CalibrationTask
from pmbnn.processes.workers import Finished, Progressed, Stored, run_jobs, turns
from pmbnn.results.lock import writing
from pmbnn.results.ranks import FOLDER, StoredRanks, Truths, all_ranks, load_ranks
from pmbnn.results.store import Results
from pmbnn.spec import Tune
from pmbnn.spec.errors import ConfigError
from pmbnn.sweep.calibration_progress import CalibrationDisplay
from pmbnn.sweep.progress import duration

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Plan:
    """What is to be calibrated.

    Attributes
    ----------
    tasks
        A combination each.
    left_out
        What is not, and why, one line each.
    devices
        What fits run on.
    """

    tasks: tuple[CalibrationTask, ...]
    left_out: tuple[str, ...]
    devices: tuple[Device, ...] = (CPU,)


@dataclass(frozen=True)
class CalibrationOutcome:
    """What has become of a calibration.

    Attributes
    ----------
    folder
        Where its table and figures lie.
    table
        That of every combination of the plan that has ranks.
    failed
        Reasons by the words of combinations that lack some.
    """

    folder: Path
    table: "pd.DataFrame"
    failed: Mapping[str, str]


def plan_calibration(
    experiment: Experiment,
    only: Sequence[str] = (),
    simulations: int = 500,
    draws: int = 99,
    restarts: int | None = None,
    truths: Truths = "prior",
    devices: tuple[Device, ...] = (CPU,),
) -> Plan:
    """What is to be calibrated of an experiment.

    Parameters
    ----------
    only
        Cells to look at, as ``["prior=laplace"]``; all unless given.
    simulations
        Of each combination.
    draws
        Posterior draws that a truth has its rank among.
    restarts
        Fits of each simulated data set; as many as a cell has unless given.
    truths
        What they are drawn from.
    devices
        What fits run on.

    Raises
    ------
    ConfigError
        If the experiment does not fit its data, `only` meets no cell, none of those met can be
        calibrated, or a posterior that truths are to be drawn from is sampled fewer times than
        there are to be simulations.
    DataError
        If some data set is unavailable.
    """
    check_data(experiment)
    chosen, left_out = [], {}
    for cell in select_cells(list(experiment.cells), list(only)):
        reason = why_left_out(cell, draws)
        if reason is None:
            chosen.append(cell)
        else:
            left_out[reason] = None
    if not chosen:
        raise ConfigError(f"There must be something to calibrate: {'; '.join(left_out)}.")
    sources = {spec: data_source(spec)[0] for spec in {cell.dataset for cell in chosen}}
    asked = (simulations, draws, restarts, truths, devices[0])
    with experiment_parts(experiment.plugins):
        tasks = [_task(cell, sources[cell.dataset], *asked) for cell in chosen]
    for task in tasks:
        _check_enough_truths(task)
    # Cells that differ in what is predicted are fitted alike: the first stands for them.
    distinct = {task.identity: task for task in reversed(tasks)}
    return Plan(tuple(reversed(distinct.values())), tuple(left_out), devices)


def why_left_out(cell: Cell, draws: int) -> str | None:
    """Why a cell cannot be calibrated; None if it can."""
    prior, inference = cell.prior, cell.inference
    if not prior.has_scale:
        return f"prior {prior.kind}: improper, no truth can be drawn from it"
    if cell.has_points:
        return "point parameters: they are maximised, no truth can be drawn from them"
    if len(cell.hyperprior.candidates) > 1:
        return "tuned scales: give a fixed one, or a hyperprior"
    if cell.is_sampled:
        if inference.chains * inference.draws < draws:
            return f"{inference.engine} with fewer than {draws} draws of all chains"
        return None
    if inference.is_point:
        return f"guide {inference.guide}: a point has no draws to rank a truth among"
    if isinstance(inference.learning_rate, Tune):
        return "learning rates to be searched for: give a number"
    return None


def _task(cell, fingerprint, simulations, draws, restarts, truths, device) -> CalibrationTask:
    if cell.is_sampled:
        restarts = 1
    elif restarts is None:
        restarts = cell.inference.restarts
    content = [
        settings_digest(cell),
        fingerprint,
        decisive_versions(),
        {"draws": draws, "restarts": restarts, "truths": truths},
        own_sources(cell),
        *filter(None, [device.decides(width(cell, device))]),
    ]
    identity = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
    return CalibrationTask(
        cell=cell,
        name=f"{cell_label(cell)}-{truths}-{identity}",
        identity=identity,
        fingerprint=fingerprint,
        group=group_key(cell),
        width=width(cell, device),
        simulations=simulations,
        draws=draws,
        restarts=restarts,
        truths=truths,
    )


def _check_enough_truths(task: CalibrationTask) -> None:
    sampler = task.sampled.inference
    draws = sampler.chains * sampler.draws
    if task.truths == "posterior" and task.simulations > draws:
        raise ConfigError(
            f"`--simulations` must be at most {draws} around the data, which is how many draws "
            f"of the posterior there are ({task_words(task)}); got {task.simulations}."
        )


def task_words(task: CalibrationTask) -> str:
    """A combination in words."""
    return " ".join([spec_label(task.cell.dataset), *model_words(task.cell)])


def distinct_words(tasks: Sequence[CalibrationTask]) -> dict[str, str]:
    """Combinations in words by their names; of those in the same words, the name itself."""
    words = {task.name: task_words(task) for task in tasks}
    counts = Counter(words.values())
    return {name: one if counts[one] == 1 else name for name, one in words.items()}


def plan_lines(plan: Plan, workers: int) -> list[str]:
    """The plan in words, with a rough time on so many workers."""
    lines = [f"left out: {line}" for line in plan.left_out]
    seconds = 0.0
    for task in plan.tasks:
        one = task.simulations * _fit_seconds(task)
        seconds += one
        lines.append(f"{task.simulations} simulations, {duration(one)}: {task_words(task)}")
    total = f"in all: {duration(seconds)} of fitting on one core"
    if not plan.devices[0].is_accelerator and (used := min(workers, len(plan.tasks))) > 1:
        total += f", about {duration(seconds / used)} with {used} workers"
    return [*lines, total]


def _fit_seconds(task: CalibrationTask) -> float:
    """Rough time of fitting one simulated data set."""
    cell = task.cell
    if not cell.is_sampled:
        inference = cell.inference.model_copy(update={"restarts": task.restarts, "validation": 0})
        cell = replace(cell, inference=inference)
    rows = 2 if task.truths == "posterior" else 1
    return slowness() * rows * cell_work(cell).fitting


def calibrate(
    experiment: Experiment,
    plan: Plan,
    folder: Path,
    console: Console,
    workers: int | None = None,
    wait: bool = False,
    quiet: bool = False,
) -> CalibrationOutcome:
    """Simulate what is missing of a plan, and write table and figures of all that is there.

    What is stored stays, whatever stops it; a combination that fails does not stop the others.
    """
    results = Results(folder)
    with writing(folder, wait):
        results.prepare()
        due = [task for task in plan.tasks if _lacks_some(results, task)]
        if not quiet:
            for line in plan.left_out:
                console.print(f"left out: {line}", highlight=False, markup=False, soft_wrap=True)
            console.print(f"{len(plan.tasks)} combinations, {len(due)} to simulate")
        with CalibrationDisplay(console, len(due), quiet) as display:
            reasons: dict[str, str | None] = {}
            named = distinct_words(due)
            at = (folder, workers or cores(), experiment.plugins, plan.devices)
            for task, event in _run(due, *at):
                words = named[task.name]
                if isinstance(event, Progressed):
                    display.running(words, event.stages)
                elif words not in reasons:
                    # A worker that is done says so after what it has stored.
                    reason = event.record.reason if isinstance(event, Stored) else event.died
                    reasons[words] = reason
                    display.finished(words, reason)
        present = present_ranks(results, experiment, plan.devices)
        table = _write(results, plan, due, present)
    failed = {words: reason for words, reason in reasons.items() if reason is not None}
    return CalibrationOutcome(folder, table, failed)


def _lacks_some(results: Results, task: CalibrationTask) -> bool:
    found = load_ranks(results, task.name)
    return found is None or bool(found.missing(task.simulations))


def _run(
    tasks: Sequence[CalibrationTask],
    folder: Path,
    workers: int,
    plugins: Sequence[Source],
    devices: Sequence[Device],
) -> Iterator[tuple[CalibrationTask, Progressed | Stored | Finished]]:
    """What happens, by task."""
    for batch, processes, single_threaded in turns(
        tasks, lambda task: takes_all_cores(task.cell), workers, devices
    ):
        for event in run_jobs(batch, folder, processes, single_threaded, plugins, devices):
            yield batch[event.job], event


def present_ranks(
    results: Results,
    experiment: Experiment,
    devices: Sequence[Device],
    fingerprints: Mapping[DatasetSpec, str] | None = None,
) -> list[StoredRanks]:
    """Stored ranks of combinations that the experiment has with its data and plugins as they are.

    Those of other plans of it, such as of another number of draws, are among them.
    """
    stored = list(all_ranks(results))
    asked = {(ranks.draws, ranks.restarts, ranks.truths) for ranks in stored}
    known, names = dict(fingerprints or {}), set()
    with experiment_parts(experiment.plugins):
        for cell in experiment.cells if stored else ():
            if cell.dataset not in known:
                known[cell.dataset] = data_source(cell.dataset)[0]
            for (draws, restarts, truths), device in product(asked, {CPU, devices[0]}):
                given = (known[cell.dataset], 0, draws, restarts, truths, device)
                names.add(_task(cell, *given).name)
    return [ranks for ranks in stored if ranks.name in names]


def keep_present_ranks(
    results: Results,
    experiment: Experiment,
    devices: Sequence[Device],
    fingerprints: Mapping[DatasetSpec, str],
) -> None:
    """Leave combinations that the experiment no longer has out of the table, if there is one."""
    from pmbnn.compare.calibration import FILE, calibration_table

    if (results.folder / FILE).is_file():
        present = present_ranks(results, experiment, devices, fingerprints)
        results.replace_table(FILE, calibration_table(present))


def _write(
    results: Results, plan: Plan, due: Sequence[CalibrationTask], present: Sequence[StoredRanks]
) -> "pd.DataFrame":
    """Table and figures; the table has the combinations of other plans in the folder as well."""
    from pmbnn.compare.calibration import FILE, calibration_table
    from pmbnn.figures.calibration import plot_calibration
    from pmbnn.figures.style import save_figure
    from pmbnn.prediction.calibration import alive

    stored = {ranks.name: ranks for ranks in present}
    if stored:
        results.write_table(FILE, calibration_table(stored.values()))
    own = [task for task in plan.tasks if task.name in stored]
    for task in own:
        path = f"{FOLDER}/{task.name}.png"
        if not len(alive(stored[task.name].ranks)):
            continue
        if task in due or not (results.folder / path).is_file():
            figure = plot_calibration(stored[task.name], task_words(task))
            results.write_file(path, lambda part, figure=figure: save_figure(figure, part))
    return calibration_table(stored[task.name] for task in own)
