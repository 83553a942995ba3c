"""Sampling the cells of a job: the posterior itself, where fits approximate it.

No test row is seen here. A scale that is to be tuned is tuned by this sampler, on held-out rows.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pmbnn.core.stages import staged
from pmbnn.data.arrays import Dataset, Rows
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.plan import settings_digest
from pmbnn.fitting.inferred import InferredCell
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.selection import Selection
from pmbnn.inference.checkpoint import Checkpoints
from pmbnn.inference.samplers.chains import Samples
from pmbnn.inference.samplers.run import sample_posterior
from pmbnn.models.build import model_data
from pmbnn.models.priors import Fixed, Hyperprior
from pmbnn.prediction.draws import KeptDraws
from pmbnn.prediction.predictor import functions_of


def spread(number: int, most: int) -> np.ndarray:
    """At most so many of the numbers below `number`, evenly spread, the last among them."""
    step = -(-number // most)
    return np.arange(number - 1, -1, -step)[::-1]


def kept_numbers(cell: Cell, samples: Samples) -> np.ndarray:
    """Numbers of the draws of each chain that a cell predicts with, ``(draw,)``.

    As many as were asked for, spread over all: where draws had to be doubled, neighbours say nearly
    the same.
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
    """Every cell, sampled.

    Parameters
    ----------
    datasets
        The loaded data by specification.
    checkpoints
        Folder for the checkpoints of this job's long chains.
    """
    context = SamplingContext(programs, checkpoints and Checkpoints(checkpoints))
    return [_sampled(cell, datasets[cell.dataset], context) for cell in cells]


@dataclass(frozen=True)
class SamplingContext:
    """What all chains of a job share."""

    programs: GroupPrograms
    checkpoints: Checkpoints | None


def _sampled(cell: Cell, dataset: Dataset, context: SamplingContext) -> InferredCell:
    start, rows = time.monotonic(), dataset.training
    selection = _select(cell, rows, context) if len(cell.hyperprior.candidates) > 1 else None
    hyperprior = cell.hyperprior.candidates[selection.candidate if selection else 0]
    gaps = across_gaps(cell, dataset)
    samples = _sample(cell, rows, hyperprior, "sample", context, gaps)
    data = model_data(hyperprior, rows, cell.likelihood)
    return sampled_cell(cell, hyperprior, data, samples, selection, time.monotonic() - start)


def sampled_cell(
    cell: Cell,
    hyperprior: Hyperprior,
    data: Mapping[str, np.ndarray],
    samples: Samples,
    selection: Selection | None,
    seconds: float,
) -> InferredCell:
    """A cell that all chains predict with alike, unless one of them is broken."""
    chains = () if samples.chains.broken.any() else kept_values(cell, samples)
    fits = tuple(map(KeptDraws.spread, chains))
    best, weights = 0 if fits else None, (1 / max(1, len(fits)),) * len(fits)
    return InferredCell(
        cell, hyperprior, data, fits, best, weights, selection, None, seconds, samples
    )


@staged("choose")
def _select(cell: Cell, rows: Rows, context: SamplingContext) -> Selection:
    """Scores of every candidate scale on held-out training rows."""
    candidates, settings = cell.hyperprior.candidates, cell.inference
    kept, held_out = rows.split(settings.validation, random_seed=settings.seed)
    predictor, nll = context.programs.predictor(cell, kept), []
    for number, hyperprior in enumerate(candidates):
        samples = _sample(cell, kept, hyperprior, f"choose/{number}", context)
        if samples.chains.broken.any():
            nll.append(np.nan)
            continue
        of_all = KeptDraws.spread(samples.chains.merged)
        draws = settings.chains * min(settings.draws, cell.predict.draws)
        data = model_data(hyperprior, kept, cell.likelihood)
        nll.append(predictor.nll(of_all, data, held_out, draws))
    scales = [h.scale if isinstance(h, Fixed) else None for h in candidates]
    chosen = np.zeros(len(candidates), dtype=int)
    return Selection(np.array(scales, dtype=float), np.array(nll)[:, None], chosen)


def across_gaps(cell: Cell, dataset: Dataset) -> list[np.ndarray]:
    """Inputs of lines across a gap between rows: chains that agree at rows may not in between."""
    lines = [line for line in cell.dataset.lines() if line.gap is not None]
    return [dataset.standardisation(line.inputs) for line in lines]


def _sample(
    cell: Cell,
    rows: Rows,
    hyperprior: Hyperprior,
    name: str,
    context: SamplingContext,
    further: Sequence[np.ndarray] = (),
) -> Samples:
    data = model_data(hyperprior, rows, cell.likelihood)
    programs, identity = context.programs, f"{settings_digest(cell)}/{name}"
    return sample_posterior(
        programs.program(cell, rows),
        data,
        functions_of(programs.predictor(cell, rows), data, *further),
        identity=identity,
        checkpoint=context.checkpoints and context.checkpoints.of(identity),
    )
