"""Any model fitted from Python: draws, densities, ArviZ, and predictions of our own models."""

from copy import copy

import any_models
import arviz as az
import numpy as np
import pymc as pm
import pytensor
import pytest
import xarray as xr

from pmbnn.models.build import dense_classifier
from pmbnn.prediction.api import fit
from pmbnn.prediction.check import check
from pmbnn.prediction.posterior import load

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 2))
Y = (X[:, 0] + 0.3 * rng.normal(size=40) > 0).astype(np.int64)


@pytest.fixture(scope="module")
def network():
    """A logistic regression as a network, with a learned scale."""
    model = dense_classifier(X, Y, hidden=(), hyperprior="half_normal")
    return fit(model, steps=300, restarts=2, random_seed=1, progress=False)


@pytest.fixture(scope="module")
def strange():
    """A model nobody made for this: two observed variables, a potential, bounds, no data."""
    return fit(any_models.strange(), steps=500, restarts=1, guide="full_rank", progress=False)


def test_draws_have_the_model_s_dims_and_say_what_they_are_of(network):
    tree = network.to_datatree(draws=50)
    posterior = tree["posterior"].dataset
    assert posterior["weight_1"].dims == ("chain", "draw", "feature", "output")
    assert dict(posterior.sizes) | {"chain": 1, "draw": 50} == dict(posterior.sizes)
    assert tree["posterior"].attrs["draws_of"].endswith("highest ELBO of 2")
    assert set(network.sources) == {0, 1} and sum(network.weights.values()) == 1
    assert network.weights[network.best] == 1
    elbo = tree["fit"].dataset["elbo"]
    assert elbo.dims == ("restart", "window")
    last = elbo[:, -max(1, round(0.1 * elbo.sizes["window"])) :].mean("window")
    assert network.elbo == float(last.max()) == float(last[network.best])


def test_its_text_is_a_sentence_and_its_table_short(network):
    assert network.reason != ""
    assert repr(network).startswith(f"mean-field guide, ELBO {network.elbo:.2f} (highest of 2): ")
    assert repr(network).endswith(f"{network.status} ({network.reason})")
    assert network.reason in network._repr_html_() and len(network._repr_html_()) < 2_000
    assert all(len(repr(source)) < 2_000 for source in network.sources.values())


def test_the_first_of_many_draws_are_those_of_few(network):
    few, many = network.sample(3), network.sample(7)
    for name in few:
        np.testing.assert_array_equal(few[name], many[name][:3])


def test_densities_are_the_model_s_and_the_guide_s(strange):
    """Against PyMC's own log-density at the same point, and the guide's normal density."""
    tree = strange.to_datatree(draws=4)
    model, draws = strange.model, tree["posterior"].dataset.isel(chain=0)
    logp = model.compile_logp(mode="FAST_COMPILE")
    for draw in range(4):
        of = draws.isel(draw=draw)
        sigma, share = float(of["sigma"]), float(of["share"])
        point = {
            "mu": of["mu"].values,
            "sigma_log__": np.log(sigma),
            "share_logodds__": np.log(share / (1 - share)),
        }
        found = float(tree["sample_stats"]["log_p"][0, draw])
        assert found == pytest.approx(float(logp(point)), rel=1e-9)
        assert strange.log_joint(4)[draw] == found
    assert np.isfinite(tree["sample_stats"]["log_q"]).all()
    np.testing.assert_allclose(draws["twice"], 2 * draws["mu"], rtol=1e-12)


def test_log_likelihoods_are_by_variable(strange):
    tree = strange.to_datatree(draws=5)
    found = tree["log_likelihood"].dataset
    share = tree["posterior"]["share"].values[0]
    hit = np.where([1, 0, 1, 1], np.log(share)[:, None], np.log1p(-share)[:, None])
    np.testing.assert_allclose(found["hit"].values[0], hit, rtol=1e-9)
    assert found["value"].dims == ("chain", "draw", "group")
    assert list(tree["observed_data"].dataset) == ["value", "hit"]


def test_arviz_and_pymc_take_it(network, strange):
    assert {"mu[a]", "sigma"} <= set(az.summary(strange.to_datatree(draws=100)).index)
    tree = network.to_datatree(draws=20)
    assert isinstance(tree, xr.DataTree)
    # Numba would compile for half a minute.
    quick = {"mode": "FAST_COMPILE"}
    drawn = pm.sample_posterior_predictive(
        tree, model=network.model, progressbar=False, compile_kwargs=quick
    )
    assert drawn["posterior_predictive"]["y"].shape == (1, 20, 40)


