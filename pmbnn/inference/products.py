"""Matrix products through which weights enter a model: a random matrix times columns of the data.

A convolution is such a product too, of its kernels and patches of the images. Then several columns
belong to one observation.
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

REARRANGING = (DimShuffle, Reshape, ViewOp)


@dataclass(frozen=True)
class Product:
    """A matrix of weights times columns that depend on the rows of the data.

    Attributes
    ----------
    output
        The product, plus the bias if there is one.
    matrix, columns
        Its factors, ``(unit, input)`` and ``(input, column)``.
    bias
        Random bias that is added to every column, ``(unit, 1)``; None without one.
    transposed
        Whether the graph has the product as ``(column, unit)``.
    slots
        Names of the free variables that matrix and bias are linear in.
    units, inputs, rows
        Number of units, of inputs that a unit sums over, and of observations.
    positions
        Number of columns that belong to one observation.
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
    graph: FunctionGraph,
    free: Mapping[str, TensorVariable],
    data: Mapping[str, TensorVariable],
    row_data: Sequence[str],
) -> list[Product]:
    """Every product of weights with columns in a graph, first layer first.

    Parameters
    ----------
    row_data
        Names of the data variables with one row an observation.

    Raises
    ------
    ValueError
        If a free variable enters such a product and something else as well, or if the columns
        of a product do not belong to single observations.
    """
    rows = [data[name] for name in row_data]
    factors = [f for node in graph.toposort() if (f := _factors(node, free, rows))]
    layouts = _layouts(factors, free, data, rows) if factors else []
    products = []
    for (matrix, columns, weights, output, transposed), layout in zip(
        factors, layouts, strict=True
    ):
        bias, total, bias_slot = _bias(graph, output, transposed, layout[0], free, rows)
        _check_used_once(graph, weights, free)
        slots = [linear_in(weights, free), *([] if bias_slot is None else [bias_slot])]
        products.append(Product(total, matrix, columns, bias, transposed, tuple(slots), *layout))
    return products


def linear_in(variable: TensorVariable, free: Mapping[str, TensorVariable]) -> str | None:
    """Name of the free variable that each element of `variable` is linear in; None if in none.

    Linear are operations that rearrange the elements of one free variable, or multiply them by
    factors that do not depend on it, such as a learned scale.
    """
    path = _linear_path(variable, free)
    return next(name for name, value in free.items() if value is path[-1]) if path else None


def _linear_path(variable: Variable, free: Mapping[str, TensorVariable]) -> list[Variable]:
    """Variables from `variable` to the free variable it is linear in, both included."""
    if any(variable is value for value in free.values()):
        return [variable] if variable.type.ndim else []
    if variable.owner is None or not isinstance(variable, TensorVariable):
        return []
    op, inputs = variable.owner.op, variable.owner.inputs
    scalar_op = op.scalar_op if isinstance(op, Elemwise) else None
    if isinstance(op, REARRANGING) or isinstance(scalar_op, Neg):
        path = _linear_path(inputs[0], free)
    elif isinstance(scalar_op, Mul | TrueDiv):
        path = _linear_factor(variable, free)
    else:
        path = []
    return [variable, *path] if path else []


def _linear_factor(variable: Variable, free) -> list[Variable]:
    """Path from the one factor of a product or quotient that is linear in a free variable."""
    inputs = variable.owner.inputs
    candidates = inputs[:1] if isinstance(variable.owner.op.scalar_op, TrueDiv) else inputs
    for place, factor in enumerate(candidates):
        path = _linear_path(factor, free)
        if not path or _is_spread(factor, inputs):
            continue
        others = [other for i, other in enumerate(inputs) if i != place]
        if not depends_on(others, path[-1:]):
            return path
    return []


def _is_spread(factor: Variable, inputs: Sequence[Variable]) -> bool:
    """Whether a factor is broadcast against the others, so that several elements share one draw.

    Unknown lengths do not count: that of a replaced input may be lost.
    """
    lengths = zip(*(v.type.shape for v in inputs), strict=True)
    return any(
        one and any(n not in (1, None) for n in at)
        for one, at in zip(factor.type.broadcastable, lengths, strict=True)
    )


