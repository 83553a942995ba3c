"""Fits of models whose variables have units of their own, and that converge in their means.

A fit moves in coordinates of the posterior's curvature at its mode, and starts there. At its end
Newton's decrement says how far its means are from the optimum. Networks of this package are fitted
without: at their modes the curvature is not that of the bulk.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pmbnn.core.stages import stage
from pmbnn.inference.batches import model_values
from pmbnn.inference.coordinates import LARGEST_HESSIAN, Coordinates, Landscape, find_mode
from pmbnn.inference.engines import fit_model
from pmbnn.inference.flat import Layout, n_observations, value_shapes
from pmbnn.inference.guides import Guide
from pmbnn.inference.log_density import build_log_density
from pmbnn.inference.newton import DRAWS, STEPS, Distance, Expectations, Polished, polish
from pmbnn.inference.program import Program
from pmbnn.inference.result import Fit, History
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.point import PointRV

IMPROPER = "a prior is improper, and a mode does not prove that the posterior is proper"
"""Note on a fit under an improper prior to a posterior that has a mode."""

STARTS = ("initial_mean", "initial_spread", "initial_scale")
"""Settings that say where a fit starts, in units of the variables."""


def fit_unit_free(
    model: pm.Model, settings: Inference, *, dtype: str = "float64"
) -> tuple[Program, list[Fit]]:
    """Fits of a model, as `fit_model` returns them, whose answers do not depend on units.

    A fit has converged if its ELBO no longer rises and its means are within `NEAR` standard
    deviations of the guide from the optimum. Means that are farther move by Newton steps; ``elbo``
    is then that of the guide afterwards, and the history ends before. If the log-density is far
    from quadratic along these steps, scales have to follow, and the optimiser takes the steps of
    the fit once more, from there.

    Fits are those of `fit_model` if the settings say where to start, if a step sees some rows only,
    or if the posterior has no mode near the initial point of the model.
    """
    target = Target.of(model, settings)
    coordinates = None if target is None else target.coordinates(settings.seed)
    if coordinates is None:
        return fit_model(model, settings, dtype=dtype)
    program, fits = fit_model(model, settings, dtype=dtype, coordinates=coordinates)
    if all(fit.failed for fit in fits):
        # Draws about the mode leave the support: narrow guides may stay within.
        return fit_model(model, settings, dtype=dtype)
    ends = [target.polished(program.guide, fit, coordinates) for fit in fits]
    if any(end is not None and not end.is_quadratic for end in ends):
        program, fits, coordinates = _continued(
            target, model, settings, dtype, coordinates, fits, ends
        )
        ends = [target.polished(program.guide, fit, coordinates) for fit in fits]
    return program, [
        fit if end is None else _judged(program, fit, end)
        for fit, end in zip(fits, ends, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Target:
    """The log-density whose expectation a fit maximises, up to the entropy of the guide."""

    model: pm.Model
    landscape: Landscape
    expectations: Expectations
    layout: Layout

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
            or sum(sizes) > LARGEST_HESSIAN
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
        return cls(model, landscape, expectations, density.flat.layout)

    def coordinates(self, random_seed: int) -> Coordinates | None:
        """Coordinates at the mode near the initial point of the model; None without a mode."""
        start = self.layout.ravel(self.model.initial_point(random_seed))
        with precision("float64"), stage("start"):
            mode = find_mode(self.landscape, start)
        return None if mode is None else mode.coordinates

    def polished(
        self, guide: Guide, fit: Fit, coordinates: Coordinates, most: int = STEPS
    ) -> Polished | None:
        """Means of a fit after Newton steps; None of one that diverged."""
        if fit.failed:
            return None
        scale = coordinates.scale if guide.is_point else fit.scale
        loc = np.asarray(fit.loc, np.float64)
        with precision("float64"), stage("check"):
            offsets, root = _offsets(guide, fit), coordinates.root
            return polish(self.expectations, loc, offsets, scale, root, most)


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
    return np.stack([half, np.negative(half)], axis=1).reshape(DRAWS, guide.size)


def _continued(
    target: Target,
    model: pm.Model,
    settings: Inference,
    dtype: str,
    coordinates: Coordinates,
    fits: Sequence[Fit],
    ends: Sequence[Polished | None],
) -> tuple[Program, list[Fit], Coordinates]:
    """The steps of the fits once more, in coordinates about the best of the means."""
    best = max((end for end in ends if end is not None), key=lambda end: end.value)
    with precision("float64"):
        curvature = target.expectations.hessian(best.loc)
    here = Coordinates.of_curvature(best.loc, curvature)
    if np.linalg.eigvalsh(here.scale * curvature * here.scale[:, None])[0] <= 0:
        here = coordinates._replace(centre=best.loc)
    means = [here.of_vector(best.loc if end is None else end.loc) for end in ends]
    program, later = fit_model(
        model,
        settings,
        dtype=dtype,
        identity="fit_model, continued",
        coordinates=here,
        means=means,
    )
    joined = [
        replace(after, history=_joined(before.history, after.history))
        for before, after in zip(fits, later, strict=True)
    ]
    return program, joined, here


def _joined(first: History, second: History) -> History:
    """The history of a fit that was continued."""
    arrays = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("elbo", "log_likelihood", "kl")
    }
    return History(np.concatenate([first.step, first.step[-1] + second.step]), **arrays)


def _judged(program: Program, fit: Fit, end: Polished) -> Fit:
    """A fit with the means after Newton steps, the ELBO there, and the verdict."""
    constrained = {**fit.constrained, "loc": end.loc.astype(fit.loc.dtype)}
    entropy = 0.0 if program.guide.is_point else _entropy(program.guide, constrained)
    status, reason = fit.status, f"{_words(program.guide, end.distance)}; {fit.reason}"
    if end.distance.is_known and not end.distance.is_near:
        status = "not_converged"
    if program.flat.improper:
        reason = f"{reason}; {IMPROPER}"
    elbo = end.value + entropy
    return replace(fit, constrained=constrained, elbo=elbo, status=status, reason=reason)


def _words(guide: Guide, distance: Distance) -> str:
    """How far the means are from the optimum, in words."""
    unit = "conditional" if guide.is_point else "guide"
    if not distance.is_known:
        return "the curvature in the means is not positive definite, so the ELBO alone counts"
    largest = f"{distance.largest:.2g} {unit} standard deviations"
    if distance.is_near:
        return f"means are within {largest} of the optimum"
    return f"means are {largest} from the optimum"


def _entropy(guide: Guide, constrained: dict[str, np.ndarray]) -> float:
    """Entropy of a guide, in nats."""
    inputs = {
        name: pt.tensor(name, dtype="float64", shape=array.shape)
        for name, array in constrained.items()
    }
    with precision("float64"):
        compute = jax_function(list(inputs.values()), [guide.entropy(inputs)])
        return float(compute(*(np.asarray(a, np.float64) for a in constrained.values()))[0])
