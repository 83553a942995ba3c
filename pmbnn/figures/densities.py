"""Densities of weights and scales before anything is seen, from the settings of a cell."""

from collections.abc import Mapping
from typing import Any

import numpy as np

QUANTILES = 2000
"""Quantiles of a learned scale over which a weight's density is averaged."""

Settings = Mapping[str, Any]


def fixed_scales(hyperprior: Settings) -> list[float]:
    """Scales that a fixed one stands for: one, or its candidates; none if it is learned."""
    from pmbnn.priors import Fixed

    if hyperprior["kind"] != "fixed":
        return []
    scale = hyperprior["scale"]
    tuned = {"log": tuple(scale["log"])} if isinstance(scale, Mapping) else scale
    return [] if scale is None else list(Fixed(scale=tuned).candidates)


def log_scale_density(hyperprior: Settings, scale: np.ndarray) -> np.ndarray | None:
    """Density of the logarithm of a learned scale; None if there is no formula here.

    Whether the hyperprior is that of the scale or of its square is taken into account.
    """
    law = _law(hyperprior)
    if law is None:
        return None
    on_variance = hyperprior.get("on") == "variance"
    value = scale**2 if on_variance else scale
    return (2 if on_variance else 1) * value * law.pdf(value)


def weight_densities(prior: Settings, hyperprior: Settings, weight: np.ndarray) -> list[np.ndarray]:
    """Density of one weight under every fixed scale, or with a learned one averaged out.

    The list is empty if there is no formula here. The fan-in rule is left out.
    """
    standard = _standard_density(prior)
    if standard is None:
        return []
    fixed = fixed_scales(hyperprior)
    if fixed:
        return [standard(weight / scale) / scale for scale in fixed]
    law = _law(hyperprior)
    if law is None:
        return []
    quantiles = law.ppf((np.arange(QUANTILES) + 0.5) / QUANTILES)[:, None]
    scales = np.sqrt(quantiles) if hyperprior.get("on") == "variance" else quantiles
    return [np.mean(standard(weight / scales) / scales, axis=0)]


def _law(hyperprior: Settings):
    """Distribution of what a hyperprior is on."""
    from scipy import stats

    laws = {
        "half_normal": lambda h: stats.halfnorm(scale=h["sigma"]),
        "half_cauchy": lambda h: stats.halfcauchy(scale=h["beta"]),
        "inverse_gamma": lambda h: stats.invgamma(h["alpha"], scale=h["beta"]),
    }
    make = laws.get(hyperprior["kind"])
    return None if make is None else make(hyperprior)


def _standard_density(prior: Settings):
    """Density of a weight whose scale is 1."""
    from scipy import stats

    standard = {
        "normal": lambda p: stats.norm.pdf,
        "laplace": lambda p: stats.laplace.pdf,
        "cauchy": lambda p: stats.cauchy.pdf,
        "student_t": lambda p: stats.t(p["nu"]).pdf,
        "scale_mixture": _mixture,
        "horseshoe": lambda p: _horseshoe,
    }
    make = standard.get(prior["kind"])
    return None if make is None else make(prior)


def _mixture(prior: Settings):
    from scipy.stats import norm

    share, wide, narrow = (prior[name] for name in ("proportion", "sigma_1", "sigma_2"))
    return lambda x: share * norm.pdf(x, scale=wide) + (1 - share) * norm.pdf(x, scale=narrow)


def _horseshoe(x: np.ndarray) -> np.ndarray:
    """Density of local · z with local ~ half-Cauchy(1) and z ~ N(0, 1), in closed form."""
    from scipy.special import exp1

    half = np.maximum(x**2 / 2, 1e-12)
    # exp(h) E1(h) tends to 1/h where exp(h) would overflow.
    large = half > 500
    safe = np.where(large, 1.0, half)
    return np.where(large, 1 / half, np.exp(safe) * exp1(safe)) / np.sqrt(2 * np.pi**3)
