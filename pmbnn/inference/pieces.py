"""Long vectors in pieces: a guide of a large network, cut where its weights meet.

The flat vector is what guides and priors are written for. Inside the loop of a large network it
costs: every step would copy the weights out of it, and their gradients together again. There each
large free variable has arrays of its own, from a fit's start to its end. A small network keeps the
vector whole: one operation on all costs less than one on each.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.traversal import io_toposort
from pytensor.tensor import TensorVariable
from pytensor.tensor.basic import Split
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Sum

from pmbnn.inference.flat import Slot, split_vector
from pmbnn.inference.xla_forms import Materialised

LARGE = 2**14
"""Elements of a free variable that make it a piece of its own."""


class Pieces(NamedTuple):
    """Arrays that stand for one vector, in order."""

    arrays: tuple[jax.Array, ...]


def piece_lengths(slots: Sequence[Slot]) -> tuple[int, ...]:
    """Lengths of the pieces: each large free variable, and what lies between two of them."""
    lengths: list[int] = []
    after_large = True
    for slot in slots:
        length = slot.stop - slot.start
        if after_large or length >= LARGE:
            lengths.append(length)
        else:
            lengths[-1] += length
        after_large = length >= LARGE
    return tuple(lengths)


def is_divided(shape: Sequence[int], lengths: Sequence[int]) -> bool:
    """Whether an array of that shape is a vector that is kept in pieces."""
    return len(lengths) > 1 and tuple(shape) == (sum(lengths),)


def divided(tree, lengths: Sequence[int]):
    """A tree of arrays with every vector of the pieces' total length in pieces."""
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths) - 1)]

    def divide(leaf):
        return Pieces(tuple(jnp.split(leaf, ends))) if is_divided(leaf.shape, lengths) else leaf

    return jax.tree.map(divide, tree)


def joined(tree):
    """A tree of arrays with pieces made vectors again."""

    def join(leaf):
        # Along the last axis: fits of a group are stacked on the first.
        return jnp.concatenate(leaf.arrays, axis=-1) if isinstance(leaf, Pieces) else leaf

    return jax.tree.map(join, tree, is_leaf=lambda leaf: isinstance(leaf, Pieces))


def divided_graph(
    inputs: Sequence[TensorVariable], outputs: Sequence[TensorVariable], lengths: Sequence[int]
) -> tuple[list[TensorVariable], list[TensorVariable]]:
    """A graph on pieces instead of vectors: its inputs, each vector's pieces in its place.

    Operations element by element, their sums and splits are taken piece by piece; before any
    other, the pieces are joined.
    """
    if len(lengths) == 1:
        return list(inputs), list(outputs)
    graph = _Divided()
    found: list[TensorVariable] = []
    for variable in inputs:
        if is_divided(variable.type.shape, lengths):
            # Without names of their own: JAX's functions take none twice.
            pieces = [pt.tensor(dtype=variable.dtype, shape=(length,)) for length in lengths]
            graph.pieces[variable] = pieces
            found += pieces
        else:
            found.append(variable)
    for node in io_toposort(inputs, outputs):
        graph.rebuild(node)
    return found, [graph.whole(output) for output in outputs]


class _Divided:
    """What stands for the variables of a graph: one variable, or the pieces of a vector."""

    def __init__(self) -> None:
        self.pieces: dict[TensorVariable, list[TensorVariable]] = {}
        self._whole: dict[TensorVariable, TensorVariable] = {}

    def whole(self, variable: TensorVariable) -> TensorVariable:
        """One variable, joined if need be."""
        if variable in self.pieces and variable not in self._whole:
            self._whole[variable] = pt.join(0, *self.pieces[variable])
        return self._whole.get(variable, variable)

    def rebuild(self, node: Apply) -> None:
        """Find what stands for a node's outputs; that of its inputs is known."""
        vectors = [v for v in node.inputs if v in self.pieces]
        if vectors and self._is_elementwise(node, vectors):
            of_inputs = zip(*(self._spread(v, vectors[0]) for v in node.inputs), strict=True)
            self.pieces[node.outputs[0]] = [node.op(*found) for found in of_inputs]
        elif vectors and isinstance(node.op, Sum):
            self._whole[node.outputs[0]] = sum(piece.sum() for piece in self.pieces[vectors[0]])
        elif vectors and isinstance(node.op, Split):
            self._split(node)
        elif any(v in self._whole or v in self.pieces for v in node.inputs):
            found = node.op(*(self.whole(v) for v in node.inputs), return_list=True)
            self._whole |= dict(zip(node.outputs, found, strict=True))

    def _is_elementwise(self, node: Apply, vectors: list[TensorVariable]) -> bool:
        """Whether a node may be taken piece by piece."""
        if not isinstance(node.op, Elemwise | Materialised) or len(node.outputs) > 1:
            return False
        same = {_lengths(self.pieces[v]) for v in vectors}
        return len(same) == 1 and all(
            v in self.pieces or v.type.broadcastable == (True,) for v in node.inputs
        )

    def _spread(self, variable: TensorVariable, like: TensorVariable) -> list[TensorVariable]:
        """A vector's pieces; of what is the same for all its elements, as many copies."""
        return self.pieces.get(variable) or [self.whole(variable)] * len(self.pieces[like])

    def _split(self, node: Apply) -> None:
        """The parts of a vector that is split: pieces, parts of them, or several."""
        rest = list(self.pieces[node.inputs[0]])
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
                self.pieces[output] = taken


def _lengths(pieces: Sequence[TensorVariable]) -> tuple[int, ...]:
    return tuple(piece.type.shape[0] for piece in pieces)
