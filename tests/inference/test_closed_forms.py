"""Closed forms, through the engine: linear regression, a worked update, a published divergence."""

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy.special import expit
from scipy.stats import multivariate_normal, norm
from tiers import slow_but

from pmbnn.inference import advi
from pmbnn.inference.advi import build_program
from pmbnn.inference.elbo import build_objective
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.groups import fit as fit_replicas
from pmbnn.inference.guides import build_guide, initial_means, inverse_softplus, softplus
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.build import dense_classifier

ROWS, SIZE = 30, 3
SIGMA, PRIOR = np.float64(0.8), np.float64(1.5)  # Python's would stay in single precision
MIXING = np.array([[1, 0.8, 0], [0, 0.6, 0.3], [0, 0, 1]])
RNG = np.random.default_rng(2)
X = RNG.normal(size=(ROWS, SIZE)) @ MIXING
Y = X @ [1.0, -2.0, 0.5] + SIGMA * RNG.normal(size=ROWS)
ORTHOGONAL = np.linalg.qr(X)[0] * [3.0, 4.0, 5.0]


# --- linear regression: the exact posterior -----------------------------------------------


def linear_regression(x):
    with pm.Model() as model:
        weight = pm.Normal("weight", 0.0, PRIOR, shape=SIZE)
        pm.Normal("y", x @ weight, SIGMA, observed=Y)
    return model


def posterior(x):
    """Mean and covariance of the weights."""
    covariance = np.linalg.inv(x.T @ x / SIGMA**2 + np.eye(SIZE) / PRIOR**2)
    return covariance @ x.T @ Y / SIGMA**2, covariance


def log_evidence(x):
    return multivariate_normal(cov=SIGMA**2 * np.eye(ROWS) + PRIOR**2 * x @ x.T).logpdf(Y)


def mean_field(mean, covariance):
    """The optimum: means of the posterior, inverse roots of its precision's diagonal."""
    scale = 1 / np.sqrt(np.diag(np.linalg.inv(covariance)))
    return {"loc": mean, "rho": inverse_softplus_of(scale)}


def full_rank(mean, covariance):
    root = np.linalg.cholesky(covariance)
    scale = np.diag(root)
    lower = np.tril(root / scale[:, None], k=-1) * np.sqrt(SIZE)
    return {"loc": mean, "rho": inverse_softplus_of(scale), "lower": lower}


def low_rank(mean, covariance):
    """Half of the smallest eigenvalue is on the diagonal, the rest in as many factors."""
    diagonal = np.full(SIZE, np.sqrt(0.5 * np.linalg.eigvalsh(covariance)[0]))
    factor = np.linalg.cholesky(covariance - np.diag(diagonal**2))
    unit = factor / diagonal[:, None] * np.sqrt(SIZE)
    return {"loc": mean, "rho": inverse_softplus_of(diagonal), "factor": unit}


def inverse_softplus_of(scale):
    return np.array([inverse_softplus(s) for s in scale])


GUIDES = {
    "mean_field": (ORTHOGONAL, mean_field),
    "low_rank": (X, low_rank),
    "full_rank": (X, full_rank),
}
"""Inputs for which a guide can be the posterior, and its parameters then."""


class Elbo:
    """Objective of a fit, in double precision."""

    def __init__(self, model, rows, **settings):
        settings = Inference(**settings)
        flat = flatten_model(model, rows)
        guide = build_guide(settings, flat.size, flat.improper)
        self.objective = o = build_objective(flat, guide, settings, rows, rows)
        noise = [n.variable for n in o.noise.values()]
        inputs = [*o.parameters.values(), *noise, *o.data.values()]
        with precision("float64"):
            self._function = jax_function(inputs, [o.log_likelihood, o.kl])

    def parts(self, parameters, noise, data):
        """Log-likelihood and divergence."""
        o = self.objective
        arrays = [parameters[n] for n in o.parameters] + [noise[n] for n in o.noise]
        arrays += [data[n] for n in o.data]
        return self._function(*arrays)

    def of_noises(self, parameters, noises, data):
        """ELBO and its gradients, the divergence; of each noise."""

        def of(parameters, noise, data):
            log_likelihood, kl = self.parts(parameters, noise, data)
            return log_likelihood - kl, kl

        with precision("float64"):
            parameters, noises, data = (
                {k: jnp.asarray(v) for k, v in arrays.items()}
                for arrays in (parameters, noises, data)
            )
            every = jax.vmap(jax.value_and_grad(of, has_aux=True), in_axes=(None, 0, None))
            (elbos, kls), gradients = jax.jit(every)(parameters, noises, data)
        return np.asarray(elbos), {k: np.asarray(v) for k, v in gradients.items()}, np.asarray(kls)


