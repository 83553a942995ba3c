"""PyMC models of 43 posteriors of posteriordb, and the reference draws of each.

The models have Stan's parameters and priors: flat where Stan's model has none, on the scale that it
declares. Variables and deterministics have the names of the reference draws. Two posteriors of
differential equations are refused. Only NumPy and PyMC are needed, so that peers can import this.

References
----------
Magnusson et al. (2025), posteriordb: Testing, Benchmarking and Developing Bayesian Inference
Algorithms.
"""

import csv
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered
from pytensor.tensor import TensorVariable

type Data = SimpleNamespace
"""Arrays of a data set by their names in posteriordb."""

REFUSED = dict.fromkeys(
    ("lotka_volterra", "one_comp_mm_elim_abs"),
    "a differential equation: pm.ode has no form in JAX",
)
"""Models that are not here, and why."""


class Listed(NamedTuple):
    """A posterior of the list: names of its model, its data and its reference draws."""

    posterior: str
    model: str
    data: str
    reference: str


def posteriors() -> dict[str, Listed]:
    """All posteriors of the list by name, those that are refused too."""
    with (_folder() / "posteriors.csv").open() as file:
        rows = [Listed(*(row[name] for name in Listed._fields)) for row in csv.DictReader(file)]
    return {row.posterior: row for row in rows}


def data_of(posterior: Listed) -> Data:
    """Data of a posterior."""
    arrays = {name: np.asarray(v, float) for name, v in _read("data", posterior.data).items()}
    return SimpleNamespace(**arrays)


def build(posterior: Listed) -> pm.Model:
    """Model of a posterior with its data."""
    return MODELS[posterior.model](data_of(posterior))


def reference_draws(posterior: Listed) -> dict[str, np.ndarray]:
    """Reference draws of each scalar parameter, ``(chain, draw)``, by names like ``beta[2]``."""
    chains = _read("draws", posterior.reference)
    return {name: np.array([chain[name] for chain in chains]) for name in chains[0]}


def scalars(arrays: Mapping[str, np.ndarray], names) -> dict[str, np.ndarray]:
    """Draws ``(chain, draw)`` under one-based names, from arrays ``(chain, draw, *shape)``."""
    found = {}
    for name in names:
        variable, _, number = name.rstrip("]").partition("[")
        array = np.asarray(arrays[variable])
        found[name] = array[..., int(number) - 1] if number else array
    return found


def _folder() -> Path:
    return Path(os.environ["PMBNN_DATA"]) / "posteriordb"


def _read(kind: str, name: str):
    with zipfile.ZipFile(_folder() / kind / f"{name}.json.zip") as archive:
        return json.loads(archive.read(archive.namelist()[0]))


# Linear regressions


def z(values: np.ndarray) -> np.ndarray:
    """Values standardised by the standard deviation of the sample."""
    return (values - values.mean()) / values.std(ddof=1)


def with_product(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, ...]:
    """Two columns and their interaction."""
    return first, second, first * second


def volume(d: Data) -> np.ndarray:
    """Logarithm of the volume of a bush's canopy."""
    return np.log(d.diam1 * d.diam2 * d.canopy_height)


def area(d: Data) -> np.ndarray:
    """Logarithm of the area of a bush's canopy."""
    return np.log(d.diam1 * d.diam2)


def shape(d: Data) -> np.ndarray:
    """Logarithm of the ratio of a bush's diameters."""
    return np.log(d.diam1 / d.diam2)


def ages(d: Data) -> tuple[np.ndarray, ...]:
    """Indicators of three groups of age, against the youngest."""
    return tuple(d.age_discrete == group for group in (2, 3, 4))


log, log10 = np.log, np.log10

