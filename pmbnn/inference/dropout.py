"""Monte-Carlo dropout: which weights an input has, and the likelihood with inputs dropped.

A fit maximises the expected log-likelihood plus the expected log-prior, over the inputs that are
dropped. Gal and Ghahramani derive it from a divergence whose entropy does not depend on the weights
in the limit; it is no bound of the evidence, whatever its constants.
"""

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.mode import Mode
from pytensor.tensor import TensorVariable

from pmbnn.inference.estimators import (
    Noise,
    Product,
    depends_on,
    find_products,
    joins_rows,
    likelihood_graph,
)
from pmbnn.inference.flat import OBSERVATION, FlatModel
from pmbnn.inference.guides import Arrays, Dropout

REFUSED = "`guide` must not be dropout for this model"


def find_masks(flat: FlatModel) -> np.ndarray:
    """Masks of a model's weights as `Dropout` has them, ``(size,)``, integers.

    Inputs of every product of weights with columns of observations are dropped, among them the
    features; biases and all other variables are kept.

    Raises
    ------
    ValueError
        If there is no such product; if weights enter at several places, as in a convolution, or
        decide on other variables; or if the log-likelihood is no sum over observations.
    """
    masks = np.full(flat.size, -1)
    slots = {slot.name: slot for slot in flat.layout.slots}
    for product in _products(flat, likelihood_graph(flat)):
        name = product.slots[0]
        _check_prior(flat, name)
        # A column of the matrix has the weights of one input.
        numbers = slots[name].start + _elements(flat, product)
        masks[numbers] = numbers.min(axis=0)
    return masks


def drop_inputs(
    flat: FlatModel, rate: float
) -> tuple[list[TensorVariable], list[TensorVariable], dict[str, Noise]]:
    """Log-likelihoods and potentials with inputs of each row dropped, and the noise they take.

    The graphs are in the order of ``flat.log_likelihoods`` and ``flat.potentials``. Each row has
    masks of its own, which leave the expectation unchanged and lower the variance of the gradient.

    Raises
    ------
    ValueError
        As `find_masks`.

    References
    ----------
    Srivastava et al. (2014), Dropout: A Simple Way to Prevent Neural Networks from Overfitting,
    section 4.
    """
    graph, noise = likelihood_graph(flat), {}
    # The last layer first: the columns of a later layer are then still those of the graph.
    for number, product in reversed(list(enumerate(_products(flat, graph), 1))):
        shape = (product.inputs, product.rows)
        uniform = Noise(pt.tensor("noise", dtype="float64", shape=shape), "uniform")
        kept = pt.ge(uniform.variable, rate) / (1 - rate)
        replacement = product.matrix @ (product.columns * kept)
        if product.bias is not None:
            replacement = replacement + product.bias
        replacement = replacement.T if product.transposed else replacement
        graph.replace(product.output, replacement, import_missing=True)
        noise[f"uniform_{number}"] = uniform
    n = len(flat.log_likelihoods)
    return graph.outputs[:n], graph.outputs[n:], noise


def expected_log_prior(flat: FlatModel, guide: Dropout, constrained: Arrays) -> TensorVariable:
    """Expected log-prior under the guide, exact, in nats.

    It is a sum over weights, each of which has two values.
    """
    kept, dropped = (flat.at(v, [flat.log_prior])[0] for v in guide.extremes(constrained))
    return (1 - guide.rate) * kept + guide.rate * dropped if guide.rate else kept


def _products(flat: FlatModel, graph) -> list[Product]:
    """Products of weights with columns, each weight in one place of an observation."""
    try:
        products = find_products(graph, flat.free, flat.data, flat.row_data)
    except ValueError as error:
        raise ValueError(
            f"{REFUSED}: each matrix of weights must enter its likelihood through one product with "
            "columns of single observations."
        ) from error
    if not products:
        raise ValueError(
            f"{REFUSED}: none of its weights enters through a matrix product with a data variable "
            f"whose first dim is `{OBSERVATION}`."
        )
    if joins_rows(graph, flat.free, flat.data, flat.row_data):
        raise ValueError(f"{REFUSED}: its log-likelihood is no sum over observations.")
    for product in products:
        if product.positions > 1:
            raise ValueError(
                f"{REFUSED}: `{product.slots[0]}` is used at {product.positions} places of an "
                "observation, as in a convolution."
            )
    return products


def _check_prior(flat: FlatModel, name: str) -> None:
    """Raise ValueError if the log-prior is not a sum over the weights of a free variable."""
    others = [graph for other, graph in flat.log_priors.items() if other != name]
    if depends_on(others, [flat.free[name]]):
        raise ValueError(f"{REFUSED}: the prior of another variable depends on `{name}`.")
    if flat.distributions[name].op.ndim_supp:
        raise ValueError(f"{REFUSED}: the prior of `{name}` is multivariate.")


def _elements(flat: FlatModel, product: Product) -> np.ndarray:
    """Number within its free variable of each element of a matrix, ``(unit, input)``."""
    weights = flat.free[product.slots[0]]
    inputs = [weights, *(v for v in flat.free.values() if v is not weights), *flat.data.values()]
    evaluate = pytensor.function(
        inputs, product.matrix, mode=Mode("py", None), on_unused_input="ignore"
    )
    rng = np.random.default_rng(0)
    others = [
        rng.uniform(0.5, 1.5, [1 if n is None else n for n in v.type.shape]).astype(v.type.dtype)
        for v in inputs[1:]
    ]
    # Elements are multiplied by factors that do not depend on them.
    numbers = 1.0 + np.arange(np.prod(weights.type.shape)).reshape(weights.type.shape)
    values = evaluate(numbers, *others) / evaluate(np.ones(numbers.shape), *others)
    return np.round(values).astype(int) - 1
