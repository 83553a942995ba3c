"""Which variable of a model cannot be fitted, told once something has failed."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax
from pymc.util import get_untransformed_name, is_transformed_name

from pmbnn.inference.batches import KINDS
from pmbnn.inference.flat import FlatModel, flat_vector
from pmbnn.inference.xla.compile import jax_function, precision


@contextmanager
def explained(flat: FlatModel, dtype: str) -> Iterator[None]:
    """Raise ValueError where what is done within fails because of a variable of the model.

    An operation may have no form in JAX, need numbers where JAX has shapes only, or have no
    gradient: PyTensor and JAX tell which one, but not where in the model it is.
    """
    try:
        yield
    except Exception as error:
        for kind in ("log_likelihoods", "log_priors", "potentials"):
            for name, graph in getattr(flat, kind).items():
                reason = _why_not(flat, graph, dtype)
                if reason is not None:
                    name = get_untransformed_name(name) if is_transformed_name(name) else name
                    raise ValueError(
                        f"`model` cannot be fitted by gradients through JAX: the log-density of "
                        f"`{name}` has an operation that it does not take. {reason}"
                    ) from error
        raise


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


def _like(variable, dtype: str) -> jax.ShapeDtypeStruct:
    kind = KINDS.get(variable.type.numpy_dtype.kind, dtype)
    return jax.ShapeDtypeStruct(variable.type.shape, kind)
