"""The loop of gradient steps: one fit, as JAX functions that a group maps over its members."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from pmbnn.inference.elbo import Objective
from pmbnn.inference.jax_edge import jax_function
from pmbnn.inference.optimisers import averaged, build_optimiser, relative_rate
from pmbnn.inference.settings import Inference
from pmbnn.models import ROW_DATA

type Parameters = dict[str, jax.Array]


class State(NamedTuple):
    """Where a fit is.

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
        self._parts = _compiled(objective)

    def start(self, parameters: Parameters) -> State:
        """The state before the first step."""
        parameters = {name: jnp.asarray(p, self.dtype) for name, p in parameters.items()}
        average = parameters if self.settings.average else {}
        return State(
            parameters, average, self.optimiser.init(parameters), jnp.zeros((), jnp.int32)
        )

    def parts(self, parameters: Parameters, noise, data) -> tuple[jax.Array, jax.Array]:
        """Log-likelihood and divergence of the objective, at given noise."""
        frozen = jax.lax.stop_gradient(parameters)
        # By name: JAX sorts the keys of a dictionary that it hands back.
        inputs = [parameters[n] for n in self.objective.parameters]
        inputs += [frozen[n] for n in self.objective.frozen]
        inputs += [noise[n] for n in self.objective.noise]
        return self._parts(*inputs, *(data[n] for n in self.objective.data))

    def loss(self, parameters: Parameters, noise, data, kl_weight) -> tuple[jax.Array, tuple]:
        """Negative ELBO at the given KL weight, and its parts."""
        log_likelihood, kl = self.parts(parameters, noise, data)
        return kl_weight * kl - log_likelihood, (log_likelihood, kl)

    def segment(
        self, state: State, data, batches, key, learning_rate, n, steps
    ) -> tuple[State, jax.Array]:
        """`n` of `steps` steps, and the sums of their log-likelihoods and divergences.

        Parameters
        ----------
        batches
            Row indices ``(step, batch)``; None if a step sees all rows.
        key
            The fit's own stream of noise.
        """

        def body(i, carry):
            state, sums = carry
            seen = data if batches is None else _take_rows(data, batches[i])
            state, parts = self._step(state, seen, key, learning_rate, steps)
            return state, sums + jnp.stack(parts)

        return jax.lax.fori_loop(0, n, body, (state, jnp.zeros(2, self.dtype)))

    def _step(self, state: State, data, key, learning_rate, steps) -> tuple[State, tuple]:
        settings = self.settings
        noise = self._noise(jax.random.fold_in(key, state.step))
        slope = jax.grad(self.loss, has_aux=True)
        gradient, parts = slope(state.parameters, noise, data, self._kl_weight(state.step, steps))
        direction, optimiser = self.optimiser.update(gradient, state.optimiser)
        rate = learning_rate * relative_rate(settings.schedule, state.step, steps)
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

    def _noise(self, key) -> dict[str, jax.Array]:
        """Noise of one step: here, and nowhere else, is where a fit draws any."""
        inputs = self.objective.noise
        keys = [key] if len(inputs) == 1 else jax.random.split(key, max(1, len(inputs)))
        draw = {"normal": jax.random.normal, "sign": jax.random.rademacher}
        return {
            name: draw[noise.kind](k, noise.variable.type.shape, self.dtype)
            for (name, noise), k in zip(inputs.items(), keys, strict=False)
        }


def _compiled(objective: Objective):
    """The objective's two parts as a JAX function of its inputs, in their order."""
    inputs = [*objective.parameters.values(), *objective.frozen.values()]
    inputs += [*(n.variable for n in objective.noise.values()), *objective.data.values()]
    return jax_function(inputs, [objective.log_likelihood, objective.kl])


def _take_rows(data, rows):
    return {name: value[rows] if name in ROW_DATA else value for name, value in data.items()}
