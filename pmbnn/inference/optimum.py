"""How far a fit is from the optimum of its family; of models that are no networks, steps there."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt
from scipy.optimize import minimize

from pmbnn.core.stages import stage
from pmbnn.inference.guides import Guide
from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.newton import (
    DRAWS,
    NEAR,
    STEPS,
    Expectations,
    Polished,
    Ratios,
    polish,
    variance_ratios,
)
from pmbnn.inference.result import Fit, ToOptimum
from pmbnn.inference.xla.compile import jax_function, precision

LBFGS = {"maxcor": 50, "ftol": 1e-9, "gtol": 1e-3, "maxiter": 500}
"""Settings of the search of an optimum in units of the guide's standard deviations: it ends where a
step of one of them gains a thousandth of a nat."""


class End(NamedTuple):
    """Where a fit has come to.

    Attributes
    ----------
    polished
        Its means, after Newton steps.
    ratios
        Its variances relative to the optimum; None if nothing is known of them.
    """

    polished: Polished
    ratios: Ratios | None

    @property
    def has_near_variances(self) -> bool:
        """Whether nothing is known against the variances."""
        return self.ratios is None or self.ratios.are_near

    @property
    def is_settled(self) -> bool:
        """Whether further steps of the optimiser promise nothing."""
        return self.polished.is_quadratic and self.has_near_variances


def end_of(
    expectations: Expectations,
    guide: Guide,
    fit: Fit,
    scale: np.ndarray,
    root: np.ndarray,
    most: int = STEPS,
) -> End | None:
    """Where a fit has come to, with this number of Newton steps at most.

    None of a fit that diverged.

    Parameters
    ----------
    scale
        Standard deviations that distances are told in, ``(size,)``.
    root
        Coordinates of about unit scale, as `newton.conjugate_gradients` takes them.
    """
    if fit.failed:
        return None
    loc, offsets = np.asarray(fit.loc, np.float64), offsets_of(guide, fit)
    with precision("float64"), stage("check"):
        polished = polish(expectations, loc, offsets, scale, root, most)
    average, covariance = polished.average, _covariance(guide, fit)
    if covariance is None or not average.is_finite:
        return End(polished, None)
    return End(polished, variance_ratios(average, offsets, covariance, root))


def with_distance(
    fit: Fit, guide: Guide, density: LogDensity, data: Mapping[str, np.ndarray], rows: int
) -> Fit:
    """A fit of a network whose means are compared with those of highest ELBO.

    Its scales are kept. For each of two sets of draws of the guide, L-BFGS finds the means of
    highest ELBO. The fit is compared with the average of both, whose error is half their
    difference. Newton steps would need a curvature that is positive definite, which that of
    networks seldom is. A fit has not converged if it is farther than `NEAR` by more than the
    error. A fit that diverged, or under an improper prior, is returned as it is.

    Parameters
    ----------
    density
        Log-density of the model, in double precision.
    data
        Values of the model's data variables.
    rows
        Number of rows of the data.

    References
    ----------
    Giordano, Ingram and Broderick (2024), Black Box Variational Inference with a Deterministic
    Objective, for means of highest average over fixed draws.
    """
    if fit.status in ("diverged", "improper"):
        return fit
    with precision("float64"), stage("check"):
        expectations = Expectations.of(density, density.prepare(data), rows)
        found = _to_optimum(expectations, guide, fit)
    if not np.isfinite(found).all():
        why = "the ELBO alone decides, as the search of its optimum failed"
        return replace(fit, reason=f"{why}; {fit.reason}")
    status = "not_converged" if found.distance - found.error > NEAR else fit.status
    words = (
        f"means are {found.distance:.2g} ± {found.error:.1g} guide standard deviations and "
        f"{found.gain:.2g} nats from the optimum"
    )
    return replace(fit, to_optimum=found, status=status, reason=f"{words}; {fit.reason}")


def _to_optimum(expectations: Expectations, guide: Guide, fit: Fit) -> ToOptimum:
    """Where the ELBO is highest, in coordinates of the fit's means and standard deviations."""
    loc, scale = np.asarray(fit.loc, np.float64), np.asarray(fit.scale, np.float64)
    sets = [offsets_of(guide, fit, stream) for stream in (2, 3)]

    def loss(z: np.ndarray, offsets: np.ndarray) -> tuple[float, np.ndarray]:
        average = expectations.average(loc + scale * z + offsets)
        return -average.value, -scale * average.gradient

    start, search = np.zeros(guide.size), {"jac": True, "method": "L-BFGS-B", "options": LBFGS}
    first, second = ends = [minimize(loss, start, offsets, **search).x for offsets in sets]
    # On the draws of the other set: on its own, an optimum is better than it is.
    pairs = zip(ends, reversed(sets), strict=True)
    gains = [loss(start, offsets)[0] - loss(end, offsets)[0] for end, offsets in pairs]
    distance, error = (float(np.abs(way).max() / 2) for way in (first + second, first - second))
    return ToOptimum(distance, error, float(np.mean(gains)))


