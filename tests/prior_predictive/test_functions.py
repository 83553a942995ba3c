"""Functions drawn from a prior: their weights against SciPy, what they say against NumPy."""

import numpy as np
import pymc as pm
import pytest
from makers import with_defaults
from scipy import stats
from scipy.special import expit, softmax
from tiers import slow_but

from pmbnn.data.arrays import Rows
from pmbnn.models.build import build_model
from pmbnn.models.hyperpriors import (
    HYPERPRIORS,
    Fixed,
    HalfCauchy,
    HalfNormal,
    Hierarchical,
    InverseGamma,
)
from pmbnn.models.layers import DenseLayer
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.likelihoods import Normal as NormalNoise
from pmbnn.models.networks import Dense, Layered
from pmbnn.models.priors import PRIORS, Flat, Horseshoe, Laplace, Normal, ScaleMixture, StudentT
from pmbnn.prediction.draws import unconstrained_draws
from pmbnn.prior_predictive.evaluate import FLAT, PriorFunctions, prior_draws
from pmbnn.testing import random_point

DRAWS = 1_500
RNG = np.random.default_rng(0)
ROWS = Rows(RNG.normal(size=(7, 2)), np.arange(7) % 3, ("x1", "x2"), ("a", "b", "c"))
NUMBERS = Rows(ROWS.x, RNG.normal(size=7), ROWS.features, ())
NETWORK = Dense(hidden=(3,))


# Weights


def standard(prior, size, rng):
    """Weights of scale 1 by SciPy: two that share what all weights share, ``(2, draw)``."""
    share = (2, size)
    draw = {
        "normal": lambda: stats.norm.rvs(size=share, random_state=rng),
        # Two of different inputs and units, or a bias: their sizes hardly go together.
        "matrix_normal": lambda: stats.norm.rvs(size=share, random_state=rng),
        "correlated_normal": lambda: stats.norm.rvs(size=share, random_state=rng),
        "laplace": lambda: stats.laplace.rvs(size=share, random_state=rng),
        "cauchy": lambda: stats.cauchy.rvs(size=share, random_state=rng),
        "student_t": lambda: stats.t.rvs(prior.nu, size=share, random_state=rng),
        "horseshoe": lambda: (
            stats.norm.rvs(size=share, random_state=rng)
            * stats.halfcauchy.rvs(size=share, random_state=rng)
        ),
        # Two of different units, as is asked below.
        "multivariate_t": lambda: stats.t.rvs(prior.nu, size=share, random_state=rng),
        # Units 0 and 1 of three.
        "r2d2": lambda: (
            np.sqrt(3 * rng.dirichlet([prior.concentration] * 3, size).T[:2])
            * stats.norm.rvs(size=share, random_state=rng)
        ),
        "trainable_mean": lambda: stats.norm.rvs(
            scale=np.hypot(1, prior.spread), size=share, random_state=rng
        ),
        "scale_mixture": lambda: mixture(prior, share, rng),
        "pymc": lambda: stats.logistic.rvs(size=share, random_state=rng),
    }
    return draw[prior.kind]()


def mixture(prior, share, rng):
    z = rng.normal(size=(3, share[1])) * (prior.spread if prior.learned else 0)
    odds = prior.proportion / (1 - prior.proportion) * np.exp(z[0])
    sigmas = prior.sigma_1 * np.exp(z[1]), prior.sigma_2 * np.exp(z[2])
    return np.where(rng.random(share) < odds / (1 + odds), *sigmas) * rng.normal(size=share)


def scales(hyperprior, size, rng):
    law = {
        "fixed": lambda h: stats.uniform(h.scale, 0),
        "half_normal": lambda h: stats.halfnorm(scale=h.sigma),
        "half_cauchy": lambda h: stats.halfcauchy(scale=h.beta),
        "inverse_gamma": lambda h: stats.invgamma(h.alpha, scale=h.beta),
        "pymc": lambda h: stats.gamma(h.alpha, scale=1 / h.beta),
    }[hyperprior.kind](hyperprior)
    found = law.rvs(size=size, random_state=rng)
    return np.sqrt(found) if getattr(hyperprior, "on", "scale") == "variance" else found


