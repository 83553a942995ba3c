"""The function across the gap of ``experiments/in_between.yaml`` by a sampler without pmbnn's code.

Given the hidden layers, the last layer of a network and its Gaussian noise are a Bayesian linear
regression, so it is integrated out. Chains of Hamiltonian Monte Carlo, whose steps are accepted or
rejected, move over the other weights, in units of their prior's standard deviations and in double
precision. Moments of the function along the line are means over draws of the exact ones given the
hidden layers; their errors are jackknives over chains.

Run: ``PMBNN_DATA=FOLDER python benchmarks/in_between_exact.py --scale 3`` (three processor minutes
at 50 units; ``--start map`` starts at modes instead of draws of the prior).
"""

import argparse
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

jax.config.update("jax_enable_x64", True)

NOISE, LAYERS, POINTS = 0.1, 2, 81
SHOWN = -2.8, -2.0, -1.4, -1.1, -0.7, -0.35, 0.0, 0.35, 0.7, 1.1, 1.4, 2.0, 2.8


def build(rows, line, scale: float, bias_scale: float, width: int):
    """Log-density of the hidden layers, moments of the function given these, and their number."""
    x, y = jnp.asarray(rows[:, :2]), jnp.asarray(rows[:, 2])
    line = jnp.asarray(line)
    fans = [2] + [width] * (LAYERS - 1)
    shapes = [shape for fan in fans for shape in ((fan, width), (width,))]
    sizes = [int(np.prod(shape)) for shape in shapes]
    variance, cuts = NOISE**2, np.cumsum(sizes)[:-1]

    def features(z, inputs):
        parts = [part.reshape(s) for part, s in zip(jnp.split(z, cuts), shapes, strict=True)]
        units = inputs
        for layer, fan in enumerate(fans):
            weights, biases = parts[2 * layer], parts[2 * layer + 1]
            units = jax.nn.relu(units @ weights * (scale / fan**0.5) + bias_scale * biases)
        ones = bias_scale * jnp.ones((inputs.shape[0], 1))
        return jnp.concatenate([units * (scale / width**0.5), ones], axis=1)

    def regression(z):
        at_rows = features(z, x)
        root = jnp.linalg.cholesky(jnp.eye(width + 1) + at_rows.T @ at_rows / variance)
        return root, solve_triangular(root, at_rows.T @ y, lower=True)

    def log_density(z):
        root, u = regression(z)
        fit = -0.5 * (y @ y / variance - u @ u / variance**2)
        return fit - jnp.log(jnp.diag(root)).sum() - 0.5 * z @ z

    def moments(z):
        root, u = regression(z)
        v = solve_triangular(root, features(z, line).T, lower=True)
        return v.T @ u / variance, (v**2).sum(axis=0)

    return log_density, moments, sum(sizes)


def build_trajectory(log_density):
    """A compiled function: all chains after a trajectory of Hamiltonian Monte Carlo."""
    slope = jax.value_and_grad(log_density)

    def trajectory(z, value, gradient, key, step, steps):
        key_momentum, key_accept = jax.random.split(key)
        momentum = jax.random.normal(key_momentum, z.shape)

        def leapfrog(_, state):
            z, p, _, gradient = state
            p = p + 0.5 * step * gradient
            z = z + step * p
            value, gradient = slope(z)
            return z, p + 0.5 * step * gradient, value, gradient

        new = jax.lax.fori_loop(0, steps, leapfrog, (z, momentum, value, gradient))
        change = (new[2] - 0.5 * new[1] @ new[1]) - (value - 0.5 * momentum @ momentum)
        acceptance = jnp.minimum(1.0, jnp.exp(jnp.where(jnp.isnan(change), -jnp.inf, change)))
        accepted = jax.random.uniform(key_accept) < acceptance
        kept = zip((new[0], *new[2:]), (z, value, gradient), strict=True)
        return *(jnp.where(accepted, a, b) for a, b in kept), acceptance

    @jax.jit
    def advance(z, value, gradient, key, step, steps):
        keys = jax.random.split(key, z.shape[0])
        return jax.vmap(trajectory, (0, 0, 0, 0, None, None))(z, value, gradient, keys, step, steps)

    return advance, jax.jit(jax.vmap(slope))


def uphill(z, slope, steps: int = 1500, rate: float = 0.02):
    """The chains after Adam on the log-density, from a tenth of the prior's width."""
    z, first, second = 0.1 * z, jnp.zeros_like(z), jnp.zeros_like(z)
    for t in range(1, steps + 1):
        _, gradient = slope(z)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient * gradient
        z = z + rate * (first / (1 - 0.9**t)) / (jnp.sqrt(second / (1 - 0.999**t)) + 1e-8)
    return z


