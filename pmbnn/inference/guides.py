"""Guides: families of distributions on the flat vector that approximate the posterior.

A guide has *unconstrained* parameters, which an optimiser moves, and *constrained* ones, which
its formulas are written in and which a fit keeps. `draw` takes PyTensor, JAX and NumPy
arrays alike, so that the ELBO and the predictions share it; the other methods build graphs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable
from scipy.special import ndtr, ndtri

from pmbnn.inference.flat import Layout
from pmbnn.inference.settings import LARGEST_FULL_RANK, Inference
from pmbnn.spec.display import Summarised

# Where the means of a guide start


def initial_means(layout: Layout, settings: Inference, rng: np.random.Generator) -> np.ndarray:
    """Means of the flat vector, ``(size,)``, double precision."""
    how, spread = settings.initial_mean, settings.initial_spread
    return np.concatenate([_initial_mean(slot.shape, how, spread, rng) for slot in layout.slots])


def _initial_mean(shape: tuple[int, ...], how: str, spread: float, rng) -> np.ndarray:
    size = int(np.prod(shape))
    if how == "random":
        return spread * rng.standard_normal(size)
    if how == "uniform":
        return rng.uniform(-spread, spread, size)
    if how in FAN_IN_DRAWS and len(shape) > 1:
        return FAN_IN_DRAWS[how](size, rng) / np.sqrt(np.prod(shape[:-1]))
    return np.zeros(size)


def _normal(size: int, rng) -> np.ndarray:
    return rng.standard_normal(size)


def _truncated(size: int, rng) -> np.ndarray:
    """Standard normal draws given that they are within two of zero."""
    return ndtri(rng.uniform(ndtr(-2), ndtr(2), size))


FAN_IN_DRAWS = {"fan_in": _normal, "truncated_fan_in": _truncated}
"""What matrices start at, times the root of their fan-in."""


LOG_2PI = float(np.log(2 * np.pi))

FACTOR_START = 0.1
"""Size of a low-rank factor at the start, in units of the diagonal: at zero, its gradient
would be zero too."""

type Arrays = Mapping[str, TensorVariable]


@dataclass(frozen=True, repr=False)
class Guide(Summarised):
    """Distribution of a flat vector with `size` elements.

    Parameters
    ----------
    scale_cap
        Upper limit of the standard deviation of every element; none unless given.
    """

    size: int
    scale_cap: float | None = None

    is_point: ClassVar[bool] = False
    """Whether nothing is drawn."""
    is_factorised: ClassVar[bool] = False
    """Whether the elements are independent."""

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the unconstrained parameters by name."""
        raise NotImplementedError

    @property
    def constrained_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the constrained parameters by name."""
        raise NotImplementedError

    @property
    def noise(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the standard normal arrays that a draw takes, by name."""
        return {"noise": (self.size,)}

    @property
    def n_spread(self) -> int:
        """Number of elements that are no points."""
        return self.size

    def initial(
        self, loc: np.ndarray, scale: float, rng: np.random.Generator
    ) -> dict[str, np.ndarray]:
        """Unconstrained parameters with means `loc` and independent elements of one scale."""
        raise NotImplementedError

    def constrained(self, parameters: Arrays) -> dict[str, TensorVariable]:
        """Constrained parameters; ``loc``, the means, is one of them."""
        raise NotImplementedError

    def draw(self, constrained: Mapping, noise: Mapping):
        """One draw of the flat vector from standard normal noise."""
        raise NotImplementedError

    def marginal_scale(self, constrained: Arrays) -> TensorVariable:
        """Standard deviation of every element, ``(size,)``."""
        raise NotImplementedError

    def entropy(self, constrained: Arrays) -> TensorVariable:
        """Differential entropy, in nats."""
        return self._log_volume(constrained) + 0.5 * self.n_spread * (1 + LOG_2PI)

    def log_density(self, constrained: Arrays, value: TensorVariable) -> TensorVariable:
        """Log-density of the guide at `value`, in nats."""
        distance = self._squared_distance(constrained, value)
        return -0.5 * (distance + self.n_spread * LOG_2PI) - self._log_volume(constrained)

    def _log_volume(self, constrained: Arrays) -> TensorVariable:
        """Half the log-determinant of the covariance."""
        raise NotImplementedError

    def _squared_distance(self, constrained: Arrays, value: TensorVariable) -> TensorVariable:
        """Squared distance from the means in units of the covariance (Mahalanobis)."""
        raise NotImplementedError

    def _cap(self, scale: TensorVariable) -> TensorVariable | float:
        """Factor that brings standard deviations under the cap."""
        return 1.0 if self.scale_cap is None else pt.minimum(1.0, self.scale_cap / scale)


