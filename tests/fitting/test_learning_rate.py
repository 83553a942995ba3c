"""The search for a learning rate: what is tried, what is chosen, and on whose data.

The first tests script the engine, so that every choice has a known answer; the last ones fit
for real.
"""

from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import pmbnn.sweep.cells as runner
from pmbnn.core.spec import Tune
from pmbnn.core.stages import on_progress
from pmbnn.data import Moons
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import search_cells
from pmbnn.fitting.fit import fit_job
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.select import search_learning_rate
from pmbnn.inference.advi import build_program
from pmbnn.inference.groups import fit
from pmbnn.inference.result import Fit, History, Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.build import dense_classifier
from pmbnn.models.hyperpriors import HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal
from pmbnn.prediction.settings import Predict

RATES = (0.001, 0.03, 1e30)


# What is tried and what is chosen


class Script:
    """An engine whose fits have the ELBO that ``elbo(rate, repeat)`` says, or diverge at NaN."""

    def __init__(self, elbo, width=16, steps=200):
        self.elbo, self.width, self.steps, self.calls = elbo, width, steps, []

    def replica(self, rate, number, repeat):
        return SimpleNamespace(rate=rate, number=number, repeat=repeat)

    def fit(self, program, replicas, progress=None, checkpoints=None, steps=None):
        assert program is self
        self.calls.append((replicas, steps))
        return [self._made(self.elbo(r.rate, r.repeat)) for r in replicas]

    def _made(self, elbo):
        one = np.ones(1)
        status = "converged" if np.isfinite(elbo) else "diverged"
        history = History(one, one, one, one)
        return Fit({"loc": one}, one, history, elbo, status, "", derive_keys("made"))

    def search(self, rates=RATES):
        return search_learning_rate(self, self.fit, rates, self.replica)


def test_every_candidate_is_tried_as_often_as_the_others_in_one_program():
    script = Script(lambda rate, repeat: 0.0)
    script.search()
    ((replicas, _),) = script.calls
    assert [(r.rate, r.number, r.repeat) for r in replicas] == [
        (rate, number, repeat) for number, rate in enumerate(RATES) for repeat in range(3)
    ]


@pytest.mark.parametrize(
    ("width", "candidates", "repeats"), [(16, 5, 3), (16, 6, 2), (16, 9, 1), (16, 20, 1), (1, 3, 1)]
)
def test_repeats_fill_one_program_and_no_more(width, candidates, repeats):
    script = Script(lambda rate, repeat: 0.0, width)
    script.search(tuple(range(1, candidates + 1)))
    ((replicas, _),) = script.calls
    assert len(replicas) == candidates * repeats


@pytest.mark.parametrize(("steps", "short"), [(200, 20), (10_000, 1000), (4, 1), (1, 1)])
def test_fits_of_the_search_take_a_tenth_of_the_steps(steps, short):
    script = Script(lambda rate, repeat: 0.0, steps=steps)
    script.search()
    assert [asked for _, asked in script.calls] == [short]


def test_the_highest_mean_elbo_is_chosen():
    """Not the highest of all, nor the highest last one."""
    elbo = {0.001: (-10, -10, -10), 0.03: (-1, -20, -18), 1e30: (-14, -14, -5)}
    found = Script(lambda rate, repeat: elbo[rate][repeat]).search()
    np.testing.assert_allclose(found.elbo, [-10, -13, -11])
    np.testing.assert_array_equal(found.candidates, RATES)
    assert found.chosen == 0.001


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("nothing", [np.nan, np.inf, -np.inf])
def test_a_candidate_that_diverged_once_is_never_chosen(lost, nothing):
    def elbo(rate, repeat):
        if rate < 1:
            return -5 - rate
        return nothing if repeat == lost else 100

    found = Script(elbo).search()
    assert found.elbo[2] == -np.inf
    assert found.chosen == 0.001


