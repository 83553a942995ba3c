"""The compiled engine: closed form, the steps it takes, and groups."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from tiers import slow_but

from pmbnn.core.stages import on_progress
from pmbnn.inference.advi import build_program, init
from pmbnn.inference.batches import batch_indices
from pmbnn.inference.groups import WINDOWS, Checkpoints, start_means
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.guides import initial_means, softplus
from pmbnn.inference.program import build_replicas
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla import rewrites
from pmbnn.inference.xla.compile import precision
from pmbnn.models.build import dense_classifier

ROWS, WIDTH = 60, 16
X = np.random.default_rng(0).normal(size=(ROWS, 2))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)


def replica(i, learning_rate=None, **data):
    """The `i`-th replica of a group: scales and inputs differ, unless given."""
    own = {"x": X + 0.1 * i, "target": (Y + i) % 2, "hyperprior_sigma": 0.5 + 0.1 * i}
    return Replica(own | data, derive_keys(f"replica/{i}"), learning_rate)


def check_equal(fits, expected):
    """Bit for bit."""
    for fit, other in zip(fits, expected, strict=True):
        assert list(fit.constrained) == list(other.constrained)
        for name in fit.constrained:
            np.testing.assert_array_equal(fit.constrained[name], other.constrained[name])
        for name in ("step", "elbo", "log_likelihood", "kl"):
            found, wanted = (getattr(f.history, name) for f in (fit, other))
            np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(fit.scale, other.scale)
        np.testing.assert_array_equal(fit.elbo, other.elbo)
        assert (fit.status, fit.reason) == (other.status, other.reason)
        assert fit.learning_rate == other.learning_rate


# --- closed form --------------------------------------------------------------------------


def linear_regression(sigma=0.8, prior=1.5):
    """Model, and mean of its posterior; the inputs are correlated."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ROWS, 3)) @ np.array([[1, 0.8, 0], [0, 0.6, 0.3], [0, 0, 1]])
    y = x @ [1.0, -2.0, 0.5] + sigma * rng.normal(size=ROWS)
    with pm.Model() as model:
        weight = pm.Normal("weight", 0.0, prior, shape=3)
        pm.Normal("y", x @ weight, sigma, observed=y)
    posterior_precision = x.T @ x / sigma**2 + np.eye(3) / prior**2
    mean = np.linalg.solve(posterior_precision, x.T @ y / sigma**2)
    return model, mean


# --- the steps ----------------------------------------------------------------------------


def classifier(prior="normal", hyperprior="half_normal"):
    return dense_classifier(X, Y, hidden=(3,), prior=prior, hyperprior=hyperprior)


def start_of(program, one):
    """Unconstrained parameters at the start of a mean-field guide."""
    rng = np.random.default_rng(one.keys.initial)
    loc = initial_means(program.flat.layout, program.settings, rng)
    return program.guide.initial(loc, program.settings.initial_scale, rng)


