"""Predicted numbers against NumPy, and Bayesian linear regression against its exact posterior."""

import numpy as np
import pytest
from scipy import stats

from pmbnn.data import Sine
from pmbnn.data.arrays import Rows, Standardisation
from pmbnn.inference.advi import build_program
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.guides import MeanField
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.build import build_model, model_data
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Categorical, Normal
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal as NormalPrior
from pmbnn.prediction import draws
from pmbnn.prediction.density import Density, mixture, predict_moments
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.predictor import Predictor

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
    parameters = {"loc": np.asarray(loc), "scale": np.asarray(scale)}
    return GuideDraws(MeanField(len(loc)), parameters, derive_keys(name).draws)


def mixture_of(predictor, fits, weights, data, x, draws):
    drawn = [predictor.single_draws(fit, data, x, draws) for fit in fits]
    return mixture(predictor.likelihood, drawn, weights)


@pytest.fixture(scope="module")
def of_line():
    model, data = line()
    return Predictor(model, Normal(), "float64"), data


# --- the engine ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["reparameterisation", "local_reparameterisation", "flipout"])
def test_a_fit_finds_the_exact_posterior(estimator):
    model, data = line()
    settings = Inference(steps=3000, learning_rate=0.05, iterate_averaging=0.2, estimator=estimator)
    (fit,) = fit_replicas(
        build_program(model, settings, len(X), 1), [Replica(data, derive_keys("line"))]
    )
    mean, scale = exact()
    assert np.abs(fit.loc - mean).max() < 0.15 * scale.min()
    np.testing.assert_allclose(fit.scale, scale, rtol=0.1)
    assert fit.elbo == pytest.approx(log_evidence(), abs=0.2)


def test_the_most_probable_point_is_the_posterior_mean():
    model, data = line()
    settings = Inference(guide="map", steps=1000, learning_rate=0.1)
    (fit,) = fit_replicas(
        build_program(model, settings, len(X), 1), [Replica(data, derive_keys("line"))]
    )
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


@pytest.mark.parametrize("rows", [1, Density.block, Density.block + 3])
def test_outputs_are_those_of_the_draws(of_line, rows):
    predictor, data = of_line
    fits = [
        guide([1.0, 2.0, 0.0], [0.3, 0.1, 0.2]),
        guide([0.0, -1.0, 1.0], [0.2, 0.4, 0.1], "fit/1"),
    ]
    x = np.random.default_rng(rows).normal(size=(rows, 2))
    found = mixture_of(predictor, fits, [0.25, 0.75], data, x, 5)
    values = np.concatenate([predictor.values(fit, 5) for fit in fits])
    named = predictor.posterior(data, values)
    expected = named["weight_1"][:, :, 0] @ x.T + named["bias_1"]
    np.testing.assert_allclose(found.components.mu, expected, atol=1e-12)
    np.testing.assert_array_equal(found.components.sigma, np.full((10, 1), SD))
    np.testing.assert_allclose(found.weight, np.repeat([0.05, 0.15], 5))
    # However many rows there are, each is predicted as if alone.
    summary = predictor.predict(fits, [0.25, 0.75], data, x, 5)
    np.testing.assert_allclose(summary.mean, found.weight @ expected, atol=1e-12)


def test_negative_log_density_of_rows(of_line):
    predictor, data = of_line
    fit = guide([1.0, 2.0, 0.0], [0.3, 0.1, 0.2])
    found = mixture_of(predictor, [fit], [1.0], data, X, 20)
    density = stats.norm(found.components.mu, SD).pdf(Y).mean(axis=0)
    assert predictor.nll(fit, data, ROWS, 20) == pytest.approx(-np.log(density).mean())