COLUMNS: dict[str, Callable[[Data], tuple[np.ndarray, ...]]] = {
    "earn_height": lambda d: (d.earn, d.height),
    "log10earn_height": lambda d: (log10(d.earn), d.height),
    "logearn_height": lambda d: (log(d.earn), d.height),
    "logearn_height_male": lambda d: (log(d.earn), d.height, d.male),
    "logearn_logheight_male": lambda d: (log(d.earn), log(d.height), d.male),
    "logearn_interaction": lambda d: (log(d.earn), *with_product(d.height, d.male)),
    "logearn_interaction_z": lambda d: (log(d.earn), *with_product(z(d.height), d.male)),
    "kidscore_momhs": lambda d: (d.kid_score, d.mom_hs),
    "kidscore_momiq": lambda d: (d.kid_score, d.mom_iq),
    "kidscore_momhsiq": lambda d: (d.kid_score, d.mom_hs, d.mom_iq),
    "kidscore_interaction": lambda d: (d.kid_score, *with_product(d.mom_hs, d.mom_iq)),
    "kidscore_interaction_c": lambda d: (
        d.kid_score,
        *with_product(d.mom_hs - d.mom_hs.mean(), d.mom_iq - d.mom_iq.mean()),
    ),
    "kidscore_interaction_c2": lambda d: (
        d.kid_score,
        *with_product(d.mom_hs - 0.5, d.mom_iq - 100),
    ),
    "kidscore_interaction_z": lambda d: (
        d.kid_score,
        *with_product(z(d.mom_hs) / 2, z(d.mom_iq) / 2),
    ),
    "kidscore_mom_work": lambda d: (d.kid_score, *(d.mom_work == kind for kind in (2, 3, 4))),
    "mesquite": lambda d: (
        *(d.weight, d.diam1, d.diam2, d.canopy_height, d.total_height, d.density, d.group),
    ),
    "logmesquite": lambda d: (
        *(log(v) for v in (d.weight, d.diam1, d.diam2, d.canopy_height, d.total_height)),
        *(log(d.density), d.group),
    ),
    "logmesquite_logvolume": lambda d: (log(d.weight), volume(d)),
    "logmesquite_logva": lambda d: (log(d.weight), volume(d), area(d), d.group),
    "logmesquite_logvash": lambda d: (
        *(log(d.weight), volume(d), area(d), shape(d), log(d.total_height), d.group),
    ),
    "logmesquite_logvas": lambda d: (
        *(log(d.weight), volume(d), area(d), shape(d), log(d.total_height)),
        *(log(d.density), d.group),
    ),
    "nes": lambda d: (
        *(d.partyid7, d.real_ideo, d.race_adj, *ages(d), d.educ1, d.gender, d.income),
    ),
}
"""Target and columns of the regressions under flat priors, by model."""

CAUCHY = {"kidscore_interaction", "kidscore_momhs", "kidscore_momhsiq", "kidscore_momiq"}
"""Those whose noise has a half-Cauchy prior."""


def flat_regression(name: str, d: Data) -> pm.Model:
    """Regression with an intercept, under flat priors of coefficients."""
    y, *columns = COLUMNS[name](d)
    x = np.stack([np.ones_like(y), *columns], axis=1)
    with pm.Model() as model:
        beta = pm.Flat("beta", shape=x.shape[1])
        sigma = pm.HalfCauchy("sigma", 2.5) if name in CAUCHY else pm.HalfFlat("sigma")
        pm.Normal("y", x @ beta, sigma, observed=y)
    return model


def blr(d: Data) -> pm.Model:
    """Regression without an intercept, under normal priors."""
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 10, shape=d.X.shape[1])
        pm.Normal("y", d.X @ beta, pm.HalfNormal("sigma", 10), observed=d.y)
    return model


def diamonds(d: Data) -> pm.Model:
    """Regression on centred columns; the first is the intercept's."""
    x = d.X[:, 1:] - d.X[:, 1:].mean(axis=0)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=x.shape[1])
        intercept = pm.StudentT("Intercept", 3, mu=8, sigma=10)
        pm.Normal("y", intercept + x @ b, pm.HalfStudentT("sigma", 3, 10), observed=d.Y)
    return model


def kilpisjarvi(d: Data) -> pm.Model:
    """A line, with priors from the data set."""
    with pm.Model() as model:
        alpha = pm.Normal("alpha", d.pmualpha, d.psalpha)
        beta = pm.Normal("beta", d.pmubeta, d.psbeta)
        pm.Normal("y", alpha + beta * d.x, pm.HalfFlat("sigma"), observed=d.y)
    return model


# Eight schools


