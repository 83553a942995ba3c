"""Snapshots of a fit: every number again from the guides they keep, of images and of points."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import softmax
from tiers import slow_but

from pmbnn.data import Mnist, Moons
from pmbnn.data.ood import Letters, NormalNoise
from pmbnn.experiment.cells import Cell
from pmbnn.fitting import job
from pmbnn.fitting.evaluation import evaluate
from pmbnn.fitting.fit import fit_job
from pmbnn.fitting.programs import GroupPrograms, graph_model
from pmbnn.fitting.snapshots import BINS, SCORES, diagnose
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal
from pmbnn.prediction.settings import Diagnostics, Fresh, Map, Predict

STEPS, DRAWS, ROWS, KL_WEIGHT = (0, 20, 100), 10, 25, 0.3
DIAGNOSTICS = Diagnostics(steps=(*STEPS, 10_000), draws=DRAWS, rows=ROWS)
"""The last one is beyond the end."""

DIGITS = Cell(
    "toy",
    Mnist(source="embedded", train=40, test=30, validation=28),
    Dense(hidden=(3,)),
    Normal(),
    Fixed(scale=0.3),
    Categorical(),
    Inference(steps=100, validation=0, kl_weight=KL_WEIGHT, restarts=2),
    Predict(
        draws=10,
        diagnostics=DIAGNOSTICS,
        ood=(NormalNoise(size=12), Letters(letters="AB")),
        confidence_threshold=0.3,
    ),
)
POINTS = Cell(
    "toy",
    Moons(noise=0.3, train=40, test=30),
    Dense(hidden=(3,)),
    Normal(),
    HalfNormal(),
    Categorical(),
    Inference(steps=100, validation=0, kl_weight=KL_WEIGHT, restarts=2),
    Predict(
        draws=10, diagnostics=DIAGNOSTICS, map=Map(resolution=3), fresh=Fresh(size=20, draws=2)
    ),
)


def diagnosed(cell):
    programs, dataset = GroupPrograms("group", 2), cell.dataset.load()
    (fitted,) = fit_job([cell], {cell.dataset: dataset}, programs)
    predictor = programs.predictor(cell, dataset.training)
    evaluation = evaluate(fitted, dataset, predictor)
    return SimpleNamespace(
        fitted=fitted,
        dataset=dataset,
        predictor=predictor,
        evaluation=evaluation,
        found=named(evaluation.diagnosis),
        snapshots=fitted.fits[fitted.best].snapshots,
    )


@pytest.fixture(scope="module")
def digits():
    return diagnosed(DIGITS)


@pytest.fixture(scope="module")
def points():
    return diagnosed(POINTS)


@pytest.fixture(scope="module", params=slow_but(["digits"], ["digits", "points"]))
def case(request):
    return request.getfixturevalue(request.param)


def posterior_at(case, snapshot, draws=DRAWS):
    """Named weights drawn from the guide as it was, with the keys of the fit."""
    best = case.fitted.sources[case.fitted.best]
    parameters = {name: snapshot.constrained[name] for name in best.parameters}
    then = replace(best, parameters=parameters)
    return case.predictor.posterior(case.fitted.data, case.predictor.values(then, draws))


def forward(posterior, x):
    """Class probabilities ``(draw, observation, class)`` of named weights, in NumPy."""
    hidden = np.tanh(x @ posterior["weight_1"] + posterior["bias_1"][:, None])
    return softmax(hidden @ posterior["weight_2"] + posterior["bias_2"][:, None], axis=-1)


def part(case, name):
    x, label = (getattr(case.dataset, f"{v}_{name}")[:ROWS] for v in "xy")
    return x, label


def named(diagnosis):
    """Arrays of a diagnosis."""
    fit = diagnosis.fit
    snapshot = {name: fit[f"snapshot_{name}"].values for name in ("kl", *SCORES)}
    return SimpleNamespace(
        steps=fit["snapshot_step"].values,
        parts=fit["part"].values,
        tensors=tuple(fit["tensor"].values),
        mean_edges=fit["mean_edge"].values,
        sd_edges=fit["sd_edge"].values,
        mean_densities=fit["snapshot_mean_density"].values,
        sd_densities=fit["snapshot_sd_density"].values,
        numbers=diagnosis.numbers,
        examples=diagnosis.examples,
        **snapshot,
    )


def test_steps_and_parts(case):
    np.testing.assert_array_equal(case.found.steps, STEPS)
    held_out = [] if case.dataset.x_validation is None else ["validation"]
    assert list(case.found.parts) == ["train", *held_out, "test"]


def test_accuracy_and_log_likelihood(case):
    for n, snapshot in enumerate(case.snapshots):
        for i, name in enumerate(case.found.parts):
            x, label = part(case, name)
            p = forward(posterior_at(case, snapshot), x)
            accuracy = np.mean(p.mean(axis=0).argmax(axis=1) == label)
            assert case.found.accuracy[i, n] == pytest.approx(accuracy, abs=1e-12)
            log = np.log(p[:, np.arange(ROWS), label]).mean()
            assert case.found.log_likelihood[i, n] == pytest.approx(log, rel=1e-4)
    assert case.found.accuracy[0, -1] > case.found.accuracy[0, 0]


def test_elbo_and_evidence(case):
    """An observation's share, with the weight that the fit gave the divergence."""
    found = case.found
    kl = [snapshot.kl / 40 for snapshot in case.snapshots]
    np.testing.assert_allclose(found.kl, kl, rtol=1e-12)
    np.testing.assert_allclose(found.elbo, found.log_likelihood - KL_WEIGHT * found.kl)
    np.testing.assert_allclose(found.evidence, np.exp(found.elbo / len(case.dataset.classes)))
    assert found.elbo.shape == (len(found.parts), len(STEPS))


