"""Coordinates in which the posterior of a model has about unit scales, whatever the units of data.

They are linear, x = centre + R z, and come from the curvature of the log-density at its mode, and
then from draws. Samplers move in z; the means of guides too. Scales of the coordinates follow those
of the variables, so that a predictor in other units has the same answers.

Posteriors of networks are left alone: at their modes the curvature is not that of the bulk.

References
----------
Tierney and Kadane (1986), Accurate approximations for posterior moments and marginal densities, for
the normal approximation at the mode.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.xla.compile import compiler_options, shared

LARGEST_DENSE = 200
"""Variables at most whose coordinates have a direction each; others have `RANK` directions."""

RANK = 100
"""Number of directions of larger models, those whose scales differ most from that of variables."""

LARGEST_MATRIX = 2_000
"""Variables at most whose curvature or covariance is computed: a gradient each, and 32 MB. Larger
models have scales of variables only."""

ROUNDS, ITERATIONS = 8, 200
"""Rounds of the search of a mode, each in coordinates of the curvature, and iterations of each."""

DECREMENT = 0.1
"""Largest norm of the gradient at a mode, in the coordinates of its curvature: the distance to the
mode of a normal distribution, in standard deviations."""

FLATTEST = 1e-12
"""Smallest curvature of a direction, relative to those of the variables: others count as flat."""


class Coordinates(NamedTuple):
    """Linear coordinates z of a flat vector, x = centre + scale · (I + U (s − 1) Uᵀ) z.

    Attributes
    ----------
    centre, scale
        Origin, and scales of the variables, ``(size,)``.
    directions, stretch
        Orthonormal directions U, ``(size, direction)``, and the scales s along them,
        ``(direction,)``.
    """

    centre: np.ndarray
    scale: np.ndarray
    directions: np.ndarray
    stretch: np.ndarray

    def vector(self, z):
        """Flat vectors at coordinates, ``(..., size)`` each."""
        along = (z @ self.directions) * (self.stretch - 1)
        return self.centre + self.scale * (z + along @ self.directions.T)

    def of_vector(self, vector):
        """Coordinates of flat vectors, ``(..., size)`` each."""
        z = (vector - self.centre) / self.scale
        return z + (z @ self.directions) * (1 / self.stretch - 1) @ self.directions.T

    @property
    def root(self) -> np.ndarray:
        """The matrix R, ``(size, size)``."""
        stretched = (self.directions * (self.stretch - 1)) @ self.directions.T
        return self.scale[:, None] * (np.eye(len(self.scale)) + stretched)

    @property
    def lower_root(self) -> np.ndarray:
        """Lower triangular root of R Rᵀ, ``(size, size)``; of many variables, their scales."""
        if len(self.scale) > LARGEST_DENSE:
            return np.diag(self.scale)
        # Not of the product, which would lose half the digits: R Rᵀ = (QT)ᵀ (QT) = Tᵀ T.
        upper = np.linalg.qr(self.root.T, mode="r")
        return (upper * np.sign(np.diagonal(upper))[:, None]).T

    @property
    def log_volume(self) -> float:
        """Logarithm of the determinant of R."""
        return float(np.log(self.scale).sum() + np.log(self.stretch).sum())

    @classmethod
    def unit(cls, centre: np.ndarray) -> "Coordinates":
        """Those of the vector itself, from `centre`."""
        size = len(centre)
        rank = size if size <= LARGEST_DENSE else RANK
        return cls(centre, np.ones(size), np.eye(size, rank), np.ones(rank))

    @classmethod
    def of_curvature(cls, centre: np.ndarray, hessian: np.ndarray) -> "Coordinates":
        """Coordinates in which a Hessian of −log p is the identity, up to signs."""
        diagonal = np.abs(np.diagonal(hessian))
        largest = diagonal.max(initial=0) or 1.0
        scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, largest))
        values, directions = np.linalg.eigh(scale * hessian * scale[:, None])
        stretch = 1 / np.sqrt(np.abs(values).clip(FLATTEST))
        return cls(centre, scale, *_farthest(directions, stretch))

    @classmethod
    def of_draws(cls, draws: np.ndarray) -> "Coordinates":
        """Coordinates in which draws, ``(draw, size)``, have unit covariance."""
        centre, scale = draws.mean(axis=0), draws.std(axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        if len(scale) > LARGEST_MATRIX:
            return cls.unit(centre)._replace(scale=scale)
        standard = (draws - centre) / scale
        values, directions = np.linalg.eigh(standard.T @ standard / len(draws))
        stretch = np.sqrt(values.clip(FLATTEST))
        return cls(centre, scale, *_farthest(directions, stretch))


def largest_ratio(draws: np.ndarray) -> float:
    """Largest factor between one and a variance of draws along a direction, ``(draw, size)``.

    Along the axes alone, if there are very many variables.
    """
    if draws.shape[1] > LARGEST_MATRIX:
        variances = draws.var(axis=0)
    else:
        variances = np.linalg.eigvalsh(np.atleast_2d(np.cov(draws.T)))
    return float(np.exp(np.abs(np.log(variances.clip(FLATTEST))).max()))


def _farthest(directions: np.ndarray, stretch: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The directions that coordinates have: all, or those whose scales are farthest from one."""
    if len(stretch) <= LARGEST_DENSE:
        return directions, stretch
    chosen = np.argsort(-np.abs(np.log(stretch)))[:RANK]
    return directions[:, chosen], stretch[chosen]


