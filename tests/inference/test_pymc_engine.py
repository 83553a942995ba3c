"""The reference engine does what the compiled one does, through ``pm.fit``."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor
import pytest

from pmbnn.data import Sine
from pmbnn.inference.advi import build_program
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.pymc_engine import build_program as build_pymc_program
from pmbnn.inference.pymc_engine import fit as fit_by_pymc
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.models.build import build_model, dense_classifier, model_data
from pmbnn.models.hyperpriors import Fixed, HalfNormal
from pmbnn.models.likelihoods import Normal as NormalLikelihood
from pmbnn.models.networks import Dense
from pmbnn.models.priors import Normal

ROWS = 60
rng = np.random.default_rng(0)
X = rng.normal(size=(ROWS, 2))
Y = (X[:, 0] + rng.normal(size=ROWS) > 0).astype(int)
DATA = {"x": X, "target": Y, "prior_scale": 1.0}


@pytest.fixture
def interpreted():
    """Run what PyMC builds without compiling it: half a minute less, to the same digits."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""):
        yield


def replicas(data, count=1):
    return [Replica(data, derive_keys(f"fit/{i}")) for i in range(count)]


def by_pymc(model, data=DATA, progress=None, rates=None, **settings):
    program = build_pymc_program(model, Inference(**settings), len(Y))
    if rates is not None:
        relative = rates / program.settings.learning_rate
        program = replace(program, relative_rates=relative)
    return fit_by_pymc(program, replicas(data), progress)[0]


def by_compiled(model, data=DATA, width=1, **settings):
    program = build_program(model, Inference(**settings), len(Y), width, dtype="float64")
    return fit_replicas(program, replicas(data, width))


def within_errors(found, sample, errors=4.5):
    """One more of the same distribution as the `sample` ``(fit, size)``."""
    spread = np.std(sample, axis=0, ddof=1) * np.sqrt(1 + 1 / len(sample))
    return (np.abs(found - np.mean(sample, axis=0)) < errors * spread).all()


