"""The large networks: their data, sizes and steps a chunk. NumPy only."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

ROWS, FEATURES, CLASSES = 5_000, 784, 10
LEARNING_RATE, INITIAL_SCALE = 0.001, 0.02

CONVOLUTIONAL = {
    "kernel_1": (1, 5, 5, 32),
    "bias_1": (32,),
    "kernel_2": (32, 5, 5, 32),
    "bias_2": (32,),
    "weight_3": (512, 64),
    "bias_3": (64,),
    "weight_4": (64, 10),
    "bias_4": (10,),
}
"""Two times 32 filters 5 × 5 tanh and max-pool 2 × 2, dense 64 tanh, dense 10: the report's."""

CHUNK = {"dense": 384_000, "conv": 7_680}
"""Rows of the steps that are timed at once: enough for the start of a fit to weigh little; of a
dense network of 784-400-400-10, and fewer of larger ones."""


def dense(units: int) -> dict[str, tuple[int, ...]]:
    """784-n-n-10 with relu; 478,410 parameters with 400 units."""
    sizes = (FEATURES, units, units, CLASSES)
    found: dict[str, tuple[int, ...]] = {}
    for layer, (inputs, outputs) in enumerate(pairwise(sizes), 1):
        found |= {f"weight_{layer}": (inputs, outputs), f"bias_{layer}": (outputs,)}
    return found


@dataclass(frozen=True)
class Task:
    """One network and batch, and what else the variant says, as in ``conv-128-flipout``.

    ``dense`` may have a number of units behind it, 400 unless it has.
    """

    network: str
    batch: int
    rest: str

    @classmethod
    def of(cls, variant: str) -> "Task":
        """Read a variant."""
        network, batch, *rest = variant.split("-")
        return cls(network, int(batch), "-".join(rest))

    @property
    def steps(self) -> int:
        """Steps that are timed at once."""
        if self.network == "conv":
            return CHUNK["conv"] // self.batch
        as_large = min(1.0, _size(dense(400)) / _size(self.shapes))
        return max(5, int(CHUNK["dense"] * as_large) // self.batch)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters by name."""
        if self.network == "conv":
            return CONVOLUTIONAL
        return dense(int(self.network.removeprefix("dense") or 400))


def _size(shapes: dict[str, tuple[int, ...]]) -> int:
    return sum(int(np.prod(shape)) for shape in shapes.values())


def rows() -> tuple[np.ndarray, np.ndarray]:
    """Pixels between 0 and 1 and labels: speed does not depend on what they show."""
    rng = np.random.default_rng(0)
    return rng.uniform(size=(ROWS, FEATURES)), rng.integers(0, CLASSES, ROWS)


def batches(task: Task) -> np.ndarray:
    """Row indices of the steps of a chunk, ``(step, batch)``."""
    return np.random.default_rng(1).integers(0, ROWS, (task.steps, task.batch))


def start(task: Task) -> dict[str, np.ndarray]:
    """First means by name, single precision."""
    rng = np.random.default_rng(2)
    return {n: 0.05 * rng.standard_normal(s).astype("f4") for n, s in task.shapes.items()}