def test_the_lowest_rate_is_left_if_every_candidate_diverged():
    found = Script(lambda rate, repeat: np.nan).search()
    assert list(found.elbo) == [-np.inf] * 3
    assert found.chosen == 0.001


def test_of_equal_candidates_the_lowest_is_chosen():
    found = Script(lambda rate, repeat: -2.0 if rate == 0.1 else -1.0).search((0.1, 0.2, 0.3))
    assert found.chosen == 0.2


# Whose data


def cell(seed=0, prior=None, **inference):
    """A small cell with a tuned learning rate."""
    settings = {"learning_rate": Tune(log=(0.003, 0.3, 3)), "steps": 100, "validation": 0}
    return Cell(
        "toy",
        Moons(noise=0.3, train=60, test=40, seed=seed),
        Dense(hidden=(3,)),
        prior or Normal(),
        HalfNormal(),
        Categorical(),
        Inference(**(settings | inference)),
        Predict(draws=20),
    )


def test_the_search_cell_is_the_first_cell_of_the_group():
    wide = Normal(fan_in=True)
    plan = [cell(learning_rate=0.1), cell(1), cell(2, wide), cell(0), cell(0, wide), cell(2)]
    assert search_cells(plan) == {
        plan[1]: plan[1],
        plan[3]: plan[1],
        plan[5]: plan[1],
        plan[2]: plan[2],
        plan[4]: plan[2],
    }
    assert search_cells(plan[:1]) == {}


def prepared(folder, *inferences, seeds=(0, 1, 2)):
    """The cells of an experiment with the given settings of their fits, ready to be run."""
    sweep = {
        "name": "toy",
        "dataset": {"kind": "moons", "noise": 0.3, "train": 60, "test": 40, "seed": list(seeds)},
        "network": {"kind": "dense", "hidden": [[3]]},
        "prior": "normal",
        "inference": [{"steps": 100} | inference for inference in inferences],
    }
    file = folder / "experiment.yaml"
    file.write_text(yaml.safe_dump({"name": "toy", "sweeps": [sweep]}))
    return runner.prepare(load_experiment(file), folder / "out")


TUNED = {"learning_rate": {"tune": {"log": [0.003, 0.3, 3]}}}
PLAIN = {"learning_rate": 0.01}


@pytest.mark.parametrize("wanted", [(0, 1, 2), (0,), (2,), (2, 1)])
def test_every_job_gets_the_search_cell_of_the_full_plan(tmp_path, wanted):
    """Whatever part of the plan is wanted; with many restarts, every cell is a job."""
    run = prepared(tmp_path, TUNED | {"restarts": 9})
    cells = list(run.tasks)
    tasks = run.jobs([cells[i] for i in wanted])
    assert [task.cells for task in tasks] == [(run.tasks[cells[i]],) for i in sorted(wanted)]
    assert {task.search_cell for task in tasks} == {run.tasks[cells[0]]}


def test_a_plain_learning_rate_has_no_search_cell(tmp_path):
    run = prepared(tmp_path, PLAIN)
    (task,) = run.jobs(list(run.tasks))
    assert task.search_cell is None


def identities(run):
    """Identities of the cells by the seed of their data."""
    return {c.dataset.seed: task.identity for c, task in run.tasks.items()}


def test_identity_of_a_cell_with_a_tuned_learning_rate_is_that_of_its_search_cell_too(tmp_path):
    first = identities(prepared(tmp_path, TUNED, seeds=[0, 1, 2]))
    others = [
        identities(prepared(tmp_path, TUNED, seeds=[1, 0, 2])),
        identities(prepared(tmp_path, TUNED, seeds=[3, 0, 1, 2])),
    ]
    for seed in first:
        assert len({first[seed], *(other[seed] for other in others)}) == 3


