"""Predictions by a network that is linear in its weights, about one place.

The outputs of a network are replaced by their tangents at that place. Of class probabilities these
are the logits, which are known up to a constant from their logarithms: the softmax takes it out.

References
----------
Immer, Korzepa and Bauer (2021), Improving predictions of Bayesian neural nets via local
linearization, equation 8.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.models.likelihoods import ClassLikelihood, Likelihood


class Link(NamedTuple):
    """A parameter of a likelihood as a function of outputs of the network.

    Attributes
    ----------
    outputs
        JAX function of the parameter that returns the outputs, up to what the inverse takes out.
    parameter
        Its inverse.
    """

    outputs: Callable[[jax.Array], jax.Array]
    parameter: Callable[[jax.Array], jax.Array]


def _log(probability: jax.Array) -> jax.Array:
    # A probability that underflows keeps the smallest one, whatever the weights.
    return jnp.log(jnp.maximum(probability, jnp.finfo(probability.dtype).tiny))


LINKS = {"probability": Link(_log, lambda outputs: jax.nn.softmax(outputs, axis=-1))}
"""Links by the name of the parameter; other parameters are outputs themselves."""

IDENTITY = Link(lambda parameter: parameter, lambda outputs: outputs)


def at_tangent(
    parameters: Callable[[jax.Array], Sequence[jax.Array]],
    names: Sequence[str],
    centre: jax.Array,
    vector: jax.Array,
) -> tuple[jax.Array, ...]:
    """Parameters of a likelihood at a flat vector, by outputs that are linear about `centre`.

    Parameters
    ----------
    parameters
        JAX function of a flat vector, ``(size,)``, that returns the parameters.
    names
        Their names.
    """
    links = [LINKS.get(name, IDENTITY) for name in names]

    def outputs(vector):
        found = parameters(vector)
        return [link.outputs(parameter) for link, parameter in zip(links, found, strict=True)]

    # The product of the Jacobian with a vector by reverse mode alone: the product with its
    # transpose is linear. Functions with a derivative of their own have no forward mode.
    values, transpose = jax.vjp(outputs, centre)
    _, product = jax.vjp(lambda along: transpose(along)[0], jax.tree.map(jnp.zeros_like, values))
    (change,) = product(vector - centre)
    return tuple(
        link.parameter(value + step)
        for link, value, step in zip(links, values, change, strict=True)
    )


def log_likelihood(
    likelihood: Likelihood, parameters: dict[str, np.ndarray], target: np.ndarray
) -> np.ndarray:
    """Log-likelihood of targets at draws of the parameters, ``(draw, observation)``, nats.

    Parameters
    ----------
    parameters
        By name, as `Predictor.single_draws` returns them.
    target
        ``(observation,)``, or ``(observation, target)`` of several, which are summed.
    """
    if isinstance(likelihood, ClassLikelihood):
        index = np.asarray(target, np.int64)[None, :, None]
        chosen = np.take_along_axis(parameters["probability"], index, axis=2)[..., 0]
        return np.log(np.maximum(chosen, np.finfo(chosen.dtype).tiny))
    columns = target.reshape(len(target), -1).T
    by_target = zip(likelihood.by_target(parameters), columns, strict=True)
    return sum(likelihood.components(of).logpdf(y) for of, y in by_target)