def elbos_and_gradients(elbo, parameters, noises):
    """ELBO, and its gradients in all parameters as a vector, of each noise."""
    elbos, gradients, _ = elbo.of_noises(parameters, noises, {})
    flat = [gradients[name].reshape(len(elbos), -1) for name in parameters]
    return elbos, np.concatenate(flat, axis=1)


def shapes(elbo):
    return {name: n.variable.type.shape for name, n in elbo.objective.noise.items()}


def random_noises(elbo, n):
    rng = np.random.default_rng(3)
    return {name: rng.normal(size=(n, *shape)) for name, shape in shapes(elbo).items()}


def cubature(elbo):
    """Points whose mean is that of any quadratic function of all noise, exactly.

    Two a dimension: plus and minus its unit vector times the root of their number.
    """
    sizes = {name: int(np.prod(shape)) for name, shape in shapes(elbo).items()}
    n = sum(sizes.values())
    points = np.sqrt(n) * np.concatenate([np.eye(n), -np.eye(n)])
    parts = np.split(points, np.cumsum(list(sizes.values()))[:-1], axis=1)
    return {
        name: part.reshape(2 * n, *shape)
        for (name, shape), part in zip(shapes(elbo).items(), parts, strict=True)
    }


@pytest.fixture(scope="module", params=slow_but(["mean_field"], list(GUIDES)))
def exact(request):
    """A guide, inputs, and the guide's parameters at the exact posterior."""
    x, parameters = GUIDES[request.param]
    return {"guide": request.param, "rank": SIZE}, x, parameters(*posterior(x))


def test_exact_posterior(exact):
    """Path derivative: the ELBO is the log-evidence at every draw, its gradient zero."""
    guide, x, parameters = exact
    elbo = Elbo(linear_regression(x), ROWS, estimator="path_derivative", **guide)
    elbos, gradients = elbos_and_gradients(elbo, parameters, random_noises(elbo, 10))
    np.testing.assert_allclose(elbos, log_evidence(x), rtol=1e-11)
    np.testing.assert_allclose(gradients, 0, atol=1e-9)
    moved = parameters | {"loc": parameters["loc"] + 0.1}
    elbos, gradients = elbos_and_gradients(elbo, moved, random_noises(elbo, 10))
    assert np.ptp(elbos) > 0.1
    assert np.abs(gradients).max(axis=1).min() > 0.1


@pytest.mark.parametrize("kl", ["auto", "monte_carlo"])
def test_expected_elbo(exact, kl):
    """Its mean is the log-evidence, its mean gradient zero: a quadratic function of noise."""
    guide, x, parameters = exact
    elbo = Elbo(linear_regression(x), ROWS, kl=kl, **guide)
    elbos, gradients = elbos_and_gradients(elbo, parameters, cubature(elbo))
    np.testing.assert_allclose(elbos.mean(), log_evidence(x), rtol=1e-11)
    np.testing.assert_allclose(gradients.mean(axis=0), 0, atol=1e-9)
    assert gradients.std(axis=0).max() > 1


def mean_field_gap(covariance):
    """Divergence of the best mean-field guide from the posterior."""
    precision_diagonal = np.diag(np.linalg.inv(covariance))
    return 0.5 * (np.log(precision_diagonal).sum() + np.linalg.slogdet(covariance)[1])


@pytest.mark.parametrize(
    "estimator", slow_but(["path_derivative"], ["reparameterisation", "path_derivative"])
)
def test_best_mean_field(estimator):
    """Correlated weights: the gradient vanishes at narrow scales, the ELBO lacks the gap."""
    mean, covariance = posterior(X)
    elbo = Elbo(linear_regression(X), ROWS, estimator=estimator)
    elbos, gradients = elbos_and_gradients(elbo, mean_field(mean, covariance), cubature(elbo))
    gap = -mean_field_gap(covariance)
    assert gap < -0.3
    np.testing.assert_allclose(elbos.mean(), log_evidence(X) + gap, rtol=1e-11)
    np.testing.assert_allclose(gradients.mean(axis=0), 0, atol=1e-9)
    marginal = {"loc": mean, "rho": inverse_softplus_of(np.sqrt(np.diag(covariance)))}
    _, gradients = elbos_and_gradients(elbo, marginal, cubature(elbo))
    assert np.abs(gradients.mean(axis=0)).max() > 0.1


# --- linear regression: fits --------------------------------------------------------------

WIDTH = 8


def fits_of(steps=2000, **settings):
    settings = Inference(steps=steps, schedule="cosine", learning_rate=0.05, **settings)
    program = build_program(linear_regression(X), settings, ROWS, WIDTH, dtype="float64")
    return fit_replicas(program, [Replica({}, derive_keys(str(i))) for i in range(WIDTH)])


