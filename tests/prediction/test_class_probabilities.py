"""Streamed moments against NumPy over all draws at once, and densities against PyMC."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp, softmax, xlogy
from scipy.stats import multivariate_normal, norm
from tiers import slow_but

from pmbnn.inference.advi import build_program
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.guides import build_guide
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import sharing_programs
from pmbnn.models.build import dense_classifier
from pmbnn.models.likelihoods import Categorical
from pmbnn.prediction.class_probabilities import BLOCK, ClassProbabilities, mix
from pmbnn.prediction.draws import GuideDraws, log_density_of_mixture
from pmbnn.prediction.predictor import Predictor
from pmbnn.testing import random_point

ROWS, DRAWS = 60, 50
X = np.random.default_rng(0).normal(size=(ROWS, 2))
Y = np.arange(ROWS) % 3
DATA = {"x": X, "target": Y, "hyperprior_sigma": 0.7}
SIZE = 2 + (2 * 3 + 3) + (3 * 3 + 3)


def build(rows=slice(None), sigma=0.7):
    model = dense_classifier(X[rows], Y[rows], hidden=(3,), hyperprior="half_normal")
    with model:
        pm.set_data({"hyperprior_sigma": sigma})
    return model


RANK = 4
NORMAL_GUIDES = slow_but(["mean_field"], ["mean_field", "low_rank", "full_rank"])


@pytest.fixture(scope="module")
def predictors():
    model = build()
    return {dtype: Predictor(model, Categorical(), dtype) for dtype in ("float64", "float32")}


@pytest.fixture
def predictor(predictors):
    return predictors["float64"]


def guide(name="fit/0", loc=None, scale=None, kind="mean_field"):
    """Draws of a made guide: nothing here depends on how it was fitted."""
    rng = np.random.default_rng(len(name))
    loc = 0.8 * rng.normal(size=SIZE) if loc is None else loc
    scale = rng.uniform(0.2, 0.8, SIZE) if scale is None else scale
    parameters = {
        "mean_field": {"scale": scale},
        "low_rank": {"diagonal": scale, "factor": 0.3 * rng.normal(size=(SIZE, RANK))},
        "full_rank": {"root": np.diag(scale) + np.tril(0.1 * rng.normal(size=(SIZE, SIZE)), -1)},
    }.get(kind, {})
    family = build_guide(Inference(guide=kind, rank=RANK), SIZE, improper=False)
    return GuideDraws(family, {"loc": loc} | parameters, derive_keys(name).draws)


def covariance(constrained):
    """Covariance of a guide with these constrained parameters; zero of a point."""
    if "root" in constrained:
        return constrained["root"] @ constrained["root"].T
    diagonal = constrained.get("diagonal", constrained.get("scale", np.zeros(SIZE)))
    factor = constrained.get("factor", np.zeros((SIZE, 1)))
    return np.diag(diagonal**2) + factor @ factor.T


def new_inputs(rows):
    return 2 * np.random.default_rng(rows).normal(size=(rows, 2))


def forward(posterior, x):
    """Class probabilities ``(draw, observation, class)`` of named weights, in NumPy."""
    hidden = np.tanh(x @ posterior["weight_1"] + posterior["bias_1"][:, None])
    return softmax(hidden @ posterior["weight_2"] + posterior["bias_2"][:, None], axis=-1)


def moments_of(p):
    """Moments of probabilities ``(draw, observation, class)``, all at once."""
    entropy = -xlogy(p, p).sum(axis=2)
    votes = np.eye(p.shape[2])[p.argmax(axis=2)]
    logs = np.log(p).mean(axis=0)
    mean, sd = p.mean(axis=0), p.std(axis=0)
    return ClassProbabilities(len(p), mean, sd, entropy.mean(axis=0), votes.mean(axis=0), logs)


def check_moments(found, expected, **tolerance):
    assert found.draws == expected.draws
    for name in ("mean", "sd", "expected_entropy", "votes", "mean_log"):
        a, b = getattr(found, name), getattr(expected, name)
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, **tolerance)


# --- moments ------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, BLOCK + 1])
def test_moments_equal_numpy(predictor, rows):
    x, fit = new_inputs(rows), guide()
    posterior = predictor.posterior(DATA, predictor.values(fit, DRAWS))
    expected = moments_of(forward(posterior, x))
    found = predictor.predict([fit], [1.0], DATA, x, DRAWS)
    check_moments(found, expected, rtol=1e-9)
    mean = expected.mean
    np.testing.assert_allclose(found.entropy, -xlogy(mean, mean).sum(axis=1), rtol=1e-9)
    information = -xlogy(mean, mean).sum(axis=1) - expected.expected_entropy
    np.testing.assert_allclose(found.mutual_information, information, atol=1e-12)
    assert (found.sd > 1e-3).all()


def test_parts_of_the_uncertainty_of_two_draws():
    """By hand: one draw is certain, and the other knows nothing."""
    draws = np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]]])
    with np.errstate(divide="ignore"):
        found = moments_of(draws).uncertainty()
    total = [-0.75 * np.log(0.75) - 0.25 * np.log(0.25), np.log(2)]
    np.testing.assert_allclose(found["total"], total)
    np.testing.assert_allclose(found["aleatoric"], [np.log(2) / 2, np.log(2)])
    np.testing.assert_allclose(found["epistemic"], [total[0] - np.log(2) / 2, 0], atol=1e-15)
    assert list(found) == ["total", "aleatoric", "epistemic"]


@pytest.mark.parametrize("kind", NORMAL_GUIDES[1:])
def test_moments_of_other_guides_equal_numpy(predictor, kind):
    x, fit = new_inputs(37), guide(kind=kind)
    posterior = predictor.posterior(DATA, predictor.values(fit, DRAWS))
    expected = moments_of(forward(posterior, x))
    check_moments(predictor.predict([fit], [1.0], DATA, x, DRAWS), expected, rtol=1e-9)
    assert (expected.sd > 1e-3).all()


@pytest.mark.parametrize("draws", [1, 2, 300])
def test_moments_of_a_point(predictor, draws):
    """One network, however many draws are asked for: no spread, not even by rounding."""
    x, fit = new_inputs(37), guide(kind="map")
    found = predictor.predict([fit], [1.0], DATA, x, draws)
    p = forward(predictor.posterior(DATA, fit.parameters["loc"][None]), x)
    check_moments(found, moments_of(p), rtol=1e-9)
    np.testing.assert_array_equal(found.sd, np.zeros((37, 3)))
    np.testing.assert_allclose(found.mutual_information, np.zeros(37), atol=1e-12)


def test_single_precision(predictors):
    """Running moments lose no more than rounding over a thousand draws."""
    x, fit, predictor = new_inputs(37), guide(), predictors["float32"]
    values = predictor.values(fit, 1000)
    assert values.dtype == np.float32
    posterior = predictors["float64"].posterior(DATA, values)
    found = predictor.predict([fit], [1.0], DATA, x, 1000)
    assert found.mean.dtype == np.float32
    check_moments(found, moments_of(forward(posterior, x)), rtol=2e-4, atol=1e-6)


def test_one_draw(predictor):
    found = predictor.predict([guide()], [1.0], DATA, new_inputs(5), 1)
    np.testing.assert_array_equal(found.sd, np.zeros((5, 3)))
    np.testing.assert_allclose(found.entropy, found.expected_entropy, rtol=1e-12)
    assert found.mutual_information.max() < 1e-12


def test_saturated_probabilities(predictors):
    """Outputs of ±10⁴ give probabilities of exactly 0 and 1: entropies are 0, not NaN."""
    fit = guide(loc=np.full(SIZE, 0.0), scale=np.full(SIZE, 3.0))
    fit.parameters["loc"][:2] = 10.0
    for predictor in predictors.values():
        found = predictor.predict([fit], [1.0], DATA, new_inputs(20), 1)
        assert np.isin(found.mean, [0, 1]).any()
        for part in (found.sd, found.entropy, found.expected_entropy):
            assert np.isfinite(part).all()
        assert (found.mutual_information >= 0).all()


def test_draws_that_agree(predictors):
    """A guide without width has no deviation: rounding must not make it less than none."""
    fit = guide(scale=np.full(SIZE, 1e-20))
    for dtype, predictor in predictors.items():
        found = predictor.predict([fit], [1.0], DATA, new_inputs(200), 300)
        assert 0 <= found.sd.min() <= found.sd.max() < 100 * np.finfo(dtype).eps


def test_memory_does_not_grow(predictor):
    """One program for any number of draws and rows: no array of it can depend on either."""
    fit = guide()
    predictor.predict([fit], [1.0], DATA, new_inputs(1), 2)
    programs = predictor._reduced._cache_size()
    for rows, draws in ((37, 300), (BLOCK + 1, 5)):
        predictor.predict([fit], [1.0], DATA, new_inputs(rows), draws)
    assert predictor._reduced._cache_size() == programs


def test_other_constants_and_fits(predictor):
    """The predictor of any replica's model serves the others."""
    x, fit = new_inputs(7), guide("another")
    other = DATA | {"hyperprior_sigma": 2.5}
    expected = predictor.parameters(other, predictor.values(fit, DRAWS), x)["probability"]
    check_moments(predictor.predict([fit], [1.0], other, x, DRAWS), moments_of(expected), rtol=1e-9)


