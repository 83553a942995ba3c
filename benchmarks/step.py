"""One ADVI step of the 2-5-5-2 network on 700 points, in a group of 16, on one core.

Compares, side by side in one run: the compiled engine from the plain PyMC model; a bare JAX
loop of the same network written by hand (features first, one-hot labels, the same optimiser,
schedule and noise); and ``pm.fit`` with Adam and PyTensor's C backend. Ratios of medians are
what counts: absolute times depend on the machine.

Run: ``uv run python benchmarks/step.py > benchmarks/step.txt`` (two minutes).
"""

import os

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["OMP_NUM_THREADS"] = "1"
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import logging
import statistics
import time
import warnings
from importlib.metadata import version

import jax
import jax.numpy as jnp
import optax
import pymc as pm

from pmbnn.datasets import Moons
from pmbnn.inference.compiled import CompiledEngine
from pmbnn.inference.fit import Member, random_streams
from pmbnn.inference.jax_edge import precision
from pmbnn.inference.optimisers import build_optimiser
from pmbnn.inference.settings import Inference
from pmbnn.models import dense_classifier, model_data
from pmbnn.priors import Fixed

STEPS, WIDTH, REPEATS, PYMC_STEPS = 10_000, 16, 5, 3_000


def hand_written_loss(parameters, noise, x, one_hot):
    """Negative ELBO of the network with a standard normal prior, features first."""
    loc, rho = parameters
    scale = jax.nn.softplus(rho)
    z = loc + scale * noise
    h = jnp.tanh(z[:10].reshape(2, 5).T @ x + z[10:15, None])
    h = jnp.tanh(z[15:40].reshape(5, 5).T @ h + z[40:45, None])
    outputs = z[45:55].reshape(5, 2).T @ h + z[55:57, None]
    log_likelihood = jnp.sum(one_hot * jax.nn.log_softmax(outputs, axis=0))
    log_prior = -0.5 * jnp.sum(z**2) - 0.5 * z.size * jnp.log(2 * jnp.pi)
    entropy = jnp.sum(jnp.log(scale)) + 0.5 * z.size * (1 + jnp.log(2 * jnp.pi))
    return -(log_likelihood + log_prior + entropy)


def hand_written_loop(settings, rows):
    """The whole fit of 16 members as one program, and its arguments."""
    optimiser = build_optimiser(settings, STEPS)

    def fit(parameters, key, x, one_hot):
        def step(carry, i):
            parameters, state = carry
            noise = jax.random.normal(jax.random.fold_in(key, i), (57,))
            loss, gradient = jax.value_and_grad(hand_written_loss)(parameters, noise, x, one_hot)
            update, state = optimiser.update(gradient, state)
            return (optax.apply_updates(parameters, update), state), loss

        carry = (parameters, optimiser.init(parameters))
        return jax.lax.scan(step, carry, jnp.arange(STEPS))

    loc = 0.5 * jax.random.normal(jax.random.key(1), (WIDTH, 57))
    parameters = (loc, jnp.full((WIDTH, 57), -3.0))
    x = jnp.tile(jnp.asarray(rows.x.T, jnp.float32), (WIDTH, 1, 1))
    one_hot = jnp.tile(jnp.eye(2)[rows.y].T, (WIDTH, 1, 1))
    keys = jax.random.split(jax.random.key(0), WIDTH)
    return jax.jit(jax.vmap(fit)), (parameters, keys, x, one_hot)


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def pymc_seconds_per_step(model):
    """Median over repeats of ``pm.fit``'s time for a step, compilation left out."""
    with model:
        advi = pm.ADVI(random_seed=0)
        settings = {
            "obj_optimizer": pm.adam(learning_rate=0.02),
            "progressbar": False,
            "backend": "c",
        }
        short, times = 100, []
        for _ in range(3):
            few = seconds(lambda: advi.fit(short, **settings))
            many = seconds(lambda: advi.fit(PYMC_STEPS + short, **settings))
            times.append((many - few) / PYMC_STEPS)
    return statistics.median(times)


def main():
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    rows = Moons(noise=0.4).load().training
    settings = Inference(steps=STEPS)
    model = dense_classifier(rows.x, rows.y, prior="normal")
    engine = CompiledEngine(model, settings, len(rows), WIDTH)
    data = model_data(Fixed(), rows)
    members = [Member(data, random_streams(str(i))) for i in range(WIDTH)]
    with precision("float32"):
        loop, arguments = hand_written_loop(settings, rows)
        calls = {
            "compiled engine": lambda: engine.fit(members),
            "hand-written JAX loop": lambda: jax.block_until_ready(loop(*arguments)),
        }
        times = {name: [] for name in calls}
        for call in calls.values():
            call()  # compiles
        for _ in range(REPEATS):
            for name, call in calls.items():
                times[name].append(seconds(call) / STEPS / WIDTH)
    medians = {name: statistics.median(found) for name, found in times.items()}
    medians["pm.fit (Adam, C backend)"] = pymc_seconds_per_step(model)
    by_hand = medians["hand-written JAX loop"]
    packages = ("pymc", "pytensor", "jax", "optax", "numpy")
    print("one ADVI step of one fit, 2-5-5-2 tanh, 700 points, group of 16, one core")
    print(", ".join(f"{p} {version(p)}" for p in packages))
    print(f"{'':28}{'us a step':>12}{'ratio to hand-written':>24}")
    for name, median in medians.items():
        print(f"{name:28}{1e6 * median:12.1f}{median / by_hand:24.2f}")
    spread = ", ".join(f"{min(t) / by_hand:.2f}-{max(t) / by_hand:.2f}" for t in times.values())
    print(f"range of ratios over {REPEATS} runs (engine, by hand): {spread}")


if __name__ == "__main__":
    main()
