"""The loop of gradient steps: one fit, as JAX functions that a group maps over its replicas."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from pmbnn.inference.elbo import Objective
from pmbnn.inference.optimisers import averaged, build_optimiser, relative_rate
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import split_jax_function
from pmbnn.inference.xla.partition import Leaves, divided, divided_graph
from pmbnn.inference.xla.random import draw_noise
from pmbnn.inference.xla.rewrites import computed_once

type Parameters = dict[str, jax.Array | Leaves]


class State(NamedTuple):
    """Where a fit is; the vectors of a large network in leaves.

    Attributes
    ----------
    parameters
        The guide's unconstrained parameters.
    average
        Their running average; nothing where none is asked for.
    optimiser
        The optimiser's state.
    step
        Number of steps done.
    """

    parameters: Parameters
    average: Parameters
    optimiser: optax.OptState
    step: jax.Array


@dataclass(frozen=True)
class Loop:
    """Gradient steps on one objective; call its functions within `precision`.

    Attributes
    ----------
    of_data, of_rest
        The objective as two JAX functions: what no parameter moves, of the data; and the rest,
        of parameters and noise, in order, and of what the first one gives.
    """

    objective: Objective
    settings: Inference
    dtype: str
    optimiser: optax.GradientTransformation
    of_data: Callable[..., tuple]
    of_rest: Callable[..., tuple]

    def start(self, parameters: Parameters) -> State:
        """The state before the first step."""
        parameters = {name: jnp.asarray(p, self.dtype) for name, p in parameters.items()}
        parameters = divided(parameters, self.objective.leaves)
        average = parameters if self.settings.iterate_averaging else {}
        return State(parameters, average, self.optimiser.init(parameters), jnp.zeros((), jnp.int32))

    def prepare(self, data) -> tuple[jax.Array, ...]:
        """What the objective needs of the data, by name: everything that no parameter moves."""
        return self.of_data(*(data[name] for name in self.objective.data))

    def parts(self, parameters: Parameters, noise, prepared) -> tuple[jax.Array, jax.Array]:
        """Log-likelihood and divergence of the objective, at given noise."""
        # By name: JAX sorts the keys of a dictionary that it hands back.
        inputs = [parameters[n] for n in self.objective.parameters]
        inputs += [noise[n] for n in self.objective.noise]
        arrays = jax.tree.leaves(divided(inputs, self.objective.leaves))
        return self.of_rest(*arrays, *prepared)

    def loss(self, parameters: Parameters, noise, prepared, kl_weight) -> tuple[jax.Array, tuple]:
        """Negative ELBO at the given KL weight, and its parts."""
        log_likelihood, kl = self.parts(parameters, noise, prepared)
        return kl_weight * kl - log_likelihood, (log_likelihood, kl)

    def window(
        self, state: State, data, batches, key, learning_rate, n, steps, *, several: bool = False
    ) -> tuple[State, jax.Array]:
        """`n` of `steps` steps, and the sums of their log-likelihoods and divergences.

        A divergence without noise is computed before and after them only.

        Parameters
        ----------
        data
            By name; as prepared where a step sees all rows. The preparation is a program of
            its own then: within this one, XLA would read the data through a transposition.
        batches
            Row indices ``(step, batch)``; None if a step sees all rows.
        key
            Of the fit's own noise, ``(2,)`` unsigned 32-bit words.
        several
            Whether all but `n` and `steps` have replicas on the first axis. They are mapped over
            within the loop: of a loop that is mapped over, JAX traces the body three times.
        """
        step, divergence = self._summed_step, self.divergence
        if several:
            step = jax.vmap(step, in_axes=(None, 0, 0, 0, 0, 0, None))
            divergence = jax.vmap(divergence)
        divergence = jax.jit(divergence)  # traced once for both

        def body(i, carry):
            return step(i, carry, data, batches, key, learning_rate, steps)

        sums = jnp.zeros((*jnp.shape(learning_rate), 2), self.dtype)
        end, sums = jax.lax.fori_loop(0, n, body, (state, sums))
        if not self.objective.has_noisy_kl:
            # As if it changed by the same amount at every step.
            first = divergence(state, data, batches, key)
            last = divergence(end, data, batches, key)
            sums = sums.at[..., 1].set(n * first + (n - 1) / 2 * (last - first))
        return end, sums

    def _summed_step(self, i, carry, data, batches, key, learning_rate, steps):
        """The `i`-th step of a window, its log-likelihood and divergence added to their sums."""
        state, sums = carry
        prepared = self._rows(data, batches, i)
        state, (log_likelihood, kl) = self._step(state, prepared, key, learning_rate, steps)
        kl = kl if self.objective.has_noisy_kl else jnp.zeros_like(kl)
        return state, sums + jnp.stack([log_likelihood, kl])

    def divergence(self, state: State, data, batches, key) -> jax.Array:
        """Divergence where a fit is, at the noise and the rows of its next step.

        Arguments are those of `window`.
        """
        noise, prepared = self.noise(key, state.step), self._rows(data, batches, 0)
        return self.parts(state.parameters, noise, prepared)[1]

    def noise(self, key, step) -> dict[str, jax.Array | Leaves]:
        """Noise of one step."""
        asked = {n: (v.kind, v.variable.type.shape) for n, v in self.objective.noise.items()}
        return draw_noise(key, step, asked, self.objective.leaves, self.dtype)

    def kl_weight(self, step, steps):
        """The KL weight of the settings, rising to it from zero while it is annealed."""
        weight, share = self.settings.kl_weight, self.settings.kl_annealing
        return weight * jnp.minimum(1.0, step / (share * steps)) if share else weight

    def _rows(self, data, batches, i) -> tuple[jax.Array, ...]:
        """What the objective needs of the rows of the `i`-th step."""
        if batches is None:
            return data
        taken = self.objective.row_data
        return self.prepare({n: v[batches[i]] if n in taken else v for n, v in data.items()})

    def _step(self, state: State, prepared, key, learning_rate, steps) -> tuple[State, tuple]:
        settings = self.settings
        noise = self.noise(key, state.step)
        slope = jax.grad(self.loss, has_aux=True)
        weight = self.kl_weight(state.step, steps)
        gradient, parts = slope(state.parameters, noise, prepared, weight)
        gradient = jax.tree.map(computed_once, gradient)
        direction, optimiser = self.optimiser.update(gradient, state.optimiser)
        rate = computed_once(learning_rate * relative_rate(settings, state.step, steps))
        parameters = jax.tree.map(
            lambda p, d: p - (rate * d).astype(p.dtype), state.parameters, direction
        )
        step, average = state.step + 1, state.average
        if share := settings.iterate_averaging:
            average = averaged(average, parameters, step, share)
        return State(parameters, average, optimiser, step), parts


def build_loop(objective: Objective, settings: Inference, dtype: str) -> Loop:
    """The loop of an objective; call it within `precision`."""
    inputs = [*objective.parameters.values(), *(n.variable for n in objective.noise.values())]
    outputs = [objective.log_likelihood, objective.kl]
    of_data, of_rest = split_jax_function(
        list(objective.data.values()), *divided_graph(inputs, outputs, objective.leaves)
    )
    return Loop(objective, settings, dtype, build_optimiser(settings), of_data, of_rest)
