"""The log-density of a model's unconstrained free variables, as one compiled function.

It is what samplers take. Likelihood, padding and rewrites are those of the ELBO's graph, so that
its gradient costs what a gradient step of a fit does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
from pytensor.tensor import TensorVariable

from pmbnn.inference.batches import cast, flatten_for_steps
from pmbnn.inference.elbo import row_weights, total_log_likelihood
from pmbnn.inference.estimators import Rewritten
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
        The model's graphs, whose ``layout`` says where in the vector a variable lies.
    dtype
        ``float32`` or ``float64``.
    padding
        Rows after those of the data that do not count.
    total_log_likelihood
        Log-probability of everything observed, and potentials, on the inputs of `flat`; a scalar
        graph, in nats.
    precompute, evaluate
        It as two JAX functions: what depends on the data alone; and the rest, of the vector and
        of what the first one gives.
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
        """What it needs of the model's data variables, by name: everything that is constant.

        Raises
        ------
        ValueError
            If an observed label is in the support of no class.
        """
        self.flat.check_labels(data)
        arrays = cast(data, self.dtype, self.flat.row_data, self.padding)
        with explained(self.flat, self.dtype):
            return jax.jit(self.precompute)(*(arrays[name] for name in self.flat.data))


class LogDensity(Density):
    """Log-density of a flat vector given data; `build_log_density` makes one.

    The target is the posterior without its normalising constant, with the Jacobians of all
    transformations: ``model.logp()`` of PyMC, in nats.
    """

    def value(self, vector: jax.Array, prepared: tuple[jax.Array, ...]) -> jax.Array:
        """Log-density of a vector, ``(size,)``, in nats; a JAX function."""
        return self.evaluate(vector, *prepared)[0]

    def value_and_gradient(
        self, vector: jax.Array, prepared: tuple[jax.Array, ...]
    ) -> tuple[jax.Array, jax.Array]:
        """Log-density and its gradient, ``(size,)``; a JAX function."""
        return jax.value_and_grad(self.value)(vector, prepared)


class TemperedDensity(Density):
    """Prior and likelihood apart, on coordinates in which the prior is standard normal.

    `build_tempered_density` makes one. Potentials count as likelihood.
    """

    def log_likelihood(self, coordinates: jax.Array, prepared: tuple[jax.Array, ...]) -> jax.Array:
        """Log-likelihood at coordinates, ``(size,)``, in nats; a JAX function."""
        return self.evaluate(coordinates, *prepared)[0]

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
        Of any data: only its graph is used.
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
    # XLA would fuse what leads to each row's into the sum over rows, which it does not vectorise.
    by_row = {name: materialised(graph) for name, graph in flat.log_likelihoods.items()}
    plain = Rewritten(by_row, flat.potentials, {})
    weights = row_weights(batch, batch, padding)
    likelihood = total_log_likelihood(plain, flat.rows, weights)
    graphs = flat.at(vector, [likelihood + flat.log_prior])
    with precision(dtype), explained(flat, dtype):
        functions = split_jax_function(list(flat.data.values()), [vector], graphs)
        density = LogDensity(flat, dtype, padding, likelihood, *functions)
        _check_gradient(density)
    return density


def build_tempered_density(density: LogDensity) -> TemperedDensity:
    """Prior and likelihood of a log-density apart.

    Raises
    ------
    ValueError
        If the quantile function of a free variable is not known, naming it.
    """
    flat, likelihood = density.flat, density.total_log_likelihood
    coordinates = flat_vector(flat)
    vector = place_of(flat, coordinates)
    graphs = [*flat.at(vector, [likelihood, likelihood + flat.log_prior]), vector]
    with precision(density.dtype), explained(flat, density.dtype):
        functions = split_jax_function(list(flat.data.values()), [coordinates], graphs)
    return TemperedDensity(flat, density.dtype, density.padding, likelihood, *functions)


def _check_gradient(density: LogDensity) -> None:
    """Trace it once: what cannot be differentiated fails here, where it is explained."""
    flat = density.flat
    data = {name: np.zeros(v.type.shape, v.dtype) for name, v in flat.data.items()}
    vector = jax.ShapeDtypeStruct((flat.size,), jnp.dtype(density.dtype))

    def traced(vector):
        arrays = cast(data, density.dtype)
        prepared = density.precompute(*(arrays[name] for name in flat.data))
        return density.value_and_gradient(vector, prepared)

    jax.eval_shape(traced, vector)