# --- draws --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NORMAL_GUIDES)
def test_values_are_the_guides(predictor, kind):
    """Normal draws of the guide: standardised, their mean and variance are chance away."""
    fit = guide(kind=kind)
    root = np.linalg.cholesky(covariance(fit.parameters))
    standard = np.linalg.solve(root, (predictor.values(fit, 4000) - fit.parameters["loc"]).T).T
    assert standard.shape == (4000, SIZE)
    n = standard.size
    assert abs(standard.mean()) < 4 / np.sqrt(n)
    assert abs((standard**2).mean() - 1) < 4 * np.sqrt(2 / n)
    # Correlations between variables have a standard error of 1/√draws.
    off = np.corrcoef(standard.T)[np.triu_indices(SIZE, 1)]
    assert np.abs(off).max() < 5 / np.sqrt(4000)


@pytest.mark.parametrize("dtype", slow_but(["float32"], ["float32", "float64"]))
def test_values_are_regenerated(predictors, dtype):
    """The first draws are the first of more; keys differ between fits."""
    predictor = predictors[dtype]
    many = predictor.values(guide(), 30)
    np.testing.assert_array_equal(predictor.values(guide(), 7), many[:7])
    assert len(np.unique(many[:, 0])) == 30
    same_guide = guide("fit/1")
    assert not np.isin(predictor.values(same_guide, 7), many).any()


