"""Hyperpriors: what stands in the place of a prior's scale, one class each, and their registry."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from pmbnn.core.spec import Positive, Specification, Tune, registry
from pmbnn.models.pymc_distributions import WITH_QUANTILES, OfPositive, PyMCDistribution

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable


class Hyperprior(Specification):
    """What stands in the place of a prior's scale."""

    kind: str

    _parameters: ClassVar[tuple[str, ...]] = ()
    """Fields that a model holds as data: their values do not change its graph."""

    is_point: ClassVar[bool] = False
    """Whether the scales are point parameters: maximised, without a distribution in a guide."""

    has_quantiles: ClassVar[bool] = True
    """Whether its quantile function is known, as tempered SMC needs."""

    @property
    def constants(self) -> Mapping[str, float]:
        """Names and values of the constants that a model holds as data."""
        raise NotImplementedError

    @property
    def structure(self) -> Mapping[str, object]:
        """Every setting but the constants: what decides the shape of the model's graph."""
        return self.model_dump(exclude=set(self._parameters))

    @property
    def candidates(self) -> tuple["Hyperprior", ...]:
        """What a cell chooses from: itself, or one hyperprior per candidate of a tuned scale."""
        return (self,)

    def n_scales(self, units: Sequence[int]) -> int:
        """Number of learned scales, for the numbers of units of each layer."""
        return 0


class Match(Specification):
    """Scales of a prior for which functions look like draws of a Gaussian process.

    Before anything is fitted, one scale a layer is chosen so that the network's outputs have the
    distribution that the process says: at training inputs, and their increments between two of
    them. Targets are not used. `pmbnn.models.matching` has the criterion.

    Parameters
    ----------
    kernel
        Covariance of the process: ``rbf``, the squared exponential; or a Matérn covariance of
        order 1/2 (``matern12``, the exponential), 3/2 or 5/2.
    lengthscale
        Lengthscale of the kernel, in units of standardised inputs times the square root of their
        number: at 1, moving every input by one standard deviation is moving by one lengthscale. At
        most 1,000, where functions are constant but for a thousandth.
    amplitude
        Standard deviation of the process, in units of the network's outputs: standardised
        targets, or logits.

    References
    ----------
    Tran, Rossi, Milios and Filippone (2022), All You Need is a Good Functional Prior for Bayesian
    Deep Learning.
    """

    expands: ClassVar[bool] = False
    kernel: Literal["rbf", "matern12", "matern32", "matern52"] = "rbf"
    lengthscale: Annotated[float, Field(gt=0, le=1e3)] = 1.0
    amplitude: Positive = 1.0


class Fixed(Hyperprior):
    """A constant scale: given, matched to a Gaussian process, or chosen on held-out training rows.

    Parameters
    ----------
    scale
        Scale of the prior, in units of the weights. A list of lists, ``[[1.0, 0.5]]``, has one for
        each layer, shared by its weights and biases. ``{match: {kernel: rbf, lengthscale: 1,
        amplitude: 1}}`` chooses such a list so that functions drawn from the prior look like those
        of a Gaussian process. Of candidates ``{tune: {log: [low, high, count]}}`` each cell takes
        the one with the lowest NLL on held-out training rows. The priors ``flat`` and
        ``cell`` have none.
    """

    kind: Literal["fixed"] = "fixed"
    scale: Positive | tuple[Positive, ...] | Tune | Match | None = 1.0
    _parameters: ClassVar[tuple[str, ...]] = ("scale",)

    @property
    def scales(self) -> tuple[float, ...]:
        """Scales of all layers to choose from: one where one is given.

        None where each layer has its own, or there is none.
        """
        if isinstance(self.scale, Tune):
            return self.scale.candidates
        return (self.scale,) if isinstance(self.scale, int | float) else ()

    @property
    def is_per_layer(self) -> bool:
        """Whether each layer has a scale of its own."""
        return isinstance(self.scale, tuple | Match)

    @property
    def candidates(self) -> tuple[Hyperprior, ...]:  # noqa: D102
        return tuple(Fixed(scale=scale) for scale in self.scales) or (self,)

    @property
    def structure(self) -> Mapping[str, object]:
        """What decides the graph: whether layers share the scale."""
        return {**super().structure, **({"per": "layer"} if self.is_per_layer else {})}

    @property
    def constants(self) -> Mapping[str, float]:  # noqa: D102
        if isinstance(self.scale, Match):
            raise ValueError("scales that are to be matched have no values: call `matched` first.")
        if isinstance(self.scale, tuple):
            return {f"prior_scale_{i}": scale for i, scale in enumerate(self.scale, 1)}
        return {} if self.scale is None else {"prior_scale": self.scales[0]}


