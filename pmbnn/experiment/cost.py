"""How much work and memory a cell takes: fits, gradient steps, seconds and bytes.

Memory, of dense networks of 10 and 50 million parameters, fitted, predicted and stored with a
mean-field guide: the largest process took 1.8 and 4.8 GB, 74 bytes a parameter and 1.1 GB beside.
"""

import functools
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields

from pmbnn.core.machine import total_memory
from pmbnn.data import Synthetic
from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Cell, choosing_rows
from pmbnn.experiment.names import model_words
from pmbnn.inference.settings import Inference
from pmbnn.models.networks import Network

LARGE_NETWORK = 2_000
"""Multiply-adds a row above which fits are run one by one: each fills a core by itself.

A dense network takes one for each parameter; a convolution takes each kernel many times."""

SHARED_NETWORK = 200_000
"""Multiply-adds a row above which a fit has all cores. Below it a second core helps one fit little,
and two fits beside each other have nearly all of it."""

SMALL_FIT_STEP = 8e-6
"""Seconds a step of one fit of a small network on 700 rows, on one core
(benchmarks/small_network.txt)."""

SMALL_FIT_ROWS = 700

SAMPLER_GRADIENT = 6.5e-6
"""Seconds a gradient of the log-density of a small network on those rows, on one core, with what a
sampler does about it (benchmarks/gradient.txt)."""

SAMPLER_PER_PARAMETER = 16e-9
"""More for each parameter of a larger network: positions, momenta and their noise
(`experiments/in_between.yaml`, two layers of 50)."""

DOUBLED = 2
"""Draws of a chain until its like agree, to those asked for: once or twice as many under normal and
Laplace priors, four times under Cauchy priors (`experiments/trust.yaml`)."""

FORWARD_FLOPS, FLOPS_PER_MULTIPLY_ADD = 2, 6
"""Two for the forward pass of a matrix product, and four more for its gradients."""

PRODUCTS = {"local_reparameterisation": 2, "flipout": 2}
"""Matrix products of an estimator, to one of the plain one: it has two of each size."""

FLOPS_PER_SECOND = 75e9
"""Single-precision matrix products, as reached on one core: more in dense networks, fewer in
convolutional ones (benchmarks/large_networks.txt)."""

SECONDS_PER_PARAMETER = 3e-9
"""Noise, transformation and Adam's update of one parameter of the guide, a step."""

PREDICTION = 7e-9
"""Seconds of one core for a prediction of one row by one draw of a small network: moments of class
probabilities over draws."""

DENSITY = 1.7e-6
"""The same of a predicted density: its quantiles and scores take all draws of a row together, many
times (`experiments/regression_sine.yaml`, a cell of 500 draws: 2.3e-6, of which 0.73 are left since
`prediction.density.summarise` pairs its components once)."""

MOMENT = 4e-8
"""The same of a number over a plane, of which moments are all that is kept: 10,000 points by 1,000
draws (`prediction.density.predict_moments`, processor time: 0.48 s)."""

DENSITIES = {"student_t": 10}
"""Times as long of other likelihoods than a normal one: Student's distribution function has no
form as quick as the normal one's, and quantiles and the ranked probability score ask it hundreds of
times a draw (`prediction.density.summarise` of 500 draws at 64 rows, processor time, medians of
five, on another machine than that: 1.25 s to 0.131 s)."""

PREDICTION_FLOPS = 50e9
"""Of the forward passes of larger networks, fewer than of training: draws come one by one
(benchmarks/predictions.txt)."""

STORING = 0.1
"""Seconds of a cell's trace and its file (benchmarks/end_to_end.txt, less its predictions)."""

UNKNOWN_ROWS = (60_000, 10_000)
"""Training and test rows where only loading tells them: those of the largest data set here,
MNIST."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of a cell or several, without compilation and the empty places of a job.

    Attributes
    ----------
    choosing_fits, final_fits
        Fits on part of the training rows, to choose by the others; fits on all of them.
    steps
        Gradient steps of all fits together.
    operations
        Steps × rows a step × multiply-adds of the forward pass.
    fitting, evaluating
        Rough times, in seconds of one core: of the steps; of predictions and of what is stored.
    """

    choosing_fits: int
    final_fits: int
    steps: int
    operations: float
    fitting: float
    evaluating: float

    @property
    def fits(self) -> int:
        """Fits of both kinds."""
        return self.choosing_fits + self.final_fits

    @property
    def seconds(self) -> float:
        """Rough time of one core."""
        return self.fitting + self.evaluating


def network_size(cell: Cell) -> int:
    """Number of scalar weights and biases."""
    return cell.network.size(cell.dataset.input_shape, cell.n_outputs)


