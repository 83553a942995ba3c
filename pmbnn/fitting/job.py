"""One job: fit its cells together, evaluate each, and store it. Runs in a worker process."""

import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xarray import DataTree

from pmbnn.core.errors import reason_of
from pmbnn.core.stages import stage, staged
from pmbnn.data import DataError, DatasetSpec
from pmbnn.data.arrays import Dataset
from pmbnn.fitting.evaluation import evaluate, importance_results
from pmbnn.fitting.fit import InferredCell, fit_job
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.sampling import sample_job
from pmbnn.fitting.select import Selection
from pmbnn.fitting.trace import build_trace
from pmbnn.inference.convergence import final_mean
from pmbnn.results.present import fault_of
from pmbnn.results.record import CellRecord, Restart, Sampling, ScaleSelection
from pmbnn.results.store import Results, Writer, trace_writer

if TYPE_CHECKING:
    from pmbnn.fitting.tasks import CellTask, JobTask, TaskWithData

Outcome = InferredCell | Exception
"""Result of the inference of a cell, or the error that stopped it."""


def run_job(
    job: "JobTask",
    folder: Path,
    stored: Callable[[CellRecord], None],
    programs: GroupPrograms | None = None,
) -> GroupPrograms:
    """Fit, evaluate and store every cell of a job, calling `stored` with each record.

    A cell that fails is stored with its status and the reason, and does not stop the others; an
    error of the system, such as a full disk, is a `StorageError` that does.

    Parameters
    ----------
    programs
        Programs of earlier jobs; used if they belong to the same group.

    Returns
    -------
    GroupPrograms
        Programs of the job's group, for its next job.
    """
    if programs is None or (programs.group, programs.width) != (job.group, job.width):
        programs = GroupPrograms(job.group, job.width)
    results = Results(folder)
    for task, outcome in _fit(job, results, programs):
        stored(_finish(task, outcome, programs, results))
    results.remove_checkpoints(job.identity)
    return programs


def _fit(
    job: "JobTask", results: Results, programs: GroupPrograms
) -> "list[tuple[CellTask, Outcome]]":
    """Each cell with its result or its error; cells that fail together are tried alone."""
    try:
        for module in dict.fromkeys(name for task in job.cells for name in task.modules):
            import_module(module)
        datasets = {task.cell.dataset: load_dataset(task) for task in job.tasks}
        cells = [task.cell for task in job.cells]
        checkpoints = results.checkpoints(job.identity)
        if cells[0].is_sampled:
            fitted = sample_job(cells, datasets, programs, checkpoints)
        else:
            fitted = fit_job(
                cells,
                datasets,
                programs,
                search_cell=None if job.search_cell is None else job.search_cell.cell,
                checkpoints=checkpoints,
            )
        return list(zip(job.cells, fitted, strict=True))
    except Exception as error:
        raise_fault(error, results)
        if len(job.cells) == 1:
            return [(job.cells[0], error)]
    alone = [replace(job, cells=(task,)) for task in job.cells]
    outcomes = [pair for single in alone for pair in _fit(single, results, programs)]
    for single in alone:
        results.remove_checkpoints(single.identity)
    return outcomes


KEPT = 4
"""Data sets that a worker keeps in memory."""


@lru_cache(maxsize=KEPT)
def _load_once(spec: DatasetSpec) -> tuple[Dataset, str]:
    dataset = spec.load()
    return dataset, dataset.fingerprint


_RECEIVED: dict[str, Dataset] = {}


def receive_dataset(fingerprint: str, load: Callable[[], Dataset]) -> None:
    """Keep data that were read on another machine, for tasks with this fingerprint."""
    if fingerprint not in _RECEIVED:
        while len(_RECEIVED) >= KEPT:
            del _RECEIVED[next(iter(_RECEIVED))]
        _RECEIVED[fingerprint] = load()


def forget_datasets() -> None:
    """Forget all data sets that were read here: a file was damaged, and has been replaced."""
    _load_once.cache_clear()


@staged("load")
def load_dataset(task: "TaskWithData") -> Dataset:
    """Data of a task, once for all tasks of a worker; an error if they changed meanwhile."""
    if task.fingerprint in _RECEIVED:
        return _RECEIVED[task.fingerprint]
    dataset, fingerprint = _load_once(task.cell.dataset)
    # Names and units of the data are in records of cells alone, not in those of priors and ranks.
    encoding = getattr(task, "encoding", "")
    if fingerprint != task.fingerprint or encoding not in ("", dataset.encoding):
        raise DataError("the data changed while the sweep was running")
    return dataset


