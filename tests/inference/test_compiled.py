"""The compiled engine: closed form, the steps it takes, and groups."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytest

from pmbnn.inference.batches import batch_indices
from pmbnn.inference.compiled import CompiledEngine
from pmbnn.inference.fit import Member, random_streams
from pmbnn.inference.guides import MeanFieldParameters, initial_parameters, softplus
from pmbnn.inference.jax_edge import precision
from pmbnn.inference.settings import Inference
from pmbnn.models import dense_classifier

ROWS, WIDTH = 60, 16
X = np.random.default_rng(0).normal(size=(ROWS, 2))
Y = (X[:, 0] * X[:, 1] > 0).astype(int)


def member(i, **data):
    """The `i`-th member of a group: scales and inputs differ, unless given."""
    own = {"x": X + 0.1 * i, "target": (Y + i) % 2, "hyperprior_sigma": 0.5 + 0.1 * i}
    return Member(own | data, random_streams(f"member/{i}"))


def check_equal(fits, expected):
    """Bit for bit."""
    for fit, other in zip(fits, expected, strict=True):
        for name in ("loc", "scale", "elbo_history", "elbo_step"):
            np.testing.assert_array_equal(getattr(fit, name), getattr(other, name))
        assert (fit.status, fit.reason) == (other.status, other.reason)


# --- closed form --------------------------------------------------------------------------


def linear_regression(sigma=0.8, prior=1.5):
    """Model, and mean and precision of its posterior; the inputs are correlated."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(ROWS, 3)) @ np.array([[1, 0.8, 0], [0, 0.6, 0.3], [0, 0, 1]])
    y = x @ [1.0, -2.0, 0.5] + sigma * rng.normal(size=ROWS)
    with pm.Model() as model:
        weight = pm.Normal("weight", 0.0, prior, shape=3)
        pm.Normal("y", x @ weight, sigma, observed=y)
    posterior_precision = x.T @ x / sigma**2 + np.eye(3) / prior**2
    mean = np.linalg.solve(posterior_precision, x.T @ y / sigma**2)
    evidence = pm.MvNormal.dist(np.zeros(ROWS), sigma**2 * np.eye(ROWS) + prior**2 * x @ x.T)
    return model, mean, posterior_precision, float(pm.logp(evidence, y).eval(mode="FAST_COMPILE"))


def test_linear_regression():
    """Means are the posterior's, scales the inverse roots of the precision's diagonal.

    Sixteen fits that differ in nothing but noise give the error to expect of their mean.
    """
    model, mean, posterior_precision, log_evidence = linear_regression()
    settings = Inference(steps=4000, schedule="cosine", learning_rate=0.05)
    engine = CompiledEngine(model, settings, ROWS, WIDTH, dtype="float64")
    fits = engine.fit([Member({}, random_streams(str(i))) for i in range(WIDTH)])
    scale = 1 / np.sqrt(np.diag(posterior_precision))
    marginal = np.sqrt(np.diag(np.linalg.inv(posterior_precision)))
    assert marginal[0] > 1.3 * scale[0]
    for name, exact in (("loc", mean), ("scale", scale)):
        found = np.array([getattr(fit, name) for fit in fits])
        error = found.std(axis=0, ddof=1) / np.sqrt(WIDTH)
        assert (np.abs(found.mean(axis=0) - exact) < 4.5 * error).all()
        assert (error < 0.02 * scale).all()
    # The ELBO is the evidence less the divergence of the guide from the posterior.
    gap = np.log(np.prod(scale**2) * np.linalg.det(posterior_precision))
    elbos = np.array([fit.elbo for fit in fits])
    assert abs(elbos.mean() - (log_evidence + 0.5 * gap)) < 4.5 * elbos.std(ddof=1) / 4
    assert abs(gap) > 10 * elbos.std(ddof=1) / 4
    assert {fit.status for fit in fits} == {"converged"}


# --- the steps ----------------------------------------------------------------------------


def classifier(prior="normal", hyperprior="half_normal"):
    return dense_classifier(X, Y, hidden=(3,), prior=prior, hyperprior=hyperprior)


def start_of(engine, one):
    rng = np.random.default_rng(one.streams.initial)
    return initial_parameters(engine.flat.slots, engine.settings, rng)


