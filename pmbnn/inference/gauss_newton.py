"""The generalised Gauss–Newton matrix of a network's posterior.

The curvature of a log-likelihood has two parts: that of the likelihood in the outputs of the
network, and that of the outputs in the weights times the residuals. The Gauss–Newton matrix is the
first alone. It is never negative, and it is known where units have kinks. It is the curvature of
the log-likelihood that is expected under the network's own predictions (Fisher's information), and
is computed as that: from the log-likelihood of other targets, whatever the network.

References
----------
Schraudolph (2002), Fast Curvature Matrix-Vector Products for Second-Order Gradient Descent; Martens
(2020), New Insights and Perspectives on the Natural Gradient Method, section 9 (of both names).
"""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.inference.flat import FlatModel, flat_vector
from pmbnn.inference.xla.compile import compiler_options, jax_function, shared

TARGET = "target"
"""Data variable with the targets of a network's rows."""

NUMBERS_AT_ONCE = 4_000_000
"""Rows × parameters, at most, of the derivatives that are in memory at once."""


def gauss_newton(flat: FlatModel, data: Mapping[str, np.ndarray]) -> Callable:
    """Function of a flat vector, ``(size,)``, that returns the matrix there, ``(size, size)``.

    It is that of the negative log-density: the curvature of the prior and, of the likelihood, the
    Gauss–Newton part. Build and call it within ``precision("float64")``.

    Parameters
    ----------
    flat
        Graphs of a network with the likelihood `categorical`, `bernoulli`, or `normal` with a known
        standard deviation.
    data
        Of its data variables, by name.
    """
    vector, inputs = flat_vector(flat), list(flat.data.values())
    (by_row,) = flat.log_likelihoods.values()
    log_likelihood = jax_function([vector, *inputs], flat.at(vector, [by_row]))
    log_prior = jax_function([vector, *inputs], flat.at(vector, [flat.log_prior]))
    number = _number_of_classes(flat)
    factors, of_prior = shared(
        ("gauss newton", log_likelihood, log_prior, number),
        lambda: _programs(log_likelihood, log_prior, list(flat.data), flat.row_data, number),
    )
    arrays = {name: jnp.asarray(data[name]) for name in flat.data}
    rows = len(arrays[flat.row_data[0]])
    starts = range(0, rows, max(1, NUMBERS_AT_ONCE // flat.size))
    ends = [*starts[1:], rows]

    def matrix(point: np.ndarray) -> np.ndarray:
        point = jnp.asarray(point, "float64")
        found = np.asarray(of_prior(point, arrays))
        for start, end in zip(starts, ends, strict=True):
            of_rows = {name: arrays[name][start:end] for name in flat.row_data}
            factor = np.asarray(factors(point, of_rows, arrays)).reshape(-1, flat.size)
            found = found + factor.T @ factor
        return (found + found.T) / 2

    return matrix


def _number_of_classes(flat: FlatModel) -> int | None:
    """Number of classes of the targets; None of numbers."""
    return next(iter(flat.n_classes.values())) if flat.labels else None


def _programs(log_likelihood, log_prior, names, row_data, number):
    """Rows of a root of the matrix's likelihood part, and its part of the prior."""

    def of_row(point, row, others, target):
        values = {**others, **{name: value[None] for name, value in row.items()}}
        values[TARGET] = target[None]
        return log_likelihood(point, *(values[name] for name in names))[0].sum()

    def of_numbers(point, row, others):
        """Of a normal likelihood the slope in a target is (output − target) / sd²."""

        def slope(point):
            return jax.grad(of_row, 3)(point, row, others, row[TARGET])

        curvature = jax.jvp(
            lambda target: jax.grad(of_row, 3)(point, row, others, target),
            (row[TARGET],),
            (jnp.ones_like(row[TARGET]),),
        )[1]
        sd = jnp.sqrt(-1 / curvature)
        return sd[..., None] * jax.jacrev(slope)(point)

    def of_classes(point, row, others):
        def logs(point):
            labels = jnp.arange(number, dtype=row[TARGET].dtype)
            return jax.vmap(lambda label: of_row(point, row, others, label))(labels)

        return jnp.exp(logs(point) / 2)[:, None] * jax.jacrev(logs)(point)

    def factors(point, rows, others):
        of = of_numbers if number is None else of_classes
        return jax.vmap(lambda row: of(point, row, others))(rows)

    def of_prior(point, arrays):
        def negative(point):
            return -log_prior(point, *(arrays[name] for name in names))[0]

        return jax.jacrev(jax.grad(negative))(point)

    options = compiler_options(brief=True)
    return tuple(jax.jit(f, compiler_options=options) for f in (factors, of_prior))
