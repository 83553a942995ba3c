"""Groups of a trace with predictions: what they hold before and after a file."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pmbnn.data import Mnist
from pmbnn.data.ood import Letters, NormalNoise, Rotated
from pmbnn.experiment.cells import Cell
from pmbnn.fitting.evaluation import evaluate
from pmbnn.fitting.fit import fit_job
from pmbnn.fitting.programs import GroupPrograms, graph_model
from pmbnn.fitting.trace import (
    build_trace,
    hard_images,
    kept_images,
    predictions_of_test,
    probability_arrays,
)
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.posterior import source_of_draws
from pmbnn.prediction.settings import Diagnostics, Predict
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results, trace_writer

STEPS = (0, 30)
CELL = Cell(
    "toy",
    Mnist(source="embedded", train=40, test=120, validation=20),
    Dense(hidden=(3,)),
    Normal(),
    Fixed(scale=0.3),
    Categorical(),
    Inference(steps=30, validation=0),
    Predict(
        draws=10,
        trace_draws=5,
        diagnostics=Diagnostics(steps=STEPS, draws=5, rows=20),
        ood=(NormalNoise(size=19), Rotated(angle=-22.5, size=9), Letters()),
        confidence_threshold=0.25,
    ),
)
BY_CLASS, BY_ROW = ("probability", "sd", "votes"), ("entropy", "mutual_information", "error_rate")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A tiny cell fitted for real, its trace, and the trace as it is read back."""
    programs, dataset = GroupPrograms("group", 1), CELL.dataset.load()
    (fitted,) = fit_job([CELL], {CELL.dataset: dataset}, programs)
    predictor = programs.predictor(CELL, dataset.training)
    evaluation = evaluate(fitted, dataset, predictor)
    model = graph_model(CELL, dataset.training)
    trace = build_trace(fitted, evaluation, dataset, predictor, model)
    results = Results(tmp_path_factory.mktemp("results"))
    results.prepare()
    made = CellRecord(sweep="one", name="cell", status="converged", settings={})
    results.save_cell(made, {"trace.nc": trace_writer(trace)})
    return SimpleNamespace(
        fitted=fitted,
        dataset=dataset,
        predictor=predictor,
        evaluation=evaluation,
        trace=trace,
        read=results.load_trace("cell"),
    )


def check_moments(group, moments, axis):
    for name in (*BY_CLASS, *BY_ROW):
        assert group[name].dtype == np.float32
        assert group[name].dims == ((axis, "output") if name in BY_CLASS else (axis,))
    for name, expected in {
        "probability": moments.mean,
        "sd": moments.sd,
        "votes": moments.votes,
        "entropy": moments.entropy,
        "mutual_information": moments.mutual_information,
        "error_rate": moments.expected_error_rate,
    }.items():
        np.testing.assert_allclose(group[name], expected, atol=1e-6)
    assert list(group["output"].values) == [str(digit) for digit in range(10)]


def check_pixels(images, raw):
    """Bytes that are those of the data, cut off beyond black and white."""
    assert images.dtype == np.uint8
    assert images.dims[1:] == ("row", "column")
    expected = np.rint(255 * np.asarray(raw, float)).clip(0, 255)
    np.testing.assert_array_equal(images.values.reshape(len(expected), -1), expected)
    assert images.shape[1:] == (28, 28)


def check_examples(made, group, raw):
    """Single draws of the best restart at the example images."""
    check_pixels(group["example_image"], raw)
    p = group["example_probability"]
    assert (p.dims, p.dtype) == (("draw", "example", "output"), np.float32)
    best = made.fitted.sources[made.fitted.best]
    values = made.predictor.values(best, 50)
    x = made.dataset.standardisation(raw)
    expected = made.predictor.parameters(made.fitted.data, values, x)["probability"]
    np.testing.assert_allclose(p, expected, atol=1e-5)


def test_a_file_gives_back_every_group(made):
    named = {"validation_predictions", "test_predictions", "snapshot_examples", "fit"}
    named |= {"ood_normal_noise", "ood_rotated_-22.5", "ood_letters"}
    assert named <= set(made.read.children)
    for name in named:
        before, after = (tree[name].to_dataset() for tree in (made.trace, made.read))
        assert set(before.variables) == set(after.variables)
        for variable in before.variables:
            a, b = before[variable], after[variable]
            assert a.dims == b.dims
            assert a.dtype.kind == b.dtype.kind or {a.dtype.kind, b.dtype.kind} <= set("OUT")
            np.testing.assert_array_equal(a.values.astype(b.dtype), b.values)
        assert before.attrs == after.attrs