@dataclass(frozen=True, eq=False)
class Mode:
    """A local maximum of a log-density.

    Attributes
    ----------
    coordinates
        Those of the curvature; their centre is the mode.
    log_evidence
        Logarithm of the mass about the mode by Laplace's approximation, in nats, up to a constant
        of the model.
    """

    coordinates: Coordinates
    log_evidence: float


@dataclass(frozen=True, eq=False)
class Landscape:
    """Value, gradient and Hessian of −log p as compiled functions of NumPy vectors."""

    value_and_gradient: Callable[[np.ndarray], tuple[float, np.ndarray]]
    hessian: Callable[[np.ndarray], np.ndarray]

    @classmethod
    def of(cls, density: LogDensity, prepared: tuple) -> "Landscape":
        """That of a posterior; call it, and its functions, within `precision`."""

        def build():
            def loss(vector, prepared):
                return -density.value(vector, prepared)

            # Reverse over reverse: functions with a derivative of their own have no other.
            return tuple(
                jax.jit(f, compiler_options=compiler_options(brief=True))
                for f in (jax.value_and_grad(loss), jax.jacrev(jax.grad(loss)))
            )

        first, second = shared(("landscape", density.evaluate, density.dtype), build)

        def value_and_gradient(x):
            value, gradient = jax.device_get(first(jnp.asarray(x, density.dtype), prepared))
            return float(value), np.asarray(gradient, np.float64)

        def hessian(x):
            matrix = np.asarray(second(jnp.asarray(x, density.dtype), prepared), np.float64)
            return (matrix + matrix.T) / 2

        return cls(value_and_gradient, hessian)


def find_mode(landscape: Landscape, start: np.ndarray, decrement: float = DECREMENT) -> Mode | None:
    """The mode that L-BFGS finds from a point; None if there is none on the way.

    L-BFGS moves in coordinates of the curvature, which is computed anew every so often, so that its
    steps do not depend on units.

    Parameters
    ----------
    decrement
        Largest norm of the gradient at the mode, in the coordinates of its curvature.
    """
    point = np.asarray(start, np.float64)
    for _ in range(ROUNDS):
        value, gradient = landscape.value_and_gradient(point)
        hessian = landscape.hessian(point)
        if not (np.isfinite(value) and np.isfinite(gradient).all() and np.isfinite(hessian).all()):
            return None
        here = Coordinates.of_curvature(point, hessian)
        if np.linalg.norm(here.root.T @ gradient) < decrement:
            scaled = here.scale * hessian * here.scale[:, None]
            if np.linalg.eigvalsh(scaled)[0] <= FLATTEST:
                return None
            log_evidence = -value + here.log_volume + 0.5 * len(point) * np.log(2 * np.pi)
            return Mode(here, log_evidence)
        point = search(landscape, here)
    return None


def search(landscape: Landscape, here: Coordinates) -> np.ndarray:
    """Where L-BFGS that moves in some coordinates comes to from their centre, ``(size,)``."""
    root = here.root

    def of_coordinates(z):
        value, gradient = landscape.value_and_gradient(here.vector(z))
        finite = np.isfinite(value) and np.isfinite(gradient).all()
        return (value, root.T @ gradient) if finite else (np.inf, np.zeros_like(z))

    found = minimize(
        of_coordinates,
        np.zeros_like(here.centre),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": ITERATIONS},
    )
    return here.vector(found.x)
