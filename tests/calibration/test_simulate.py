"""Calibration of a combination: what is simulated, fitted, ranked and stored."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import log_softmax

from pmbnn.calibration import simulate as module
from pmbnn.calibration.plan import plan_calibration
from pmbnn.calibration.ranks import FAILED, rank_ecdfs
from pmbnn.calibration.simulate import Calibration, Simulated, fixed_inputs, run_calibration
from pmbnn.calibration.store import load_ranks, save_ranks
from pmbnn.core.stages import on_progress
from pmbnn.experiment.load import load_experiment
from pmbnn.fitting.job import load_dataset
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.models.matching import match_of
from pmbnn.prediction.draws import GuideDraws
from pmbnn.results.store import Results

MOONS = """
name: tiny
sweeps:
  - name: tiny
    dataset: {kind: moons, noise: 0.3, train: 60, test: 40}
    network: {kind: dense, hidden: [[2]]}
    prior: normal
    hyperprior: half_normal
    inference: [{steps: 60, restarts: 2}, {engine: mclmc, chains: 4, draws: 16, descent: 50,
      tuning: 200, thin: 2}]
"""

LINEAR = """
name: linear
sweeps:
  - name: linear
    dataset: {kind: sine, train: 20}
    network: {kind: dense, hidden: [[]]}
    prior: normal
    likelihood: {kind: normal, sd: 1.0}
    inference: {guide: full_rank, steps: [3000, 1]}
"""


def tasks(folder, text=MOONS, **asked):
    (file := folder / "file.yaml").write_text(text)
    asked = {"simulations": 20, "draws": 19} | asked
    return plan_calibration(load_experiment(file), (), **asked).tasks


def bench(task, programs=None):
    programs = programs or GroupPrograms(task.group, task.width)
    return Calibration(task, load_dataset(task), programs)


@pytest.fixture(scope="module")
def guide(tmp_path_factory):
    """The tiny experiment's fitted combination, ready to be calibrated."""
    task, _ = tasks(tmp_path_factory.mktemp("guide"))
    return bench(task)


# Simulations


def test_targets_have_the_probabilities_of_their_truth(guide):
    truth, reference, effective_draws = guide.truths([3])
    assert reference == ""
    assert np.isnan(effective_draws)
    many = guide.simulate(range(400), np.repeat(truth, 400, axis=0))
    p = guide.predictor.parameters(many[0].data, truth, guide.rows.x)["probability"][0, :, 1]
    drawn = np.stack([one.rows.y for one in many])
    assert drawn.dtype == guide.rows.y.dtype
    error = np.sqrt(np.maximum(p * (1 - p), 1e-4) / 400)
    assert np.abs((drawn.mean(axis=0) - p) / error).max() < 4.5
    assert all((one.rows.x == guide.rows.x).all() for one in many)
    assert (many[0].data["target"] == many[0].rows.y).all()


def test_a_simulation_is_decided_by_its_number_alone(guide):
    truths, *_ = guide.truths(range(5))
    assert (guide.truths([3])[0][0] == truths[3]).all()
    every, alone = guide.simulate(range(5), truths), guide.simulate([3], truths[3:4])
    assert (every[3].rows.y == alone[0].rows.y).all()
    assert not (every[3].rows.y == every[4].rows.y).all()


def test_fits_do_not_depend_on_their_company(guide):
    truths, *_ = guide.truths(range(3))
    simulated = guide.simulate(range(3), truths)
    every, (alone,) = guide.infer(simulated), guide.infer(simulated[2:])
    assert alone.shape == (19, guide.predictor.flat.size)
    assert (every[2] == alone).all()
    assert not (every[0] == every[1]).any()


