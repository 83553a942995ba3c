"""Scales of layers, and scales matched to a Gaussian process: kernels with closed forms, SciPy."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy import stats
from sklearn.gaussian_process.kernels import RBF

from pmbnn.core.errors import ConfigError
from pmbnn.data.arrays import Rows
from pmbnn.models import matching
from pmbnn.models.build import build_model, model_data, parts_of
from pmbnn.models.hyperpriors import Fixed, HalfNormal, Match
from pmbnn.models.likelihoods import Normal as NormalNoise
from pmbnn.models.matching import (
    LEVELS,
    Comparison,
    ScaledDraws,
    covariance,
    match_of,
    match_scales,
    why_not_scaled,
)
from pmbnn.models.networks import Convolution, Dense, Flatten, Layered, Lenet5
from pmbnn.models.priors import PRIORS, Cauchy, Flat, Horseshoe, MultivariateT, Normal, StudentT
from pmbnn.testing import random_point

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 3))
ROWS = Rows(X, RNG.normal(size=40), ("x1", "x2", "x3"), ())
NETWORK = Dense(hidden=(4,))
NOISE = NormalNoise(sd=0.1)


def draws(network, prior=None, count=2_000):
    return ScaledDraws(network, prior or Normal(), (X.shape[1],), count)


# The comparison


@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.7])
def test_distance_of_another_amplitude(ratio):
    """Normal values of standard deviation r σ are |r - 1| times the quantiles' size away."""
    process = np.diag([1.0, 4.0, 0.25])
    drawn = stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)[:, None]
    sds = np.sqrt(np.diag(process))
    # Independent values: each column in an order of its own.
    columns = [RNG.permutation(drawn[:, 0]) for _ in sds]
    outputs = ratio * sds * np.stack(columns, axis=1)
    expected = abs(ratio - 1) * np.sqrt(np.mean(stats.norm.ppf(LEVELS) ** 2))
    assert Comparison(process).distance(outputs) == pytest.approx(expected, abs=0.02)


def test_a_constant_zero():
    process = covariance(Match(), X)
    assert Comparison(process).distance(np.zeros((50, len(X)))) == pytest.approx(0.8638, abs=1e-4)


def test_increments_tell_the_lengthscale():
    """Values of all processes of one amplitude have one distribution; increments do not."""
    process = covariance(Match(lengthscale=1), X)
    other = covariance(Match(lengthscale=0.2), X)
    root = np.linalg.cholesky(other + 1e-10 * np.eye(len(X)))
    outputs = RNG.normal(size=(4_000, len(X))) @ root.T
    comparison = Comparison(process)
    values, increments = np.split(comparison.residuals(outputs), [len(LEVELS) * len(X)])
    assert np.linalg.norm(values) < 0.05
    assert np.linalg.norm(increments) > 0.2
    assert Comparison(other).distance(outputs) < 0.05


def test_equal_inputs_have_no_increment():
    x = np.concatenate([X[:3], X[:3]])
    comparison = Comparison(covariance(Match(), x))
    assert len(comparison.first) == 12
    assert np.isfinite(comparison.residuals(np.ones((10, 6)))).all()


# Processes


def test_kernels():
    """Closed forms at distance r: exp(-r² / 2), exp(-r), (1 + √3 r) exp(-√3 r), and so on."""
    x, r = np.array([[0.0, 0, 0], [0.3, -0.4, 1.2]]), 1.3 / (0.7 * np.sqrt(3))
    root3, root5 = np.sqrt(3) * r, np.sqrt(5) * r
    expected = {
        "rbf": np.exp(-(r**2) / 2),
        "matern12": np.exp(-r),
        "matern32": (1 + root3) * np.exp(-root3),
        "matern52": (1 + root5 + root5**2 / 3) * np.exp(-root5),
    }
    for kernel, value in expected.items():
        found = covariance(Match(kernel=kernel, lengthscale=0.7, amplitude=2.0), x)
        np.testing.assert_allclose(found, 4 * np.array([[1, value], [value, 1]]), rtol=1e-12)


def test_one_input_has_the_lengthscale_that_is_written():
    np.testing.assert_allclose(covariance(Match(lengthscale=0.4), X[:, :1]), RBF(0.4)(X[:, :1]))


# Networks whose process is known


