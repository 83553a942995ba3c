"""How much work and memory a cell takes: fits, gradient steps, seconds and bytes.

Seconds are those of one core, by one measured constant for each kind of work. Estimates are right
within a factor of three; the time left is corrected by what jobs took, once some are done
(`pmbnn.fitting.progress`).
"""

import functools
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, fields

from pmbnn.core.machine import total_memory
from pmbnn.data import Synthetic
from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Cell, choosing_rows, model_words
from pmbnn.models.hyperpriors import Match
from pmbnn.models.matching import INPUTS, n_draws
from pmbnn.models.networks import Network

LARGE_NETWORK = 2_000
"""Multiply-adds a row above which fits are run one by one: each fills a core by itself.

A dense network takes one for each parameter; a convolution takes each kernel many times."""

SHARED_NETWORK = 200_000
"""Multiply-adds a row above which a fit has all cores. Below it a second core helps one fit little,
and two fits beside each other have nearly all of it."""

ROW = 1.1e-8
"""Seconds a row of a gradient step of a small network: 8e-6 s at 700 rows
(benchmarks/small_network.txt)."""

MULTIPLY_ADD = 8e-11
"""Seconds a multiply-add of a gradient step of a large network, six floating-point operations
(benchmarks/large_networks.txt)."""

PARAMETER = 7e-9
"""Seconds a parameter of any gradient step: 3e-9 in a fit (noise and Adam's update), 16e-9 in a
sampler (`experiments/in_between.yaml`)."""

CHAIN_LENGTH = 2
"""Draws of a chain that may double until the chains agree, relative to those asked for: one or two
under normal and Laplace priors, four under Cauchy priors (`experiments/trust.yaml`)."""

PREDICTION = {"categorical": 7e-9, "normal": 1.7e-6, "student_t": 1.7e-5}
"""Seconds to predict one row by one draw, by likelihood. Class probabilities are averaged;
quantiles and scores of a density take all draws of a row together, many times."""

STORING = 0.1
"""Seconds of a cell's trace and its file (benchmarks/end_to_end.txt, less its predictions)."""

MATCHING, MATCHES, MATCHED_MULTIPLY_ADD = 2.0, 100, 3e-10
"""Seconds of matching the scales of any network to a Gaussian process; number of times that all
outputs are computed, 70 to 170; and seconds a multiply-add of that, in double precision and
interpreted. Networks of 51 to 11,101 multiply-adds took 2 to 25 s."""

UNKNOWN_ROWS = (60_000, 10_000)
"""Training and test rows of data sets whose size is known only after loading: those of MNIST, the
largest data set here."""


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one or several cells, without compilation and the empty places of a job.

    Attributes
    ----------
    choosing_fits, final_fits
        Fits on part of the training rows, to choose by the others; fits on all of them.
    steps
        Gradient steps of all fits together; gradients of all chains.
    operations
        Steps × rows a step × multiply-adds of the forward pass.
    fitting, evaluating
        Estimated seconds of one core: of the steps; of predictions, of what is stored, and of
        scales that are matched.
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
        """Estimated seconds of one core."""
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
    train, test = (declared_size(dataset, name) for name in ("train", "test"))
    return train or UNKNOWN_ROWS[0], test or UNKNOWN_ROWS[1]


def declared_size(dataset: DatasetSpec, name: str) -> int | None:
    """Number of rows that a field of a data set says; in those of plugins it may be a share."""
    size = getattr(dataset, name, None)
    return size if type(size) is int else None


def cell_work(cell: Cell) -> Work:
    """Work of one cell: fits to choose by, if rows are held out, and fits on all rows."""
    rows, settings = assumed_rows(cell.dataset)[0], cell.inference
    options = len(cell.hyperprior.candidates)
    if cell.is_sampled:
        choosing, final = options if options > 1 else 0, 1
    else:
        choosing = options * settings.restarts if settings.validation > 0 else 0
        # Without held-out rows every candidate is fitted to all rows, and its evidence compared.
        final = settings.restarts * (1 if settings.validation > 0 else options)
    steps, operations, seconds = 0, 0, 0.0
    for fits, n_rows in ((choosing, choosing_rows(rows, settings.validation)), (final, rows)):
        if cell.is_sampled:
            length = CHAIN_LENGTH if settings.doublings else 1
            gradients, batch = length * settings.chains * settings.gradients, n_rows
        else:
            gradients = settings.total_steps(n_rows)
            batch = min(settings.batch or n_rows, n_rows)
        a_row = max(ROW, MULTIPLY_ADD * multiply_adds(cell))
        steps += fits * gradients
        operations += fits * gradients * batch * multiply_adds(cell)
        seconds += fits * gradients * (batch * a_row + PARAMETER * network_size(cell))
    return Work(choosing, final, steps, operations, seconds, _evaluating(cell) + _matching(cell))


def total_work(cells: Iterable[Cell]) -> Work:
    """Work of several cells together."""
    works = [cell_work(cell) for cell in cells]
    return Work(*(sum(getattr(work, one.name) for work in works) for one in fields(Work)))


