"""The large networks in JAX by hand; also the networks of the NumPyro contestant.

A variant's last word is the order of the axes: ``rows``, observations first, as one would write
it down; ``features``, observations last. Convolutions are patches times kernels, observations
last: the fastest form that we know within a loop.
"""

import jax
import jax.numpy as jnp
import optax

from contestants.large import LEARNING_RATE, Task, batches, rows, start
from contestants.serving import serve


def outputs(task: Task, v, x):
    """Class scores ``(class, observation)``."""
    if task.network == "conv":
        return _convolutional(v, x)
    return _dense_features(v, x) if task.rest == "features" else _dense_rows(v, x)


def _dense_rows(v, x):
    hidden = jnp.maximum(x @ v["weight_1"] + v["bias_1"], 0)
    hidden = jnp.maximum(hidden @ v["weight_2"] + v["bias_2"], 0)
    return (hidden @ v["weight_3"] + v["bias_3"]).T


def _dense_features(v, x):
    hidden = jnp.maximum(v["weight_1"].T @ x.T + v["bias_1"][:, None], 0)
    hidden = jnp.maximum(v["weight_2"].T @ hidden + v["bias_2"][:, None], 0)
    return v["weight_3"].T @ hidden + v["bias_3"][:, None]


def _convolutional(v, x):
    hidden = x.T.reshape(1, 28, 28, -1)
    for layer in (1, 2):
        hidden = jnp.tanh(_convolved(hidden, v[f"kernel_{layer}"], v[f"bias_{layer}"]))
        channels, size, _, n = hidden.shape
        hidden = hidden.reshape(channels, size // 2, 2, size // 2, 2, n).max((2, 4))
    hidden = jnp.tanh(v["weight_3"].T @ hidden.reshape(512, -1) + v["bias_3"][:, None])
    return v["weight_4"].T @ hidden + v["bias_4"][:, None]


def _convolved(images, kernels, bias):
    channels, size, _, n = images.shape
    after = size - 4
    windows = [images[:, i : i + after, j : j + after] for i in range(5) for j in range(5)]
    patches = jnp.stack(windows, axis=1).reshape(channels * 25, after * after * n)
    product = kernels.reshape(channels * 25, -1).T @ patches
    return product.reshape(-1, after, after, n) + bias[:, None, None, None]


def nll(task: Task, v, x, y):
    """Mean negative log-likelihood."""
    scores = outputs(task, v, x)
    one_hot = jax.nn.one_hot(y, len(scores), axis=0)
    return -jnp.sum(one_hot * jax.nn.log_softmax(scores, axis=0)) / len(y)


class Deterministic:
    """The same network trained by Adam on its likelihood alone."""

    def __init__(self, _, variant: str) -> None:
        self.task = Task.of(variant)
        x, y = rows()
        self.data = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.int32)
        self.indices = jnp.asarray(batches(self.task))
        self.parameters = {n: jnp.asarray(v) for n, v in start(self.task).items()}
        optimiser = optax.adam(LEARNING_RATE)
        self.state = optimiser.init(self.parameters)

        def train(parameters, state, indices, x, y):
            def step(i, carry):
                parameters, state = carry
                seen = x[indices[i]], y[indices[i]]
                gradient = jax.grad(lambda p: nll(self.task, p, *seen))(parameters)
                update, state = optimiser.update(gradient, state)
                return optax.apply_updates(parameters, update), state

            return jax.lax.fori_loop(0, len(indices), step, (parameters, state))

        self.program = jax.jit(train)

    def warm_up(self) -> int:
        """Compile, and make one chunk."""
        return self.chunk()

    def chunk(self) -> int:
        """Some steps."""
        found = self.program(self.parameters, self.state, self.indices, *self.data)
        jax.block_until_ready(found)
        return self.task.steps


if __name__ == "__main__":
    serve(Deterministic, ("jax", "optax", "numpy"), load=lambda path: None)