def multiply_adds(cell: Cell) -> int:
    """Multiply-adds of the forward pass for one row."""
    return _multiply_adds(cell.network, cell.dataset.input_shape, cell.n_outputs)


@functools.cache
def _multiply_adds(network: Network, input_shape: tuple[int, ...], n_outputs: int) -> int:
    # Hundreds of cells share a network, and a plan asks several times of each.
    return network.multiply_adds(input_shape, n_outputs)


def is_large(cell: Cell) -> bool:
    """Whether the network is too large to fit many of them together."""
    return multiply_adds(cell) > LARGE_NETWORK


def takes_all_cores(cell: Cell) -> bool:
    """Whether a fit has the machine to itself, because it is large enough to fill it."""
    return multiply_adds(cell) > SHARED_NETWORK


def assumed_rows(dataset: DatasetSpec) -> tuple[int, int]:
    """Training and test rows, as far as they are known before loading."""
    if dataset.rows is not None:
        return dataset.rows
    train, test = (getattr(dataset, name, None) for name in ("train", "test"))
    return train or UNKNOWN_ROWS[0], test or UNKNOWN_ROWS[1]


def cell_work(cell: Cell) -> Work:
    """Work of one cell: fits to choose by, if rows are held out, and fits on all rows."""
    rows, settings = assumed_rows(cell.dataset)[0], cell.inference
    options = len(cell.hyperprior.candidates)
    if cell.is_sampled:
        return _sampling_work(cell, options if options > 1 else 0)
    choosing = options * settings.restarts if settings.validation > 0 else 0
    parts = [
        _fits(cell, choosing, choosing_rows(rows, settings.validation)),
        _fits(cell, settings.restarts, rows),
    ]
    steps, operations, seconds = (math.fsum(part) for part in zip(*parts, strict=True))
    return Work(choosing, settings.restarts, int(steps), operations, seconds, _evaluating(cell))


def _sampling_work(cell: Cell, choosing: int) -> Work:
    """Work of sampling; gradients of its chains count as steps."""
    rows, settings = assumed_rows(cell.dataset)[0], cell.inference
    share = choosing_rows(rows, settings.validation) / rows
    gradients = DOUBLED * settings.chains * settings.gradients * (1 + choosing * share)
    operations = gradients * rows * multiply_adds(cell)
    seconds = gradients * SAMPLER_GRADIENT * rows / SMALL_FIT_ROWS
    if is_large(cell):
        seconds = operations * FLOPS_PER_MULTIPLY_ADD / FLOPS_PER_SECOND
        seconds += gradients * SAMPLER_PER_PARAMETER * network_size(cell)
    return Work(choosing, 1, int(gradients), operations, seconds, _evaluating(cell))


def _evaluating(cell: Cell) -> float:
    """Seconds of what follows the fits of a cell: predictions, its trace and its file."""
    operations = FORWARD_FLOPS * multiply_adds(cell) / PREDICTION_FLOPS
    rows, mapped = _predictions(cell)
    if cell.dataset.task_of_rows == "classification":
        return STORING + (rows + mapped) * (PREDICTION + operations)
    targets = cell.dataset.n_targets
    density = DENSITY * DENSITIES.get(cell.likelihood.kind, 1) * targets
    return STORING + rows * (density + operations) + mapped * (MOMENT * targets + operations)


def _predictions(cell: Cell) -> tuple[float, float]:
    """Rows × draws that a cell predicts, and points of maps × draws."""
    dataset, predict = cell.dataset, cell.predict
    train, test = assumed_rows(dataset)
    if cell.is_sampled:
        mixed, distinct = cell.inference.chains, cell.inference.draws
    else:
        mixed, distinct = cell.inference.restarts, 1 if cell.inference.is_point else math.inf
    asked = predict.draws, predict.map_draws, predict.fresh.draws
    draws, map_draws, fresh_draws = (min(n, distinct) for n in asked)
    # All restarts predict the test rows, one the rest, unless they predict together.
    used = mixed if cell.is_sampled or predict.mixture != "best" else 1
    further = sum(getattr(spec, "size", None) or UNKNOWN_ROWS[1] for spec in predict.ood)
    further += getattr(dataset, "validation", None) or 0
    mapped = map_draws * used * predict.map.resolution**2 if dataset.is_planar else 0
    fresh = 0
    if isinstance(dataset, Synthetic):
        # All restarts pooled have as many draws as one alone.
        fresh = predict.fresh.size * fresh_draws * (used if mixed == used else used + 1)
    if dataset.task_of_rows == "regression":
        further += train + dataset.line_points
    traced = 0 if is_large(cell) and not predict.log_likelihood else predict.trace_draws * train
    return draws * (test * mixed + further * used) + fresh + traced, mapped


