"""Posteriors at another temperature: likelihood and prior of the weights raised to a power."""

import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from makers import GENERAL_PRIORS, with_defaults
from scipy import stats

import pmbnn as pb
from pmbnn.data.arrays import Rows
from pmbnn.inference.batches import model_values
from pmbnn.inference.engines import n_observations
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.xla.compile import precision
from pmbnn.prediction.predictor import tempering

X = np.random.default_rng(0).normal(size=(30, 2))
Y = X @ [0.5, -1.0] + 0.3 * np.random.default_rng(1).normal(size=30)
ROWS = Rows(X, Y, ("a", "b"), ())
NOISE, SCALE = 0.3, 0.7


def linear(prior="normal", hyperprior=None):
    """A network without a hidden layer; a single target."""
    hyperprior = hyperprior or {"kind": "fixed", "scale": SCALE}
    network = {"kind": "dense", "hidden": []}
    return pb.build_model(network, prior, hyperprior, {"kind": "normal", "sd": NOISE}, ROWS)


def difference(model, prior, temperature, vector):
    """Log-density at a temperature less that at 1, at a flat vector."""
    rows, data, vector = n_observations(model), model_values(model), jnp.asarray(vector)
    with precision("float64"):
        cold, plain = (
            float(density.value(vector, density.prepare(data)))
            for density in (
                build_log_density(model, rows, "float64", tempering(temperature, prior)),
                build_log_density(model, rows, "float64"),
            )
        )
    return cold - plain


def log_likelihood(weights, bias):
    return stats.norm(X @ weights + bias, NOISE).logpdf(Y).sum()


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["mclmc", "nuts"])
@pytest.mark.parametrize("temperature", [0.25, 2.0])
def test_a_gaussian_posterior_is_so_much_wider(temperature, engine):
    """Its mean is the same, its covariance is multiplied by the temperature."""
    design = np.column_stack([X, np.ones(len(X))])
    covariance = np.linalg.inv(design.T @ design / NOISE**2 + np.eye(3) / SCALE**2)
    mean = covariance @ design.T @ Y / NOISE**2
    found = pb.sample(linear(), engine=engine, temperature=temperature, progress=False, draws=800)
    draws = found.chains.values.reshape(-1, 3)
    order = np.argsort([np.abs(draws.mean(axis=0)[i] - mean).argmin() for i in range(3)])
    assert sorted(order) == [0, 1, 2]
    sd = np.sqrt(temperature * np.diag(covariance))
    np.testing.assert_allclose(draws[:, order].mean(axis=0), mean, atol=0.15 * sd.max())
    np.testing.assert_allclose(draws[:, order].std(axis=0), sd, rtol=0.1)


@pytest.mark.parametrize("centred", [True, False])
def test_the_prior_of_a_learned_scale_is_not_raised(centred):
    """The density of the weights over their scale is, whichever of the two the model has."""
    hyperprior = {"kind": "half_normal", "centred": centred}
    model, prior = linear(hyperprior=hyperprior), pb.priors.Normal()
    flat = flatten_model(model, rows=None)
    vector = np.random.default_rng(2).normal(size=flat.size)
    parts = {name: part.ravel() for name, part in flat.layout.unravel(vector).items()}
    (log_scale,) = next(v for name, v in parts.items() if "scale" in name)
    scale = np.exp(log_scale)
    standard = {n: v / (scale if centred else 1) for n, v in parts.items() if "scale" not in n}
    weights, bias = (next(v for n, v in standard.items() if n.startswith(k)) for k in ("w", "b"))
    term = log_likelihood(scale * weights, scale * bias)
    term += sum(stats.norm.logpdf(v).sum() for v in standard.values())
    for temperature in (0.1, 3.0):
        expected = (1 / temperature - 1) * term
        assert difference(model, prior, temperature, vector) == pytest.approx(expected, rel=1e-6)


def test_at_temperature_1_nothing_changes():
    assert tempering(1.0, pb.priors.Normal()) is None


@pytest.mark.parametrize("per", ["weight", "unit"])
def test_scales_of_single_weights_and_units_cannot_be_raised(per):
    prior = pb.priors.Horseshoe(per=per)
    model = linear(prior, "half_cauchy")
    with pytest.raises(ValueError, match=r"`temperature` must be 1 with prior horseshoe, got 0\.5"):
        build_log_density(model, n_observations(model), "float64", tempering(0.5, prior))


ON_LINE = [*(with_defaults(cls) for kind, cls in GENERAL_PRIORS.items() if kind != "pymc")]
ON_LINE += [pb.priors.PyMCPrior(dist="Logistic", s=0.5), pb.priors.PyMCPrior(dist="Moyal")]
ON_LINE += [pb.priors.PyMCPrior(dist="HalfNormal"), pb.priors.PyMCPrior(dist="Uniform", lower=-1)]


@pytest.mark.parametrize("prior", ON_LINE, ids=repr)
def test_priors_say_whether_they_can_be_raised(prior):
    """Experiments are refused by what a prior says; the model tells by its variables."""
    model = linear(prior, pb.Fixed())
    flat = flatten_model(model, rows=None)
    further = tempering(0.5, prior)
    if prior.is_on_line:
        assert further(flat, pt.constant(0.0)).type.ndim == 0
    else:
        with pytest.raises(ValueError, match=f"must be 1 with prior {prior.kind}, got 0"):
            further(flat, pt.constant(0.0))


def test_a_model_of_one_s_own_has_no_weights_that_are_known():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    with pytest.raises(ValueError, match="`temperature` must be 1 for a model that is not one of"):
        pb.sample(model, temperature=0.5, progress=False)


def test_another_temperature_is_no_reference():
    settings = {"chains": 2, "draws": 4, "tuning": 10, "descent": 5, "thin": 1}
    cold = pb.sample(linear(), temperature=0.5, progress=False, **settings)
    with pytest.raises(ValueError, match=r"of the posterior, got one at temperature 0\.5"):
        pb.check(pb.fit(linear(), steps=20, progress=False), cold)
