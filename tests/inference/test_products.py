"""Where weights enter a model: which products are found, and what must not be taken for one."""

from itertools import product

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from makers import GENERAL_PRIORS as PRIORS
from makers import with_defaults
from pytensor.graph.basic import clone_get_equiv
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.traversal import graph_inputs
from tiers import pairwise, slow_but

from pmbnn.inference.estimators import find_products, linear_in, rewrite_likelihood
from pmbnn.inference.flat import flatten_model
from pmbnn.models.build import dense_classifier
from pmbnn.models.hyperpriors import HYPERPRIORS, HalfNormal
from pmbnn.models.layers import convolve, max_pool
from pmbnn.models.priors import Horseshoe, MatrixNormal, MultivariateT, ScaleMixture

ROWS = 12
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 3))
Y = (X[:, 0] > 0).astype(int)
IMAGES = RNG.normal(size=(ROWS, 2, 5, 5))


@pytest.fixture
def products_of(evaluate):
    """Products of a model's likelihood, each checked against what the graph computes."""

    def found(model):
        flat = flatten_model(model, ROWS)
        products = find_products(
            copied([*flat.log_likelihoods.values()]), flat.free, flat.data, flat.row_data
        )
        check_values(products, flat, model, evaluate)
        return products

    return found


def copied(outputs):
    inputs = list(graph_inputs(outputs))
    memo = clone_get_equiv(inputs, outputs, copy_inputs=False, copy_orphans=False)
    return FunctionGraph(inputs, [memo[output] for output in outputs], clone=False)


def check_values(products, flat, model, evaluate):
    """Matrix times columns plus bias is the output, in the lengths that a product states."""
    rng = np.random.default_rng(1)
    given = {value: 0.5 * rng.normal(size=value.type.shape) for value in flat.free.values()}
    given |= {v: model[name].get_value() for name, v in flat.data.items()}
    for p in products:
        bias = pt.zeros((1, 1)) if p.bias is None else p.bias
        matrix, columns, bias, output = evaluate([p.matrix, p.columns, bias, p.output], given)
        assert matrix.shape == (p.units, p.inputs)
        assert columns.shape == (p.inputs, p.rows * p.positions)
        np.testing.assert_allclose(
            matrix @ columns + bias, output.T if p.transposed else output, rtol=1e-12
        )


def slots(products):
    return [p.slots for p in products]


def regression(network):
    """Normal model of one number a row; `network` gets the inputs ``(observation, feature)``."""
    with pm.Model() as model:
        x = pm.Data("x", X, dims=("observation", "feature"))
        target = pm.Data("target", X[:, 1], dims="observation")
        pm.Normal("y", network(x), 1.0, observed=target)
    return model


def weight(*shape, name="w"):
    return pm.Normal(name, 0.0, 1.0, shape=shape)


# --- models of the package ----------------------------------------------------------------

LEARNED = [ScaleMixture(learned=True), Horseshoe(per="unit", slab_scale=2.0), MultivariateT()]
HIERARCHICAL = sorted(set(HYPERPRIORS) - {"fixed"})


def check_dense(products, ending):
    assert slots(products) == [(f"weight_{i}{ending}", f"bias_{i}{ending}") for i in (1, 2)]
    assert [(p.inputs, p.units, p.rows, p.positions) for p in products] == [
        (3, 4, ROWS, 1),
        (4, 2, ROWS, 1),
    ]


@pytest.mark.parametrize(
    "prior",
    slow_but(["horseshoe", "laplace", "trainable_mean"], sorted({*PRIORS} - {"matrix_normal"})),
)
def test_every_prior(prior, products_of):
    prior = with_defaults(PRIORS[prior])
    products = products_of(dense_classifier(X, Y, hidden=(4,), prior=prior))
    check_dense(products, "" if prior.centrable else "_z")


