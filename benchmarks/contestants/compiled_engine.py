"""The compiled engine of this project, from the plain PyMC model."""

import numpy as np

from contestants.serving import Problem, serve
from pmbnn.data import Moons
from pmbnn.inference.advi import build_program
from pmbnn.inference.groups import fit
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.build import dense_classifier, model_data
from pmbnn.models.hyperpriors import Fixed

NOISE = 0.4
"""Of the moons: the very rows that the other contestants are handed."""


class Group:
    """As many fits as the variant says, in one program."""

    def __init__(self, problem: Problem, variant: str) -> None:
        self.width, self.steps = int(variant), problem.steps
        settings = Inference(
            steps=problem.steps,
            learning_rate=problem.learning_rate,
            initial_scale=problem.initial_scale,
        )
        rows = Moons(noise=NOISE).load().training
        model = dense_classifier(rows.x, rows.y, prior="normal")
        self.program = build_program(model, settings, len(rows), self.width)
        data = model_data(Fixed(), rows)
        self.replicas = [Replica(data, derive_keys(str(i))) for i in range(self.width)]

    def warm_up(self) -> int:
        """One whole group of fits."""
        return self.chunk()

    def chunk(self) -> int:
        """One whole group of fits."""
        self.fits = fit(self.program, self.replicas)
        return self.width * self.steps

    def guide(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the last group."""
        return np.stack([f.loc for f in self.fits]), np.stack([f.scale for f in self.fits])


if __name__ == "__main__":
    serve(Group, ("pmbnn", "pymc", "pytensor", "jax", "optax", "numpy"))
