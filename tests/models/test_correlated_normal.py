"""Correlated kernels of convolutions against SciPy's multivariate normal distribution."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy import stats
from scipy.spatial.distance import cdist

from pmbnn.core.errors import ConfigError
from pmbnn.data.arrays import Rows
from pmbnn.models.build import build_model
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Convolution, Dense, Flatten, Layered, MaxPool
from pmbnn.models.priors import CorrelatedNormal
from pmbnn.testing import check_model, random_point

RNG = np.random.default_rng(0)
IMAGES = Rows(
    RNG.normal(size=(6, 50)), np.arange(6) % 3, tuple(f"p{i}" for i in range(50)), ("a", "b", "c"),
    input_shape=(2, 5, 5),
)  # fmt: skip
NETWORK = Layered(layers=(Convolution(filters=3, size=3), MaxPool(), Flatten()))
PIXELS = [(i, j) for i in range(3) for j in range(3)]


def build(prior, hyperprior):
    return build_model(NETWORK, prior, hyperprior, Categorical(), IMAGES)


def correlation(lengthscale):
    return np.exp(-cdist(PIXELS, PIXELS) / lengthscale)


@pytest.mark.parametrize("lengthscale", [0.01, 1.0, 3.0, 1e6])
def test_log_density_of_kernels(lengthscale, evaluate):
    """That of the standard draws, less the logarithm of the determinant of what they become."""
    model = build(CorrelatedNormal(lengthscale=lengthscale), Fixed(scale=0.7))
    point = random_point(model)
    graphs = [model["weight_1"], model.logp(vars=[model["weight_1_z"]], sum=False)[0]]
    given = {value: point[value.name] for value in model.value_vars}
    kernels, terms = evaluate(model.replace_rvs_by_values(graphs), given)
    covariance = 0.7**2 * correlation(lengthscale)
    found = terms.sum(axis=(1, 2)) - np.linalg.slogdet(covariance)[1] / 2
    of_kernel = kernels.transpose(0, 3, 1, 2).reshape(2, 3, 9)
    expected = stats.multivariate_normal(np.zeros(9), covariance).logpdf(of_kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_draws_of_kernels():
    model = build(CorrelatedNormal(lengthscale=2.0, fan_in=True), Fixed(scale=3.0))
    with pytensor.config.change_flags(mode="FAST_COMPILE"), model:
        weight, dense = pm.draw([model["weight_1"], model["weight_2"]], 2000, random_seed=1)
    scale = 3 / np.sqrt(2 * 9)
    kernels = weight.transpose(0, 1, 4, 2, 3).reshape(2000, 6, 9) / scale
    found = np.einsum("dki,dlj->kilj", kernels, kernels).reshape(54, 54) / 2000
    expected = np.kron(np.eye(6), correlation(2.0))
    # A mean of 2,000 products of normals, each of variance 1 + correlation².
    assert (np.abs(found - expected) / np.sqrt((1 + expected**2) / 2000)).max() < 5
    assert stats.kstest(dense.ravel() * np.sqrt(3) / 3, "norm").pvalue > 0.001


def test_a_convolution_with_a_scale_for_each_filter():
    check_model(NETWORK, CorrelatedNormal(), HalfNormal(per="unit"), Categorical(), IMAGES)


def test_dense_layers_have_independent_weights(evaluate):
    model = build_model(
        Dense(hidden=(3,)), CorrelatedNormal(), Fixed(scale=0.5), Categorical(), IMAGES
    )
    point = random_point(model)
    given = {value: point[value.name] for value in model.value_vars}
    [weight] = evaluate(model.replace_rvs_by_values([model["weight_1"]]), given)
    np.testing.assert_array_equal(weight, 0.5 * point["weight_1_z"])


@pytest.mark.parametrize("lengthscale", [0, 2e6])
def test_a_lengthscale_that_is_none(lengthscale):
    with pytest.raises(ConfigError, match="`lengthscale` must be"):
        CorrelatedNormal(lengthscale=float(lengthscale))