def offsets_of(guide: Guide, fit: Fit, stream: int = 1) -> np.ndarray:
    """Draws of a guide minus its means, in pairs of opposite ones, ``(draw, size)``.

    Those of another stream are independent.
    """
    if guide.is_point:
        return np.zeros((1, guide.size))
    rng = np.random.default_rng([*fit.keys.draws, stream])
    shape = fit.constrained | {"loc": np.zeros(guide.size)}
    half = [
        guide.draw(shape, {name: rng.standard_normal(n) for name, n in guide.noise.items()})
        for _ in range(DRAWS // 2)
    ]
    return in_pairs(np.array(half))


def in_pairs(draws: np.ndarray) -> np.ndarray:
    """Draws, ``(draw, size)``, each followed by its negative, ``(2 draw, size)``."""
    return np.stack([draws, -draws], axis=1).reshape(-1, draws.shape[1])


def _covariance(guide: Guide, fit: Fit) -> np.ndarray | None:
    """Covariance of a guide whose optimum is known by it; of independent variables, the diagonal.

    None of others.
    """
    if "root" in fit.constrained:
        root = np.asarray(fit.constrained["root"], np.float64)
        return root @ root.T
    is_known = guide.is_factorised and not guide.is_point
    return np.asarray(fit.scale, np.float64) ** 2 if is_known else None


def judged(guide: Guide, fit: Fit, end: End) -> Fit:
    """A fit with the means after Newton steps, the ELBO there, and the verdict."""
    polished, elbo = end.polished, fit.elbo
    constrained = {**fit.constrained, "loc": polished.loc.astype(fit.loc.dtype)}
    if polished.average.is_finite:
        elbo = polished.average.value + (0.0 if guide.is_point else _entropy(guide, constrained))
    status, reason = fit.status, f"{_words(guide, end)}; {fit.reason}"
    is_far = polished.distance.is_known and not polished.distance.is_near
    if is_far or not end.has_near_variances:
        status = "not_converged"
    return replace(fit, constrained=constrained, elbo=elbo, status=status, reason=reason)


def _words(guide: Guide, end: End) -> str:
    """How far a guide is from the optimum, in words."""
    distance, unit = end.polished.distance, "conditional" if guide.is_point else "guide"
    largest = f"{distance.largest:.2g} {unit} standard deviations"
    if not distance.is_known:
        words = "the curvature in the means is not positive definite, and the ELBO alone decides"
    elif distance.is_near:
        words = f"means are within {largest} of the optimum"
    else:
        words = f"means are {largest} from the optimum"
    if end.has_near_variances:
        return words
    factor = np.sqrt(max(end.ratios.farthest, 0.0))
    return f"{words}; a standard deviation is {factor:.2g} times that of the optimum"


def _entropy(guide: Guide, constrained: dict[str, np.ndarray]) -> float:
    """Entropy of a guide, in nats."""
    inputs = {
        name: pt.tensor(name, dtype="float64", shape=array.shape)
        for name, array in constrained.items()
    }
    with precision("float64"):
        compute = jax_function(list(inputs.values()), [guide.entropy(inputs)])
        return float(compute(*(np.asarray(a, np.float64) for a in constrained.values()))[0])