def _matching(cell: Cell) -> float:
    """Seconds of matching the scales of a cell to a Gaussian process, if they are."""
    if not isinstance(cell.scale, Match):
        return 0.0
    shape = cell.dataset.input_shape
    outputs = n_draws(cell.network, shape) * INPUTS
    a_row = MATCHED_MULTIPLY_ADD * _multiply_adds(cell.network, shape, 1)
    return MATCHING + MATCHES * outputs * a_row


def _evaluating(cell: Cell) -> float:
    """Seconds of what follows the fits of a cell: predictions, its trace and its file."""
    rows, map_points = _predictions(cell)
    mean = PREDICTION["categorical"]
    whole = mean if cell.dataset.task_of_rows == "classification" else PREDICTION["normal"]
    whole = PREDICTION.get(cell.likelihood.kind, whole)
    outputs = cell.dataset.n_targets * (rows * whole + map_points * mean)
    return STORING + outputs + (rows + map_points) * MULTIPLY_ADD * multiply_adds(cell)


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
    further += getattr(dataset, "validation", None) or getattr(dataset, "calibration", 0) * train
    map_points = map_draws * used * predict.map.resolution**2 if dataset.is_planar else 0
    fresh = 0
    if isinstance(dataset, Synthetic):
        # All restarts pooled have as many draws as one alone.
        fresh = predict.fresh.size * fresh_draws * (used if mixed == used else used + 1)
    if dataset.task_of_rows == "regression":
        further += train + dataset.line_points
    traced = 0 if is_large(cell) and not predict.log_likelihood else predict.trace_draws * train
    return draws * (test * mixed + further * used) + fresh + traced, map_points


# Memory of dense networks of 10 and 50 million parameters, fitted, predicted and stored with a
# mean-field guide: the largest process took 1.8 and 4.8 GB, 74 bytes a parameter and 1.1 GB beside.


COMMAND, PROCESS = 0.85e9, 1.1e9
"""Bytes of the command and the process that draws beside it; of a worker, whatever it fits."""

BYTES_A_NUMBER = 37
"""Bytes a number of a guide, two numbers for each parameter if it is a mean-field one: itself, its
gradient and two moments of Adam, some of them twice while a step is made."""

BYTES_A_DRAW = 12
"""Bytes a parameter in a draw of a chain, which is copied as it is collected and stored."""

BYTES_A_FEATURE = 24
"""Bytes a feature of a row, which is loaded, standardised and handed to a program."""


def cell_memory(cell: Cell) -> float:
    """Bytes of a worker that fits a cell, without what layers make of the rows of a step."""
    size, inference = network_size(cell), cell.inference
    if cell.is_sampled:
        state = BYTES_A_DRAW * inference.chains * inference.draws * size
    elif not inference.has_entropy:
        state = BYTES_A_NUMBER * size
    else:
        covariance = {"low_rank": inference.rank, "full_rank": size, "laplace": size}
        state = BYTES_A_NUMBER * size * (2 + covariance.get(inference.guide, 0))
    features = math.prod(cell.dataset.input_shape)
    return PROCESS + state + BYTES_A_FEATURE * sum(assumed_rows(cell.dataset)) * features


def most_memory(cells: Iterable[Cell], workers: int) -> float:
    """Bytes of the command and all its workers at most: those that fit the largest cells."""
    alone: list[float] = []
    shared: list[float] = []
    for cell in cells:
        (alone if takes_all_cores(cell) else shared).append(cell_memory(cell))
    # A worker that has fitted a large cell keeps its memory: every worker may get a large one.
    return COMMAND + max([sum(sorted(shared)[-workers:]), *alone])


def largest_network(memory: float) -> float:
    """Parameters of the largest network that a mean-field guide can be fitted to in that memory."""
    return max(0.0, memory - COMMAND - PROCESS) / (2 * BYTES_A_NUMBER)


def memory_line(cells: Collection[Cell], workers: int, verbose: bool = False) -> str:
    """Line with the memory that the cells take at most; a verbose one says what network fits."""
    needed, available = most_memory(cells, workers), total_memory()
    line = f"memory: about {needed / 1e9:.1f} GB at most"
    if available is None:
        return line
    line += f" of {available / 1e9:.1f} GB"
    if needed > available:
        line += ": TOO MUCH for this machine"
    largest = largest_network(available) / 1e6
    if (
        not verbose or largest < 1
    ):  # small networks may fit all the same: memory beside them is an estimate
        return line
    return f"{line}; a network of up to {largest:,.0f} million parameters could be fitted"


def too_large_lines(cells: Iterable[Cell]) -> list[str]:
    """Lines on cells that alone take more memory than there is, one for each model."""
    available, needed = total_memory(), {}
    for cell in cells:
        memory = COMMAND + cell_memory(cell)
        if available is not None and memory > available:
            model = " ".join([cell.sweep, cell.dataset.kind, *model_words(cell, scale=False)])
            needed[model] = max(memory, needed.get(model, 0.0))
    of_all = f"GB of {(available or 0.0) / 1e9:.1f} GB: its worker may be killed"
    return [f"too large: {m}: about {memory / 1e9:.1f} {of_all}" for m, memory in needed.items()]
