"""Every likelihood fitted, judged and traced; what is known of simulated noise is found again."""

import numpy as np
import pytest
from scipy import stats

from pmbnn.data import Moons, Sine
from pmbnn.data.arrays import Rows
from pmbnn.experiment.cells import Cell
from pmbnn.fitting.evaluation import evaluate
from pmbnn.fitting.fit import fit_job
from pmbnn.fitting.programs import GroupPrograms, graph_model
from pmbnn.fitting.trace import build_trace
from pmbnn.inference.advi import build_program
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import ESTIMATORS, Inference
from pmbnn.models.build import build_model, model_data
from pmbnn.models.hyperpriors import Fixed
from pmbnn.models.likelihoods import Bernoulli, Normal, StudentT
from pmbnn.models.networks import Dense
from pmbnn.models.noise import Heteroscedastic
from pmbnn.models.priors import Normal as NormalPrior
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.predictor import Predictor
from pmbnn.prediction.settings import Fresh, Map, Predict
from pmbnn.testing.models import rows_of

LIKELIHOODS = {
    "bernoulli": Bernoulli(),
    "normal": Normal(),
    "heteroscedastic": Normal(sd=Heteroscedastic()),
    "student_t": StudentT(),
    "heteroscedastic student_t": StudentT(nu=4.0, scale=Heteroscedastic(link="exp")),
}
PREDICT = Predict(draws=30, trace_draws=20, map=Map(resolution=4), fresh=Fresh(size=50, draws=2))


def fitted(likelihood, rows, hidden=(), steps=3000, estimator="reparameterisation"):
    """Draws of the guide of a fitted network, and their predictor."""
    model = build_model(Dense(hidden=hidden), NormalPrior(), Fixed(scale=3.0), likelihood, rows)
    settings = Inference(steps=steps, learning_rate=0.03, estimator=estimator)
    data = model_data(Fixed(scale=3.0), rows, likelihood)
    program = build_program(model, settings, len(rows), 1)
    (fit,) = fit_replicas(program, [Replica(data, derive_keys("fit"))])
    assert not fit.failed and np.isfinite(fit.elbo)
    return GuideDraws.from_fit(program.guide, fit), Predictor(model, likelihood), data


def traced(likelihood, dataset):
    """Evaluation and trace of a cell that is fitted for a few steps."""
    cell = Cell(
        "toy",
        dataset,
        Dense(hidden=()),
        NormalPrior(),
        Fixed(),
        likelihood,
        Inference(steps=400),
        PREDICT,
    )
    programs, data = GroupPrograms("group", 1), dataset.load()
    (found,) = fit_job([cell], {dataset: data}, programs)
    predictor = programs.predictor(cell, data.training)
    evaluation = evaluate(found, data, predictor)
    model = graph_model(cell, data.training)
    return evaluation, build_trace(found, evaluation, data, predictor, model)


@pytest.mark.slow
def test_a_cell_with_one_logit_is_one_of_two_classes():
    evaluation, trace = traced(Bernoulli(), Moons(noise=0.3, train=40, test=20))
    test = trace["test_predictions"]
    assert list(test["output"].values) == ["0", "1"]
    np.testing.assert_allclose(test["probability"].sum("output"), 1, rtol=1e-6)
    assert evaluation.results["accuracy"] > 0.7
    assert trace["posterior"]["weight_1"].sizes["output"] == 1
    log_likelihood = trace["log_likelihood"]["y"]
    assert log_likelihood.shape == (1, 20, 40) and (log_likelihood < 0).all()
    seen = trace["posterior_predictive"]["y"].values
    assert set(np.unique(seen)) == {0, 1}
    assert trace["predictions"]["probability"].shape == (4, 4, 2)


@pytest.mark.slow
def test_a_cell_with_two_outputs_for_a_number():
    likelihood = LIKELIHOODS["heteroscedastic student_t"]
    evaluation, trace = traced(likelihood, Sine(train=30))
    names = ("rmse", "nll", "crps", "coverage_90", "mean_total_sd")
    assert all(np.isfinite(evaluation.results[name]) for name in names)
    curve = trace["curve_1"]
    noise = np.sqrt(curve["total_sd"] ** 2 - curve["epistemic_sd"] ** 2).values
    assert np.ptp(noise) > 0.01 * noise.mean()
    assert list(trace["posterior"]["output"].values) == ["y", "noise"]
    # What is predicted is what the model has: the density of its draws at the training rows.
    posterior = trace["posterior"].isel(chain=0)
    x = trace["constant_data"]["x"].values
    outputs = x @ posterior["weight_1"].values + posterior["bias_1"].values[:, None]
    reference = stats.t(4.0, outputs[..., 0], np.exp(outputs[..., 1]))
    expected = reference.logpdf(trace["observed_data"]["y"].values)
    np.testing.assert_allclose(trace["log_likelihood"]["y"].values[0], expected, rtol=1e-3)