def test_a_linear_network():
    """Its outputs have the covariance s² (x·x' + 1)."""
    match = match_scales(draws(Dense(hidden=())), 0.6**2 * (X @ X.T + 1), X)
    assert match.scales == pytest.approx((0.6,), rel=0.03)
    assert match.after < 0.06
    assert match.before == pytest.approx(abs(1 / 0.6 - 1) * 0.864, rel=0.1)


def test_biases_with_a_scale_of_their_own_keep_it():
    """Their covariance is s² x·x' + b²."""
    prior = Normal(bias_scale=2.0)
    match = match_scales(draws(Dense(hidden=()), prior), 0.6**2 * X @ X.T + 4, X)
    assert match.scales == pytest.approx((0.6,), rel=0.04)
    assert match.after < 0.06


def test_scales_are_those_before_the_fan_in_rule():
    prior = Normal(fan_in=True, bias_scale=2.0)
    match = match_scales(draws(Dense(hidden=()), prior), 0.6**2 * X @ X.T / 3 + 4, X)
    assert match.scales == pytest.approx((0.6,), rel=0.05)


def rectified_covariance(x, first, second, units):
    """Covariance of one layer of rectified units (Cho and Saul 2009, equation 6, of order 1).

    E max(0, u·x) max(0, u·x') = |x| |x'| (sin θ + (π - θ) cos θ) / 2π for u ~ N(0, I).
    """
    extended = np.column_stack([x, np.ones(len(x))])
    norms = np.linalg.norm(extended, axis=1)
    cosine = np.clip(extended @ extended.T / np.outer(norms, norms), -1, 1)
    angle = np.arccos(cosine)
    mean = np.outer(norms, norms) * (np.sin(angle) + (np.pi - angle) * cosine) / (2 * np.pi)
    return second**2 * (units * first**2 * mean + 1)


def test_rectified_units_of_known_scales():
    """The scales of a reachable process are recovered."""
    process = rectified_covariance(X, 0.24, 0.8, 40)
    match = match_scales(draws(Dense(hidden=(40,), activation="relu"), count=1_000), process, X)
    # The share of the output's bias is known to 15 % from so many draws.
    assert match.scales == pytest.approx((0.24, 0.8), rel=0.2)
    found = rectified_covariance(X, *match.scales, 40)
    assert np.linalg.norm(found - process) < 0.15 * np.linalg.norm(process)
    assert match.after < 0.06


def test_the_covariance_of_tanh_units_by_simulation():
    """A process of this network, simulated apart: its scales are recovered."""
    first, second, units = 0.9, 0.2, 100
    rng = np.random.default_rng(5)
    hidden = np.tanh(first * (np.column_stack([X, np.ones(40)]) @ rng.normal(size=(4, 100_000))))
    process = second**2 * (units * hidden @ hidden.T / 100_000 + 1)
    match = match_scales(draws(Dense(hidden=(units,)), count=700), process, X)
    assert match.scales == pytest.approx((first, second), rel=0.1)


def test_heavy_tails():
    """Scale of a Cauchy prior: s minimises Σ (s c - z)² over quantiles c of SciPy's Cauchy."""
    x = np.linspace(1, 2, 20)[:, None]
    functions = ScaledDraws(Dense(hidden=()), Cauchy(bias_scale=1e-9), (1,), 10)
    weights = stats.cauchy.ppf((np.arange(5_000) + 0.5) / 5_000)
    functions.weights = {"weight_1": weights[:, None, None], "bias_1": np.zeros((5_000, 1))}
    cauchy, normal = stats.cauchy.ppf(LEVELS), stats.norm.ppf(LEVELS)
    expected = cauchy @ normal / (cauchy @ cauchy)
    match = match_scales(functions, x @ x.T, x)
    assert match.scales == pytest.approx((expected,), rel=2e-3)
    rest = np.sqrt(np.mean((expected * cauchy - normal) ** 2))
    assert match.after == pytest.approx(rest, rel=2e-3)


