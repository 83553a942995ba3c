"""Any PyMC model: the same ELBO as ``pm.fit`` has, gradients, short fits, and clear errors."""

import any_models
import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from tiers import slow_but

from pmbnn.core.spec import Tune
from pmbnn.inference.advi import build_program
from pmbnn.inference.batches import cast, model_values
from pmbnn.inference.engines import fit_model, n_observations
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import precision

MODELS = any_models.EIGHT | any_models.OTHERS
X = np.random.default_rng(0).normal(size=(100, 2))


QUICK = ("two_observed_and_a_potential",)


@pytest.fixture(scope="module", params=slow_but(QUICK, list(MODELS)))
def model(request):
    return MODELS[request.param]()


def at_a_point(size):
    """Means, unconstrained scales and noise; near zero, where every model is well behaved."""
    rng = np.random.default_rng(1)
    return 0.3 * rng.normal(size=size), rng.uniform(-3, 0, size), rng.normal(size=size)


def by_pymc(model, layout, loc, rho, noise, evaluate):
    """Loss of ``pm.fit`` and its gradients, its noise replaced by ours."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""):
        advi = pm.ADVI(model=model)
        group = advi.approx.groups[0]
        given = pt.matrix("given")
        loss = advi.objective(1, more_replacements={group.symbolic_initial: given})
        shared = [group.params_dict[name] for name in ("mu", "rho")]
        theirs = np.empty((3, layout.size))
        for row, ours in zip(theirs, (loc, rho, noise), strict=True):
            for name, part in layout.unravel(ours).items():
                row[group.ordering[name][1]] = part.ravel()
        for variable, value in zip(shared, theirs[:2], strict=True):
            variable.set_value(value)
        value, *gradients = evaluate([loss, *pytensor.grad(loss, shared)], {given: theirs[2:]})
    parts = ({s.name: g[group.ordering[s.name][1]] for s in layout.slots} for g in gradients)
    return value, *(layout.ravel(part) for part in parts)


def by_us(program, model, loc, rho, noise):
    """The same of our objective."""
    with precision("float64"):
        at = {"loc": jnp.asarray(loc), "rho": jnp.asarray(rho)}
        data = cast(model_values(model), "float64", program.flat.row_data, program.padding)
        slope = jax.jit(jax.value_and_grad(program.loss, has_aux=True))
        (loss, _), gradient = slope(at, {"noise": jnp.asarray(noise)}, program.prepare(data), 1)
        return np.asarray(loss), np.asarray(gradient["loc"]), np.asarray(gradient["rho"])


def test_equals_pm_fit(model, evaluate):
    """At the same noise, in value and in every gradient.

    The loss of ``pm.fit`` has log q at the draw where ours has the entropy: ½ Σ(1 - noise²)
    between them, which no parameter moves.
    """
    settings, rows = Inference(kl="monte_carlo", steps=10), n_observations(model)
    program = build_program(model, settings, rows, dtype="float64")
    at = at_a_point(program.flat.size)
    expected = by_pymc(model, program.flat.layout, *at, evaluate)
    found = by_us(program, model, *at)
    assert all(np.isfinite(part).all() for part in found)
    assert found[0] + 0.5 * np.sum(1 - at[2] ** 2) == pytest.approx(expected[0], rel=1e-9)
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8 * np.abs(theirs).max())


@pytest.mark.slow
def test_short_fits(model):
    """Two restarts, whose ELBO rises."""
    settings = Inference(steps=400, learning_rate=0.05)
    program, fits = fit_model(model, settings, restarts=2, random_seed=3)
    assert [fit.replica for fit in fits] == [0, 1]
    for fit in fits:
        assert not fit.failed
        assert np.isfinite(fit.loc).all() and (fit.scale > 0).all()
        assert fit.history.elbo[-20:].mean() > fit.history.elbo[:5].mean()
    assert (fits[0].loc != fits[1].loc).any()
    names = {v.name for v in model.unobserved_RVs}
    assert set(program.flat.posterior) == names
    assert set(program.flat.log_likelihoods) == {v.name for v in model.observed_RVs}
    assert set(program.flat.potentials) == {v.name for v in model.potentials}


# --- settings and data --------------------------------------------------------------------


@pytest.mark.slow
def test_restarts_and_seeds():
    """Those of the settings unless given; a fit depends on its own number only."""
    model, settings = any_models.potential_alone(), Inference(steps=20, restarts=2, seed=4)
    _, (first, second) = fit_model(model, settings)
    _, again = fit_model(model, settings, random_seed=4)
    np.testing.assert_array_equal(again[1].loc, second.loc)
    for another in ({"random_seed": 5}, {"identity": "mine"}):
        _, (other, _) = fit_model(model, settings, **another)
        assert (other.loc != first.loc).all()


@pytest.mark.slow
def test_minibatches_of_any_model():
    """The mean over the minibatches of one pass is the full batch, at any parameters."""
    model = any_models.varying_intercepts()
    values = model_values(model)
    full, mini = (
        build_program(model, Inference(batch=b, steps=10), 90, dtype="float64") for b in (None, 30)
    )
    at = at_a_point(full.flat.size)
    expected = by_us(full, model, *at)[0]
    parts = []
    for rows in np.random.default_rng(0).permutation(90).reshape(3, 30):
        with precision("float64"):
            own = {n: v[rows] if n in mini.flat.row_data else v for n, v in values.items()}
            prepared = mini.prepare(cast(own, "float64"))
            given = {"loc": jnp.asarray(at[0]), "rho": jnp.asarray(at[1])}
            noise = {"noise": jnp.asarray(at[2])}
            parts.append(float(mini.loss(given, noise, prepared, 1)[0]))
    assert np.mean(parts) == pytest.approx(float(expected), rel=1e-12)
    assert np.std(parts) > 1


def labelled_rows(latent=False, **coords):
    with pm.Model(coords=coords) as model:
        x = pm.Data("x", X[:, 0], dims="observation")
        mean = pm.Deterministic("mean", pm.Normal("slope") * x, dims="observation")
        if latent:
            mean = pm.Normal("z", mean, 1.0, dims="observation")
        pm.Normal("y", mean, 1.0, observed=pm.Data("t", X[:, 1], dims="observation"),
                  dims="observation")  # fmt: skip
    return model


def test_rows_with_labels_are_fitted_in_batches():
    """Labels among the coords of a model do not fix how many rows a step sees."""
    plain, labelled = (
        build_program(labelled_rows(**coords), Inference(batch=20), 100)
        for coords in ({}, {"observation": [f"row {i}" for i in range(100)]})
    )
    assert labelled.flat.row_data == plain.flat.row_data == ("x", "t")
    at = at_a_point(plain.flat.size)
    rows = {"x": X[:20, 0], "t": X[:20, 1]}
    terms = [
        program.flat.log_likelihoods["y"].eval(
            {program.flat.data[n]: v.astype("float32") for n, v in rows.items()}
            | {v: np.float32(at[0][0]) for v in program.flat.free.values()},
        )
        for program in (plain, labelled)
    ]
    np.testing.assert_array_equal(*terms)
    with pytest.raises(ValueError, match="the prior of `z` depends on rows"):
        build_program(labelled_rows(True, observation=range(100)), Inference(batch=20), 100)


def test_what_no_row_has_a_part_in_counts_once():
    """A second measurement beside rows: a minibatch says nothing of it."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 1.0)
        x = pm.Data("x", X[:, 0], dims="observation")
        pm.Normal("y", mu, 1.0, observed=x, dims="observation")
        pm.Normal("z", mu, 0.1, observed=0.5)
        pm.Potential("p", -(mu**4))
    full, mini = (
        build_program(model, Inference(batch=b, steps=10), 100, dtype="float64") for b in (None, 50)
    )
    assert full.padding == 28
    given = {"loc": jnp.array([0.2]), "rho": jnp.array([-1.0])}
    with precision("float64"):
        noise, data = {"noise": jnp.array([0.4])}, {"x": X[:, 0]}
        padded = cast(data, "float64", full.flat.row_data, full.padding)
        expected = full.parts(given, noise, full.prepare(padded))[0]
        halves = [
            mini.parts(given, noise, mini.prepare({"x": jnp.asarray(half)}))[0]
            for half in np.split(X[:, 0], 2)
        ]
    value = 0.2 + 0.4 * np.log1p(np.exp(-1.0))
    by_hand = -0.5 * np.sum((X[:, 0] - value) ** 2) - 50 * np.log(2 * np.pi)
    by_hand += -50 * (0.5 - value) ** 2 - np.log(0.1 * np.sqrt(2 * np.pi)) - value**4
    assert float(expected) == pytest.approx(by_hand, rel=1e-12)
    assert float(np.mean(halves)) == pytest.approx(by_hand, rel=1e-12)


