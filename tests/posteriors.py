"""Posteriors that are known, and draws from them by any sampler."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from arviz_stats.base import array_stats
from scipy import stats

from pmbnn.inference.batches import model_values
from pmbnn.inference.engines import n_observations
from pmbnn.inference.flat import flat_vector, flatten_model
from pmbnn.inference.log_density import build_log_density, place_of
from pmbnn.inference.samplers.run import build_sampler, sample_posterior
from pmbnn.inference.samplers.settings import SAMPLING

X = np.column_stack([np.ones(30), np.linspace(-1, 2, 30)])
Y = X @ [0.5, -1.0] + 0.4 * np.random.default_rng(0).normal(size=30)
PRIOR_SD, NOISE = 2.0, 0.4


def regression():
    """Linear regression with known noise: all of it is known in closed form."""
    with pm.Model() as model:
        weight = pm.Normal("weight", 0.0, PRIOR_SD, shape=2)
        pm.Normal("y", X @ weight, NOISE, observed=Y)
    return model


def regression_precision():
    """Inverse covariance of its weights."""
    return X.T @ X / NOISE**2 + np.eye(2) / PRIOR_SD**2


def regression_moments():
    """Means and standard deviations of its weights."""
    precision = regression_precision()
    mean = np.linalg.solve(precision, X.T @ Y / NOISE**2)
    return mean, np.sqrt(np.diag(np.linalg.inv(precision)))


def regression_evidence():
    """Logarithm of its evidence."""
    covariance = PRIOR_SD**2 * X @ X.T + NOISE**2 * np.eye(len(X))
    return stats.multivariate_normal(np.zeros(len(X)), covariance).logpdf(Y)


SHARE, APART, WIDTH = 0.8, 3.0, 0.3


def two_modes():
    """Two bumps at ±`APART`, of which the right one has the share `SHARE`."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 3.0, shape=2)
        left, right = (-(((x - c) / WIDTH) ** 2).sum() / 2 for c in (-APART, APART))
        # The prior is the same at both.
        pm.Potential("bumps", pt.logaddexp(np.log(1 - SHARE) + left, np.log(SHARE) + right))
    return model


def walled(threshold):
    """Two normals, of which no number is known below a threshold of the first."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 1.0, shape=2)
        pm.Potential("wall", pt.switch(x[0] < threshold, np.nan, 0.0))
    return model


MCLMC = {"chains": 4, "draws": 64, "thin": 10, "tuning": 500, "descent": 20}
"""Settings of the tests of the quick tier, so that one of them compiles the program for all."""


def sampler_of(model, engine, **settings):
    """Its programs, in double precision."""
    density = build_log_density(model, n_observations(model), "float64")
    return build_sampler(density, SAMPLING[engine](**settings))


def drawn(model, engine, identity="0", **settings):
    """Draws of the flat vector, with R-hat of its elements."""
    sampler = sampler_of(model, engine, **settings)
    return sample_posterior(sampler, model_values(model), lambda v: v, identity=identity)


def errors_of(values, expected_mean, expected_sd):
    """How many Monte-Carlo standard errors means and standard deviations are off by."""
    of = {"chain_axis": 0, "draw_axis": 1}
    mean = (values.mean(axis=(0, 1)) - expected_mean) / array_stats.mcse(values, **of)
    sd = (values.std(axis=(0, 1)) - expected_sd) / array_stats.mcse(values, method="sd", **of)
    return np.abs([mean, sd])


def has_quantiles(model):
    """Whether all free variables have quantile functions that JAX computes."""
    flat = flatten_model(model, n_observations(model))
    try:
        place_of(flat, flat_vector(flat))
    except ValueError as error:
        assert "is not available" in str(error)
        return False
    return True
