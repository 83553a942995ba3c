"""Models that nobody wrote for this project, as their books and documentation have them."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt


def eight_schools(centred):
    """Effects of coaching in eight schools (Rubin 1981; Gelman et al., BDA3, section 5.5)."""
    effect = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    error = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    with pm.Model(coords={"school": list("ABCDEFGH")}) as model:
        mu = pm.Normal("mu", 0.0, 5.0)
        tau = pm.HalfCauchy("tau", 5.0)
        if centred:
            theta = pm.Normal("theta", mu, tau, dims="school")
        else:
            theta_z = pm.Normal("theta_z", 0.0, 1.0, dims="school")
            theta = pm.Deterministic("theta", mu + tau * theta_z, dims="school")
        pm.Normal("y", theta, error, observed=effect, dims="school")
    return model


def varying_intercepts():
    """Groups with levels of their own and a common slope, all of it data with dims."""
    rng = np.random.default_rng(1)
    group = rng.integers(0, 6, 90)
    x = rng.normal(size=90)
    y = rng.normal(size=6)[group] + 0.7 * x + 0.5 * rng.normal(size=90)
    with pm.Model(coords={"county": range(6)}) as model:
        index = pm.Data("county_index", group, dims="observation")
        floor = pm.Data("floor", x, dims="observation")
        a = pm.Normal("a", 0.0, 2.0)
        sigma_a = pm.Exponential("sigma_a", 1.0)
        alpha = pm.Normal("alpha", a, sigma_a, dims="county")
        beta = pm.Normal("beta", 0.0, 2.0)
        sigma = pm.HalfNormal("sigma", 1.0)
        mean = pm.Deterministic("mean", alpha[index] + beta * floor, dims="observation")
        observed = pm.Data("log_radon", y, dims="observation")
        pm.Normal("y", mean, sigma, observed=observed, dims="observation")
    return model


def logistic():
    """Regression of a yes or no."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(80, 3))
    y = rng.random(80) < 1 / (1 + np.exp(-x @ [1.0, -1.0, 0.5]))
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 1.5)
        slope = pm.Normal("slope", 0.0, 1.0, shape=3)
        pm.Bernoulli("y", logit_p=level + x @ slope, observed=y.astype(int))
    return model


def robust():
    """Regression with outliers, whose degrees of freedom are learned."""
    rng = np.random.default_rng(3)
    x = np.linspace(-2, 2, 50)
    y = 1 + 2 * x + 0.3 * rng.standard_t(2, size=50)
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 5.0)
        slope = pm.Normal("slope", 0.0, 5.0)
        sigma = pm.HalfCauchy("sigma", 1.0)
        nu = pm.Gamma("nu", 2.0, 0.1)
        pm.StudentT("y", nu=nu, mu=level + slope * x, sigma=sigma, observed=y)
    return model


def counts():
    """Overdispersed counts with a logarithmic link."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=70)
    mu = np.exp(1 + 0.5 * x)
    y = rng.negative_binomial(3, 3 / (3 + mu))
    with pm.Model() as model:
        level = pm.Normal("level", 0.0, 2.0)
        slope = pm.Normal("slope", 0.0, 1.0)
        alpha = pm.Exponential("alpha", 0.5)
        mean = pt.exp(level + slope * x)
        pm.NegativeBinomial("y", mu=mean, alpha=alpha, observed=y)
    return model


def ordinal():
    """Grades of four steps, between three ordered cutpoints."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=80)
    y = np.digitize(1.2 * x + rng.logistic(size=80), [-1.0, 0.5, 2.0])
    with pm.Model() as model:
        slope = pm.Normal("slope", 0.0, 2.0)
        cutpoints = pm.Normal(
            "cutpoints",
            mu=np.array([-1.0, 0.0, 1.0]),
            sigma=2.0,
            transform=pm.distributions.transforms.ordered,
        )
        pm.OrderedLogistic("y", eta=slope * x, cutpoints=cutpoints, observed=y)
    return model