def test_identity_of_a_cell_with_a_tuned_learning_rate_is_that_of_no_other_cell(tmp_path):
    """Neither of later cells of its group, nor of cells before it in other groups."""
    first = identities(prepared(tmp_path, TUNED, seeds=[0, 1, 2]))
    other_order = identities(prepared(tmp_path, TUNED, seeds=[0, 2, 4, 1]))
    assert {seed: other_order[seed] for seed in first} == first
    more = prepared(tmp_path, PLAIN, TUNED | {"guide": "low_rank"}, TUNED, seeds=[0, 1, 2])
    assert set(first.values()) < {task.identity for task in more.tasks.values()}


def test_identity_of_a_cell_with_a_plain_learning_rate_is_its_own(tmp_path):
    first = identities(prepared(tmp_path, PLAIN, seeds=[0, 1]))
    assert identities(prepared(tmp_path, PLAIN, seeds=[1, 0])) == first


def test_the_data_of_the_search_cell_decide_too(tmp_path, monkeypatch):
    first = identities(prepared(tmp_path, TUNED))
    load = runner.data_source

    def other(spec):
        data = load(spec)
        return data._replace(fingerprint="changed") if spec.seed == 0 else data

    monkeypatch.setattr(runner, "data_source", other)
    changed = identities(prepared(tmp_path, TUNED))
    assert all(first[seed] != changed[seed] for seed in first)


# For real


def test_a_search_is_the_mean_of_ordinary_short_fits():
    """A rate that is far too low loses by its ELBO, one far too high by diverging."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 2))
    y = (x[:, 0] > 0).astype(np.int64)
    model = dense_classifier(x, y, hidden=(), hyperprior="fixed")
    data = {"x": x, "target": y, "prior_scale": 1.0}
    program = build_program(model, Inference(steps=300), rows=50, width=10)

    def replica(rate, number, repeat):
        return Replica(data, derive_keys(f"{number}/{repeat}"), rate)

    found = search_learning_rate(program, fit, RATES, replica)
    assert found.chosen == 0.03
    assert found.elbo[2] == -np.inf
    by_hand = [fit(program, [replica(RATES[1], 1, i)], steps=30)[0] for i in range(3)]
    assert len({one.elbo for one in by_hand}) == 3
    assert found.elbo[1] == np.mean([one.elbo for one in by_hand])
    assert by_hand[0].history.step[-1] == 30


def fit_in_order(order, search_cell):
    """Jobs of one cell each, fitted in that order by the same programs, and the stages reported."""
    programs, done, stages = GroupPrograms("group", 16), {}, []
    for job in order:
        data = {c.dataset: c.dataset.load() for c in (job, search_cell)}
        with on_progress(stages.append):
            (done[job],) = fit_job([job], data, programs, search_cell)
    names = [outer.stage for outer, *_ in filter(None, stages)]
    return done, [name for name in names if name not in ("build", "compile")]


@pytest.mark.slow
def test_jobs_of_a_group_find_the_same_in_either_order():
    search_cell, other = cell(0), cell(1)
    (forth, stages), (back, _) = (
        fit_in_order(o, search_cell) for o in ([search_cell, other], [other, search_cell])
    )
    assert list(dict.fromkeys(stages)) == ["search", "fit"]
    assert "search" not in stages[stages.index("fit") :], "searched once, before all"
    assert set(forth) == set(back) == {search_cell, other}
    for one in (search_cell, other):
        first, again = forth[one], back[one]
        np.testing.assert_array_equal(first.search.elbo, again.search.elbo)
        assert first.fits[0].elbo == again.fits[0].elbo
        assert first.fits[0].learning_rate == again.fits[0].learning_rate == first.search.chosen
        for name in first.fits[0].constrained:
            np.testing.assert_array_equal(
                first.fits[0].constrained[name], again.fits[0].constrained[name]
            )
    np.testing.assert_array_equal(forth[search_cell].search.elbo, forth[other].search.elbo)
    np.testing.assert_allclose(forth[search_cell].search.candidates, [0.003, 0.03, 0.3])
    assert not np.array_equal(forth[search_cell].fits[0].loc, forth[other].fits[0].loc)
