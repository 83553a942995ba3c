"""Evaluation of a fitted cell: which restarts predict with what weight, and the metrics of that.

Predictions are scripted and known in closed form; mixtures are computed by hand.
"""

from dataclasses import replace

import numpy as np
import pytest
from scripted import ScriptedPredictor

from pmbnn.core.spec import METRICS
from pmbnn.data import Mnist, Moons
from pmbnn.experiment.cells import Cell
from pmbnn.fitting.evaluation import FRESH_SEED, evaluate
from pmbnn.fitting.fit import InferredCell
from pmbnn.fitting.select import best_restart, restart_weights
from pmbnn.inference.guides import Point
from pmbnn.inference.result import Fit, History, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal
from pmbnn.prediction import metrics
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.conformal import conformal_metrics
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.settings import Fresh, Map, Predict

CELL = Cell(
    "toy",
    Moons(noise=0.3, train=60, test=40),
    Dense(hidden=(3,)),
    Normal(),
    HalfNormal(),
    Categorical(),
    Inference(restarts=4),
    Predict(draws=20, map=Map(resolution=5), fresh=Fresh(size=300, draws=10)),
)
DATASET = CELL.dataset.load()

ELBOS = (-52.0, -50.0, np.nan, -51.0)
"""The third restart diverged."""

WEIGHTS = {
    "best": np.array([0, 1, 0, 0]),
    "equal": np.array([1, 1, 0, 1]) / 3,
    "elbo": np.array([np.exp(-2), 1, 0, np.exp(-1)]) / (1 + np.exp(-1) + np.exp(-2)),
}


def moments(restart, x, draws):
    """Scripted predictions of a restart: another slope, spread and entropy each."""
    p = 1 / (1 + np.exp(-(restart - 0.7) * x[:, 0] - 0.3 * restart))
    sd = np.tile(0.05 * (1 + restart) * p * (1 - p), (2, 1)).T
    mean = np.stack([p, 1 - p], axis=1)
    return ClassProbabilities(draws, mean, sd, 0.1 * restart + 0 * p, mean.round(), np.log(mean))


class Scripted(ScriptedPredictor):
    """A predictor that knows sources by their PRNG keys."""

    def __init__(self):
        self.asked = []

    def moments(self, fit, data, x, draws):
        (restart,) = (i for i in range(4) if same_keys(fit, i))
        self.asked.append((restart, len(x), draws))
        return moments(restart, x, draws)


def same_keys(fit, restart):
    return np.array_equal(fit.draw_key, derive_keys(f"fit/{restart}").draws)


def fitted_cell(mixture, elbos=ELBOS, cell=CELL):
    """A cell whose restarts have these ELBOs; those that have none diverged."""
    one, fits = np.ones(1), []
    for i, elbo in enumerate(elbos):
        status = "converged" if np.isfinite(elbo) else "diverged"
        history, keys = History(one, one * elbo, one, one), derive_keys(f"fit/{i}")
        fits.append(Fit({"loc": one}, one, history, elbo, status, "", keys))
    predict = cell.predict.model_copy(update={"mixture": mixture})
    best = best_restart(fits, None)
    weights = restart_weights(fits, best, mixture)
    made = replace(cell, predict=predict)
    sources = {
        i: GuideDraws.from_fit(Point(1), one) for i, one in enumerate(fits) if not one.failed
    }
    weights = {i: weights[i] for i in sources}
    return InferredCell(made, HalfNormal(), {}, sources, weights, best, 1.0, tuple(fits))


def mixed(weights, x, draws=20):
    """Mean, standard deviation and expected entropy of a mixture, from its raw moments."""
    parts = [moments(i, x, draws) for i in range(4)]
    mean = sum(w * p.mean for w, p in zip(weights, parts, strict=True))
    square = sum(w * (p.sd**2 + p.mean**2) for w, p in zip(weights, parts, strict=True))
    entropy = sum(w * p.expected_entropy for w, p in zip(weights, parts, strict=True))
    return mean, np.sqrt(square - mean**2), entropy


def check_mixture(found, weights, x):
    mean, sd, entropy = mixed(weights, x)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)
    np.testing.assert_allclose(found.sd, sd, rtol=1e-9)
    np.testing.assert_allclose(found.expected_entropy, entropy, rtol=1e-12)


