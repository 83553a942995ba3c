"""Newton's decrement of a variational fit: how far its means are from the optimum, and steps there.

With the shape of a normal guide q fixed, the ELBO of its means has the gradient g = E_q[∇ log p]
and the curvature −H, H = E_q[−∇² log p]. The means are H⁻¹ g away from the optimum if log p is
quadratic as far as that, and nearly so otherwise. A gain of the ELBO that is left is ½ gᵀ H⁻¹ g: in
nats it may be small where the means are many standard deviations away, if variables are correlated.

References
----------
Boyd and Vandenberghe (2004), Convex Optimization, section 9.5; Giordano, Broderick and Jordan
(2018), Covariances, Robustness, and Variational Bayes, for the curvature of an ELBO in its means;
Opper and Archambeau (2009), The Variational Gaussian Approximation Revisited, for the variances;
Nocedal and Wright (2006), Numerical Optimization, algorithm 5.3.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np

from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.xla.compile import compiler_options, shared

DRAWS = 2_000
"""Draws of a guide for the ELBO and its gradient: pairs about the means, whose errors of first
order cancel."""

CURVATURE_DRAWS = 100
"""The first of them, for products with H. Their relative error is that of a step."""

MOST_AT_ONCE, NUMBERS_AT_ONCE = 50, 500_000
"""Draws, and rows × draws, at most that a program takes at once."""

ITERATIONS, TOLERANCE = 50, 1e-4
"""Iterations of conjugate gradients at most, and the residual at which they end, relative to g."""

NEAR = 0.25
"""Distance of means from the optimum, in standard deviations of the guide, of a fit that has
converged: as far as a few effective draws of a sampler are from the mean (√(1/16))."""

STEPS, HALVINGS = 5, 5
"""Newton steps of a fit at most, and halvings of each."""

QUADRATIC = 0.2
"""By how much the gain of a full step may differ from that of a quadratic function, relative to
it, for the scales of a guide to be kept: they are those of the curvature, which then has changed
little."""


RATIO, ERRORS = 2.0, 3.0
"""Largest factor between a variance of a guide and that of the optimum of a fit that has converged,
beyond this number of standard errors: Adam's noise leaves factors up to 1.5."""


class Average(NamedTuple):
    """Average over draws of a guide.

    Attributes
    ----------
    value
        Expected log-density, in nats.
    gradients
        Gradient at each draw, ``(draw, size)``.
    """

    value: float
    gradients: np.ndarray

    @property
    def gradient(self) -> np.ndarray:
        """Expected gradient, ``(size,)``."""
        return self.gradients.mean(axis=0)

    @property
    def is_finite(self) -> bool:
        """Whether all of it is."""
        return bool(np.isfinite(self.value) and np.isfinite(self.gradients).all())


