"""The log-density of a model's unconstrained free variables, as a function for samplers.

Likelihood, padding and rewrites are those of the ELBO, so that its gradient takes as long as a
gradient step of a fit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import numpy as np
import pymc as pm
from pytensor.tensor import TensorVariable

from pmbnn.inference.batches import abstract, cast, flatten_for_steps
from pmbnn.inference.elbo import row_weights, total_log_likelihood
from pmbnn.inference.flat import FlatModel, ModelGraphs, flat_vector
from pmbnn.inference.normal_coordinates import place_of
from pmbnn.inference.unsupported import explained
from pmbnn.inference.xla.compile import precision, split_jax_function
from pmbnn.inference.xla.rewrites import materialised


@dataclass(frozen=True, eq=False)
class Density:
    """Compiled functions of a flat vector given data. Call them within ``precision(dtype)``.

    Attributes
    ----------
    flat
        Graphs of the model; its ``layout`` has the places of the variables in the vector.
    dtype
        ``float32`` or ``float64``.
    padding
        Number of rows with weight 0 that follow those of the data.
    total_log_likelihood
        Log-probability of all observations, and potentials, on the inputs of `flat`; a scalar
        graph, in nats.
    precompute, evaluate
        The density as two JAX functions: the part that depends on the data alone; and the rest, a
        function of the vector and of the outputs of the first.
    """

    flat: FlatModel
    dtype: str
    padding: int
    total_log_likelihood: TensorVariable
    precompute: Callable[..., tuple]
    evaluate: Callable[..., tuple]

    @property
    def size(self) -> int:
        """Number of unconstrained scalars."""
        return self.flat.size

    def prepare(self, data: Mapping[str, np.ndarray]) -> tuple[jax.Array, ...]:
        """Arrays that the density needs, from the model's data variables by name.

        Raises
        ------
        ValueError
            If an observed label or count is outside its support.
        """
        self.flat.check_labels(data)
        arrays = cast(data, self.dtype, self.flat.row_data, self.padding)
        with explained(self.flat, self.dtype):
            return jax.jit(self.precompute)(*(arrays[name] for name in self.flat.data))

    def at(self, prepared: tuple[jax.Array, ...]) -> Callable[[jax.Array], jax.Array]:
        """JAX function of a vector, ``(size,)``, given data: the first output of `evaluate`."""
        return lambda vector: self.evaluate(vector, *prepared)[0]


class LogDensity(Density):
    """Log-density of a flat vector given data; `build_log_density` makes one.

    The target is the posterior without its normalising constant, with the Jacobians of all
    transformations: ``model.logp()`` of PyMC, in nats.
    """

    def value(self, vector: jax.Array, prepared: tuple[jax.Array, ...]) -> jax.Array:
        """Log-density of a vector, ``(size,)``, in nats; a JAX function."""
        return self.evaluate(vector, *prepared)[0]


class TemperedDensity(Density):
    """Log-likelihood of coordinates in which the prior is standard normal, given data.

    `build_tempered_density` makes one. Potentials count as likelihood.
    """

    def place(
        self, coordinates: jax.Array, prepared: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, jax.Array]:
        """The flat vector, ``(size,)``, and its log-density as `LogDensity` has it, in nats."""
        _, log_density, vector = self.evaluate(coordinates, *prepared)
        return vector, log_density


def build_log_density(
    model: pm.Model | ModelGraphs, rows: int, dtype: str = "float32"
) -> LogDensity:
    """Log-density of a model's unconstrained free variables.

    Parameters
    ----------
    model
        Only its graph is used, not the values of its data.
    rows
        Number of rows of the data: the length of the dim ``observation``.
    dtype
        ``float32`` or ``float64``.

    Raises
    ------
    ValueError
        If a free variable is discrete or an operation has no form in JAX or no gradient; the
        message names the variable. Or if one is a point parameter, which has no posterior.
    """
    flat, batch, padding, _ = flatten_for_steps(model, rows)
    if flat.points:
        raise ValueError(
            f"`model` must not have point parameters to be sampled, got `{flat.points[0]}`: they "
            "are maximised. Give them a prior."
        )
    vector = flat_vector(flat)
    # XLA would fuse the terms of the rows with the sum over rows, which it does not vectorise.
    by_row = [materialised(graph) for graph in flat.log_likelihoods.values()]
    weights = row_weights(batch, batch, padding)
    likelihood = total_log_likelihood(by_row, flat.potentials.values(), flat.rows, weights)
    graphs = flat.at(vector, [likelihood + flat.log_prior])
    with precision(dtype), explained(flat, dtype):
        functions = split_jax_function(list(flat.data.values()), [vector], graphs)
        density = LogDensity(flat, dtype, padding, likelihood, *functions)
        # Traced once: an operation without a gradient fails here, where the error is explained.
        arguments = [abstract(v, dtype) for v in flat.data.values()]
        prepared = jax.eval_shape(density.precompute, *arguments)
        jax.eval_shape(jax.grad(density.value), abstract(vector, dtype), prepared)
    return density


def build_tempered_density(density: LogDensity) -> TemperedDensity:
    """Log-likelihood on coordinates with a standard normal prior, from a log-density.

    Raises
    ------
    ValueError
        If the quantile function of a free variable is not known; the message names the variable.
    """
    flat, likelihood = density.flat, density.total_log_likelihood
    coordinates = flat_vector(flat)
    vector = place_of(flat, coordinates)
    graphs = [*flat.at(vector, [likelihood, likelihood + flat.log_prior]), vector]
    with precision(density.dtype), explained(flat, density.dtype):
        functions = split_jax_function(list(flat.data.values()), [coordinates], graphs)
    return TemperedDensity(flat, density.dtype, density.padding, likelihood, *functions)
