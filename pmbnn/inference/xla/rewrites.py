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
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.compile.ops import ViewOp
from pytensor.gradient import DisconnectedGrad
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.graph.traversal import io_toposort
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.scalar.math import Softplus
from pytensor.tensor import TensorVariable
from pytensor.tensor.basic import Split
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Max, Sum
from pytensor.tensor.special import LogSoftmax

from pmbnn.inference.flat import Layout, split_vector

# Elementary functions in single precision as polynomials, which XLA vectorises
#
# The logarithm of XLA handles every number, and its inverse error function evaluates two
# polynomials
# for each number. Coefficients are from least squares at Chebyshev points, highest power first. In
# double precision the functions are those of JAX.
#
# Gain: half of the time of normal numbers (see `random`), and 0.08 of a large step where scales are
# a softplus by `exp_minus` (``uv run python benchmarks/large_networks.py``).


LOG = (
    -0.10134057,
    0.16234189,
    -0.17247014,
    0.19898565,
    -0.24970071,
    0.33335114,
    -0.50000364,
    0.99999994,
)
"""log(1 + m) / m for 1 + m from √½ to √2."""
LOG_1P = (
    0.0052534575,
    -0.029588507,
    0.07836167,
    -0.1367477,
    0.1911143,
    -0.2484437,
    0.3331927,
    -0.49999502,
    1.0,
)
"""log(1 + t) / t for t from 0 to 1."""
COS = (-0.00040402038, 0.0062539686, -0.057209166, 0.31949395, -0.9348014, 0.99999999)
"""cos(πt) / (1 − 4t²) for t from −1 to 1, in powers of t²."""
SIN = (-0.00038593754, 0.0068601869, -0.075187263, 0.52403615, -2.0261195, 3.1415926)
"""sin(πt) / (t (1 − t²)), the same way."""

EXP = (
    0.0082917167,
    0.041915029,
    0.16667663,
    0.499989,
    0.99999964,
    1.0000001,
)
"""exp(r) for r within ½ log 2 of 0."""

ROUNDING = np.float32(1.5 * 2**23)
"""Added to a number below 2²², it puts the nearest integer into the last bits."""

LARGEST = np.float32(87)
"""exp(−LARGEST) is still a normal number."""

LOG_2 = (np.float32(0.69311523), np.float32(3.1946183e-05))
"""log 2 in two parts; products of the first with small integers are exact."""

ROOT_HALF = int(np.float32(np.sqrt(0.5)).view(np.int32))
"""Bits of √½: mantissas are taken from there to √2."""


def log_1p(t: jax.Array) -> jax.Array:
    """log(1 + t) for t from 0 to 1."""
    return t * _polynomial(LOG_1P, t) if t.dtype == jnp.float32 else jnp.log1p(t)


def exp_minus(a: jax.Array) -> jax.Array:
    """exp(−a) for `a` of at least 0; in single precision not below exp(−87)."""
    if a.dtype != jnp.float32:
        return jnp.exp(-a)
    a = jnp.minimum(a, LARGEST)
    # exp(−a) = 2ⁿ exp(r); the bits of a number plus n shifted to its exponent are 2ⁿ of it.
    rounded = a * np.float32(-1 / np.log(2)) + ROUNDING
    n = rounded - ROUNDING
    bits = jax.lax.bitcast_convert_type(rounded, jnp.int32) << 23
    mantissa = _polynomial(EXP, -a - n * LOG_2[0] - n * LOG_2[1])
    return jax.lax.bitcast_convert_type(
        jax.lax.bitcast_convert_type(mantissa, jnp.int32) + bits, jnp.float32
    )


def log(x: jax.Array) -> jax.Array:
    """Logarithm of positive normal numbers."""
    if x.dtype != jnp.float32:
        return jnp.log(x)
    # The exponent as an integer, and the remaining factor between √½ and √2.
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) - ROOT_HALF
    mantissa = jax.lax.bitcast_convert_type((bits & 0x7FFFFF) + ROOT_HALF, jnp.float32)
    m = mantissa - 1
    return (bits >> 23).astype(jnp.float32) * np.float32(np.log(2)) + m * _polynomial(LOG, m)


def cos_and_sin(t: jax.Array) -> tuple[jax.Array, jax.Array]:
    """cos(πt) and sin(πt) for t from −1 to 1."""
    if t.dtype != jnp.float32:
        return jnp.cos(np.pi * t), jnp.sin(np.pi * t)
    square = t * t
    cos = (1 - 4 * square) * _polynomial(COS, square)
    return cos, t * (1 - square) * _polynomial(SIN, square)


def _polynomial(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    return functools.reduce(lambda total, c: total * x + np.float32(c), coefficients)


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


# Long vectors in leaves: the guide of a large network, divided by its weights
#
# Guides and priors are written for the flat vector. In the loop of a large network, every step
# would
# copy the weights out of the vector, and their gradients into one. There, each large free variable
# has separate arrays from the start to the end of a fit. A small network keeps the vector: one
# operation on all variables takes less time than one on each.
#
# Gain: 0.26 of a deterministic step of the dense network with 478,410 parameters, batch 128
# (``uv run python benchmarks/large_networks.py``; "Where the time of a large step goes" in
# ``benchmarks/README.md``).


LARGE = 2**14
"""Fewest elements of a free variable that is a separate leaf."""


class Leaves(NamedTuple):
    """Arrays of consecutive parts of one vector."""

    arrays: tuple[jax.Array, ...]


def leaf_lengths(layout: Layout) -> tuple[int, ...]:
    """Lengths of the leaves: each large free variable, and the variables between two large ones."""
    lengths: list[int] = []
    after_large = True
    for slot in layout.slots:
        if after_large or slot.length >= LARGE:
            lengths.append(slot.length)
        else:
            lengths[-1] += slot.length
        after_large = slot.length >= LARGE
    return tuple(lengths)


def is_divided(shape: Sequence[int], lengths: Sequence[int]) -> bool:
    """Whether an array of this shape is a vector that is divided into leaves."""
    return len(lengths) > 1 and tuple(shape) == (sum(lengths),)


def divided(tree, lengths: Sequence[int]):
    """A tree of arrays with every vector of the leaves' total length divided into leaves."""
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths) - 1)]

    def divide(leaf):
        return Leaves(tuple(jnp.split(leaf, ends))) if is_divided(leaf.shape, lengths) else leaf

    return jax.tree.map(divide, tree)