def test_correlated_weights_have_no_product(products_of):
    """Each is a sum over the draws of a layer, and is left to the draw."""
    assert products_of(dense_classifier(X, Y, (4,), prior=MatrixNormal())) == []
    products = products_of(dense_classifier(X, Y, (4,), prior=MatrixNormal(correlate="units")))
    assert products == []


@pytest.mark.parametrize("prior", slow_but(["horseshoe"], [*LEARNED, "cauchy", "horseshoe"]))
def test_priors_with_a_learned_scale(prior, products_of):
    check_dense(products_of(dense_classifier(X, Y, (4,), "tanh", prior, "half_normal")), "_z")


def test_learned_scale_mixture(products_of):
    """The mixture's own draws scale nothing in the likelihood."""
    check_dense(products_of(dense_classifier(X, Y, (4,), prior=ScaleMixture(learned=True))), "")


SCALES = pairwise([*product(HIERARCHICAL, ("layer", "network", "unit"), (False, True))])


@pytest.mark.parametrize(("hyperprior", "per", "centred"), slow_but(SCALES[:3], SCALES))
def test_every_hyperprior(hyperprior, per, centred, products_of):
    kind = with_defaults(HYPERPRIORS[hyperprior], per=per, centred=centred)
    products = products_of(dense_classifier(X, Y, hidden=(4,), hyperprior=kind))
    check_dense(products, "" if centred else "_z")


def test_scale_by_its_variance(products_of):
    kind = HalfNormal(on="variance", per="unit")
    check_dense(products_of(dense_classifier(X, Y, (4,), "relu", hyperprior=kind)), "_z")


@pytest.mark.parametrize(("hidden", "activation"), [((), "tanh"), ((1,), "relu"), ((5, 1), "relu")])
def test_narrow_networks(hidden, activation, products_of):
    products = products_of(dense_classifier(X, Y, hidden=hidden, activation=activation))
    assert [p.units for p in products] == [*hidden, 2]


# --- models written by hand ---------------------------------------------------------------


def two_layers(x):
    hidden = pt.tanh(x @ weight(3, 4, name="w1") + weight(4, name="b1"))
    return (hidden @ weight(4, 2, name="w2") + weight(2, name="b2")).sum(axis=1)


def test_rows_first(products_of):
    """``X @ W``: factors come back with units first, and the product as turned."""
    products = products_of(regression(two_layers))
    assert slots(products) == [("w1", "b1"), ("w2", "b2")]
    assert [(p.transposed, p.inputs, p.units) for p in products] == [(True, 3, 4), (True, 4, 2)]


def test_rows_last(products_of):
    [product] = products_of(regression(lambda x: (weight(4, 3) @ x.T).sum(axis=0)))
    assert (product.transposed, product.units, product.inputs) == (False, 4, 3)


def test_vector_of_weights(products_of):
    """One output; its scalar intercept is left to the draw."""
    [product] = products_of(regression(lambda x: x @ weight(3) + weight(name="b")))
    assert (product.slots, product.units, product.inputs) == (("w",), 1, 3)


def test_linear_hidden_layer(products_of):
    """Two products in a row, nothing between them."""
    products = products_of(
        regression(lambda x: (x @ weight(3, 4, name="w1") @ weight(4, 2, name="w2")).sum(axis=1))
    )
    assert slots(products) == [("w1",), ("w2",)]


def test_residual_is_no_bias(products_of):
    """What is added has a value for every row, or comes from the data: the draw keeps it."""
    [product] = products_of(regression(lambda x: (pt.tanh(x) + x @ weight(3, 3)).sum(axis=1)))
    assert product.bias is None
    [product] = products_of(
        regression(lambda x: (x @ weight(3, 3) + weight(3, name="b") * x[0, 0]).sum(axis=1))
    )
    assert product.slots == ("w",)


def test_output_used_twice(products_of):
    """The product's users share its noise, as they share the weights."""

    def network(x):
        hidden = x @ weight(3, 4) + weight(4, name="b")
        return (hidden * pt.tanh(hidden)).sum(axis=1)

    assert slots(products_of(regression(network))) == [("w", "b")]


