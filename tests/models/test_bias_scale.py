"""A fixed scale of biases beside any scale of the weights."""

from functools import partial

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from makers import with_defaults

from pmbnn.core.errors import ConfigError
from pmbnn.data.arrays import Rows
from pmbnn.inference.elbo import build_objective
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.guides import build_guide
from pmbnn.inference.log_density import place_of
from pmbnn.inference.settings import Inference
from pmbnn.models.build import build_model, model_data
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Normal as NormalNoise
from pmbnn.models.networks import Dense
from pmbnn.models.priors import PRIORS, Flat, Horseshoe, Laplace, Normal
from pmbnn.testing import random_point

RNG = np.random.default_rng(0)
ROWS = Rows(RNG.normal(size=(7, 2)), RNG.normal(size=7), ("x1", "x2"), ())
NETWORK = Dense(hidden=(3,), activation="relu")
NOISE = NormalNoise(sd=0.1)
BIASED = Normal(fan_in=True, bias_scale=0.7)
FAN_IN = {1: 2, 2: 3}
"""Of each layer."""


def build(prior, hyperprior):
    return build_model(NETWORK, prior, hyperprior, NOISE, ROWS)


def log_probability(model, point, evaluate):
    given = {value: point[value.name] for value in model.value_vars}
    return evaluate([model.logp()], given)[0]


def outputs(w1, b1, w2, b2):
    hidden = pm.math.maximum(pm.math.dot(ROWS.x, w1) + b1, 0)
    mu = (pm.math.dot(hidden, w2) + b2).flatten()
    pm.Normal("y", mu, np.float64(0.1), observed=ROWS.y)


def check_equal(model, written, evaluate):
    for seed in range(3):
        point = random_point(model, seed)
        expected = log_probability(written, point, evaluate)
        np.testing.assert_allclose(log_probability(model, point, evaluate), expected, rtol=1e-12)


def test_fixed_scales_are_the_model_one_would_write(evaluate):
    """Weights N(0, σ²/fan-in) and biases N(0, 0.7²), as one writes them by hand."""
    model = build(BIASED, Fixed(scale=4.0))
    with pm.Model() as written:
        w1 = pm.Normal("weight_1", 0, 4 / np.sqrt(2), shape=(2, 3))
        b1 = pm.Normal("bias_1", 0, np.float64(0.7), shape=3)
        w2 = pm.Normal("weight_2", 0, 4 / np.sqrt(3), shape=(3, 1))
        b2 = pm.Normal("bias_2", 0, np.float64(0.7), shape=1)
        outputs(w1, b1, w2, b2)
    check_equal(model, written, evaluate)


@pytest.mark.parametrize("centred", [False, True])
def test_biases_keep_theirs_under_a_learned_scale(centred, evaluate):
    model = build(Laplace(bias_scale=0.7), HalfNormal(sigma=0.6, centred=centred))
    with pm.Model() as written:
        scales = [pm.HalfNormal(f"layer_{i}_scale", np.float64(0.6)) for i in (1, 2)]
        shapes, weights = [(2, 3), (3, 1)], []
        for i, (scale, shape) in enumerate(zip(scales, shapes, strict=True), 1):
            if centred:
                weights.append(pm.Laplace(f"weight_{i}", 0, scale, shape=shape))
            else:
                z = pm.Laplace(f"weight_{i}_z", 0, np.float64(1), shape=shape)
                weights.append(scale * z)
        b1 = pm.Laplace("bias_1", 0, np.float64(0.7), shape=3)
        b2 = pm.Laplace("bias_2", 0, np.float64(0.7), shape=1)
        outputs(weights[0], b1, weights[1], b2)
    check_equal(model, written, evaluate)


def test_local_scales_multiply_the_fixed_one(evaluate):
    model = build(Horseshoe(bias_scale=0.7), HalfNormal())
    point = random_point(model)
    given = {value: point[value.name] for value in model.value_vars}
    [bias] = evaluate(model.replace_rvs_by_values([model["bias_1"]]), given)
    local = np.exp(point["bias_1_local_log__"])
    np.testing.assert_allclose(bias, 0.7 * local * point["bias_1_z"], rtol=1e-12)


def test_the_divergence_is_exact(evaluate):
    """Sum of KL divergences of normals: Σ log(p/s) + (s² + m²) / 2p² − 1/2."""
    model, settings = build(BIASED, Fixed(scale=4.0)), Inference()
    flat = flatten_model(model, len(ROWS))
    guide = build_guide(settings, flat.size, flat.improper)
    built = build_objective(flat, guide, settings, len(ROWS), len(ROWS))
    assert set(built.kl_forms.values()) == {"exact"}
    loc, rho = np.random.default_rng(3).normal(size=(2, flat.size))
    given = {built.parameters["loc"]: loc, built.parameters["rho"]: rho}
    given |= {n.variable: np.zeros(n.variable.type.shape) for n in built.noise.values()}
    data = model_data(Fixed(scale=4.0), ROWS, NOISE)
    given |= {variable: data[name] for name, variable in built.data.items()}
    [kl] = evaluate([built.kl], given)
    prior = np.empty(flat.size)
    for slot in flat.layout.slots:
        kind, layer = slot.name.split("_")
        prior[slot.start : slot.stop] = 0.7 if kind == "bias" else 4 / np.sqrt(FAN_IN[int(layer)])
    scale = np.logaddexp(0, rho)
    each = np.log(prior / scale) + (scale**2 + loc**2) / (2 * prior**2) - 0.5
    assert kl == pytest.approx(each.sum(), rel=1e-12)


def test_coordinates_of_tempering_know_it(evaluate):
    flat = flatten_model(build(BIASED, Fixed(scale=4.0)), len(ROWS))
    z = pt.tensor("z", dtype="float64", shape=(flat.size,))
    data = model_data(Fixed(scale=4.0), ROWS, NOISE)
    given = {variable: data[name] for name, variable in flat.data.items()}
    [found] = evaluate([place_of(flat, z)], given | {z: np.full(flat.size, 2.0)})
    for slot in flat.layout.slots:
        kind, layer = slot.name.split("_")
        scale = 0.7 if kind == "bias" else 4 / np.sqrt(FAN_IN[int(layer)])
        np.testing.assert_allclose(found[slot.start : slot.stop], 2 * scale, rtol=1e-12)


def test_a_prior_without_a_scale_takes_none():
    message = "must leave out `bias_scale` with prior `flat`, which has no scale, got 1"
    with pytest.raises(ConfigError, match=message):
        Flat(bias_scale=1.0)


@pytest.mark.parametrize("kind", [k for k, prior in PRIORS.items() if prior.has_scale])
def test_what_is_not_set_is_not_stored(kind):
    """Digests of cells are taken of what is stored."""
    prior = partial(with_defaults, PRIORS[kind])
    assert "bias_scale" not in prior().model_dump(mode="json")
    assert "bias_scale" not in prior().model_dump_json()
    assert prior(bias_scale=2.0).model_dump(mode="json")["bias_scale"] == 2
    assert PRIORS[kind].model_validate_json(prior(bias_scale=2.0).model_dump_json()).bias_scale == 2
