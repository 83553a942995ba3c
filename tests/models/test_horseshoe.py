"""The horseshoe with a slab and of units, against the formulas of its papers and SciPy."""

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
from pmbnn.models.priors import Horseshoe
from pmbnn.testing import check_model, random_point

RNG = np.random.default_rng(0)
ROWS = Rows(RNG.normal(size=(9, 2)), np.arange(9) % 3, ("x1", "x2"), ("a", "b", "c"))
NETWORK = Dense(hidden=(4, 3))
SLAB = Horseshoe(slab_scale=2.5, slab_df=3.0)
UNITS = Horseshoe(per="unit")


def build(prior, hyperprior):
    return build_model(NETWORK, prior, hyperprior, Categorical(), ROWS)


def of_model(model, evaluate):
    """A point; the variables of the model there, by name; and each log-prior."""
    point = random_point(model)
    variables = [*model.free_RVs, *model.deterministics]
    graphs = [*model.replace_rvs_by_values(variables), *model.logp(vars=model.free_RVs, sum=False)]
    found = evaluate(graphs, {value: point[value.name] for value in model.value_vars})
    names = [v.name for v in variables]
    densities = {v.name: d for v, d in zip(model.free_RVs, found[len(names) :], strict=True)}
    return dict(zip(names, found, strict=False)), densities


@pytest.mark.parametrize("fan_in", [False, True])
def test_weights_have_the_regularised_scales(fan_in, evaluate):
    """Piironen and Vehtari (2017), equation 2.8: λ̃² = c² λ² / (c² + τ² λ²), weight = τ λ̃ z."""
    model = build(SLAB.model_copy(update={"fan_in": fan_in}), HalfCauchy())
    at, densities = of_model(model, evaluate)
    for p in NETWORK.parameters((2,), 3):
        tau = at[f"layer_{p.layer}_scale"] / (p.fan_in**0.5 if fan_in else 1)
        c2, local = at[f"layer_{p.layer}_slab_variance"], at[f"{p.name}_local"]
        shrunk = np.sqrt(c2 * local**2 / (c2 + tau**2 * local**2))
        np.testing.assert_allclose(at[p.name], tau * shrunk * at[f"{p.name}_z"], rtol=1e-13)
        # Equation 2.9, with the Jacobian of its logarithm.
        slab = stats.invgamma.logpdf(c2, 1.5, scale=1.5 * 2.5**2) + np.log(c2)
        found = densities[f"layer_{p.layer}_slab_variance"]
        np.testing.assert_allclose(found, slab, rtol=1e-12)


def test_the_slab_holds_for_biases_with_a_scale_of_their_own(evaluate):
    prior = Horseshoe(fan_in=True, bias_scale=0.7, slab_scale=0.2)
    at, _ = of_model(build(prior, HalfNormal()), evaluate)
    own = 0.7 * at["bias_2_local"]
    expected = at["bias_2_z"] / np.sqrt(1 / own**2 + 1 / at["layer_2_slab_variance"])
    np.testing.assert_allclose(at["bias_2"], expected, rtol=1e-13)


@pytest.mark.parametrize("slab_scale", [None, 2.5])
def test_incoming_weights_and_bias_of_a_unit_share_a_scale(slab_scale, evaluate):
    """Ghosh, Yao and Doshi-Velez (2018): w_k ~ N(0, τ² λ_k² I) for all that enters unit k."""
    model = build(Horseshoe(per="unit", slab_scale=slab_scale), HalfCauchy())
    at, densities = of_model(model, evaluate)
    for p in NETWORK.parameters((2,), 3):
        local = at[f"unit_{p.layer}_local"]
        assert local.shape == p.shape[-1:]
        assert model.named_vars_to_dims[f"unit_{p.layer}_local"] == p.dims[-1:]
        wide = at[f"layer_{p.layer}_scale"] * local
        slab = np.inf if slab_scale is None else at[f"layer_{p.layer}_slab_variance"]
        expected = at[f"{p.name}_z"] / np.sqrt(1 / wide**2 + 1 / slab)
        np.testing.assert_allclose(at[p.name], expected, rtol=1e-13)
        expected = stats.halfcauchy.logpdf(local) + np.log(local)
        # PyMC 6.4 normalises a half-Cauchy in single precision, 1.9e-9 too low.
        np.testing.assert_allclose(densities[f"unit_{p.layer}_local"], expected, atol=2e-9)


def test_draws_within_and_between_units():
    """A quotient of normals of one scale is Cauchy; of two half-Cauchy scales it is wider."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"), build(UNITS, Fixed(scale=0.5)) as model:
        weight, bias = pm.draw([model["weight_2"], model["bias_2"]], 2000, random_seed=1)
    for other in (weight[:, 1, 0], bias[:, 0]):
        assert stats.kstest(weight[:, 0, 0] / other, "cauchy").pvalue > 0.001
    assert stats.kstest(weight[:, 0, 0] / weight[:, 0, 1], "cauchy").pvalue < 1e-6


def drawn(scale, draws=2000):
    """Draws of the weights of layer 2 at a global scale, their local scales and standard draws."""
    with pytensor.config.change_flags(mode="FAST_COMPILE"), build(SLAB, Fixed(scale=scale)) as m:
        return pm.draw([m["weight_2"], m["weight_2_local"], m["weight_2_z"]], draws, random_seed=1)


def test_a_large_global_scale_leaves_the_slab():
    weight, _, _ = drawn(1e6)
    # One of each draw: weights of a layer share their slab.
    assert stats.kstest(weight[:, 0, 0], stats.t(3.0, scale=2.5).cdf).pvalue > 0.001


def test_a_small_global_scale_leaves_the_horseshoe():
    weight, local, standard = drawn(1e-6)
    is_small = local < 1e3
    np.testing.assert_allclose(weight[is_small], 1e-6 * (local * standard)[is_small], rtol=1e-4)


def test_each_layer_has_one_slab():
    model = check_model(NETWORK, SLAB, HalfNormal(), Categorical(), ROWS)
    slabs = [v.name for v in model.free_RVs if "slab" in v.name]
    assert slabs == [f"layer_{number}_slab_variance" for number in (1, 2, 3)]


def test_what_is_not_set_is_not_stored():
    """Digests of cells are taken of what is stored."""
    assert Horseshoe().model_dump(mode="json") == {"kind": "horseshoe", "fan_in": False}
    assert Horseshoe(slab_scale=2.0).model_dump(mode="json") == {
        "kind": "horseshoe", "fan_in": False, "slab_scale": 2.0
    }  # fmt: skip


def test_degrees_of_freedom_need_a_slab():
    message = "must have a `slab_scale` to set `slab_df`, got 3"
    with pytest.raises(ConfigError, match=message):
        Horseshoe(slab_df=3.0)
