"""Predicted numbers against NumPy, and Bayesian linear regression against its exact posterior."""

import numpy as np
import pytest
from scipy import stats

from pmbnn.datasets import Sine
from pmbnn.datasets.rows import Rows
from pmbnn.inference.compiled import CompiledEngine
from pmbnn.inference.fit import Fit, History, Member, random_streams
from pmbnn.inference.settings import Inference
from pmbnn.likelihoods import Categorical, Normal
from pmbnn.models import build_model, model_data
from pmbnn.networks import Dense
from pmbnn.predictors import build_predictor
from pmbnn.priors import Fixed, HalfNormal
from pmbnn.priors import Normal as NormalPrior
from pmbnn.regression_prediction import BLOCK, RegressionPredictor

SD, PRIOR = 0.5, 3.0
STEPS = np.linspace(-1, 1, 12)
X = np.column_stack([STEPS, STEPS**2 - np.mean(STEPS**2)])
Y = X @ [2.0, -3.0] - 1.0 + SD * np.random.default_rng(1).standard_normal(12)
ROWS = Rows(X, Y, ("x1", "x2"), ())
LINE = Dense(hidden=())


def line(sd=SD):
    """Model that is linear in two features, and the values of its data."""
    likelihood, scale = Normal(sd=sd), Fixed(scale=PRIOR)
    model = build_model(LINE, NormalPrior(), scale, likelihood, ROWS.take([0]))
    return model, model_data(scale, ROWS, likelihood)


def exact():
    """Mean and scale of slopes and intercept: independent, for the design is orthogonal."""
    design = np.column_stack([X, np.ones(len(X))])
    precision = design.T @ design / SD**2 + np.eye(3) / PRIOR**2
    assert np.abs(precision - np.diag(np.diag(precision))).max() < 1e-12
    return np.linalg.solve(precision, design.T @ Y / SD**2), 1 / np.sqrt(np.diag(precision))


def log_evidence():
    design = np.column_stack([X, np.ones(len(X))])
    covariance = SD**2 * np.eye(len(X)) + PRIOR**2 * design @ design.T
    return stats.multivariate_normal(cov=covariance).logpdf(Y)


def guide(loc, scale, name="fit/0"):
    nothing = np.zeros(1)
    return Fit(
        natural={"loc": np.asarray(loc), "scale": np.asarray(scale)},
        scale=np.asarray(scale),
        history=History(np.ones(1), nothing, nothing, nothing),
        elbo=0.0,
        status="converged",
        reason="",
        streams=random_streams(name),
    )


@pytest.fixture(scope="module")
def of_line():
    model, data = line()
    return RegressionPredictor(model, Inference(), "float64"), data


# --- the engine ---------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["reparameterisation", "local_reparameterisation", "flipout"])
def test_a_fit_finds_the_exact_posterior(estimator):
    model, data = line()
    settings = Inference(steps=3000, learning_rate=0.05, average=0.2, estimator=estimator)
    (fit,) = CompiledEngine(model, settings, len(X), 1).fit([Member(data, random_streams("line"))])
    mean, scale = exact()
    assert np.abs(fit.loc - mean).max() < 0.15 * scale.min()
    np.testing.assert_allclose(fit.scale, scale, rtol=0.1)
    assert fit.elbo == pytest.approx(log_evidence(), abs=0.2)


def test_the_most_probable_point_is_the_posterior_mean():
    model, data = line()
    settings = Inference(guide="map", steps=1000, learning_rate=0.1)
    (fit,) = CompiledEngine(model, settings, len(X), 1).fit([Member(data, random_streams("line"))])
    np.testing.assert_allclose(fit.loc, exact()[0], atol=1e-3)


# --- predictions --------------------------------------------------------------------------


def test_predictions_are_those_of_the_exact_posterior(of_line):
    predictor, data = of_line
    mean, scale = exact()
    x, draws = np.array([[-2.0, 0.5], [0.0, 0.0], [3.0, -1.0]]), 4000
    found = predictor.predict([guide(mean, scale)], [1.0], data, x, draws)
    design = np.column_stack([x, np.ones(3)])
    sd = np.sqrt(design**2 @ scale**2)
    np.testing.assert_allclose(found.epistemic_sd, sd, rtol=4 / np.sqrt(2 * draws))
    assert (np.abs(found.mean - design @ mean) < 4 * sd / np.sqrt(draws)).all()
    total = np.hypot(sd, SD)
    np.testing.assert_allclose(found.total_sd, total, rtol=0.05)
    width = np.ptp(found.total_interval, axis=0)
    np.testing.assert_allclose(width, 2 * 1.96 * total, rtol=0.05)
    np.testing.assert_allclose(np.ptp(found.output_interval, axis=0), 2 * 1.96 * sd, rtol=0.1)