def standardised_inside():
    """Rows that know of each other."""
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0], dims="observation")
        slope = pm.Normal("slope")
        mean = slope * (x - x.mean())
        pm.Normal("y", mean, 1.0, observed=pm.Data("target", X[:, 1], dims="observation"))
    return model


def of_the_row_before():
    """A time series: with shuffled rows its slope would be about zero."""
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0], dims="observation")
        before = pt.concatenate([pt.zeros(1), x[:-1]])
        pm.Normal("y", pm.Normal("slope") * before, 1.0, observed=x, dims="observation")
    return model


def of_the_count_before():
    """The same of counts, the first of which are zero."""
    counts = np.arange(100) // 50
    with pm.Model() as model:
        x = pm.Data("x", counts, dims="observation")
        before = pt.concatenate([pt.zeros(1), x[:-1]])
        pm.Poisson("y", pt.exp(pm.Normal("slope") * before), observed=x, dims="observation")
    return model


def of_a_root():
    """The same with a mean that is not a number where a parameter is small, as at first."""
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0], dims="observation")
        before = pt.concatenate([pt.zeros(1), x[:-1]])
        root = pt.sqrt(pm.Normal("slope") - 0.05)
        pm.Normal("y", root * (1 + before), 1.0, observed=x, dims="observation")
    return model