@dataclass(frozen=True, eq=False, repr=False)
class MeanField(Guide):
    """Independent normal distributions.

    Parameters
    ----------
    spread
        Whether each element has one, ``(size,)``; the others are points, whose scale is 0, and no
        part of entropies and densities. Unless given, all have one.

    References
    ----------
    Kucukelbir et al. (2017), Automatic Differentiation Variational Inference, equations 5-7.
    """

    spread: np.ndarray | None = None

    is_factorised: ClassVar[bool] = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MeanField) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple:
        return self.size, self.scale_cap, None if self.spread is None else self.spread.tobytes()

    @property
    def shapes(self):  # noqa: D102
        return {"loc": (self.size,), "rho": (self.size,)}

    @property
    def constrained_shapes(self):  # noqa: D102
        return {"loc": (self.size,), "scale": (self.size,)}

    def initial(self, loc, scale, rng):  # noqa: D102
        return {"loc": loc, "rho": np.full(loc.shape, inverse_softplus(scale))}

    @property
    def n_spread(self):  # noqa: D102
        return self.size if self.spread is None else int(self.spread.sum())

    def constrained(self, parameters):  # noqa: D102
        scale = pt.softplus(parameters["rho"])
        if self.scale_cap is not None:
            scale = pt.minimum(scale, self.scale_cap)
        if self.spread is not None:
            scale = scale * pt.constant(self.spread.astype("float64"))
        return {"loc": parameters["loc"], "scale": scale}

    def draw(self, constrained, noise):  # noqa: D102
        return constrained["loc"] + constrained["scale"] * noise["noise"]

    def marginal_scale(self, constrained):  # noqa: D102
        return constrained["scale"]

    def _log_volume(self, constrained):
        return pt.log(self._unit(constrained)).sum()

    def _squared_distance(self, constrained, value):
        distance = ((value - constrained["loc"]) / self._unit(constrained)) ** 2
        if self.spread is not None:
            distance = distance * pt.constant(self.spread.astype("float64"))
        return distance.sum()

    def _unit(self, constrained):
        """Scales, 1 of points."""
        if self.spread is None:
            return constrained["scale"]
        return constrained["scale"] + pt.constant((~self.spread).astype("float64"))


@dataclass(frozen=True, repr=False)
class LowRank(Guide):
    """Normal distribution whose covariance is diagonal plus one of rank `rank`.

    References
    ----------
    Ong, Nott and Smith (2018), Gaussian Variational Approximation with a Factor Covariance
    Structure, equation 6.
    """

    rank: int = 10

    @property
    def shapes(self):  # noqa: D102
        return {"loc": (self.size,), "rho": (self.size,), "factor": (self.size, self.rank)}

    @property
    def constrained_shapes(self):  # noqa: D102
        return {"loc": (self.size,), "diagonal": (self.size,), "factor": (self.size, self.rank)}

    @property
    def noise(self):  # noqa: D102
        return {"noise": (self.size,), "factor_noise": (self.rank,)}

    def initial(self, loc, scale, rng):  # noqa: D102
        factor = FACTOR_START * rng.standard_normal((self.size, self.rank))
        rho = np.full(loc.shape, inverse_softplus(scale))
        return {"loc": loc, "rho": rho, "factor": factor}

    def constrained(self, parameters):  # noqa: D102
        diagonal = pt.softplus(parameters["rho"])
        # In these units a step of the optimiser moves a scale about as far as mean-field does.
        factor = parameters["factor"] * (diagonal / np.sqrt(self.rank))[:, None]
        if self.scale_cap is not None:
            cap = self._cap(pt.sqrt(diagonal**2 + (factor**2).sum(axis=1)))
            diagonal, factor = diagonal * cap, factor * cap[:, None]
        return {"loc": parameters["loc"], "diagonal": diagonal, "factor": factor}

    def draw(self, constrained, noise):  # noqa: D102
        along = constrained["factor"] @ noise["factor_noise"]
        return constrained["loc"] + constrained["diagonal"] * noise["noise"] + along

    def marginal_scale(self, constrained):  # noqa: D102
        return pt.sqrt(constrained["diagonal"] ** 2 + (constrained["factor"] ** 2).sum(axis=1))

    def _log_volume(self, constrained):
        _, root = self._capacitance(constrained)
        return pt.log(constrained["diagonal"]).sum() + pt.log(pt.diagonal(root)).sum()

    def _squared_distance(self, constrained, value):
        standard, root = self._capacitance(constrained)
        step = (value - constrained["loc"]) / constrained["diagonal"]
        along = pt.linalg.solve_triangular(root, standard.T @ step, lower=True, b_ndim=1)
        return (step**2).sum() - (along**2).sum()

    def _capacitance(self, constrained) -> tuple[TensorVariable, TensorVariable]:
        """Factor in units of the diagonal, and the lower root of its capacitance matrix.

        With it, determinant and inverse of the covariance take work of rank² · size (Woodbury).
        """
        standard = constrained["factor"] / constrained["diagonal"][:, None]
        capacitance = pt.eye(self.rank) + standard.T @ standard
        return standard, pt.linalg.cholesky(capacitance)


