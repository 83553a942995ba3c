"""Finding where weights enter a model: products of a random matrix with something of the rows.

A convolution is such a product too, of its kernels with patches of the images; then several
columns belong to one observation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytensor
from pytensor.compile.mode import Mode
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Variable
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import ancestors
from pytensor.scalar import Add, Mul, Neg, TrueDiv
from pytensor.tensor import TensorVariable
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape

from pmbnn.models import ROW_DATA

REARRANGING = (DimShuffle, Reshape, ViewOp)


@dataclass(frozen=True)
class Product:
    """A matrix of weights times columns that come from the rows.

    Attributes
    ----------
    output
        The product, and the bias added to it where there is one.
    matrix, columns
        Its factors, ``(unit, input)`` and ``(input, column)``.
    bias
        What is added to every column, ``(unit, 1)``; None if nothing random is.
    transposed
        Whether the graph has the product as ``(column, unit)``.
    slots
        Names of the free variables that matrix and bias are linear in.
    units, inputs, rows
        Lengths: of the output, of the sum, and number of observations.
    positions
        Columns that belong to one observation.
    rows_last
        Whether neighbouring columns belong to different observations, ``(position, row)``.
    """

    output: TensorVariable
    matrix: TensorVariable
    columns: TensorVariable
    bias: TensorVariable | None
    transposed: bool
    slots: tuple[str, ...]
    units: int
    inputs: int
    rows: int
    positions: int
    rows_last: bool


def find_products(
    graph: FunctionGraph, free: Mapping[str, TensorVariable], data: Mapping[str, TensorVariable]
) -> list[Product]:
    """Every product of weights with columns in a graph, first layer first.

    Raises
    ------
    ValueError
        If a free variable enters such a product and something else as well, or if the columns
        of a product do not belong to single observations.
    """
    rows = [data[name] for name in ROW_DATA if name in data]
    factors = [f for node in graph.toposort() if (f := _factors(node, free, rows))]
    factors = [_upright(*found) for found in factors]
    layouts = _layouts(factors, free, data) if factors else []
    return [
        _product(graph, *found, layout, free, rows)
        for found, layout in zip(factors, layouts, strict=True)
    ]


def _upright(weights, columns, output):
    """Factors as ``(unit, input)`` and ``(input, column)``, the output, and if it was turned."""
    if output.owner.inputs[0] is columns:
        return weights.T, columns.T, output, True
    return weights, columns, output, False


def _product(graph, matrix, columns, output, transposed, layout, free, rows) -> Product:
    bias, whole, bias_slot = _bias(graph, output, transposed, free, rows)
    slots = [linear_in(matrix, free), *([] if bias_slot is None else [bias_slot])]
    for name in slots:
        _check_used_once(graph, free[name], name)
    return Product(whole, matrix, columns, bias, transposed, tuple(slots), *layout)


def linear_in(variable: TensorVariable, free: Mapping[str, TensorVariable]) -> str | None:
    """Name of the free variable that each element of `variable` is linear in; None if in none.

    Linear is what rearranges the elements of one free variable, and multiplies them by things
    that do not depend on it: weights as they are, or as scaled by a learned scale.
    """
    for name, value in free.items():
        if variable is value:
            return name if value.type.ndim else None
    if variable.owner is None or not isinstance(variable, TensorVariable):
        return None
    op, inputs = variable.owner.op, variable.owner.inputs
    if isinstance(op, REARRANGING):
        return linear_in(inputs[0], free)
    if not isinstance(op, Elemwise):
        return None
    if isinstance(op.scalar_op, Neg):
        return linear_in(inputs[0], free)
    if isinstance(op.scalar_op, Mul | TrueDiv):
        candidates = inputs if isinstance(op.scalar_op, Mul) else inputs[:1]
        return _linear_factor(variable, candidates, free)
    return None


def _linear_factor(variable, candidates, free) -> str | None:
    """The free variable that one factor of an elementwise product is linear in."""
    for factor in candidates:
        name = linear_in(factor, free)
        # A factor that is spread out would give several elements the same draw.
        if name is None or factor.type.broadcastable != variable.type.broadcastable:
            continue
        others = [other for other in variable.owner.inputs if other is not factor]
        if not depends_on(others, [free[name]]):
            return name
    return None


def depends_on(graphs: Sequence[Variable], variables: Sequence[Variable]) -> bool:
    """Whether any of the graphs has any of the variables in it."""
    return any(v in set(ancestors(list(graphs))) for v in variables)


def _factors(node, free, rows) -> tuple[TensorVariable, TensorVariable, TensorVariable] | None:
    """Weights, columns and output of a node that multiplies a matrix of weights; else None."""
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    output = node.outputs[0]
    if not isinstance(op, Dot) or output.type.ndim != 2:
        return None
    for weights, columns in (node.inputs, node.inputs[::-1]):
        if not depends_on([columns], rows) or depends_on([weights], rows):
            continue
        if linear_in(weights, free) is not None:
            return weights, columns, output
    return None


def _bias(graph, output, transposed, free, rows):
    """Bias that is added to a product, the sum, and the free variable the bias is linear in.

    Without one, ``(None, output, None)``.
    """
    clients = graph.clients[output]
    node = clients[0][0]
    if len(clients) != 1 or not (
        isinstance(node.op, Elemwise) and isinstance(node.op.scalar_op, Add)
    ):
        return None, output, None
    others = [other for other in node.inputs if other is not output]
    if len(others) != 1 or not others[0].type.broadcastable[0 if transposed else 1]:
        return None, output, None
    name = linear_in(others[0], free)
    if name is None or depends_on(others, rows):
        return None, output, None
    return (others[0].T if transposed else others[0]), node.outputs[0], name


def _check_used_once(graph: FunctionGraph, variable: TensorVariable, name: str) -> None:
    if len(graph.clients[variable]) != 1:
        raise ValueError(
            f"`estimator` cannot rewrite this model: `{name}` enters its likelihood at "
            f"{len(graph.clients[variable])} places, whose noise would have to be shared. "
            "Choose reparameterisation or path_derivative."
        )


def _layouts(factors, free, data) -> list[tuple[int, int, int, int, bool]]:
    """Units, inputs, rows, columns of an observation, and how those lie, of each product.

    Found by changing half of the rows and looking at which columns change.
    """
    rng = np.random.default_rng(0)
    point = {v: rng.standard_normal(v.type.shape) for v in free.values()}
    point |= {v: _example(v, rng) for v in data.values()}
    x = data[ROW_DATA[0]]
    n = x.type.shape[0]
    changed = rng.permutation(n) < -(-n // 2)
    moved = rng.standard_normal(x.type.shape)
    moved[~changed] = point[x][~changed]
    outputs = [v for matrix, columns, *_ in factors for v in (matrix, columns)]
    evaluate = pytensor.function(
        list(point), outputs, mode=Mode("py", None), on_unused_input="ignore"
    )
    before, after = (evaluate(*(point | {x: at}).values()) for at in (point[x], moved))
    return [
        (*matrix.shape, n, *_layout(old, new, changed))
        for matrix, old, new in zip(before[::2], before[1::2], after[1::2], strict=True)
    ]


def _layout(before: np.ndarray, after: np.ndarray, changed: np.ndarray) -> tuple[int, bool]:
    positions, rest = divmod(before.shape[1], len(changed))
    moved = (before != after).any(axis=0)
    for rows_last in (True, False):
        belongs = np.tile(changed, positions) if rows_last else np.repeat(changed, positions)
        if not rest and moved.any() and not moved[~belongs].any():
            return positions, rows_last
    raise ValueError(
        "`estimator` cannot rewrite this model: a matrix product mixes its observations. "
        "Choose reparameterisation or path_derivative."
    )


def _example(variable: TensorVariable, rng) -> np.ndarray:
    """A value of a data variable: a positive number, or the first class."""
    if variable.type.dtype.startswith(("int", "uint")):
        return np.zeros(variable.type.shape, variable.type.dtype)
    return rng.uniform(0.5, 1.5, variable.type.shape)
