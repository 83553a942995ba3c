"""Long vectors in leaves: the guide of a large network, divided by its weights.

Guides and priors are written for the flat vector. In the loop of a large network, every step would
copy the weights out of the vector, and their gradients into one. There, each large free variable
has separate arrays from the start to the end of a fit. A small network keeps the vector: one
operation on all variables takes less time than one on each.

Gain: 0.26 of a deterministic step of the dense network with 478,410 parameters, batch 128
(``uv run python benchmarks/large_networks.py``; "Where the time of a large step goes" in
``benchmarks/README.md``).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedGrad
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.traversal import io_toposort
from pytensor.tensor import TensorVariable
from pytensor.tensor.basic import Split
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Sum

from pmbnn.inference.flat import Layout, split_vector
from pmbnn.inference.xla.rewrites import Materialised

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