@pytest.mark.parametrize("rows", [1, BLOCK, BLOCK + 3])
def test_outputs_are_those_of_the_draws(of_line, rows):
    predictor, data = of_line
    fits = [
        guide([1.0, 2.0, 0.0], [0.3, 0.1, 0.2]),
        guide([0.0, -1.0, 1.0], [0.2, 0.4, 0.1], "fit/1"),
    ]
    x = np.random.default_rng(rows).normal(size=(rows, 2))
    found = predictor.draws(fits, [0.25, 0.75], data, x, 5)
    values = np.concatenate([predictor.values(fit, 5) for fit in fits])
    named = predictor.posterior(data, values)
    expected = named["weight_1"][:, :, 0] @ x.T + named["bias_1"]
    np.testing.assert_allclose(found.output, expected, atol=1e-12)
    np.testing.assert_array_equal(found.noise, np.full(10, SD))
    np.testing.assert_allclose(found.weight, np.repeat([0.05, 0.15], 5))
    # However many rows there are, each is predicted as if alone.
    summary = predictor.predict(fits, [0.25, 0.75], data, x, 5)
    np.testing.assert_allclose(summary.mean, found.weight @ expected, atol=1e-12)


def test_negative_log_density_of_rows(of_line):
    predictor, data = of_line
    fit = guide([1.0, 2.0, 0.0], [0.3, 0.1, 0.2])
    found = predictor.draws([fit], [1.0], data, X, 20)
    density = stats.norm(found.output, SD).pdf(Y).mean(axis=0)
    assert predictor.nll(fit, data, ROWS, 20) == pytest.approx(-np.log(density).mean())


def test_learned_noise_is_predicted_with():
    model, data = line(HalfNormal())
    predictor = RegressionPredictor(model, Inference(), "float64")
    slots = {slot.name: slot.start for slot in predictor.flat.slots}
    loc, scale = np.zeros(4), np.full(4, 1e-6)
    loc[slots["noise_log__"]], scale[slots["noise_log__"]] = np.log(0.4), 0.3
    fit = guide(loc, scale)
    found, values = predictor.draws([fit], [1.0], data, X, 50), predictor.values(fit, 50)
    noise = predictor.posterior(data, values)["noise"]
    np.testing.assert_allclose(found.noise, noise, rtol=1e-9)
    assert noise.std() > 0.05
    seen = predictor.observations(data, values, np.random.default_rng(0))
    assert seen.shape == (50, len(X))
    standard = seen / noise[:, None]
    assert abs(standard.std() - 1) < 4 / np.sqrt(2 * standard.size)
    log_likelihood, _, _ = predictor.log_densities(fit, data, values)
    expected = stats.norm(found.output, noise[:, None]).logpdf(Y)
    np.testing.assert_allclose(log_likelihood, expected, rtol=1e-6)


def test_what_predicts_follows_the_likelihood():
    model, _ = line()
    assert isinstance(build_predictor(model, Normal(), Inference()), RegressionPredictor)
    with pytest.raises(ValueError, match="need a categorical likelihood"):
        build_predictor(model, Categorical(), Inference())


def test_only_normal_models():
    labelled = Rows(X, np.arange(12) % 2, ("x1", "x2"), ("a", "b"))
    model = build_model(LINE, NormalPrior(), Fixed(), Categorical(), labelled)
    with pytest.raises(ValueError, match="need a normal likelihood"):
        build_predictor(model, Normal(), Inference())


def test_a_network_of_one_output():
    rows = Sine().load().training
    model = build_model(Dense(hidden=(20, 20)), NormalPrior(), Fixed(), Normal(), rows)
    assert model.coords["output"] == ("y",)
    assert model.named_vars_to_dims["weight_3"] == ("hidden_2", "output")