@dataclass(frozen=True, eq=False)
class Expectations:
    """Averages of a log-density over vectors, as functions of NumPy arrays; call in `precision`.

    Attributes
    ----------
    slopes
        Function of vectors, ``(draw, size)``: log-densities, ``(draw,)``, and gradients,
        ``(draw, size)``.
    products
        Function of vectors and as many directions, ``(draw, size)``: products of the Hessian of
        the log-density at each vector with its direction, ``(draw, size)``.
    at_once
        Number of vectors that both take.
    """

    slopes: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    products: Callable[[np.ndarray, np.ndarray], np.ndarray]
    at_once: int

    @classmethod
    def of(cls, density: LogDensity, prepared: tuple, rows: int) -> "Expectations":
        """Those of a posterior whose data have this number of rows."""

        def build():
            slope = jax.value_and_grad(density.value)

            def product(vector, direction, prepared):
                # Reverse over reverse, as the Hessian is symmetric: functions with a derivative of
                # their own have no other.
                _, pull = jax.vjp(lambda at: jax.grad(density.value)(at, prepared), vector)
                return pull(direction)[0]

            options = compiler_options(brief=True)
            return (
                jax.jit(jax.vmap(slope, (0, None)), compiler_options=options),
                jax.jit(jax.vmap(product, (0, 0, None)), compiler_options=options),
            )

        slopes, products = shared(("expectations", density.evaluate, density.dtype), build)
        return cls(
            lambda draws: jax.device_get(slopes(draws, prepared)),
            lambda draws, directions: np.asarray(products(draws, directions, prepared)),
            max(1, min(MOST_AT_ONCE, NUMBERS_AT_ONCE // max(1, rows))),
        )

    def _blocks(self, *arrays: np.ndarray) -> Iterator[tuple[int, list[np.ndarray]]]:
        """Blocks of `at_once` rows of arrays, and how many of them do not only fill up."""
        for first in range(0, len(arrays[0]), self.at_once):
            blocks = [array[first : first + self.at_once] for array in arrays]
            n = len(blocks[0])
            yield n, [np.pad(b, ((0, self.at_once - n), (0, 0)), mode="edge") for b in blocks]

    def average(self, draws: np.ndarray) -> Average:
        """Average over vectors, ``(draw, size)``."""
        values, gradients = [], []
        for n, (block,) in self._blocks(draws):
            of_block = self.slopes(block)
            for parts, part in zip((values, gradients), of_block, strict=True):
                parts.append(part[:n])
        return Average(float(np.concatenate(values).mean()), np.concatenate(gradients))

    def product(self, draws: np.ndarray, direction: np.ndarray) -> np.ndarray:
        """Product of the average negative Hessian over vectors with a direction, ``(size,)``."""
        total, directions = np.zeros_like(direction), np.broadcast_to(direction, draws.shape)
        for n, blocks in self._blocks(draws, directions):
            total -= self.products(*blocks)[:n].sum(axis=0)
        return total / len(draws)

    def hessian(self, vector: np.ndarray) -> np.ndarray:
        """Hessian of the negative log-density at a vector, ``(size, size)``."""
        directions = np.eye(len(vector))
        vectors = np.broadcast_to(vector, directions.shape)
        blocks = self._blocks(vectors, directions)
        matrix = -np.concatenate([self.products(*block)[:n] for n, block in blocks])
        return (matrix + matrix.T) / 2


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray], target: np.ndarray, root: np.ndarray
) -> np.ndarray | None:
    """Solution x of H x = `target`, ``(size,)``; None if H is not positive definite.

    It is also None if the iterations end before.

    Parameters
    ----------
    product
        Product of H with a vector.
    root
        A matrix R such that Rᵀ H R is near to the identity, ``(size, size)``.
    """
    solution = np.zeros_like(target)
    residual = root.T @ target
    direction, length = residual, residual @ residual
    smallest = TOLERANCE**2 * length
    for _ in range(ITERATIONS):
        if length <= smallest:
            return root @ solution
        along = root.T @ product(root @ direction)
        curvature = direction @ along
        if not curvature > 0:
            return None
        share = length / curvature
        solution = solution + share * direction
        residual = residual - share * along
        before, length = length, residual @ residual
        direction = residual + length / before * direction
    return root @ solution if length <= smallest else None


class Distance(NamedTuple):
    """How far the means of a guide are from the optimum.

    Attributes
    ----------
    step
        The Newton step, H⁻¹ g, ``(size,)``; None if H is not positive definite.
    largest
        The largest of its elements in standard deviations of the guide; not a number without it.
    gain
        Gain of the ELBO by it if log p is quadratic, in nats.
    """

    step: np.ndarray | None
    largest: float
    gain: float

    @property
    def is_known(self) -> bool:
        """Whether there is a Newton step."""
        return self.step is not None

    @property
    def is_near(self) -> bool:
        """Whether the means have converged."""
        return self.largest <= NEAR


def distance_to_optimum(
    expectations: Expectations,
    at: Average,
    draws: np.ndarray,
    scale: np.ndarray,
    root: np.ndarray,
) -> Distance:
    """Distance of the means of a guide from the optimum of the ELBO.

    Parameters
    ----------
    at
        Average over `draws`.
    draws
        Draws of the guide, ``(draw, size)``.
    scale
        Standard deviations of the guide, ``(size,)``.
    root
        As `conjugate_gradients` takes it.
    """
    few, step = draws[:CURVATURE_DRAWS], None
    gradient = at.gradient
    if at.is_finite:
        step = conjugate_gradients(lambda v: expectations.product(few, v), gradient, root)
    if step is None:
        return Distance(None, float("nan"), float("nan"))
    return Distance(step, float(np.max(np.abs(step) / scale)), float(0.5 * gradient @ step))


