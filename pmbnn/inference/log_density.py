"""The log-density of a model's unconstrained free variables, as a function for samplers.

Likelihood, padding and rewrites are those of the ELBO, so that its gradient takes as long as a
gradient step of a fit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.continuous import (
    Cauchy,
    Exponential,
    HalfCauchyRV,
    HalfNormal,
    InverseGamma,
    Laplace,
    Normal,
)
from pymc.logprob.abstract import _icdf
from pytensor.graph.replace import graph_replace
from pytensor.tensor import TensorVariable

from pmbnn.inference.batches import abstract, cast, flatten_for_steps
from pmbnn.inference.elbo import row_weights, total_log_likelihood
from pmbnn.inference.flat import (
    Distribution,
    FlatModel,
    ModelGraphs,
    flat_vector,
    untransformed_name,
)
from pmbnn.inference.unsupported import explained, first_line
from pmbnn.inference.xla.compile import jax_function, precision, split_jax_function
from pmbnn.inference.xla.rewrites import materialised

# Coordinates in which the prior of a model's free variables is standard normal
#
# A variable is its quantile function at the distribution function of the normal, x = F⁻¹(Φ(z)), one
# free variable after the other, so that its parameters may depend on earlier ones (Rosenblatt
# 1952).
# A draw from the prior is then a draw of z, and heavy tails become as short as those of a normal.
#
# References
# ----------
# Rosenblatt (1952), Remarks on a multivariate transformation.


ROOT_2 = np.sqrt(2.0)

NEWTON_STEPS = 8
"""Enough from either bound for single precision if |z| <= 9, and for double if shapes exceed 1."""


def place_of(flat: FlatModel, coordinates: TensorVariable) -> TensorVariable:
    """The flat vector, ``(size,)``, at coordinates whose prior is standard normal, ``(size,)``.

    Raises
    ------
    ValueError
        If the quantile function of a free variable is not known; the message names the variable.
    """
    parts, values = flat.layout.unravel(coordinates), {}
    for name, distribution in flat.distributions.items():
        parameters = graph_replace(list(distribution.parameters), values, strict=False)
        value = _unconstrained(name, distribution, parts[name], parameters)
        values[flat.free[name]] = pt.specify_shape(value, parts[name].type.shape)
    return pt.concatenate([values[flat.free[slot.name]].ravel() for slot in flat.layout.slots])


def _unconstrained(name: str, distribution: Distribution, z, parameters) -> TensorVariable:
    transform = distribution.transform
    quantile = QUANTILES.get(distribution.kind)
    try:
        if transform is not None and getattr(transform, "ndim_supp", None) != 0:
            raise NotImplementedError("its elements depend on each other")
        value = quantile(z, *parameters) if quantile else _by_pymc(distribution, z, parameters)
        _check(z, value, parameters)
    except Exception as error:
        raise ValueError(
            f"`model` cannot be sampled from prior to posterior: the quantile function of "
            f"`{untransformed_name(name)}` is not available ({first_line(error)}). Take engine "
            "mclmc or nuts."
        ) from error
    # Transformations take the inputs of a random variable: generator and size come first.
    return value if transform is None else transform.forward(value, None, None, *parameters)


def _check(z, value, parameters) -> None:
    """Raise an error if JAX cannot compute a quantile function or its gradient."""
    inputs = [v.type() for v in (z, *parameters)]
    (graph,) = graph_replace([value.sum()], dict(zip([z, *parameters], inputs, strict=True)))
    # Lengths that a graph does not know are those of the variable.
    shapes = [
        [n or length for n, length in zip(v.type.shape, z.type.shape[-v.type.ndim :], strict=False)]
        for v in inputs
    ]
    with precision("float32"):
        compute = jax_function(inputs, [graph])
        structs = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
        jax.eval_shape(jax.grad(lambda *inputs: compute(*inputs)[0]), *structs)


# Quantile functions at Φ(z), by the probability of the nearer tail, which keeps its digits


def _tail(z) -> TensorVariable:
    """Φ(−|z|)."""
    return 0.5 * pt.erfc(pt.abs(z) / ROOT_2)


def _log_tail(z) -> TensorVariable:
    """Logarithm of Φ(−|z|)."""
    # PyTensor rewrites log(erfc(x)) as a choice of two forms, one of which has no finite gradient
    # near zero: in single precision the whole gradient would be NaN for |z| below 3e-4.
    return pt.log(pt.maximum(_tail(z), np.finfo(np.float32).tiny))


def _normal(z, mu, sigma):
    return mu + sigma * z


def _laplace(z, mu, b):
    return mu - b * pt.sign(z) * (np.log(2) + _log_tail(z))


def _cauchy(z, alpha, beta):
    return alpha + beta * pt.sign(z) / pt.tan(np.pi * _tail(z))


def _half_normal(z, loc, sigma):
    tail = _tail(z)
    return loc + sigma * ROOT_2 * pt.switch(z > 0, pt.erfcinv(tail), pt.erfinv(tail))


def _half_cauchy(z, beta):
    tangent = pt.tan(0.5 * np.pi * _tail(z))
    return beta * pt.switch(z > 0, 1 / tangent, tangent)


def _exponential(z, scale):
    return scale * -pt.switch(z > 0, _log_tail(z), pt.log1p(-_tail(z)))


def _inverse_gamma(z, alpha, beta):
    return beta * pt.exp(-_log_gamma_quantile(z, alpha))


def _log_gamma_quantile(z, alpha) -> TensorVariable:
    """Logarithm of the quantile at Φ(−z) of a gamma variable with scale 1, by Newton's method.

    The logarithm of either tail is concave in that of the variable, so that steps from beyond the
    solution cannot overshoot: from below by P(g) ≤ g^α / Γ(α + 1), from above by the bound of
    Boucheron, Lugosi and Massart (2013), Concentration inequalities, section 2.4.
    """
    log_tail = _log_tail(z)
    below = (log_tail + pt.gammaln(alpha + 1)) / alpha
    above = pt.log(alpha + pt.sqrt(-2 * alpha * log_tail) - log_tail)
    y = pt.switch(z > 0, below, above)
    for _ in range(NEWTON_STEPS):
        g = pt.exp(y)
        tail = pt.switch(z > 0, pt.gammainc(alpha, g), pt.gammaincc(alpha, g))
        log_reached = pt.log(pt.maximum(tail, np.finfo(np.float32).tiny))
        # Not as a quotient: its gradient has the square of the tail, which underflows.
        slope = pt.exp(alpha * y - g - pt.gammaln(alpha) - log_reached)
        y = y - pt.switch(z > 0, 1, -1) * (log_reached - log_tail) / slope
    return y


def _by_pymc(distribution: Distribution, z, parameters) -> TensorVariable:
    """Quantile function of another distribution, if PyMC has it; cut off in the far upper tail."""
    resolution = pt.constant(np.finfo(np.float32).epsneg)
    u = pt.clip(0.5 * pt.erfc(-z / ROOT_2), np.finfo(np.float32).tiny, 1 - resolution)
    return _icdf(distribution.op, u, None, None, *parameters)


QUANTILES: dict[type, Callable[..., TensorVariable]] = {
    type(Normal.rv_op): _normal,
    type(Laplace.rv_op): _laplace,
    type(Cauchy.rv_op): _cauchy,
    type(HalfNormal.rv_op): _half_normal,
    HalfCauchyRV: _half_cauchy,
    type(Exponential.rv_op): _exponential,
    type(InverseGamma.rv_op): _inverse_gamma,
}
"""F⁻¹(Φ(z)) by distribution, as functions of z and the parameters in PyMC's order."""


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
    model: pm.Model | ModelGraphs,
    rows: int,
    dtype: str = "float32",
    further: Callable[[FlatModel, TensorVariable], TensorVariable] | None = None,
    jacobian: bool = True,
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
    further
        Function of the flat model and of its total log-likelihood: a scalar graph that is added to
        the log-density, in nats.
    jacobian
        Without it, the density is that of the constrained variables, as usual for a mode.

    Raises
    ------
    ValueError
        If a free variable is discrete or an operation has no form in JAX or no gradient; the
        message names the variable. Or if one is a point parameter, which has no posterior.
    """
    flat, batch, padding, _ = flatten_for_steps(model, rows, None, jacobian)
    if flat.points:
        raise ValueError(
            f"`model` must not have point parameters to be sampled, got `{flat.points[0]}`: they "
            "are maximised. Give them a prior."
        )
    vector = flat_vector(flat)
    # XLA would fuse the terms of the rows with the sum over rows, which it does not vectorise.
    by_row = [materialised(graph) for graph in flat.log_likelihoods.values()]
    weights = row_weights(batch, batch, padding)
    potentials = flat.potentials.values()
    likelihood = total_log_likelihood(by_row, potentials, flat.rows, weights, flat.has_bounds)
    log_density = likelihood + flat.log_prior
    if further is not None:
        log_density += further(flat, likelihood)
    graphs = flat.at(vector, [log_density])
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
    if flat.has_bounds:
        # A quantile function has a value where a parameter is outside its domain, too.
        likelihood = pt.switch(pt.eq(flat.log_prior, -np.inf), -np.inf, likelihood)
    coordinates = flat_vector(flat)
    vector = place_of(flat, coordinates)
    graphs = [*flat.at(vector, [likelihood, likelihood + flat.log_prior]), vector]
    with precision(density.dtype), explained(flat, density.dtype):
        functions = split_jax_function(list(flat.data.values()), [coordinates], graphs)
    return TemperedDensity(flat, density.dtype, density.padding, likelihood, *functions)
