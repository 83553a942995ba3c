"""Importance weights of a cell's own draws."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from pmbnn.data import Moons
from pmbnn.experiment.cells import Cell
from pmbnn.fitting.evaluation import importance_results
from pmbnn.fitting.fit import InferredCell
from pmbnn.inference.samplers.chains import Chains
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal
from pmbnn.prediction.settings import Predict

SMALL = Dense(hidden=(3,))


class NormalGuide:
    """A normal guide of another scale, and the predictor of a standard normal posterior."""

    def __init__(self, sd):
        self.sd = sd

    def values(self, source, draws):
        return self.sd * np.random.default_rng(0).standard_normal((draws, 1))

    def log_joint(self, data, values):
        return stats.norm.logpdf(values + [0.5, 1.0, 2.0]), stats.norm.logpdf(values[:, 0]) - 250.0

    def log_density(self, values):
        return stats.norm.logpdf(values[:, 0], scale=self.sd)


def cell_with(draws, trace_draws=50, network=SMALL, source=None, **inference):
    predict, data = Predict(draws=draws, trace_draws=trace_draws), Moons(noise=0.3)
    prior, settings = (Normal(), HalfNormal()), Inference(**inference)
    cell = Cell("toy", data, network, *prior, Categorical(), settings, predict)
    return InferredCell(cell, HalfNormal(), {}, {0: source}, {0: 1.0}, 0, 1.0)


def results_of(sd, draws, trace_draws=50):
    guide = NormalGuide(sd)
    return importance_results(cell_with(draws, trace_draws, source=guide), guide)


def pareto_k(sd, draws=2000):
    return results_of(sd, draws)["pareto_k"]


def test_a_wide_guide_has_light_tails_and_a_narrow_one_heavy_ones():
    """The ratio's tail index is 1 less the squared ratio of the scales, where that is positive."""
    assert pareto_k(1.5) < 0.3
    assert pareto_k(0.5, draws=20_000) == pytest.approx(0.75, abs=0.15)
    assert pareto_k(0.8, draws=20_000) == pytest.approx(0.36, abs=0.15)


def test_too_few_draws_say_nothing_however_many_the_trace_keeps():
    assert results_of(0.5, 20, 20) == {}
    assert "pareto_k" in results_of(0.5, 40, 50)


def test_ratios_that_are_not_finite_say_nothing():
    assert results_of(np.nan, 100) == {}


def chains_and_predictor(samples_posterior=True):
    """What two chains of 50 draws are evaluated by."""
    settings = SimpleNamespace(trace_draws=100), SimpleNamespace(draws=50)
    cell = SimpleNamespace(
        predict=settings[0], inference=settings[1], samples_posterior=samples_posterior
    )
    chains = Chains(np.zeros((2, 50, 1)), {}, np.zeros(2, bool))
    sampled = SimpleNamespace(samples=SimpleNamespace(chains=chains), cell=cell, data={})
    by_row = np.random.default_rng(0).normal(-1, 0.1, size=(100, 9))
    return sampled, SimpleNamespace(log_joint=lambda data, values: (by_row, None))


def test_loo_of_a_fit_is_known_where_its_weights_are_usable():
    usable, not_usable = results_of(1.2, 2_000), results_of(0.3, 20_000)
    assert usable["pareto_k"] < 0.7 < not_usable["pareto_k"]
    assert set(usable) == {"pareto_k", "elpd_loo", "elpd_loo_se", "loo_pareto_k"}
    assert set(not_usable) == {"pareto_k"}
    guide = NormalGuide(1.2)
    other = importance_results(cell_with(2_000, source=guide), guide, 2.5)
    assert other["elpd_loo"] == usable["elpd_loo"] - 2.5


def test_loo_of_chains_is_of_targets_in_original_units():
    sampled, predictor = chains_and_predictor()
    plain, other = (importance_results(sampled, predictor, log_scale) for log_scale in (0.0, 2.5))
    assert other.pop("elpd_loo") == plain.pop("elpd_loo") - 2.5
    assert other == plain


def test_draws_of_another_distribution_have_no_loo():
    """Of an ensemble, or at another temperature: the weights would be wrong."""
    found = importance_results(*chains_and_predictor(samples_posterior=False))
    assert set(found) == {"log_likelihood", "log_likelihood_mcse"}


def test_large_networks_and_guides_without_a_density_are_not_looked_at():
    assert importance_results(cell_with(100, network=Dense(hidden=(60, 60))), None) == {}
    assert importance_results(cell_with(100, guide="map"), None) == {}
    assert importance_results(cell_with(100, guide="dropout", dropout_rate=0.1), None) == {}