# Mixtures


@pytest.fixture(scope="module", params=WEIGHTS)
def case(request):
    """How restarts are mixed, their weights, and the evaluation."""
    predictor = Scripted()
    found = evaluate(fitted_cell(request.param), DATASET, predictor)
    return request.param, WEIGHTS[request.param], found, predictor


def test_test_rows_are_predicted_by_the_mixture(case):
    _, weights, found, _ = case
    check_mixture(found.test, weights, DATASET.x_test)


def test_metrics_are_those_of_the_mixture(case):
    _, weights, found, _ = case
    mean, sd, entropy = mixed(weights, DATASET.x_test)
    expected = metrics.classification_metrics(mean, DATASET.y_test)
    assert {name: found.results[name] for name in expected} == pytest.approx(expected)
    total = -(mean * np.log(mean)).sum(axis=1)
    of_predicted = np.where(mean[:, 0] >= mean[:, 1], sd[:, 0], sd[:, 1])
    assert found.results["mean_sd"] == pytest.approx(of_predicted.mean())
    assert found.results["mean_entropy"] == pytest.approx(total.mean())
    information = np.maximum(total - entropy, 0).mean()
    assert found.results["mean_mutual_information"] == pytest.approx(information)


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_sets_cover_by_the_rows_set_aside(share):
    """Sets of the mixture that predicts, and only where rows are set aside."""
    spec = CELL.dataset.model_copy(update={"calibration": share})
    dataset = spec.load()
    fitted = fitted_cell("equal", cell=replace(CELL, dataset=spec))
    results = evaluate(fitted, dataset, Scripted()).results
    names = {f"{k}_{what}_95" for k in ("conformal", "set") for what in ("coverage", "size")}
    assert names & results.keys() == (names if share else set())
    if share:
        aside, test = (
            ClassProbabilities(1, mixed(WEIGHTS["equal"], x)[0], *4 * [None])
            for x in (dataset.x_validation, dataset.x_test)
        )
        expected = conformal_metrics(test, dataset.y_test, aside, dataset.y_validation)
        assert {name: results[name] for name in names} == pytest.approx(expected)


def test_metrics_of_ones_own(monkeypatch):
    """Registered ones of the same kind of prediction, for the pooled restarts as well."""

    def furthest(predictive, target):
        return np.abs(predictive.mean[:, 1] - target).max()

    monkeypatch.setitem(METRICS, "class_probabilities", {"furthest": furthest})
    monkeypatch.setitem(METRICS, "density", {"other": lambda *_: 1.0})
    results = evaluate(fitted_cell("best"), DATASET, Scripted()).results
    for name, weights in (("furthest", WEIGHTS["best"]), ("pooled_furthest", WEIGHTS["equal"])):
        mean, *_ = mixed(weights, DATASET.x_test)
        assert results[name] == pytest.approx(np.abs(mean[:, 1] - DATASET.y_test).max())
    assert "other" not in results
    monkeypatch.setitem(METRICS, "class_probabilities", {"accuracy": furthest})
    with pytest.raises(ValueError, match="The metric `accuracy` is there already"):
        evaluate(fitted_cell("best"), DATASET, Scripted())


def test_pooled_metrics_are_of_all_restarts_alike(case):
    _, _, found, _ = case
    mean, *_ = mixed(WEIGHTS["equal"], DATASET.x_test)
    for name, value in metrics.classification_metrics(mean, DATASET.y_test).items():
        assert found.results[f"pooled_{name}"] == pytest.approx(value)


def test_the_map_is_of_the_mixture(case):
    _, weights, found, _ = case
    plane = found.map
    points = np.array([[a, b] for a in plane.x1 for b in plane.x2])
    check_mixture(plane.prediction, weights, DATASET.standardisation(points))
    raw = DATASET.standardisation.undo(DATASET.x_train)
    reach = 0.1 * np.ptp(raw, axis=0)
    np.testing.assert_allclose(plane.x1[[0, -1]], [raw[:, 0].min(), raw[:, 0].max()] + reach[0] * E)
    np.testing.assert_allclose(plane.x2[[0, -1]], [raw[:, 1].min(), raw[:, 1].max()] + reach[1] * E)