def sample(target, options):
    """Means and variances along the line given the hidden layers, ``(draw, chain, point)``."""
    log_density, moments, size = target
    advance, slope = build_trajectory(log_density)
    moments = jax.jit(jax.vmap(moments))
    key, own = jax.random.split(jax.random.PRNGKey(options.seed))
    z = jax.random.normal(own, (options.chains, size))
    if options.start == "map":
        z = uphill(z, slope)
    value, gradient = slope(z)
    rng, kept = np.random.default_rng(options.seed), []
    step, mean_log_step, excess = options.first_step, 0.0, 0.0
    for t in range(options.warm_up + options.draws):
        size_now = step if t < options.warm_up else float(np.exp(mean_log_step))
        size_now *= rng.uniform(0.8, 1.2)
        steps = int(np.ceil(options.length * rng.uniform(0.6, 1.4) / size_now)) if t >= 20 else 20
        key, own = jax.random.split(key)
        steps = min(max(1, steps), options.most_steps)
        z, value, gradient, acceptance = advance(z, value, gradient, own, size_now, steps)
        if t < options.warm_up:  # dual averaging, as in Hoffman and Gelman (2014)
            share = 1 / (t + 11)
            excess = (1 - share) * excess + (options.acceptance - float(acceptance.mean())) * share
            log_step = np.log(options.first_step) - np.sqrt(t + 1) / 0.05 * excess
            log_step = min(log_step, np.log(0.5))
            weight = (t + 1) ** -0.75
            mean_log_step = weight * log_step + (1 - weight) * mean_log_step
            step = float(np.exp(log_step))
        else:
            kept.append(moments(z))
    print(f"step {np.exp(mean_log_step):.4f}, last acceptance {float(acceptance.mean()):.2f}")
    return (np.array(values) for values in zip(*kept, strict=True))


def split_rhat(values) -> float:
    """Split R-hat of values, ``(draw, chain)``."""
    half = len(values) // 2
    halves = np.concatenate([values[:half], values[half : 2 * half]], axis=1)
    within, between = halves.var(axis=0, ddof=1).mean(), half * halves.mean(axis=0).var(ddof=1)
    return float(np.sqrt(((half - 1) / half * within + between / half) / within))


def sd_of(mean, variance):
    """Standard deviation of the function over draws and chains, ``(point,)``."""
    return np.sqrt((variance + mean**2).mean(axis=(0, 1)) - mean.mean(axis=(0, 1)) ** 2)


def main() -> None:
    """Sample, and print mean, standard deviation and its error at some points of the line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=3.0)
    parser.add_argument("--bias-scale", type=float, default=1.0)
    parser.add_argument("--width", type=int, default=50)
    parser.add_argument("--start", choices=("prior", "map"), default="prior")
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--warm-up", type=int, default=120)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first-step", type=float, default=0.02)
    parser.add_argument("--length", type=float, default=1.5, help="of a trajectory")
    parser.add_argument("--most-steps", type=int, default=400)
    parser.add_argument("--acceptance", type=float, default=0.8)
    options = parser.parse_args()
    file = Path(os.environ["PMBNN_DATA"]) / "in_between" / "origin.csv"
    rows = np.loadtxt(file, delimiter=",", skiprows=1)
    position = np.linspace(-(8**0.5), 8**0.5, POINTS)
    line = position[:, None] / 2**0.5 * np.ones(2)
    target = build(rows, line, options.scale, options.bias_scale, options.width)
    mean, variance = sample(target, options)
    chains, sd = mean.shape[1], sd_of(mean, variance)
    without = (np.delete(np.arange(chains), chain) for chain in range(chains))
    left = np.array([sd_of(mean[:, those], variance[:, those]) for those in without])
    error = np.sqrt((chains - 1) / chains * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    overall = mean.mean(axis=(0, 1))
    squares = np.log(variance + (mean - overall) ** 2)
    of = (max(split_rhat(v[:, :, i]) for i in range(POINTS)) for v in (mean, squares))
    print("R-hat along the line, at most, of mean {:.3f} and log square {:.3f}".format(*of))
    middle = POINTS // 2
    print(f"half-way: mean {overall[middle]:.3f}, sd {sd[middle]:.3f} ± {error[middle]:.3f}")
    at = [np.abs(position - shown).argmin() for shown in SHOWN]
    for name, values in (("lambda", position), ("mean", overall), ("sd", sd), ("error", error)):
        print(f"{name:7}" + " ".join(f"{values[i]:7.3f}" for i in at))
    print(f"{time.process_time():.0f} processor seconds")


if __name__ == "__main__":
    main()