class Ratios(NamedTuple):
    """Variances of a guide relative to those of the optimum of the ELBO.

    Attributes
    ----------
    value, error
        The ratios, and their standard errors, ``(size,)``.
    """

    value: np.ndarray
    error: np.ndarray

    @property
    def farthest(self) -> float:
        """The ratio that is farthest from one."""
        far = np.abs(np.log(self.value.clip(1e-12)))
        return float(self.value[np.argmax(far)])

    def are_within(self, factor: float) -> bool:
        """Whether all are within a factor of one, or of their errors."""
        margin = ERRORS * self.error
        low, high = self.value + margin, self.value - margin
        return bool((low >= 1 / factor).all() and (high <= factor).all())

    @property
    def are_near(self) -> bool:
        """Whether the variances have converged."""
        return self.are_within(RATIO)


def variance_ratios(
    at: Average, offsets: np.ndarray, covariance: np.ndarray, root: np.ndarray
) -> Ratios:
    """The diagonal of Σ H, which is one at the optimum for independent and for all variables.

    It is estimated as -E_q[(x - μ) ∘ ∇ log p] (Bonnet's theorem), with the same of a normal
    distribution as control variate. With all covariances Σ H is the identity in any coordinates;
    it is that of the coordinates of the root then.
    Variances of guides of low rank have another optimum.

    Parameters
    ----------
    at
        Average over the draws.
    offsets
        The draws minus the means, in pairs of opposite ones, ``(draw, size)``.
    covariance
        Σ, ``(size, size)``; or its diagonal, ``(size,)``.
    root
        As `conjugate_gradients` takes it.
    """
    inverse, gradients = np.linalg.inv(root), at.gradients
    if covariance.ndim == 1:
        curvature = inverse.T @ inverse
        exact = covariance * np.diagonal(curvature)
    else:  # in coordinates by the root, as large elements of the curvature would cancel
        offsets, gradients = offsets @ inverse.T, gradients @ root
        curvature = np.eye(len(root))
        exact = np.diagonal(inverse @ covariance @ inverse.T)
    rest = -offsets * (gradients + offsets @ curvature)
    pairs = rest.reshape(len(rest) // 2, 2, -1).mean(axis=1)
    return Ratios(exact + pairs.mean(axis=0), pairs.std(axis=0) / np.sqrt(len(pairs)))


@dataclass(frozen=True)
class Polished:
    """Means of a guide after Newton steps.

    Attributes
    ----------
    loc
        The means, ``(size,)``.
    average
        Average over the guide about them.
    distance
        Their distance from the optimum.
    steps
        Number of steps taken.
    is_quadratic
        Whether every step was a full one, with about the gain of a quadratic function.
    """

    loc: np.ndarray
    average: Average
    distance: Distance
    steps: int
    is_quadratic: bool


def polish(
    expectations: Expectations,
    loc: np.ndarray,
    offsets: np.ndarray,
    scale: np.ndarray,
    root: np.ndarray,
    most: int = STEPS,
) -> Polished:
    """Newton steps of the means of a guide until they are near the optimum.

    A step that lowers the ELBO at the same noise is halved.

    Parameters
    ----------
    loc
        Means, ``(size,)``.
    offsets
        Draws of the guide minus its means, ``(draw, size)``.
    scale, root
        As `distance_to_optimum` takes them.
    most
        Largest number of steps.
    """
    at = expectations.average(loc + offsets)
    distance = distance_to_optimum(expectations, at, loc + offsets, scale, root)
    steps, is_quadratic = 0, True
    while distance.is_known and not distance.is_near and steps < most:
        share = 1.0
        for _ in range(HALVINGS):
            moved = expectations.average(loc + share * distance.step + offsets)
            if moved.value >= at.value:  # False for what is not a number
                break
            share /= 2
        else:
            is_quadratic = False
            break
        gain = moved.value - at.value
        is_quadratic &= share == 1 and abs(gain - distance.gain) <= QUADRATIC * distance.gain
        loc, at, steps = loc + share * distance.step, moved, steps + 1
        distance = distance_to_optimum(expectations, at, loc + offsets, scale, root)
    return Polished(loc, at, distance, steps, is_quadratic)
