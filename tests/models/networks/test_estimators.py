"""Gradient estimators with convolutional networks: what is rewritten, and what is rejected."""

import numpy as np
import pytensor
import pytest
from tiers import slow_but

from pmbnn.data.arrays import Rows
from pmbnn.inference.advi import build_program
from pmbnn.inference.elbo import build_objective
from pmbnn.inference.estimators import rewrite_likelihood
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.guides import build_guide
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.build import build_model, model_data
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import (
    AveragePool,
    Convolution,
    DenseLayer,
    Flatten,
    GlobalAveragePool,
    Layered,
    MaxPool,
)
from pmbnn.models.priors import Normal
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.predictor import Predictor

N = 12
RNG = np.random.default_rng(0)


def rows_of(channels):
    """Images of 8 × 8 pixels; an axis of length 1 is where graphs forget what they know."""
    x = RNG.normal(size=(N, 64 * channels))
    features = tuple(f"pixel_{i}" for i in range(64 * channels))
    return Rows(x, np.arange(N) % 3, features, ("a", "b", "c"), (channels, 8, 8))


ROWS = rows_of(2)
HYPERPRIORS = [Fixed(), HalfNormal(per="unit")]


def model_of(hyperprior, padding="valid", rows=ROWS):
    convolution = Convolution(filters=4, size=3, padding=padding)
    layers = (convolution, MaxPool(), Flatten(), DenseLayer(units=5))
    return build_model(Layered(layers=layers), Normal(), hyperprior, Categorical(), rows)


def objective_of(model, estimator):
    settings, flat = Inference(estimator=estimator), flatten_model(model, N)
    return build_objective(flat, build_guide(settings, flat.size, False), settings, N, N)


REWRITTEN = [
    ("valid", 2, HalfNormal(per="layer")),
    ("same", 2, HalfNormal(per="unit")),
    ("valid", 1, Fixed()),
    ("valid", 1, HalfNormal(per="network")),
]


@pytest.mark.parametrize(("padding", "channels", "hyperprior"), slow_but(REWRITTEN[1:2], REWRITTEN))
def test_flipout_rewrites_every_layer(padding, channels, hyperprior):
    """A sign for each input and output of a layer, whatever its scales and positions."""
    flat = flatten_model(model_of(hyperprior, padding, rows_of(channels)), N)
    guide = build_guide(Inference(), flat.size, False)
    constrained = {name: pytensor.tensor.vector(name) for name in guide.constrained_shapes}
    *_, noise = rewrite_likelihood(flat, constrained, "flipout")
    flattened = 4 * {"valid": 9, "same": 16}[padding]
    assert {name: one.variable.type.shape for name, one in noise.items()} == {
        "sign_in_1": (9 * channels, N),
        "sign_out_1": (4, N),
        "sign_in_2": (flattened, N),
        "sign_out_2": (5, N),
        "sign_in_3": (5, N),
        "sign_out_3": (3, N),
    }


STRIDES = Layered(
    layers=(Convolution(filters=4, size=3, stride=2), AveragePool(), GlobalAveragePool())
)


def test_flipout_rewrites_strides_and_means():
    """A sign for each input and output of a layer, wherever its kernels are."""
    model = build_model(STRIDES, Normal(), Fixed(), Categorical(), ROWS)
    flat = flatten_model(model, N)
    constrained = {name: pytensor.tensor.vector(name) for name in ("loc", "scale")}
    *_, noise = rewrite_likelihood(flat, constrained, "flipout")
    assert {name: one.variable.type.shape for name, one in noise.items()} == {
        "sign_in_1": (18, N),
        "sign_out_1": (4, N),
        "sign_in_2": (4, N),
        "sign_out_2": (3, N),
    }


def test_local_reparameterisation_is_rejected_with_strides():
    model = build_model(STRIDES, Normal(), Fixed(), Categorical(), ROWS)
    message = "must not be local_reparameterisation .* `weight_1` is used at 9 places"
    with pytest.raises(ValueError, match=message):
        objective_of(model, "local_reparameterisation")


@pytest.mark.slow
@pytest.mark.parametrize("per", ["layer", "unit", "network"])
def test_objective_of_the_path_derivative(per):
    objective = objective_of(model_of(HalfNormal(per=per)), "path_derivative")
    assert set(objective.kl_forms.values()) == {"monte_carlo"}
    assert set(objective.noise) == {"noise"}


@pytest.mark.parametrize("hyperprior", slow_but([HalfNormal(per="unit")], HYPERPRIORS))
def test_local_reparameterisation_is_rejected(hyperprior):
    message = "must not be local_reparameterisation .* `weight_1.*` is used at 36 places"
    with pytest.raises(ValueError, match=message):
        objective_of(model_of(hyperprior), "local_reparameterisation")


@pytest.mark.slow
@pytest.mark.parametrize(("padding", "estimator"), [("valid", "flipout"), ("same", "flipout")])
def test_fit_and_predict(padding, estimator):
    """From images to class probabilities, for any number of rows."""
    hyperprior, settings = HalfNormal(), Inference(steps=20, batch=6, estimator=estimator)
    model = model_of(hyperprior, padding)
    data = model_data(hyperprior, ROWS)
    program = build_program(model, settings, N, 1)
    [fit] = fit_replicas(program, [Replica(data, derive_keys("conv"))])
    assert not fit.failed
    assert np.isfinite(fit.elbo)
    predictor = Predictor(model, Categorical())
    draws = predictor.values(GuideDraws.from_fit(program.guide, fit), 3)
    found = predictor.parameters(data, draws, ROWS.x)["probability"]
    assert found.shape == (3, N, 3)
    np.testing.assert_allclose(found.sum(axis=-1), 1.0, rtol=1e-5)
    one = predictor.parameters(data, draws, ROWS.x[4:5])["probability"]
    np.testing.assert_allclose(found[:, 4:5], one, rtol=1e-4)
