"""The loop of gradient steps: one fit, as JAX functions that a group maps over its members."""

import itertools
import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from pmbnn.inference.elbo import Objective
from pmbnn.inference.jax_edge import split_jax_function
from pmbnn.inference.noise import DRAWS
from pmbnn.inference.optimisers import averaged, build_optimiser, relative_rate
from pmbnn.inference.pieces import Pieces, divided, divided_graph, is_divided
from pmbnn.inference.settings import Inference
from pmbnn.models import ROW_DATA

type Parameters = dict[str, jax.Array | Pieces]


class State(NamedTuple):
    """Where a fit is; the vectors of a large network in pieces.

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


class Loop:
    """Gradient steps on one objective; build and call it within `precision`."""

    def __init__(self, objective: Objective, settings: Inference, dtype: str) -> None:
        self.objective, self.settings, self.dtype = objective, settings, dtype
        self.optimiser = build_optimiser(settings)
        self._prepare, self._parts = _compiled(objective)

    def start(self, parameters: Parameters) -> State:
        """The state before the first step."""
        parameters = {name: jnp.asarray(p, self.dtype) for name, p in parameters.items()}
        parameters = divided(parameters, self.objective.pieces)
        average = parameters if self.settings.average else {}
        return State(parameters, average, self.optimiser.init(parameters), jnp.zeros((), jnp.int32))

    def prepare(self, data) -> tuple[jax.Array, ...]:
        """What the objective needs of the data, by name: everything that no parameter moves."""
        return self._prepare(*(data[name] for name in self.objective.data))

    def parts(self, parameters: Parameters, noise, prepared) -> tuple[jax.Array, jax.Array]:
        """Log-likelihood and divergence of the objective, at given noise."""
        frozen = jax.lax.stop_gradient(parameters)
        # By name: JAX sorts the keys of a dictionary that it hands back.
        inputs = [parameters[n] for n in self.objective.parameters]
        inputs += [frozen[n] for n in self.objective.frozen]
        inputs += [noise[n] for n in self.objective.noise]
        arrays = jax.tree.leaves(divided(inputs, self.objective.pieces))
        return self._parts(*arrays, *prepared)

    def loss(self, parameters: Parameters, noise, prepared, kl_weight) -> tuple[jax.Array, tuple]:
        """Negative ELBO at the given KL weight, and its parts."""
        log_likelihood, kl = self.parts(parameters, noise, prepared)
        return kl_weight * kl - log_likelihood, (log_likelihood, kl)

    def segment(
        self, state: State, data, batches, key, learning_rate, n, steps
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
        """
        noisy = self.objective.has_noisy_kl

        def rows(i):
            return data if batches is None else self.prepare(_take_rows(data, batches[i]))

        def body(i, carry):
            state, sums = carry
            state, (log_likelihood, kl) = self._step(state, rows(i), key, learning_rate, steps)
            return state, sums + jnp.stack([log_likelihood, kl if noisy else jnp.zeros_like(kl)])

        def kl_of(state):
            return self.parts(state.parameters, self._noise(key, state.step), rows(0))[1]

        end, sums = jax.lax.fori_loop(0, n, body, (state, jnp.zeros(2, self.dtype)))
        if not noisy:
            # As if it changed by the same amount at every step.
            first = kl_of(state)
            sums = sums.at[1].set(n * first + (n - 1) / 2 * (kl_of(end) - first))
        return end, sums

    def _step(self, state: State, prepared, key, learning_rate, steps) -> tuple[State, tuple]:
        settings = self.settings
        noise = self._noise(key, state.step)
        slope = jax.grad(self.loss, has_aux=True)
        weight = self._kl_weight(state.step, steps)
        gradient, parts = slope(state.parameters, noise, prepared, weight)
        # Without a barrier XLA computes a gradient anew for each moment of the optimiser.
        gradient = jax.tree.map(jax.lax.optimization_barrier, gradient)
        direction, optimiser = self.optimiser.update(gradient, state.optimiser)
        # And the rate within the loop over each parameter's elements.
        rate = learning_rate * relative_rate(settings, state.step, steps)
        rate = jax.lax.optimization_barrier(rate)
        parameters = jax.tree.map(
            lambda p, d: p - (rate * d).astype(p.dtype), state.parameters, direction
        )
        step, average = state.step + 1, state.average
        if settings.average:
            average = averaged(average, parameters, step, settings.average)
        return State(parameters, average, optimiser, step), parts

    def _kl_weight(self, step, steps):
        """The KL weight of the settings, rising to it from zero over the warm-up."""
        weight, warm_up = self.settings.kl_weight, self.settings.kl_warm_up
        return weight * jnp.minimum(1.0, step / (warm_up * steps)) if warm_up else weight

    def _noise(self, key, step) -> dict[str, jax.Array | Pieces]:
        """Noise of one step: here, and nowhere else, is where a fit draws any."""
        lengths = self.objective.pieces

        def draw(kind, stream, start, shape):
            size = math.prod(shape)
            return DRAWS[kind](key, step, stream, start, size, self.dtype).reshape(shape)

        drawn = {}
        for stream, (name, noise) in enumerate(self.objective.noise.items()):
            shape, of = noise.variable.type.shape, partial(draw, noise.kind, stream)
            if is_divided(shape, lengths):
                starts = itertools.accumulate(lengths[:-1], initial=0)
                pieces = zip(starts, lengths, strict=True)
                drawn[name] = Pieces(tuple(of(start, (length,)) for start, length in pieces))
            else:
                drawn[name] = of(0, shape)
        # Without the barrier XLA draws a number anew wherever it is used.
        return jax.lax.optimization_barrier(drawn)


def _compiled(objective: Objective):
    """The objective as two JAX functions: of its data; of the rest of its inputs, in order."""
    inputs = [*objective.parameters.values(), *objective.frozen.values()]
    inputs += [noise.variable for noise in objective.noise.values()]
    outputs = [objective.log_likelihood, objective.kl]
    return split_jax_function(
        list(objective.data.values()), *divided_graph(inputs, outputs, objective.pieces)
    )


def _take_rows(data, rows):
    return {name: value[rows] if name in ROW_DATA else value for name, value in data.items()}
