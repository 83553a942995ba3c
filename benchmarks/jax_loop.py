"""The bare JAX loop: mean-field ADVI of the 2-5-5-2 network written by hand.

Features first (observations on the last axis, which XLA vectorises), one-hot labels, analytic
entropy, Adam on a one-cycle schedule, all steps of a fit in one `scan`.
"""

import jax
import jax.numpy as jnp
import optax

SIZE = 57


def hand_written_loss(parameters, noise, x, one_hot):
    """Negative ELBO with a standard normal prior, in nats; `x` and `one_hot` features first."""
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


def one_cycle(learning_rate, steps):
    """Up from a 25th over the first tenth of the steps, then down to zero on a cosine."""
    warm_up = max(1, steps // 10)
    return optax.warmup_cosine_decay_schedule(learning_rate / 25, learning_rate, warm_up, steps)


def hand_written_fit(steps, learning_rate):
    """Function of ``(loc, rho)``, key, `x` and `one_hot` that makes a whole fit of one replica.

    It returns the final ``(loc, rho)`` and the losses, ``(step,)``; `jax.vmap` it for many.
    """
    optimiser = optax.adam(one_cycle(learning_rate, steps))

    def fit(parameters, key, x, one_hot):
        def step(carry, i):
            parameters, state = carry
            noise = jax.random.normal(jax.random.fold_in(key, i), (SIZE,))
            loss, gradient = jax.value_and_grad(hand_written_loss)(parameters, noise, x, one_hot)
            update, state = optimiser.update(gradient, state)
            return (optax.apply_updates(parameters, update), state), loss

        carry = (parameters, optimiser.init(parameters))
        (parameters, _), losses = jax.lax.scan(step, carry, jnp.arange(steps))
        return parameters, losses

    return fit