@pytest.mark.parametrize("kind", sorted(set(PRIORS) - {"cell", "flat", "pymc"}))
def test_every_prior_comes_nearer(kind):
    functions = draws(Dense(hidden=(5,)), PRIORS[kind](), 200)
    match = match_scales(functions, covariance(Match(), X), X)
    assert match.after < min(match.before, 0.8)
    outputs = functions.at(X)
    process = Comparison(covariance(Match(), X))
    assert match.after == pytest.approx(process.distance(outputs(match.scales)))
    assert match.before == pytest.approx(process.distance(outputs((1.0, 1.0))))


def test_convolutions():
    layers = (Convolution(filters=2, size=3, activation="tanh"), Flatten())
    network, x = Layered(layers=layers), RNG.normal(size=(12, 25))
    functions = ScaledDraws(network, Normal(), (1, 5, 5), 20)
    weights = {name: value[:3] for name, value in functions.weights.items()}
    outputs = functions.at(x)((0.5, 2.0))[:3]
    kernel, bias = weights["weight_1"], weights["bias_1"]
    images = x.reshape(12, 5, 5)
    for draw, output in enumerate(outputs):
        hidden = np.empty((12, 2, 3, 3))
        for row in range(3):
            for column in range(3):
                patch = images[:, row : row + 3, column : column + 3]
                sums = np.einsum("nij,ijf->nf", patch, kernel[draw].reshape(3, 3, 2))
                hidden[:, :, row, column] = np.tanh(0.5 * (sums + bias[draw]))
        flat = hidden.reshape(12, -1)
        expected = 2 * (flat @ weights["weight_2"][draw] + weights["bias_2"][draw])[:, 0]
        np.testing.assert_allclose(output, expected, rtol=1e-10)


# Models