def eight_schools(d: Data, centred: bool) -> pm.Model:
    """Effects of eight schools."""
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        if centred:
            theta = pm.Normal("theta", mu, tau, shape=len(d.y))
        else:
            theta = pm.Deterministic("theta", mu + tau * pm.Normal("theta_trans", shape=len(d.y)))
        pm.Normal("y", theta, d.sigma, observed=d.y)
    return model


# Series


def recursion(rate: TensorVariable, first, further: TensorVariable) -> TensorVariable:
    """Series ``v[t] = rate * v[t - 1] + further[t]`` after its first value."""
    values = pytensor.scan(
        lambda term, previous, rate: rate * previous + term,
        sequences=[further],
        outputs_info=[pt.as_tensor(first, dtype="float64")],
        non_sequences=[rate],
        return_updates=False,
    )
    return pt.concatenate([pt.as_tensor(first)[None], values])


def ar_k(d: Data) -> pm.Model:
    """Autoregression on the last K values."""
    y, k = d.y, int(d.K)
    lagged = np.stack([y[k - lag : len(y) - lag] for lag in range(1, k + 1)], axis=1)
    with pm.Model() as model:
        alpha, beta = pm.Normal("alpha", 0, 10), pm.Normal("beta", 0, 10, shape=k)
        pm.Normal("y", alpha + lagged @ beta, pm.HalfCauchy("sigma", 2.5), observed=y[k:])
    return model


def arma_11(d: Data) -> pm.Model:
    """Autoregression with a moving average; the error before the first is 0."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        phi, theta = pm.Normal("phi", 0, 2), pm.Normal("theta", 0, 2)
        sigma = pm.HalfCauchy("sigma", 2.5)
        rest = d.y[1:] - mu - phi * d.y[:-1]
        errors = recursion(-theta, d.y[0] - mu - phi * mu, rest)
        pm.Potential("y", pm.logp(pm.Normal.dist(0, sigma), errors))
    return model


def garch_11(d: Data) -> pm.Model:
    """Noise whose variance depends on the last value and the last variance."""
    with pm.Model() as model:
        mu, alpha0 = pm.Flat("mu"), pm.HalfFlat("alpha0")
        alpha1 = pm.Uniform("alpha1", 0, 1)
        beta1 = pm.Uniform("beta1", 0, 1 - alpha1)
        # Stan's prior is flat on the triangle, that of the nested bounds is higher at its tip.
        pm.Potential("flat", pt.log1p(-alpha1))
        further = alpha0 + alpha1 * (d.y[:-1] - mu) ** 2
        pm.Normal("y", mu, pt.sqrt(recursion(beta1, d.sigma1**2, further)), observed=d.y)
    return model


# Hidden Markov models


def forward(log_emission: TensorVariable, transitions: TensorVariable) -> TensorVariable:
    """Log-likelihood of a series with states summed out, from emissions ``(time, state)``."""
    last = pytensor.scan(
        lambda now, before, log_step: (
            now + pt.logsumexp(before[:, None] + log_step, axis=0, keepdims=False)
        ),
        sequences=[log_emission[1:]],
        outputs_info=[log_emission[0]],
        non_sequences=[pt.log(transitions)],
        return_updates=False,
    )[-1]
    return pt.logsumexp(last)


def positive_ordered(name: str, mu) -> TensorVariable:
    """Two positive and increasing variables with normal priors."""
    start = np.maximum(mu, 1.0)
    return pm.TruncatedNormal(name, mu, 1, lower=0, shape=2, transform=ordered, initval=start)


def hmm_drive(d: Data, is_normal: bool) -> pm.Model:
    """Two states of a basketball player, from the speed and the distance to the hoop."""
    with pm.Model() as model:
        transitions = [pm.Dirichlet(f"theta{k + 1}", d.alpha[k]) for k in range(2)]
        if is_normal:
            start = {"transform": ordered, "initval": [0.0, 3.0]}
            phi, rate = (pm.Normal(n, [0, 3], 1, **start) for n in ("phi", "lambda"))
            of_u, of_v = pm.Normal.dist(phi, d.tau), pm.Normal.dist(rate, d.rho)
        else:
            phi, rate = (positive_ordered(n, [0, 3]) for n in ("phi", "lambda"))
            of_u, of_v = pm.Exponential.dist(phi), pm.Exponential.dist(rate)
        emission = pm.logp(of_u, d.u[:, None]) + pm.logp(of_v, d.v[:, None])
        pm.Potential("series", forward(emission, pt.stack(transitions)))
    return model


def hmm_example(d: Data) -> pm.Model:
    """Two states with unit normal noise."""
    with pm.Model() as model:
        transitions = [pm.Dirichlet(f"theta{k + 1}", np.ones(2)) for k in range(2)]
        emission = pm.logp(pm.Normal.dist(positive_ordered("mu", [3, 10]), 1), d.y[:, None])
        pm.Potential("series", forward(emission, pt.stack(transitions)))
    return model


# A mixture, and Gaussian processes


def mixture(d: Data) -> pm.Model:
    """Two normal components in the order of their means."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 2, shape=2, transform=ordered, initval=[-1.0, 1.0])
        sigma, theta = pm.HalfNormal("sigma", 2, shape=2), pm.Beta("theta", 5, 5)
        pm.NormalMixture("y", pt.stack([theta, 1 - theta]), mu, sigma, observed=d.y)
    return model