def test_class_probabilities_at_new_inputs(network):
    """The mean over the very draws of `sample`, by hand."""
    new = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0]])
    found = network.predict_proba(new, draws=30)
    drawn = network.sample(30)
    outputs = new @ drawn["weight_1"].astype(float) + drawn["bias_1"].astype(float)[:, None]
    by_hand = np.exp(outputs - np.logaddexp.reduce(outputs, axis=-1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(found, by_hand, rtol=1e-4)
    assert found[0, 1] > 0.9 > 0.1 > found[1, 1]


@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_fit_in_double_precision_predicts_with_its_own_draws(tmp_path, is_loaded):
    model = dense_classifier(X, Y, hidden=())
    found = fit(model, steps=100, dtype="float64", progress=False)
    if is_loaded:
        found.save(tmp_path / "posterior.nc")
        found = load(tmp_path / "posterior.nc")
    drawn = found.sample(20)
    outputs = X @ drawn["weight_1"] + drawn["bias_1"][:, None]
    by_hand = np.exp(outputs - np.logaddexp.reduce(outputs, axis=-1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(found.predict_proba(X, draws=20), by_hand, rtol=1e-10)


def regression(x, y):
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.0, shape=2)
        pm.Normal("y", pm.Data("x", x) @ slope, 1.0, observed=y)
    return model


@pytest.mark.parametrize("build", [dense_classifier, regression])
def test_what_is_of_the_fit_needs_its_data(build, tmp_path):
    """Files would have the new rows as training rows, and ratios be of another posterior."""
    model, file = build(X, Y), tmp_path / "posterior.nc"
    found = fit(model, steps=20, progress=False)
    with model:
        pm.set_data({"x": X + 1})
    for use in (
        lambda: found.save(file),
        lambda: found.pareto_k,
        lambda: check(found),
        found.log_joint,
        found.to_datatree,
        copy(found).log_joint,
    ):
        with pytest.raises(ValueError, match="data that the draws are given, but `x` of the model"):
            use()
    with model:
        pm.set_data({"x": X})
    assert np.isfinite(found.pareto_k)
    found.save(file)
    assert load(file, model).sample(3).keys() == found.sample(3).keys()


def test_shared_variables_are_data_too():
    """Draws of the fit got log-likelihoods of the values that a variable had at their first use."""
    inputs, targets = pytensor.shared(X, name="x"), pytensor.shared(X[:, 0])
    offset = pytensor.shared(X[:, 1], name="x")
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.0, shape=2)
        pm.Normal("y", inputs @ slope + offset, 1.0, observed=targets)
    found = fit(model, steps=20, progress=False)
    for variable, name in ((inputs, "x"), (offset, "x"), (targets, r"shared variable \d")):
        before = variable.get_value()
        variable.set_value(before + 1)
        for use in (found.sample, found.log_joint, found.to_datatree, copy(found).sample):
            with pytest.raises(ValueError, match=f"draws are given, but `{name}` of the model was"):
                use()
        variable.set_value(before)
    assert np.isfinite(found.log_joint(3)).all()


def test_data_that_a_model_gets_after_the_fit():
    """As new rows, for a deterministic of them."""
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 1.0, shape=2)
        pm.Normal("y", pm.Data("x", X) @ slope, 1.0, observed=X[:, 0])
    found = fit(model, steps=20, progress=False)
    with model:
        pm.Deterministic("at_new_rows", pm.Data("new", X[:3]) @ slope)
    drawn = found.sample(4)
    np.testing.assert_allclose(drawn["at_new_rows"], drawn["slope"] @ X[:3].T, rtol=1e-5)
    assert found.to_datatree(draws=4)["posterior"]["at_new_rows"].shape == (1, 4, 3)


def test_inputs_that_do_not_fit(network, strange):
    with pytest.raises(ValueError, match=r"`x` must have shape \(observation, 2\), got \(4, 3\)"):
        network.predict_proba(np.zeros((4, 3)))
    with pytest.raises(ValueError, match=r"of this package.*sample_posterior_predictive"):
        strange.predict_proba(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="`draws` must be >= 1, got 0"):
        network.sample(0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"guide": "meanfield"}, "mean_field"),
        ({"steps": 0}, "steps"),
        ({"nonsense": 1}, "nonsense"),
        ({"batch": 10}, "`batch` must be left out for this model, got 10"),
    ],
)
def test_settings_that_do_not_fit(strange, given, message):
    with pytest.raises(ValueError, match=message):
        fit(strange.model, progress=False, **given)


def test_discrete_variables_are_named():
    with pm.Model() as model:
        switch = pm.Bernoulli("switch", 0.5)
        pm.Normal("y", switch, 1.0, observed=[0.0, 1.0])
    with pytest.raises(ValueError, match="continuous.*`switch`"):
        fit(model, progress=False)


def test_only_models_can_be_fitted():
    with pytest.raises(TypeError, match="`model` must be a pm.Model, got dict"):
        fit({})


@pytest.mark.slow
def test_a_point_has_draws_and_no_density(network):
    point = fit(network.model, steps=50, guide="map", progress=False)
    tree = point.to_datatree(draws=3)
    assert np.isnan(tree["sample_stats"]["log_q"]).all()
    weight = tree["posterior"]["weight_1"].values[0]
    np.testing.assert_array_equal(weight[0], weight[1])