def _finish(
    task: "CellTask", outcome: Outcome, programs: GroupPrograms, results: Results
) -> CellRecord:
    """Evaluate and store one cell; its record."""
    spent = 0.0 if isinstance(outcome, Exception) else outcome.seconds
    start = time.monotonic() - spent
    entries: dict[str, Any] = {}
    try:
        if isinstance(outcome, Exception):
            raise outcome
        entries |= {"status": outcome.status, "reason": outcome.reason}
        entries |= _fit_entries(outcome) if outcome.samples is None else _sampling_entries(outcome)
        log_scale = load_dataset(task).target_standardisation.log_scale
        entries["selection"] = _selection_entry(outcome.selection, log_scale)
        files: dict[str, Writer] = {}
        if outcome.best is not None:
            evaluated, trace = _evaluate(task, outcome, programs)
            entries |= evaluated
            files["trace.nc"] = trace_writer(trace)
        record = task.record(**entries, seconds=time.monotonic() - start)
        with stage("write"):
            return results.save_cell(record, files)
    except Exception as error:
        raise_fault(error, results)
        entries = {name: entries[name] for name in KEPT_ENTRIES if name in entries}
        entries |= {"status": "error", "reason": reason_of(error)}
        entries["traceback"] = "".join(traceback.format_exception(error))
        return results.save_cell(task.record(**entries, seconds=time.monotonic() - start), {})


KEPT_ENTRIES = ("best", "restarts", "kl_forms", "learning_rate_search", "selection", "sampling")
"""Entries that the record of a fitted cell keeps where it could not be evaluated."""


def _fit_entries(fitted: InferredCell) -> dict[str, Any]:
    """Entries of a record on the fits of a cell."""
    weights = fitted.weights
    return {
        "best": fitted.best,
        "restarts": tuple(
            Restart(status=f.status, reason=f.reason, elbo=f.elbo, weight=weights.get(i, 0.0))
            for i, f in enumerate(fitted.fits)
        ),
        "kl_forms": dict(fitted.fits[0].kl_forms),
        "learning_rate_search": fitted.search,
    }


def _sampling_entries(sampled: InferredCell) -> dict[str, Any]:
    """Entries of a record on the chains of a cell."""
    samples, agreement = sampled.samples, sampled.samples.convergence
    return {
        "sampling": Sampling(
            chains=len(samples.chains.values),
            draws=samples.chains.draws,
            rhat_percentile=None if agreement is None else agreement.percentile,
            rhat_largest=None if agreement is None else agreement.largest,
            tuned=dict(samples.tuned),
        ),
    }


def _selection_entry(selection: Selection | None, log_scale: float) -> ScaleSelection | None:
    """How a scale was chosen, with scores of targets in original units."""
    if selection is None:
        return None
    return ScaleSelection(
        scales=selection.scales.tolist(),
        nll=None if selection.nll is None else (selection.nll + log_scale).tolist(),
        evidence=None if selection.evidence is None else selection.evidence.tolist(),
        restart=selection.restart.tolist(),
        candidate=selection.candidate,
    )


def _evaluate(
    task: "CellTask", fitted: InferredCell, programs: GroupPrograms
) -> tuple[dict[str, Any], DataTree]:
    """Entries of a record on a cell's predictions, and its trace."""
    dataset, cell = load_dataset(task), task.cell
    predictor = programs.predictor(cell, dataset.training)
    with stage("evaluate"):
        evaluation = evaluate(fitted, dataset, predictor)
        log_scale = dataset.target_standardisation.log_scale
        importance = importance_results(fitted, predictor, log_scale)
    scale, selection = getattr(fitted.hyperprior, "scale", None), fitted.selection
    is_held_out = selection is not None and selection.nll is not None
    results = {
        **evaluation.results,
        **importance,
        **_convergence(fitted),
        "scale": scale if isinstance(scale, int | float) else None,
        **({} if fitted.match is None else fitted.match.numbers),
        # The choice was made by scores of targets as they were fitted: all differ by one constant.
        "validation_nll": float(selection.scores.min()) + log_scale if is_held_out else None,
    }
    entries = {"predictive": evaluation.test.key, "results": results}
    entries |= {"source": dataset.source, "overlap": dataset.overlap}
    if evaluation.images is not None:
        entries["images"] = evaluation.images.results
    if evaluation.diagnosis is not None:
        entries["diagnostics"] = evaluation.diagnosis.numbers()
    with stage("trace"):
        model = programs.model(cell, dataset.training)
        return entries, build_trace(fitted, evaluation, dataset, predictor, model)


TO_OPTIMUM = {
    "distance": "distance_to_optimum",
    "error": "distance_to_optimum_error",
    "gain": "elbo_to_gain",
}
"""Results on the way to the optimum, by their names in `ToOptimum`."""


def _convergence(fitted: InferredCell) -> dict[str, float]:
    """Results on the end of the best restart's fit, or on the agreement of chains."""
    if fitted.samples is not None:
        agreement, evidence = fitted.samples.convergence, fitted.samples.log_evidence
        results = {} if agreement is None else {"rhat": agreement.largest}
        if evidence is not None:
            results["log_evidence"], results["log_evidence_mcse"] = evidence
        return results
    best = fitted.fits[fitted.best]
    way = {} if best.to_optimum is None else best.to_optimum._asdict()
    return {TO_OPTIMUM[name]: value for name, value in way.items()} | {
        "elbo": best.elbo,
        "log_likelihood": final_mean(best.history.log_likelihood),
        "kl": final_mean(best.history.kl),
        "learning_rate": best.learning_rate,
    }


def raise_fault(error: Exception, results: Results) -> None:
    """Raise the system's error behind another error, if there is one: the cell did not fail."""
    fault = fault_of(error, results.folder)
    if fault is not None:
        raise fault from error
