"""One job: fit its cells together, evaluate each, and store it. Runs in a worker process."""

import time
import traceback
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from pmbnn.datasets import DataError, DatasetSpec
from pmbnn.datasets.rows import Dataset
from pmbnn.evaluation import evaluate
from pmbnn.figures.curves import plot_curves
from pmbnn.figures.plane import plot_plane
from pmbnn.figures.style import save_figure
from pmbnn.figures.titles import cell_title
from pmbnn.fitting import FittedCell, GroupFitter, Report, graph_model
from pmbnn.inference.convergence import final_mean
from pmbnn.priors import Fixed
from pmbnn.regression_evaluation import RegressionEvaluation
from pmbnn.storage import Results, Writer, json_writer, trace_writer
from pmbnn.tasks import CellTask, JobTask
from pmbnn.trace import build_trace


def run_job(job: JobTask, folder: Path, report: Report, stored: Callable[[dict], None]) -> None:
    """Fit, evaluate and store every cell of a job, calling `stored` with each record.

    A cell that fails is stored with its status and the reason, and does not stop the others.
    """
    results = Results(folder)
    for task, outcome in _fit(job, results, report):
        stored(_finish(task, outcome, _fitter(job.group, job.width), results))
    results.remove_checkpoints(job.identity)


def _fit(
    job: JobTask, results: Results, report: Report
) -> list[tuple[CellTask, FittedCell | Exception]]:
    """Fits of every cell, or why there are none; cells that fail together are tried alone."""
    try:
        pilots = () if job.pilot is None else (job.pilot,)
        datasets = {task.cell.dataset: _load(task) for task in (*job.cells, *pilots)}
        fitter = _fitter(job.group, job.width)
        fitted = fitter.fit_job(
            [task.cell for task in job.cells],
            datasets,
            report,
            pilot=None if job.pilot is None else job.pilot.cell,
            checkpoints=results.checkpoints(job.identity),
        )
        return list(zip(job.cells, fitted, strict=True))
    except Exception as error:
        if len(job.cells) == 1:
            return [(job.cells[0], error)]
    alone = [JobTask(job.group, job.width, (task,), job.pilot) for task in job.cells]
    found = [pair for single in alone for pair in _fit(single, results, report)]
    for single in alone:
        results.remove_checkpoints(single.identity)
    return found


@lru_cache(maxsize=1)
def _fitter(group: str, width: int) -> GroupFitter:
    """What is compiled for a group, kept until the worker turns to another one."""
    return GroupFitter(width)


@lru_cache(maxsize=4)
def _load_once(spec: DatasetSpec) -> tuple[Dataset, str]:
    dataset = spec.load()
    return dataset, dataset.fingerprint


def _load(task: CellTask) -> Dataset:
    dataset, fingerprint = _load_once(task.cell.dataset)
    if fingerprint != task.fingerprint:
        raise DataError("the data changed while the sweep was running")
    return dataset


def _finish(
    task: CellTask, outcome: FittedCell | Exception, fitter: GroupFitter, results: Results
) -> dict:
    """Evaluate and store one cell; its record."""
    spent = 0.0 if isinstance(outcome, Exception) else outcome.seconds
    start = time.monotonic() - spent
    record = task.record()
    try:
        if isinstance(outcome, Exception):
            raise outcome
        record |= _fit_record(outcome)
        files = {} if outcome.best is None else _evaluate(task, outcome, fitter, record)
        _save(results, record, files, start)
    except Exception as error:
        for name in ("pictures", "diagnostics"):
            record.pop(name, None)
        record |= {"status": "error", "reason": _reason(error), "results": {}}
        record["traceback"] = "".join(traceback.format_exception(error))
        _save(results, record, {}, start)
    return record


def _save(results: Results, record: dict, files: dict[str, Writer], start: float) -> None:
    record["seconds"] = time.monotonic() - start
    results.save_cell(record["name"], files | {"metrics.json": json_writer(record)})


def _fit_record(fitted: FittedCell) -> dict[str, Any]:
    """What is known of a cell once it is fitted."""
    best = None if fitted.best is None else fitted.fits[fitted.best]
    shown = best or fitted.fits[0]
    record = {"status": shown.status, "reason": shown.reason, "best": fitted.best}
    record["restarts"] = [
        {"status": fit.status, "reason": fit.reason, "elbo": fit.elbo, "weight": weight}
        for fit, weight in zip(fitted.fits, fitted.weights, strict=True)
    ]
    record["kl_forms"] = dict(fitted.fits[0].kl_forms)
    if fitted.search is not None:
        record["learning_rate_search"] = {
            "candidates": fitted.search.candidates.tolist(),
            "elbo": fitted.search.elbo.tolist(),
            "chosen": fitted.search.chosen,
        }
    if fitted.choice is not None:
        record["choice"] = {
            "scales": fitted.choice.scales.tolist(),
            "nll": fitted.choice.nll.tolist(),
            "restart": fitted.choice.restart.tolist(),
            "candidate": fitted.choice.candidate,
        }
    return record


def _evaluate(task: CellTask, fitted: FittedCell, fitter: GroupFitter, record: dict) -> dict:
    """Predict with a fitted cell; adds results to the record, gives the files to write."""
    dataset = _load(task)
    cell = task.cell
    predictor = fitter.predictor(cell, dataset.training)
    evaluation = evaluate(fitted, dataset, predictor)
    hyperprior, choice = fitted.hyperprior, fitted.choice
    best = fitted.fits[fitted.best]
    record["results"] = {
        **evaluation.results,
        "elbo": best.elbo,
        "log_likelihood": final_mean(best.history.log_likelihood),
        "kl": final_mean(best.history.kl),
        "learning_rate": best.learning_rate,
        "scale": hyperprior.scale if isinstance(hyperprior, Fixed) else None,
        "validation_nll": None if choice is None else float(choice.scores.min()),
    }
    is_regression = isinstance(evaluation, RegressionEvaluation)
    if not is_regression and evaluation.pictures is not None:
        record["pictures"] = evaluation.pictures.results
    if not is_regression and evaluation.diagnosis is not None:
        record["diagnostics"] = evaluation.diagnosis.numbers()
    record["source"] = dataset.source
    model = graph_model(cell, dataset.training)
    trace = build_trace(fitted, evaluation, dataset, predictor, model)
    files = {"trace.nc": trace_writer(trace)}
    if is_regression:
        figure = partial(plot_curves, trace, cell_title(record))
        files["curves.png"] = lambda path: save_figure(figure(), path)
    elif evaluation.map is not None:
        figure = partial(plot_plane, trace, cell_title(record))
        files["map.png"] = lambda path: save_figure(figure(), path)
    return files


def _reason(error: Exception) -> str:
    """One line of an exception."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
