"""How far a fit has come to the optimum of its family, and the last way there by Newton steps."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytensor.tensor as pt

from pmbnn.core.stages import stage
from pmbnn.inference.coordinates import LARGEST_MATRIX
from pmbnn.inference.guides import Guide
from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.newton import (
    DRAWS,
    STEPS,
    Expectations,
    Polished,
    Ratios,
    polish,
    variance_ratios,
)
from pmbnn.inference.result import Fit
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.networks import Network
from pmbnn.models.priors import Prior
from pmbnn.models.smooth import what_is_not_smooth

ALONE = "the ELBO alone decides"
"""End of the words on a fit whose distance from the optimum is not known."""


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


def settled(
    fit: Fit,
    guide: Guide,
    network: Network,
    prior: Prior,
    density: Callable[[], LogDensity],
    data: Mapping[str, np.ndarray],
    rows: int,
) -> Fit:
    """A fit of a network with its means moved to the optimum, and judged by the way that is left.

    Scales are kept. Where the distance is not known, the reason of the fit says why. A fit that
    diverged is returned as it is.

    Parameters
    ----------
    density
        Returns the log-density of the model, in double precision.
    data
        Values of the model's data variables.
    rows
        Number of rows of the data.
    """
    if fit.failed:
        return fit
    rough = what_is_not_smooth(prior, network)
    if guide.size > LARGEST_MATRIX:
        rough = f"more than {LARGEST_MATRIX:,} variables"
    if rough is not None:
        words = f"no distance to the optimum is computed with {rough}, and {ALONE}"
        return replace(fit, reason=f"{words}; {fit.reason}")
    found, scale = density(), np.asarray(fit.scale, np.float64)
    with precision("float64"):
        expectations = Expectations.of(found, found.prepare(data), rows)
    return judged(guide, fit, end_of(expectations, guide, fit, scale, np.diag(scale)))


def offsets_of(guide: Guide, fit: Fit) -> np.ndarray:
    """Draws of a guide minus its means, in pairs of opposite ones, ``(draw, size)``."""
    if guide.is_point:
        return np.zeros((1, guide.size))
    rng = np.random.default_rng([*fit.keys.draws, 1])
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
    words = {"elbo": elbo, "status": status, "reason": reason}
    return replace(fit, constrained=constrained, distance=polished.distance.largest, **words)


def _words(guide: Guide, end: End) -> str:
    """How far a guide is from the optimum, in words."""
    distance, unit = end.polished.distance, "conditional" if guide.is_point else "guide"
    largest = f"{distance.largest:.2g} {unit} standard deviations"
    if not distance.is_known:
        words = f"the curvature in the means is not positive definite, and {ALONE}"
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