def check_mean(found, exact, close):
    """Mean over fits within its error, which is small enough to tell."""
    found = np.array(found)
    error = found.std(axis=0, ddof=1) / np.sqrt(WIDTH)
    # 5.4 is where Student's t with seven degrees of freedom leaves 0.1 % in both tails.
    assert (np.abs(found.mean(axis=0) - exact) < 5.4 * error).all()
    assert (error < close).all()


def test_fit_mean_field():
    mean, covariance = posterior(X)
    fits = fits_of()
    scale = softplus(mean_field(mean, covariance)["rho"])
    check_mean([fit.loc for fit in fits], mean, 0.05 * scale)
    check_mean([fit.scale for fit in fits], scale, 0.05 * scale)
    expected = log_evidence(X) - mean_field_gap(covariance)
    check_mean([fit.elbo for fit in fits], expected, 0.1)


@pytest.mark.parametrize("guide", slow_but(["full_rank"], ["low_rank", "full_rank"]))
def test_fit_exact(guide):
    """The path derivative has no noise left where these guides end: at the posterior."""
    mean, covariance = posterior(X)
    for fit in fits_of(6000, guide=guide, rank=SIZE, estimator="path_derivative"):
        np.testing.assert_allclose(fit.loc, mean, rtol=0, atol=1e-4)
        np.testing.assert_allclose(covariance_of(fit), covariance, rtol=0, atol=1e-4)
        np.testing.assert_allclose(fit.scale**2, np.diag(covariance), rtol=0, atol=1e-4)
        np.testing.assert_allclose(fit.elbo, log_evidence(X), rtol=0, atol=1e-4)


def covariance_of(fit):
    constrained = fit.constrained
    if "root" in constrained:
        return constrained["root"] @ constrained["root"].T
    return np.diag(constrained["diagonal"] ** 2) + constrained["factor"] @ constrained["factor"].T


# --- Bayes by Backprop: one update worked by hand -----------------------------------------
# Published to four decimals; so is the noise, which moves the loss by up to 53.5 · 2.13 · 5e-5.

NOISE, SCALE = 1.9070, np.log1p(np.exp(2.0))
ROUNDING = 0.006


def published_model():
    with pm.Model() as model:
        w = pm.Normal("w", 0.0, 1.0)
        pm.Normal("y", w * np.array([2.0]), 0.5, observed=np.array([3.0]))
    return model


START = {"loc": np.array([0.5]), "rho": np.array([2.0])}


def test_worked_parts(evaluate):
    """The draw, and its densities under the guide, the prior and the likelihood."""
    flat = flatten_model(published_model(), 1)
    guide = build_guide(Inference(), flat.size, improper=False)
    constrained = {
        "loc": pytensor.shared(START["loc"]),
        "scale": pytensor.shared(np.array([SCALE])),
    }
    draw = guide.draw(constrained, {"noise": np.array([NOISE])})
    graphs = [draw.sum(), guide.log_density(constrained, draw)]
    graphs += flat.at(draw, [flat.log_prior, flat.log_likelihoods["y"].sum()])
    w, log_q, log_prior, log_likelihood = evaluate(graphs, {})
    np.testing.assert_allclose(w, 4.5561, atol=1.6e-4)
    np.testing.assert_allclose(log_q, -3.4920, atol=1.5e-4)
    np.testing.assert_allclose(log_prior, -11.2981, atol=6e-4)
    np.testing.assert_allclose(log_likelihood, -74.9450, atol=ROUNDING)


def test_worked_loss():
    """The loss has log q at the draw where ours has minus the entropy, with equal gradients.

    Along a draw, log q = -log sigma - noise² / 2 + constant does not depend on the mean, and
    on rho through -log sigma only, as the entropy does.
    """
    elbo = Elbo(published_model(), 1, kl="monte_carlo")
    [value], [gradient] = elbos_and_gradients(elbo, START, {"noise": [[NOISE]]})
    np.testing.assert_allclose(-value - 0.5 * (NOISE**2 - 1), 82.7511, atol=ROUNDING)
    np.testing.assert_allclose(-gradient[0], 53.4541, atol=17 * SCALE * 5e-5 + 5e-5)
    np.testing.assert_allclose(-gradient[1], 89.3733, atol=ROUNDING)


def test_worked_loss_of_path_derivative():
    """Its loss is the published one as it stands; its gradients lack the guide's score."""
    elbo = Elbo(published_model(), 1, estimator="path_derivative")
    [value], [gradient] = elbos_and_gradients(elbo, START, {"noise": [[NOISE]]})
    np.testing.assert_allclose(value, -82.7511, atol=ROUNDING)
    # Where the published slope has d log q = -1/sigma in sigma, this has -noise/sigma along
    # the draw: in the mean, and times the noise in sigma.
    slope = np.array([-NOISE, 1 - NOISE**2]) / SCALE * np.array([1.0, expit(2.0)])
    np.testing.assert_allclose(-gradient, np.array([53.4541, 89.3733]) + slope, atol=ROUNDING)