def test_a_scale_for_each_layer(evaluate):
    """Weights and biases of layer i are N(0, scale i²), as one writes them by hand."""
    model = build_model(NETWORK, "normal", Fixed(scale=(0.5, 3.0)), NOISE, ROWS)
    with pm.Model() as written:
        w1 = pm.Normal("weight_1", 0, np.float64(0.5), shape=(3, 4))
        b1 = pm.Normal("bias_1", 0, np.float64(0.5), shape=4)
        w2 = pm.Normal("weight_2", 0, np.float64(3), shape=(4, 1))
        b2 = pm.Normal("bias_2", 0, np.float64(3), shape=1)
        mu = pm.math.dot(pm.math.tanh(pm.math.dot(X, w1) + b1), w2) + b2
        pm.Normal("y", mu.flatten(), np.float64(0.1), observed=ROWS.y)
    point = random_point(model, 0)
    found, expected = (
        evaluate([m.logp()], {v: point[v.name] for v in m.value_vars})[0] for m in (model, written)
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_scales_of_layers_are_values_of_one_program():
    """Lists of scales and matches share a graph, which a common scale does not have."""
    of_layers, other = Fixed(scale=(0.5, 3.0)), Fixed(scale=(1.0, 2.0))
    assert of_layers.structure == other.structure == Fixed(scale=Match()).structure
    assert of_layers.structure != Fixed(scale=2.0).structure
    assert Fixed(scale=2.0).structure == {"kind": "fixed"}
    data = model_data(of_layers, ROWS, NOISE)
    assert (data["prior_scale_1"], data["prior_scale_2"]) == (0.5, 3.0)


def test_a_model_has_matched_scales_as_constants():
    hyperprior = {"kind": "fixed", "scale": {"match": {"kernel": "rbf", "lengthscale": 1}}}
    model = build_model(NETWORK, "normal", hyperprior, NOISE, ROWS)
    expected = match_of(Fixed(scale=Match()), Normal(), NETWORK, ROWS)
    assert parts_of(model).hyperprior == Fixed(scale=expected.scales)
    assert model["prior_scale_2"].get_value() == expected.scales[1]
    # Other rows keep the scales: those of the model were chosen on its own.
    assert parts_of(model).build(ROWS.take([0, 1])) is not None
    assert parts_of(parts_of(model).build(ROWS.take([0, 1]))).hyperprior.scale == expected.scales


def test_a_match_depends_on_inputs_alone_and_repeats():
    """Targets are not used, and no state of a random generator is."""
    hyperprior = Fixed(scale=Match())
    first = match_of(hyperprior, Normal(), NETWORK, ROWS)
    matching._match_once.cache_clear()
    np.random.seed(3)  # noqa: NPY002
    other_targets = Rows(X, 100 * ROWS.y, ROWS.features, ())
    assert match_of(hyperprior, Normal(), NETWORK, other_targets) == first
    other_inputs = Rows(2 * X, ROWS.y, ROWS.features, ())
    assert match_of(hyperprior, Normal(), NETWORK, other_inputs).scales != first.scales


def test_single_precision_of_users_changes_nothing():
    hyperprior = Fixed(scale=Match())
    first = match_of(hyperprior, Normal(), NETWORK, ROWS)
    matching._match_once.cache_clear()
    with pytensor.config.change_flags(floatX="float32"):
        assert match_of(hyperprior, Normal(), NETWORK, ROWS) == first


def test_a_single_row_has_no_increments():
    match = match_of(Fixed(scale=Match()), Normal(), NETWORK, ROWS.take([0]))
    assert match.after < 0.1


def test_an_amplitude_is_in_the_units_of_outputs():
    """Of a linear network it multiplies the scale."""
    linear = Dense(hidden=())
    one, five = (
        match_of(Fixed(scale=Match(amplitude=a)), Normal(), linear, ROWS).scales[0] for a in (1, 5)
    )
    assert five == pytest.approx(5 * one, rel=0.01)


def test_nearly_constant_functions():
    """Beyond the longest lengthscale increments would be rounding errors, and not compared."""
    long, longest = (
        match_of(Fixed(scale=Match(lengthscale=length)), Normal(), NETWORK, ROWS).scales[0]
        for length in (10, 1_000)
    )
    # The first layer's weights divide by the lengthscale.
    assert 100 * longest == pytest.approx(long, rel=0.1)
    with pytest.raises(ConfigError, match="`lengthscale` must be <= 1000, got 10000.0"):
        Match(lengthscale=1e4)


def test_what_needs_no_match():
    for hyperprior in (Fixed(scale=1.0), Fixed(scale=(1.0, 2.0)), HalfNormal(), Fixed(scale=None)):
        assert match_of(hyperprior, Normal(), NETWORK, ROWS) is None


# Errors


@pytest.mark.parametrize(
    ("prior", "hyperprior", "network", "said"),
    [
        (Normal(), Fixed(scale=(1.0,)), NETWORK, "must have 2 scales.*got 1"),
        (Normal(), Fixed(scale=(1.0, 1.0, 1.0)), NETWORK, "must have 2 scales.*got 3"),
        (Horseshoe(slab_scale=2.0), Fixed(scale=Match()), NETWORK, "slab"),
    ],
)
def test_what_does_not_fit(prior, hyperprior, network, said):
    with pytest.raises(ValueError, match=f"`hyperprior.scale` {said}" if "must" in said else said):
        build_model(network, prior, hyperprior, NOISE, ROWS)


def test_large_networks_are_not_matched():
    rule = why_not_scaled(Fixed(scale=Match()), Normal(), Lenet5(), (1, 28, 28))
    assert "at most 200,000" in rule
    assert why_not_scaled(Fixed(scale=(1.0,) * 5), Normal(), Lenet5(), (1, 28, 28)) is None


def test_a_prior_without_a_scale_has_none_to_match():
    for scale in (Match(), (1.0,)):
        assert why_not_scaled(Fixed(scale=scale), Flat(), NETWORK, (3,)) is None


def test_functions_that_are_not_finite():
    functions = draws(NETWORK, StudentT(nu=1e-3), 50)
    with pytest.raises(ValueError, match="prior `student_t` are not finite"):
        match_scales(functions, covariance(Match(), X), X)


@pytest.mark.parametrize("scale", [(1.0, -1.0), {"match": {"lengthscale": 0}}, {"match": 3}])
def test_values_out_of_range(scale):
    with pytest.raises(ConfigError, match="scale"):
        Fixed(scale=scale)


def test_a_prior_with_own_scales_is_not_matched_unless_it_says_so():
    """As a plugin may have them: the scale of these weights is added to one."""

    class Added(Normal):
        def own_scales(self, name, dims, scale, layer):
            return 1.0 + scale

    rule = why_not_scaled(Fixed(scale=Match()), Added(), NETWORK, (1,))
    assert rule is not None and "whose weights are not the scale times" in rule
    assert why_not_scaled(Fixed(scale=Match()), MultivariateT(), NETWORK, (1,)) is None