@pytest.mark.parametrize(("asked", "expected"), [(None, 20), (7, 7)])
def test_draws_on_the_map(asked, expected):
    predict = CELL.predict.model_copy(update={"map": Map(resolution=5, draws=asked)})
    fitted = fitted_cell("best")
    fitted = replace(fitted, cell=replace(fitted.cell, predict=predict))
    found = evaluate(fitted, DATASET, Scripted())
    assert (found.map.prediction.draws, found.test.draws) == (expected, 20)


def test_a_map_says_its_draws_only_if_they_are_given():
    """Names of cells are digests of their settings, and older than this one."""
    assert Map().model_dump(mode="json") == {"resolution": 100, "margin": 0.1}
    assert Map.model_validate_json(Map(draws=7).model_dump_json()) == Map(draws=7)
    assert "draws" not in Predict().model_dump()["map"]


E = np.array([-1, 1])
"""Outwards, at the low end and at the high one."""


def test_fresh_points_are_judged_by_the_mixture(case):
    _, weights, found, _ = case
    raw = CELL.dataset.spread(300, random_seed=FRESH_SEED)
    truth, x = CELL.dataset.class_probabilities(raw), DATASET.standardisation(raw)
    for prefix, w in (("", weights), ("pooled_", WEIGHTS["equal"])):
        mean, *_ = mixed(w, x)
        for name, metric in (
            ("excess_error", metrics.excess_error),
            ("excess_nll", metrics.excess_nll),
        ):
            expected = metric(mean, truth)
            assert found.results[prefix + name] == pytest.approx(expected, abs=1e-12)
    assert found.results["lowest_nll"] == CELL.dataset.bounds().lowest_nll


def test_only_restarts_that_did_not_diverge_predict(case):
    mixture, weights, _, predictor = case
    alive, used = [0, 1, 3], [i for i in range(4) if weights[i] > 0]
    assert [a for a in predictor.asked if a[1] == 40] == [(i, 40, 20) for i in alive]
    # Pooled, three have as many draws together as one has alone.
    at_fresh = [*((i, 300, 10) for i in used), *((i, 300, 4) for i in alive)]
    assert [a for a in predictor.asked if a[1] == 300] == at_fresh
    assert [a for a in predictor.asked if a[1] == 25] == [(i, 25, 20) for i in used]


def test_mixtures_differ():
    """Or the tests above would not tell them apart."""
    found = [evaluate(fitted_cell(m), DATASET, Scripted()).results for m in WEIGHTS]
    for name in ("nll", "excess_nll", "mean_sd"):
        assert len({round(results[name], 6) for results in found}) == 3


def test_a_restart_far_below_the_best_has_no_weight():
    fitted = fitted_cell("elbo", (-5000.0, -10.0, -9000.0, np.nan))
    assert fitted.weights == {0: 0, 1: 1, 2: 0}
    check_mixture(evaluate(fitted, DATASET, Scripted()).test, (0, 1, 0, 0), DATASET.x_test)


# Other data, and failures


def test_data_without_a_known_distribution_have_no_map_and_no_bounds():
    cell = replace(CELL, dataset=Mnist(source="embedded"))
    found = evaluate(fitted_cell("equal", cell=cell), DATASET, Scripted())
    assert found.map is None
    assert not [name for name in found.results if "excess" in name or "best" in name]
    check_mixture(found.test, WEIGHTS["equal"], DATASET.x_test)


def test_nothing_is_predicted_where_every_restart_diverged():
    with pytest.raises(ValueError, match="every restart diverged"):
        evaluate(fitted_cell("equal", [np.nan] * 4), DATASET, Scripted())


def test_predictions_that_are_not_finite_are_rejected():
    predictor = Scripted()
    known = predictor.moments

    def lost(fit, data, x, draws):
        found = known(fit, data, x, draws)
        return replace(found, mean=np.full_like(found.mean, np.nan))

    predictor.moments = lost
    with pytest.raises(ValueError, match="predictions are not finite"):
        evaluate(fitted_cell("best"), DATASET, predictor)