def test_worked_step(monkeypatch):
    """One step of stochastic gradient descent, by the engine's own loop."""
    settings = Inference(
        steps=1, optimiser="sgd", schedule="constant", learning_rate=0.01, kl="monte_carlo"
    )
    program = build_program(published_model(), settings, rows=1, width=1, dtype="float64")
    monkeypatch.setattr(advi.Program, "noise", lambda *asked: {"noise": jnp.array([NOISE])})
    replica = Replica({}, derive_keys("worked"))
    data = advi.prepare(replica, program)
    state, info = advi.step(replica.key, program.start(START), program, data)
    guide = advi.constrained_parameters(state, program)
    np.testing.assert_allclose(guide["loc"], -0.0345, atol=1.1e-4)
    np.testing.assert_allclose(guide["scale"], softplus(1.1063), atol=1.1e-4)
    elbo = info.log_likelihood - info.kl
    np.testing.assert_allclose(elbo, -82.7511 - 0.5 * (NOISE**2 - 1), atol=ROUNDING)


# --- a published divergence ---------------------------------------------------------------


def published_start(flat):
    """Means truncated at two standard deviations of 1/√fan-in, biases 0, log-variances -1."""
    settings = Inference(initial_mean="truncated_fan_in")
    loc = initial_means(flat.layout, settings, np.random.default_rng(5))
    return {"loc": loc, "rho": np.full(flat.size, inverse_softplus(np.exp(-0.5)))}


@pytest.fixture(scope="module")
def large():
    """784-64-64-10, standard normal prior."""
    rng = np.random.default_rng(4)
    return dense_classifier(rng.normal(size=(10, 784)), np.arange(10), hidden=(64, 64))


def start_divergence(model, evaluate, **settings):
    """Divergence at the published start, for ten rows, and by summing densities ourselves."""
    settings, flat = Inference(**settings), flatten_model(model, 10)
    guide = build_guide(settings, flat.size, improper=False)
    objective = build_objective(flat, guide, settings, 10, 10)
    start = published_start(flat)
    given = {objective.parameters[name]: value for name, value in start.items()}
    given[objective.data["prior_scale"]] = np.array(1.0)
    [kl] = evaluate([objective.kl], given)
    scale = softplus(start["rho"])
    expected = 0.5 * (scale**2 + start["loc"] ** 2 - 1) - np.log(scale)
    return kl, {s.name: s.of(expected) for s in flat.layout.slots}


def test_published_divergence(large, evaluate):
    """26.404 a row, at the start of the first published run.

    Random means give it a standard deviation of 0.007, the published number's and ours.
    """
    kl, elements = start_divergence(large, evaluate, kl_scaling="first_dimension")
    assert len(elements) == 6
    expected = sum(part.sum() / part.shape[0] for part in elements.values())
    np.testing.assert_allclose(kl / 10, expected, rtol=1e-12)
    np.testing.assert_allclose(kl / 10, 26.404, atol=4.5 * np.sqrt(2) * 0.007)


def test_proper_divergence(large, evaluate):
    """The sum over all 55,050 weights is what the ELBO takes, whatever the rows."""
    kl, elements = start_divergence(large, evaluate)
    assert sum(part.size for part in elements.values()) == 55_050
    np.testing.assert_allclose(kl, sum(part.sum() for part in elements.values()), rtol=1e-12)
    np.testing.assert_allclose(kl, 10_180, atol=5)


def divergences(kl):
    """Scaled divergence of a classifier at the points of a cubature."""
    target = np.arange(ROWS) % 2
    model = dense_classifier(X, target, hidden=(2,))
    elbo = Elbo(model, ROWS, kl=kl, kl_scaling="first_dimension")
    [(size,)] = shapes(elbo).values()
    at = {"loc": np.linspace(-1, 1, size), "rho": np.linspace(-2, 1, size)}
    data = {"x": X, "target": target, "prior_scale": 1.0}
    return elbo.of_noises(at, cubature(elbo), data)[2]


@pytest.mark.slow
def test_scaling_at_the_draw():
    """With the prior at a draw the scaled divergence is unbiased: it meets the exact one."""
    exact, drawn = divergences("auto"), divergences("monte_carlo")
    assert np.ptp(exact) < 1e-9
    assert np.ptp(drawn) > 1
    np.testing.assert_allclose(drawn.mean(), exact[0], rtol=1e-11)


def test_densities_by_scipy(evaluate):
    """The prior and likelihood of the worked update are those of SciPy, at another point."""
    flat = flatten_model(published_model(), 1)
    [w] = flat.free.values()
    found = evaluate([flat.log_prior, flat.log_likelihoods["y"].sum()], {w: np.array(-1.3)})
    np.testing.assert_allclose(found, [norm(0, 1).logpdf(-1.3), norm(-2.6, 0.5).logpdf(3.0)])
