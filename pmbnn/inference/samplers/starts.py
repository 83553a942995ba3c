"""Where chains start: dispersed points, brought near where the posterior is."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from pmbnn.inference.result import derive_keys
from pmbnn.inference.samplers.settings import Dispersed

NARROW = 0.1
"""Standard deviation of a guide at first, in those of the dispersed points."""

CANDIDATES = 100
"""Starts that are tried until one has a finite density and gradient, as Stan does."""


def chain_keys(identity: str, chains: int) -> Iterator[jax.Array]:
    """PRNG keys of starts, of tuning, and of draws: ``(chain, 2)`` each, every chain its own."""
    keys = [derive_keys(f"{identity}/{chain}") for chain in range(chains)]
    for name in ("initial", "noise", "draws"):
        yield jnp.asarray(np.stack([getattr(key, name)[:2] for key in keys]), jnp.uint32)


def key_of(words) -> jax.Array:
    """A key that gives the same numbers under vmap, which those of faster generators do not."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def find_start(key, log_density: Callable, size: int, settings: Dispersed, dtype) -> jax.Array:
    """Where a chain starts, ``(size,)``: uphill from a dispersed point; a JAX function."""
    point = _dispersed(key, log_density, size, settings, dtype)
    if settings.uphill == "elbo":
        return _drawn_uphill(jax.random.fold_in(key, 1), point, log_density, settings)
    return _uphill(point, lambda _, x: log_density(x), settings)


def _drawn_uphill(key, point, log_density: Callable, settings: Dispersed) -> jax.Array:
    """A draw of the mean-field normal guide that is found uphill from a point."""
    step_key, draw_key = jax.random.split(key)

    def draw(key, guide):
        mean, log_sd = guide
        return mean + jnp.exp(log_sd) * jax.random.normal(key, mean.shape, mean.dtype)

    def elbo(i, guide):
        at = draw(jax.random.fold_in(step_key, i), guide)
        return log_density(at) + guide[1].sum()

    narrow = jnp.full_like(point, np.log(NARROW * settings.spread))
    return draw(draw_key, _uphill((point, narrow), elbo, settings))


def is_finite(value, gradient) -> jax.Array:
    """Whether a log-density and its gradient are."""
    return jnp.isfinite(value) & jnp.isfinite(gradient).all()


def _dispersed(key, log_density: Callable, size: int, settings: Dispersed, dtype) -> jax.Array:
    """The first of some dispersed points whose density and gradient are finite."""
    points = settings.spread * jax.random.normal(key, (CANDIDATES, size), dtype)

    def is_bad(point):
        return ~is_finite(*jax.value_and_grad(log_density)(point))

    # One after the other: the first one is finite nearly always.
    i = jax.lax.while_loop(
        lambda i: (i < CANDIDATES - 1) & is_bad(points[i]), lambda i: i + 1, np.int32(0)
    )
    return points[i]


def _uphill(start, objective: Callable, settings: Dispersed):
    """Where Adam gets to from a point; a step that leads out of the finite is not taken.

    Parameters
    ----------
    start
        A tree of arrays.
    objective
        JAX function of the number of the step and such a tree.
    """
    optimiser = optax.adam(settings.descent_rate)
    of = jax.value_and_grad(lambda x, i: -objective(i, x))

    def body(i, carry):
        here, state = carry
        value, gradient = of(here, i)
        change, new = optimiser.update(gradient, state)
        taken = is_finite(value, ravel_pytree(gradient)[0])
        moved = optax.apply_updates(here, change)
        return jax.tree.map(lambda a, b: jnp.where(taken, a, b), (moved, new), carry)

    found, _ = jax.lax.fori_loop(0, settings.descent, body, (start, optimiser.init(start)))
    value, gradient = of(found, settings.descent)
    taken = is_finite(value, ravel_pytree(gradient)[0])
    return jax.tree.map(lambda a, b: jnp.where(taken, a, b), found, start)
