"""The ``Trainer`` of pymc-extras; variants are PyTensor's backends."""

import numpy as np
from pymc_extras.inference.advi import (
    AutoDiagonalNormal,
    Trainer,
    adam,
    linear_onecycle_schedule,
)

from contestants.pymc_network import network_model
from contestants.serving import Problem, join, serve, split


class TrainerFit:
    """A trainer, which goes on where it was without compiling again."""

    def __init__(self, problem: Problem, backend: str) -> None:
        self.problem, self.done = problem, 0
        self.model = network_model(problem.x, problem.y)
        guide = AutoDiagonalNormal(self.model)
        start = split(problem.starts[0])
        for parameter in guide.params_init_values:
            name, kind = parameter.name.rsplit("_", 1)
            scale = np.full(start[name].shape, np.log(problem.initial_scale))
            guide.params_init_values[parameter] = start[name] if kind == "loc" else scale
        rate = linear_onecycle_schedule(problem.steps, problem.learning_rate, pct_start=0.1)
        self.trainer = Trainer(guide=guide, optimizer=adam(rate), backend=backend)

    def warm_up(self) -> int:
        """Compile and make one step."""
        return self._fit(1)

    def chunk(self) -> int:
        """Some more steps of the fit."""
        return self._fit(min(self.problem.chunk, self.problem.steps - self.done))

    def guide(self) -> tuple[np.ndarray, np.ndarray]:
        """After the rest of the steps."""
        while self.done < self.problem.steps:
            self.chunk()
        found = self.trainer.state.params
        loc, scale = (
            join({n.removesuffix(end): v for n, v in found.items() if n.endswith(end)})
            for end in ("_loc", "_scale")
        )
        return loc[None], np.exp(scale)[None]

    def _fit(self, steps: int) -> int:
        self.trainer.fit(steps, model=self.model)
        self.done += steps
        return steps


if __name__ == "__main__":
    serve(TrainerFit, ("pymc-extras", "pymc", "pytensor", "jax", "numba", "numpy"))