class Hierarchical(Hyperprior):
    """A positive distribution on the scale, learned together with the weights.

    Parameters
    ----------
    on
        Whether the distribution is that of the ``scale`` or of its square, the ``variance``.
    per
        One scale a ``layer`` (shared by its weights and biases), one for the whole
        ``network``, or one for every receiving ``unit``.
    centred
        Draw the weights with the learned scale directly; otherwise draw standard weights and
        multiply them by the scale (non-centred). The model is the same, the fit is not.
    """

    on: Literal["scale", "variance"] = "scale"
    per: Literal["layer", "network", "unit"] = "layer"
    centred: bool = False

    distribution: ClassVar[str]
    """Name of the PyMC distribution, which has the parameters that `_parameters` names."""

    @property
    def constants(self) -> Mapping[str, float]:  # noqa: D102
        return {f"hyperprior_{name}": getattr(self, name) for name in sorted(self._parameters)}

    def n_scales(self, units):  # noqa: D102
        return {"network": 1, "layer": len(units), "unit": sum(units)}[self.per]

    def variable(
        self, name: str, constants: Mapping[str, "TensorVariable"], dims: tuple[str, ...]
    ) -> "TensorVariable":
        """Positive random variable ``name``, in the current model."""
        import pymc as pm

        parameters = {p: constants[f"hyperprior_{p}"] for p in self._parameters}
        return getattr(pm, self.distribution)(name, dims=dims, **parameters)

    def learned(
        self,
        name: str,
        variance_name: str,
        constants: Mapping[str, "TensorVariable"],
        dims: tuple[str, ...],
    ) -> "TensorVariable":
        """The scale as variable ``name`` of the current model, by its variance if `on` says so."""
        import pymc as pm
        import pytensor.tensor as pt

        if self.on == "scale":
            return self.variable(name, constants, dims)
        variance = self.variable(variance_name, constants, dims)
        return pm.Deterministic(name, pt.sqrt(variance), dims=dims)


class HalfNormal(Hierarchical):
    """Half-normal distribution with scale ``sigma``.

    Parameters
    ----------
    sigma
        Scale of the half-normal distribution, whose mean is 0.80 ``sigma``.
    """

    kind: Literal["half_normal"] = "half_normal"
    sigma: Positive = 1.0
    _parameters: ClassVar[tuple[str, ...]] = ("sigma",)
    distribution: ClassVar[str] = "HalfNormal"


class HalfCauchy(Hierarchical):
    """Half-Cauchy distribution with scale ``beta``.

    Parameters
    ----------
    beta
        Scale of the half-Cauchy distribution, which is its median.
    """

    kind: Literal["half_cauchy"] = "half_cauchy"
    beta: Positive = 1.0
    _parameters: ClassVar[tuple[str, ...]] = ("beta",)
    distribution: ClassVar[str] = "HalfCauchy"


class InverseGamma(Hierarchical):
    """Inverse-gamma distribution with shape ``alpha`` and scale ``beta``.

    The default has mean 1 and mode 1/3.

    Parameters
    ----------
    alpha
        Shape; the smaller, the heavier the tail.
    beta
        Scale: the mean is ``beta`` / (``alpha`` - 1).
    """

    kind: Literal["inverse_gamma"] = "inverse_gamma"
    alpha: Positive = 2.0
    beta: Positive = 1.0
    _parameters: ClassVar[tuple[str, ...]] = ("alpha", "beta")
    distribution: ClassVar[str] = "InverseGamma"


class PointScale(Hierarchical):
    """No distribution: the scale is a free parameter, maximised while the weights are fitted.

    It needs a guide with independent parameters, and a prior with a scale. It cannot be sampled.

    References
    ----------
    MacKay (1992), A Practical Bayesian Framework for Backpropagation Networks (of the evidence);
    with a mean-field guide in its place, Wu et al. (2019), Deterministic Variational Inference for
    Robust Bayesian Neural Networks, section 4 (empirical Bayes).
    """

    kind: Literal["point"] = "point"
    on: Literal["scale"] = "scale"
    is_point: ClassVar[bool] = True
    has_quantiles: ClassVar[bool] = False

    def variable(self, name, constants, dims):  # noqa: D102
        from pmbnn.models.point import positive_point

        return positive_point(name, dims)


class PyMCHyperprior(Hierarchical, PyMCDistribution):
    """Any distribution of PyMC that leaves out negative numbers, on the scale or the variance."""

    kind: Literal["pymc"] = "pymc"
    dist: OfPositive
    must_be_positive: ClassVar[bool] = True

    @property
    def has_quantiles(self) -> bool:
        """Whether the quantile function of the distribution is known."""
        return self.dist in WITH_QUANTILES

    @property
    def _parameters(self) -> tuple[str, ...]:
        return tuple(self.given)

    @property
    def distribution(self) -> str:
        """Name of the distribution in PyMC."""
        return self.dist

    @property
    def structure(self) -> Mapping[str, object]:
        """Every setting but the values of parameters, with the names of those that are given."""
        return {**super().structure, "given": self._parameters}


HYPERPRIORS: dict[str, type[Hyperprior]] = registry(
    Fixed, HalfNormal, HalfCauchy, InverseGamma, PointScale, PyMCHyperprior
)

__all__ = [
    "HYPERPRIORS",
    "Fixed",
    "HalfCauchy",
    "HalfNormal",
    "Hierarchical",
    "Hyperprior",
    "InverseGamma",
    "Match",
    "PointScale",
    "PyMCHyperprior",
]
