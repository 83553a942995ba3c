"""Operations in a form that XLA runs fast on a CPU; numbers differ by rounding only.

XLA calls a library for every matrix product, and computes sums that it cannot fuse with a scalar
loop. For matrices of a few rows that takes longer than the arithmetic. Written as a sum of products
over the short axis, a product fuses with the activation around it. The shapes, which are known when
JAX traces, decide which form is used.

XLA also fuses cheap operations into all their users and so repeats them: scales for weights,
gradients and divergence. `materialised` prevents that.

Gain: with the whole of this package, 16 fits of the 2-5-5-2 network at once take 0.54 of the time
of a bare JAX loop (``uv run python benchmarks/small_network.py``). Transpositions last are 0.3 of a
large step with local reparameterisation and 0.5 with Flipout, what is computed once 0.15 for
gradients, 0.08 for scales and 0.03 for the learning rate
(``uv run python benchmarks/large_networks.py``). Sums over the classes take half of a gradient for
samplers (``uv run python benchmarks/gradient.py``) where XLA reduces them with its scalar loop.
"""

import functools
import operator

import jax
import jax.numpy as jnp
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scalar.math import Softplus
from pytensor.tensor import TensorVariable
from pytensor.tensor.basic import Split
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Max, Sum
from pytensor.tensor.special import LogSoftmax

from pmbnn.inference.xla.polynomials import exp_minus, log_1p

SHORT = 8
"""Longest axis that is unrolled."""
LONG = 64
"""Fewest observations for which that pays."""


class Materialised(Op):
    """The same array, computed once and kept in memory."""

    # Not a view class of PyTensor, which its rewrites remove from every graph.
    view_map = {0: [0]}  # noqa: RUF012
    __props__ = ()

    def make_node(self, x):  # noqa: D102
        return Apply(self, [x], [x.type()])

    def perform(self, node, inputs, outputs):  # noqa: D102
        outputs[0][0] = inputs[0]

    def pullback(self, inputs, outputs, gradients):  # noqa: D102
        return gradients


def materialised(variable: TensorVariable) -> TensorVariable:
    """The same variable, which XLA computes once for all its users."""
    return Materialised()(variable)


class StoppedGradient(Materialised):
    """The same array, which JAX's gradients take as a constant."""


def computed_once(array: jax.Array) -> jax.Array:
    """The same JAX array, which XLA computes once.

    Otherwise XLA repeats a gradient for each moment of the optimiser, and a learning rate within
    the loop over the elements of each parameter.
    """
    return jax.lax.optimization_barrier(array)


class ThinDot(Dot):
    """Matrix product that is unrolled if one matrix is small and the other has many columns."""


class ThinLogSoftmax(LogSoftmax):
    """Log-softmax that is unrolled over a short first axis."""


class ShortMax(Max):
    """Maximum over axes of a few elements each, computed slice by slice."""


class ShortSum(Sum):
    """Sum over axes of a few elements each, computed slice by slice."""


class PlainSplit(Split):
    """Split of a vector whose gradient concatenates parts that are computed first."""


class FastSoftplus(ViewOp):
    """Softplus without a logarithm and without a choice of formulas by range."""


def use_fast_forms(graph: FunctionGraph) -> None:
    """Replace operations of `graph` by their fast forms."""
    _transpose_last(graph)
    for node in graph.toposort():
        if type(node.op) is Dot:
            fast = ThinDot()
        elif type(node.op) is LogSoftmax and node.op.axis == (0,):
            fast = ThinLogSoftmax(axis=node.op.axis)
        elif type(node.op) is Max and _is_short(node):
            fast = ShortMax(axis=node.op.axis)
        elif type(node.op) is Sum and _is_short(node):
            fast = ShortSum(axis=node.op.axis)
        elif type(node.op) is Split and node.op.axis == 0:
            fast = PlainSplit(node.op.len_splits, axis=0)
        elif isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Softplus):
            fast = FastSoftplus()
        else:
            continue
        replacements = fast(*node.inputs, return_list=True)
        graph.replace_all(list(zip(node.outputs, replacements, strict=True)), import_missing=True)


def _transpose_last(graph: FunctionGraph) -> None:
    """Transpose factors of products after elementwise operations, not before them.

    A product takes a transposed matrix directly; an elementwise operation reads it across its rows,
    which takes several times as long.
    """
    for node in graph.toposort():
        if isinstance(node.op, Dot):
            for matrix in node.inputs:
                before = _untransposed(matrix)
                if before is not None and not isinstance(matrix.owner.op, DimShuffle):
                    graph.replace(matrix, before.T, import_missing=True)


def _untransposed(matrix: TensorVariable) -> TensorVariable | None:
    """The matrix whose transpose a matrix is, if all its inputs are transposed; otherwise None."""
    node = matrix.owner
    if node is None or matrix.type.ndim != 2:
        return None
    if isinstance(node.op, DimShuffle) and node.op.new_order == (1, 0):
        return node.inputs[0]
    if not isinstance(node.op, Elemwise):
        return None
    # A broadcast vector or scalar is transposed at no cost.
    inputs = [v.T if any(v.type.broadcastable) else _untransposed(v) for v in node.inputs]
    return None if any(v is None for v in inputs) else node.op(*inputs)


def _is_short(node) -> bool:
    """Whether a maximum or sum is over a few elements, none of them on the last axis."""
    x, axes = node.inputs[0], node.op.axis
    if axes is None or x.type.ndim - 1 in axes:
        return False
    lengths = [x.type.shape[axis] for axis in axes]
    return None not in lengths and max(lengths) <= SHORT


