"""Guides: families of distributions on the flat vector that approximate the posterior.

A guide has *unconstrained* parameters, which an optimiser changes, and *constrained* ones, which
its formulas use and a fit stores. `draw` takes PyTensor, JAX and NumPy arrays, so that ELBO and
predictions share it; the other methods build graphs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable
from scipy.special import ndtr, ndtri

from pmbnn.core.display import Summarised
from pmbnn.inference.flat import Layout
from pmbnn.inference.settings import LARGEST_FULL_RANK, LARGEST_LAPLACE, Inference

if TYPE_CHECKING:
    from pmbnn.inference.coordinates import Coordinates

# Initial means of a guide


def initial_means(layout: Layout, settings: Inference, rng: np.random.Generator) -> np.ndarray:
    """Means of the flat vector, ``(size,)``, double precision."""
    start, spread = settings.initial_mean, settings.initial_spread
    return np.concatenate([_initial_mean(slot.shape, start, spread, rng) for slot in layout.slots])


def _initial_mean(shape: tuple[int, ...], start: str, spread: float, rng) -> np.ndarray:
    size = int(np.prod(shape))
    if start == "random":
        return spread * rng.standard_normal(size)
    if start == "uniform":
        return rng.uniform(-spread, spread, size)
    if len(shape) < 2 or start not in ("fan_in", "truncated_fan_in"):
        return np.zeros(size)
    if start == "fan_in":
        draws = rng.standard_normal(size)
    else:
        draws = ndtri(rng.uniform(ndtr(-2), ndtr(2), size))
    return draws / np.sqrt(np.prod(shape[:-1]))


LOG_2PI = float(np.log(2 * np.pi))

FACTOR_START = 0.1
"""Initial size of a low-rank factor, in units of the diagonal: at 0 its gradient would be 0."""

type Arrays = Mapping[str, TensorVariable]


@dataclass(frozen=True, repr=False)
class Guide(Summarised):
    """Distribution of a flat vector with `size` elements.

    Parameters
    ----------
    scale_cap
        Upper limit of the standard deviation of every element, if any.
    coordinates
        Coordinates in which the unconstrained parameters move, so that steps of an optimiser do not
        depend on units: means from the origin of the coordinates, scales in units of theirs. By
        default, those of the flat vector itself. Constrained parameters are always of the vector.
    """

    size: int
    scale_cap: float | None = None
    coordinates: "Coordinates | None" = field(default=None, kw_only=True, compare=False, repr=False)

    is_point: ClassVar[bool] = False
    """Whether the guide is a single point."""
    is_factorised: ClassVar[bool] = False
    """Whether the elements are independent."""
    has_density: ClassVar[bool] = True
    """Whether the guide has a density, hence an entropy."""
    is_linearised: ClassVar[bool] = False
    """Whether predictions take the network as linear in the vector about ``loc``."""

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
        """Number of elements with a distribution; the others are point parameters."""
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
        """One draw of the flat vector, from standard normal noise."""
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

    def _loc(self, parameters: Arrays) -> TensorVariable:
        """Means of the flat vector."""
        loc = parameters["loc"]
        return loc if self.coordinates is None else self.coordinates.vector(loc)

    def _positive(self, parameters: Arrays) -> TensorVariable:
        """Scales of the elements, one by one."""
        scale = pt.softplus(parameters["rho"])
        return scale if self.coordinates is None else scale * self.coordinates.scale

    def _cap(self, scale: TensorVariable) -> TensorVariable | float:
        """Factor that brings standard deviations under the cap."""
        return 1.0 if self.scale_cap is None else pt.minimum(1.0, self.scale_cap / scale)


@dataclass(frozen=True, repr=False)
class MeanField(Guide):
    """Independent normal distributions.

    Parameters
    ----------
    spread
        Whether each element has a distribution, ``(size,)``; the others are point parameters, with
        scale 0 and no part in entropies and densities. By default, all have one.

    References
    ----------
    Kucukelbir et al. (2017), Automatic Differentiation Variational Inference, equations 5-7.
    """

    spread: tuple[bool, ...] | None = None

    is_factorised: ClassVar[bool] = True

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
        return self.size if self.spread is None else sum(self.spread)

    def constrained(self, parameters):  # noqa: D102
        scale = self._positive(parameters)
        if self.scale_cap is not None:
            scale = pt.minimum(scale, self.scale_cap)
        if self.spread is not None:
            scale = scale * pt.constant(np.array(self.spread, "float64"))
        return {"loc": self._loc(parameters), "scale": scale}

    def draw(self, constrained, noise):  # noqa: D102
        return constrained["loc"] + constrained["scale"] * noise["noise"]

    def marginal_scale(self, constrained):  # noqa: D102
        return constrained["scale"]

    def _log_volume(self, constrained):
        return pt.log(self._unit(constrained)).sum()

    def _squared_distance(self, constrained, value):
        distance = ((value - constrained["loc"]) / self._unit(constrained)) ** 2
        if self.spread is not None:
            distance = distance * pt.constant(np.array(self.spread, "float64"))
        return distance.sum()

    def _unit(self, constrained):
        """Scales, with 1 for point parameters."""
        if self.spread is None:
            return constrained["scale"]
        return constrained["scale"] + pt.constant(1.0 - np.array(self.spread, "float64"))


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
        diagonal = self._positive(parameters)
        # In these units a step of the optimiser changes a scale as much as in a mean-field guide.
        factor = parameters["factor"] * (diagonal / np.sqrt(self.rank))[:, None]
        if self.scale_cap is not None:
            cap = self._cap(pt.sqrt(diagonal**2 + (factor**2).sum(axis=1)))
            diagonal, factor = diagonal * cap, factor * cap[:, None]
        return {"loc": self._loc(parameters), "diagonal": diagonal, "factor": factor}

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
    """Normal distribution with any covariance, parametrised by its lower triangular root.

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
        # A mask takes twice the memory of a packed triangle, but no scattering. In units of the
        # diagonal over the root of the size, a step of the optimiser changes a row about as much as
        # the scale of a mean-field guide.
        mask = pt.constant(np.tri(self.size, k=-1) / np.sqrt(self.size))
        unit = parameters["lower"] * mask + pt.eye(self.size)
        root = unit * pt.softplus(parameters["rho"])[:, None]
        if self.coordinates is not None:
            root = pt.dot(self.coordinates.lower_root, root)
        if self.scale_cap is not None:
            root = root * self._cap(pt.sqrt((root**2).sum(axis=1)))[:, None]
        return {"loc": self._loc(parameters), "root": root}

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


