"""Likelihoods of a user's own, and a kind of prediction: fitted, judged and traced as ours are.

Nothing but the classes and registrations here tells the package of them.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import ClassVar, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from scipy import stats

from pmbnn.data import Moons, Sine
from pmbnn.experiment.cells import Cell
from pmbnn.fitting.evaluation import evaluate
from pmbnn.fitting.fit import fit_job
from pmbnn.fitting.programs import GroupPrograms, graph_model
from pmbnn.fitting.trace import build_trace, prediction_groups
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed
from pmbnn.models.likelihoods import (
    ClassLikelihood,
    DensityLikelihood,
    Likelihood,
    distribution_parameters,
)
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal
from pmbnn.prediction import PREDICTIVES, ClassProbabilities, Density, Predictive, metrics_of
from pmbnn.prediction.settings import Fresh, Map, Predict

SCALE = 0.7


class Laplace(DensityLikelihood):
    """Numbers with Laplace noise of known scale."""

    kind: Literal["laplace"] = "laplace"
    scale: float = SCALE

    @property
    def constants(self):
        return {"noise_scale": self.scale}

    def observe(self, name, outputs, data):
        mu = outputs.flatten()
        given = {"observed": data["target"], "dims": "observation"}
        return pm.Laplace(name, mu, data["noise_scale"], **given)

    def parameters(self, observed):
        mu, b = distribution_parameters(observed, pm.Laplace, self.kind)
        return {"mu": mu, "b": pt.squeeze(b)}

    def components(self, parameters):
        return stats.laplace(parameters["mu"], parameters["b"])


class Bernoulli(ClassLikelihood):
    """Two classes, by the difference of two outputs."""

    kind: Literal["bernoulli"] = "bernoulli"

    def observe(self, name, outputs, data):
        logit = outputs[:, 1] - outputs[:, 0]
        return pm.Bernoulli(name, logit_p=logit, observed=data["target"], dims="observation")

    def parameters(self, observed):
        (p,) = distribution_parameters(observed, pm.Bernoulli, self.kind)
        return {"probability": pt.stack([1 - p, p], axis=-1)}


@dataclass(frozen=True)
class Rates(Predictive):
    """Mean rate of counts over draws: a kind of prediction of its own."""

    key: ClassVar[str] = "rates"
    block: ClassVar[int] = 16

    mean: np.ndarray

    @classmethod
    def of_mixtures(cls, predictor, fits, mixtures, data, x, draws, target):
        drawn = [predictor.single_draws(fit, data, x, draws)["rate"].mean(axis=0) for fit in fits]
        shares = [np.full(len(fits), 1 / len(fits)) if w is None else w for w in mixtures]
        return [cls(np.asarray(weights) @ drawn) for weights in shares]

    def log_score(self, target):
        return stats.poisson(self.mean).logpmf(target)

    @classmethod
    def nll(cls, predictor, fit, data, rows, draws):
        (found,) = cls.of_mixtures(predictor, [fit], [None], data, rows.x, draws, rows.y)
        return float(-stats.poisson(found.mean).logpmf(rows.y).mean())


class Poisson(Likelihood):
    """Counts, by the logarithm of their rate."""

    kind: Literal["poisson"] = "poisson"
    task: ClassVar[str] = "regression"
    predictive: ClassVar[str] = "rates"

    def observe(self, name, outputs, data):
        rate = pt.exp(outputs.flatten())
        return pm.Poisson(name, rate, observed=data["target"], dims="observation")

    def parameters(self, observed):
        (rate,) = distribution_parameters(observed, pm.Poisson, self.kind)
        return {"rate": rate}

    def sample(self, parameters, rng):
        return rng.poisson(parameters["rate"])


@metrics_of.register
def _rate_metrics(predictive: Rates, target):
    return {"nll": float(-stats.poisson(predictive.mean).logpmf(target).mean())}


@prediction_groups.register
def _rate_groups(test: Rates, fitted, evaluation, dataset, predictor):
    attrs = {"predictive": test.key}
    return {"test_predictions": xr.Dataset({"rate": ("test_observation", test.mean)}, attrs=attrs)}


def gone_through(likelihood, dataset, change=lambda data: data):
    """A cell fitted for a few steps, evaluated and traced."""
    cell = Cell(
        "own",
        dataset,
        Dense(hidden=(4,)),
        Normal(),
        Fixed(scale=1.0),
        likelihood,
        Inference(steps=60, restarts=2),
        Predict(draws=30, trace_draws=6, map=Map(resolution=3), fresh=Fresh(size=20, draws=2)),
    )
    data, programs = change(dataset.load()), GroupPrograms("own", 4)
    (fitted,) = fit_job([cell], {dataset: data}, programs)
    predictor = programs.predictor(cell, data.training)
    evaluation = evaluate(fitted, data, predictor)
    model = graph_model(cell, data.training)
    trace = build_trace(fitted, evaluation, data, predictor, model)
    return SimpleNamespace(fitted=fitted, data=data, evaluation=evaluation, trace=trace)


def outputs(trace, x):
    """Outputs of the network at the draws of a trace, ``(draw, observation, output)``."""
    w = {name: array.values[0] for name, array in trace["posterior"].data_vars.items()}
    hidden = np.tanh(x @ w["weight_1"] + w["bias_1"][:, None])
    return hidden @ w["weight_2"] + w["bias_2"][:, None]


@pytest.mark.slow
def test_numbers_with_laplace_noise():
    done = gone_through(Laplace(), Sine(train=12))
    test, results, trace = done.evaluation.test, done.evaluation.results, done.trace
    assert isinstance(test, Density)
    assert done.fitted.selection.scores[0] > 0
    np.testing.assert_allclose(test.total_sd**2 - test.epistemic_sd**2, 2 * SCALE**2, rtol=1e-6)
    assert results["nll"] == pytest.approx(-test.log_density.mean())
    assert all(
        np.isfinite(results[name]) for name in ("rmse", "crps", "coverage_90", "band_inside")
    )
    assert trace["test_predictions"].attrs["predictive"] == "density"
    assert {"curve_1", "curve_2", "posterior_predictive"} <= set(trace.children)
    mu = outputs(trace, done.data.x_train)[:, :, 0]
    expected = stats.laplace(mu, SCALE).logpdf(done.data.y_train)
    np.testing.assert_allclose(trace["log_likelihood"]["y"][0], expected, rtol=1e-4)


@pytest.mark.slow
def test_two_classes_by_one_logit():
    done = gone_through(Bernoulli(), Moons(noise=0.3, train=40, test=20))
    test, results, trace = done.evaluation.test, done.evaluation.results, done.trace
    assert isinstance(test, ClassProbabilities)
    np.testing.assert_allclose(test.mean.sum(axis=1), 1, rtol=1e-6)
    assert results["accuracy"] == np.mean(test.predicted == done.data.y_test)
    assert {"excess_nll", "pooled_nll", "mean_mutual_information"} <= set(results)
    assert trace["test_predictions"].attrs["predictive"] == "class_probabilities"
    assert trace["predictions"]["probability"].shape == (3, 3, 2)
    found = outputs(trace, done.data.x_train)
    p = 1 / (1 + np.exp(found[:, :, 0] - found[:, :, 1]))
    expected = stats.bernoulli(p).logpmf(done.data.y_train)
    np.testing.assert_allclose(trace["log_likelihood"]["y"][0], expected, rtol=1e-3, atol=1e-6)
    assert set(np.unique(trace["posterior_predictive"]["y"])) <= {0, 1}


def test_counts_with_a_prediction_of_their_own(monkeypatch):
    monkeypatch.setitem(PREDICTIVES, "rates", Rates)

    def counted(data):
        y_train, y_test = (np.rint(np.abs(y)) for y in (data.y_train, data.y_test))
        return replace(data, y_train=y_train, y_test=y_test)

    done = gone_through(Poisson(), Sine(train=12), counted)
    assert isinstance(done.evaluation.test, Rates)
    assert set(done.evaluation.results) == {"nll", "pooled_nll"}
    assert done.trace["test_predictions"].attrs["predictive"] == "rates"
    np.testing.assert_array_equal(done.trace["test_predictions"]["rate"], done.evaluation.test.mean)
    rate = np.exp(outputs(done.trace, done.data.x_train)[:, :, 0])
    expected = stats.poisson(rate).logpmf(done.data.y_train)
    np.testing.assert_allclose(done.trace["log_likelihood"]["y"][0], expected, rtol=1e-4)
