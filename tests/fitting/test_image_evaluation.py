"""Numbers on out-of-distribution images, recomputed from scripted predictions."""

from dataclasses import replace

import numpy as np
import pytest
from scripted import ScriptedPredictor
from sklearn.metrics import average_precision_score, roc_auc_score

from pmbnn.data import DataError, Mnist
from pmbnn.data.ood import Fashion, Letters, NormalNoise, Rotated, raw_test_digits
from pmbnn.experiment.cells import Cell
from pmbnn.fitting.evaluation import evaluate
from pmbnn.fitting.fit import InferredCell
from pmbnn.fitting.image_evaluation import evaluate_images, load_images
from pmbnn.inference.guides import Point
from pmbnn.inference.result import Fit, History, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.settings import Predict

CONFIDENCE_THRESHOLD = 0.2
CELL = Cell(
    "toy",
    Mnist(source="embedded", train=50, test=60, validation=40),
    Dense(hidden=(3,)),
    Normal(),
    Fixed(scale=1.0),
    Categorical(),
    Inference(restarts=2),
    Predict(
        draws=7,
        ood=(
            NormalNoise(size=11),
            Rotated(angle=90, size=13),
            Letters(letters="AB"),
            Fashion(size=10),
        ),
        confidence_threshold=CONFIDENCE_THRESHOLD,
    ),
)
WEIGHTS = (0.25, 0.75)


def moments(restart, x, draws):
    """Another prediction for each image, some of them equal in their votes."""
    logits = np.sin(np.asarray(x, np.float64)[:, 200:600:40] * (3 + restart) + np.arange(10))
    mean = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    sd = 0.3 * mean * (1 - mean) * (1 + restart)
    first = mean.argmax(axis=1)
    votes = 0.75 * np.eye(10)[first] + 0.25 * np.eye(10)[(first + len(x)) % 10]
    return ClassProbabilities(draws, mean, sd, 0.1 * mean[:, 0], votes, np.log(mean) - 0.1)


class Scripted(ScriptedPredictor):
    """A predictor that knows sources by their parameter."""

    def __init__(self):
        self.draws = set()

    def moments(self, fit, data, x, draws):
        self.draws.add(draws)
        return moments(int(fit.parameters["loc"][0]), x, draws)


def fitted_cell(cell=CELL):
    one, keys = np.ones(1), derive_keys("made")
    history = History(one, one, one, one)
    fits = tuple(
        Fit({"loc": i * one}, one, history, float(i), "converged", "", keys) for i in range(2)
    )
    sources = {i: GuideDraws.from_fit(Point(1), fit) for i, fit in enumerate(fits)}
    weights = dict(enumerate(WEIGHTS))
    return InferredCell(cell, Fixed(scale=1.0), {}, sources, weights, 1, 1.0, fits)


def unavailable(self, digits):
    raise DataError("OpenML cannot be reached")


@pytest.fixture(scope="module")
def dataset():
    return CELL.dataset.load()


