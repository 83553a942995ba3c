"""NumPyro's SVI with ``AutoNormal``; a variant is a way to run and a way to write the network.

Ways to run: ``run`` is ``svi.run``, which traces and compiles at every call; ``scan`` loops
``svi.update`` in one compiled program that is kept; ``vmap`` maps that over sixteen fits.
Ways to write: ``plain``, observations first as in NumPyro's documentation; ``features``, with
the observations on the last axis, which XLA vectorises; ``factor``, features first and the
likelihood by hand as one-hot labels times log-probabilities, faster than ``Categorical``.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax_loop import one_cycle
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.initialization import init_to_value
from optax import adam

from contestants.serving import SHAPES, Problem, join, serve, split

WIDTH = 16


def network(x, y, written: str):
    """Standard normal priors; what is observed depends on how it is written."""
    v = {
        name: numpyro.sample(name, dist.Normal(0, 1).expand(shape).to_event(len(shape)))
        for name, shape in SHAPES.items()
    }
    if written == "plain":
        hidden = jnp.tanh(x @ v["weight_1"] + v["bias_1"])
        hidden = jnp.tanh(hidden @ v["weight_2"] + v["bias_2"])
        outputs = (hidden @ v["weight_3"] + v["bias_3"]).T
    else:
        hidden = jnp.tanh(v["weight_1"].T @ x.T + v["bias_1"][:, None])
        hidden = jnp.tanh(v["weight_2"].T @ hidden + v["bias_2"][:, None])
        outputs = v["weight_3"].T @ hidden + v["bias_3"][:, None]
    if written == "factor":
        one_hot = jax.nn.one_hot(y, 2, axis=0)
        numpyro.factor("y", jnp.sum(one_hot * jax.nn.log_softmax(outputs, axis=0)))
    else:
        with numpyro.plate("observations", len(y)):
            numpyro.sample("y", dist.Categorical(logits=outputs.T), obs=y)


class Numpyro:
    """One of the variants."""

    def __init__(self, problem: Problem, variant: str) -> None:
        self.problem = problem
        self.kind, written = variant.split("-")
        self.width = WIDTH if self.kind == "vmap" else 1
        self.data = jnp.asarray(problem.x, jnp.float32), jnp.asarray(problem.y, jnp.int32)
        model = partial(network, written=written)
        start = {n: jnp.asarray(v, jnp.float32) for n, v in split(problem.starts[0]).items()}
        guide = AutoNormal(
            model, init_loc_fn=init_to_value(values=start), init_scale=problem.initial_scale
        )
        optimiser = adam(one_cycle(problem.learning_rate, problem.steps))
        self.svi = SVI(model, guide, optimiser, Trace_ELBO())

    def warm_up(self) -> int:
        """Compile and make one whole fit, or group of them."""
        if self.kind != "run":
            self._build_program()
        return self.chunk()

    def chunk(self) -> int:
        """One whole fit, or group of them; ``svi.run`` compiles again, and that counts."""
        if self.kind == "run":
            key, steps = jax.random.key(0), self.problem.steps
            self.state = self.svi.run(key, steps, *self.data, progress_bar=False).state
        else:
            self.state, _ = self.program(self.start, *self.data)
        jax.block_until_ready(self.state)
        return self.width * self.problem.steps

    def _build_program(self) -> None:
        def fit(state, x, y):
            def step(state, _):
                return self.svi.update(state, x, y)

            return jax.lax.scan(step, state, length=self.problem.steps)

        states = [self._start(i) for i in range(self.width)]
        if self.width == 1:
            self.start, self.program = states[0], jax.jit(fit)
        else:
            self.start = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
            self.program = jax.jit(jax.vmap(fit, in_axes=(0, None, None)))

    def _start(self, i: int):
        means = split(self.problem.starts[i])
        parameters = {f"{n}_auto_loc": jnp.asarray(v, jnp.float32) for n, v in means.items()}
        return self.svi.init(jax.random.key(i), *self.data, init_params=parameters)

    def guide(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the last fits."""
        found = jax.vmap(self.svi.get_params)(self.state) if self.width > 1 else None
        if found is None:
            found = jax.tree.map(lambda a: a[None], self.svi.get_params(self.state))
        return tuple(
            np.stack([join({n: found[f"{n}_auto_{end}"][i] for n in SHAPES}) for i in range(width)])
            for end, width in (("loc", self.width), ("scale", self.width))
        )


if __name__ == "__main__":
    serve(Numpyro, ("numpyro", "jax", "optax", "numpy"))