# An estimator is at work before the likelihood: two of them for each, the next one first.
CASES = [
    (name, (2 * list(ESTIMATORS))[(number + more) % len(ESTIMATORS)])
    for number, name in enumerate(LIKELIHOODS)
    for more in (0, 1)
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "estimator"), CASES)
def test_every_estimator_takes_every_likelihood(name, estimator):
    likelihood = LIKELIHOODS[name]
    fitted(likelihood, rows_of(likelihood), (3,), 30, estimator)


# --- noise that is known, found again -----------------------------------------------------


def line_with(noise, rows=600, seed=1):
    """Rows about the line 1 + 2x, with noise that is a function of x and a generator."""
    rng = np.random.default_rng(seed)
    x = np.linspace(-1, 1, rows)
    return Rows(x[:, None], 1 + 2 * x + noise(x, rng), ("x",), ())


def scale_at(found, at):
    """Posterior mean of the noise's scale at inputs."""
    source, predictor, data = found
    parameters = predictor.single_draws(source, data, np.asarray(at)[:, None], 400)
    return np.broadcast_to(parameters["sigma"].mean(axis=0), len(at)), parameters


@pytest.mark.slow
@pytest.mark.parametrize("estimator", ["reparameterisation", "local_reparameterisation"])
def test_noise_that_depends_on_the_input(estimator):
    rows = line_with(lambda x, rng: np.exp(-1 + x) * rng.standard_normal(len(x)))
    found = fitted(Normal(sd=Heteroscedastic(link="exp")), rows, estimator=estimator)
    at = np.array([-0.8, 0.0, 0.8])
    sd, parameters = scale_at(found, at)
    np.testing.assert_allclose(sd, np.exp(-1 + at), rtol=0.15)
    np.testing.assert_allclose(parameters["mu"].mean(axis=0), 1 + 2 * at, atol=0.1)


@pytest.mark.slow
def test_heavy_tails_are_distinguished_from_light_ones():
    heavy = line_with(lambda x, rng: 0.5 * rng.standard_t(3.0, len(x)), 2000)
    light = line_with(lambda x, rng: 0.5 * rng.standard_normal(len(x)), 2000)
    scales, degrees = [], []
    for rows in (heavy, light):
        sd, parameters = scale_at(fitted(StudentT(), rows), [0.0])
        scales.append(sd[0])
        degrees.append(parameters["nu"].mean())
    np.testing.assert_allclose(scales, 0.5, rtol=0.1)
    assert 2.3 < degrees[0] < 4.2 and degrees[1] > 10


@pytest.mark.slow
def test_outliers_move_a_line_with_heavy_tails_less():
    def with_outliers(x, rng):
        return 0.1 * rng.standard_normal(len(x)) + np.where(rng.random(len(x)) < 0.05, 15.0, 0.0)

    rows, off = line_with(with_outliers), {}
    for likelihood in (Normal(), StudentT()):
        _, parameters = scale_at(fitted(likelihood, rows), [0.0])
        off[likelihood.kind] = abs(parameters["mu"].mean() - 1)
    assert off["student_t"] < 0.05 < 0.3 < off["normal"]


@pytest.mark.slow
def test_one_logit_says_what_two_classes_do():
    """Logistic regression of 400 labels: the probability that they were drawn with."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, 2000)
    y = (rng.random(2000) < 1 / (1 + np.exp(-(0.5 + 1.5 * x)))).astype(np.int64)
    source, predictor, data = fitted(Bernoulli(), Rows(x[:, None], y, ("x",), ("no", "yes")))
    at = np.array([-1.0, 0.0, 1.0])
    found = predictor.predict([source], [1.0], data, at[:, None], 400)
    np.testing.assert_allclose(found.mean[:, 1], 1 / (1 + np.exp(-(0.5 + 1.5 * at))), atol=0.03)
