"""Learning-rate schedules, optimisers and the averaging of their steps."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pmbnn.inference.settings import Inference

WARM_UP = 0.1
"""Share of the steps in which a one-cycle schedule rises."""
START = 25.0
"""Ratio of the highest to the first rate of a one-cycle schedule (Smith and Topin 2018)."""

DIRECTIONS = {
    "adam": optax.scale_by_adam,
    "adamax": optax.scale_by_adamax,
    "sgd": optax.identity,
}


def relative_rate[A: (jax.Array, np.ndarray)](settings: Inference, step: A, steps: A | int) -> A:
    """Learning rate at `step` of `steps`, relative to the highest; for arrays of JAX or NumPy."""
    schedule, xp = settings.schedule, step.__array_namespace__()
    if schedule == "exponential":
        return settings.decay ** (step / steps)
    if schedule == "constant":
        return xp.ones_like(step / steps)
    if schedule == "cosine":
        return 0.5 * (1 + xp.cos(xp.pi * step / steps))
    warm_up = xp.maximum(1, xp.round(WARM_UP * steps))
    rising = 1 / START + (1 - 1 / START) * step / warm_up
    falling = 0.5 * (1 + xp.cos(xp.pi * (step - warm_up) / xp.maximum(1, steps - warm_up)))
    return xp.where(step < warm_up, rising, falling)


def build_optimiser(settings: Inference) -> optax.GradientTransformation:
    """Direction of a step at learning rate 1, which is subtracted from the parameters.

    References
    ----------
    Kingma and Ba (2015), Adam: A Method for Stochastic Optimization, algorithms 1 and 2.
    """
    direction = DIRECTIONS[settings.optimiser]()
    if settings.clip is None:
        return direction
    return optax.chain(optax.clip_by_global_norm(settings.clip), direction)


def averaged(average, parameters, step: jax.Array, share: float):
    """Running average of parameters after `step` steps, mostly over their last `share`.

    Unlike the mean of the last steps it does not need to know which step is the last.

    References
    ----------
    Shamir and Zhang (2013), Stochastic Gradient Descent for Non-smooth Optimization,
    section 4 (polynomial-decay averaging).
    """
    weight = jnp.minimum(1.0, 1 / (share * step))
    return jax.tree.map(lambda a, p: (a + weight * (p - a)).astype(p.dtype), average, parameters)
