"""Gradient estimators that are rewrites of the likelihood's graph.

Both leave the expectation over the guide as it is and give the rows of a step noise that is
independent from row to row, which lowers the variance of a minibatch's gradient. They apply
wherever weights that are independent under the guide enter through a matrix product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import pytensor.tensor as pt
from pytensor.graph.basic import clone_get_equiv
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import TensorVariable

from pmbnn.inference.flat import FlatModel
from pmbnn.inference.guides import Arrays
from pmbnn.inference.products import Product, find_products

SMALLEST_VARIANCE = 1e-20
"""Keeps the root of a variance differentiable where all inputs of a unit are zero."""


@dataclass(frozen=True)
class Noise:
    """An input that stands for noise, and what it is drawn from: normals, or signs ±1."""

    variable: TensorVariable
    kind: Literal["normal", "sign"]


@dataclass(frozen=True)
class Rewritten:
    """Log-likelihoods and potentials after a rewrite, by name, and the noise that they take."""

    log_likelihoods: dict[str, TensorVariable]
    potentials: dict[str, TensorVariable]
    noise: dict[str, Noise]


def rewrite_likelihood(flat: FlatModel, constrained: Arrays, estimator: str) -> Rewritten:
    """Log-likelihoods of all observations, and potentials, with matrix products rewritten.

    Parameters
    ----------
    constrained
        Constrained parameters ``loc`` and ``scale`` of a guide with independent elements.
    estimator
        ``local_reparameterisation``, ``flipout``, or another, which rewrites nothing.

    Raises
    ------
    ValueError
        If no weight of the model enters through a matrix product, or one cannot be rewritten.
    """
    if estimator not in REWRITES:
        return Rewritten(flat.log_likelihoods, flat.potentials, {})
    graph = _copied([*flat.log_likelihoods.values(), *flat.potentials.values()])
    products = find_products(graph, flat.free, flat.data, flat.row_data)
    if not products:
        raise ValueError(
            f"`estimator` must not be {estimator} for this model: none of its weights enters "
            "through a matrix product with a data variable whose first dim is `observation`. "
            "Choose reparameterisation or path_derivative."
        )
    at = {
        name: {
            flat.free[slot]: part for slot, part in flat.layout.unravel(constrained[name]).items()
        }
        for name in ("loc", "scale")
    }
    noise: dict[str, Noise] = {}
    # The last layer first: the columns of a later layer are then still those of the graph.
    for number, product in reversed(list(enumerate(products, 1))):
        replacement, taken = REWRITES[estimator](product, _Moments(product, flat, at))
        if product.transposed:
            replacement = replacement.T
        graph.replace(product.output, replacement, import_missing=True)
        noise |= {f"{name}_{number}": n for name, n in taken.items()}
    outputs = iter(graph.outputs)
    return Rewritten(
        {name: next(outputs) for name in flat.log_likelihoods},
        {name: next(outputs) for name in flat.potentials},
        noise,
    )


class _Moments:
    """Means and standard deviations of a product's matrix and bias under the guide.

    Given everything else that they depend on, such as a learned scale, which stays a draw.
    """

    def __init__(self, product: Product, flat: FlatModel, at) -> None:
        weights = {flat.free[name] for name in product.slots}
        self._at = {
            name: {v: to for v, to in values.items() if v in weights} for name, values in at.items()
        }

    def mean(self, weights: TensorVariable) -> TensorVariable:
        return graph_replace(weights, self._at["loc"], strict=False)

    def sd(self, weights: TensorVariable) -> TensorVariable:
        # Weights are linear in what the guide draws: its scales make theirs, up to the sign.
        return graph_replace(weights, self._at["scale"], strict=False)


def _local(product: Product, moments: _Moments):
    """Draw each unit's input for each row, instead of the weights that make it.

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
    mean = moments.mean(product.matrix) @ product.columns
    variance = moments.sd(product.matrix) ** 2 @ product.columns**2
    if product.bias is not None:
        mean = mean + moments.mean(product.bias)
        variance = variance + moments.sd(product.bias) ** 2
    noise = Noise(_noise_input((product.units, product.rows)), "normal")
    return mean + pt.sqrt(variance + SMALLEST_VARIANCE) * noise.variable, {"local": noise}


def _flipout(product: Product, moments: _Moments):
    """Give each row its own signs of the deviations that all rows share.

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
    mean = moments.mean(product.matrix)
    deviation = (product.matrix - mean) @ (product.columns * flip_in)
    common = mean @ product.columns
    if product.bias is not None:
        bias = moments.mean(product.bias)
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


def _copied(outputs: list[TensorVariable]) -> FunctionGraph:
    """A graph that may be changed, with the inputs of the original."""
    inputs = list(graph_inputs(outputs))
    memo = clone_get_equiv(inputs, outputs, copy_inputs=False, copy_orphans=False)
    return FunctionGraph(inputs, [memo[output] for output in outputs], clone=False)
