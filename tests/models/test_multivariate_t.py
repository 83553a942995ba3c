"""The multivariate t prior against SciPy: its density by quadrature, and its draws."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy import stats

from pmbnn.data.arrays import Rows
from pmbnn.models.build import build_model
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import MultivariateT

RNG = np.random.default_rng(0)
ROWS = Rows(RNG.normal(size=(9, 2)), np.arange(9) % 3, ("x1", "x2"), ("a", "b", "c"))
NU, SCALE = 3.0, 0.7
PRIOR = MultivariateT(nu=NU)


def build(network, hyperprior=None, prior=PRIOR):
    hyperprior = hyperprior or Fixed(scale=SCALE)
    return build_model(network, prior, hyperprior, Categorical(), ROWS)


def test_weights_of_a_unit_have_the_joint_density():
    """The mixing variable of each unit is integrated over, by the trapezoidal rule."""
    model, logs = build(Dense(hidden=())), np.linspace(-15, 15, 601)
    weights, bias = np.array([[1.5, -4.0, 0.1], [-0.3, 2.0, 0.2]]), np.array([0.2, 30.0, -0.1])
    with pytensor.config.change_flags(mode="FAST_COMPILE"):
        density = model.compile_logp(model.free_RVs, sum=False)
    parts = []
    for u in logs:
        sd = SCALE * np.exp(u / 2)
        point = {"unit_1_mixing_log__": np.full(3, u), "weight_1_z": weights / sd}
        by_name = zip(model.free_RVs, density(point | {"bias_1_z": bias / sd}), strict=True)
        terms = {v.name: term for v, term in by_name}
        of_unit = terms["unit_1_mixing"] + terms["weight_1_z"].sum(axis=0) + terms["bias_1_z"]
        parts.append(np.exp(of_unit - 3 * np.log(sd)))
    found = np.log(np.trapezoid(parts, logs, axis=0))
    law = stats.multivariate_t(np.zeros(3), SCALE**2 * np.eye(3), df=NU)
    np.testing.assert_allclose(found, law.logpdf(np.vstack([weights, bias]).T), rtol=1e-6)


@pytest.mark.parametrize("fan_in", [False, True])
def test_draws_of_a_unit(fan_in):
    """Each is Student's t; the mean of their squares, in units of the scale, has F(d, nu)."""
    model = build(Dense(hidden=(4, 3)), prior=MultivariateT(nu=NU, fan_in=fan_in))
    with pytensor.config.change_flags(mode="FAST_COMPILE"), model:
        weight, bias = pm.draw([model["weight_2"], model["bias_2"]], 2000, random_seed=1)
    unit = np.column_stack([weight[:, :, 1], bias[:, 1]]) / SCALE * (2 if fan_in else 1)
    assert stats.kstest(unit[:, 0], stats.t(NU).cdf).pvalue > 0.001
    assert stats.kstest((unit**2).mean(axis=1), stats.f(5, NU).cdf).pvalue > 0.001


def test_marginal_variance():
    """With more degrees of freedom, where it is finite: scale² · nu / (nu - 2)."""
    model = build(Dense(hidden=(4, 3)), prior=MultivariateT(nu=12.0))
    with pytensor.config.change_flags(mode="FAST_COMPILE"), model:
        weight = pm.draw(model["weight_2"], 4000, random_seed=1)
    variance, expected = weight.var(axis=0).mean(), SCALE**2 * 12 / 10
    # The fourth moment of t(12) is 3.75 squared variances; three units are independent.
    error = expected * np.sqrt(2.75 / (4000 * 3))
    assert variance == pytest.approx(expected, abs=4 * error)


def test_units_have_their_own_mixing_beside_a_learned_scale():
    model = build(Dense(hidden=(4, 3)), HalfNormal(per="unit"))
    assert model.named_vars_to_dims["unit_2_mixing"] == ("hidden_2",)
    assert model.named_vars_to_dims["layer_2_scale"] == ("hidden_2",)
