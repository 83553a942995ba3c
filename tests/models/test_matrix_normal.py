"""Weights with learned correlations against SciPy's matrix normal distribution."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy import stats

from pmbnn.data.arrays import Rows
from pmbnn.models.build import build_model
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Convolution, Dense, Flatten, Layered
from pmbnn.models.priors import MatrixNormal
from pmbnn.testing import check_model, random_point

RNG = np.random.default_rng(0)
ROWS = Rows(RNG.normal(size=(6, 3)), np.arange(6) % 3, ("age", "dose", "size"), ("a", "b", "c"))
IMAGES = Rows(
    RNG.normal(size=(6, 18)), np.arange(6) % 3, tuple(f"p{i}" for i in range(18)), ("a", "b", "c"),
    input_shape=(2, 3, 3),
)  # fmt: skip
DENSE = Dense(hidden=(4,))


def build(prior, network=DENSE, rows=ROWS, scale=0.7):
    return build_model(network, prior, Fixed(scale=scale), Categorical(), rows)


def values(model, names, evaluate):
    """Variables of a model at a random point, and the log-densities of its standard draws."""
    point = random_point(model)
    density = model.logp(vars=[model["weight_1_z"]], sum=False)
    given = {value: point[value.name] for value in model.value_vars}
    graphs = [*(model[name] for name in names), *density]
    return evaluate(model.replace_rvs_by_values(graphs), given)


def matrix(correlations, n):
    """Correlation matrix of the numbers below its diagonal."""
    one = np.eye(n)
    one[np.tril_indices(n, -1)] = correlations
    return one + one.T - np.eye(n)


@pytest.mark.parametrize("correlate", ["both", "inputs", "units"])
def test_log_density_of_weights(correlate, evaluate):
    """That of the standard draws, less the logarithm of the determinant of what they become."""
    model = build(MatrixNormal(correlate=correlate))
    sides = {"input": (3, correlate != "units"), "unit": (4, correlate != "inputs")}
    names = [f"weight_1_{side}_correlation" for side, (_, has) in sides.items() if has]
    *correlations, weight, density = values(model, [*names, "weight_1"], evaluate)
    found = dict(zip(names, correlations, strict=True))
    covariances, log_volume = [], 0.0
    for (side, (n, _)), other in zip(sides.items(), (4, 3), strict=True):
        one = found.get(f"weight_1_{side}_correlation")
        covariances.append(np.eye(n) if one is None else matrix(one, n))
        log_volume += other / 2 * np.linalg.slogdet(covariances[-1])[1]
    expected = stats.matrix_normal(np.zeros((3, 4)), 0.7**2 * covariances[0], covariances[1])
    log_density = density.sum() - log_volume - 12 * np.log(0.7)
    assert log_density == pytest.approx(expected.logpdf(weight), rel=1e-8)
    assert [name for name in model.named_vars if "correlation" in name][: len(names)] == names


@pytest.mark.parametrize("eta", [1.0, 2.0, 4.0])
def test_correlations_have_the_lkj_distribution(eta):
    """Its density is that of the determinant to the power of eta - 1: drawn here by rejection."""
    model = build(MatrixNormal(eta=eta))
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        found = pm.draw(model["weight_1_input_correlation"], 2000, random_seed=1)
    a, b, c = proposed = RNG.uniform(-1, 1, (3, 200_000))
    accepted = RNG.uniform(size=200_000) ** (1 / (eta - 1)) if eta > 1 else 0.0
    known = proposed[:, determinant(a, b, c) > accepted].T
    assert len(known) > 2000
    for statistic in (
        lambda one: determinant(*one.T),
        lambda one: one[:, 0],
        lambda one: one[:, 2],
    ):
        assert stats.ks_2samp(statistic(found), statistic(known)).pvalue > 0.001


def determinant(a, b, c):
    """Of correlation matrices of three variables."""
    return 1 + 2 * a * b * c - a**2 - b**2 - c**2


def test_draws_of_weights_are_correlated_as_said():
    """Products of weights over the scale have the mean of products of the correlations."""
    model = build(MatrixNormal(fan_in=True), scale=3.0)
    names = ["weight_1", "weight_1_input_correlation", "weight_1_unit_correlation", "bias_1"]
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        drawn = pm.draw([model[name] for name in names], 1000, random_seed=1)
    weight, inputs, units, bias = drawn
    weight = weight * np.sqrt(3) / 3
    # Inputs 0 and 1, units 0 and 1: each first below the diagonal.
    across = weight[:, 0, 0] * weight[:, 1, 1] - inputs[:, 0] * units[:, 0]
    for error in (across, (weight**2 - 1).reshape(1000, -1).mean(axis=1)):
        assert abs(error.mean()) < 4 * error.std() / np.sqrt(1000)
    assert np.corrcoef(weight[:, 0, 0] * weight[:, 1, 1], inputs[:, 0] * units[:, 0])[0, 1] > 0.15
    assert stats.kstest(bias.ravel() * np.sqrt(3) / 3, "norm").pvalue > 0.001


def test_pairs_are_named():
    model = build(MatrixNormal())
    assert model.coords["feature_pair"] == ("age, dose", "age, size", "dose, size")
    assert model.named_vars_to_dims["weight_1_input_correlation"] == ("feature_pair",)


def test_channels_of_a_convolution_are_correlated(evaluate):
    """Of single pixels alike: kernels are the input's factor times draws times the filters'."""
    network = Layered(layers=(Convolution(filters=4, size=2), Flatten()))
    model = build(MatrixNormal(), network, IMAGES, scale=1.0)
    weight, inputs, units, _ = values(
        model,
        ["weight_1", "weight_1_input_correlation", "weight_1_unit_correlation"],
        evaluate,
    )
    standard = random_point(model)["weight_1_z"]
    roots = np.linalg.cholesky(matrix(inputs, 2)), np.linalg.cholesky(matrix(units, 4))
    np.testing.assert_allclose(weight, np.einsum("ij,jrcl,kl->irck", roots[0], standard, roots[1]))


def test_a_single_input_has_no_correlation():
    rows = Rows(ROWS.x[:, :1], ROWS.y, ("age",), ROWS.classes)
    model = check_model(Dense(hidden=(3,)), MatrixNormal(), HalfNormal(), Categorical(), rows)
    assert "weight_1_input_correlation" not in model.named_vars
    assert "weight_1_unit_correlation" in model.named_vars
