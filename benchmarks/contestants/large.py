"""The large networks: their data, sizes and steps a chunk. NumPy only."""

from dataclasses import dataclass

import numpy as np

ROWS, FEATURES, CLASSES = 5_000, 784, 10
LEARNING_RATE, INITIAL_SCALE = 0.001, 0.02

DENSE = {
    "weight_1": (784, 400),
    "bias_1": (400,),
    "weight_2": (400, 400),
    "bias_2": (400,),
    "weight_3": (400, 10),
    "bias_3": (10,),
}
"""784-400-400-10 with relu: 478,410 parameters."""

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

SHAPES = {"dense": DENSE, "conv": CONVOLUTIONAL}
CHUNK = {("dense", 128): 3_000, ("dense", 500): 900, ("conv", 128): 60, ("conv", 500): 15}
"""Steps that are timed at once: enough for the start of a fit to weigh little."""


@dataclass(frozen=True)
class Task:
    """One network and batch, and what else the variant says, as in ``conv-128-flipout``."""

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
        """Steps that are timed at once: enough for the start of a fit to weigh little."""
        return CHUNK[self.network, self.batch]

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parameters by name."""
        return SHAPES[self.network]


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
