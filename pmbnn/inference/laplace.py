"""Laplace's approximation: a normal distribution at a mode of the posterior.

A fit of the guide ``map`` comes near a mode, and `find_mode` to it. The covariance is the inverse
of the Hessian of the negative log-density there, or of the Gauss–Newton matrix in its place
(`gauss_newton`). Modes of networks of rectified units lie at kinks, where the gradient is not zero:
there it is enough that a search finds no higher density.

The posterior of a network is curved, so that the network at draws of such weights fits the data
badly. Predictions are by the network made linear at the mode instead; see
`pmbnn.prediction.linearised`.

References
----------
MacKay (1992), A Practical Bayesian Framework for Backpropagation Networks, for the curvature and
the evidence; Immer, Korzepa and Bauer (2021), Improving predictions of Bayesian neural nets via
local linearization; Daxberger et al. (2021), Laplace Redux.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pymc as pm
from scipy.linalg import cholesky, solve_triangular

from pmbnn.core.display import Summarised
from pmbnn.core.stages import stage
from pmbnn.inference import groups, program
from pmbnn.inference.coordinates import Coordinates, Landscape, find_mode, search
from pmbnn.inference.flat import FlatModel, ModelGraphs, model_graphs
from pmbnn.inference.gauss_newton import gauss_newton
from pmbnn.inference.groups import Checkpoints
from pmbnn.inference.guides import LOG_2PI, Guide, build_guide
from pmbnn.inference.log_density import LogDensity, build_log_density
from pmbnn.inference.newton import Expectations
from pmbnn.inference.program import Program
from pmbnn.inference.result import Fit, Progress, Replica
from pmbnn.inference.settings import Inference
from pmbnn.inference.xla.compile import precision, sharing_programs

NEAR = 0.01
"""Distance of a mode that was found from the true one, in standard deviations, at most."""

LITTLE = 0.01
"""Gain in nats, at most, of a search from a mode at kinks, where the gradient does not vanish."""

AT_MODE = f"the mode is within {NEAR:g} standard deviations"
AT_KINKS = f"no density that is higher by {LITTLE:g} nats was found near the end of the fit"
"""Reasons for an approximation."""

NO_MODE = (
    "no mode with a positive definite curvature is near the end of the fit of the point (for "
    "rectified units, which have kinks, take `curvature` gauss_newton)"
)
NOT_ARRIVED = f"a search from the end of the fit gains more than {LITTLE:g} nats: take more steps"
"""Reasons for a fit without an approximation."""


@dataclass(frozen=True, eq=False, repr=False)
class LaplaceProgram(Summarised):
    """Program that the fits of one model share; `build_program` makes one.

    Attributes
    ----------
    graphs
        Graphs of the model.
    settings
        Settings of the fits.
    point
        Program that fits the point.
    guide
        Family of the approximation.
    """

    graphs: ModelGraphs
    settings: Inference
    point: Program
    guide: Guide
    _densities: dict[int, LogDensity] = field(default_factory=dict, init=False, repr=False)

    @property
    def width(self) -> int:
        """Number of replicas that run at once."""
        return self.point.width

    @property
    def steps(self) -> int:
        """Number of steps of a fit."""
        return self.point.steps

    @property
    def flat(self) -> FlatModel:
        """Graphs of the model on the flat vector."""
        return self.point.flat

    @property
    def dtype(self) -> str:
        """Precision of the fits; that of mode and curvature is double."""
        return self.point.dtype

    def supports(self, n_rows: int) -> bool:
        """Whether it runs fits of this number of rows."""
        return self.point.supports(n_rows)

    def density(self, rows: int) -> LogDensity:
        """Log-density of the posterior given this number of rows, in double precision."""
        if rows not in self._densities:
            self._densities[rows] = build_log_density(self.graphs, rows, "float64")
        return self._densities[rows]


def build_program(
    model: pm.Model | ModelGraphs, settings: Inference, *args, **how
) -> LaplaceProgram:
    """The program of a model; further arguments are those of `pmbnn.inference.program`'s."""
    graphs = model_graphs(model)
    of_point = settings.model_copy(update={"guide": "map"})
    point = program.build_program(graphs, of_point, *args, **how)
    guide = build_guide(settings, point.flat.size, improper=False, spread=point.flat.spread)
    return LaplaceProgram(graphs, settings, point, guide)