def test_learned_noise_is_predicted_with():
    model, data = line(HalfNormal())
    predictor = Predictor(model, Normal(), "float64")
    slots = {slot.name: slot.start for slot in predictor.flat.layout.slots}
    loc, scale = np.zeros(4), np.full(4, 1e-6)
    loc[slots["noise_log__"]], scale[slots["noise_log__"]] = np.log(0.4), 0.3
    fit = guide(loc, scale)
    found, values = mixture_of(predictor, [fit], [1.0], data, X, 50), predictor.values(fit, 50)
    noise = predictor.posterior(data, values)["noise"]
    np.testing.assert_allclose(found.components.sigma[:, 0], noise, rtol=1e-9)
    assert noise.std() > 0.05
    seen = predictor.observations(data, values, np.random.default_rng(0))
    assert seen.shape == (50, len(X))
    standard = seen / noise[:, None]
    assert abs(standard.std() - 1) < 4 / np.sqrt(2 * standard.size)
    log_likelihood, _ = predictor.log_joint(data, values)
    expected = stats.norm(found.components.mu, noise[:, None]).logpdf(Y)
    np.testing.assert_allclose(log_likelihood, expected, rtol=1e-6)


def test_many_rows_take_few_draws_at_once(of_line, monkeypatch):
    """All draws of a hundred thousand rows together would take gigabytes."""
    predictor, data = of_line
    values = predictor.values(guide([1.0, 2.0, 0.0], [0.3, 0.1, 0.2]), 7)
    whole = predictor.parameters(data, values, X), predictor.log_joint(data, values)
    taken = []
    of_values = predictor._of_values

    def counted(block, *arguments):
        taken.append(len(block))
        return of_values(block, *arguments)

    monkeypatch.setattr(predictor, "_of_values", counted)
    monkeypatch.setattr(draws, "ROWS_AT_ONCE", 2 * len(X))
    parts = predictor.parameters(data, values, X), predictor.log_joint(data, values)
    assert taken == [2, 2, 2, 2]
    for name, expected in whole[0].items():
        np.testing.assert_allclose(parts[0][name], expected, rtol=1e-12)
    for found, expected in zip(parts[1], whole[1], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_pooled_draws_of_all_fits(of_line):
    predictor, data = of_line
    fits = [guide([i, 2.0, 0.0], [0.3, 0.1, 0.2], f"fit/{i}") for i in range(3)]
    (pooled, one) = predictor.predict_mixtures(fits, [[1 / 3] * 3, [0, 1, 0]], data, X, 5, Y)
    for found, weights in ((pooled, [1 / 3] * 3), (one, [0, 1, 0])):
        expected = predictor.predict(fits, weights, data, X, 5, Y)
        np.testing.assert_allclose(found.crps, expected.crps, rtol=1e-12)
        np.testing.assert_allclose(found.total_interval, expected.total_interval, rtol=1e-12)


@pytest.mark.parametrize("weights", [[0, 1, 0], [0.2, 0.5, 0.3]])
def test_moments_alone_are_those_of_the_density(of_line, weights):
    predictor, data = of_line
    fits = [guide([i, 2.0, 0.0], [0.3, 0.1, 0.2], f"fit/{i}") for i in range(3)]
    x = np.random.default_rng(0).normal(size=(Density.block + 3, 2))
    found = predict_moments(predictor, fits, weights, data, x, 5)
    expected = predictor.predict(fits, weights, data, x, 5)
    units = Standardisation(np.array([10.0]), np.array([3.0]))
    for moments, density in (
        (found, expected),
        (found.in_units_of(units), expected.in_units_of(units)),
    ):
        for name in ("mean", "epistemic_sd", "total_sd"):
            np.testing.assert_allclose(getattr(moments, name), getattr(density, name), rtol=1e-12)


def test_the_likelihood_must_be_that_of_the_model():
    model, _ = line()
    with pytest.raises(ValueError, match="`y` is drawn from `normal`, got `categorical`"):
        Predictor(model, Categorical())
    labelled = Rows(X, np.arange(12) % 2, ("x1", "x2"), ("a", "b"))
    model = build_model(LINE, NormalPrior(), Fixed(), Categorical(), labelled)
    with pytest.raises(ValueError, match="`y` is drawn from `categorical`, got `normal`"):
        Predictor(model, Normal())


def test_a_network_of_one_output():
    rows = Sine().load().training
    model = build_model(Dense(hidden=(20, 20)), NormalPrior(), Fixed(), Normal(), rows)
    assert model.coords["output"] == ("y",)
    assert model.named_vars_to_dims["weight_3"] == ("hidden_2", "output")
