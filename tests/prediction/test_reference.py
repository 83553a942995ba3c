"""Any model sampled from Python: draws, ArviZ, and predictions of our own models."""

from dataclasses import replace
from functools import partial

import any_models
import arviz as az
import numpy as np
import pytest

from pmbnn.core.machine import CPU, Device, DeviceError, current_device
from pmbnn.data.arrays import Rows
from pmbnn.inference.flat import flatten_model
from pmbnn.models.build import build_model, dense_classifier
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Normal
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal as NormalPrior
from pmbnn.prediction.api import sample
from pmbnn.prediction.predictor import Predictor, compared_functions, spread_rows

pytestmark = pytest.mark.slow

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
Y = (X[:, 0] + 0.3 * rng.normal(size=40) > 0).astype(np.int64)
SHORT = {"chains": 4, "draws": 50, "descent": 100, "tuning": 500, "thin": 5, "progress": False}


@pytest.fixture(scope="module")
def network():
    """A logistic regression as a network, with a learned scale."""
    model = dense_classifier(X, Y, hidden=(), hyperprior="half_normal")
    return sample(model, **SHORT)


@pytest.fixture(scope="module")
def strange():
    """A model nobody made for this: two observed variables, a potential, bounds, no data."""
    return sample(any_models.strange(), engine="mclmc", **SHORT)


def test_groups_have_chains_draws_and_the_model_s_dims(network, strange):
    chains, draws = network.chains.values.shape[:2]
    assert chains == 4
    posterior = network.to_datatree()["posterior"].dataset
    assert posterior["weight_1"].dims == ("chain", "draw", "feature", "output")
    assert (posterior.sizes["chain"], posterior.sizes["draw"]) == (4, draws)
    tree = strange.to_datatree()
    assert tree["posterior"]["twice"].dims == ("chain", "draw", "group")
    assert tree["posterior"].attrs["status"] == strange.status
    assert tree["posterior"].attrs["reason"] == strange.reason
    assert set(tree["log_likelihood"].dataset) == {"value", "hit"}
    assert list(tree["observed_data"].dataset) == ["value", "hit"]


def test_log_density_and_deterministics_are_the_model_s(strange):
    """Against PyMC's own log-density at the same point."""
    tree, model = strange.to_datatree(), strange.model
    logp = model.compile_logp(mode="FAST_COMPILE")
    for chain, draw in ((0, 0), (3, 7)):
        of = tree["posterior"].dataset.isel(chain=chain, draw=draw)
        sigma, share = float(of["sigma"]), float(of["share"])
        point = {
            "mu": of["mu"].values,
            "sigma_log__": np.log(sigma),
            "share_logodds__": np.log(share / (1 - share)),
        }
        found = float(tree["sample_stats"]["lp"][chain, draw])
        assert found == pytest.approx(float(logp(point)), rel=1e-9)
        np.testing.assert_allclose(of["twice"], 2 * of["mu"], rtol=1e-12)
        hit = np.where([1, 0, 1, 1], np.log(share), np.log1p(-share))
        by_us = tree["log_likelihood"]["hit"].isel(chain=chain, draw=draw)
        np.testing.assert_allclose(by_us, hit, rtol=1e-9)


def test_arviz_takes_it(strange):
    tree = strange.to_datatree()
    found = az.summary(tree)
    assert {"mu[a]", "sigma"} <= set(found.index)
    assert not tree["sample_stats"]["diverging"].any()
    assert (tree["sample_stats"]["n_steps"] == 5).all()
    assert (tree["sample_stats"]["energy_error"] > 0).all()


def test_class_probabilities_at_new_inputs(network):
    """The mean over all draws of all chains, by hand."""
    new = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0]])
    found, drawn = network.predict_proba(new), network.sample()
    weight = drawn["weight_1"].astype(float)
    outputs = new @ weight + drawn["bias_1"].astype(float)[:, None]
    by_draw = np.exp(outputs - np.logaddexp.reduce(outputs, axis=-1, keepdims=True))
    np.testing.assert_allclose(found, by_draw.mean(axis=0), rtol=1e-4)
    assert found[0, 1] > 0.9 > 0.1 > found[1, 1]


