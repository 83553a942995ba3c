"""Which variable of a model cannot be fitted, told once something has failed.

And what only PyTensor can compute of a model, because JAX has no form of it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
from pymc.util import get_untransformed_name, is_transformed_name
from pytensor.tensor import TensorVariable

from pmbnn.inference.batches import KINDS, cast
from pmbnn.inference.flat import FlatModel, flat_vector
from pmbnn.inference.support import interpreted, place_of
from pmbnn.inference.xla.compile import jax_function, precision

TERMS = ("log_priors", "potentials", "log_likelihoods")
"""Terms of a log-density, those first that others may depend on."""


@contextmanager
def explained(flat: FlatModel, dtype: str) -> Iterator[None]:
    """Raise ValueError where what is done within fails because of a variable of the model.

    An operation may have no form in JAX, need numbers where JAX has shapes only, or have no
    gradient: PyTensor and JAX tell which one, but not where in the model it is.
    """
    try:
        yield
    except Exception as error:
        for name, graph in _terms(flat):
            reason = _why_not(flat, graph, dtype)
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
            yield _untransformed(name), graph


def _untransformed(name: str) -> str:
    return get_untransformed_name(name) if is_transformed_name(name) else name


def _why_not(flat: FlatModel, graph, dtype: str) -> str | None:
    """Why a term of the log-density has no gradient under JAX; None if it has one."""
    values, data = flat_vector(flat), list(flat.data.values())
    try:
        with precision(dtype):
            (total,) = flat.at(values, [graph.sum()])
            of = jax_function([values, *data], [total])
            shapes = [_like(v, dtype) for v in (values, *data)]
            jax.eval_shape(jax.grad(lambda *inputs: of(*inputs)[0]), *shapes)
    except Exception as error:
        return str(error).strip().splitlines()[0]
    return None


def why_not_finite(
    flat: FlatModel,
    data: Mapping[str, np.ndarray],
    points: Sequence[np.ndarray],
    dtype: str,
    fewest: int = 1,
) -> str | None:
    """Which term of the log-density, or of its gradient, is not finite at most of some points.

    None if every term is finite, at all points but fewer than `fewest`.

    Parameters
    ----------
    flat
        For all rows of the data.
    data
        Values of the model's data variables by name.
    points
        Flat vectors, ``(size,)`` each.
    """
    found = []
    for name, graph in _terms(flat):
        with precision(dtype):
            reasons = list(_reasons(flat, name, graph, data, points, dtype))
        found += [(len(reasons), reasons[0])] if len(reasons) >= fewest else []
    if not found:
        return None
    # Of equally many the first: what follows may not be finite because of it.
    count, reason = max(found, key=lambda of: of[0])
    return f"{reason} at the start, at {count} of {len(points)} random points"


def _reasons(flat: FlatModel, name: str, graph, data, points, dtype: str) -> Iterator[str]:
    """What of a term is not finite, at each point where something is not."""
    vector = flat_vector(flat)
    read = jax_function([vector, *flat.data.values()], flat.at(vector, [graph]))
    arrays = [jnp.asarray(array) for array in cast(data, dtype).values()]

    def total(at):
        value = read(at, *arrays)[0]
        return value.sum(), value

    slope = jax.jit(jax.value_and_grad(total, has_aux=True))
    for point in points:
        (_, value), gradient = slope(jnp.asarray(point, dtype))
        value, gradient = np.asarray(value), np.asarray(gradient)
        if not np.isfinite(value).all():
            place = place_of(~np.isfinite(value))
            yield f"the log-density of `{name}` is {value[~np.isfinite(value)][0]}{place}"
        elif not np.isfinite(gradient).all():
            parts = flat.layout.unravel(gradient)
            of = next(n for n, part in parts.items() if not np.isfinite(part).all())
            term = f"the gradient of the log-density of `{name}` by `{_untransformed(of)}`"
            yield f"{term} is not finite"


def names_in_jax(flat: FlatModel, dtype: str) -> list[str]:
    """Names of the variables of the posterior that JAX computes: of operations it has a form of."""
    if _has_form(flat, list(flat.posterior.values()), dtype):
        return list(flat.posterior)
    return [name for name, graph in flat.posterior.items() if _has_form(flat, [graph], dtype)]


def _has_form(flat: FlatModel, graphs, dtype: str) -> bool:
    vector, data = flat_vector(flat), list(flat.data.values())
    try:
        with precision(dtype):
            of = jax_function([vector, *data], flat.at(vector, graphs))
            if all(None not in v.type.shape for v in data):
                jax.eval_shape(of, *(_like(v, dtype) for v in (vector, *data)))
    except Exception:  # in the words of whichever operation
        return False
    return True


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
    given = [data[name] for name in flat.data]
    drawn = [function(np.asarray(values, np.float64), *given) for values in vectors]
    return {name: np.stack(parts) for name, *parts in zip(names, *drawn, strict=True)}


def _like(variable, dtype: str) -> jax.ShapeDtypeStruct:
    kind = KINDS.get(variable.type.numpy_dtype.kind, dtype)
    return jax.ShapeDtypeStruct(variable.type.shape, kind)
