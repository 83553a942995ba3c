"""The limit of wide networks against draws of wide networks, and conditioning by the book."""

import numpy as np
import pytest
from study.infinite_width import LimitingProcess, limit_of, rectified_moment

from pmbnn.core.spec import Tune
from pmbnn.data.arrays import Rows
from pmbnn.models.build import build_model
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Normal as NormalNoise
from pmbnn.models.networks import Dense, Layered
from pmbnn.models.priors import Laplace, Normal

X = np.array([[1.0, 0.5], [-1.2, 0.3], [0.1, -0.2], [2.0, 2.1], [0.0, 0.0]])
PRIOR = Normal(fan_in=True, bias_scale=0.7)


def covariance_of_a_network(rng, layers, width, weight_scale, bias_scale):
    """That of the outputs of a wide network, given all but its last layer."""
    features = X
    for _ in range(layers):
        fan_in = features.shape[1]
        weights = weight_scale / np.sqrt(fan_in) * rng.normal(size=(fan_in, width))
        features = np.maximum(features @ weights + bias_scale * rng.normal(size=width), 0)
    return bias_scale**2 + weight_scale**2 * features @ features.T / width


@pytest.mark.parametrize("layers", [1, 2])
def test_covariance_is_that_of_wide_networks(layers):
    rng, networks, width = np.random.default_rng(layers), 80, 500
    found = [covariance_of_a_network(rng, layers, width, 1.3, 0.7) for _ in range(networks)]
    exact = LimitingProcess(layers, 1.3, 0.7).covariance(X, X)
    error = np.std(found, axis=0, ddof=1) / np.sqrt(networks)
    # What is left of the width is of the order of one over it, times the layers above the first.
    bias = (layers - 1) * np.abs(exact) / width
    assert (np.abs(np.mean(found, axis=0) - exact) < 4 * error + 3 * bias).all()
    assert (error < 0.02 * exact.max()).all()


def test_covariance_is_that_of_the_model(evaluate):
    """With one hidden layer, for any width: outputs of draws from what the model declares."""
    rows = Rows(X, np.zeros(len(X)), ("x1", "x2"), ())
    network, hyperprior = Dense(hidden=(8,), activation="relu"), Fixed(scale=1.3)
    model = build_model(network, PRIOR, hyperprior, NormalNoise(sd=0.5), rows)
    rng, draws = np.random.default_rng(1), 20_000
    w1, b1, w2, b2 = (
        drawn(model, name, (draws, *shape), rng, evaluate)
        for name, shape in (
            ("weight_1", (2, 8)),
            ("bias_1", (1, 8)),
            ("weight_2", (8,)),
            ("bias_2", (1,)),
        )
    )
    outputs = np.einsum("drh,dh->dr", np.maximum(X @ w1 + b1, 0), w2) + b2
    products = outputs[:, :, None] * outputs[:, None, :]
    error = products.std(axis=0) / np.sqrt(draws)
    exact = limit_of(network, PRIOR, hyperprior).covariance(X, X)
    assert (np.abs(products.mean(axis=0) - exact) < 4 * error).all()


def drawn(model, name, shape, rng, evaluate):
    """Draws of a normal variable of a model."""
    node = model[name].owner
    graphs = list(node.op.dist_params(node))
    mean, sd = evaluate(graphs, {})
    return mean + sd * rng.normal(size=shape)


def test_moment_at_its_ends():
    """One variable twice has half its variance; opposite ones never meet; else independent."""
    assert rectified_moment(2.0, 2.0, 2.0) == pytest.approx(1.0)
    assert rectified_moment(-2.0, 2.0, 2.0) == pytest.approx(0.0, abs=1e-12)
    assert rectified_moment(0.0, 2.0, 3.0) == pytest.approx(np.sqrt(6) / (2 * np.pi))


@pytest.mark.parametrize("layers", [1, 2])
def test_variance_is_the_diagonal(layers):
    process = LimitingProcess(layers, 1.3, 0.7)
    diagonal = np.diag(process.covariance(X, X))
    np.testing.assert_allclose(process.variance(X), diagonal, rtol=1e-7)


def test_conditioning_is_a_block_of_the_joint_precision():
    """Given all else, a normal variable has the inverse of its precision for a variance."""
    rng = np.random.default_rng(4)
    process, at, noise = LimitingProcess(2, 1.3, 0.7), np.array([[0.4, -0.6]]), 0.3
    y = rng.normal(size=len(X))
    every = np.concatenate([at, X])
    joint = process.covariance(every, every)
    joint[1:, 1:] += noise**2 * np.eye(len(X))
    precision = np.linalg.inv(joint)
    mean, sd = process.condition(X, y, noise, at)
    assert sd.item() == pytest.approx(precision[0, 0] ** -0.5, rel=1e-9)
    assert mean.item() == pytest.approx(-precision[0, 1:] @ y / precision[0, 0], rel=1e-9)


def test_which_networks_have_a_limit():
    network = Dense(hidden=(50, 50), activation="relu")
    found = limit_of(network, PRIOR, Fixed(scale=3.0))
    assert found == LimitingProcess(2, 3.0, 0.7)
    assert limit_of(Dense(hidden=(50,)), PRIOR, Fixed()) is None
    assert limit_of(Dense(hidden=(), activation="relu"), PRIOR, Fixed()) is None
    assert limit_of(Layered(layers=()), PRIOR, Fixed()) is None
    for prior in (Normal(bias_scale=1.0), Normal(fan_in=True), Laplace(fan_in=True, bias_scale=1)):
        assert limit_of(network, prior, Fixed()) is None
    for hyperprior in (HalfNormal(), Fixed(scale=Tune(log=(0.1, 1.0, 3)))):
        assert limit_of(network, PRIOR, hyperprior) is None
