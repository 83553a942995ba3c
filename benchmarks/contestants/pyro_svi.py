"""Pyro's SVI with ``AutoNormal``; variants ``Trace_ELBO`` and ``JitTrace_ELBO``."""

import numpy as np
import pyro
import pyro.distributions as dist
import torch
from pyro.infer import SVI
from pyro.infer.autoguide import AutoNormal
from pyro.infer.autoguide.initialization import init_to_value

from contestants.serving import SHAPES, Problem, join, serve, split


def network(x, y):
    """Standard normal priors; features first."""
    v = {
        name: pyro.sample(name, dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))
        for name, shape in SHAPES.items()
    }
    hidden = torch.tanh(v["weight_1"].T @ x.T + v["bias_1"][:, None])
    hidden = torch.tanh(v["weight_2"].T @ hidden + v["bias_2"][:, None])
    outputs = v["weight_3"].T @ hidden + v["bias_3"][:, None]
    with pyro.plate("observations", len(y)):
        pyro.sample("y", dist.Categorical(logits=outputs.T), obs=y)


class Pyro:
    """One fit, step by step from Python, as Pyro is used."""

    def __init__(self, problem: Problem, variant: str) -> None:
        torch.set_num_threads(1)
        self.problem, self.done = problem, 0
        self.data = torch.tensor(problem.x, dtype=torch.float32), torch.tensor(problem.y)
        start = {
            n: torch.tensor(v, dtype=torch.float32) for n, v in split(problem.starts[0]).items()
        }
        self.auto = AutoNormal(
            network, init_loc_fn=init_to_value(values=start), init_scale=problem.initial_scale
        )
        optimiser = pyro.optim.Adam({"lr": problem.learning_rate})
        self.svi = SVI(network, self.auto, optimiser, getattr(pyro.infer, variant)())

    def warm_up(self) -> int:
        """A few steps: the first ones trace."""
        return self._fit(5)

    def chunk(self) -> int:
        """Some more steps of the fit."""
        return self._fit(min(self.problem.chunk, self.problem.steps - self.done))

    def guide(self) -> tuple[np.ndarray, np.ndarray]:
        """After the rest of the steps."""
        while self.done < self.problem.steps:
            self.chunk()
        values = {n: v.detach().numpy() for n, v in pyro.get_param_store().items()}
        return tuple(
            join({n: values[f"AutoNormal.{kind}.{n}"] for n in SHAPES})[None]
            for kind in ("locs", "scales")
        )

    def _fit(self, steps: int) -> int:
        for _ in range(steps):
            self.svi.step(*self.data)
        self.done += steps
        return steps


if __name__ == "__main__":
    serve(Pyro, ("pyro-ppl", "torch", "numpy"))