def depends_on(graphs: Sequence[Variable], variables: Sequence[Variable]) -> bool:
    """Whether any of the graphs has any of the variables in it."""
    return not set(ancestors(list(graphs))).isdisjoint(variables)


def _factors(node, free, rows) -> tuple | None:
    """Factors of a node that multiplies a matrix of weights; None for other nodes.

    Matrix ``(unit, input)``, columns ``(input, column)``, the weights as they are in the graph, the
    output, and whether it is ``(column, unit)``.
    """
    op = node.op.core_op if isinstance(node.op, Blockwise) else node.op
    output = node.outputs[0]
    if not isinstance(op, Dot) or output.type.ndim != 2:
        return None
    for weights, columns in (node.inputs, node.inputs[::-1]):
        if not depends_on([columns], rows) or depends_on([weights], rows):
            continue
        if linear_in(weights, free) is not None:
            if columns is node.inputs[0]:
                return weights.T, columns.T, weights, output, True
            return weights, columns, weights, output, False
    return None


def _bias(graph, output, transposed, units, free, rows):
    """Bias that is added to a product, the sum, and the free variable the bias is linear in.

    ``(None, output, None)`` without a bias for every unit.
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
    if name is None or depends_on(others, rows) or np.prod(free[name].type.shape) != units:
        return None, output, None
    _check_used_once(graph, others[0], free)
    return (others[0].T if transposed else others[0]), node.outputs[0], name


def _check_used_once(graph: FunctionGraph, weights: TensorVariable, free) -> None:
    """Raise ValueError if weights, or variables on their linear path, are used anywhere else."""
    name = linear_in(weights, free)
    if any(len(graph.clients[variable]) != 1 for variable in _linear_path(weights, free)):
        raise ValueError(
            f"`estimator` cannot rewrite this model: `{name}` enters its likelihood at several "
            "places, whose noise would have to be shared. Choose reparameterisation or "
            "path_derivative."
        )


def _layouts(factors, free, data, rows) -> list[tuple[int, int, int, int, bool]]:
    """Units, inputs, rows, columns per observation, and `rows_last`, of each product.

    They are inferred from the columns that change when half of the rows change.
    """
    rng = np.random.default_rng(0)
    point = {v: rng.standard_normal(v.type.shape) for v in free.values()}
    point |= {v: _example(v, rng) for v in data.values()}
    n = rows[0].type.shape[0]
    changed = rng.permutation(n) < -(-n // 2)
    moved = {}
    for x in (v for v in rows if v.type.dtype.startswith("float")):
        moved[x] = (10 * rng.standard_normal(x.type.shape)).astype(x.type.dtype)
        moved[x][~changed] = point[x][~changed]
    outputs = [v for matrix, columns, *_ in factors for v in (matrix, columns)]
    evaluate = pytensor.function(
        list(point), outputs, mode=Mode("py", None), on_unused_input="ignore"
    )
    before, after = (evaluate(*(point | at).values()) for at in ({}, moved))
    return [
        (*matrix.shape, n, *_layout(old, new, changed))
        for matrix, old, new in zip(before[::2], before[1::2], after[1::2], strict=True)
    ]


def _layout(before: np.ndarray, after: np.ndarray, changed: np.ndarray) -> tuple[int, bool]:
    positions, rest = divmod(before.shape[1], len(changed))
    moved = (before != after).any(axis=0)
    for rows_last in (True, False):
        belongs = np.tile(changed, positions) if rows_last else np.repeat(changed, positions)
        # If nothing changes at all, as in a dead layer, one column per row is the only safe case.
        is_clear = moved.any() or positions == 1
        if not rest and is_clear and not moved[~belongs].any():
            return positions, rows_last
    raise ValueError(
        "`estimator` cannot rewrite this model: a matrix product mixes its observations. "
        "Choose reparameterisation or path_derivative."
    )


def _example(variable: TensorVariable, rng) -> np.ndarray:
    """Example values of a data variable: positive numbers, or the first class."""
    if variable.type.dtype.startswith(("int", "uint")):
        return np.zeros(variable.type.shape, variable.type.dtype)
    return rng.uniform(0.5, 1.5, variable.type.shape)
