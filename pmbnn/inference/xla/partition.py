"""Long vectors in leaves: a guide of a large network, cut where its weights meet.

The flat vector is what guides and priors are written for. Inside the loop of a large network it
costs: every step would copy the weights out of it, and their gradients together again. There each
large free variable has arrays of its own, from a fit's start to its end. A small network keeps the
vector whole: one operation on all costs less than one on each.

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
"""Elements of a free variable that make it a leaf of its own."""


class Leaves(NamedTuple):
    """Arrays that stand for one vector, in order."""

    arrays: tuple[jax.Array, ...]


def leaf_lengths(layout: Layout) -> tuple[int, ...]:
    """Lengths of the leaves: each large free variable, and what lies between two of them."""
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
    """Whether an array of that shape is a vector that is kept in leaves."""
    return len(lengths) > 1 and tuple(shape) == (sum(lengths),)


def divided(tree, lengths: Sequence[int]):
    """A tree of arrays with every vector of the leaves' total length in leaves."""
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths) - 1)]

    def divide(leaf):
        return Leaves(tuple(jnp.split(leaf, ends))) if is_divided(leaf.shape, lengths) else leaf

    return jax.tree.map(divide, tree)


def joined(tree):
    """A tree of arrays with leaves made vectors again."""

    def join(leaf):
        # Along the last axis: fits of a group are stacked on the first.
        return jnp.concatenate(leaf.arrays, axis=-1) if isinstance(leaf, Leaves) else leaf

    return jax.tree.map(join, tree, is_leaf=lambda leaf: isinstance(leaf, Leaves))


def divided_graph(
    inputs: Sequence[TensorVariable], outputs: Sequence[TensorVariable], lengths: Sequence[int]
) -> tuple[list[TensorVariable], list[TensorVariable]]:
    """A graph on leaves instead of vectors: its inputs, each vector's leaves in its place.

    Operations element by element, their sums and splits are taken leaf by leaf; before any
    other, the leaves are joined.
    """
    if len(lengths) == 1:
        return list(inputs), list(outputs)
    graph = _Divided()
    found: list[TensorVariable] = []
    for variable in inputs:
        if is_divided(variable.type.shape, lengths):
            # Without names of their own: JAX's functions take none twice.
            leaves = [pt.tensor(dtype=variable.dtype, shape=(length,)) for length in lengths]
            graph.leaves[variable] = leaves
            found += leaves
        else:
            found.append(variable)
    for node in io_toposort(inputs, outputs):
        graph.rebuild(node)
    return found, [graph.whole(output) for output in outputs]


class _Divided:
    """What stands for the variables of a graph: one variable, or the leaves of a vector."""

    def __init__(self) -> None:
        self.leaves: dict[TensorVariable, list[TensorVariable]] = {}
        self._whole: dict[TensorVariable, TensorVariable] = {}

    def whole(self, variable: TensorVariable) -> TensorVariable:
        """One variable, joined if need be."""
        if variable in self.leaves and variable not in self._whole:
            self._whole[variable] = pt.join(0, *self.leaves[variable])
        return self._whole.get(variable, variable)

    def rebuild(self, node: Apply) -> None:
        """Find what stands for a node's outputs; that of its inputs is known."""
        vectors = [v for v in node.inputs if v in self.leaves]
        if vectors and self._is_elementwise(node, vectors):
            of_inputs = zip(*(self._spread(v, vectors[0]) for v in node.inputs), strict=True)
            self.leaves[node.outputs[0]] = [node.op(*found) for found in of_inputs]
        elif vectors and isinstance(node.op, Sum):
            self._whole[node.outputs[0]] = sum(leaf.sum() for leaf in self.leaves[vectors[0]])
        elif vectors and isinstance(node.op, Split):
            self._split(node)
        elif any(v in self._whole or v in self.leaves for v in node.inputs):
            found = node.op(*(self.whole(v) for v in node.inputs), return_list=True)
            self._whole |= dict(zip(node.outputs, found, strict=True))

    def _is_elementwise(self, node: Apply, vectors: list[TensorVariable]) -> bool:
        """Whether a node may be taken leaf by leaf."""
        alike = Elemwise | Materialised | DisconnectedGrad
        if not isinstance(node.op, alike) or len(node.outputs) > 1:
            return False
        same = {_lengths(self.leaves[v]) for v in vectors}
        (like,) = same if len(same) == 1 else (None,)
        return like is not None and all(
            v in self.leaves or v.type.broadcastable == (True,) or _is_constant(v, sum(like))
            for v in node.inputs
        )

    def _spread(self, variable: TensorVariable, like: TensorVariable) -> list[TensorVariable]:
        """A vector's leaves; of what is the same for all its elements, as many copies."""
        lengths = _lengths(self.leaves[like])
        if variable not in self.leaves and _is_constant(variable, sum(lengths)):
            parts = np.split(variable.data, np.cumsum(lengths)[:-1])
            return [pt.constant(part) for part in parts]
        return self.leaves.get(variable) or [self.whole(variable)] * len(self.leaves[like])

    def _split(self, node: Apply) -> None:
        """The parts of a vector that is split: leaves, parts of them, or several."""
        rest = list(self.leaves[node.inputs[0]])
        for output, length in zip(node.outputs, node.inputs[-1].data, strict=True):
            taken: list[TensorVariable] = []
            while missing := int(length) - sum(_lengths(taken)):
                (there,) = _lengths(rest[:1])
                if there > missing:
                    rest[:1] = split_vector(rest[0], [missing, there - missing])
                taken.append(rest.pop(0))
            if len(taken) == 1:
                self._whole[output] = taken[0]
            else:
                self.leaves[output] = taken


def _is_constant(variable: TensorVariable, length: int) -> bool:
    """Whether it is a vector of so many numbers that are known."""
    return isinstance(variable, Constant) and variable.type.shape == (length,)


def _lengths(leaves: Sequence[TensorVariable]) -> tuple[int, ...]:
    return tuple(leaf.type.shape[0] for leaf in leaves)
