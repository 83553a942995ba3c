"""Fits of models whose variables have units of their own, and that converge in their means.

A fit moves in coordinates of the posterior's curvature at its mode, and starts there. At its end
Newton's decrement says how far its means are from the optimum. Networks of this package are fitted
without: at their modes the curvature is not that of the bulk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pmbnn.core.stages import stage
from pmbnn.inference.batches import model_values
from pmbnn.inference.coordinates import LARGEST_MATRIX, Coordinates, Landscape, find_mode
from pmbnn.inference.engines import fit_model
from pmbnn.inference.flat import Layout, n_observations, value_shapes
from pmbnn.inference.guides import Guide
from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.newton import (
    DRAWS,
    STEPS,
    Expectations,
    Polished,
    Ratios,
    polish,
    variance_ratios,
)
from pmbnn.inference.program import Program
from pmbnn.inference.result import Fit, History
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.point import PointRV

IMPROPER = "a prior is improper, and a mode does not prove that the posterior is proper"
"""Note on a fit under an improper prior to a posterior that has a mode."""

CONTINUED = "fit_model, continued"
"""Identity of fits that continue others, and have other noise."""

MATRICES = 1_000
"""Products with Hessians, for the curvature over a guide: variables × pairs of draws."""

FAIR = 10.0
"""Largest factor between the curvature at a mode and that about it, for fits to start there. It is
below 1.6 for regressions, mixtures and state-space models of posteriordb, 8 for the non-centred
eight schools, and above 100 for funnels, whose mode is far from their mass."""

STARTS = ("initial_mean", "initial_spread", "initial_scale")
"""Settings that say where a fit starts, in units of the variables."""


def fit_unit_free(
    model: pm.Model, settings: Inference, *, dtype: str = "float64"
) -> tuple[Program, list[Fit]]:
    """Fits of a model, as `fit_model` returns them, whose answers do not depend on units.

    A fit has converged if its ELBO no longer rises, its means are within `NEAR` standard deviations
    of the guide from the optimum, and variances of a mean-field or full-rank guide within a factor
    of `RATIO`. Means that are farther move by Newton steps. If the log-density is not quadratic
    along these steps, or variances are off, the optimiser takes the steps of the fit once more,
    from there. ``elbo`` is that of the guide at the end, which the history may not have.

    Fits are those of `fit_model` if the settings say where to start, if a step sees some rows only,
    or if the posterior has no mode near the initial point of the model, or one like the tip of a
    funnel, where the curvature is not that about it.
    """
    target = Target.of(model, settings)
    coordinates = None if target is None else target.coordinates(settings.seed)
    if coordinates is None:
        return fit_model(model, settings, dtype=dtype)
    program, fits = fit_model(model, settings, dtype=dtype, coordinates=coordinates)
    ends = [target.end(program.guide, fit, coordinates) for fit in fits]
    if not all(end is None or end.is_settled for end in ends):
        coordinates = target.later_coordinates(program.guide, fits, ends) or coordinates
        means = [
            coordinates.centre if end is None else coordinates.of_vector(end.polished.loc)
            for end in ends
        ]
        moving = {"coordinates": coordinates, "means": means}
        before = fits
        program, fits = fit_model(model, settings, dtype=dtype, identity=CONTINUED, **moving)
        fits = [
            first if second.failed else _joined(first, second)
            for first, second in zip(before, fits, strict=True)
        ]
        ends = [target.end(program.guide, fit, coordinates) for fit in fits]
    return program, [
        fit if end is None else _judged(program, fit, end)
        for fit, end in zip(fits, ends, strict=True)
    ]


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


@dataclass(frozen=True, eq=False)
class Target:
    """The log-density whose expectation a fit maximises, up to the entropy of the guide."""

    model: pm.Model
    landscape: Landscape
    expectations: Expectations
    layout: Layout
    is_point: bool

    @classmethod
    def of(cls, model: pm.Model, settings: Inference) -> "Target | None":
        """That of a model and settings; None if fits are to be as without it."""
        sizes = (int(np.prod(shape)) for shape in value_shapes(model).values())
        if (
            settings.engine != "compiled"
            or settings.batch is not None
            or settings.kl_weight != 1
            or settings.kl_scaling != "sum"
            or settings.model_fields_set.intersection(STARTS)
            or any(isinstance(v.owner.op, PointRV) for v in model.free_RVs)
            or sum(sizes) > LARGEST_MATRIX
        ):
            return None
        further = None
        if settings.guide == "maximum_likelihood":

            def further(flat, likelihood):
                return -flat.log_prior

        density = build_log_density(
            model, n_observations(model), "float64", further, jacobian=not settings.is_point
        )
        with precision("float64"):
            prepared = density.prepare(model_values(model))
            expectations = Expectations.of(density, prepared, n_observations(model))
            landscape = Landscape.of(density, prepared)
        # One program for all Hessians: it is the one that takes long to compile.
        landscape = replace(landscape, hessian=expectations.hessian)
        return cls(model, landscape, expectations, density.flat.layout, settings.is_point)

    def coordinates(self, random_seed: int) -> Coordinates | None:
        """Coordinates at the mode near the initial point of the model.

        None without a mode, or if its curvature is not that of the region about it.
        """
        start = self.layout.ravel(self.model.initial_point(random_seed))
        with precision("float64"), stage("start"):
            mode = find_mode(self.landscape, start)
            found = None if mode is None else mode.coordinates
            return found if found is None or self.is_point or self.are_fair(found) else None

    def are_fair(self, coordinates: Coordinates) -> bool:
        """Whether the curvature, averaged over independent variables about a mode, is as there."""
        scale, rng = coordinates.scale, np.random.default_rng(0)
        offsets = _in_pairs(scale * rng.standard_normal((DRAWS // 2, len(scale))))
        average = self.expectations.average(coordinates.centre + offsets)
        if not average.is_finite:
            return False
        ratios = variance_ratios(average, offsets, scale**2, coordinates.root)
        return ratios.are_within(FAIR)

    def end(
        self, guide: Guide, fit: Fit, coordinates: Coordinates, most: int = STEPS
    ) -> End | None:
        """Where a fit has come to, with this number of Newton steps at most.

        None of a fit that diverged.
        """
        if fit.failed:
            return None
        scale = coordinates.scale if guide.is_point else fit.scale
        loc, offsets, root = np.asarray(fit.loc, np.float64), _offsets(guide, fit), coordinates.root
        with precision("float64"), stage("check"):
            polished = polish(self.expectations, loc, offsets, scale, root, most)
        average, covariance = polished.average, _covariance(guide, fit)
        if covariance is None or not average.is_finite:
            return End(polished, None)
        return End(polished, variance_ratios(average, offsets, covariance, root))

    def later_coordinates(
        self, guide: Guide, fits: Sequence[Fit], ends: Sequence[End | None]
    ) -> Coordinates | None:
        """Coordinates of the curvature about the best of the fits, averaged over its guide.

        None if it is not positive definite.
        """
        pairs = [(end.polished, fit) for end, fit in zip(ends, fits, strict=True) if end]
        best, fit = max(pairs, key=lambda pair: pair[0].average.value)
        draws = best.loc + _offsets(guide, fit)
        # One matrix takes as many products as there are variables.
        draws = draws[: 1 if guide.is_point else 2 * max(1, MATRICES // guide.size)]
        with precision("float64"):
            curvature = np.mean([self.expectations.hessian(draw) for draw in draws], axis=0)
        found = Coordinates.of_curvature(best.loc, curvature)
        scaled = found.scale * curvature * found.scale[:, None]
        return found if np.linalg.eigvalsh(scaled)[0] > 0 else None


def _offsets(guide: Guide, fit: Fit) -> np.ndarray:
    """Draws of a guide minus its means, in pairs of opposite ones, ``(draw, size)``."""
    if guide.is_point:
        return np.zeros((1, guide.size))
    rng = np.random.default_rng([*fit.keys.draws, 1])
    shape = fit.constrained | {"loc": np.zeros(guide.size)}
    half = [
        guide.draw(shape, {name: rng.standard_normal(n) for name, n in guide.noise.items()})
        for _ in range(DRAWS // 2)
    ]
    return _in_pairs(np.array(half))


def _in_pairs(draws: np.ndarray) -> np.ndarray:
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


def _joined(first: Fit, second: Fit) -> Fit:
    """A fit that was continued, with the history of both parts."""
    before, after = first.history, second.history
    arrays = {
        name: np.concatenate([getattr(before, name), getattr(after, name)])
        for name in ("elbo", "log_likelihood", "kl")
    }
    step = np.concatenate([before.step, before.step[-1] + after.step])
    return replace(second, history=History(step, **arrays))


def _judged(program: Program, fit: Fit, end: End) -> Fit:
    """A fit with the means after Newton steps, the ELBO there, and the verdict."""
    guide, polished, elbo = program.guide, end.polished, fit.elbo
    constrained = {**fit.constrained, "loc": polished.loc.astype(fit.loc.dtype)}
    if polished.average.is_finite:
        elbo = polished.average.value + (0.0 if guide.is_point else _entropy(guide, constrained))
    status, reason = fit.status, f"{_words(guide, end)}; {fit.reason}"
    is_far = polished.distance.is_known and not polished.distance.is_near
    if is_far or not end.has_near_variances:
        status = "not_converged"
    if program.flat.improper:
        reason = f"{reason}; {IMPROPER}"
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