def elbo_error(fit):
    """Standard error of the mean ELBO of the last tenth, a fit's parameters being settled."""
    last = fit.history.elbo[-len(fit.history.elbo) // 10 :]
    return last.std(ddof=1) / np.sqrt(len(last))


@pytest.mark.slow
def test_same_optimum(interpreted):
    """Logistic regression: one fit through PyMC among sixteen of the compiled engine."""
    model, settings = dense_classifier(X, Y, hidden=()), {"steps": 1500, "schedule": "cosine"}
    found = by_pymc(model, **settings)
    fits = by_compiled(model, width=16, **settings)
    for name in ("loc", "scale"):
        sample = np.array([getattr(fit, name) for fit in fits])
        assert within_errors(getattr(found, name), sample)
        # Sharp enough to tell a fit from a worse one.
        assert (sample.std(axis=0) < 0.25 * found.scale).all()
    elbos = [fit.elbo for fit in fits]
    error = np.hypot(elbo_error(found), np.std(elbos) / 4)
    assert abs(found.elbo - np.mean(elbos)) < 4 * error
    assert error < 0.3
    assert found.status == "converged"


def check_same_steps(model, data):
    """With scales of 10⁻¹² noise has no say, and both engines must take the same steps.

    This holds the start, the order of the variables, every learning rate and Adam together.
    """
    settings = {"steps": 60, "schedule": "one_cycle", "initial_scale": 1e-12}
    found = by_pymc(model, data, **settings)
    [expected] = by_compiled(model, data, **settings)
    np.testing.assert_allclose(found.loc, expected.loc, rtol=0, atol=1e-7)
    np.testing.assert_allclose(found.scale, expected.scale, rtol=1e-5)
    moved = np.abs(expected.loc - by_compiled(model, data, steps=1, learning_rate=1e-9)[0].loc)
    assert moved.min() > 1e-3
    # PyMC has log q at the draw where ours has the entropy: ½ Σ(1 - noise²) between them.
    difference = found.history.elbo - expected.history.elbo
    assert abs(difference.mean()) < 4 * np.sqrt(len(expected.loc) / 2 / 60)
    assert np.ptp(expected.history.elbo) > 1


def test_same_steps(interpreted):
    model = dense_classifier(X, Y, hidden=(3,), hyperprior="half_normal")
    check_same_steps(model, {"x": X, "target": Y, "hyperprior_sigma": 1.0})


@pytest.mark.slow
def test_same_steps_of_a_regression(interpreted):
    """The noise is learned: one more variable, of another kind."""
    rows, hyperprior = Sine(train=ROWS).load().training, Fixed()
    likelihood = NormalLikelihood(sd=HalfNormal(sigma=0.7))
    model = build_model(Dense(hidden=(3,)), Normal(), hyperprior, likelihood, rows)
    check_same_steps(model, model_data(hyperprior, rows, likelihood))


@pytest.mark.slow
def test_rates_take_effect_at_their_step(interpreted):
    """Ten steps and ten more at rate zero are ten steps; one rate off would show."""
    model = dense_classifier(X, Y, hidden=())
    rates = np.repeat([0.1, 0.0], 10)
    ten = by_pymc(model, steps=10, rates=rates[:10])
    twenty = by_pymc(model, steps=20, rates=rates)
    np.testing.assert_array_equal(twenty.loc, ten.loc)
    np.testing.assert_array_equal(twenty.scale, ten.scale)
    eleven = by_pymc(model, steps=11, rates=np.append(rates[:10], 0.1))
    assert (np.abs(eleven.loc - ten.loc) > 1e-3).all()


@pytest.mark.slow
def test_divergence_is_a_status(interpreted):
    """It neither raises nor stops the replicas that follow."""
    model = dense_classifier(X, Y, hidden=())
    program = build_pymc_program(model, Inference(steps=40), ROWS)
    broken = DATA | {"x": np.where(X > 1.5, np.nan, X)}
    fits = fit_by_pymc(program, [*replicas(broken), *replicas(DATA)])
    assert [fit.failed for fit in fits] == [True, False]
    assert fits[0].status == "diverged"
    assert fits[0].reason == "the ELBO was not finite by step 1"
    np.testing.assert_array_equal(fits[1].loc, fit_by_pymc(program, replicas(DATA))[0].loc)


@pytest.mark.slow
def test_history_and_progress(interpreted):
    """A point of the history for every window, the last one shorter; news as often."""
    news = []
    fit = by_pymc(
        dense_classifier(X, Y, hidden=()), steps=401, progress=lambda *new: news.append(new)
    )
    np.testing.assert_array_equal(fit.history.step, [*range(3, 401, 3), 401])
    assert fit.history.elbo.shape == fit.history.step.shape
    assert [done for done, *_ in news] == list(range(2, 401, 2))
    assert all(total == 401 and np.isfinite(elbo) for _, total, elbo, _ in news)
    done, *_, current = news[-1]
    assert done == 400
    np.testing.assert_array_equal(current().keys.noise, fit.keys.noise)
    assert fit.history.elbo[0] < fit.history.elbo[-1] == pytest.approx(fit.elbo, abs=10)


# PyTensor installed by pip finds no BLAS, and says so once; nothing here needs one.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS:UserWarning")
def test_compiled_by_pymc():
    """A normal mean, closed form, through PyMC's default compiler."""
    sample = np.random.default_rng(0).normal(1.0, 2.0, size=30)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        pm.Normal("y", mu, 2.0, observed=sample)
    precision = 1 + 30 / 4
    settings = {"steps": 1500, "schedule": "cosine"}
    found = by_pymc(model, {}, **settings)
    fits = by_compiled(model, {}, width=16, **settings)
    exact = [sample.sum() / 4 / precision, 1 / np.sqrt(precision)]
    spread = np.std([[*fit.loc, *fit.scale] for fit in fits], axis=0, ddof=1)
    assert (np.abs(np.concatenate([found.loc, found.scale]) - exact) < 4.5 * spread).all()
    assert (spread < 0.1 * exact[1]).all()