class Laplace(FullRank):
    """Normal distribution at a mode of the posterior, whose covariance is the inverse curvature.

    It is not fitted by its ELBO; see `pmbnn.inference.laplace`.
    """

    is_linearised = True


class Point(Guide):
    """A single point: the mode of the posterior, or of the likelihood."""

    is_point = True
    is_factorised = True
    has_density = False

    @property
    def shapes(self):  # noqa: D102
        return {"loc": (self.size,)}

    constrained_shapes = shapes

    @property
    def noise(self):  # noqa: D102
        return {}

    def initial(self, loc, scale, rng):  # noqa: D102
        return {"loc": loc}

    def constrained(self, parameters):  # noqa: D102
        return {"loc": self._loc(parameters)}

    def draw(self, constrained, noise):  # noqa: D102
        return constrained["loc"]

    def marginal_scale(self, constrained):  # noqa: D102
        return pt.zeros_like(constrained["loc"])


@dataclass(frozen=True, repr=False)
class Dropout(Guide):
    """Weights of which those of random inputs are zero; everything else is a point.

    An input that is kept has its weights divided by ``1 - rate``, so that ``loc`` is the mean of
    the weights. There is one draw of all inputs that are dropped for all rows; a fit has one for
    each (`pmbnn.inference.dropout`). Predictions of single rows have the same distribution.

    Parameters
    ----------
    rate
        Probability that an input is dropped.
    masks
        For each element the number of an element whose noise decides whether both are dropped, and
        -1 for elements that never are, ``(size,)``. It is stored as a constrained parameter, and
        needed for fits only.

    References
    ----------
    Gal and Ghahramani (2016), Dropout as a Bayesian Approximation, section 3. There weights that
    are kept are not divided.
    """

    rate: float = 0.0
    masks: np.ndarray | None = field(default=None, compare=False)

    has_density: ClassVar[bool] = False

    @property
    def shapes(self):  # noqa: D102
        return {"loc": (self.size,)}

    @property
    def constrained_shapes(self):  # noqa: D102
        return {"loc": (self.size,), "masks": (self.size,)}

    def initial(self, loc, scale, rng):  # noqa: D102
        return {"loc": loc}

    def constrained(self, parameters):  # noqa: D102
        return {"loc": self._loc(parameters), "masks": pt.constant(self.masks.astype("float64"))}

    def draw(self, constrained, noise):  # noqa: D102
        numbers = constrained["masks"].astype("int32")
        # Standard normal noise is above this quantile with the probability that an input is kept.
        is_kept = noise["noise"][numbers] > ndtri(self.rate)
        return constrained["loc"] * (1 + (numbers >= 0) * (is_kept / (1 - self.rate) - 1))

    def extremes(self, constrained: Arrays) -> tuple[TensorVariable, TensorVariable]:
        """The vector with every input kept, and with every input dropped."""
        loc, may_drop = constrained["loc"], constrained["masks"] >= 0
        return tuple(pt.where(may_drop, factor, 1.0) * loc for factor in (1 / (1 - self.rate), 0.0))

    def marginal_scale(self, constrained):  # noqa: D102
        scale = np.sqrt(self.rate / (1 - self.rate))
        return pt.abs(constrained["loc"]) * scale * (constrained["masks"] >= 0)