def joined(tree):
    """A tree of arrays with leaves concatenated to vectors."""

    def join(leaf):
        # Along the last axis: fits of a group are stacked on the first.
        return jnp.concatenate(leaf.arrays, axis=-1) if isinstance(leaf, Leaves) else leaf

    return jax.tree.map(join, tree, is_leaf=lambda leaf: isinstance(leaf, Leaves))


def divided_graph(
    inputs: Sequence[TensorVariable], outputs: Sequence[TensorVariable], lengths: Sequence[int]
) -> tuple[list[TensorVariable], list[TensorVariable]]:
    """Inputs and outputs of a graph on leaves instead of vectors.

    Elementwise operations, sums and splits are done leaf by leaf; before other operations, the
    leaves are concatenated.
    """
    if len(lengths) == 1:
        return list(inputs), list(outputs)
    graph = _Divided()
    new_inputs: list[TensorVariable] = []
    for variable in inputs:
        if is_divided(variable.type.shape, lengths):
            # Without names, because a function of JAX must not have a name twice.
            leaves = [pt.tensor(dtype=variable.dtype, shape=(length,)) for length in lengths]
            graph.leaves[variable] = leaves
            new_inputs += leaves
        else:
            new_inputs.append(variable)
    for node in io_toposort(inputs, outputs):
        graph.rebuild(node)
    return new_inputs, [graph.whole(output) for output in outputs]


class _Divided:
    """Replacements of the variables of a graph: one variable, or the leaves of a vector."""

    def __init__(self) -> None:
        self.leaves: dict[TensorVariable, list[TensorVariable]] = {}
        self._whole: dict[TensorVariable, TensorVariable] = {}

    def whole(self, variable: TensorVariable) -> TensorVariable:
        """The replacement as one variable; leaves are concatenated."""
        if variable in self.leaves and variable not in self._whole:
            self._whole[variable] = pt.join(0, *self.leaves[variable])
        return self._whole.get(variable, variable)

    def rebuild(self, node: Apply) -> None:
        """Replace the outputs of a node whose inputs have been replaced."""
        vectors = [v for v in node.inputs if v in self.leaves]
        if vectors and self._is_elementwise(node, vectors):
            leaves = zip(*(self._spread(v, vectors[0]) for v in node.inputs), strict=True)
            self.leaves[node.outputs[0]] = [node.op(*inputs) for inputs in leaves]
        elif vectors and isinstance(node.op, Sum):
            self._whole[node.outputs[0]] = sum(leaf.sum() for leaf in self.leaves[vectors[0]])
        elif vectors and isinstance(node.op, Split):
            self._split(node)
        elif any(v in self._whole or v in self.leaves for v in node.inputs):
            outputs = node.op(*(self.whole(v) for v in node.inputs), return_list=True)
            self._whole |= dict(zip(node.outputs, outputs, strict=True))

    def _is_elementwise(self, node: Apply, vectors: list[TensorVariable]) -> bool:
        """Whether a node can be computed leaf by leaf."""
        elementwise = Elemwise | Materialised | DisconnectedGrad
        if not isinstance(node.op, elementwise) or len(node.outputs) > 1:
            return False
        lengths, *others = {_lengths(self.leaves[v]) for v in vectors}
        return not others and all(
            v in self.leaves or v.type.broadcastable == (True,) or _is_constant(v, sum(lengths))
            for v in node.inputs
        )

    def _spread(self, variable: TensorVariable, like: TensorVariable) -> list[TensorVariable]:
        """Leaves of a vector; of a scalar, as many copies as `like` has leaves."""
        lengths = _lengths(self.leaves[like])
        if variable not in self.leaves and _is_constant(variable, sum(lengths)):
            parts = np.split(variable.data, np.cumsum(lengths)[:-1])
            return [pt.constant(part) for part in parts]
        return self.leaves.get(variable) or [self.whole(variable)] * len(self.leaves[like])

    def _split(self, node: Apply) -> None:
        """Replace the parts of a vector that is split by leaves, parts of a leaf, or several."""
        rest = list(self.leaves[node.inputs[0]])
        for output, length in zip(node.outputs, node.inputs[-1].data, strict=True):
            part: list[TensorVariable] = []
            while missing := int(length) - sum(_lengths(part)):
                (available,) = _lengths(rest[:1])
                if available > missing:
                    rest[:1] = split_vector(rest[0], [missing, available - missing])
                part.append(rest.pop(0))
            if len(part) == 1:
                self._whole[output] = part[0]
            else:
                self.leaves[output] = part


def _is_constant(variable: TensorVariable, length: int) -> bool:
    """Whether a variable is a constant vector of this length."""
    return isinstance(variable, Constant) and variable.type.shape == (length,)


def _lengths(leaves: Sequence[TensorVariable]) -> tuple[int, ...]:
    return tuple(leaf.type.shape[0] for leaf in leaves)
