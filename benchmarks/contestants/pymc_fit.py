"""``pm.fit`` with Adam; variants are PyTensor's backends.

Each call of ``pm.fit`` builds its function anew, so one single call serves every request: a
callback lets it wait between chunks. What is timed is PyMC's own loop over the steps.
"""

import logging
import queue
import threading

import numpy as np
import pymc as pm

from contestants.pymc_network import network_model
from contestants.serving import Problem, join, serve, split


class PymcFit:
    """One call of ``pm.fit`` that stops for breath."""

    def __init__(self, problem: Problem, backend: str) -> None:
        self.problem, self.backend = problem, backend
        self.done, self.until = 0, 1
        self.requests: queue.SimpleQueue = queue.SimpleQueue()
        self.answers: queue.SimpleQueue = queue.SimpleQueue()

    def warm_up(self) -> int:
        """Compile and make one step."""
        threading.Thread(target=self._fit, daemon=True).start()
        self._wait()
        return 1

    def chunk(self) -> int:
        """Some more steps of the fit."""
        steps = min(self.problem.chunk, self.problem.steps - self.done)
        self.requests.put(steps)
        self._wait()
        return steps

    def guide(self) -> tuple[np.ndarray, np.ndarray]:
        """After the rest of the steps."""
        while self.done < self.problem.steps:
            self.chunk()
        group = self.approx.groups[0]
        parts = {}
        for name in ("mu", "rho"):
            flat = np.asarray(group.params_dict[name].get_value())
            parts[name] = join({var: flat[place[1]] for var, place in group.ordering.items()})
        return parts["mu"][None], np.logaddexp(0, parts["rho"])[None]

    def _wait(self) -> None:
        answer = self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        self.done = answer

    def _fit(self) -> None:
        start = split(self.problem.starts[0])
        # PyMC puts these into its flat vector as they are, so a matrix must be flat already.
        sigma = {name: np.full(v.size, self.problem.initial_scale) for name, v in start.items()}
        try:
            with network_model(self.problem.x, self.problem.y):
                pm.fit(
                    self.problem.steps,
                    method="advi",
                    start=start,
                    start_sigma=sigma,
                    obj_optimizer=pm.adam(learning_rate=self.problem.learning_rate),
                    callbacks=[self._pause],
                    progressbar=False,
                    backend=self.backend,
                    random_seed=0,
                )
        except Exception as error:
            self.answers.put(error)

    def _pause(self, approx, losses, step: int) -> None:
        if step == self.until:
            self.approx = approx
            self.answers.put(step)
            self.until += self.requests.get()


if __name__ == "__main__":
    logging.disable(logging.INFO)
    serve(PymcFit, ("pymc", "pytensor", "numba", "numpy"))