def test_the_test_rows(made):
    group, dataset = made.read["test_predictions"], made.dataset
    check_moments(group, made.evaluation.test, "test_observation")
    np.testing.assert_array_equal(group["label"], dataset.y_test)
    raw = dataset.standardisation.undo(dataset.x_test)
    check_pixels(group["image"], raw[group["image_index"].values])
    chosen = group["example_index"].values
    uncertain = np.argsort(-made.evaluation.test.predicted_sd, kind="stable")[:8]
    assert set(chosen) == {*range(8), *uncertain}
    assert len(set(chosen)) == len(chosen)
    check_examples(made, group, raw[chosen])


def test_example_draws_are_of_the_mixture_that_the_attribute_names(made):
    """Two fits with one half of the weight each: the best, and one with all weights at zero."""
    best = made.fitted.sources[0]
    zero = {name: np.zeros_like(array) for name, array in best.parameters.items()}
    sources = {0: best, 1: replace(best, parameters=zero)}
    fitted = replace(made.fitted, sources=sources, weights={0: 0.5, 1: 0.5})
    assert fitted.draws_of.startswith("the mixture of the guides of restarts")
    group = predictions_of_test(fitted, made.evaluation, made.dataset, made.predictor)
    p = group["example_probability"].values
    is_zero = source_of_draws(sources, fitted.weights, fitted.best, len(p)) == 1
    assert 10 < is_zero.sum() < 40
    np.testing.assert_allclose(p[is_zero], 0.1, atol=1e-6)
    alone = made.read["test_predictions"]["example_probability"].values
    np.testing.assert_array_equal(p[~is_zero], alone[~is_zero])


def test_the_validation_rows(made):
    group = made.read["validation_predictions"]
    check_moments(group, made.evaluation.images.validation, "validation_observation")
    np.testing.assert_array_equal(group["label"], made.dataset.y_validation)


def test_pixels_of_validation_rows(made):
    group, moments = made.read["validation_predictions"], made.evaluation.images.validation
    raw = made.dataset.standardisation.undo(made.dataset.x_validation)
    kept = group["image_index"].values
    np.testing.assert_array_equal(kept, hard_images(moments, made.dataset.y_validation))
    assert len(kept) > 0
    check_pixels(group["image"], raw[kept])


@pytest.mark.parametrize("name", ["normal_noise", "rotated_-22.5", "letters"])
def test_ood_sets(made, name):
    group = made.read[f"ood_{name}"]
    shown = made.evaluation.images.ood[name]
    check_moments(group, shown.prediction, "ood_observation")
    assert list(group["label"].values) == list(shown.images.labels)
    assert group.attrs["source"] == shown.images.source
    check_examples(made, group, shown.images.x[group["example_index"].values])


def test_one_example_of_each_label(made):
    """Of letters, one each; of noise the first ones; of few images, all."""
    numbers = [
        list(made.read[f"ood_{name}"]["example_index"].values)
        for name in ("letters", "normal_noise", "rotated_-22.5")
    ]
    assert numbers == [list(range(26)), list(range(16)), list(range(9))]


def test_snapshots_of_the_fit(made):
    fit, found = made.read["fit"], made.evaluation.diagnosis.fit
    np.testing.assert_array_equal(fit["snapshot_step"], STEPS)
    assert list(fit["part"].values) == ["train", "validation", "test"]
    assert list(fit["tensor"].values) == ["weight_1", "bias_1", "weight_2", "bias_2"]
    for name in ("accuracy", "log_likelihood", "elbo", "evidence"):
        assert fit[f"snapshot_{name}"].dims == ("part", "snapshot")
        np.testing.assert_array_equal(fit[f"snapshot_{name}"], found[f"snapshot_{name}"])
    np.testing.assert_array_equal(fit["snapshot_kl"], found["snapshot_kl"])
    for name in ("mean", "sd"):
        assert fit[f"{name}_edge"].dims == ("tensor", "edge")
        assert fit[f"snapshot_{name}_density"].dims == ("snapshot", "tensor", "bin")
        for array in (f"{name}_edge", f"snapshot_{name}_density"):
            np.testing.assert_array_equal(fit[array], found[array])
    np.testing.assert_allclose(np.isnan(fit["elbo"]).sum(), 0)


