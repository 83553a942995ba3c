"""Errors that name the variable of a model that cannot be fitted.

And variables that only PyTensor can compute, because JAX does not implement an operation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
from pytensor.tensor import TensorVariable

from pmbnn.inference.batches import abstract, cast
from pmbnn.inference.flat import TERMS, FlatModel, flat_vector, untransformed_name
from pmbnn.inference.observed import interpreted, place_of
from pmbnn.inference.xla.compile import jax_function, precision


@contextmanager
def explained(flat: FlatModel, dtype: str) -> Iterator[None]:
    """Raise ValueError if the code within fails because of a variable of the model.

    JAX may not implement an operation, or only for constant arguments, or without a gradient. The
    errors of PyTensor and JAX name the operation, but not the variable of the model.
    """
    try:
        yield
    except Exception as error:
        for name, graph in _terms(flat):
            reason = _failure(flat, [graph.sum()], dtype, gradient=True)
            if reason is not None:
                raise ValueError(
                    f"`model` cannot be fitted by gradients through JAX: the log-density of "
                    f"`{name}` has an operation that it does not take. {reason}"
                ) from error
        raise


def _terms(flat: FlatModel) -> Iterator[tuple[str, TensorVariable]]:
    """Graphs of all terms of the log-density by the names of their variables."""
    for kind in TERMS:
        for name, graph in getattr(flat, kind).items():
            yield untransformed_name(name), graph


def first_line(error: Exception) -> str:
    """First line of an error's message, or its class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _failure(flat: FlatModel, graphs, dtype: str, gradient: bool = False) -> str | None:
    """Why JAX cannot compute graphs, or the gradient of the only one; None if it can."""
    vector, data = flat_vector(flat), list(flat.data.values())
    try:
        with precision(dtype):
            compute = jax_function([vector, *data], flat.at(vector, graphs))
            function = jax.grad(lambda *inputs: compute(*inputs)[0]) if gradient else compute
            if all(None not in v.type.shape for v in data):
                jax.eval_shape(function, *(abstract(v, dtype) for v in (vector, *data)))
    except Exception as error:  # any operation may raise its own error
        return first_line(error)
    return None


def why_not_finite(
    flat: FlatModel,
    data: Mapping[str, np.ndarray],
    points: Sequence[np.ndarray],
    dtype: str,
    fewest: int = 1,
) -> str | None:
    """Message on the term of the log-density that is not finite, or not its gradient, most often.

    None if every term is finite at all points, or all points but fewer than `fewest`.

    Parameters
    ----------
    flat
        The flat model of all rows of the data.
    data
        Values of the model's data variables by name.
    points
        Flat vectors, ``(size,)`` each.
    """
    with precision(dtype):
        reasons = [list(_reasons(flat, *term, data, points, dtype)) for term in _terms(flat)]
    # The first of equally many: later terms may depend on it.
    most = max(reasons, key=len, default=[])
    if len(most) < fewest:
        return None
    return f"{most[0]} at the start, at {len(most)} of {len(points)} random points"


def _reasons(flat: FlatModel, name: str, graph, data, points, dtype: str) -> Iterator[str]:
    """Messages on a term at the points where its value or gradient is not finite."""
    vector = flat_vector(flat)
    compute = jax_function([vector, *flat.data.values()], flat.at(vector, [graph]))
    arrays = [jnp.asarray(array) for array in cast(data, dtype).values()]

    def total(at):
        value = compute(at, *arrays)[0]
        return jnp.sum(value), value

    value_and_gradient = jax.jit(jax.value_and_grad(total, has_aux=True))
    for point in points:
        (_, value), gradient = value_and_gradient(jnp.asarray(point, dtype))
        value, gradient = np.asarray(value), np.asarray(gradient)
        if not np.isfinite(value).all():
            place = place_of(~np.isfinite(value))
            yield f"the log-density of `{name}` is {value[~np.isfinite(value)][0]}{place}"
        elif not np.isfinite(gradient).all():
            parts = flat.layout.unravel(gradient)
            variable = next(n for n, part in parts.items() if not np.isfinite(part).all())
            term = (
                f"the gradient of the log-density of `{name}` by `{untransformed_name(variable)}`"
            )
            yield f"{term} is not finite"


def names_in_jax(flat: FlatModel, dtype: str) -> list[str]:
    """Names of the variables of the posterior whose operations JAX implements."""
    if _failure(flat, list(flat.posterior.values()), dtype) is None:
        return list(flat.posterior)
    return [n for n, graph in flat.posterior.items() if _failure(flat, [graph], dtype) is None]


def computed_by_pytensor(
    flat: FlatModel,
    names: Iterable[str],
    vectors: np.ndarray,
    data: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Variables of the posterior at flat vectors, ``(draw, *shape)``, without JAX."""
    names, vector = list(names), flat_vector(flat)
    if not names:
        return {}
    graphs = flat.at(vector, [flat.posterior[name] for name in names])
    function = interpreted([vector, *flat.data.values()], graphs)
    arrays = [data[name] for name in flat.data]
    draws = [function(np.asarray(values, np.float64), *arrays) for values in vectors]
    return {name: np.stack(parts) for name, *parts in zip(names, *draws, strict=True)}
