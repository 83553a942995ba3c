"""How much memory an experiment takes, told by its plan before anything is tried.

Of dense networks of 10 and 50 million parameters, fitted, predicted and stored with a mean-field
guide, the largest process took 1.8 and 4.8 GB: 74 bytes a parameter and 1.1 GB beside them.
"""

import math
from collections.abc import Collection, Iterable

from pmbnn.core.device import total_memory
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.cost import assumed_rows, network_size, takes_all_cores
from pmbnn.experiment.names import model_words
from pmbnn.inference.settings import Inference

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
