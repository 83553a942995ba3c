"""Sampling the cells of a job from their posterior.

No test row is seen here. A scale that is to be tuned is tuned by this sampler, on held-out rows.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.core.stages import staged
from pmbnn.data.arrays import Dataset, Rows
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.plan import settings_digest
from pmbnn.fitting.inferred import InferredCell
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.selection import Selection, candidate_scales
from pmbnn.inference.checkpoint import Checkpoints
from pmbnn.inference.samplers.chains import Samples
from pmbnn.inference.samplers.run import sample_posterior
from pmbnn.models.build import LAYER_PARAMETER, model_data
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.models.priors import Hyperprior
from pmbnn.prediction.draws import KeptDraws
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
    hyperprior = cell.hyperprior.candidates[selection.candidate if selection else 0]
    gaps = across_gaps(cell, dataset)
    samples = _sample(cell, rows, hyperprior, "sample", programs, checkpoints, *gaps)
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
    """A cell that all chains predict with equal weights, unless one of them is broken."""
    chains = () if samples.chains.broken.any() else kept_values(cell, samples)
    sources = dict(enumerate(map(KeptDraws.spread, chains)))
    return InferredCell(
        cell=cell,
        hyperprior=hyperprior,
        data=data,
        sources=sources,
        weights={i: 1 / len(sources) for i in sources},
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
    candidates, settings = cell.hyperprior.candidates, cell.inference
    kept, held_out = rows.split(settings.validation, random_seed=settings.seed)
    predictor, nll = programs.predictor(cell, kept), []
    for number, hyperprior in enumerate(candidates):
        samples = _sample(cell, kept, hyperprior, f"choose/{number}", programs, checkpoints)
        if samples.chains.broken.any():
            nll.append(np.nan)
            continue
        source = KeptDraws.spread(samples.chains.merged)
        draws = settings.chains * min(settings.draws, cell.predict.draws)
        data = model_data(hyperprior, kept, cell.likelihood)
        nll.append(predictor.nll(source, data, held_out, draws))
    chosen = np.zeros(len(candidates), dtype=int)
    return Selection(candidate_scales(cell), np.array(nll)[:, None], chosen)


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
    data = model_data(hyperprior, rows, cell.likelihood)
    identity = f"{settings_digest(cell)}/{name}"
    return sample_posterior(
        programs.program(cell, rows),
        data,
        functions_of(programs.predictor(cell, rows), data, *further),
        identity=identity,
        checkpoint=checkpoints and checkpoints.of(identity),
    )


# What the trace of a sampled cell keeps of its chains
#
# ``posterior`` has real draws of every chain; ``sample_stats``, ``log_likelihood`` and
# ``posterior_predictive`` belong to them. ``draws`` holds the unconstrained vectors that the cell
# predicts with, from which `pmbnn.results.restore` predicts again. Of large networks the last layer
# and all scales are kept, and fewer draws.


LARGE_TRACE_DRAWS = 100
"""Draws of a large network's last layer that are kept at least."""

LEAST_DRAWS = 50
"""Draws of each chain that are kept at least: statistics of fewer have large errors."""


def sampled_groups(
    sampled: InferredCell, predictor: Predictor, model: pm.Model, large: bool
) -> dict[str, xr.Dataset]:
    """Groups by name; `model` gives the dims and coordinates of its variables."""
    values = trace_values(sampled)
    number = kept_numbers(sampled.cell, sampled.samples)[_kept(sampled)]
    coords = {"chain": range(len(values)), "draw": number}
    statistics = {
        name: (("chain", "draw"), array[:, number])
        for name, array in sampled.samples.chains.statistics.items()
    }
    groups = {
        "posterior": _posterior(sampled, predictor, values, model, large),
        "sample_stats": xr.Dataset(statistics),
        "draws": _draws(predictor, values if large else kept_values(sampled.cell, sampled.samples)),
    }
    data, (chains, draws) = sampled.data, values.shape[:2]
    flat, axes = values.reshape(chains * draws, -1), ("chain", "draw", "observation")
    if not large or sampled.cell.predict.log_likelihood:
        by_row = predictor.log_joint(data, flat)[0].reshape(chains, draws, -1)
        groups["log_likelihood"] = xr.Dataset({"y": (axes, by_row.astype("f4"))})
    if not large:
        rng = np.random.default_rng(sampled.cell.inference.seed)
        targets = predictor.observations(data, flat, rng)
        targets = targets.reshape(chains, draws, *targets.shape[1:])
        of_targets = (*axes, TARGET_NAME)[: targets.ndim]
        groups["posterior_predictive"] = xr.Dataset({"y": (of_targets, targets)})
    for name in groups.keys() - {"draws"}:
        groups[name] = groups[name].assign_coords(coords).assign_attrs(draws_of=sampled.draws_of)
    return groups


def trace_values(sampled: InferredCell) -> np.ndarray:
    """Unconstrained vectors of the draws that are kept by name, ``(chain, draw, size)``."""
    return kept_values(sampled.cell, sampled.samples)[:, _kept(sampled)]


def _kept(sampled: InferredCell) -> np.ndarray:
    """Which of the draws of each chain that a cell predicts with are kept by name."""
    chains, draws = kept_values(sampled.cell, sampled.samples).shape[:2]
    wanted = max(-(-sampled.cell.predict.trace_draws // chains), LEAST_DRAWS)
    return spread(draws, wanted)


def _posterior(sampled, predictor, values, model: pm.Model, large: bool) -> xr.Dataset:
    chains, draws = values.shape[:2]
    named = predictor.posterior(sampled.data, values.reshape(chains * draws, -1))
    names = [name for name in named if not large or is_kept_of_large(name, named)]
    dims = {name: model.named_vars_to_dims.get(name, ()) for name in names}
    arrays = {
        name: (("chain", "draw", *dims[name]), _by_chain(named[name], chains)) for name in names
    }
    used = {dim for name in names for dim in dims[name]}
    labels = {name: list(label) for name, label in model.coords.items() if name in used}
    attrs = {"status": sampled.samples.status, "reason": sampled.samples.reason}
    return xr.Dataset(arrays, labels, attrs)


def _by_chain(array: np.ndarray, chains: int) -> np.ndarray:
    return array.reshape(chains, -1, *array.shape[1:]).astype("f4")


def _draws(predictor: Predictor, values: np.ndarray) -> xr.Dataset:
    """Unconstrained vectors, and where in them each variable lies."""
    slots = [[s.name, s.start, list(s.shape)] for s in predictor.flat.layout.slots]
    axes = ("chain", "draw", "parameter")
    return xr.Dataset({"values": (axes, values.astype("f4"))}, attrs={"slots": json.dumps(slots)})


def is_kept_of_large(name: str, available: dict) -> bool:
    """Whether a variable belongs to the last layer's weights and biases, or to no layer."""
    layers = {found: int(m[1]) for found in available if (m := LAYER_PARAMETER.match(found))}
    return layers.get(name) in (None, max(layers.values()))
