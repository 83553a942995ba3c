"""Convolutions by the backend's own kernels, where a model has them as products with patches.

Models write a convolution as its kernels times patches of the images: the one form that every
backend of PyTensor runs, and that XLA runs fast within a loop on a processor. An accelerator has
kernels of its own, and would write each pixel to memory as often as patches see it. What a rewrite
of products has made of patches, as Flipout's signs at every row, stays a product.

Gain: none on a processor, which keeps to patches (jax issue 12868). That of an accelerator is not
measured yet; ``benchmarks/accelerator.py`` would, where there is one.
"""

import math

import numpy as np
from jax.lax import conv_general_dilated
from pytensor.graph.basic import Apply, Constant
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.op import Op
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.tensor import TensorVariable, as_tensor, tensor
from pytensor.tensor.basic import Join
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape
from pytensor.tensor.subtensor import Subtensor, indices_from_subtensor

from pmbnn.models.networks.convolution import positions


class KernelProduct(Op):
    """Kernels times patches of images, ``(unit, row · column · observation)``, without patches.

    Inputs are the kernels, ``(unit, channel · size · size)``, and the images,
    ``(channel, row, column, observation)``. A kernel moves by `stride` pixels.
    """

    __props__ = ("size", "stride")

    def __init__(self, size: int, stride: int = 1) -> None:
        self.size, self.stride = size, stride

    def make_node(self, kernels, images):  # noqa: D102
        kernels, images = as_tensor(kernels), as_tensor(images)
        _, rows, columns, n = images.type.shape
        known = None not in (rows, columns, n)
        positions = self._positions(rows, columns) * n if known else None
        shape = (kernels.type.shape[0], positions)
        return Apply(self, [kernels, images], [tensor(dtype=images.dtype, shape=shape)])

    def infer_shape(self, node, shapes):  # noqa: D102
        (units, _), (_, rows, columns, n) = shapes
        return [(units, self._positions(rows, columns) * n)]

    def perform(self, node, inputs, outputs):  # noqa: D102
        kernels, images = inputs
        square = (self.size, self.size)
        windows = np.lib.stride_tricks.sliding_window_view(images, square, axis=(1, 2))
        windows = windows[:, :: self.stride, :: self.stride]
        patches = windows.transpose(0, 4, 5, 1, 2, 3).reshape(kernels.shape[1], -1)
        outputs[0][0] = kernels @ patches

    def _positions(self, rows, columns):
        return positions(rows, self.size, self.stride) * positions(columns, self.size, self.stride)


@jax_funcify.register(KernelProduct)
def _funcify_kernel_product(op, **kwargs):
    def product(kernels, images):
        shape = (kernels.shape[0], images.shape[0], op.size, op.size)
        forms = ("CHWN", "OIHW", "CHWN")
        maps = conv_general_dilated(
            images, kernels.reshape(shape), (op.stride,) * 2, "VALID", dimension_numbers=forms
        )
        return maps.reshape((kernels.shape[0], -1))

    return product


def use_own_convolutions(graph: FunctionGraph) -> None:
    """Replace products with patches in `graph`, as a model writes them, by convolutions."""
    for node in graph.toposort():
        op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
        if not isinstance(op, Dot) or node.outputs[0].type.ndim != 2:
            continue
        kernels, patches = node.inputs
        found = _patched(patches)
        if found is not None:
            images, size, stride = found
            product = KernelProduct(size, stride)(kernels, images)
            graph.replace(node.outputs[0], product, import_missing=True)


def _patched(patches: TensorVariable) -> tuple[TensorVariable, int, int] | None:
    """What a matrix is the patches of, all in their order, their size and stride; else None."""
    stacked = _input_of(patches, Reshape)
    node = None if stacked is None else stacked.owner
    if node is None or not isinstance(node.op, Join) or node.op.axis != 1:
        return None
    size, found = math.isqrt(len(node.inputs)), [_window(window) for window in node.inputs]
    if None in found:
        return None
    (images, _), places = found[0], [place for _, place in found]
    # Of a single position any stride is the same.
    stride = max(side.step for side in places[0])
    if any(other is not images for other, _ in found) or places != _places(images, size, stride):
        return None
    channels = images.type.shape[0]
    is_whole = channels is not None and patches.type.shape[0] == channels * size**2
    return (images, size, stride) if is_whole else None


def _places(images: TensorVariable, size: int, stride: int) -> list[tuple[range, range]]:
    """Rows and columns of every window, in the order in which a patch has its pixels."""
    _, rows, columns, _ = images.type.shape
    last_row, last_column = rows - size + 1, columns - size + 1
    return [
        (range(i, i + last_row, stride), range(j, j + last_column, stride))
        for i in range(size)
        for j in range(size)
    ]


def _window(window: TensorVariable) -> tuple[TensorVariable, tuple[range, range]] | None:
    """Images that a window is cut out of, and its rows and columns; None if it is no such thing."""
    cut = _input_of(window, DimShuffle)
    if cut is None or window.owner.op.new_order != (0, "x", 1, 2, 3):
        return None
    images = _input_of(cut, Subtensor)
    if images is None or None in images.type.shape[1:3]:
        return None
    bounds = cut.owner.inputs[1:]
    if not all(isinstance(bound, Constant) for bound in bounds):
        return None
    numbers = [int(bound.data) for bound in bounds]
    parts = [*indices_from_subtensor(numbers, cut.owner.op.idx_list), slice(None), slice(None)][:4]
    if not all(isinstance(part, slice) for part in parts) or parts[::3] != [slice(None)] * 2:
        return None
    rows, columns = (range(images.type.shape[axis])[parts[axis]] for axis in (1, 2))
    return images, (rows, columns)


def _input_of(variable: TensorVariable, kind: type[Op]) -> TensorVariable | None:
    """First input of what made a variable, if that is of a kind."""
    node = variable.owner
    return node.inputs[0] if node is not None and isinstance(node.op, kind) else None