@pytest.mark.parametrize("kind", NORMAL_GUIDES[1:])
def test_values_of_other_guides_are_regenerated(predictor, kind):
    many = predictor.values(guide(kind=kind), 30)
    np.testing.assert_array_equal(predictor.values(guide(kind=kind), 7), many[:7])
    assert len(np.unique(many[:, 0])) == 30
    same_guide = guide("fit/1", kind=kind)
    for name, array in guide(kind=kind).parameters.items():
        np.testing.assert_array_equal(same_guide.parameters[name], array)
    assert not np.isin(predictor.values(same_guide, 7), many).any()


def test_values_of_a_point(predictor):
    fit = guide(kind="map")
    np.testing.assert_array_equal(predictor.values(fit, 5), np.tile(fit.parameters["loc"], (5, 1)))


def test_posterior_is_named(predictor, evaluate):
    """Weights and scales as the model defines them, without the standard draws."""
    values = predictor.values(guide(), 4)
    found = predictor.posterior(DATA, values)
    weights = {"weight_1": (2, 3), "bias_1": (3,), "weight_2": (3, 3), "bias_2": (3,)}
    scales = {"layer_1_scale": (), "layer_2_scale": ()}
    assert {name: a.shape[1:] for name, a in found.items()} == weights | scales
    model = build()
    for i in range(4):
        point = unflatten(model, values[i])
        graphs = model.replace_rvs_by_values([model[name] for name in found])
        for a, b in zip(found.values(), evaluate(graphs, point), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-12)


def unflatten(model, vector):
    """Value variables with their parts of the vector, in the model's order."""
    point, start, shapes = {}, 0, random_point(model)
    for value in model.value_vars:
        shape = shapes[value.name].shape
        stop = start + int(np.prod(shape))
        point[value] = vector[start:stop].reshape(shape)
        start = stop
    return point


def test_probabilities(predictor):
    x, values = new_inputs(7), predictor.values(guide(), 5)
    found = predictor.parameters(DATA, values, x)["probability"]
    np.testing.assert_allclose(found, forward(predictor.posterior(DATA, values), x), rtol=1e-10)


# --- mixtures -----------------------------------------------------------------------------


def pool(parts, weights=None):
    """The mixture with these weights, or with those of all draws taken at once."""
    draws = sum(part.draws for part in parts)
    return mix(parts, weights or [part.draws / draws for part in parts])