def expected_parts(program, one):
    """Mean log-likelihood and divergence of each window while parameters stay at their start."""
    start = {name: jnp.asarray(value) for name, value in start_of(program, one).items()}
    steps, key = program.steps, jnp.asarray(one.keys.noise[:2])
    rows = batch_indices(one.keys.batches, program.rows, program.batch, 0, steps)
    if program.batch == program.rows:
        rows = np.tile(np.arange(ROWS), (steps, 1))

    def parts(step, rows):
        x, target = (jnp.asarray(one.data[name])[rows] for name in ("x", "target"))
        prepared = program.prepare({**one.data, "x": x, "target": target})
        return jnp.stack(program.parts(start, program.noise(key, step), prepared))

    found = np.asarray(jax.jit(jax.vmap(parts))(jnp.arange(steps), rows))
    window = -(-steps // WINDOWS)
    cuts = range(window, steps, window)
    return np.array([part.mean(axis=0) for part in np.split(found, cuts)]).T


@pytest.mark.slow
@pytest.mark.parametrize("batch", [None, 25])
def test_noise_and_rows_of_every_step(batch):
    """Steps too short to matter: the history is the ELBO at the start, step by step.

    Each step has noise of its own, from the replica's PRNG key; a minibatch fit sees the rows of
    that step, across passes, segments and the shorter last segment.
    """
    weights = {"kl_weight": 0.3, "kl_annealing": 0.9, "kl": "monte_carlo"}
    still = {"steps": 401, "learning_rate": 1e-12, "initial_scale": 0.5}
    settings = Inference(batch=batch, **still, **weights)
    program = build_program(classifier(), settings, ROWS, width=3, dtype="float64")
    group = [replica(i) for i in range(3)]
    fits = fit_replicas(program, group)
    for fit, one in zip(fits, group, strict=True):
        history = fit.history
        np.testing.assert_array_equal(history.step, [*range(3, 401, 3), 401])
        with precision("float64"):
            log_likelihood, kl = expected_parts(program, one)
        np.testing.assert_allclose(history.log_likelihood, log_likelihood, rtol=1e-7)
        np.testing.assert_allclose(history.kl, kl, rtol=1e-7)
        # The weight in full, also while a fit is warming up.
        np.testing.assert_allclose(history.elbo, log_likelihood - 0.3 * kl, rtol=1e-7)
        start = start_of(program, one)
        np.testing.assert_allclose(fit.loc, start["loc"], atol=1e-9)
        np.testing.assert_allclose(fit.scale, softplus(start["rho"]), rtol=1e-8)
        assert fit.elbo == pytest.approx(history.elbo[-13:].mean(), rel=1e-12)
    assert np.ptp(fits[0].history.elbo) > 1


@pytest.mark.slow
def test_minibatches_reach_the_optimum():
    """Weighted minibatches maximise the same ELBO: an unweighted fit would keep to the prior."""
    settings = {"steps": 4000, "schedule": "cosine", "initial_mean": "zero"}
    model = dense_classifier(X, (X[:, 0] > 0).astype(int), hidden=(), prior="normal")
    data = {"x": X, "target": (X[:, 0] > 0).astype(int), "prior_scale": 1.0}
    group = [Replica(data, derive_keys(str(i))) for i in range(8)]
    full, mini = (
        fit_replicas(
            build_program(model, Inference(batch=b, **settings), ROWS, 8, "float64"), group
        )
        for b in (None, 15)
    )
    samples = [np.array([fit.loc for fit in fits]) for fits in (full, mini)]
    errors = [s.std(axis=0, ddof=1) / np.sqrt(8) for s in samples]
    difference = samples[0].mean(axis=0) - samples[1].mean(axis=0)
    assert (np.abs(difference) < 5 * np.hypot(*errors)).all()
    # A quarter of the likelihood would move the steepest weights far beyond that.
    assert np.abs(samples[0].mean(axis=0)).max() > 20 * np.hypot(*errors).max()


FEWER = {
    "whole": {},
    "divergence by tensor": {"kl_scaling": "first_dimension", "kl_weight": 0.1},
    "minibatches": {"batch": 15, "steps": None, "epochs": 5},
    "means from the mode": {"initial_mean": "map"},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(FEWER))
def test_a_program_runs_fits_of_fewer_rows(kind):
    """As one that was made for so many does."""
    settings = Inference(**({"steps": 60} | FEWER[kind]))
    program = build_program(classifier(), settings, ROWS, 2, "float64", allow_fewer_rows=True)
    few = [replica(i, x=X[:45] + 0.1 * i, target=Y[:45]) for i in range(3)]
    own = build_program(classifier(), settings, 45, 2, "float64")
    for fit, expected in zip(fit_replicas(program, few), fit_replicas(own, few), strict=True):
        np.testing.assert_allclose(fit.loc, expected.loc, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(fit.scale, expected.scale, rtol=1e-6)
        np.testing.assert_allclose(fit.history.elbo[-1], expected.history.elbo[-1], rtol=1e-6)
    whole = [replica(i) for i in range(2)]
    own = build_program(classifier(), settings, ROWS, 2, "float64")
    for fit, expected in zip(fit_replicas(program, whole), fit_replicas(own, whole), strict=True):
        np.testing.assert_allclose(fit.loc, expected.loc, rtol=1e-6, atol=1e-9)


def test_which_numbers_of_rows_a_program_takes(program):
    full, mini = (
        build_program(classifier(), Inference(batch=batch, steps=10), ROWS, allow_fewer_rows=True)
        for batch in (None, 15)
    )
    assert [full.supports(rows) for rows in (1, ROWS, ROWS + 1)] == [True, True, False]
    assert [mini.supports(rows) for rows in (14, 15, ROWS)] == [False, True, True]
    assert [program.supports(rows) for rows in (ROWS - 1, ROWS)] == [False, True]
    with pm.Model(coords={"observation": range(ROWS)}) as together:
        y = pm.Data("y", np.zeros(ROWS), dims="observation")
        mean = pm.Normal("mean")
        pm.MvNormal("seen", mean * np.ones(ROWS), np.eye(ROWS), observed=y)
    whole = build_program(together, Inference(steps=10), ROWS, allow_fewer_rows=True)
    assert [whole.supports(rows) for rows in (ROWS - 1, ROWS)] == [False, True]


@pytest.mark.slow
def test_one_by_one():
    """Width 1 maps nothing; it starts and steps all the same."""
    settings = Inference(steps=300)
    program = build_program(classifier(), settings, ROWS, width=1)
    group = [replica(0), replica(1)]
    fits = fit_replicas(program, group)
    check_equal(fit_replicas(program, group[::-1]), fits[::-1])
    assert all(fit.history.elbo[-30:].mean() > fit.history.elbo[:30].mean() for fit in fits)
    assert fits[0].loc.dtype == np.float32
    assert program.compiled_run._cache_size() == 1


# --- groups -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def program():
    """Single precision, a width of 16, and a last segment shorter than the others."""
    return build_program(classifier(), Inference(steps=401), ROWS, WIDTH)


@pytest.fixture(scope="module")
def sixteen(program):
    return fit_replicas(program, [replica(i) for i in range(WIDTH)])


def test_replicas_differ(sixteen):
    assert len({fit.loc.tobytes() for fit in sixteen}) == WIDTH
    assert all(fit.history.elbo[-1] > fit.history.elbo[0] for fit in sixteen)
    assert all(np.isfinite(fit.loc).all() for fit in sixteen)


@pytest.mark.parametrize(
    "company",
    slow_but(
        [[4], [3, 1, 2], [*range(16), 2, 0]],
        [[4], [3, 1, 2], [15, 0, 7, 8, 9], [*range(5, 16), *range(5)], [*range(16), 2, 0]],
    ),
)
def test_company_does_not_matter(program, sixteen, company):
    """Alone, in groups of 3, 5, 16 and 18 (two runs), in any place: the same bits."""
    check_equal(fit_replicas(program, [replica(i) for i in company]), [sixteen[i] for i in company])


BROKEN = {"x": {"x": np.full_like(X, np.nan)}, "constant": {"hyperprior_sigma": 1e-300}}


@pytest.mark.parametrize("how", BROKEN)
def test_divergence_is_contained(program, sixteen, how):
    """A replica that is not a number neither stops nor touches the others."""
    group = [replica(i, **(BROKEN[how] if i in (0, 5) else {})) for i in range(WIDTH)]
    fits = fit_replicas(program, group)
    for i in (0, 5):
        assert fits[i].failed
        assert fits[i].reason == "the ELBO was not finite by step 3"
        assert not np.isfinite(fits[i].elbo)
    healthy = [i for i in range(WIDTH) if i not in (0, 5)]
    check_equal([fits[i] for i in healthy], [sixteen[i] for i in healthy])


def test_all_diverged_stops(program):
    news = []
    fits = fit_replicas(program, [replica(0, **BROKEN["x"])], lambda *new: news.append(new))
    [(done, total, elbo, _)] = news
    assert (done, total) == (3, 401)
    assert np.isnan(elbo)
    np.testing.assert_array_equal(fits[0].history.step, [3])
    assert fits[0].status == "diverged"


def test_progress_is_of_the_living(program, sixteen):
    """The mean over replicas still alive, at the end of every segment."""
    news = []
    fit_replicas(
        program,
        [replica(i, **(BROKEN["x"] if i == 3 else {})) for i in range(WIDTH)],
        lambda *new: news.append(new),
    )
    alive = [fit for i, fit in enumerate(sixteen) if i != 3]
    expected = np.mean([fit.history.elbo for fit in alive], axis=0)
    np.testing.assert_allclose([elbo for *_, elbo, _ in news], expected, rtol=1e-12)
    np.testing.assert_array_equal([done for done, *_ in news], sixteen[0].history.step)


@pytest.mark.parametrize(
    ("guide", "objective"),
    [("mean_field", "ELBO"), ("map", "log-posterior"), ("maximum_likelihood", "log-likelihood")],
)
def test_progress_and_verdict_name_what_is_maximised(guide, objective):
    model, _ = linear_regression()
    program = build_program(model, Inference(guide=guide, steps=400), ROWS, 1, "float64")
    updates = []
    with on_progress(updates.append):
        (fit,) = fit_replicas(program, build_replicas(model))
    words = [stages[-1].words for stages in updates if stages and stages[-1].stage == "fit"]
    assert words[-1].startswith(f"{objective} ")
    assert f"raised the {objective} by" in fit.reason


def test_progress_gives_the_fit_as_it_is(program, sixteen):
    """Whenever it is asked for, it is the fit at that step; at the end, the fit itself."""
    news = []
    fit_replicas(program, [replica(i) for i in range(WIDTH)], lambda *new: news.append(new))
    (half, *_, early), (steps, *_, last) = news[len(news) // 2], news[-1]
    check_equal([last()], sixteen[:1])
    kept = fit_replicas(program, [replica(i) for i in range(WIDTH)], snapshots=(half, steps))[
        0
    ].snapshots
    np.testing.assert_array_equal(early().loc, kept[0].constrained["loc"])
    assert early().history.step[-1] == half
    assert early().replica == last().replica == 0


def test_one_program(program):
    """Other data values, group sizes and segments: nothing is compiled twice."""
    for group in ([0], [1, 2, 3], [*range(WIDTH + 1)]):
        fit_replicas(program, [replica(i) for i in group])
    fit_replicas(program, [replica(0, hyperprior_sigma=2.0), replica(1, **BROKEN["x"])])
    assert program.compiled_run._cache_size() == 1


# --- improper priors ----------------------------------------------------------------------


def test_flat_prior():
    """Scales that the data say nothing about stop at the cap; the status tells."""
    model = dense_classifier(X, (X[:, 0] > 0).astype(int), hidden=(), prior="flat")
    settings = Inference(steps=1000, improper_scale_cap=0.5, schedule="constant")
    program = build_program(model, settings, ROWS, width=1)
    [fit] = fit_replicas(
        program, [Replica({"x": X, "target": (X[:, 0] > 0).astype(int)}, replica(0).keys)]
    )
    assert fit.status == "improper"
    assert not fit.failed
    assert fit.reason == "the posterior is improper, its ELBO has no maximum"
    assert fit.scale.max() == 0.5


def test_proper_priors_have_no_cap():
    """Scales of a wide prior that nothing informs grow past the cap, to the prior's."""
    with pm.Model() as model:
        weight = pm.Normal("weight", 0.0, 3.0)
        pm.Normal("y", 0.0 * weight, 1.0, observed=np.zeros(5))
    settings = Inference(steps=3000, improper_scale_cap=0.5, schedule="cosine")
    program = build_program(model, settings, rows=5, width=WIDTH, dtype="float64")
    fits = fit_replicas(program, [Replica({}, derive_keys(str(i))) for i in range(WIDTH)])
    scales = np.array([fit.scale[0] for fit in fits])
    # Nothing about it is random: its divergence is exact, and no observation sees it.
    np.testing.assert_allclose(scales, 3, rtol=1e-6)
    assert {fit.status for fit in fits} <= {"converged", "not_converged"}


# --- groups of every kind -----------------------------------------------------------------


KINDS = {
    "low_rank": {"guide": "low_rank", "rank": 2},
    "full_rank": {"guide": "full_rank"},
    "flipout": {"estimator": "flipout"},
    "minibatches": {"batch": 25, "optimiser": "adamax", "iterate_averaging": 0.3},
    "map_start": {"initial_mean": "map", "estimator": "path_derivative"},
}
RATES = [None, 0.003, 0.1, 0.02]


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(KINDS))
def test_company_does_not_matter_to_any_kind(kind):
    """With learning rates of their own, replicas are the same alone and in any place."""
    program = build_program(classifier(), Inference(steps=30, **KINDS[kind]), ROWS, width=4)
    group = [replica(i, rate) for i, rate in enumerate(RATES)]
    four = fit_replicas(program, group)
    assert [fit.learning_rate for fit in four] == [0.02, 0.003, 0.1, 0.02]
    assert len({fit.loc.tobytes() for fit in four}) == 4
    for company in ([2], [3, 1], [1, 0, 3, 2, 1]):
        check_equal(fit_replicas(program, [group[i] for i in company]), [four[i] for i in company])
    assert program.compiled_run._cache_size() == 1


@pytest.mark.slow
def test_learning_rates_of_replicas_are_used():
    """A group of three rates is three groups with one rate each."""
    group = [replica(0, rate) for rate in (0.003, 0.1)]
    program = build_program(classifier(), Inference(steps=30), ROWS, width=2)
    other = build_program(classifier(), Inference(steps=30, learning_rate=0.1), ROWS, width=2)
    fits = fit_replicas(program, group)
    check_equal(fit_replicas(other, [replica(0)]), [fits[1]])
    assert (fits[0].loc != fits[1].loc).all()


# --- stops --------------------------------------------------------------------------------


def logistic(prior="normal"):
    return dense_classifier(X, LABELS, hidden=(), prior=prior)


LABELS = (X[:, 0] + np.random.default_rng(5).normal(size=ROWS) > 0).astype(int)
LINEAR = {"x": X, "target": LABELS, "prior_scale": 1.0}
STOP = {"steps": 2000, "schedule": "constant", "initial_mean": "zero"}


def far_mean():
    """A normal mean at 10, which a guide reaches from 0 at the pace of its learning rate."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 10.0)
        target = pm.Data("target", np.zeros(ROWS), dims="observation")
        pm.Normal("y", mu, 1.0, observed=target, dims="observation")
    return model


def at_rate(rate, target=10.0):
    return Replica({"target": np.full(ROWS, target)}, derive_keys(f"rate/{rate}"), rate)


@pytest.fixture(scope="module")
def stopping():
    """A program that stops fits early, and replicas that stop soon, late and never."""
    program = build_program(far_mean(), Inference(early_stop=True, **STOP), ROWS, width=4)
    group = [at_rate(rate) for rate in (0.1, 0.02, 0.001)]
    return program, group, fit_replicas(program, group)


def test_stops(stopping):
    """Histories end where their fits did, and the verdict is that of the stop."""
    _, _, fits = stopping
    ends = [fit.history.step[-1] for fit in fits]
    assert ends[0] < 0.5 * ends[1]
    assert ends[1] < ends[2] == 2000
    assert [fit.status for fit in fits] == ["converged", "converged", "not_converged"]
    for fit, end in zip(fits, ends, strict=True):
        np.testing.assert_array_equal(fit.history.step, np.arange(10, end + 1, 10))
    found = [fit.loc[0] for fit in fits]
    assert found[:2] == pytest.approx([10, 10], abs=1)
    assert found[2] < 5


def test_stops_whatever_the_company(stopping):
    program, group, fits = stopping
    for company in ([0], [2, 1], [1, 2, 0, 1, 0]):
        check_equal(fit_replicas(program, [group[i] for i in company]), [fits[i] for i in company])


def test_a_stop_is_the_end_of_a_shorter_fit(stopping):
    """Nothing after it shows; what goes on is what it would be without stops."""
    program, group, fits = stopping
    plain = build_program(far_mean(), Inference(**STOP), ROWS, width=4)
    check_equal(fit_replicas(plain, group)[2:], fits[2:])
    for i in (0, 1):
        check_equal(fit_replicas(plain, [group[i]], steps=int(fits[i].history.step[-1])), [fits[i]])


def test_a_stopped_group_is_over(stopping):
    program, group, fits = stopping
    news = []
    fit_replicas(program, group[:2], lambda *new: news.append(new))
    assert news[-1][0] == max(fit.history.step[-1] for fit in fits[:2])
    assert {total for _, total, *_ in news} == {2000}


def test_stops_beside_a_divergence(stopping):
    """A replica that is not a number never stops, nor keeps the others from it."""
    program, group, fits = stopping
    broken = at_rate(0.1, np.nan)
    found = fit_replicas(program, [broken, group[1], group[0]])
    assert found[0].status == "diverged"
    check_equal(found[1:], [fits[1], fits[0]])


@pytest.mark.slow
def test_shorter_fits():
    """A number of steps is that of settings which say so."""
    program, short = (
        build_program(classifier(), Inference(steps=n, batch=25), ROWS, width=2) for n in (401, 40)
    )
    group = [replica(0), replica(1)]
    news = []
    found = fit_replicas(program, group, lambda *new: news.append(new), steps=40)
    assert [done for done, *_ in news] == [*range(3, 40, 3), 40]
    assert {total for _, total, *_ in news} == {40}
    for fit, expected in zip(found, fit_replicas(short, group), strict=True):
        np.testing.assert_array_equal(fit.loc, expected.loc)
        np.testing.assert_array_equal(fit.scale, expected.scale)
        first, firsts = fit.history.log_likelihood[0], expected.history.log_likelihood[:3]
        np.testing.assert_allclose(first, firsts.mean(), rtol=1e-5)


# --- checkpoints --------------------------------------------------------------------------


class Interrupted(Exception):
    pass


def interrupt_at(window):
    """Progress that raises at a window, counted over all chunks."""
    count = iter(range(1, 10_000))

    def progress(*new):
        if next(count) == window:
            raise Interrupted

    return progress


def nothing_is_left(*new):
    pytest.fail("nothing is left to do")


def check_resumes(program, group, folder, window, left):
    """Interrupted at a window, a fit goes on for those that were `left`, to the same bits."""
    expected, news = fit_replicas(program, group), []
    checkpoints = Checkpoints(folder, interval=0.0)
    with pytest.raises(Interrupted):
        fit_replicas(program, group, interrupt_at(window), checkpoints)
    found = fit_replicas(program, group, lambda *new: news.append(new), checkpoints)
    check_equal(found, expected)
    assert len(news) == left
    again = fit_replicas(
        program, group, lambda *new: pytest.fail("nothing is left to do"), checkpoints
    )
    check_equal(again, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "batch"), [(1, None), (1, 25), (16, None), (16, 25)])
def test_resumed(width, batch, tmp_path):
    """Two chunks of 50 windows, the second interrupted in its 21st: 30 are left."""
    how = {"optimiser": "adamax", "iterate_averaging": 0.3, "clip": 5.0}
    settings = Inference(steps=50, batch=batch, **how)
    program = build_program(classifier(), settings, ROWS, width)
    group = [replica(i) for i in range(width + 1)]
    check_resumes(program, group, tmp_path, 71, 30)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 2])
def test_resumed_in_pieces(width, tmp_path, monkeypatch):
    """The same of vectors that the loop keeps in pieces."""
    monkeypatch.setattr(rewrites, "LARGE", 6)
    program = build_program(classifier(), Inference(steps=50, iterate_averaging=0.3), ROWS, width)
    assert len(program.objective.leaves) > 1
    group = [replica(i) for i in range(width + 1)]
    check_resumes(program, group, tmp_path, 71, 30)


def test_resumed_after_a_stop(stopping, tmp_path):
    """Who had stopped stays so: interrupted 21 windows after the first replica's stop."""
    program, group, fits = stopping
    first, last = (len(fit.history.step) for fit in fits[:2])
    check_resumes(program, group[:2], tmp_path, first + 21, last - first - 20)


def test_resumed_after_divergence(program, tmp_path):
    """All have diverged: not a window is run again."""
    group, checkpoints = [replica(0, **BROKEN["x"])], Checkpoints(tmp_path, interval=0.0)
    expected = fit_replicas(program, group, None, checkpoints)
    check_equal(
        fit_replicas(program, group, lambda *new: pytest.fail("it is over"), checkpoints), expected
    )


# --- starts, points and averages ----------------------------------------------------------


@pytest.mark.slow
def test_means_start_at_the_map():
    """That of the same keys and rates, after a tenth of the steps."""
    still = {"steps": 200, "schedule": "constant", "kl_weight": 0.5}
    group = [replica(0, 1e-12), replica(1, 1e-12)]
    quick = [Replica(m.data, m.keys, 0.1) for m in group]
    point = Inference(guide="map", **still | {"steps": 20})
    expected = fit_replicas(build_program(classifier(), point, ROWS, 2, "float64"), quick)
    program = build_program(
        classifier(), Inference(initial_mean="map", **still), ROWS, 2, "float64"
    )
    starter = program.starter
    check_equal(fit_replicas(starter, quick), expected)
    starts = start_means(program, quick)
    for start, fit in zip(starts, expected, strict=True):
        np.testing.assert_array_equal(start, fit.loc)
    begun = init(quick, program, starts).parameters
    np.testing.assert_array_equal(begun["loc"], starts)
    np.testing.assert_allclose(softplus(begun["rho"]), 0.05, rtol=1e-6)
    moved = starts[0] - start_means(starter, quick)[0]
    assert (np.abs(moved) > 0.01).any()
    [first, _] = fit_replicas(program, group)
    np.testing.assert_allclose(first.loc, start_means(program, group)[0], atol=1e-8)


@pytest.mark.slow
def test_averages_are_reported():
    """They are steadier than the last step, and nothing of the way changes."""
    model, mean = linear_regression()
    how = {"steps": 1500, "schedule": "constant", "learning_rate": 0.03}
    group = [Replica({}, derive_keys(str(i))) for i in range(8)]
    last, averaged = (
        fit_replicas(
            build_program(model, Inference(iterate_averaging=share, **how), ROWS, 8, "float64"),
            group,
        )
        for share in (0.0, 0.5)
    )
    for a, b in zip(last, averaged, strict=True):
        np.testing.assert_allclose(a.history.elbo, b.history.elbo, rtol=1e-9)
    errors = [np.mean([(fit.loc - mean) ** 2 for fit in fits]) for fits in (last, averaged)]
    assert errors[1] < 0.25 * errors[0]


def likelihood_and_slope(weights):
    """Negative log-likelihood of `LABELS` under a linear softmax, and its gradient."""
    x = np.column_stack([X, np.ones(ROWS)])
    outputs = x @ weights.reshape(3, 2)
    shares = softmax(outputs, axis=1)
    nll = -log_softmax(outputs, axis=1)[range(ROWS), LABELS].sum()
    return nll, (x.T @ (shares - np.eye(2)[LABELS])).ravel()


def test_maximum_likelihood_equals_scipy():
    """The prior has no say, however narrow it is; outputs are found up to a common shift."""
    best = minimize(likelihood_and_slope, np.zeros(6), jac=True, options={"gtol": 1e-10})
    settings = Inference(guide="maximum_likelihood", steps=1500, schedule="cosine")
    program = build_program(logistic(), settings, ROWS, 1, "float64")
    [fit] = fit_replicas(program, [Replica(LINEAR | {"prior_scale": 1e-3}, derive_keys("a"), 0.1)])
    assert fit.history.log_likelihood[-1] == pytest.approx(-best.fun, rel=1e-7)
    assert not fit.history.kl.any()
    np.testing.assert_array_equal(fit.history.elbo, fit.history.log_likelihood)
    weights = {slot.name: slot.of(fit.loc) for slot in program.flat.layout.slots}
    found = np.concatenate([weights["weight_1"], weights["bias_1"][None]])
    np.testing.assert_allclose(np.diff(found), np.diff(best.x.reshape(3, 2)), atol=1e-4)
    assert not fit.scale.any()
    assert fit.kl_forms == {}


def test_map_is_the_posterior_mode():
    """Of a conjugate regression, the mean; its ELBO is the log-joint density there."""
    model, mean = linear_regression()
    settings = Inference(guide="map", steps=1500, schedule="cosine")
    program = build_program(model, settings, ROWS, 1, "float64")
    [fit] = fit_replicas(program, [Replica({}, derive_keys("a"), 0.1)])
    np.testing.assert_allclose(fit.loc, mean, rtol=1e-6)
    joint = model.compile_logp(mode="FAST_COMPILE")({"weight": mean})
    assert fit.history.elbo[-1] == pytest.approx(float(joint), rel=1e-9)
    assert list(fit.constrained) == ["loc"]
    assert fit.status == "converged"


@pytest.mark.parametrize("guide", slow_but(["map"], ["map", "maximum_likelihood"]))
def test_points_under_a_flat_prior_are_proper(guide):
    """A mode needs no normalised density, and there is no scale to cap."""
    settings = Inference(guide=guide, steps=300)
    program = build_program(logistic("flat"), settings, ROWS, 1, "float64")
    [fit] = fit_replicas(program, [Replica({"x": X, "target": LABELS}, derive_keys("a"), 0.1)])
    best = minimize(likelihood_and_slope, np.zeros(6), jac=True)
    assert fit.status == "converged"
    assert fit.history.elbo[-1] == pytest.approx(-best.fun, rel=1e-4)


def test_a_mode_of_scales_is_without_the_jacobian():
    """Of the scale itself: of an inverse-gamma density, beta / (alpha + 1)."""
    with pm.Model() as model:
        pm.InverseGamma("scale", 2.0, 0.6)
        pm.Normal("y", 0.0, 1.0, observed=np.zeros(3))
    settings = Inference(guide="map", steps=500, schedule="cosine")
    program = build_program(model, settings, 3, 1, "float64")
    [fit] = fit_replicas(program, [Replica({}, derive_keys("a"), 0.1)])
    assert np.exp(fit.loc[0]) == pytest.approx(0.2, rel=1e-5)


def test_guides_that_do_not_fit_are_rejected():
    """Before anything is compiled."""
    with pm.Model() as model:
        pm.Normal("weight", shape=5001)
        pm.Normal("y", 0.0, 1.0, observed=np.zeros(3))
    with pytest.raises(ValueError, match="`guide` must not be full_rank"):
        build_program(model, Inference(guide="full_rank"), 3, 1)


def test_a_fit_has_the_forms_of_its_divergence(sixteen):
    assert set(sixteen[0].kl_forms.values()) == {"exact"}
    assert len(sixteen[0].kl_forms) == 6
