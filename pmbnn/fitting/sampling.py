"""Sampling the cells of a job: the posterior itself, where fits approximate it.

No test row is seen here. A scale that is to be tuned is tuned by this sampler, on held-out rows.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from pmbnn.data.arrays import Dataset, Rows
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.plan import settings_digest
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.selection import Selection
from pmbnn.inference.checkpoint import Checkpoints
from pmbnn.inference.result import StoredGuide
from pmbnn.inference.samplers.chains import Samples
from pmbnn.inference.samplers.run import sample_posterior
from pmbnn.inference.stages import staged
from pmbnn.models.build import model_data
from pmbnn.models.priors import Fixed, Hyperprior
from pmbnn.prediction.reference import functions_of, merged
from pmbnn.prediction.stored_draws import kept_draws
from pmbnn.spec.display import Summarised


@dataclass(frozen=True, repr=False)
class SampledCell(Summarised):
    """A cell with draws from its posterior given all training rows.

    Attributes
    ----------
    hyperprior
        That of the model: the chosen one where a scale was tuned.
    data
        Values of the model's data variables.
    samples
        The draws, and what is to be thought of them.
    selection
        How the scale was tuned, where it was.
    seconds
        Time spent.
    """

    cell: Cell
    hyperprior: Hyperprior
    data: Mapping[str, np.ndarray]
    samples: Samples
    selection: Selection | None
    seconds: float

    @cached_property
    def values(self) -> np.ndarray:
        """Unconstrained vectors that are kept, ``(chain, draw, size)``.

        As many of each chain as were asked for, spread over all; where draws had to be doubled,
        neighbours say nearly the same.
        """
        return self.samples.chains.values[:, self.kept]

    @cached_property
    def kept(self) -> np.ndarray:
        """Numbers of the draws that are kept, ``(draw,)``."""
        return spread(self.samples.chains.draws, self.cell.inference.draws)

    @cached_property
    def fits(self) -> tuple[StoredGuide, ...]:
        """The draws of each chain, as a predictor takes them."""
        return tuple(map(kept_draws, self.values))

    @property
    def alive(self) -> list[int]:
        """Numbers of the chains to predict with: all, or none if any met what is not finite."""
        broken = self.samples.chains.broken.any()
        return [] if broken else list(range(len(self.values)))

    @property
    def best(self) -> int | None:
        """The chain that stands for all where one must; None if some chain is broken."""
        return self.alive[0] if self.alive else None

    @property
    def weights(self) -> tuple[float, ...]:
        """Weights of the chains in the cell's predictions, all alike."""
        return (1 / len(self.values),) * len(self.values)

    @property
    def mixtures(self) -> dict[str, list[float]]:
        """Mixtures of the chains that are judged, by the prefix of their results."""
        return {"": list(self.weights)}

    @property
    def draws_of(self) -> str:
        """What the draws are of that the cell predicts with."""
        chains, engine = len(self.values), self.cell.inference.engine.upper()
        return f"the posterior, by {chains} chains of {engine}"


def spread(number: int, most: int) -> np.ndarray:
    """At most so many of the numbers below `number`, evenly spread, the last among them."""
    step = -(-number // most)
    return np.arange(number - 1, -1, -step)[::-1]


def sample_job(
    cells: Sequence[Cell],
    datasets: Mapping[object, Dataset],
    programs: GroupPrograms,
    checkpoints: Path | None = None,
) -> list[SampledCell]:
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


def _sampled(cell: Cell, dataset: Dataset, context: SamplingContext) -> SampledCell:
    start, rows = time.monotonic(), dataset.training
    selection = _select(cell, rows, context) if len(cell.hyperprior.candidates) > 1 else None
    hyperprior = cell.hyperprior.candidates[selection.candidate if selection else 0]
    gaps = across_gaps(cell, dataset)
    samples = _sample(cell, rows, hyperprior, "sample", context, gaps)
    data = model_data(hyperprior, rows, cell.likelihood)
    seconds = time.monotonic() - start
    return SampledCell(cell, hyperprior, data, samples, selection, seconds)


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
        of_all = kept_draws(merged(samples.chains.values))
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