@pytest.mark.slow
def test_the_elbo_is_that_of_the_history(points):
    """In the end, on all training rows, but for the error of ten draws."""
    predict = POINTS.predict.model_copy(
        update={"diagnostics": Diagnostics(steps=(100,), draws=2000)}
    )
    cell = replace(points.fitted.cell, predict=predict)
    best = points.fitted.fits[points.fitted.best]
    last = replace(best, snapshots=best.snapshots[-1:])
    fits = tuple(last if fit is best else fit for fit in points.fitted.fits)
    fitted = replace(points.fitted, cell=cell, fits=fits)
    found = named(diagnose(fitted, points.dataset, points.predictor, None))
    assert found.elbo[0, 0] == pytest.approx(best.history.elbo[-1] / 40, abs=0.1)
    assert found.kl[0] == pytest.approx(best.history.kl[-1] / 40, rel=0.05)


def test_a_record_keeps_plain_lists(case):
    numbers, found = case.found.numbers(), case.found
    assert numbers["step"] == list(STEPS)
    assert numbers["kl"] == found.kl.tolist()
    assert list(numbers["parts"]) == list(found.parts)
    last = numbers["parts"]["test"]
    assert last["evidence"] == found.evidence[-1].tolist()
    assert last["log_likelihood"] == found.log_likelihood[-1].tolist()
    assert set(last) == {"accuracy", "log_likelihood", "elbo", "evidence"}


def test_a_job_puts_them_into_the_record(digits, monkeypatch):
    monkeypatch.setattr(job, "load_dataset", lambda task: digits.dataset)
    programs = SimpleNamespace(predictor=lambda *_: digits.predictor, model=graph_model)
    entries, trace = job._evaluate(SimpleNamespace(cell=DIGITS), digits.fitted, programs)
    assert "test_predictions" in trace.children
    assert entries["diagnostics"] == digits.found.numbers()
    assert entries["images"] == digits.evaluation.images.results
    assert json.loads(json.dumps(entries)) == entries


# Weights


def exact_or_drawn(case, snapshot, name):
    """Means and standard deviations of a tensor: the guide's own, or those of its draws."""
    slots = {slot.name: slot for slot in case.predictor.flat.layout.slots}
    if name in slots:
        return slots[name].of(snapshot.constrained["loc"]), slots[name].of(snapshot.scale)
    drawn = posterior_at(case, snapshot)[name]
    return drawn.mean(axis=0), drawn.std(axis=0)