def mixture():
    """Two Gaussians, summed over which of them a number comes from."""
    rng = np.random.default_rng(6)
    y = np.concatenate([rng.normal(-2, 0.5, 30), rng.normal(1, 0.8, 50)])
    with pm.Model() as model:
        weight = pm.Dirichlet("weight", np.ones(2))
        mu = pm.Normal("mu", np.array([-1.0, 1.0]), 2.0)
        sigma = pm.HalfNormal("sigma", 1.0, shape=2)
        pm.NormalMixture("y", w=weight, mu=mu, sigma=sigma, observed=y)
    return model


def gaussian_process():
    """A smooth function of 100 points with noise, integrated out; one multivariate normal."""
    rng = np.random.default_rng(7)
    x = np.linspace(0, 5, 100)[:, None]
    y = np.sin(2 * x[:, 0]) + 0.2 * rng.normal(size=100)
    with pm.Model() as model:
        length = pm.InverseGamma("length", 5.0, 5.0)
        scale = pm.HalfNormal("scale", 2.0)
        process = pm.gp.Marginal(cov_func=scale**2 * pm.gp.cov.ExpQuad(1, ls=length))
        process.marginal_likelihood("y", X=x, y=y, sigma=pm.HalfNormal("sigma", 1.0))
    return model


def two_observed_and_a_potential():
    """Two measurements of one thing, and a term that no distribution stands for."""
    rng = np.random.default_rng(8)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0.0, 3.0)
        rate = pm.Uniform("rate", 0.5, 4.0)
        pm.Potential("penalty", -0.5 * (mu - rate) ** 2 * np.ones(3))
        pm.Normal("length", mu, 1.0, observed=rng.normal(1.0, size=20))
        pm.Poisson("count", rate, observed=rng.poisson(2.0, size=(5, 2)))
    return model


def potential_alone():
    """A density by itself: nothing is observed."""
    with pm.Model() as model:
        x = pm.Normal("x", 0.0, 2.0, shape=2)
        pm.Potential("banana", -((x[1] - x[0] ** 2) ** 2))
    return model


def missing_entries():
    """Pairs of which entries are missing, which PyMC imputes; a row's density is of all it has."""
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    pairs = np.random.default_rng(3).multivariate_normal([1.0, -1.0], covariance, size=12)
    pairs[3, 1] = pairs[7, 0] = pairs[8] = np.nan
    with pm.Model() as model, warnings.catch_warnings(action="ignore"):
        pm.MvNormal("y", pm.Normal("mu", 0.0, 10.0, shape=2), covariance, observed=pairs)
    return model


def strange():
    """Two observed variables, a potential, bounds, named groups, a deterministic, no data."""
    with pm.Model(coords={"group": ["a", "b", "c"]}) as model:
        mu = pm.Normal("mu", 1.0, 2.0, dims="group")
        sigma = pm.HalfNormal("sigma", 1.0)
        share = pm.Beta("share", 2.0, 2.0)
        pm.Deterministic("twice", 2 * mu, dims="group")
        pm.Potential("pull", -0.5 * (mu.sum() - 3.0) ** 2)
        pm.Normal("value", mu, sigma, observed=[0.5, 1.0, 1.5], dims="group")
        pm.Bernoulli("hit", share, observed=[1, 0, 1, 1])
    return model


EIGHT = {
    "eight_schools": lambda: eight_schools(centred=False),
    "eight_schools_centred": lambda: eight_schools(centred=True),
    "varying_intercepts": varying_intercepts,
    "logistic": logistic,
    "robust": robust,
    "counts": counts,
    "ordinal": ordinal,
    "mixture": mixture,
    "gaussian_process": gaussian_process,
}

OTHERS = {
    "missing_entries": missing_entries,
    "two_observed_and_a_potential": two_observed_and_a_potential,
    "potential_alone": potential_alone,
}