@pytest.mark.parametrize(
    ("engine", "settings"),
    [
        ("nuts", {"chains": 2, "draws": 20, "tuning": 40, "descent": 20}),
        ("smc", {"chains": 2, "draws": 64, "moves": 1, "leapfrogs": (2, 4)}),
    ],
)
def test_engines_by_name(engine, settings):
    """Whatever a sampler knows is in the tree; evidence where there is one."""
    model = dense_classifier(X, Y, hidden=(), hyperprior="half_normal")
    found = sample(model, engine=engine, progress=False, **settings)
    tree, text = found.to_datatree(), repr(found)
    assert set(tree["sample_stats"].dataset) == set(found.chains.statistics)
    assert f"draws by {engine.upper()}: {found.status}" in text
    attrs = tree["posterior"].attrs
    if engine == "smc":
        assert (attrs["log_evidence"], attrs["log_evidence_error"]) == found.log_evidence
        assert text.endswith(f"log evidence {found.log_evidence}")
        # Forty coins are not explained better than by certainty, nor worse than by chance.
        assert 40 * np.log(0.5) - 5 < found.log_evidence.value < 0
    else:
        assert found.log_evidence is None
        assert "log_evidence" not in attrs
    np.testing.assert_allclose(found.predict_proba(X[:3]).sum(axis=1), 1, rtol=1e-5)


def test_chains_are_compared_by_their_predictions(network):
    """One of the two probabilities at each training input."""
    values = network.chains.values[:2, :3]
    found = compared_functions(network.model)(values)
    assert found.shape == (2, 3, 40)
    drawn = network.predict_proba(X)
    of_all = compared_functions(network.model)(network.chains.values)
    np.testing.assert_allclose(of_all.mean(axis=(0, 1)), drawn[:, 0], rtol=1e-4)


def test_regressions_are_compared_by_mean_and_noise():
    rows = Rows(X[:, :1], X[:, 1], ("x1",), ())
    network, noisy = Dense(hidden=(2,)), Normal(sd=HalfNormal())
    model = build_model(network, NormalPrior(), Fixed(scale=1.0), noisy, rows)
    values = np.random.default_rng(1).normal(size=(2, 3, flatten_model(model, None).size))
    found = compared_functions(model)(values)
    assert found.shape == (2, 3, 41)
    assert (found[..., 40] > 0).all()


def test_rows_are_spread_over_all():
    rows = np.arange(1001.0)[:, None]
    found = spread_rows(rows, 11)[:, 0]
    np.testing.assert_array_equal(found, np.arange(0, 1001, 100))
    np.testing.assert_array_equal(spread_rows(rows[:5], 11), rows[:5])


def test_what_diverged_predicts_nothing(network):
    chains = replace(network.chains, broken=np.ones(4, bool))
    samples = replace(network.samples, chains=chains)
    broken = replace(network, samples=samples, reason="no draws")
    methods = (broken.sample, broken.log_joint)
    of_inputs = [partial(f, X) for f in (broken.predict, broken.predict_proba, broken.single_draws)]
    for method in (*methods, *of_inputs):
        with pytest.raises(ValueError, match="must have draws of the posterior, but no draws"):
            method()


def test_inputs_that_do_not_fit(network, strange):
    with pytest.raises(ValueError, match=r"`x` must have shape \(observation, 2\), got \(4, 3\)"):
        network.predict_proba(np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"of this package.*sample_posterior_predictive"):
        strange.predict_proba(np.zeros((4, 3)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"chains": 1}, "`chains` must be >= 2, got 1"),
        ({"draws": 3}, "`draws` must be >= 4, got 3"),
        ({"nonsense": 1}, "has no argument `nonsense`"),
        ({"engine": "gibbs"}, "`engine` must be one of mams, mclmc.*, got 'gibbs'"),
    ],
)
def test_settings_that_do_not_fit(strange, given, message):
    with pytest.raises(ValueError, match=message):
        sample(strange.model, progress=False, **given)


def test_what_is_said_of_draws_is_computed_where_they_were_drawn(network, monkeypatch):
    used = []
    monkeypatch.setattr(Predictor, "predict", lambda *_: used.append(current_device()) or "found")
    on_host = replace(network, device=Device("gpu", platform="cpu"))
    assert [of.predict(X) for of in (on_host, network)] == ["found"] * 2
    assert used == [Device("gpu"), CPU]
    with pytest.raises(DeviceError, match="must be one of auto, cpu, gpu, got 'tpu'"):
        sample(network.model, device="tpu")


def test_only_models_can_be_sampled():
    with pytest.raises(TypeError, match="`model` must be a pm.Model, got dict"):
        sample({})
