"""Gradient estimators that rewrite the graph of the likelihood.

Both have the same expectation over the guide as the likelihood, and independent noise for each row
of a step, which lowers the variance of a minibatch's gradient. They apply to weights that are
independent under the guide and enter through a matrix product.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Variable, clone_get_equiv
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.scalar import Add, Mul, Neg, TrueDiv
from pytensor.tensor import TensorVariable
from pytensor.tensor.blockwise import Blockwise
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot
from pytensor.tensor.shape import Reshape

from pmbnn.inference.flat import FlatModel
from pmbnn.inference.guides import Arrays

# Matrix products through which weights enter a model: a random matrix times columns of the data
#
# A convolution is such a product too, of its kernels and patches of the images. Then several
# columns
# belong to one observation.


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
    point = _example_point(free, data, rng)
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


ROUNDING = 1e-9
"""Largest part of a log-probability that counts as an error of rounding."""


def joins_rows(
    graph: FunctionGraph,
    free: Mapping[str, TensorVariable],
    data: Mapping[str, TensorVariable],
    row_data: Sequence[str],
) -> bool:
    """Whether a log-likelihood or potential is no sum of terms of single observations.

    Rows with noise of their own would have another expectation then. It is inferred from what
    changes when a half of the rows changes, the other half, and both.
    """
    rows = [data[name] for name in row_data]
    terms = [term for term in graph.outputs if depends_on([term], rows)]
    if not terms:
        return False
    rng = np.random.default_rng(0)
    point, n = _example_point(free, data, rng), rows[0].type.shape[0]
    # Towards zero: positive numbers and probabilities remain so.
    factors = {v: rng.uniform(0.5, 1, n) for v in rows if v.type.dtype.startswith("float")}
    first = rng.permutation(n) < n // 2
    evaluate = pytensor.function(
        list(point), terms, mode=Mode("py", None), on_unused_input="ignore"
    )

    def at(changed: np.ndarray) -> list[np.ndarray]:
        moved = {v: (point[v].T * np.where(changed, f, 1)).T for v, f in factors.items()}
        with np.errstate(all="ignore"):
            return evaluate(*(point | moved).values())

    halves = (at(changed) for changed in (first & False, first, ~first, first | True))
    return not all(_is_sum(np.array(values), n) for values in zip(*halves, strict=True))


def _is_sum(values: np.ndarray, rows: int) -> bool:
    """Whether a term is a sum over two halves of the rows.

    Parameters
    ----------
    values
        Of the term, ``(4, ...)``, where neither half, one, the other and both are changed.
    """
    neither, one, other, both = values
    size = np.abs(values).sum(axis=0)
    with np.errstate(invalid="ignore"):
        is_sum = np.abs(both - one - other + neither) <= ROUNDING * size
    if size.shape[:1] == (rows,):
        # Of single rows: example values may be outside of what a distribution allows.
        is_sum |= ~np.isfinite(size)
    return bool(is_sum.all())


def _example_point(free, data, rng) -> dict[TensorVariable, np.ndarray]:
    """Example values of every input of a graph."""
    point = {v: rng.standard_normal(v.type.shape) for v in free.values()}
    return point | {v: _example(v, rng) for v in data.values()}


def _example(variable: TensorVariable, rng) -> np.ndarray:
    """Example values of a data variable: positive numbers, or the first class."""
    if variable.type.dtype.startswith(("int", "uint")):
        return np.zeros(variable.type.shape, variable.type.dtype)
    return rng.uniform(0.5, 1.5, variable.type.shape)


SMALLEST_VARIANCE = 1e-20
"""Added to a variance, whose root is then differentiable if all inputs of a unit are zero."""


@dataclass(frozen=True)
class Noise:
    """An input for noise: standard normal, signs ±1, or uniform from 0 to 1."""

    variable: TensorVariable
    kind: Literal["normal", "sign", "uniform"]


def rewrite_likelihood(
    flat: FlatModel, constrained: Arrays, estimator: str
) -> tuple[list[TensorVariable], list[TensorVariable], dict[str, Noise]]:
    """Log-likelihoods and potentials with matrix products rewritten, and the noise they take.

    The graphs are in the order of ``flat.log_likelihoods`` and ``flat.potentials``.

    Parameters
    ----------
    constrained
        Constrained parameters ``loc`` and ``scale`` of a guide with independent elements.
    estimator
        ``local_reparameterisation`` or ``flipout``; other estimators rewrite nothing.

    Raises
    ------
    ValueError
        If no weight of the model enters through a matrix product, if one cannot be rewritten, or if
        the log-likelihood is no sum over observations.
    """
    log_likelihoods = list(flat.log_likelihoods.values())
    potentials = list(flat.potentials.values())
    if estimator not in REWRITES:
        return log_likelihoods, potentials, {}
    graph = likelihood_graph(flat)
    products = find_products(graph, flat.free, flat.data, flat.row_data)
    if not products:
        raise ValueError(
            f"`estimator` must not be {estimator} for this model: none of its weights enters "
            "through a matrix product with a data variable whose first dim is `observation`. "
            "Choose reparameterisation or path_derivative."
        )
    if joins_rows(graph, flat.free, flat.data, flat.row_data):
        raise ValueError(
            f"`estimator` must not be {estimator} for this model: its log-likelihood is no sum "
            "over observations, whose noise would have to be shared. Choose reparameterisation or "
            "path_derivative."
        )
    means, scales = (flat.layout.unravel(constrained[name]) for name in ("loc", "scale"))

    def replaced(parts, names):
        """Function that puts parts of a vector in the place of some free variables."""
        values = {flat.free[name]: parts[name] for name in names}
        return lambda weights: graph_replace(weights, values, strict=False)

    noise: dict[str, Noise] = {}
    # The last layer first: the columns of a later layer are then still those of the graph.
    for number, product in reversed(list(enumerate(products, 1))):
        # Moments given the other variables, such as a learned scale, which stays a draw. Weights
        # are linear in the free variables: scales of these give theirs, up to the sign.
        mean, sd = (replaced(parts, product.slots) for parts in (means, scales))
        replacement, own_noise = REWRITES[estimator](product, mean, sd)
        if product.transposed:
            replacement = replacement.T
        graph.replace(product.output, replacement, import_missing=True)
        noise |= {f"{name}_{number}": n for name, n in own_noise.items()}
    n = len(log_likelihoods)
    return graph.outputs[:n], graph.outputs[n:], noise


def _local(product: Product, mean_of: Callable, sd_of: Callable):
    """Draw the product for each row and unit, instead of the weights.

    References
    ----------
    Kingma, Salimans and Welling (2015), Variational Dropout and the Local
    Reparameterization Trick, equation 6.
    """
    if product.positions > 1:
        raise ValueError(
            "`estimator` must not be local_reparameterisation for this model: "
            f"`{product.slots[0]}` is used at {product.positions} places of an observation, "
            "as in a convolution, whose noise would have to be shared. Choose flipout."
        )
    mean = mean_of(product.matrix) @ product.columns
    variance = sd_of(product.matrix) ** 2 @ product.columns**2
    if product.bias is not None:
        mean = mean + mean_of(product.bias)
        variance = variance + sd_of(product.bias) ** 2
    noise = Noise(_noise_input((product.units, product.rows)), "normal")
    return mean + pt.sqrt(variance + SMALLEST_VARIANCE) * noise.variable, {"local": noise}


def _flipout(product: Product, mean_of: Callable, sd_of: Callable):
    """Multiply the deviations from the mean weights, which all rows share, by signs per row.

    References
    ----------
    Wen et al. (2018), Flipout: Efficient Pseudo-Independent Weight Perturbations on
    Mini-Batches, equation 4.
    """
    signs = {
        name: Noise(_noise_input((length, product.rows)), "sign")
        for name, length in (("sign_in", product.inputs), ("sign_out", product.units))
    }
    flip_in, flip_out = (_at_every_position(n.variable, product) for n in signs.values())
    mean = mean_of(product.matrix)
    deviation = (product.matrix - mean) @ (product.columns * flip_in)
    common = mean @ product.columns
    if product.bias is not None:
        bias = mean_of(product.bias)
        common, deviation = common + bias, deviation + (product.bias - bias)
    return common + deviation * flip_out, signs


REWRITES: dict[str, Callable] = {"local_reparameterisation": _local, "flipout": _flipout}


def _at_every_position(signs: TensorVariable, product: Product) -> TensorVariable:
    """Signs ``(length, row)`` repeated for all columns of each observation."""
    if product.positions == 1:
        return signs
    axis = 1 if product.rows_last else 2
    repeated = pt.repeat(pt.expand_dims(signs, axis), product.positions, axis=axis)
    return repeated.reshape((signs.type.shape[0], -1))


def _noise_input(shape: tuple[int, ...]) -> TensorVariable:
    return pt.tensor("noise", dtype="float64", shape=shape)


def likelihood_graph(flat: FlatModel) -> FunctionGraph:
    """Log-likelihoods and potentials as a graph that may be changed, on the model's inputs."""
    outputs = [*flat.log_likelihoods.values(), *flat.potentials.values()]
    inputs = list(graph_inputs(outputs))
    memo = clone_get_equiv(inputs, outputs, copy_inputs=False, copy_orphans=False)
    return FunctionGraph(inputs, [memo[output] for output in outputs], clone=False)