def of_their_number():
    """A trend: the number of a row is not that in a batch."""
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0], dims="observation")
        trend = pm.Normal("slope") * pt.arange(x.shape[0])
        pm.Normal("y", trend, 1.0, observed=x, dims="observation")
    return model


def of_one_length():
    """Targets that are no data variable: as many rows as there are."""
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0], dims="observation")
        pm.Normal("y", pm.Normal("slope") * x, 1.0, observed=X[:, 1])
    return model


def with_a_potential():
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0], dims="observation")
        slope = pm.Normal("slope")
        pm.Normal("y", slope, 1.0, observed=x, dims="observation")
        pm.Potential("of_rows", (slope * x).sum())
    return model


def with_a_prior():
    """A scale of the prior by that of the targets, which further rows would change."""
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0], dims="observation")
        slope = pm.Normal("slope", 0.0, 2.5 * x.std())
        pm.Normal("y", slope, 1.0, observed=x, dims="observation")
    return model


def without_rows():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=X[:, 0])
    return model


UNDIVIDED = {
    "standardised": (standardised_inside, "log-probabilities of `y` are not one a row"),
    "time_series": (of_the_row_before, "log-probabilities of `y` are not one a row"),
    "counts": (of_the_count_before, "log-probabilities of `y` are not one a row"),
    "root": (of_a_root, "log-probabilities of `y` are not one a row"),
    "trend": (of_their_number, "log-probabilities of `y` are not one a row"),
    "one_length": (of_one_length, "log-probabilities of `y` are not one a row"),
    "potential": (with_a_potential, "its potential `of_rows` depends on rows"),
    "prior": (with_a_prior, "the prior of `slope` depends on rows"),
    "no_rows": (without_rows, "none of its data variables has `observation` as its first dim"),
}


@pytest.mark.parametrize("name", list(UNDIVIDED))
def test_no_minibatches(name):
    build, message = UNDIVIDED[name]
    with pytest.raises(
        ValueError, match=f"`batch` must be left out for this model, got 20: {message}"
    ):
        build_program(build(), Inference(batch=20), 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(UNDIVIDED))
def test_what_has_no_minibatches_is_fitted_whole(name, evaluate):
    """Without rows that do not count."""
    model = UNDIVIDED[name][0]()
    program = build_program(model, Inference(kl="monte_carlo"), 100, dtype="float64")
    assert program.padding == 0
    at = at_a_point(program.flat.size)
    expected = by_pymc(model, program.flat.layout, *at, evaluate)[0]
    found = by_us(program, model, *at)[0] + 0.5 * np.sum(1 - at[2] ** 2)
    assert found == pytest.approx(expected, rel=1e-9)


# --- what cannot be fitted ----------------------------------------------------------------


def test_discrete_variables():
    with pm.Model() as model:
        k = pm.Bernoulli("which", 0.5)
        pm.Normal("y", k, 1.0, observed=X[:, 0])
    with pytest.raises(ValueError, match="continuous free variables only, got `which` of type int"):
        fit_model(model)


def test_no_free_variables():
    with pm.Model() as model:
        pm.Normal("y", observed=X[:, 0])
    with pytest.raises(ValueError, match="at least one free variable"):
        fit_model(model)