JITTER = 1e-10
"""Stan's model adds this to the variance of the log rates."""


def scales() -> tuple[TensorVariable, TensorVariable]:
    """Length scale and standard deviation of a Gaussian process."""
    return pm.Gamma("rho", 25, 4), pm.HalfNormal("alpha", 2)


def covariance(x: np.ndarray, rho, alpha):
    """Squared-exponential covariance at inputs."""
    return alpha**2 * np.exp(-((x[:, None] - x) ** 2) / (2 * rho**2))


def gp_regression(d: Data) -> pm.Model:
    """Gaussian process with noise, whose variance is called sigma."""
    with pm.Model() as model:
        noise = pm.HalfNormal("sigma", 1) * pt.eye(len(d.x))
        total = covariance(d.x, *scales()) + noise
        pm.MvNormal("y", np.zeros(len(d.x)), total, observed=d.y)
    return model


def gp_poisson(d: Data) -> pm.Model:
    """Counts whose log rate is a Gaussian process."""
    with pm.Model() as model:
        jitter = JITTER * np.eye(len(d.x))
        factor = pt.linalg.cholesky(covariance(d.x, *scales()) + jitter)
        f = pm.Deterministic("f", factor @ pm.Normal("f_tilde", shape=len(d.x)))
        pm.Poisson("k", pt.exp(f), observed=d.k.astype(int))
    return model


MODELS: dict[str, Callable[[Data], pm.Model]] = {
    name: lambda d, name=name: flat_regression(name, d) for name in COLUMNS
} | {
    "blr": blr,
    "diamonds": diamonds,
    "kilpisjarvi": kilpisjarvi,
    "eight_schools_centered": lambda d: eight_schools(d, centred=True),
    "eight_schools_noncentered": lambda d: eight_schools(d, centred=False),
    "arK": ar_k,
    "arma11": arma_11,
    "garch11": garch_11,
    "hmm_drive_0": lambda d: hmm_drive(d, is_normal=False),
    "hmm_drive_1": lambda d: hmm_drive(d, is_normal=True),
    "hmm_example": hmm_example,
    "low_dim_gauss_mix": mixture,
    "gp_regr": gp_regression,
    "gp_pois_regr": gp_poisson,
}
"""Builders by the name of the model in posteriordb."""


def _standard_effects(d: Data, draws) -> dict[str, np.ndarray]:
    mu, tau = (draws[name][..., None] for name in ("mu", "tau"))
    return {"theta_trans": (draws["theta"] - mu) / tau}


def _standard_rates(d: Data, draws) -> dict[str, np.ndarray]:
    rho, alpha = (draws[name][..., None, None] for name in ("rho", "alpha"))
    factor = np.linalg.cholesky(covariance(d.x, rho, alpha) + JITTER * np.eye(len(d.x)))
    return {"f_tilde": np.linalg.solve(factor, draws["f"][..., None])[..., 0]}


STANDARDISED = {
    "eight_schools_noncentered": _standard_effects,
    "gp_pois_regr": _standard_rates,
}
"""Standard normal variables of models that have them, from reference draws, which do not."""