def total_work(cells: Iterable[Cell]) -> Work:
    """Work of several cells."""
    return in_all(map(cell_work, cells))


def in_all(works: Iterable[Work]) -> Work:
    """Several pieces of work together."""
    every = list(works)
    return Work(*(sum(getattr(work, one.name) for work in every) for one in fields(Work)))


def _fits(cell: Cell, fits: int, rows: int) -> tuple[int, float, float]:
    """Steps, operations and seconds of a number of fits on that many rows."""
    steps = fits * cell.inference.total_steps(rows)
    rows_a_step = min(cell.inference.batch or rows, rows)
    operations = rows_a_step * multiply_adds(cell)
    products = PRODUCTS.get(cell.inference.estimator, 1)
    seconds = products * FLOPS_PER_MULTIPLY_ADD * operations / FLOPS_PER_SECOND
    if not is_large(cell):
        seconds = max(seconds, SMALL_FIT_STEP * rows_a_step / SMALL_FIT_ROWS)
    seconds += SECONDS_PER_PARAMETER * network_size(cell)
    return steps, steps * operations, steps * seconds


# How much memory an experiment takes, told by its plan before anything is tried
#
# Of dense networks of 10 and 50 million parameters, fitted, predicted and stored with a mean-field
# guide, the largest process took 1.8 and 4.8 GB: 74 bytes a parameter and 1.1 GB beside them.


COMMAND, PROCESS = 0.85e9, 1.1e9
"""Bytes of the command and the process that draws beside it; of a worker, whatever it fits."""

BYTES_A_NUMBER = 37
"""Of a guide, which has two numbers for each parameter if it is a mean-field one: itself, its
gradient and two moments of Adam, some of them twice while a step is made."""

BYTES_A_DRAW = 12
"""Of each parameter in a draw of a chain, which is copied as it is collected and stored."""

BYTES_A_FEATURE = 24
"""Of each feature of a row, which is loaded, standardised and handed to a program."""


def cell_memory(cell: Cell) -> float:
    """Bytes of a worker that fits a cell, without what layers make of the rows of a step."""
    size, inference = network_size(cell), cell.inference
    if cell.is_sampled:
        own = BYTES_A_DRAW * inference.chains * inference.draws * size
    else:
        own = BYTES_A_NUMBER * size * _numbers(inference, size)
    features = math.prod(cell.dataset.input_shape)
    return PROCESS + own + BYTES_A_FEATURE * sum(assumed_rows(cell.dataset)) * features


def most_memory(cells: Iterable[Cell], workers: int) -> float:
    """Bytes of the command and all its workers at most: those that fit the largest cells."""
    alone: list[float] = []
    beside: list[float] = []
    for cell in cells:
        (alone if takes_all_cores(cell) else beside).append(cell_memory(cell))
    # A worker that has fitted a large cell keeps what it had; as if all came to such ones.
    of_workers = sum(sorted(beside)[-workers:])
    return COMMAND + max([of_workers, *alone])


def largest_network(memory: float) -> float:
    """Parameters of the largest network that a mean-field guide can be fitted to in that memory."""
    return max(0.0, memory - COMMAND - PROCESS) / (2 * BYTES_A_NUMBER)


def memory_line(cells: Collection[Cell], workers: int) -> str:
    """What memory the cells take at most, and how large a network could be."""
    taken, there = most_memory(cells, workers), total_memory()
    words = f"memory: about {taken / 1e9:.1f} GB at most"
    if there is None:
        return words
    words += f" of {there / 1e9:.1f} GB"
    if taken > there:
        words += ": TOO MUCH for this machine"
    largest = largest_network(there) / 1e6
    if largest < 1:  # small ones may fit all the same: what they take beside is an estimate
        return words
    return f"{words}; a network of up to {largest:,.0f} million parameters could be fitted"


def too_large_lines(cells: Iterable[Cell]) -> list[str]:
    """Cells that alone take more memory than there is, a line for those of one model."""
    there, found = total_memory(), {}
    for cell in cells:
        taken = COMMAND + cell_memory(cell)
        if there is not None and taken > there:
            words = " ".join([cell.sweep, cell.dataset.kind, *model_words(cell, scale=False)])
            found[words] = max(taken, found.get(words, 0.0))
    of = f"GB of {(there or 0.0) / 1e9:.1f} GB: its worker may be killed"
    return [f"too large: {words}: about {taken / 1e9:.1f} {of}" for words, taken in found.items()]


def _numbers(inference: Inference, size: int) -> int:
    """Numbers of a guide for each parameter."""
    if inference.is_point:
        return 1
    more = {"low_rank": inference.rank, "full_rank": size}
    return 2 + more.get(inference.guide, 0)