def test_pool(predictor):
    """As if all draws had been taken at once, however many each part has."""
    x, fits, draws = new_inputs(37), [guide("a"), guide("bb"), guide("ccc")], [30, 50, 1]
    parts = [predictor.predict([f], [1.0], DATA, x, n) for f, n in zip(fits, draws, strict=True)]
    values = [predictor.values(f, n) for f, n in zip(fits, draws, strict=True)]
    together = predictor.parameters(DATA, np.concatenate(values), x)["probability"]
    check_moments(pool(parts), moments_of(together), rtol=1e-9)
    check_moments(pool(parts[:1]), parts[0], rtol=1e-12)


def mixed_moments(parts, weights):
    """Moments of a mixture of draws, `weights` those of each part's draws together."""
    weight = np.concatenate(
        [np.full(len(p), w / len(p)) for p, w in zip(parts, weights, strict=True)]
    )
    p = np.concatenate(parts)
    mean = np.einsum("d,doc->oc", weight, p)
    sd = np.sqrt(np.einsum("d,doc->oc", weight, (p - mean) ** 2))
    entropy = np.einsum("d,doc->o", weight, -xlogy(p, p))
    votes = np.einsum("d,doc->oc", weight, np.eye(p.shape[2])[p.argmax(axis=2)])
    logs = np.einsum("d,doc->oc", weight, np.log(p))
    return ClassProbabilities(len(p), mean, sd, entropy, votes, logs)


def test_pool_with_weights(predictor):
    """A mixture of the parts, whatever the number of draws each was estimated from."""
    x, fits, draws = new_inputs(37), [guide("a"), guide("bb"), guide("ccc")], [30, 50, 1]
    parts = [predictor.predict([f], [1.0], DATA, x, n) for f, n in zip(fits, draws, strict=True)]
    p = [
        predictor.parameters(DATA, predictor.values(f, n), x)["probability"]
        for f, n in zip(fits, draws, strict=True)
    ]
    for weights in ([0.2, 0.1, 0.7], [0.5, 0.3, 0.2]):
        check_moments(pool(parts, weights), mixed_moments(p, weights), rtol=1e-9)
    as_drawn = pool(parts, [n / 81 for n in draws])
    check_moments(as_drawn, pool(parts), rtol=1e-12)
    for name in ("mean", "expected_entropy"):
        only = getattr(pool(parts, [0.0, 1.0, 0.0]), name)
        np.testing.assert_array_equal(only, getattr(parts[1], name))


def test_pool_of_points(predictor):
    """An ensemble: the spread is that between its members, each one draw."""
    x = new_inputs(37)
    fits, weights = [guide(n, kind="map") for n in ("a", "bb", "ccc")], [0.2, 0.3, 0.5]
    parts = [predictor.predict([f], [1.0], DATA, x, 100) for f in fits]
    p = [predictor.parameters(DATA, f.parameters["loc"][None], x)["probability"] for f in fits]
    check_moments(pool(parts), moments_of(np.concatenate(p)), rtol=1e-9)
    check_moments(pool(parts, weights), mixed_moments(p, weights), rtol=1e-9)


# --- what moments say of single rows ------------------------------------------------------


def test_the_predicted_class():
    """Its own standard deviation, and the draws that prefer another one."""
    mean = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]])
    sd = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])
    votes = np.array([[0.25, 0.5, 0.25], [1.0, 0, 0]])
    moments = ClassProbabilities(4, mean, sd, np.zeros(2), votes, np.log(mean))
    np.testing.assert_array_equal(moments.predicted, [1, 0])
    np.testing.assert_array_equal(moments.predicted_sd, [0.2, 0.4])
    np.testing.assert_array_equal(moments.expected_error_rate, [0.5, 0])
    np.testing.assert_allclose(moments.class_variance, [0.01 + 0.04 + 0.09, 0.16 + 0.25 + 0.36])


def test_no_uncertainty_where_all_draws_of_a_mixture_agree():
    """Not even by rounding: ties would be broken by it."""
    mean, weights = np.array([[0.9, 0.1]], "f4"), np.random.default_rng(0).dirichlet(np.ones(7), 20)
    part = ClassProbabilities(5, mean, 0 * mean, 0 * mean[:, 0], mean.round(), np.log(mean))
    found = [pool([part] * 7, list(of_restarts)).expected_error_rate[0] for of_restarts in weights]
    assert found == [0] * 20


