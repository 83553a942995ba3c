"""Sampling the cells of a job from their posterior.

No test row is seen here. A scale that is to be tuned is tuned by this sampler, on held-out rows.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pmbnn.core.stages import staged
from pmbnn.data.arrays import Dataset, Rows
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.plan import settings_digest
from pmbnn.fitting.fit import InferredCell
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.select import Selection, candidate_scales, candidates_of
from pmbnn.inference.groups import Checkpoints
from pmbnn.inference.samplers.chains import Samples
from pmbnn.inference.samplers.run import sample_posterior
from pmbnn.models.build import model_data
from pmbnn.models.hyperpriors import Hyperprior
from pmbnn.models.matching import match_of
from pmbnn.prediction.draws import KeptDraws
from pmbnn.prediction.leave_one_out import stacking_weights
from pmbnn.prediction.predictor import Predictor, functions_of


def spread(number: int, most: int) -> np.ndarray:
    """At most `most` of the numbers below `number`, evenly spread; the last is among them."""
    step = -(-number // most)
    return np.arange(number - 1, -1, -step)[::-1]


def kept_numbers(cell: Cell, samples: Samples) -> np.ndarray:
    """Numbers of the draws of each chain that a cell predicts with, ``(draw,)``.

    At most the number in the settings, spread over all: where draws had to be doubled, neighbours
    are nearly the same.
    """
    return spread(samples.chains.draws, cell.inference.draws)


def kept_values(cell: Cell, samples: Samples) -> np.ndarray:
    """Unconstrained vectors that a cell predicts with, ``(chain, draw, size)``."""
    return samples.chains.values[:, kept_numbers(cell, samples)]


def sample_job(
    cells: Sequence[Cell],
    datasets: Mapping[object, Dataset],
    programs: GroupPrograms,
    checkpoints: Path | None = None,
) -> list[InferredCell]:
    """Sample every cell.

    Parameters
    ----------
    datasets
        The loaded data by specification.
    checkpoints
        Folder for the checkpoints of this job's long chains.
    """
    store = checkpoints and Checkpoints(checkpoints)
    return [_sampled(cell, datasets[cell.dataset], programs, store) for cell in cells]


def _sampled(
    cell: Cell, dataset: Dataset, programs: GroupPrograms, checkpoints: Checkpoints | None
) -> InferredCell:
    start, rows = time.monotonic(), dataset.training
    selection = None
    if len(cell.hyperprior.candidates) > 1:
        selection = _select(cell, rows, programs, checkpoints)
    hyperprior = candidates_of(cell, rows)[selection.candidate if selection else 0]
    gaps = across_gaps(cell, dataset)
    samples = _sample(cell, rows, hyperprior, "sample", programs, checkpoints, *gaps)
    data = model_data(hyperprior, rows, cell.likelihood, cell.prior)
    predictor, seconds = programs.predictor(cell, rows), time.monotonic() - start
    sampled = sampled_cell(cell, hyperprior, data, samples, selection, seconds, predictor)
    return replace(sampled, match=match_of(cell.hyperprior, cell.prior, cell.network, rows))


def sampled_cell(
    cell: Cell,
    hyperprior: Hyperprior,
    data: Mapping[str, np.ndarray],
    samples: Samples,
    selection: Selection | None,
    seconds: float,
    predictor: Predictor,
) -> InferredCell:
    """A cell that all chains predict, unless too many are broken.

    Their weights are equal, unless those of an ensemble are stacked.
    """
    chains = () if samples.chains.broken.any() else kept_values(cell, samples)
    sources = dict(enumerate(map(KeptDraws.spread, chains)))
    weights = np.full(len(sources), 1 / max(len(sources), 1))
    if sources and getattr(cell.inference, "pooling", "equal") == "stacked":
        weights = stacking_weights([predictor.log_joint(data, values)[0] for values in chains])
    return InferredCell(
        cell=cell,
        hyperprior=hyperprior,
        data=data,
        sources=sources,
        weights=dict(enumerate(weights.tolist())),
        best=0 if sources else None,
        seconds=seconds,
        selection=selection,
        samples=samples,
    )


@staged("choose")
def _select(
    cell: Cell, rows: Rows, programs: GroupPrograms, checkpoints: Checkpoints | None
) -> Selection:
    """Scores of every candidate scale on held-out training rows."""
    candidates, settings = candidates_of(cell, rows), cell.inference
    kept, held_out = rows.split(settings.validation, random_seed=settings.seed)
    predictor, nll = programs.predictor(cell, kept), []
    for number, hyperprior in enumerate(candidates):
        samples = _sample(cell, kept, hyperprior, f"choose/{number}", programs, checkpoints)
        if samples.chains.broken.any():
            nll.append(np.nan)
            continue
        source = KeptDraws.spread(samples.chains.merged)
        draws = len(samples.chains.values) * min(settings.draws, cell.predict.draws)
        data = model_data(hyperprior, kept, cell.likelihood, cell.prior)
        nll.append(predictor.nll(source, data, held_out, draws))
    chosen = np.zeros(len(candidates), dtype=int)
    return Selection(candidate_scales(candidates), np.array(nll)[:, None], chosen)


def across_gaps(cell: Cell, dataset: Dataset) -> list[np.ndarray]:
    """Standardised inputs of lines across a gap between rows, where chains must agree too."""
    lines = [line for line in cell.dataset.lines() if line.gap is not None]
    return [dataset.standardisation(line.inputs) for line in lines]


def _sample(
    cell: Cell,
    rows: Rows,
    hyperprior: Hyperprior,
    name: str,
    programs: GroupPrograms,
    checkpoints: Checkpoints | None,
    *further: np.ndarray,
) -> Samples:
    data = model_data(hyperprior, rows, cell.likelihood, cell.prior)
    identity = f"{settings_digest(cell)}/{name}"
    return sample_posterior(
        programs.program(cell, rows),
        data,
        functions_of(programs.predictor(cell, rows), data, *further),
        identity=identity,
        checkpoint=checkpoints and checkpoints.of(identity),
    )


# Draws that a trace keeps by name


LARGE_TRACE_DRAWS = 100
"""Draws of a large network's last layer that are kept at least."""

LEAST_DRAWS = 50
"""Draws of each chain that are kept at least: statistics of fewer have large errors."""


def trace_numbers(sampled: InferredCell) -> np.ndarray:
    """Numbers of the draws of each chain that are kept by name, ``(draw,)``."""
    numbers = kept_numbers(sampled.cell, sampled.samples)
    chains = len(sampled.samples.chains.values)
    most = max(-(-sampled.cell.predict.trace_draws // chains), LEAST_DRAWS)
    return numbers[spread(len(numbers), most)]


def trace_values(sampled: InferredCell) -> np.ndarray:
    """Unconstrained vectors of these draws, ``(chain, draw, size)``."""
    return sampled.samples.chains.values[:, trace_numbers(sampled)]