# Standard draws times a scale: neither asks what the other is.
CASES = [(with_defaults(cls), HalfCauchy()) for cls in PRIORS.values() if cls.has_scale]
CASES += [(Normal(), with_defaults(cls)) for cls in HYPERPRIORS.values() if not cls.is_point]
CASES = list(dict.fromkeys(CASES))
CASES += [
    (ScaleMixture(learned=True), HalfNormal(per="network")),
    (Horseshoe(per="unit"), HalfNormal()),
    (StudentT(nu=1.5, fan_in=True), InverseGamma(alpha=3.0, on="variance")),
    (Laplace(fan_in=True), HalfCauchy(beta=0.3, centred=True)),
    (Normal(), Fixed(scale=7.0)),
]
QUICK = [case for case in CASES if case == (Normal(), HalfCauchy())]


@pytest.mark.parametrize(("prior", "hyperprior"), slow_but(QUICK, CASES))
def test_weights_follow_the_prior(prior, hyperprior):
    """Each alone, two of a layer together, and two of different layers."""
    model = build_model(NETWORK, prior, hyperprior, Categorical(), ROWS)
    drawn = prior_draws(model, ["weight_1", "bias_1", "weight_2"], 1)(DRAWS)
    assert drawn["weight_1"].shape == (DRAWS, 2, 3)
    first, second = drawn["weight_1"][:, 0, 1], drawn["bias_1"][:, 2]
    other = drawn["weight_2"][:, 1, 0] * (1.5**0.5 if prior.fan_in else 1)
    rng = np.random.default_rng(2)
    size = 20 * DRAWS
    shared = standard(prior, size, rng)
    expected = scales(hyperprior, size, rng) * shared / (2**0.5 if prior.fan_in else 1)
    assert stats.ks_2samp(first, expected[0]).pvalue > 1e-3
    assert stats.ks_2samp(second, expected[1]).pvalue > 1e-3
    assert stats.ks_2samp(other, expected[0]).pvalue > 1e-3
    # Together they are known by how sizes go with each other: of independent ones, not at all.
    error = 4 / np.sqrt(DRAWS)
    together = stats.spearmanr(*np.abs(expected)).statistic
    found = stats.spearmanr(np.abs(first), np.abs(second)).statistic
    assert found == pytest.approx(together, abs=error)
    if isinstance(hyperprior, Hierarchical) and hyperprior.per == "layer":
        own = stats.spearmanr(np.abs(first), np.abs(other)).statistic
        # Layers share nothing of the shares of their units.
        alone = 0 if prior.kind == "r2d2" else stats.spearmanr(*np.abs(shared)).statistic
        assert own == pytest.approx(alone, abs=error)


def test_the_same_seed_draws_the_same_however_many_at_once():
    model = build_model(NETWORK, Normal(), HalfNormal(), Categorical(), ROWS)
    functions = PriorFunctions(NETWORK, Categorical(), ROWS)
    whole, again, other = (
        np.concatenate(list(functions.draws(model, 10, seed, at_once)))
        for seed, at_once in ((3, 10), (3, 4), (4, 10))
    )
    assert whole.shape == (10, functions.predictor.flat.size)
    np.testing.assert_array_equal(whole, again)
    assert not np.isclose(whole, other).any()


def test_flat_vectors_hold_the_weights_drawn():
    model = build_model(NETWORK, Laplace(), HalfCauchy(per="unit"), NormalNoise(), NUMBERS)
    functions = PriorFunctions(NETWORK, NormalNoise(), NUMBERS)
    assert set(functions.names) == {"weight_1", "bias_1", "weight_2", "bias_2", "noise"}
    (values,) = functions.draws(model, 20, 5, 20)
    named = functions.predictor.posterior(functions.data, values)
    drawn = prior_draws(model, functions.names, 5)(20)
    for name in functions.names:
        np.testing.assert_allclose(named[name], drawn[name], rtol=1e-12)


@pytest.mark.parametrize("hyperprior", [Fixed(scale=None), Fixed()])
def test_an_improper_prior_is_refused(hyperprior):
    model = build_model(NETWORK, Flat(), hyperprior, Categorical(), ROWS)
    with pytest.raises(ValueError, match="must have proper priors, but that of `weight_1`"):
        prior_draws(model, ["weight_1"], 0)


