"""Targets that were standardised: models speak of standardised ones, predictions of the others."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pmbnn.data import Sine
from pmbnn.data.arrays import Standardisation
from pmbnn.experiment.cells import Cell
from pmbnn.figures.regression import rows_on
from pmbnn.fitting.evaluation import evaluate
from pmbnn.fitting.fit import InferredCell
from pmbnn.fitting.job import _selection_entry
from pmbnn.fitting.programs import graph_model
from pmbnn.fitting.select import Selection
from pmbnn.fitting.trace import build_trace
from pmbnn.inference.guides import MeanField
from pmbnn.inference.result import Fit, History, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.build import model_data
from pmbnn.models.hyperpriors import Fixed
from pmbnn.models.likelihoods import Normal
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal as NormalPrior
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.predictor import Predictor
from pmbnn.prediction.settings import Predict

MEAN, SD, NOISE = 20.0, 4.0, 0.7
CELL = Cell(
    "toy",
    Sine(train=8),
    Dense(hidden=()),
    NormalPrior(),
    Fixed(),
    Normal(sd=NOISE),
    Inference(),
    Predict(draws=40, trace_draws=10),
)
DATASET = CELL.dataset.load()
OTHER = replace(DATASET, target_standardisation=Standardisation(np.full(1, MEAN), np.full(1, SD)))
"""The same numbers to fit, which stand for others."""


@pytest.fixture(scope="module")
def both():
    """Evaluation and trace of one fit, of targets as they are and of standardised ones."""
    likelihood, one = CELL.likelihood, np.ones(1)
    model = graph_model(CELL, DATASET.training)
    predictor = Predictor(model, likelihood, "float64")
    guide = {"loc": np.array([0.4, 0.1]), "scale": np.array([0.3, 0.2])}
    history = History(one, one, one, one)
    fit = Fit(guide, guide["scale"], history, 1.0, "converged", "", derive_keys("fit/0"))
    data = model_data(CELL.hyperprior, DATASET.training, likelihood)
    source = GuideDraws.from_fit(MeanField(2), fit)
    sources, weights = {0: source}, {0: 1.0}
    fitted = InferredCell(CELL, CELL.hyperprior, data, sources, weights, 0, 1.0, (fit,))
    found = []
    for dataset in (DATASET, OTHER):
        evaluation = evaluate(fitted, dataset, predictor)
        found.append((evaluation, build_trace(fitted, evaluation, dataset, predictor, model)))
    return found


def test_metrics_are_in_original_units(both):
    plain, other = (evaluation.results for evaluation, _ in both)
    sds = ("mean_total_sd", "mean_epistemic_sd", "train_mean_epistemic_sd", "band_inside")
    for name in ("rmse", "crps", "train_rmse", *sds):
        assert other[name] == pytest.approx(SD * plain[name]), name
    for name in ("nll", "normal_nll"):
        assert other[name] == pytest.approx(plain[name] + np.log(SD))
    assert other["epistemic_ratio"] == pytest.approx(plain["epistemic_ratio"])
    ratio = plain["mean_epistemic_sd"] / plain["train_mean_epistemic_sd"]
    assert plain["epistemic_ratio"] == pytest.approx(ratio)
    for name in ("coverage_50", "coverage_90", "coverage_95"):
        assert other[name] == plain[name]
    assert other["mean_at_1.5"] == pytest.approx(MEAN + SD * plain["mean_at_1.5"])


def test_scores_of_held_out_rows_are_in_original_units_and_choose_the_same():
    nll = np.array([[1.0, np.nan], [0.25, 2.0]])
    selection = Selection(np.array([0.1, 1.0]), nll, np.array([0, 0]))
    log_scale = OTHER.target_standardisation.log_scale
    assert log_scale == pytest.approx(np.log(SD))
    entry = _selection_entry(selection, log_scale)
    np.testing.assert_allclose(entry.nll, nll + np.log(SD))
    assert (entry.candidate, entry.restart) == (1, (0, 0))
    both_targets = Standardisation(np.zeros(2), np.array([2.0, 50.0]))
    assert both_targets.log_scale == pytest.approx(np.log(100))
    # Nothing moves where nothing is standardised.
    plain = _selection_entry(selection, DATASET.target_standardisation.log_scale)
    np.testing.assert_array_equal(plain.nll, nll)


def test_a_density_is_that_of_a_distribution_with_other_units(both):
    """Each kept number against SciPy's distribution of the targets in their own units."""
    (_, trace), (other, _) = both
    test, target = other.test, OTHER.raw_targets(OTHER.y_test)
    mean = MEAN + SD * trace["test_predictions"]["mean"].values
    np.testing.assert_allclose(test.mean, mean, rtol=1e-6)
    # One component, as of a point: everything is known.
    point = replace(test, mean=test.mean, log_density=stats.norm(0.2, NOISE).logpdf(OTHER.y_test))
    found = point.in_units_of(OTHER.target_standardisation)
    expected = stats.norm(MEAN + SD * 0.2, SD * NOISE).logpdf(target)
    np.testing.assert_allclose(found.log_density, expected)


def test_the_trace_says_which_units_are_meant(both):
    (_, plain), (_, other) = both
    for name in ("posterior", "log_likelihood", "posterior_predictive", "observed_data"):
        assert other[name].attrs["target_units"] == "standardised"
        assert other[name].dataset.drop_attrs().identical(plain[name].dataset.drop_attrs())
    for name in ("test_predictions", "curve_1", "curve_2"):
        assert other[name].attrs["target_units"] == "original"
        low = MEAN + SD * plain[name]["total_interval"].values
        np.testing.assert_allclose(other[name]["total_interval"].values, low, rtol=1e-5)
    target = other["test_predictions"]["target"].values
    np.testing.assert_allclose(target, MEAN + SD * DATASET.y_test)
    assert not any("target_units" in group.attrs for group in plain.subtree)
    assert "target_sd" not in plain["constant_data"]


def test_figures_show_rows_in_original_units(both):
    for (_, trace), y in zip(both, (DATASET.y_train, MEAN + SD * DATASET.y_train), strict=True):
        np.testing.assert_allclose(rows_on(trace, "curve_1")[1], y)


def test_units_are_part_of_the_data_only_where_there_are_any():
    same = replace(DATASET, target_standardisation=Standardisation(np.zeros(1), np.ones(1)))
    assert same.fingerprint == DATASET.fingerprint != OTHER.fingerprint
    assert DATASET.raw_targets(DATASET.y_test) is DATASET.y_test