def test_the_best_restart_is_drawn_from(guide, monkeypatch):
    numbers = range(4)
    simulated = guide.simulate(numbers, guide.truths(numbers)[0])
    drawn = guide.infer(simulated)
    fits = []
    engine = module.ENGINES["compiled"]

    def fit(*arguments):
        fits.extend(engine.fit(*arguments))
        return fits

    monkeypatch.setitem(module.ENGINES, "compiled", engine._replace(fit=fit))
    guide.infer(simulated)
    pairs = list(itertools.batched(fits, 2))
    best = [int(np.argmax([one.elbo for one in pair])) for pair in pairs]
    assert set(best) == {0, 1}
    family = guide.programs.program(guide.cell, guide.rows).guide
    for draws, pair, number in zip(drawn, pairs, best, strict=True):
        expected = guide.predictor.values(GuideDraws.from_fit(family, pair[number]), 19)
        assert (draws == expected).all()


def test_quantities_are_functions_scales_and_the_log_likelihood(guide):
    (one,) = guide.simulate([0], guide.truths([0])[0])
    values = guide.truths(range(4))[0]
    found = guide.quantities(one.data, values)
    assert list(found) == [
        *(f"probability of 0 at input {i}" for i in (1, 2, 3, 4)),
        *("layer_1_scale", "layer_2_scale", "log-likelihood"),
    ]
    named = guide.predictor.posterior(one.data, values)
    weight, bias = ([named[f"{n}_{k}"] for k in (1, 2)] for n in ("weight", "bias"))
    for d in range(4):
        hidden = np.tanh(one.rows.x @ weight[0][d] + bias[0][d])
        log_p = log_softmax(hidden @ weight[1][d] + bias[1][d], axis=1)
        own = np.take_along_axis(log_p, one.rows.y[:, None], axis=1).sum()
        assert found["log-likelihood"][d] == pytest.approx(own, rel=1e-9)
        at = np.tanh(guide.inputs[1] @ weight[0][d] + bias[0][d]) @ weight[1][d] + bias[1][d]
        p = np.exp(log_softmax(at))[0]
        assert found["probability of 0 at input 2"][d] == pytest.approx(p, rel=1e-9)
    assert found["layer_1_scale"] == pytest.approx(named["layer_1_scale"])


def test_a_slab_is_ranked_and_local_scales_are_not(tmp_path):
    """Local scales are exchanged with their units; each layer has one slab."""
    text = MOONS.replace("prior: normal", "prior: {kind: horseshoe, slab_scale: 2}")
    regularised = bench(tasks(tmp_path, text)[0])
    truths, *_ = regularised.truths(range(3))
    (one, *_) = regularised.simulate(range(3), truths)
    found = regularised.quantities(one.data, truths)
    slabs = [f"layer_{i}_slab_variance" for i in (1, 2)]
    scales = [f"layer_{i}_scale" for i in (1, 2)]
    assert {name for name in found if not name.startswith("prob")} == {
        *(*scales, *slabs, "log-likelihood")
    }
    named = regularised.predictor.posterior(one.data, truths)
    assert found[slabs[0]] == pytest.approx(named[slabs[0]])


# Around the data


def test_around_the_data_both_are_fitted(tmp_path):
    task, _ = tasks(tmp_path, truths="posterior")
    around = bench(task)
    truths = np.zeros((1, around.predictor.flat.size))
    (one,) = around.simulate([0], truths)
    n = len(around.rows)
    assert (one.rows.x == np.concatenate([around.rows.x] * 2)).all()
    assert (one.rows.y[:n] == around.rows.y).all()
    assert 0.2 < (one.rows.y[n:] == 1).mean() < 0.8
    assert (one.data["x"] == one.rows.x).all()
    again = bench(tasks(tmp_path)[0], around.programs).simulate([0], truths)
    # Random numbers are those of the way truths come by.
    assert (again[0].rows.y != one.rows.y[n:]).any()


@pytest.mark.slow
def test_truths_around_the_data_are_draws_of_the_posterior(tmp_path):
    task, _ = tasks(tmp_path, LINEAR, truths="posterior")
    around = bench(task)
    truths, reference, effective_draws = around.truths(range(800))
    assert reference == "MCLMC, converged"
    assert effective_draws > 1000
    x, y = around.rows.x[:, 0], around.rows.y
    design = np.column_stack([x, np.ones(len(x))])
    covariance = np.linalg.inv(design.T @ design + np.eye(2))
    standard = (truths - covariance @ design.T @ y) / np.sqrt(np.diag(covariance))
    # Weight and bias, as they lie in the vector.
    assert [slot.name for slot in around.predictor.flat.layout.slots] == ["weight_1", "bias_1"]
    for k in range(2):
        assert stats.kstest(standard[:, k], stats.norm.cdf).pvalue > 1e-3
    assert (around.truths([7])[0][0] == truths[7]).all()


