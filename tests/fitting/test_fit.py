"""Choosing on held-out rows, then fitting all rows: who sees what, and what is chosen.

Most tests script the engine and the predictions, so that every choice has a known answer; the
last ones fit for real.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scripted import ScriptedPredictor

from pmbnn.core.spec import Tune
from pmbnn.core.stages import on_progress
from pmbnn.data import Moons
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.plan import settings_digest
from pmbnn.fitting import fit as fitting
from pmbnn.fitting import programs as group_programs
from pmbnn.fitting.fit import fit_job
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.select import Selection, best_restart, restart_weights, scored_restarts
from pmbnn.inference.groups import Checkpoints
from pmbnn.inference.guides import MeanField
from pmbnn.inference.result import Fit, History, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Categorical
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Flat, Normal
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.metrics import nll
from pmbnn.prediction.settings import Predict

TUNE = Tune(log=(0.1, 10, 3))
CELL = Cell(
    "toy",
    Moons(noise=0.3, train=60, test=40),
    Dense(hidden=(3,)),
    Normal(),
    Fixed(scale=TUNE),
    Categorical(),
    Inference(steps=200, restarts=2),
    Predict(draws=20),
)
FLAT = replace(CELL, prior=Flat(), hyperprior=Fixed(scale=None))
DATASET = CELL.dataset.load()


def fit(elbo=0.0, status="converged", keys=None):
    """A fit of a given verdict."""
    keys = keys or derive_keys("made")
    one = np.ones(1)
    constrained, history = {"loc": one, "scale": one}, History(one, np.array([elbo]), one, one)
    return Fit(constrained, one, history, elbo, status, "as scripted", keys)


class Script(ScriptedPredictor):
    """What scripted fits and predictions say, and everything they were asked.

    ``status(name, restart)``, ``elbo(name, restart)`` and ``confidence(scale, restart)`` decide
    the answers; ``name`` is ``choose`` or ``fit``.
    """

    def __init__(self):
        self.status = lambda name, restart: "converged"
        self.elbo = lambda name, restart: 0.0
        self.confidence = lambda scale, restart: 0.5
        self.fitted, self.predicted, self.stages, self.built = [], [], [], []
        self.names = {}

    def know(self, cells):
        """Tell fits apart by their PRNG keys: nothing else of them says who they are."""
        for cell in cells:
            parts = [(f"choose/{i}/{r}", "choose", r) for i in range(9) for r in range(9)]
            parts += [(f"fit/{r}", "fit", r) for r in range(9)]
            for path, name, restart in parts:
                keys = derive_keys(f"{settings_digest(cell)}/{path}")
                self.names[tuple(keys.noise)] = self.names[tuple(keys.draws)] = (
                    cell,
                    name,
                    restart,
                )

    def fit_job(self, cells, datasets=None):
        self.know(cells)
        datasets = datasets or {cell.dataset: cell.dataset.load() for cell in cells}
        group = GroupPrograms("scripted", 16)
        group._built["predictor", "float32"] = self
        return fit_job(cells, datasets, group)

    # An engine

    guide = MeanField(1)

    def build_program(self, model, settings, rows, width, allow_fewer_rows=False):
        self.width = width
        self.built.append((rows, allow_fewer_rows))
        return self

    def supports(self, n_rows):
        return True

    def fit(self, program, replicas, progress, checkpoints=None, steps=None, snapshots=()):
        progress(1, 1, 0.0, lambda: pytest.fail("nothing is looked at so soon"))
        self.fitted += replicas
        self.stages.append(self.names[tuple(replicas[0].keys.noise)][1])
        found = []
        for replica in replicas:
            _, name, restart = self.names[tuple(replica.keys.noise)]
            made = fit(self.elbo(name, restart), self.status(name, restart), replica.keys)
            found.append(made)
        return found

    def fitted_by(self, name):
        return [r for r in self.fitted if self.names[tuple(r.keys.noise)][1] == name]

    # A predictor

    def moments(self, made, data, x, draws):
        _, _, restart = self.names[tuple(made.draw_key)]
        self.predicted.append((data, x, draws))
        p = self.confidence(float(data.get("prior_scale", np.nan)), restart)
        mean = np.tile([p, 1 - p], (len(x), 1))
        return ClassProbabilities(draws, mean, 0 * mean, 0 * mean[:, 0], mean, mean)


@pytest.fixture
def script(monkeypatch):
    made = Script()
    for module in (fitting, group_programs):
        monkeypatch.setattr(module, "engine_of", lambda settings: made)
    return made


def rows_of(x):
    return [tuple(row) for row in x]


# Who sees what


def test_one_program_runs_the_fits_to_choose_with_and_the_final_ones(script):
    script.fit_job([CELL])
    assert script.stages == ["choose", "fit"]
    assert script.built == [(len(DATASET.x_train), True)]


def test_without_a_choice_a_program_is_of_all_rows_only(script):
    inference = CELL.inference.model_copy(update={"validation": 0.0})
    script.fit_job([replace(CELL, hyperprior=HalfNormal(), inference=inference)])
    assert script.built == [(len(DATASET.x_train), False)]


def test_choosing_fits_and_held_out_rows_share_the_training_rows(script):
    (done,) = script.fit_job([CELL])
    training = rows_of(DATASET.x_train)
    for replica in script.fitted_by("choose"):
        kept = rows_of(replica.data["x"])
        held_out = rows_of(script.predicted[0][1])
        assert (len(kept), len(held_out)) == (48, 12)
        assert sorted(kept + held_out) == sorted(training)
        labels = dict(zip(training, DATASET.y_train, strict=True))
        assert [labels[row] for row in kept] == list(replica.data["target"])
    assert all(rows_of(x) == held_out for _, x, _ in script.predicted)
    assert all(draws == CELL.predict.draws for *_, draws in script.predicted)
    assert done.selection is not None


def test_final_fits_see_every_training_row(script):
    script.fit_job([CELL])
    final = script.fitted_by("fit")
    assert len(final) == 2
    for replica in final:
        np.testing.assert_array_equal(replica.data["x"], DATASET.x_train)
        np.testing.assert_array_equal(replica.data["target"], DATASET.y_train)
    assert script.stages == ["choose", "fit"]


def test_no_test_row_is_seen_anywhere(script):
    script.fit_job([CELL])
    test = set(rows_of(DATASET.x_test))
    seen = [r.data["x"] for r in script.fitted] + [x for _, x, _ in script.predicted]
    assert len(seen) == 6 + 2 + 3
    assert not any(test & set(rows_of(x)) for x in seen)


def test_held_out_rows_keep_the_proportions_of_the_classes(script):
    rows = replace(DATASET, y_train=np.repeat([0, 1], [45, 15]))
    script.fit_job([CELL], {CELL.dataset: rows})
    for replica in script.fitted_by("choose"):
        assert list(np.bincount(replica.data["target"])) == [36, 12]


def test_held_out_rows_are_decided_by_the_seed_of_the_fit(script):
    seeds = (0, 0, 1)
    cells = [replace(CELL, inference=Inference(restarts=2, seed=s)) for s in seeds]
    for cell in cells:
        script.fit_job([cell])
    first, again, other = (set(rows_of(script.predicted[3 * i][1])) for i in range(3))
    assert first == again != other


def test_the_share_held_out_is_that_of_the_file(script):
    script.fit_job([replace(CELL, inference=Inference(validation=0.5))])
    assert {len(r.data["x"]) for r in script.fitted_by("choose")} == {30}


def test_nothing_is_held_out_where_the_share_is_zero(script):
    cell = replace(CELL, hyperprior=Fixed(), inference=Inference(restarts=2, validation=0))
    script.elbo = lambda name, restart: restart
    (done,) = script.fit_job([cell])
    assert (len(script.fitted), script.predicted, script.stages) == (2, [], ["fit"])
    assert (done.selection, done.best) == (None, 1)


# Tuned scales


@pytest.mark.parametrize(("best", "index"), [(0.1, 0), (1.0, 1), (10.0, 2)])
def test_the_scale_with_the_lowest_held_out_nll_is_fitted_on_all_rows(script, best, index):
    # With two balanced classes, a guess of one half has the lowest NLL.
    script.confidence = lambda scale, _: 0.5 if scale == pytest.approx(best) else 0.9
    (done,) = script.fit_job([CELL])
    assert done.selection.candidate == index
    assert done.hyperprior.scale == pytest.approx(best)
    assert done.data["prior_scale"] == pytest.approx(best)
    assert [float(r.data["prior_scale"]) for r in script.fitted_by("fit")] == [
        pytest.approx(best)
    ] * 2
    np.testing.assert_allclose(done.selection.scales, [0.1, 1, 10])


def test_each_candidate_is_fitted_with_each_restart(script):
    script.fit_job([CELL])
    scales = [float(r.data["prior_scale"]) for r in script.fitted_by("choose")]
    np.testing.assert_allclose(scales, [0.1, 0.1, 1, 1, 10, 10])


def test_scores_are_mean_negative_log_probabilities(script):
    script.confidence = lambda scale, _: 0.8 if scale == 1 else 0.3
    (done,) = script.fit_job([CELL])
    held_out = dict(zip(rows_of(DATASET.x_train), DATASET.y_train, strict=True))
    labels = np.array([held_out[row] for row in rows_of(script.predicted[0][1])])
    expected = [nll(np.tile([p, 1 - p], (12, 1)), labels) for p in (0.3, 0.8, 0.3)]
    np.testing.assert_allclose(done.selection.scores, expected)


def test_a_given_scale_is_scored_but_not_chosen(script):
    (done,) = script.fit_job([replace(CELL, hyperprior=Fixed(scale=3.0))])
    assert done.hyperprior == Fixed(scale=3.0)
    assert done.selection.scores == pytest.approx([np.log(2)])
    assert len(script.fitted_by("choose")) == 2


# Restarts


def test_a_cell_predicts_with_its_restart_of_highest_elbo(script):
    cell = replace(CELL, inference=Inference(restarts=3))
    script.elbo = lambda name, restart: [-30.0, -10.0, -20.0][restart]
    script.confidence = lambda scale, restart: 0.5 if restart == 2 else 0.9
    (done,) = script.fit_job([cell])
    assert done.best == 1
    assert [made.elbo for made in done.fits] == [-30, -10, -20]
    np.testing.assert_array_equal(done.selection.restart, [1, 1, 1])
    assert np.isnan(done.selection.nll[:, [0, 2]]).all(), "others are not scored"


def test_improper_fits_are_chosen_by_held_out_nll_whatever_their_elbo(script):
    cell = replace(FLAT, inference=Inference(restarts=3))
    script.status = lambda *_: "improper"
    script.elbo = lambda name, restart: -restart
    script.confidence = lambda scale, restart: [0.8, 0.9, 0.6][restart]
    (done,) = script.fit_job([cell])
    assert done.best == 2
    assert done.selection.nll.shape == (1, 3)
    assert np.isfinite(done.selection.nll).all()
    assert done.selection.scores == pytest.approx([done.selection.nll[0, 2]])
    assert done.hyperprior == Fixed(scale=None)


def test_an_improper_restart_that_diverged_at_last_is_passed_over(script):
    cell = replace(FLAT, inference=Inference(restarts=3))
    lost = ("fit", 2)
    script.status = lambda *which: "diverged" if which == lost else "improper"
    script.confidence = lambda scale, restart: [0.8, 0.7, 0.5][restart]
    (done,) = script.fit_job([cell])
    assert done.best == 1


def test_a_candidate_of_which_every_fit_diverged_is_not_chosen(script):
    script.confidence = lambda scale, _: np.nan if scale < 10 else 0.9
    (done,) = script.fit_job([CELL])
    assert done.selection.candidate == 2
    assert list(np.isfinite(done.selection.scores)) == [False, False, True]


def test_diverged_restarts_are_passed_over(script):
    script.elbo = lambda name, restart: [5.0, np.nan][::-1][restart]
    script.status = lambda name, restart: "diverged" if restart == 0 else "converged"
    (done,) = script.fit_job([CELL])
    assert done.best == 1
    np.testing.assert_array_equal(done.selection.restart, [1, 1, 1])


def test_nothing_is_best_where_every_restart_diverged(script):
    script.status = lambda *_: "diverged"
    (done,) = script.fit_job([CELL])
    assert done.best is None
    assert np.isinf(done.selection.scores).all()
    assert done.hyperprior.scale == pytest.approx(0.1)
    assert script.predicted == []


def test_which_restarts_are_scored():
    diverged, improper = fit(status="diverged"), fit(status="improper")
    assert scored_restarts([fit(1.0), fit(3.0), fit(2.0)]) == [1]
    assert scored_restarts([diverged, fit(1.0)]) == [1]
    assert scored_restarts([improper, diverged, improper]) == [0, 2]
    assert scored_restarts([diverged, diverged]) == []


def test_best_restart():
    scores = np.array([[0.9, 0.1, 0.5], [0.2, 0.3, 0.1]])
    selection = Selection(np.array([1.0, 2.0]), scores, np.array([1, 2]))
    improper = [fit(e, "improper") for e in (3.0, 2.0, 1.0)]
    assert selection.candidate == 0
    assert best_restart(improper, selection) == 1
    assert best_restart(improper[:1], None) == 0
    assert best_restart([fit(3.0), fit(2.0), fit(4.0)], selection) == 2
    assert best_restart([fit(status="diverged")], selection) is None


# Weights of the restarts


SOME = [fit(-52.0), fit(-50.0), fit(status="diverged"), fit(-51.0)]
THIRDS = (pytest.approx(1 / 3), pytest.approx(1 / 3), 0.0, pytest.approx(1 / 3))


def as_status(fits, status):
    return [f if f.failed else replace(f, status=status) for f in fits]


def test_the_best_restart_alone():
    assert restart_weights(SOME, 1, "best") == (0, 1, 0, 0)
    assert restart_weights(SOME[:1], 0, "best") == (1,)


def test_equal_weights_of_restarts_that_did_not_diverge():
    assert restart_weights(SOME, 1, "equal") == THIRDS
    assert restart_weights(SOME[:1], 0, "equal") == (1,)


def test_weights_in_proportion_to_the_evidence():
    total = np.exp(-52) + np.exp(-50) + np.exp(-51)
    expected = [np.exp(-52) / total, np.exp(-50) / total, 0, np.exp(-51) / total]
    found = restart_weights(SOME, 1, "elbo")
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert sum(found) == pytest.approx(1, rel=1e-15)


def test_weights_of_a_hugely_different_evidence():
    """Neither an overflow nor a division of zeros."""
    assert restart_weights([fit(-1e7), fit(-2e7)], 0, "elbo") == (1, 0)
    assert restart_weights([fit(1e7), fit(2e7)], 1, "elbo") == (0, 1)
    np.testing.assert_array_equal(restart_weights([fit(-1e7)] * 4, 0, "elbo"), [0.25] * 4)


def test_stacked_weights_of_restarts_that_did_not_diverge():
    """Each of two restarts knows one half of the rows; the third knows neither."""
    rng, asked = np.random.default_rng(0), []

    def log_likelihood(made):
        asked.append(made)
        known = np.zeros(40)
        known[[slice(0, 20), slice(20, 40), slice(0, 0)][len(asked) - 1]] = 3.0
        return known - 5 + 0.01 * rng.standard_normal((200, 40))

    found = restart_weights(SOME, 1, "stacked", log_likelihood)
    assert asked == [SOME[0], SOME[1], SOME[3]]
    np.testing.assert_allclose(found, [0.5, 0.5, 0, 0], atol=0.01)


@pytest.mark.parametrize("mixture", ["best", "equal", "elbo", "stacked"])
def test_no_weights_where_every_restart_diverged(mixture):
    assert restart_weights([fit(status="diverged")] * 2, None, mixture) == (0, 0)


def test_the_evidence_of_an_improper_posterior_weighs_nothing():
    assert restart_weights(as_status(SOME, "improper"), 3, "elbo") == THIRDS


def test_the_elbo_of_a_point_weighs_nothing():
    points = [replace(made, scale=np.zeros(1)) for made in SOME]
    assert restart_weights(points, 1, "elbo") == THIRDS


def test_convergence_does_not_matter_to_the_weights():
    assert restart_weights(as_status(SOME, "not_converged"), 1, "elbo") == restart_weights(
        SOME, 1, "elbo"
    )


@pytest.mark.parametrize("mixture", ["best", "equal", "elbo"])
def test_a_cell_has_the_weights_that_it_asks_for(script, mixture):
    inference, predict = Inference(restarts=3), Predict(draws=20, mixture=mixture)
    script.status = lambda name, restart: "diverged" if restart == 0 else "converged"
    script.elbo = lambda name, restart: [np.nan, -2.0, -1.0][restart]
    (done,) = script.fit_job([replace(CELL, inference=inference, predict=predict)])
    share = {"best": 0, "equal": 0.5, "elbo": 1 / (1 + np.e)}[mixture]
    assert done.best == 2
    weights = [done.weights.get(restart, 0) for restart in range(3)]
    np.testing.assert_allclose(weights, [0, share, 1 - share])


# Company


def test_every_cell_gets_its_own_data_and_fits(script):
    seeds = range(3)
    cells = [replace(CELL, dataset=CELL.dataset.model_copy(update={"seed": s})) for s in seeds]
    cells[1] = replace(cells[1], hyperprior=Fixed(scale=0.5))
    done = script.fit_job(cells)
    assert [one.cell for one in done] == cells
    for one in done:
        np.testing.assert_array_equal(one.data["x"], one.cell.dataset.load().x_train)
        names = [script.names[tuple(made.keys.noise)] for made in one.fits]
        assert names == [(one.cell, "fit", 0), (one.cell, "fit", 1)]
    assert [one.selection.nll.shape for one in done] == [(3, 2), (1, 2), (3, 2)]
    for replica in script.fitted_by("fit"):
        cell, *_ = script.names[tuple(replica.keys.noise)]
        np.testing.assert_array_equal(replica.data["x"], cell.dataset.load().x_train)


def test_every_cell_is_fitted_at_its_own_learning_rate(script):
    """One program fits them all, so the rate must come with the replica."""
    rates = (0.001, 0.1)
    cells = [replace(CELL, inference=Inference(learning_rate=rate)) for rate in rates]
    assert all(done.search is None for done in script.fit_job(cells))
    for name, times in (("choose", 3), ("fit", 1)):
        found = [r.learning_rate for r in script.fitted_by(name)]
        assert found == [rate for rate in rates for _ in range(times)]


def test_every_fit_has_prng_keys_of_its_own(script):
    script.fit_job([CELL])
    keys = [tuple(r.keys.noise) for r in script.fitted]
    assert len(set(keys)) == len(keys) == 8


def test_more_restarts_or_predictions_leave_the_prng_keys_alone(script):
    more = replace(CELL, inference=Inference(steps=200, restarts=4), predict=Predict(draws=7))
    keys = []
    for cell in (CELL, more):
        script.fitted = []
        script.fit_job([cell])
        keys.append({tuple(r.keys.noise) for r in script.fitted})
    assert keys[0] < keys[1]


# For real


@pytest.fixture(scope="module")
def programs():
    return GroupPrograms("real", 16)


def test_a_model_of_a_group_has_the_names_of_the_rows():
    """A group is of shapes: its data sets may call features and classes otherwise."""
    group, rows = GroupPrograms("real", 16), DATASET.training
    renamed = replace(rows, features=("left", "up"), classes=("no", "yes"))
    first, other = group.model(CELL, rows), group.model(CELL, renamed)
    assert group.model(CELL, rows.take([3, 4])) is first
    assert list(first.coords["feature"]) == list(rows.features)
    assert list(other.coords["feature"]) == ["left", "up"]
    assert list(other.coords["output"]) == ["no", "yes"]


def fit_for_real(programs, cells, datasets=None):
    datasets = datasets or {cell.dataset: cell.dataset.load() for cell in cells}
    return fit_job(cells, datasets, programs)


def check_same_fits(one, other):
    """Bitwise."""
    assert (one.best, one.hyperprior) == (other.best, other.hyperprior)
    np.testing.assert_array_equal(one.selection.nll, other.selection.nll)
    for a, b in zip(one.fits, other.fits, strict=True):
        assert (a.elbo, a.status, a.learning_rate) == (b.elbo, b.status, b.learning_rate)
        assert set(a.constrained) == set(b.constrained)
        for name in a.constrained:
            np.testing.assert_array_equal(a.constrained[name], b.constrained[name])
        np.testing.assert_array_equal(a.scale, b.scale)
        for name in ("step", "elbo", "log_likelihood", "kl"):
            np.testing.assert_array_equal(getattr(a.history, name), getattr(b.history, name))


@pytest.fixture(scope="module")
def fitted(programs):
    return fit_for_real(programs, [CELL])[0]


def test_test_rows_cannot_matter(programs, fitted):
    nothing = np.full_like(DATASET.x_test, np.nan)
    poisoned = replace(DATASET, x_test=nothing, y_test=np.full_like(DATASET.y_test, -1))
    (again,) = fit_for_real(programs, [CELL], {CELL.dataset: poisoned})
    check_same_fits(fitted, again)
    assert np.isfinite(fitted.fits[0].loc).all()


def test_company_does_not_matter(programs, fitted):
    other = replace(CELL, dataset=Moons(noise=0.3, train=60, test=40, seed=5))
    _, again = fit_for_real(programs, [other, CELL])
    check_same_fits(fitted, again)


def test_the_refit_is_that_of_the_chosen_scale(programs, fitted):
    chosen = fitted.selection.candidate
    assert fitted.selection.scores[chosen] == fitted.selection.scores.min()
    assert fitted.hyperprior.scale == pytest.approx(fitted.selection.scales[chosen])
    assert fitted.data["prior_scale"] == fitted.hyperprior.scale
    assert fitted.best == int(np.argmax([made.elbo for made in fitted.fits]))
    assert fitted.seconds > 0


@pytest.mark.slow
def test_a_flat_prior_is_reported_as_improper():
    (done,) = fit_for_real(GroupPrograms("real", 16), [FLAT])
    assert [made.status for made in done.fits] == ["improper"] * 2
    assert done.best == int(done.selection.nll[0].argmin())
    assert "prior_scale" not in done.data


def test_a_huge_learning_rate_diverges(programs):
    inference = Inference(steps=200, learning_rate=1e30, restarts=2)
    (done,) = fit_for_real(programs, [replace(CELL, inference=inference)])
    assert [made.status for made in done.fits] == ["diverged"] * 2
    assert done.best is None
    assert "not finite" in done.fits[0].reason


# Interruptions


LONG = replace(
    CELL,
    hyperprior=Fixed(scale=Tune(log=(0.1, 10, 2))),
    inference=Inference(steps=30, restarts=2, batch=20, iterate_averaging=0.5),
)
"""Four fits to choose by and two at last: with a width of two, three chunks of 30 windows."""


@pytest.fixture(scope="module")
def narrow():
    return GroupPrograms("long", 2)


@pytest.fixture
def eager(monkeypatch):
    """Checkpoints after every window, however short it is."""
    monkeypatch.setattr(fitting, "Checkpoints", partial(Checkpoints, interval=0.0))


def fit_long(programs, folder, stop=None):
    """The fitted cell, None if it was stopped after a number of windows; what was reported."""
    news = []

    def told(stages):
        names = [one.stage for one in stages]
        if names[-1:] != ["fit"] or not stages[-1].done:
            return
        if news[-1:] == [new := (names[0], stages[-1].done, stages[-1].words)]:
            return  # of what is within a step that is done
        news.append(new)
        if len(news) == stop:
            raise KeyboardInterrupt

    try:
        with on_progress(told):
            (done,) = fit_job([LONG], {LONG.dataset: DATASET}, programs, checkpoints=folder)
    except KeyboardInterrupt:
        done = None
    return done, news


@pytest.fixture(scope="module")
def uninterrupted(narrow):
    return fit_long(narrow, None)


def test_a_fit_without_a_folder_leaves_no_checkpoint(uninterrupted, eager, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done, news = uninterrupted
    assert [stage for stage, *_ in news] == ["choose"] * 60 + ["fit"] * 30
    assert done.best is not None
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("stops", [(1,), (10, 30, 25)])
def test_an_interrupted_fit_goes_on_bit_by_bit(narrow, uninterrupted, eager, tmp_path, stops):
    """In every chunk and stage; of the windows, only the one just done is repeated."""
    windows = 0
    for stop in stops:
        done, news = fit_long(narrow, tmp_path / "job", stop)
        assert done is None
        assert news == uninterrupted[1][windows : windows + stop]
        windows += stop - 1
    done, news = fit_long(narrow, tmp_path / "job")
    assert news == uninterrupted[1][windows:]
    check_same_fits(done, uninterrupted[0])


def test_a_fit_that_has_ended_is_not_repeated(narrow, uninterrupted, eager, tmp_path):
    """As when the evaluation was interrupted."""
    fit_long(narrow, tmp_path)
    done, news = fit_long(narrow, tmp_path)
    assert news == []
    check_same_fits(done, uninterrupted[0])


def test_short_fits_leave_no_checkpoint(narrow, tmp_path):
    fit_long(narrow, tmp_path, stop=70)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["other", "damaged"])
def test_a_checkpoint_that_does_not_fit_does_no_harm(narrow, uninterrupted, eager, tmp_path, kind):
    for stage, name in (("choose", "0"), ("choose", "2"), ("fit", "0")):
        file = tmp_path / stage / f"{name}.npz"
        file.parent.mkdir(exist_ok=True)
        if kind == "other":
            np.savez(file, *[np.ones((7, 5))] * 9)
        else:
            file.write_bytes(b"no archive")
    done, news = fit_long(narrow, tmp_path)
    assert news == uninterrupted[1]
    check_same_fits(done, uninterrupted[0])
