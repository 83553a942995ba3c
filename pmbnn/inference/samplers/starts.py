"""Starts of chains: dispersed points, moved uphill towards the posterior."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from pmbnn.inference.result import derive_keys
from pmbnn.inference.samplers.settings import Dispersed

NARROW = 0.1
"""Initial standard deviation of a guide, in units of that of the dispersed points."""

CANDIDATES = 100
"""Largest number of starts that are tried until density and gradient are finite, as in Stan."""


def chain_keys(identity: str, chains: int) -> Iterator[jax.Array]:
    """PRNG keys of starts, of tuning and of draws, ``(chain, 2)`` each."""
    keys = [derive_keys(f"{identity}/{chain}") for chain in range(chains)]
    for name in ("initial", "noise", "draws"):
        yield jnp.asarray(np.stack([getattr(key, name)[:2] for key in keys]), jnp.uint32)


def key_of(words) -> jax.Array:
    """Key of a generator whose numbers are the same under vmap; faster generators differ."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def find_start(key, log_density: Callable, size: int, settings: Dispersed, dtype) -> jax.Array:
    """Start of a chain, ``(size,)``: uphill from a dispersed point; a JAX function."""
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
    """Whether a log-density and its gradient are finite."""
    return jnp.isfinite(value) & jnp.isfinite(gradient).all()


def _dispersed(key, log_density: Callable, size: int, settings: Dispersed, dtype) -> jax.Array:
    """The first of some dispersed points whose density and gradient are finite."""
    points = settings.spread * jax.random.normal(key, (CANDIDATES, size), dtype)

    def is_bad(point):
        return ~is_finite(*jax.value_and_grad(log_density)(point))

    # One after the other, as the first is nearly always finite.
    i = jax.lax.while_loop(
        lambda i: (i < CANDIDATES - 1) & is_bad(points[i]), lambda i: i + 1, np.int32(0)
    )
    return points[i]


def _uphill(start, objective: Callable, settings: Dispersed):
    """Point that Adam reaches from `start`; steps to values that are not finite are not taken.

    Parameters
    ----------
    start
        A tree of arrays.
    objective
        JAX function of the number of the step and a tree like `start`.
    """
    optimiser = optax.adam(settings.descent_rate)
    loss_and_gradient = jax.value_and_grad(lambda x, i: -objective(i, x))

    def body(i, carry):
        here, state = carry
        value, gradient = loss_and_gradient(here, i)
        change, new = optimiser.update(gradient, state)
        taken = is_finite(value, ravel_pytree(gradient)[0])
        moved = optax.apply_updates(here, change)
        return jax.tree.map(lambda a, b: jnp.where(taken, a, b), (moved, new), carry)

    end, _ = jax.lax.fori_loop(0, settings.descent, body, (start, optimiser.init(start)))
    value, gradient = loss_and_gradient(end, settings.descent)
    taken = is_finite(value, ravel_pytree(gradient)[0])
    return jax.tree.map(lambda a, b: jnp.where(taken, a, b), end, start)
