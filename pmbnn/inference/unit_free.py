"""Fits of models whose variables have units of their own, and that converge in their means.

A fit moves in coordinates of the posterior's curvature at its mode, and starts there. At its end
Newton's decrement says how far its means are from the optimum. Networks of this package are fitted
without: at their modes the curvature is not that of the bulk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm

from pmbnn.core.stages import stage
from pmbnn.inference.batches import model_values
from pmbnn.inference.coordinates import LARGEST_MATRIX, Coordinates, Landscape, find_mode
from pmbnn.inference.engines import fit_model
from pmbnn.inference.flat import Layout, n_observations, value_shapes
from pmbnn.inference.guides import Guide
from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.newton import DRAWS, Expectations, variance_ratios
from pmbnn.inference.optimum import End, end_of, in_pairs, judged, offsets_of
from pmbnn.inference.program import Program
from pmbnn.inference.result import Fit, History
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import precision
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
    ends = target.ends(program.guide, fits, coordinates)
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
        ends = target.ends(program.guide, fits, coordinates)
    return program, [
        fit if end is None else _noted(program, judged(program.guide, fit, end))
        for fit, end in zip(fits, ends, strict=True)
    ]


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
        offsets = in_pairs(scale * rng.standard_normal((DRAWS // 2, len(scale))))
        average = self.expectations.average(coordinates.centre + offsets)
        if not average.is_finite:
            return False
        ratios = variance_ratios(average, offsets, scale**2, coordinates.root)
        return ratios.are_within(FAIR)

    def ends(self, guide: Guide, fits: Sequence[Fit], coordinates: Coordinates) -> list[End | None]:
        """Where fits have come to; None of those that diverged."""
        root = coordinates.root
        scales = [coordinates.scale if guide.is_point else fit.scale for fit in fits]
        return [
            end_of(self.expectations, guide, fit, scale, root)
            for fit, scale in zip(fits, scales, strict=True)
        ]

    def later_coordinates(
        self, guide: Guide, fits: Sequence[Fit], ends: Sequence[End | None]
    ) -> Coordinates | None:
        """Coordinates of the curvature about the best of the fits, averaged over its guide.

        None if it is not positive definite.
        """
        pairs = [(end.polished, fit) for end, fit in zip(ends, fits, strict=True) if end]
        best, fit = max(pairs, key=lambda pair: pair[0].average.value)
        draws = best.loc + offsets_of(guide, fit)
        # One matrix takes as many products as there are variables.
        draws = draws[: 1 if guide.is_point else 2 * max(1, MATRICES // guide.size)]
        with precision("float64"):
            curvature = np.mean([self.expectations.hessian(draw) for draw in draws], axis=0)
        found = Coordinates.of_curvature(best.loc, curvature)
        scaled = found.scale * curvature * found.scale[:, None]
        return found if np.linalg.eigvalsh(scaled)[0] > 0 else None


def _joined(first: Fit, second: Fit) -> Fit:
    """A fit that was continued, with the history of both parts."""
    before, after = first.history, second.history
    arrays = {
        name: np.concatenate([getattr(before, name), getattr(after, name)])
        for name in ("elbo", "log_likelihood", "kl")
    }
    step = np.concatenate([before.step, before.step[-1] + after.step])
    return replace(second, history=History(step, **arrays))


def _noted(program: Program, fit: Fit) -> Fit:
    """A fit whose reason names an improper prior."""
    return replace(fit, reason=f"{fit.reason}; {IMPROPER}") if program.flat.improper else fit