def dead_layer(x):
    return (pt.maximum(x @ weight(3, 4, name="w1") - 100.0, 0.0) @ weight(4, 2)).sum(axis=1)


def test_layer_that_is_dead(products_of):
    """Columns that do not move are no proof of mixing."""
    assert slots(products_of(regression(dead_layer))) == [("w1",), ("w",)]


def shared_bias(x):
    return pt.tanh(x @ weight(3, 2) + weight(1, name="b")).sum(axis=1)


def spread_product(x):
    return pt.tanh(x @ weight(3, 1) + weight(4, name="b")).sum(axis=1)


@pytest.mark.parametrize("network", [shared_bias, spread_product])
def test_spread_bias(network, products_of):
    """One number that several units share is no bias of theirs: noise would not be shared."""
    [product] = products_of(regression(network))
    assert product.slots == ("w",)
    assert product.bias is None


# --- convolutions -------------------------------------------------------------------------


def convolutional(padding, flatten_first=False):
    """Convolution of two channels, pooling, and a dense layer on what it leaves."""
    size = {"valid": 3, "same": 5}[padding]
    with pm.Model() as model:
        x = pm.Data("x", IMAGES, dims=("observation", "channel", "row", "column"))
        target = pm.Data("target", Y, dims="observation")
        kernels = weight(2, 3, 3, 3, name="kernels")
        if flatten_first:
            hidden = rows_before_positions(x, kernels)
        else:
            hidden = convolve(x.transpose(1, 2, 3, 0), kernels, (2, 5, 5), 3, padding)
        hidden = pt.maximum(hidden + weight(3, name="b1")[:, None, None, None], 0.0)
        pooled = max_pool(hidden, (3, size, size), 2)
        features = pooled.reshape((3 * (size // 2) ** 2, ROWS))
        outputs = weight(2, 3 * (size // 2) ** 2, name="dense") @ features
        pm.Categorical("y", p=pm.math.softmax(outputs.T, axis=1), observed=target)
    return model


def rows_before_positions(x, kernels):
    """The same valid convolution by patches in the order ``(row of the data, position)``."""
    windows = [x[:, :, i : i + 3, j : j + 3] for i in range(3) for j in range(3)]
    patches = pt.stack(windows, axis=2).transpose(1, 2, 0, 3, 4).reshape((18, ROWS * 9))
    maps = kernels.reshape((18, 3)).T @ patches
    return maps.reshape((3, ROWS, 3, 3)).transpose(0, 2, 3, 1)


@pytest.mark.parametrize(("padding", "positions"), [("valid", 9), ("same", 25)])
def test_convolution(padding, positions, products_of):
    first, last = products_of(convolutional(padding))
    assert (first.slots, first.units, first.inputs) == (("kernels",), 3, 18)
    assert (first.positions, first.rows_last) == (positions, True)
    assert (last.slots, last.positions) == (("dense",), 1)


def test_positions_last(products_of):
    first, last = products_of(convolutional("valid", flatten_first=True))
    assert (first.positions, first.rows_last) == (9, False)
    assert (last.slots, last.positions) == (("dense",), 1)


# --- models that cannot be rewritten ------------------------------------------------------


def twice(x):
    w = weight(3, 3)
    return (pt.tanh(x @ w) @ w).sum(axis=1)


def twice_turned(x):
    turned = weight(3, 3).T
    return (turned @ pt.tanh(turned @ x.T)).sum(axis=0)


def twice_scaled(x):
    w = pm.Deterministic("weight", pm.HalfNormal("scale") * weight(3, 3))
    return (pt.tanh(x @ w) @ w).sum(axis=1)


def elsewhere(x):
    w = weight(3, 2)
    return pt.tanh(x @ w).sum(axis=1) + w.sum()


def elsewhere_scaled(x):
    w = 2.0 * weight(3, 2)
    return pt.tanh(x @ w).sum(axis=1) + w.sum()


def bias_twice(x):
    b = weight(2, name="b")
    return pt.tanh(x @ weight(3, 2) + b).sum(axis=1) + b.sum()


@pytest.mark.parametrize(
    ("network", "name"),
    [
        (twice, "w"),
        (twice_turned, "w"),
        (twice_scaled, "w"),
        (elsewhere, "w"),
        (elsewhere_scaled, "w"),
        (bias_twice, "b"),
    ],
)
def test_used_twice(network, name, products_of):
    """Two uses of one weight share its noise, which separate products would not."""
    with pytest.raises(ValueError, match=f"`{name}` enters its likelihood at several places"):
        products_of(regression(network))


def centred_inputs(x):
    return ((x - x.mean(axis=0)) @ weight(3, 2)).sum(axis=1)


def attention(x):
    return (pt.special.softmax(x @ x.T, axis=1) @ x @ weight(3, 2)).sum(axis=1)


@pytest.mark.parametrize("network", [centred_inputs, attention])
def test_mixed_observations(network, products_of):
    with pytest.raises(ValueError, match="a matrix product mixes its observations"):
        products_of(regression(network))


def elementwise(x):
    return (x * weight(3)).sum(axis=1)


def positive_weights(x):
    return x @ pm.HalfNormal("w", 1.0, shape=3)


@pytest.mark.parametrize("estimator", ["local_reparameterisation", "flipout"])
@pytest.mark.parametrize("network", [elementwise, positive_weights])
def test_no_product(network, estimator):
    """The message names the estimator and says what to take instead."""
    flat = flatten_model(regression(network), ROWS)
    constrained = {"loc": pt.vector("loc"), "scale": pt.vector("scale")}
    message = f"must not be {estimator} .* none of its weights .* Choose reparameterisation"
    with pytest.raises(ValueError, match=message):
        rewrite_likelihood(flat, constrained, estimator)


# --- what a graph is linear in ------------------------------------------------------------

W = pt.tensor("w", shape=(3, 2))
V = pt.tensor("v", shape=(3, 2))
ONE = pt.tensor("one", shape=(1, 1))
SCALAR = pt.tensor("scalar", shape=())
FREE = {"w": W, "v": V, "one": ONE, "scalar": SCALAR}

LINEAR = {
    "itself": W,
    "turned": W.T,
    "reshaped": W.reshape((6,)),
    "negative": -W,
    "times a constant": 2.0 * W,
    "over a constant": W / 3.0,
    "times a learned scale": pt.exp(SCALAR) * W,
    "over a learned scale": W / pt.exp(SCALAR),
    "times a scale per unit": W * pt.exp(V[0]),
    "times other weights": W * pt.exp(V),
    "all at once": (-(W.T / 3.0) * pt.exp(SCALAR)).reshape((3, 2)),
}


@pytest.mark.parametrize("graph", LINEAR.values(), ids=LINEAR)
def test_linear(graph):
    assert linear_in(graph, FREE) == "w"


def test_linear_in_one_of_two():
    """Given either factor of a product, it is linear in the other one."""
    assert linear_in(W * V, FREE) in {"w", "v"}


OTHER = {
    "exponential": pt.exp(W),
    "square": W**2,
    "product with itself": W * W,
    "times its own function": W * pt.tanh(W),
    "in the denominator": 1.0 / W,
    "shifted": W + 1.0,
    "sum of two": W + V,
    "summed": W.sum(axis=0),
    "sliced": W[:2],
    "stacked": pt.stack([W, W]),
    "a scalar": SCALAR,
    "a scalar spread out": SCALAR * np.ones((3, 2)),
    "one number spread out": ONE * np.ones((3, 2)),
    "a row spread out": W[:1] * np.ones((3, 2)),
    "no free variable": pt.constant(np.ones((3, 2))),
    "another input": pt.matrix("x"),
}


@pytest.mark.parametrize("graph", OTHER.values(), ids=OTHER)
def test_not_linear(graph):
    assert linear_in(graph, FREE) is None