class FullRank(Guide):
    """Normal distribution with any covariance, by its lower triangular root.

    References
    ----------
    Kucukelbir et al. (2017), Automatic Differentiation Variational Inference, section 2.4.
    """

    @property
    def shapes(self):  # noqa: D102
        return {"loc": (self.size,), "rho": (self.size,), "lower": (self.size, self.size)}

    @property
    def constrained_shapes(self):  # noqa: D102
        return {"loc": (self.size,), "root": (self.size, self.size)}

    def initial(self, loc, scale, rng):  # noqa: D102
        rho = np.full(loc.shape, inverse_softplus(scale))
        return {"loc": loc, "rho": rho, "lower": np.zeros((self.size, self.size))}

    def constrained(self, parameters):  # noqa: D102
        # A mask costs twice the memory of a packed triangle, and no scattering. In units of the
        # diagonal and over the root of the size, a step of the optimiser moves a row about as
        # far as it moves the scale of a mean-field guide.
        mask = pt.constant(np.tri(self.size, k=-1) / np.sqrt(self.size))
        unit = parameters["lower"] * mask + pt.eye(self.size)
        root = unit * pt.softplus(parameters["rho"])[:, None]
        if self.scale_cap is not None:
            root = root * self._cap(pt.sqrt((root**2).sum(axis=1)))[:, None]
        return {"loc": parameters["loc"], "root": root}

    def draw(self, constrained, noise):  # noqa: D102
        return constrained["loc"] + constrained["root"] @ noise["noise"]

    def marginal_scale(self, constrained):  # noqa: D102
        return pt.sqrt((constrained["root"] ** 2).sum(axis=1))

    def _log_volume(self, constrained):
        return pt.log(pt.diagonal(constrained["root"])).sum()

    def _squared_distance(self, constrained, value):
        step = value - constrained["loc"]
        standard = pt.linalg.solve_triangular(constrained["root"], step, lower=True, b_ndim=1)
        return (standard**2).sum()


class Point(Guide):
    """A single point: the mode of the posterior, or of the likelihood."""

    is_point = True
    is_factorised = True

    @property
    def shapes(self):  # noqa: D102
        return {"loc": (self.size,)}

    @property
    def constrained_shapes(self):  # noqa: D102
        return {"loc": (self.size,)}

    @property
    def noise(self):  # noqa: D102
        return {}

    def initial(self, loc, scale, rng):  # noqa: D102
        return {"loc": loc}

    def constrained(self, parameters):  # noqa: D102
        return {"loc": parameters["loc"]}

    def draw(self, constrained, noise):  # noqa: D102
        return constrained["loc"]

    def marginal_scale(self, constrained):  # noqa: D102
        return pt.zeros_like(constrained["loc"])


GUIDES: dict[str, type[Guide]] = {
    "mean_field": MeanField,
    "low_rank": LowRank,
    "full_rank": FullRank,
    "map": Point,
    "maximum_likelihood": Point,
}


def build_guide(
    settings: Inference, size: int, improper: bool, spread: np.ndarray | None = None
) -> Guide:
    """The guide that the settings name, for a model with `size` unconstrained scalars.

    Parameters
    ----------
    spread
        As `FlatModel` has it.

    Raises
    ------
    ValueError
        If a guide with a full covariance is asked for a model too large for it, or one with any
        covariance for a model with point parameters.
    """
    cap = settings.improper_scale_cap if improper else None
    if spread is not None and not GUIDES[settings.guide].is_factorised:
        fitting = sorted(name for name, guide in GUIDES.items() if guide.is_factorised)
        raise ValueError(
            f"`guide` must be {' or '.join(fitting)} for a model with point parameters, "
            f"got {settings.guide}."
        )
    if settings.guide == "mean_field":
        return MeanField(size, cap, spread)
    if settings.guide == "low_rank":
        return LowRank(size, cap, rank=min(settings.rank, size))
    if settings.guide == "full_rank" and size > LARGEST_FULL_RANK:
        raise ValueError(
            f"`guide` must not be full_rank for a model of {size:,} parameters: it takes at "
            f"most {LARGEST_FULL_RANK:,}. `low_rank` has no such limit."
        )
    return GUIDES[settings.guide](size, cap)


def softplus(rho: np.ndarray) -> np.ndarray:
    """Scales of unconstrained parameters `rho`."""
    with np.errstate(invalid="ignore"):  # a fit that diverged has no numbers to warn about
        return np.logaddexp(0, rho)


def inverse_softplus(scale: float) -> float:
    """Unconstrained parameter of a scale, written so that it neither overflows nor cancels."""
    return float(scale + np.log(-np.expm1(-scale)))