def test_random_minibatches_of_pymc():
    with pm.Model() as model:
        rows = pm.Minibatch(X[:, 0], batch_size=10)
        pm.Normal("y", pm.Normal("mu"), 1.0, observed=rows, total_size=100)
    with pytest.raises(ValueError, match="`y` must not have `total_size`.*set `batch`"):
        fit_model(model)


def test_random_log_densities():
    with pm.Model() as model:
        pm.Potential("noise", pm.Normal("mu") * pm.Normal.dist())
    with pytest.raises(ValueError, match="must not draw random numbers.*that of `noise` does"):
        fit_model(model)


def test_random_deterministics():
    """All draws of `again` had the same noise."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=X[:, 0])
        pm.Deterministic("again", pm.Normal.dist(mu, 1.0))
    with pytest.raises(ValueError, match="in its deterministic `again`: make it after the fit"):
        fit_model(model)


class Opaque(pytensor.graph.op.Op):
    """An operation that nobody told JAX about."""

    itypes, otypes = [pt.dscalar], [pt.dscalar]

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.asarray(2 * inputs[0])


def test_operations_without_a_form_in_jax():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("z", mu, 1.0, observed=X[:, 1])
        pm.Normal("y", Opaque()(mu), 1.0, observed=X[:, 0])
    with pytest.raises(ValueError, match="log-density of `y` has an operation.*Opaque"):
        fit_model(model)


def sum_of_some(value, mu):
    return -(value**2) - pt.arange(mu.astype("int64")).sum()


def test_shapes_that_depend_on_values():
    """JAX says so only when it traces; a transformed variable has its own name."""
    with pm.Model() as model:
        mu = pm.HalfNormal("mu")
        pm.Normal("y", mu, 1.0, observed=X[:, 1])
        pm.CustomDist("odd", mu, logp=sum_of_some)
    with pytest.raises(ValueError, match="log-density of `odd` has an operation"):
        fit_model(model, Inference(steps=10))


def test_estimators_that_do_not_apply():
    settings = Inference(estimator="local_reparameterisation")
    with pytest.raises(ValueError, match="none of its weights enters through a matrix product"):
        fit_model(any_models.potential_alone(), settings)


def test_a_search_is_not_for_one_model():
    settings = Inference(learning_rate=Tune(log=(0.01, 0.1, 3)))
    with pytest.raises(ValueError, match="`learning_rate` must be a number"):
        fit_model(any_models.potential_alone(), settings)
    with pytest.raises(ValueError, match="`restarts` must be >= 1, got 0"):
        fit_model(any_models.potential_alone(), restarts=0)


def test_shapes_of_values():
    """Of transformed variables too, whose values may be fewer than they are."""
    with pm.Model(coords={"a": range(3)}) as model:
        pm.Dirichlet("d", np.ones((2, 4)))
        pm.ZeroSumNormal("s", dims="a")
        pm.LKJCholeskyCov("c", n=3, eta=1.0, sd_dist=pm.HalfNormal.dist(1.0))
        pm.Normal("n", 0.0, pm.math.exp(pm.Normal("m", shape=(2, 1))), shape=(2, 3))
    with pytensor.config.change_flags(cxx=""):
        start = model.initial_point()
    found = {s.name: s.shape for s in flatten_model(model, None).layout.slots}
    assert found == {name: value.shape for name, value in start.items()}


# --- against samples ----------------------------------------------------------------------

SAMPLED = ("varying_intercepts", "logistic", "counts")


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.filterwarnings("ignore")
def test_means_are_those_of_samples(name):
    """Where a mean-field guide can match them: within a quarter of a standard deviation."""
    model = MODELS[name]()
    settings = Inference(steps=8000, learning_rate=0.02, iterate_averaging=0.2)
    program, (fit,) = fit_model(model, settings)
    with model:
        samples = pm.sample(
            500,
            tune=500,
            chains=2,
            cores=1,
            random_seed=0,
            progressbar=False,
            compile_kwargs={"mode": "JAX"},
        ).posterior
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((2000, program.flat.size))
    values = [program.flat.free[s.name] for s in program.flat.layout.slots]
    names = [v.name for v in model.free_RVs]
    of = pytensor.function(values, [program.flat.posterior[n] for n in names], mode="FAST_COMPILE")
    draws = [of(*program.flat.layout.unravel(fit.loc + fit.scale * n).values()) for n in noise]
    for i, variable in enumerate(names):
        found = np.mean([draw[i] for draw in draws], axis=0)
        expected = samples[variable].mean(("chain", "draw")).values
        spread = samples[variable].std(("chain", "draw")).values
        assert (np.abs(found - expected) < 0.25 * spread).all(), variable