# Ranks, scripted


def simulated(number, truth):
    return Simulated(number, np.array(truth), None, {})


class Scripted(Calibration):
    """Draws are the number of the simulation; there are none of the first."""

    def infer(self, simulated):
        return [None if one.number == 1 else np.full((9, 1), one.number) for one in simulated]

    def quantities(self, data, values):
        return {"first": values[:, 0], "second": np.where(values[:, 0] == 2, np.nan, 0.0)}


def test_a_truth_without_draws_has_no_ranks(guide):
    scripted = Scripted(guide.task, guide.dataset, guide.programs)
    every = [simulated(0, [5.0]), simulated(1, [5.0]), simulated(2, [5.0])]
    names, ranks = scripted.ranks(every)
    assert names == ("first", "second")
    assert ranks[1:].tolist() == [[FAILED] * 2] * 2
    assert ranks[0, 0] == 9
    assert 0 <= ranks[0, 1] <= 9
    _, again = scripted.ranks(every[:1])
    assert again.tolist() == ranks[:1].tolist()


def test_fixed_inputs_are_apart_and_one_lies_outside():
    x = np.random.default_rng(0).uniform(-1, 1, size=(200, 2))
    near, far, third, outside = fixed_inputs(x)
    rows = x.tolist()
    assert all(point.tolist() in rows for point in (near, far, third))
    assert outside.tolist() not in rows
    assert np.linalg.norm(near) < 0.2 < 0.8 < np.linalg.norm(far)
    assert min(np.linalg.norm(third - near), np.linalg.norm(third - far)) > 0.8
    assert np.abs(outside).max() > 1


# From task to file


def calibrated(task, folder, programs=None):
    """Stored ranks of a task, and what was said of it."""
    (folder / "calibration").mkdir(parents=True, exist_ok=True)
    said, stages = [], []
    with on_progress(stages.append):
        programs = run_calibration(task, folder, said.append, programs)
    return load_ranks(Results(folder), task.name), said, stages, programs


@pytest.mark.slow
def test_interrupted_and_gone_on_with_ranks_are_the_same(guide, tmp_path, monkeypatch):
    task, _ = tasks(tmp_path, simulations=40)
    whole, (said,), stages, programs = calibrated(task, tmp_path / "whole", guide.programs)
    assert programs is guide.programs
    assert said is None
    assert whole.numbers.tolist() == list(range(40))
    assert whole.ranks.shape == (40, 7)
    assert ((whole.ranks >= 0) & (whole.ranks <= 19)).all()
    done = [outer.done for outer, *_ in filter(None, stages) if outer.stage == "simulate"]
    assert list(dict.fromkeys(done)) == [0, 16, 32, 40]
    assert whole.cell == task.cell
    # Stopped after the first sixteen ...
    save, stored = module.save_ranks, []

    def stop(results, ranks):
        save(results, ranks)
        stored.append(ranks)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "save_ranks", stop)
    with pytest.raises(KeyboardInterrupt):
        calibrated(task, tmp_path / "parts", programs)
    monkeypatch.undo()
    assert len(stored[0].numbers) == 16
    # ... then fewer than all, then all.
    first, *_ = calibrated(replace(task, simulations=20), tmp_path / "parts", programs)
    assert len(first.numbers) == 20
    parts, *_ = calibrated(task, tmp_path / "parts", programs)
    assert (parts.numbers == whole.numbers).all()
    assert (parts.ranks == whole.ranks).all()
    assert parts.inputs.tolist() == whole.inputs.tolist()
    # Once more does nothing.
    _, _, stages, _ = calibrated(task, tmp_path / "parts", programs)
    assert stages == []