GUIDES: dict[str, type[Guide]] = {
    "mean_field": MeanField,
    "low_rank": LowRank,
    "full_rank": FullRank,
    "laplace": Laplace,
    "map": Point,
    "maximum_likelihood": Point,
    "dropout": Dropout,
}


def build_guide(
    settings: Inference,
    size: int,
    improper: bool,
    spread: tuple[bool, ...] | None = None,
    coordinates: "Coordinates | None" = None,
    masks: np.ndarray | None = None,
) -> Guide:
    """The guide that the settings name, for a model with `size` unconstrained scalars.

    Parameters
    ----------
    spread
        Whether each scalar has a distribution; see `FlatModel.spread`.
    coordinates
        Coordinates at a mode of the posterior, if there is one: then scales have no upper limit
        under an improper prior.
    masks
        Of the guide ``dropout``, for fits; see `Dropout`.

    Raises
    ------
    ValueError
        If the model is too large for a guide with a full covariance, or has point parameters, which
        need independent elements.
    """
    capped, name = improper and coordinates is None, settings.guide
    cap, given = settings.improper_scale_cap if capped else None, {"coordinates": coordinates}
    if name == "dropout":
        return Dropout(size, rate=settings.dropout_rate, masks=masks)
    if spread is not None and not GUIDES[name].is_factorised:
        choices = sorted(g for g, guide in GUIDES.items() if guide.is_factorised)
        raise ValueError(
            f"`guide` must be {' or '.join(choices)} for a model with point parameters, got {name}."
        )
    if name == "mean_field":
        return MeanField(size, cap, spread, **given)
    if name == "low_rank":
        return LowRank(size, cap, rank=min(settings.rank, size), **given)
    if name == "full_rank" and size > LARGEST_FULL_RANK:
        raise ValueError(
            f"`guide` must not be full_rank for a model of {size:,} parameters: it takes at "
            f"most {LARGEST_FULL_RANK:,}. `low_rank` has no such limit."
        )
    if name == "laplace" and size > LARGEST_LAPLACE:
        raise ValueError(
            f"`guide` must not be laplace for a model of {size:,} parameters: it takes at most "
            f"{LARGEST_LAPLACE:,}."
        )
    return GUIDES[name](size, cap, **given)


def softplus(rho: np.ndarray) -> np.ndarray:
    """Scales from unconstrained parameters `rho`."""
    with np.errstate(invalid="ignore"):  # parameters of a fit that diverged
        return np.logaddexp(0, rho)


def inverse_softplus(scale: float) -> float:
    """Unconstrained parameter of a scale, without overflow or cancellation."""
    return float(scale + np.log(-np.expm1(-scale)))