def test_terms_of_no_variable_are_refused():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("pull", -(x**2))
    with pytest.raises(ValueError, match="must have no potential .* `pull`"):
        prior_draws(model, ["x"], 0)


# What they say


def flat_vector(functions, named):
    return unconstrained_draws(functions.model, {n: a[None] for n, a in named.items()})[0]


def random_weights(functions, draws, rng, scale=2.0):
    model = functions.model
    at = random_point(model)
    shapes = {v.name: at[model.rvs_to_values[v].name].shape for v in model.free_RVs}
    return {
        name: np.abs(rng.normal(size=draws)) if name == "noise"
        else scale * rng.normal(size=(draws, *shape))
        for name, shape in shapes.items()
    }  # fmt: skip


def outputs(named, x, activate):
    """Hidden units before their activation, and outputs, ``(draw, observation, unit)``."""
    before = x @ named["weight_1"] + named["bias_1"][:, None]
    return before, activate(before) @ named["weight_2"] + named["bias_2"][:, None]


ACTIVATIONS = {"tanh": np.tanh, "sigmoid": expit, "relu": lambda v: np.maximum(v, 0)}
SLOPES = {
    "tanh": lambda v: 1 / np.cosh(v) ** 2,
    "sigmoid": lambda v: 4 * expit(v) * expit(-v),
    "relu": lambda v: (v > 0).astype(float),
}


@pytest.mark.parametrize("activation", slow_but(["tanh"], list(ACTIVATIONS)))
def test_functions_and_their_hidden_units(activation):
    functions = PriorFunctions(Dense(hidden=(3,), activation=activation), Categorical(), ROWS)
    named = random_weights(functions, 30, np.random.default_rng(1))
    values = flat_vector(functions, named)
    before, expected = outputs(named, ROWS.x, ACTIVATIONS[activation])
    found = functions.parameters(values, ROWS.x)["probability"]
    np.testing.assert_allclose(found, softmax(expected, axis=-1), rtol=1e-8, atol=1e-300)
    share = (SLOPES[activation](before) < FLAT).mean(axis=(1, 2))
    np.testing.assert_allclose(functions.saturated(values, ROWS.x), share, atol=1e-12)
    assert 0.05 < share.mean() < 0.9


def test_functions_of_numbers_have_their_noise():
    functions = PriorFunctions(NETWORK, NormalNoise(), NUMBERS)
    named = random_weights(functions, 30, np.random.default_rng(1))
    found = functions.parameters(flat_vector(functions, named), NUMBERS.x)
    _, expected = outputs(named, NUMBERS.x, np.tanh)
    np.testing.assert_allclose(found["mu"], expected[..., 0], rtol=1e-8)
    np.testing.assert_allclose(found["sigma"][:, 0], named["noise"], rtol=1e-8)


@pytest.mark.slow
def test_every_layer_counts_and_linear_ones_do_not():
    layers = tuple(
        DenseLayer(units=n, activation=a) for n, a in ((3, "tanh"), (2, "linear"), (5, "relu"))
    )
    functions = PriorFunctions(Layered(layers=layers), Categorical(), ROWS)
    rng = np.random.default_rng(2)
    named = random_weights(functions, 20, rng)
    first = np.tanh(ROWS.x @ named["weight_1"] + named["bias_1"][:, None])
    second = first @ named["weight_2"] + named["bias_2"][:, None]
    third = second @ named["weight_3"] + named["bias_3"][:, None]
    flat = np.concatenate([1 - first**2 < FLAT, third <= 0], axis=-1)
    found = functions.saturated(flat_vector(functions, named), ROWS.x)
    np.testing.assert_allclose(found, flat.mean(axis=(1, 2)), atol=1e-12)


@pytest.mark.slow
def test_without_hidden_units_nothing_is_saturated():
    functions = PriorFunctions(Dense(hidden=()), Categorical(), ROWS)
    assert functions.saturated(np.zeros((2, functions.predictor.flat.size)), ROWS.x) is None