@pytest.mark.slow
def test_a_sampler_is_ranked_the_same_way(tmp_path):
    _, task = tasks(tmp_path, simulations=2)
    found, (said,), _, _ = calibrated(task, tmp_path / "out")
    assert said is None
    assert task.width == task.restarts == 1
    assert found.ranks.shape == (2, 7)
    assert ((found.ranks >= 0) & (found.ranks <= 19)).all()


def test_what_goes_wrong_is_said(tmp_path):
    task, _ = tasks(tmp_path)
    changed = replace(task, fingerprint="another")
    found, (said,), _, _ = calibrated(changed, tmp_path / "out")
    assert found is None
    assert said == "DataError: the data changed while the sweep was running"


def test_ranks_of_other_quantities_are_not_gone_on_with(tmp_path, made):
    """Such as those stored before slabs were ranked; nothing is fitted."""
    text = MOONS.replace("prior: normal", "prior: {kind: horseshoe, slab_scale: 2}")
    task, _ = tasks(tmp_path, text)
    results = Results(tmp_path / "out")
    results.prepare()
    one = bench(task)
    now = one.names
    slabs = [name for name in now if "slab" in name]
    assert slabs == ["layer_1_slab_variance", "layer_2_slab_variance"]
    before = tuple(name for name in now if name not in slabs)
    own = {"name": task.name, "cell": task.cell, "quantities": before}
    ranks = np.ones((16, len(before)))
    save_ranks(results, replace(made.ranks(simulations=16), **own, ranks=ranks))
    found, (said,), stages, _ = calibrated(task, results.folder, one.programs)
    assert said.startswith(f"ResultsError: The ranks `{results.calibration / task.name}.nc` must ")
    assert f"{', '.join(now)}; got {', '.join(before)}." in said
    assert said.endswith("Remove the file, and they are simulated again.")
    assert not {"simulate", "fit"} & {stage.stage for one in stages for stage in one}
    assert len(found.numbers) == 16


# Linear regression, whose posterior the guide can be


@pytest.mark.slow
@pytest.mark.parametrize("truths", ["prior", "posterior"])
def test_an_exact_guide_is_calibrated_and_one_that_never_moved_is_not(tmp_path, truths):
    exact, unmoved = tasks(tmp_path, LINEAR, simulations=320, draws=99, truths=truths)
    found, *_ = calibrated(exact, tmp_path / "out")
    assert [one.verdict for one in rank_ecdfs(found.ranks, 99)] == ["calibrated"] * 5
    found, *_ = calibrated(unmoved, tmp_path / "out")
    judged = dict(zip(found.quantities, rank_ecdfs(found.ranks, 99), strict=True))
    # Its draws hardly scatter, about where fits start.
    wrong = {"prior": "under-dispersed", "posterior": "biased high"}
    assert judged["mu at input 2"].direction == wrong[truths]
    assert judged["log-likelihood"].direction == "biased low"


MATCHED = """
name: matched
sweeps:
  - name: matched
    dataset: {kind: sine, train: 20}
    network: {kind: dense, hidden: [[3]]}
    prior: normal
    hyperprior: {kind: fixed, scale: {match: {}}}
    likelihood: {kind: normal, sd: 1.0}
    inference: {steps: 20}
"""


def test_truths_and_fits_have_matched_scales(tmp_path):
    """Those that the observed inputs decide, whatever rows are fitted."""
    (task,) = tasks(tmp_path, MATCHED)
    matched = bench(task)
    rows, cell = matched.rows, task.cell
    scales = match_of(cell.hyperprior, cell.prior, cell.network, rows).scales
    assert matched.cell.hyperprior.scale == scales
    truths, *_ = matched.truths(range(300))
    slots = matched.predictor.flat.layout.unravel(truths[0])
    first = np.concatenate([np.full(v.size, scales[int(n[-1]) - 1]) for n, v in slots.items()])
    assert (truths / first).std() == pytest.approx(1, abs=0.05)
    data = matched.simulate([0], truths[:1])[0].data
    assert (data["prior_scale_1"], data["prior_scale_2"]) == scales