def test_images_at_every_snapshot(made):
    group, examples = made.read["snapshot_examples"], made.evaluation.diagnosis.examples
    p = group["probability"]
    assert (p.dims, p.dtype) == (("snapshot", "draw", "example", "output"), np.float32)
    np.testing.assert_array_equal(p, examples["probability"])
    np.testing.assert_array_equal(group["image"], examples["image"])
    assert list(group["kind"].values) == ["test"] * 8 + ["normal_noise"] * 8
    assert list(group["label"].values) == list(examples["label"].values)
    rejected = group["rejected"].sel(set="normal_noise")
    np.testing.assert_array_equal(rejected, examples["rejected"][:, 1])
    np.testing.assert_array_equal(group["snapshot_step"], STEPS)
    assert group.attrs["confidence_threshold"] == 0.25


# Which images are shown


def scripted(rows):
    rng = np.random.default_rng(0)
    mean = rng.dirichlet(np.ones(3), rows)
    votes = rng.dirichlet(np.ones(3), rows)
    return ClassProbabilities(9, mean, rng.random((rows, 3)), rng.random(rows), votes, np.log(mean))


def test_kept_images():
    test = scripted(300)
    label = np.where(np.arange(300) % 4, test.predicted, (test.predicted + 1) % 3)
    sd = test.sd[np.arange(300), test.predicted]
    agreement = test.votes[np.arange(300), test.predicted]
    mistaken, top = np.arange(0, 300, 4), test.mean.max(axis=1)
    expected = {*np.argsort(-sd)[:20], *np.argsort(top)[:24]}
    expected |= {i for digit in range(3) for i in np.flatnonzero(label == digit)[:4]}
    expected |= set(mistaken[np.argsort(-agreement[mistaken])][:24])
    kept = kept_images(test, label)
    assert list(kept) == sorted(expected)
    assert len(kept) < 80


def test_mistakes_and_uncertain_ones_of_many_images():
    """All others are left out: a trace stays small however many rows are set aside."""
    held_out = scripted(3000)
    wrong = np.arange(3000) % 3 == 0
    label = np.where(wrong, (held_out.predicted + 1) % 3, held_out.predicted)
    agreement = held_out.votes[np.arange(3000), held_out.predicted]
    mistaken = np.flatnonzero(wrong)
    expected = {*mistaken[np.argsort(-agreement[mistaken])][:24]}
    expected |= {*np.argsort(held_out.mean.max(axis=1))[:24]}
    assert list(hard_images(held_out, label)) == sorted(expected)


def test_without_mistakes_the_least_confident_remain():
    held_out = scripted(100)
    lowest = np.argsort(held_out.mean.max(axis=1))[:24]
    assert list(hard_images(held_out, held_out.predicted)) == sorted(lowest)


def test_mistakes_in_which_draws_agree_are_shown_by_certainty():
    test = scripted(300)
    test = replace(test, votes=np.eye(3)[test.predicted])
    top = test.mean.max(axis=1)
    kept = kept_images(test, (test.predicted + 1) % 3)
    assert set(np.argsort(-top)[:24]) <= set(kept)


def test_few_images_are_all_shown():
    test = scripted(5)
    assert list(kept_images(test, test.predicted)) == [0, 1, 2, 3, 4]


def test_moments_over_a_plane():
    test = scripted(6)
    arrays = probability_arrays(test, ("x1", "x2"), (2, 3))
    assert list(arrays) == [*BY_CLASS, *BY_ROW]
    dims, probability = arrays["probability"]
    assert (dims, probability.shape) == (("x1", "x2", "output"), (2, 3, 3))
    np.testing.assert_allclose(probability[1, 2], test.mean[5], rtol=1e-6)
    assert arrays["error_rate"][1].shape == (2, 3)


def test_without_snapshots_and_validation_their_groups_are_missing(made):
    evaluation = replace(
        made.evaluation,
        diagnosis=None,
        images=replace(made.evaluation.images, validation=None, ood={}),
    )
    model = graph_model(CELL, made.dataset.training)
    trace = build_trace(made.fitted, evaluation, made.dataset, made.predictor, model)
    assert not [n for n in trace.children if n.startswith(("ood", "valid", "snapshot"))]
    assert "snapshot_step" not in trace["fit"]