def test_what_the_draws_say_of_the_predicted_class(predictor):
    x, fit = new_inputs(37), guide()
    p = predictor.parameters(DATA, predictor.values(fit, DRAWS), x)["probability"]
    found = predictor.predict([fit], [1.0], DATA, x, DRAWS)
    predicted = p.mean(axis=0).argmax(axis=1)
    np.testing.assert_array_equal(found.predicted, predicted)
    others = (p.argmax(axis=2) != predicted).mean(axis=0)
    assert 0 < others.mean() < 0.9
    np.testing.assert_allclose(found.expected_error_rate, others, atol=1e-12)
    sd = p.std(axis=0)[np.arange(37), predicted]
    np.testing.assert_allclose(found.predicted_sd, sd, rtol=1e-9)
    np.testing.assert_allclose(found.class_variance, p.var(axis=0).sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("kind", NORMAL_GUIDES)
def test_single_draws(predictor, kind):
    """Those of all draws at once, and the first of more."""
    x, fit = new_inputs(37), guide(kind=kind)
    found = predictor.single_draws(fit, DATA, x, 12)["probability"]
    expected = predictor.parameters(DATA, predictor.values(fit, 12), x)["probability"]
    assert found.shape == (12, 37, 3)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    np.testing.assert_array_equal(predictor.single_draws(fit, DATA, x, 5)["probability"], found[:5])
    assert not np.allclose(found[0], found[1], rtol=1e-3)


@pytest.mark.slow
def test_single_draws_in_single_precision(predictors):
    x, fit, predictor = new_inputs(9), guide(), predictors["float32"]
    found = predictor.single_draws(fit, DATA, x, 6)["probability"]
    assert found.dtype == np.float32
    expected = predictor.parameters(DATA, predictor.values(fit, 6), x)["probability"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_single_draws_of_a_point(predictor):
    """One network, however many are asked for."""
    x, fit = new_inputs(9), guide(kind="map")
    found = predictor.single_draws(fit, DATA, x, 6)["probability"]
    assert found.shape == (1, 9, 3)
    np.testing.assert_allclose(
        found, predictor.parameters(DATA, fit.parameters["loc"][None], x)["probability"], rtol=1e-9
    )


def test_information_is_never_negative():
    """Rounding may put the entropy of the mean just below the mean entropy."""
    p = np.array([[0.3, 0.7]])
    entropy = -xlogy(p, p).sum(axis=1)
    moments = ClassProbabilities(1, p, np.zeros_like(p), entropy * (1 + 1e-7), p, np.log(p))
    np.testing.assert_array_equal(moments.mutual_information, [0.0])


# --- densities ----------------------------------------------------------------------------


def densities(predictor, fit, data, values):
    """Log-likelihoods, log joint densities and log guide densities of draws."""
    return *predictor.log_joint(data, values), log_density_of_mixture([fit], [1.0], values)


def test_log_density_of_a_mixture_of_guides(predictor):
    """By SciPy; a guide without weight is not looked at."""
    fits = [guide("fit/0"), guide("fit/11"), guide("fit/222")]
    fits[1].parameters["loc"][:] = np.nan
    values = np.concatenate([predictor.values(fits[i], 5) for i in (0, 2)])
    found = log_density_of_mixture(fits, [0.2, 0.0, 0.8], values)
    parts = [
        norm(fits[i].parameters["loc"], fits[i].parameters["scale"]).logpdf(values).sum(axis=1)
        for i in (0, 2)
    ]
    expected = logsumexp(parts, axis=0, b=[[0.2], [0.8]])
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_log_densities(predictors, evaluate):
    """PyMC's log-probability and SciPy's normal; for other rows and constants."""
    rows = 23
    data = {"x": X[:rows], "target": Y[:rows], "hyperprior_sigma": 1.9}
    model, fit = build(slice(rows), sigma=1.9), guide()
    values = predictors["float64"].values(fit, 4)
    observed = model.logp(vars=model.observed_RVs, sum=False)[0]
    expected = [evaluate([observed, model.logp()], unflatten(model, v)) for v in values]
    by_row, log_p = (np.array(part) for part in zip(*expected, strict=True))
    log_q = norm(fit.parameters["loc"], fit.parameters["scale"]).logpdf(values).sum(axis=1)
    for dtype, tolerance in (("float64", 1e-10), ("float32", 1e-5)):
        found = densities(predictors[dtype], fit, data, values)
        assert [a.shape for a in found] == [(4, rows), (4,), (4,)]
        np.testing.assert_allclose(found[0], by_row, rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(found[1], log_p, rtol=tolerance)
        np.testing.assert_allclose(found[2], log_q, rtol=tolerance)


@pytest.mark.parametrize("kind", NORMAL_GUIDES)
def test_log_density_of_every_guide(predictor, predictors, kind):
    """SciPy's normal at the guide's own draws and far from them; the model's is untouched."""
    fit = guide(kind=kind)
    values = predictor.values(fit, 4)
    values = np.concatenate([values, fit.parameters["loc"] + 5 * (values - fit.parameters["loc"])])
    log_likelihood, log_p, log_q = densities(predictor, fit, DATA, values)
    expected = multivariate_normal(fit.parameters["loc"], covariance(fit.parameters)).logpdf(values)
    np.testing.assert_allclose(log_q, expected, rtol=1e-10)
    same = densities(predictors["float64"], guide(), DATA, values)
    np.testing.assert_allclose(log_likelihood, same[0], rtol=1e-12)
    np.testing.assert_allclose(log_p, same[1], rtol=1e-12)


def test_a_point_has_no_density(predictor):
    fit = guide(kind="map")
    values = predictor.values(fit, 3)
    log_likelihood, log_p, log_q = densities(predictor, fit, DATA, values)
    np.testing.assert_array_equal(log_q, np.full(3, np.nan))
    same = densities(predictor, guide(), DATA, values)
    np.testing.assert_allclose(log_likelihood, same[0], rtol=1e-12)
    np.testing.assert_allclose(log_p, same[1], rtol=1e-12)


@pytest.mark.slow
def test_mean_log_ratio_is_the_elbo(predictor):
    """Over a guide that stays where it starts, with draws and noise of their own."""
    settings = Inference(steps=4000, learning_rate=1e-12, initial_scale=0.3)
    program = build_program(build(), settings, ROWS, width=1, dtype="float64")
    [fit] = fit_replicas(program, [Replica(DATA, derive_keys("elbo"))])
    history, fit = fit.history, GuideDraws.from_fit(program.guide, fit)
    values = predictor.values(fit, 4000)
    log_likelihood, log_p, log_q = densities(predictor, fit, DATA, values)
    log_likelihood = log_likelihood.sum(axis=1)
    pairs = {
        "elbo": (log_p - log_q, history.elbo),
        "log_likelihood": (log_likelihood, history.log_likelihood),
        "kl": (log_q - (log_p - log_likelihood), history.kl),
    }
    for by_draw, windows in pairs.values():
        # The history is of windows: their deviation gives the error of their mean.
        error = np.hypot(by_draw.std() / np.sqrt(4000), windows.std() / np.sqrt(len(windows)))
        assert abs(by_draw.mean() - windows.mean()) < 4 * error
        assert error < 0.5


def test_only_categorical_models():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=np.zeros(3))
    with pytest.raises(ValueError, match="is drawn from `normal`, got `categorical`"):
        Predictor(model, Categorical())


# Programs shared between priors


def predicted(prior, hyperprior, constants, x):
    """Predictor of a prior, and what it predicts and finds of one guide."""
    model = dense_classifier(X, Y, hidden=(3,), prior=prior, hyperprior=hyperprior)
    predictor = Predictor(model, Categorical())
    data, fit = DATA | constants, guide()
    found = predictor.predict([fit], [1.0], data, x, DRAWS)
    values = predictor.values(fit, DRAWS)
    log_likelihood, log_p = predictor.log_joint(data, values)
    return predictor, [found.mean, found.sd, log_likelihood, log_p]


MODELS = {
    "normal": ("normal", "half_normal", {"hyperprior_sigma": 0.7}),
    "laplace": (
        "laplace",
        "inverse_gamma",
        {"hyperprior_alpha": 2.0, "hyperprior_beta": 0.5},
    ),
}


@pytest.mark.slow
def test_priors_share_what_predicts():
    """The same to the last bit, whichever prior came before; the log-prior is each one's own."""
    x = np.random.default_rng(1).normal(size=(70, 2))
    alone = {name: predicted(*model, x)[1] for name, model in MODELS.items()}
    with sharing_programs():
        together = {name: predicted(*model, x) for name, model in MODELS.items()}
    programs = [predictor._reduced for predictor, _ in together.values()]
    assert programs[0] is programs[1]
    assert len({id(predictor._log_prior) for predictor, _ in together.values()}) == 2
    for name, (_, found) in together.items():
        for ours, expected in zip(found, alone[name], strict=True):
            np.testing.assert_array_equal(ours, expected)
    densities = [found[-1] for found in alone.values()]
    assert not np.allclose(densities[0], densities[1])