def expected_history(engine, one):
    """Mean ELBO of each window while the parameters stay where they start."""
    start = MeanFieldParameters(*map(jnp.asarray, start_of(engine, one)))
    key = jax.random.wrap_key_data(one.streams.noise[:2], impl="threefry2x32")
    size, steps = engine.flat.size, engine.steps
    rows = batch_indices(one.streams.batches, engine.rows, engine.batch, 0, steps)
    if engine.batch == engine.rows:
        rows = np.tile(np.arange(ROWS), (steps, 1))

    def elbo(step, rows):
        noise = jax.random.normal(jax.random.fold_in(key, step), (size,), "float64")
        x, target = (jnp.asarray(one.data[name])[rows] for name in ("x", "target"))
        data = {**one.data, "x": x, "target": target}
        return -engine._loss(start, noise, data)

    elbos = np.asarray(jax.jit(jax.vmap(elbo))(jnp.arange(steps), rows))
    cuts = range(engine.segment, steps, engine.segment)
    return np.array([part.mean() for part in np.split(elbos, cuts)])


@pytest.mark.parametrize("batch", [None, 25])
def test_noise_and_rows_of_every_step(batch):
    """Steps too short to matter: the history is the ELBO at the start, step by step.

    Each step has noise of its own, from the member's stream; a minibatch fit sees the rows of
    that step, across passes, segments and the shorter last segment.
    """
    settings = Inference(steps=401, batch=batch, learning_rate=1e-12, initial_scale=0.5)
    engine = CompiledEngine(classifier(), settings, ROWS, width=3, dtype="float64")
    group = [member(i) for i in range(3)]
    fits = engine.fit(group)
    for fit, one in zip(fits, group, strict=True):
        np.testing.assert_array_equal(fit.elbo_step, [*range(3, 401, 3), 401])
        with precision("float64"):
            np.testing.assert_allclose(fit.elbo_history, expected_history(engine, one), rtol=1e-7)
        loc, rho = start_of(engine, one)
        np.testing.assert_allclose(fit.loc, loc, atol=1e-9)
        np.testing.assert_allclose(fit.scale, softplus(rho), rtol=1e-8)
    assert np.ptp(fits[0].elbo_history) > 1


def test_minibatches_reach_the_optimum():
    """Weighted minibatches maximise the same ELBO: an unweighted fit would keep to the prior."""
    settings = {"steps": 4000, "schedule": "cosine", "initial_mean": "zero"}
    model = dense_classifier(X, (X[:, 0] > 0).astype(int), hidden=(), prior="normal")
    data = {"x": X, "target": (X[:, 0] > 0).astype(int), "prior_scale": 1.0}
    group = [Member(data, random_streams(str(i))) for i in range(8)]
    full, mini = (
        CompiledEngine(model, Inference(batch=b, **settings), ROWS, 8, "float64").fit(group)
        for b in (None, 15)
    )
    samples = [np.array([fit.loc for fit in fits]) for fits in (full, mini)]
    errors = [s.std(axis=0, ddof=1) / np.sqrt(8) for s in samples]
    difference = samples[0].mean(axis=0) - samples[1].mean(axis=0)
    assert (np.abs(difference) < 5 * np.hypot(*errors)).all()
    # A quarter of the likelihood would move the steepest weights far beyond that.
    assert np.abs(samples[0].mean(axis=0)).max() > 20 * np.hypot(*errors).max()


def test_one_by_one():
    """Width 1 has a generator of its own; it starts and steps all the same."""
    settings = Inference(steps=300)
    engine = CompiledEngine(classifier(), settings, ROWS, width=1)
    group = [member(0), member(1)]
    fits = engine.fit(group)
    check_equal(engine.fit(group[::-1]), fits[::-1])
    assert all(fit.elbo_history[-30:].mean() > fit.elbo_history[:30].mean() for fit in fits)
    assert fits[0].loc.dtype == np.float32
    assert engine._program._cache_size() == 1


# --- groups -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine():
    """Single precision, a width of 16, and a last segment shorter than the others."""
    return CompiledEngine(classifier(), Inference(steps=401), ROWS, WIDTH)


