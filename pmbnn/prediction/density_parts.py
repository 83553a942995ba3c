"""The log-density of a network's draws in parts: likelihood, prior of weights, prior of scales."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable

from pmbnn.inference.flat import FlatModel, flat_vector, flatten_model
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.build import LAYER_PARAMETER

LIKELIHOOD, WEIGHTS, SCALES = "likelihood", "weights", "scales"

AT_ONCE = 64
"""Draws side by side."""


class DensityParts:
    """Parts of a model's log-density at draws of its flat vector; compiled once, for any rows.

    Priors are densities of the variables on their own scale, without the Jacobians of their
    transformations. That of the weights is of standard draws where scales are learned, whether
    the model has these or the weights themselves: raised to a power it then is, but for a constant,
    the density of another distribution of weights at each scale, and says nothing of the scale
    itself. Prior scales of single weights, and prior means, count as weights; learned scales, what
    all weights share, and the noise of a likelihood as scales.

    Parameters
    ----------
    model
        Model of a network.
    own_bias_scale
        Whether biases are drawn around a fixed scale of their own, `Prior.bias_scale`.

    Attributes
    ----------
    names
        ``likelihood``, ``weights`` and, where any are learned, ``scales``.
    """

    def __init__(self, model: pm.Model, own_bias_scale: bool = False) -> None:
        flat = flatten_model(model, rows=None, jacobian=False)
        weights = [name for name in flat.log_priors if LAYER_PARAMETER.match(name)]
        terms = {
            LIKELIHOOD: [by_row.sum() for by_row in flat.log_likelihoods.values()],
            WEIGHTS: [
                flat.log_priors[name]
                if own_bias_scale and name.startswith("bias")
                else _of_standard(flat, name)
                for name in weights
            ],
            SCALES: [term for name, term in flat.log_priors.items() if name not in weights],
        }
        graphs = {name: sum(parts) for name, parts in terms.items() if parts}
        self.names = list(graphs)
        self._data = list(flat.data)
        vector = flat_vector(flat)
        with precision("float64"):
            one_draw = jax_function([vector, *flat.data.values()], flat.at(vector, graphs.values()))

        def all_draws(values, *data):
            return jax.lax.map(lambda v: one_draw(v, *data), values, batch_size=AT_ONCE)

        self._all_draws = jax.jit(all_draws)

    def __call__(self, data: Mapping[str, np.ndarray], values: np.ndarray) -> dict[str, np.ndarray]:
        """Parts by name, ``(draw,)``, nats; the likelihood is summed over the rows of the data.

        Parameters
        ----------
        data
            Values of the model's data variables.
        values
            Draws of the flat vector, ``(draw, size)``.
        """
        with precision("float64"):
            arrays = [jnp.asarray(data[name]) for name in self._data]
            parts = self._all_draws(jnp.asarray(values, "float64"), *arrays)
        return dict(zip(self.names, map(np.asarray, parts), strict=True))


def _of_standard(flat: FlatModel, name: str) -> TensorVariable:
    """Log-prior of a weight, or of it over its scale where it is drawn around a learned one."""
    term, layer = flat.log_priors[name], LAYER_PARAMETER.fullmatch(name)
    scales = (f"layer_{layer[1]}_scale", "network_scale") if layer else ()
    scale = next((flat.posterior[s] for s in scales if s in flat.posterior), None)
    if scale is None:
        return term
    # Each weight is its scale times a standard draw: the density of the draw is so much higher.
    return term + pt.sum(pt.log(scale) + pt.zeros_like(flat.free[name]))