def fit(
    program: LaplaceProgram,
    replicas: Sequence[Replica],
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
    steps: int | None = None,
    snapshots: Sequence[int] = (),
) -> list[Fit]:
    """Approximation of every replica; arguments are those of `pmbnn.inference.groups.fit`.

    There are no snapshots. The ELBO of a fit is the logarithm of its evidence, and its history that
    of the log-density of the point. A fit that comes to no mode counts as diverged.
    """

    def with_current(done, total, elbo, current):
        return progress(done, total, elbo, lambda: _with_root(current(), program.guide, 0.0))

    shown = None if progress is None else with_current
    points = groups.fit(program.point, replicas, shown, checkpoints, steps)
    # One compilation for all replicas, and for later fits of the model.
    shared = sharing_programs(program.graphs.model)
    with shared, stage("curvature", len(points), "fit") as report_progress:
        fits = []
        for number, (replica, point) in enumerate(zip(replicas, points, strict=True), 1):
            fits.append(_at_mode(program, replica, point))
            report_progress(number)
    return fits


class _NoModeError(Exception):
    """There is no approximation near the end of a fit; the message is the reason."""


def _at_mode(program: LaplaceProgram, replica: Replica, point: Fit) -> Fit:
    """The approximation at the mode near the end of the fit of a point."""
    if point.failed:
        return _with_root(point, program.guide, np.nan)
    try:
        with precision("float64"):
            landscape, loc, reason = _mode(program, replica, np.float64(point.loc))
            root = root_of_inverse(landscape.hessian(loc))
            value, _ = landscape.value_and_gradient(loc)
    except (_NoModeError, np.linalg.LinAlgError) as error:
        reason = str(error) if isinstance(error, _NoModeError) else NO_MODE
        diverged = replace(point, status="diverged", reason=reason)
        return _with_root(diverged, program.guide, np.nan)
    log_evidence = -value + np.log(np.diagonal(root)).sum() + 0.5 * len(loc) * LOG_2PI
    return replace(
        point,
        constrained={"loc": loc.astype(program.dtype), "root": root.astype(program.dtype)},
        scale=np.sqrt((root**2).sum(axis=1)).astype(program.dtype),
        elbo=float(log_evidence),
        status="converged",
        reason=reason,
    )


def _mode(
    program: LaplaceProgram, replica: Replica, end: np.ndarray
) -> tuple[Landscape, np.ndarray, str]:
    """Mode near the end of a fit with how it is known, and the landscape of its curvature."""
    rows = len(replica.data[program.flat.row_data[0]])
    density = program.density(rows)
    prepared = density.prepare(replica.data)
    expectations = Expectations.of(density, prepared, rows)
    # By blocks of rows: all rows of the Hessian of a large network at once are too many.
    full = replace(Landscape.of(density, prepared), hessian=expectations.hessian)
    mode, is_full = find_mode(full, end, NEAR), program.settings.curvature == "full"
    if mode is None and is_full:
        raise _NoModeError(NO_MODE)
    landscape = full
    if not is_full:
        landscape = replace(full, hessian=gauss_newton(density.flat, replica.data))
    if mode is not None:
        return landscape, mode.coordinates.centre, AT_MODE
    # Maybe one at kinks.
    found = search(landscape, Coordinates.of_curvature(end, landscape.hessian(end)))
    before, after = (landscape.value_and_gradient(place)[0] for place in (end, found))
    if before - after > LITTLE:
        raise _NoModeError(NOT_ARRIVED)
    return landscape, found, AT_KINKS


def _with_root(fit: Fit, guide: Guide, value: float) -> Fit:
    """A fit of a point with a covariance root all of whose entries have one value."""
    root = np.full((guide.size, guide.size), value, fit.loc.dtype)
    return replace(fit, constrained={"loc": fit.loc, "root": root})


def root_of_inverse(matrix: np.ndarray) -> np.ndarray:
    """Lower triangular root of the inverse of a positive definite matrix, ``(size, size)``."""
    # With M = U Uᵀ, where U is upper triangular, the inverse is U⁻ᵀ U⁻¹. U is the Cholesky root of
    # the matrix with its rows and columns in reverse.
    upper = cholesky(matrix[::-1, ::-1], lower=True)[::-1, ::-1]
    return solve_triangular(upper, np.eye(len(matrix)), lower=False).T
