"""The compiled engine on the large networks; a variant's last word is the estimator."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt

from contestants.large import INITIAL_SCALE, LEARNING_RATE, ROWS, Task, rows
from contestants.serving import serve
from pmbnn.inference.advi import build_program, constrained_parameters, init, prepare, run
from pmbnn.inference.batches import batch_indices
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.layers import convolve, max_pool


def model(task: Task, x, y) -> pm.Model:
    """A plain PyMC model with standard normal priors."""
    with pytensor.config.change_flags(floatX="float64"), pm.Model() as found:
        data = pm.Data("x", x, dims=("observation", "feature"))
        target = pm.Data("target", y, dims="observation")
        v = {
            name: pm.Normal(name, np.float64(0), np.float64(1), shape=shape)
            for name, shape in task.shapes.items()
        }
        scores = _convolutional(v, data) if task.network == "conv" else _dense(v, data)
        p = pt.special.softmax(scores.T, axis=-1)
        pm.Categorical("y", p=p, observed=target, dims="observation")
    return found


def _dense(v, x):
    hidden = pt.maximum(v["weight_1"].T @ x.T + v["bias_1"][:, None], 0.0)
    hidden = pt.maximum(v["weight_2"].T @ hidden + v["bias_2"][:, None], 0.0)
    return v["weight_3"].T @ hidden + v["bias_3"][:, None]


def _convolutional(v, x):
    hidden, shape = x.T.reshape((1, 28, 28, -1)), (1, 28, 28)
    for layer in (1, 2):
        hidden = convolve(hidden, v[f"kernel_{layer}"], shape, 5)
        hidden = pt.tanh(hidden + v[f"bias_{layer}"][:, None, None, None])
        after = (32, shape[1] - 4, shape[2] - 4)
        hidden = max_pool(hidden, after, 2)
        shape = (32, after[1] // 2, after[2] // 2)
    hidden = hidden.reshape((512, -1))
    hidden = pt.tanh(v["weight_3"].T @ hidden + v["bias_3"][:, None])
    return v["weight_4"].T @ hidden + v["bias_4"][:, None]


class Engine:
    """One fit at a time, as the sweep runs large networks."""

    def __init__(self, _, variant: str) -> None:
        self.task = task = Task.of(variant)
        x, y = rows()
        settings = Inference(
            steps=task.steps,
            batch=task.batch,
            estimator=task.rest,
            learning_rate=LEARNING_RATE,
            initial_scale=INITIAL_SCALE,
        )
        self.program = build_program(model(task, x[:1], y[:1]), settings, ROWS, width=1)
        self.replica = Replica({"x": x, "target": y}, derive_keys("large"))
        see = self.replica.keys.batches, ROWS, task.batch, 0, task.steps
        self.rows = batch_indices(*see).astype(np.int32)

    def warm_up(self) -> int:
        """Compile, and make one chunk."""
        return self.chunk()

    def chunk(self) -> int:
        """A short fit."""
        replica, program = self.replica, self.program
        state, data = init(replica, program), prepare(replica, program)
        state, _ = run(replica.key, state, program, data, self.task.steps, self.rows)
        constrained_parameters(state, program)
        return self.task.steps


if __name__ == "__main__":
    serve(Engine, ("pmbnn", "pymc", "pytensor", "jax", "numpy"), load=lambda path: None)