@pytest.fixture(scope="module")
def sixteen(engine):
    return engine.fit([member(i) for i in range(WIDTH)])


def test_members_differ(sixteen):
    assert len({fit.loc.tobytes() for fit in sixteen}) == WIDTH
    assert all(fit.elbo_history[-1] > fit.elbo_history[0] for fit in sixteen)
    assert all(np.isfinite(fit.loc).all() for fit in sixteen)


@pytest.mark.parametrize(
    "company", [[4], [3, 1, 2], [15, 0, 7, 8, 9], [*range(5, 16), *range(5)], [*range(16), 2, 0]]
)
def test_company_does_not_matter(engine, sixteen, company):
    """Alone, in groups of 3, 5, 16 and 18 (two runs), in any place: the same bits."""
    check_equal(engine.fit([member(i) for i in company]), [sixteen[i] for i in company])


BROKEN = {"x": {"x": np.full_like(X, np.nan)}, "constant": {"hyperprior_sigma": 1e-300}}


@pytest.mark.parametrize("how", BROKEN)
def test_divergence_is_contained(engine, sixteen, how):
    """A member that is not a number neither stops nor touches the others."""
    group = [member(i, **(BROKEN[how] if i in (0, 5) else {})) for i in range(WIDTH)]
    fits = engine.fit(group)
    for i in (0, 5):
        assert fits[i].failed
        assert fits[i].reason == "the ELBO was not finite by step 3"
        assert not np.isfinite(fits[i].elbo)
    healthy = [i for i in range(WIDTH) if i not in (0, 5)]
    check_equal([fits[i] for i in healthy], [sixteen[i] for i in healthy])


def test_all_diverged_stops(engine):
    news = []
    fits = engine.fit([member(0, **BROKEN["x"])], lambda *new: news.append(new))
    [(done, total, elbo)] = news
    assert (done, total) == (3, 401)
    assert np.isnan(elbo)
    np.testing.assert_array_equal(fits[0].elbo_step, [3])
    assert fits[0].status == "diverged"


def test_progress_is_of_the_living(engine, sixteen):
    """The mean over members still alive, at the end of every segment."""
    news = []
    engine.fit(
        [member(i, **(BROKEN["x"] if i == 3 else {})) for i in range(WIDTH)],
        lambda *new: news.append(new),
    )
    alive = [fit for i, fit in enumerate(sixteen) if i != 3]
    expected = np.mean([fit.elbo_history for fit in alive], axis=0)
    np.testing.assert_allclose([elbo for *_, elbo in news], expected, rtol=1e-12)
    np.testing.assert_array_equal([done for done, *_ in news], sixteen[0].elbo_step)


@pytest.mark.parametrize("batch", [None, 25])
def test_one_program(batch):
    """Other data values, group sizes and segments: nothing is compiled twice."""
    settings = Inference(steps=401, batch=batch)
    engine = CompiledEngine(classifier(), settings, ROWS, width=3)
    for group in ([0], [1, 2, 3], [4, 5, 6, 7]):
        engine.fit([member(i) for i in group])
    engine.fit([member(0, hyperprior_sigma=2.0), member(1, **BROKEN["x"])])
    assert engine._program._cache_size() == 1


# --- improper priors ----------------------------------------------------------------------


def test_flat_prior():
    """Scales that the data say nothing about stop at the cap; the status tells."""
    model = dense_classifier(X, (X[:, 0] > 0).astype(int), hidden=(), prior="flat")
    settings = Inference(steps=1000, improper_scale_cap=0.5, schedule="constant")
    engine = CompiledEngine(model, settings, ROWS, width=1)
    [fit] = engine.fit([Member({"x": X, "target": (X[:, 0] > 0).astype(int)}, member(0).streams)])
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
    engine = CompiledEngine(model, settings, rows=5, width=WIDTH, dtype="float64")
    fits = engine.fit([Member({}, random_streams(str(i))) for i in range(WIDTH)])
    scales = np.array([fit.scale[0] for fit in fits])
    assert abs(scales.mean() - 3) < 4.5 * scales.std(ddof=1) / 4
    assert {fit.status for fit in fits} <= {"converged", "not_converged"}
