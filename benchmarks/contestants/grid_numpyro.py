"""Seconds of the grid's fits in NumPyro: one JSON line, compilation and a compiled fit apart.

Two models stand for the thirteen of the grid: a fixed scale, and one half-Cauchy scale a layer
(non-centred). Each is features first and kept compiled, with the data as arguments, so that
cells of one model and number of rows share the program: the fastest way that we found.
"""

import json
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from jax_loop import one_cycle
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal
from numpyro.infer.initialization import init_to_sample
from optax import adam

from contestants.serving import SHAPES, Problem

REPEATS = 3


def network(x, y, learned: bool):
    """Normal priors, their scales 1 or learned."""
    v = {}
    for name, shape in SHAPES.items():
        layer = name[-1]
        if learned and name.startswith("weight"):
            v[f"scale_{layer}"] = numpyro.sample(f"scale_{layer}", dist.HalfCauchy(1.0))
        z = numpyro.sample(name, dist.Normal(0, 1).expand(shape).to_event(len(shape)))
        v[name] = z * v[f"scale_{layer}"] if learned else z
    hidden = jnp.tanh(v["weight_1"].T @ x.T + v["bias_1"][:, None])
    hidden = jnp.tanh(v["weight_2"].T @ hidden + v["bias_2"][:, None])
    outputs = v["weight_3"].T @ hidden + v["bias_3"][:, None]
    with numpyro.plate("observations", len(y)):
        numpyro.sample("y", dist.Categorical(logits=outputs.T), obs=y)


def measured(problem: Problem, learned: bool, width: int) -> dict[str, float]:
    """Seconds to build and compile a program of `width` fits, and of a fit in it."""
    start = time.perf_counter()
    x, y = jnp.asarray(problem.x, jnp.float32), jnp.asarray(problem.y, jnp.int32)

    def model(x, y):
        network(x, y, learned)

    guide = AutoNormal(model, init_loc_fn=init_to_sample, init_scale=problem.initial_scale)
    svi = SVI(model, guide, adam(one_cycle(problem.learning_rate, problem.steps)), Trace_ELBO())

    def fit(state, x, y):
        return jax.lax.scan(lambda s, _: svi.update(s, x, y), state, length=problem.steps)

    states = [svi.init(jax.random.key(i), x, y) for i in range(width)]
    arguments = (jax.tree.map(lambda *leaves: jnp.stack(leaves), *states), x, y)
    program = jax.jit(jax.vmap(fit, in_axes=(0, None, None)))
    program = program.lower(*arguments).compile()
    compiled = time.perf_counter()
    spent = []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        spent.append((time.perf_counter() - begun) / width)
    return {"compile": compiled - start, "fit": statistics.median(spent)}


if __name__ == "__main__":
    given = Problem.load(sys.argv[1])
    print(
        json.dumps(
            {
                str(width): [measured(given, learned, width) for learned in (False, True)]
                for width in (1, 16)
            }
        )
    )