@pytest.fixture(scope="module")
def found(dataset):
    """The evaluation, where images of clothes are unavailable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fashion, "load", unavailable)
        return evaluate(fitted_cell(), dataset, Scripted())


@pytest.fixture(scope="module")
def results(found):
    return found.images.results


def mean_and_sd(x):
    parts = [moments(i, x, 7) for i in range(2)]
    mean = sum(w * p.mean for w, p in zip(WEIGHTS, parts, strict=True))
    square = sum(w * (p.sd**2 + p.mean**2) for w, p in zip(WEIGHTS, parts, strict=True))
    return mean, np.sqrt(square - mean**2)


def uncertainty(x):
    """Standard deviation of the predicted class, entropy in bits, and highest probability."""
    mean, sd = mean_and_sd(x)
    of_predicted = sd[np.arange(len(x)), mean.argmax(axis=1)]
    return of_predicted, -np.sum(mean * np.log2(mean), axis=1), mean.max(axis=1)


def inputs(found, dataset, name):
    return dataset.standardisation(found.images.ood[name].images.x).astype("f4")


def limit(dataset):
    return np.percentile(uncertainty(dataset.x_validation)[0], 99)


SETS = ("normal_noise", "rotated_90", "letters")


def test_every_set_is_predicted_by_the_mixture(found, dataset):
    assert tuple(found.images.ood) == SETS
    for name, shown in found.images.ood.items():
        mean, sd = mean_and_sd(inputs(found, dataset, name))
        np.testing.assert_allclose(shown.prediction.mean, mean, rtol=1e-9)
        np.testing.assert_allclose(shown.prediction.sd, sd, rtol=1e-6)
    mean, _ = mean_and_sd(dataset.x_validation)
    np.testing.assert_allclose(found.images.validation.mean, mean, rtol=1e-9)


def test_images_go_through_the_standardisation_of_the_digits(found, dataset):
    """Turned digits are made of raw ones, not of those that a network takes."""
    expected = Rotated(angle=90, size=13).load(raw_test_digits(dataset))
    np.testing.assert_array_equal(found.images.ood["rotated_90"].images.x, expected.x)
    assert found.images.ood["rotated_90"].images.x.min() >= 0
    assert dataset.x_test.min() < -0.1


def test_the_threshold_is_that_of_the_validation_rows(results, dataset):
    rejection = results["rejection"]
    assert (rejection["held_out"], rejection["percentile"]) == ("validation", 99)
    assert rejection["sd"] == pytest.approx(limit(dataset), rel=1e-9)
    assert rejection["confidence_threshold"] == CONFIDENCE_THRESHOLD


def test_how_well_validation_rows_are_predicted(results, dataset):
    mean, _ = mean_and_sd(dataset.x_validation)
    label = dataset.y_validation
    of_label = mean[np.arange(40), label]
    expected = {
        "rows": 40,
        "accuracy": np.mean(mean.argmax(axis=1) == label),
        "nll": -np.log(of_label).mean(),
    }
    assert results["held_out"] == pytest.approx(expected, rel=1e-9)


def test_rejection(results, dataset):
    sd, _, top = uncertainty(dataset.x_test)
    mean, _ = mean_and_sd(dataset.x_test)
    correct, accepted = mean.argmax(axis=1) == dataset.y_test, sd <= limit(dataset)
    rejection = results["rejection"]
    assert 0 < accepted.mean() < 1
    assert rejection["accepted"] == pytest.approx(accepted.mean())
    assert rejection["accepted_accuracy"] == pytest.approx(correct[accepted].mean())
    assert 0 < (top > CONFIDENCE_THRESHOLD).mean() < 1
    assert rejection["accepted_by_confidence"] == pytest.approx((top > CONFIDENCE_THRESHOLD).mean())
    wrong = ~correct[np.argsort(sd)]
    area = np.mean(np.cumsum(wrong) / np.arange(1, 61))
    assert rejection["area_under_risk_coverage"]["sd"] == pytest.approx(area)
    names = ["sd", "entropy", "mutual_information", "error_rate", "top_probability"]
    assert list(rejection["area_under_risk_coverage"]) == names


@pytest.mark.parametrize("name", ["test", *SETS])
def test_uncertainty_of_a_set(found, results, dataset, name):
    x = dataset.x_test if name == "test" else inputs(found, dataset, name)
    sd, entropy, top = uncertainty(x)
    row = results["test"] if name == "test" else results["ood"][name]
    parts = [moments(i, x, 7) for i in range(2)]
    log = sum(w * p.mean_log for w, p in zip(WEIGHTS, parts, strict=True))
    within = sum(w * p.expected_entropy for w, p in zip(WEIGHTS, parts, strict=True))
    votes = sum(w * p.votes for w, p in zip(WEIGHTS, parts, strict=True))
    predicted = mean_and_sd(x)[0].argmax(axis=1)
    expected = {
        "size": len(x),
        "entropy": entropy.mean(),
        "geometric_entropy": -np.sum(np.exp(log) * log, axis=1).mean() / np.log(2),
        "mutual_information": np.mean(entropy - within / np.log(2)),
        "sd": sd.mean(),
        "error_rate": np.mean(1 - votes[np.arange(len(x)), predicted]),
        "top_probability": top.mean(),
        "top_probability_sd": top.std(),
        "rejected_by_sd": np.mean(sd > limit(dataset)),
        "rejected_by_confidence": np.mean(top <= CONFIDENCE_THRESHOLD),
    }
    assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", SETS)
def test_areas_of_telling_a_set_from_test_digits(found, results, dataset, name):
    known, unknown = uncertainty(dataset.x_test), uncertainty(inputs(found, dataset, name))
    is_unknown = np.repeat([0, 1], [60, len(unknown[0])])
    row = results["ood"][name]
    for score, a, b in zip(("sd", "entropy"), known, unknown, strict=False):
        both = np.concatenate([a, b])
        assert row[f"auroc_{score}"] == pytest.approx(roc_auc_score(is_unknown, both))
        assert row[f"aupr_{score}"] == pytest.approx(average_precision_score(is_unknown, both))
    low = np.concatenate([1 - known[2], 1 - unknown[2]])
    assert row["auroc_top_probability"] == pytest.approx(roc_auc_score(is_unknown, low))
    assert "auroc_sd" not in results["test"]


def test_who_is_rejected_by_label(found, results, dataset):
    rejected = uncertainty(inputs(found, dataset, "letters"))[0] > limit(dataset)
    by_label = results["ood"]["letters"]["rejected_by_label"]
    # 23 faces, in each of them A and then B.
    assert by_label == pytest.approx({"A": rejected[::2].mean(), "B": rejected[1::2].mean()})
    assert list(results["ood"]["normal_noise"]["rejected_by_label"]) == [""]
    rotated = results["ood"]["rotated_90"]["rejected_by_label"]
    assert set(rotated) == {dataset.classes[i] for i in dataset.y_test[:13]}


def test_a_set_that_is_unavailable_is_recorded_and_left_out(results):
    assert results["unavailable"] == {"fashion": "OpenML cannot be reached"}
    assert "fashion" not in results["ood"]


def test_without_validation_rows_the_test_rows_give_the_threshold(dataset):
    bare = replace(dataset, x_validation=None, y_validation=None)
    predict = CELL.predict.model_copy(update={"ood": ()})
    fitted = fitted_cell(replace(CELL, predict=predict))
    predictor = Scripted()
    test = evaluate(fitted, bare, predictor).test
    found = evaluate_images(fitted, bare, predictor, test, None)
    assert found.validation is None
    assert found.results["rejection"]["held_out"] == "test"
    assert "held_out" not in found.results
    expected = np.percentile(uncertainty(dataset.x_test)[0], 99)
    assert found.results["rejection"]["sd"] == pytest.approx(expected)
    assert found.results["ood"] == found.results["unavailable"] == {}
    assert predictor.draws == {7}


def test_images_that_do_not_depend_on_the_digits_are_made_once(dataset):
    spec, digits = NormalNoise(size=3, seed=77), raw_test_digits(dataset)
    assert load_images(spec, digits) is load_images(spec, digits)
    turned = Rotated(size=2)
    assert load_images(turned, digits) is not load_images(turned, digits)


def test_a_set_that_was_unavailable_is_tried_again(dataset, monkeypatch):
    spec, load = NormalNoise(size=4, seed=78), NormalNoise.load
    monkeypatch.setattr(NormalNoise, "load", unavailable)
    with pytest.raises(DataError, match="cannot be reached"):
        load_images(spec, raw_test_digits(dataset))
    monkeypatch.setattr(NormalNoise, "load", load)
    assert len(load_images(spec, raw_test_digits(dataset))) == 4