@pytest.mark.slow
def test_centred_weights_are_the_guide_and_others_are_not(digits, points):
    """Or the test of histograms would not see both ways."""
    assert "weight_1" in {slot.name for slot in digits.predictor.flat.layout.slots}
    assert "weight_1" not in {slot.name for slot in points.predictor.flat.layout.slots}


def test_histograms(case):
    found = case.found
    assert found.tensors == ("weight_1", "bias_1", "weight_2", "bias_2")
    assert found.mean_densities.shape == (len(STEPS), 4, BINS) == found.sd_densities.shape
    for n, snapshot in enumerate(case.snapshots):
        for t, name in enumerate(found.tensors):
            values = exact_or_drawn(case, snapshot, name)
            kept = (
                (found.mean_edges[t], found.mean_densities[n, t]),
                (found.sd_edges[t], found.sd_densities[n, t]),
            )
            for of_tensor, (edges, density) in zip(values, kept, strict=True):
                counts, _ = np.histogram(of_tensor, edges)
                np.testing.assert_allclose(density * np.diff(edges) * of_tensor.size, counts)
                assert counts.sum() >= 0.98 * of_tensor.size


def test_histograms_hold_nearly_every_weight(case):
    """All snapshots share their edges, so that they can be compared."""
    for edges, densities in (
        (case.found.mean_edges, case.found.mean_densities),
        (case.found.sd_edges, case.found.sd_densities),
    ):
        assert (np.diff(edges, axis=1) > 0).all()
        mass = (densities * np.diff(edges, axis=1)).sum(axis=2)
        assert (mass <= 1 + 1e-9).all()
        assert mass.mean() > 0.99


def test_scales_that_are_all_alike_are_in_one_bin(digits):
    start = digits.found.sd_densities[0] * np.diff(digits.found.sd_edges, axis=1)
    assert (start.max(axis=1) > 0.99).all()


# Images


def test_examples(digits):
    examples, dataset = digits.found.examples, digits.dataset
    assert tuple(examples["kind"].values) == ("test",) * 8 + ("normal_noise",) * 8
    shown = tuple(dataset.classes[i] for i in dataset.y_test[:8])
    assert tuple(examples["label"].values) == (*shown, *("",) * 8)
    noise = digits.evaluation.images.ood["normal_noise"].images.x
    raw = np.concatenate([dataset.standardisation.undo(dataset.x_test[:8]), noise[:8]])
    shown = np.rint(255 * raw).clip(0, 255).reshape(-1, 28, 28)
    np.testing.assert_array_equal(examples["image"], shown)
    assert examples["probability"].shape == (3, 50, 16, 10)
    x = dataset.standardisation(raw)
    for n, snapshot in enumerate(digits.snapshots):
        p = forward(posterior_at(digits, snapshot, 50), x)
        np.testing.assert_allclose(examples["probability"][n], p, atol=1e-5)


def test_who_is_rejected_at_each_snapshot(digits):
    """No class above the threshold: nearly all at the start, hardly a test digit in the end."""
    examples, dataset = digits.found.examples, digits.dataset
    noise = digits.evaluation.images.ood["normal_noise"].images.x
    sets = {"test": dataset.x_test[:ROWS], "normal_noise": dataset.standardisation(noise)}
    assert list(examples["set"].values) == list(sets)
    rejected = examples["rejected"].values
    for n, snapshot in enumerate(digits.snapshots):
        posterior = posterior_at(digits, snapshot)
        for i, x in enumerate(sets.values()):
            top = forward(posterior, x).mean(axis=0).max(axis=1)
            assert rejected[n, i] == pytest.approx(np.mean(top <= 0.3))
    assert rejected[0, 0] > rejected[-1, 0]


@pytest.mark.slow
def test_points_have_no_examples(points):
    assert points.found.examples is None


def test_nothing_without_snapshots(digits):
    fits = tuple(replace(fit, snapshots=()) for fit in digits.fitted.fits)
    fitted = replace(digits.fitted, fits=fits)
    assert diagnose(fitted, digits.dataset, digits.predictor, None) is None