def _dot(a, b):
    thin = a.ndim == b.ndim == 2 and max(a.shape) <= SHORT and b.shape[1] >= LONG
    return _thin_product(a, b) if thin else jnp.dot(a, b)


def _log_softmax(x):
    thin = x.ndim == 2 and x.shape[0] <= SHORT and x.shape[1] >= LONG
    return _thin_log_softmax(x) if thin else jax.nn.log_softmax(x, axis=0)


def _split(node):
    lengths = tuple(int(n) for n in node.inputs[1].data)
    return lambda x, _: list(_plain_split(x, lengths))


def _total(terms):
    return functools.reduce(operator.add, terms)


@jax.custom_jvp
def _kept(x):
    """The same array behind a barrier, without the barrier that JAX puts around a gradient."""
    return jax.lax.optimization_barrier(x)


_kept.defjvps(lambda tangent, _, x: tangent)


@jax.custom_jvp
def _softplus(x):
    """``max(x, 0) + log(1 + exp(-|x|))``."""
    return jnp.maximum(x, 0) + log_1p(exp_minus(jnp.abs(x)))


@_softplus.defjvp
def _softplus_derivative(primals, tangents):
    (x,) = primals
    t = exp_minus(jnp.abs(x))
    return _softplus(x), jnp.where(x < 0, t, 1) / (1 + t) * tangents[0]


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _short_max(x, axes):
    return _over(jnp.maximum, x, axes)


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def _short_sum(x, axes):
    return _over(jnp.add, x, axes)


@_short_sum.defjvp
def _short_sum_derivative(axes, primals, tangents):
    # The derivative of the slices would be computed by slice; that of a sum is one array.
    return _short_sum(primals[0], axes), jnp.sum(tangents[0], axes)


def _over(operation, x, axes):
    """Reduction by a binary operation over some axes, slice by slice."""
    for axis in reversed(axes):
        parts = (jax.lax.index_in_dim(x, i, axis, keepdims=False) for i in range(x.shape[axis]))
        x = functools.reduce(operation, parts)
    return x


def _max_forward(x, axes):
    highest = _short_max(x, axes)
    return highest, (x, highest)


def _max_backward(axes, residuals, d):
    x, highest = residuals
    # Equal maxima share the gradient, as in JAX.
    is_highest = (x == jnp.expand_dims(highest, axes)).astype(d.dtype)
    return (is_highest * jnp.expand_dims(d / _over(jnp.add, is_highest, axes), axes),)


_short_max.defvjp(_max_forward, _max_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _plain_split(x, lengths):
    return jax.lax.split(x, lengths)


def _split_forward(x, lengths):
    return _plain_split(x, lengths), None


def _split_backward(lengths, residuals, d):
    # Otherwise XLA loops over all elements and looks up the part of each.
    joined = jnp.concatenate(jax.lax.optimization_barrier(d))
    return (jax.lax.optimization_barrier(joined),)


_plain_split.defvjp(_split_forward, _split_backward)


@jax.custom_vjp
def _thin_product(a, b):
    """``a @ b`` as a sum of outer products."""
    return _total(a[:, k, None] * b[k] for k in range(len(b)))


def _product_forward(a, b):
    # Without the barrier XLA computes the weights again for every observation.
    a = jax.lax.optimization_barrier(a)
    return _thin_product(a, b), (a, b)


def _product_backward(residuals, d):
    a, b = residuals
    # The sum over observations is a library product, as XLA does not vectorise its own.
    return d @ b.T, _total(a[j, :, None] * d[j] for j in range(len(a)))


_thin_product.defvjp(_product_forward, _product_backward)


@jax.custom_vjp
def _thin_log_softmax(x):
    return _log_softmax_forward(x)[0]


def _log_softmax_forward(x):
    if len(x) == 2:
        return _log_softmax_of_two(*x)
    rows = list(x)
    highest = functools.reduce(jnp.maximum, rows)
    powers = [jnp.exp(row - highest) for row in rows]
    total = _total(powers)
    shift = highest + jnp.log(total)
    return jnp.stack([row - shift for row in rows]), jnp.stack([p / total for p in powers])


def _log_softmax_of_two(first, second):
    """Log-probabilities and probabilities of two classes, with one exponential."""
    step = second - first
    t = jnp.exp(-jnp.abs(step))
    shift, larger = log_1p(t), 1 / (1 + t)
    smaller, is_first = t * larger, step < 0
    logs = [-jnp.maximum(step, 0) - shift, jnp.minimum(step, 0) - shift]
    shares = [jnp.where(is_first, larger, smaller), jnp.where(is_first, smaller, larger)]
    return jnp.stack(logs), jnp.stack(shares)


def _log_softmax_backward(probabilities, d):
    return (d - probabilities * _total(d[i] for i in range(len(d))),)


_thin_log_softmax.defvjp(_log_softmax_forward, _log_softmax_backward)


jax_funcify.register(Materialised, lambda op, **_: _kept)
jax_funcify.register(StoppedGradient, lambda op, **_: jax.lax.stop_gradient)
jax_funcify.register(FastSoftplus, lambda op, **_: _softplus)
jax_funcify.register(ShortMax, lambda op, **_: lambda x: _short_max(x, tuple(sorted(op.axis))))
jax_funcify.register(ShortSum, lambda op, **_: lambda x: _short_sum(x, tuple(sorted(op.axis))))
jax_funcify.register(PlainSplit, lambda op, node, **_: _split(node))
jax_funcify.register(ThinDot, lambda op, **_: _dot)
jax_funcify.register(ThinLogSoftmax, lambda op, **_: _log_softmax)
