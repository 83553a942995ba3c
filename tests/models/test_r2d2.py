"""The R2D2 prior against SciPy: shares of a Dirichlet distribution, R² of a beta one."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy import stats

from pmbnn.core.errors import ConfigError
from pmbnn.data.arrays import Rows
from pmbnn.models.build import build_model
from pmbnn.models.hyperpriors import Fixed, HalfCauchy, HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import R2D2
from pmbnn.testing import random_point

RNG = np.random.default_rng(0)
ROWS = Rows(RNG.normal(size=(9, 2)), np.arange(9) % 3, ("x1", "x2"), ("a", "b", "c"))
NETWORK = Dense(hidden=(4, 3))


def build(prior, hyperprior, network=NETWORK):
    return build_model(network, prior, hyperprior, Categorical(), ROWS)


def drawn(model, *names, draws=4000):
    with pytensor.config.change_flags(mode="FAST_COMPILE"), model:
        return pm.draw([model[name] for name in names], draws, random_seed=1)


@pytest.mark.parametrize("fan_in", [False, True])
def test_weights_at_a_point(fan_in, evaluate):
    """The variance of unit i is n · share_i of the squared scale."""
    model = build(R2D2(concentration=0.8, fan_in=fan_in), HalfCauchy())
    point = random_point(model)
    variables = [*model.free_RVs, *model.deterministics]
    graphs = [*model.replace_rvs_by_values(variables), *model.logp(vars=model.free_RVs, sum=False)]
    found = evaluate(graphs, {value: point[value.name] for value in model.value_vars})
    at = dict(zip([v.name for v in variables], found, strict=False))
    densities = dict(zip([v.name for v in model.free_RVs], found[len(variables) :], strict=True))
    for p in NETWORK.parameters((2,), 3):
        part = at[f"unit_{p.layer}_part"]
        assert model.named_vars_to_dims[f"unit_{p.layer}_part"] == p.dims[-1:]
        scale = at[f"layer_{p.layer}_scale"] / (p.fan_in**0.5 if fan_in else 1)
        sd = scale * np.sqrt(len(part) * part / part.sum())
        np.testing.assert_allclose(at[p.name], sd * at[f"{p.name}_z"], rtol=1e-13)
        expected = stats.gamma.logpdf(part, 0.8) + np.log(part)
        np.testing.assert_allclose(densities[f"unit_{p.layer}_part"], expected, rtol=1e-12)


@pytest.mark.parametrize("concentration", [0.25, 0.5, 3.0])
def test_shares_are_of_a_dirichlet_distribution(concentration):
    [part] = drawn(build(R2D2(concentration=concentration), Fixed()), "unit_1_part")
    law = stats.beta(concentration, 3 * concentration)
    assert stats.kstest(part[:, 0] / part.sum(axis=1), law.cdf).pvalue > 0.001


def test_marginal_variance():
    """The shares have a mean of 1 / n, so that it is the squared scale, with ``bias_scale`` too."""
    model = build(R2D2(concentration=3.0, bias_scale=0.3), Fixed(scale=0.7))
    weight, bias = drawn(model, "weight_2", "bias_2")
    # Over the mean of a layer's units the shares are 1; the rest is a mean of squared normals.
    assert (weight**2).mean() == pytest.approx(0.49, rel=0.03)
    assert (bias**2).mean() == pytest.approx(0.09, rel=0.05)


def test_one_unit_takes_all():
    weight, z = drawn(build(R2D2(), Fixed(scale=2.0), Dense(hidden=(1,))), "weight_1", "weight_1_z")
    np.testing.assert_allclose(weight, 2 * z, rtol=1e-12)


def test_the_explained_share_of_variance():
    """Under a half-Cauchy scale of 1, R² = scale² / (1 + scale²) is beta(1/2, 1/2)."""
    [scale] = drawn(build(R2D2(), HalfCauchy()), "layer_1_scale")
    assert stats.kstest(scale**2 / (1 + scale**2), stats.beta(0.5, 0.5).cdf).pvalue > 0.001


def test_shares_stand_beside_scales_of_units():
    model = build(R2D2(), HalfNormal(per="unit"))
    assert model.named_vars_to_dims["layer_2_scale"] == ("hidden_2",)


def test_tiny_concentrations_are_refused():
    with pytest.raises(ConfigError, match=r"`concentration` must be >= 0\.25, got 0\.1"):
        R2D2(concentration=0.1)
