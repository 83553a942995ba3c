"""Gradient estimators that rewrite the graph of the likelihood.

Both have the same expectation over the guide as the likelihood, and independent noise for each row
of a step, which lowers the variance of a minibatch's gradient. They apply to weights that are
independent under the guide and enter through a matrix product.
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
"""Added to a variance, whose root is then differentiable if all inputs of a unit are zero."""


@dataclass(frozen=True)
class Noise:
    """An input for noise, drawn from a standard normal or from signs ±1."""

    variable: TensorVariable
    kind: Literal["normal", "sign"]


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
        If no weight of the model enters through a matrix product, or one cannot be rewritten.
    """
    log_likelihoods = list(flat.log_likelihoods.values())
    potentials = list(flat.potentials.values())
    if estimator not in REWRITES:
        return log_likelihoods, potentials, {}
    graph = _copied([*log_likelihoods, *potentials])
    products = find_products(graph, flat.free, flat.data, flat.row_data)
    if not products:
        raise ValueError(
            f"`estimator` must not be {estimator} for this model: none of its weights enters "
            "through a matrix product with a data variable whose first dim is `observation`. "
            "Choose reparameterisation or path_derivative."
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


def _copied(outputs: list[TensorVariable]) -> FunctionGraph:
    """A graph that may be changed, with the inputs of the original."""
    inputs = list(graph_inputs(outputs))
    memo = clone_get_equiv(inputs, outputs, copy_inputs=False, copy_orphans=False)
    return FunctionGraph(inputs, [memo[output] for output in outputs], clone=False)
