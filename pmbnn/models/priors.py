"""Weight priors and the hyperpriors on their scale: one registry of each, one class an entry.

Every weight prior has location 0. A hyperprior is what stands in the place of its scale: a
constant (``fixed``) or a positive distribution, learned with the weights.
"""

from collections.abc import Mapping, Sequence
from math import log
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from pmbnn.core.spec import Positive, Specification, Tune, added, registry
from pmbnn.models.hyperpriors import (
    HYPERPRIORS,
    Fixed,
    HalfCauchy,
    HalfNormal,
    Hierarchical,
    Hyperprior,
    InverseGamma,
    Match,
    PointScale,
    PyMCHyperprior,
)
from pmbnn.models.pymc_distributions import (
    WITH_QUANTILES,
    OfPositive,
    OfReal,
    PyMCDistribution,
    as_constants,
)

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable

STANDARD = "_z"
"""Ending of the names of standard draws that a model transforms; traces do not keep them."""

Proportion = Annotated[float, Field(gt=0, lt=1)]


class Prior(Specification):
    """Prior distribution of every weight and bias.

    Parameters
    ----------
    fan_in
        Divide the scale by the square root of the number of inputs of a unit (Neal, 1996).
    bias_scale
        Fixed scale of the biases, whatever ``fan_in`` and the hyperprior are. By default, biases
        have the scale of the weights of their layer; ``flat`` takes none.
    """

    kind: str
    fan_in: bool = False
    bias_scale: Positive | None = added(None)

    distribution: ClassVar[str]
    """Name of a PyMC distribution with a location and a scale; for the default `variable`."""

    has_scale: ClassVar[bool] = True
    """Whether there is a scale to put a hyperprior on."""

    is_smooth: ClassVar[bool] = False
    """Whether its density has two derivatives everywhere, as Laplace's approximation needs."""

    has_quantiles: ClassVar[bool] = True
    """Whether the quantile functions of all its variables are known, as tempered SMC needs."""

    centrable: ClassVar[bool] = True
    """Whether weights can be drawn around a learned scale directly.

    If not, they are always the scale times the `variable` of scale 1.
    """

    @property
    def is_scale_family(self) -> bool:
        """Whether weights are the scale times what they are at scale 1.

        A prior with `own_scales` says so itself: nothing else tells what it does with the scale.
        """
        return self.has_scale and type(self).own_scales is Prior.own_scales

    @property
    def is_on_line(self) -> bool:
        """Whether the free variables of weights are on the whole line, as a temperature needs them.

        Scales of single weights and units are positive: a prior with `own_scales` of other
        variables says so itself.
        """
        return type(self).own_scales is Prior.own_scales

    @model_validator(mode="after")
    def _biases_have_a_scale(self):
        if self.bias_scale is not None and not self.has_scale:
            raise ValueError(
                f"must leave out `bias_scale` with prior `{self.kind}`, which has no scale, "
                f"got {self.bias_scale:g}"
            )
        return self

    def n_free(self, weights: int) -> int:
        """Number of free scalars of a model with this number of weights, weights included.

        Those of `of_layer` are not among them.
        """
        return weights

    def n_of_layers(self, units: Sequence[int]) -> int:
        """Number of free scalars of `of_layer`, for the numbers of units of each layer."""
        return 0

    def shared(self) -> Mapping[str, "TensorVariable"]:
        """Variables that all weights of the current model share, except their scale, by name.

        It is called once per model and may create free variables.
        """
        return {}

    def of_layer(self, number: int, dims: tuple[str, ...]) -> Mapping[str, "TensorVariable"]:
        """Variables that weights and biases of a layer share, except their scale, by name.

        It is called once per layer and may create free variables.

        Parameters
        ----------
        number
            Number of the layer, from 1.
        dims
            Dims of the layer's outputs.
        """
        return {}

    def own_scales(
        self,
        name: str,
        dims: tuple[str, ...],
        scale: "TensorVariable | float",
        layer: Mapping[str, "TensorVariable"],
    ) -> "TensorVariable | None":
        """Scales of single weights, in place of the common one.

        None if the prior has no such scales. With them, weights are always non-centred.

        Parameters
        ----------
        name, dims
            Name and dims of the weights.
        scale
            The common scale.
        layer
            What `of_layer` returned for their layer.
        """
        return None

    def variable(
        self,
        name: str,
        scale: "TensorVariable | float",
        dims: tuple[str, ...],
        shared: Mapping[str, "TensorVariable"],
    ) -> "TensorVariable":
        """Random variable ``name`` with location 0 and the given scale, in the current model."""
        import pymc as pm

        return getattr(pm, self.distribution)(name, 0.0, scale, dims=dims)


class Normal(Prior):
    """Gaussian prior; ``scale`` is its standard deviation."""

    kind: Literal["normal"] = "normal"
    is_smooth: ClassVar[bool] = True
    distribution: ClassVar[str] = "Normal"


class Laplace(Prior):
    """Double-exponential prior; ``scale`` is the mean absolute value."""

    kind: Literal["laplace"] = "laplace"
    distribution: ClassVar[str] = "Laplace"


class Cauchy(Prior):
    """Cauchy prior; ``scale`` is the median absolute value."""

    kind: Literal["cauchy"] = "cauchy"
    distribution: ClassVar[str] = "Cauchy"


class StudentT(Prior):
    """Student's t prior with ``nu`` degrees of freedom: Cauchy at 1, towards normal above.

    The standard deviation is ``scale`` times √(nu / (nu - 2)), and infinite up to ``nu`` 2.

    Parameters
    ----------
    nu
        Degrees of freedom.
    """

    kind: Literal["student_t"] = "student_t"
    has_quantiles: ClassVar[bool] = False
    is_smooth: ClassVar[bool] = True
    nu: Positive = 4.0

    def variable(self, name, scale, dims, shared):  # noqa: D102
        import numpy as np
        import pymc as pm

        # PyTensor would keep Python's 4.0 in single precision, and its log-gamma there.
        return pm.StudentT(name, nu=np.float64(self.nu), mu=0.0, sigma=scale, dims=dims)


class MultivariateT(Prior):
    """Multivariate Student's t prior: a normal one whose scale each unit draws by itself.

    weight = scale · √mixing · z with mixing ~ inverse-gamma(``nu`` / 2, ``nu`` / 2) and
    z ~ N(0, 1). The incoming weights and the bias of a unit, or of a filter of a convolution, share
    one mixing variable: together they have a multivariate t distribution with ``nu`` degrees of
    freedom, and each of them that of the prior ``student_t``. This form is always non-centred, and
    `centred` hyperpriors are rejected. The mixing variables are called ``unit_1_mixing``, ...

    Parameters
    ----------
    nu
        Degrees of freedom.

    References
    ----------
    Fortuin et al. (2022), Bayesian Neural Network Priors Revisited (heavy tails).
    """

    kind: Literal["multivariate_t"] = "multivariate_t"
    nu: Positive = 4.0
    distribution: ClassVar[str] = "Normal"
    centrable: ClassVar[bool] = False
    is_scale_family: ClassVar[bool] = True

    def n_of_layers(self, units):
        """A mixing variable for every unit."""
        return sum(units)

    def of_layer(self, number, dims):
        """The mixing variables of the layer's units."""
        import numpy as np
        import pymc as pm

        half = np.float64(self.nu / 2)
        return {"mixing": pm.InverseGamma(f"unit_{number}_mixing", half, half, dims=dims)}

    def own_scales(self, name, dims, scale, layer):  # noqa: D102
        import pytensor.tensor as pt

        return scale * pt.sqrt(layer["mixing"])


class CorrelatedNormal(Prior):
    """Normal prior of convolutions whose kernels are correlated over their pixels.

    The correlation of two weights of a kernel is exp(-distance / ``lengthscale``), a Matérn
    covariance of order 1/2. Weights of different filters or input channels are independent, as are
    biases and the weights of dense layers. Every weight has the standard deviation ``scale``: on a
    network without convolutions this is the prior ``normal``, in its non-centred form.

    A kernel is the scale times the covariance's Cholesky factor times standard normal draws. This
    form is always non-centred, and `centred` hyperpriors are rejected. The draws are called
    ``weight_1_z``, ... The estimators ``local_reparameterisation`` and ``flipout`` do not rewrite
    convolutions with this prior.

    Parameters
    ----------
    lengthscale
        Distance at which the correlation is 1/e, in pixels of the kernel; at most a million.

    References
    ----------
    Fortuin et al. (2022), Bayesian Neural Network Priors Revisited (correlated weights).
    """

    kind: Literal["correlated_normal"] = "correlated_normal"
    lengthscale: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    is_smooth: ClassVar[bool] = True
    centrable: ClassVar[bool] = False

    def variable(self, name, scale, dims, shared):
        """Standard draws, correlated over all dims but the first and the last."""
        import numpy as np
        import pymc as pm

        standard = pm.Normal(name, 0.0, scale, dims=dims)
        if len(dims) < 3:
            return standard
        coords = pm.modelcontext(None).coords
        inputs, *sides, units = shape = [len(coords[dim]) for dim in dims]
        pixels = np.indices(sides).reshape(len(sides), -1).T
        distance = np.linalg.norm(pixels[:, None] - pixels, axis=-1)
        root = np.linalg.cholesky(np.exp(-distance / self.lengthscale))
        return (root @ standard.reshape((inputs, -1, units))).reshape(shape)


class ScaleMixture(Prior):
    """Mixture of two centred Gaussians, a wide one and a narrow one.

    ``proportion`` · N(0, (scale · sigma_1)²) + (1 - ``proportion``) · N(0, (scale · sigma_2)²).
    The defaults are where TensorFlow Probability's regression tutorial starts.

    Parameters
    ----------
    proportion
        Share of the wide component, or its start where it is learned.
    sigma_1
        Standard deviation of the wide component, in units of the scale.
    sigma_2
        Standard deviation of the narrow component, in units of the scale.
    learned
        Learn the three together with the weights; all layers share them. Their hyperpriors
        are log-normal, and logit-normal for the proportion, with the values given here as
        medians: ``sigma_1`` · exp(spread · z), ``sigma_2`` · exp(spread · z) and
        logistic(logit(proportion) + spread · z), with an independent standard normal z for each.
        A guide that starts at z = 0 starts at the values given. During the fit ``sigma_1`` may
        fall below ``sigma_2``. With a learned scale, only the hyperpriors identify the scale and
        a common factor of both.
    spread
        Standard deviation of the hyperpriors on their logarithmic and logit axes.

    References
    ----------
    Blundell et al. (2015), Weight Uncertainty in Neural Networks, equation 7, where the mixture
    is fixed and has no further scale.
    """

    kind: Literal["scale_mixture"] = "scale_mixture"
    has_quantiles: ClassVar[bool] = False
    proportion: Proportion = 0.2
    sigma_1: Positive = 1.0
    sigma_2: Positive = 0.1
    learned: bool = False
    spread: Positive = 1.0

    @model_validator(mode="after")
    def _identified(self):
        if self.sigma_1 < self.sigma_2:
            raise ValueError(
                "must have `sigma_1` >= `sigma_2`, which tells the components apart, "
                f"got {self.sigma_1:g} and {self.sigma_2:g}"
            )
        if self.spread != 1.0 and not self.learned:
            raise ValueError(f"must have `learned: true` to set `spread`, got {self.spread:g}")
        return self

    def n_free(self, weights):
        """The weights; and two standard deviations and a share where these are learned."""
        return weights + 3 if self.learned else weights

    def shared(self):
        """Both standard deviations and the two shares: constants unless learned."""
        import numpy as np
        import pymc as pm
        import pytensor.tensor as pt

        if not self.learned:
            return {
                "sigma_1": np.float64(self.sigma_1),
                "sigma_2": np.float64(self.sigma_2),
                "shares": np.array([self.proportion, 1.0 - self.proportion]),
            }

        def moved(name, start):
            return np.float64(start) + np.float64(self.spread) * pm.Normal(name + STANDARD)

        logit = moved("mixture_proportion", log(self.proportion / (1 - self.proportion)))
        share = pm.Deterministic("mixture_proportion", pt.sigmoid(logit))
        sigmas = {
            f"sigma_{i}": pm.Deterministic(
                f"mixture_sigma_{i}", pt.exp(moved(f"mixture_sigma_{i}", log(start)))
            )
            for i, start in ((1, self.sigma_1), (2, self.sigma_2))
        }
        # One minus a share close to 1 would round to 0, whose logarithm is infinite.
        return sigmas | {"shares": pt.where(np.array([True, False]), share, pt.sigmoid(-logit))}

    def variable(self, name, scale, dims, shared):  # noqa: D102
        import pymc as pm

        # Two components apart: as one `pm.NormalMixture` the gradient took five times as long
        # under JAX, on a matrix of 512 × 512.
        components = [pm.Normal.dist(0.0, scale * shared[s]) for s in ("sigma_1", "sigma_2")]
        return pm.Mixture(name, w=shared["shares"], comp_dists=components, dims=dims)


class TrainableMean(Prior):
    """Normal prior with standard deviation ``scale`` and a learned mean for every weight.

    weight ~ N(scale · mean, scale²) with mean ~ N(0, spread²). The means are called
    ``weight_1_mean``, ``bias_1_mean``, ..., in units of the scale, and are no part of the
    network's function. Under a mean-field guide with means m, w and standard deviations s, t
    of a weight's prior mean and of the weight (scale 1), the divergence is

        (w - m)² / 2 + (t² - 1) / 2 - log t  +  s² / 2 - log s + O(1 / spread²) + constant.

    Its optimum has m = w and s = 1 whatever the data say, to order 1 / spread²: what
    remains is (t² - 1) / 2 - log t, the divergence between the scales alone, as under maximum
    marginal likelihood of the means (type II, empirical Bayes). The location of a weight then costs
    nothing, and t moves towards the scale. The ELBO differs from that of point means by
    log(spread) nats per weight: do not compare it with the ELBO of another prior.

    This holds for factorised guides only. The exact posterior is that of the normal prior with
    standard deviation scale · √(1 + spread²).

    Parameters
    ----------
    spread
        Standard deviation of the means' hyperprior, in units of the scale; means are free
        point parameters in the limit of a large one.
    """

    kind: Literal["trainable_mean"] = "trainable_mean"
    spread: Positive = 100.0

    def n_free(self, weights):
        """The weights and a mean for each."""
        return 2 * weights

    def variable(self, name, scale, dims, shared):  # noqa: D102
        import numpy as np
        import pymc as pm

        mean = pm.Normal(
            f"{name.removesuffix(STANDARD)}_mean", 0.0, np.float64(self.spread), dims=dims
        )
        return pm.Normal(name, scale * mean, scale, dims=dims)


class Horseshoe(Prior):
    """Horseshoe prior: normal, with a half-Cauchy scale for each weight.

    weight = scale · local · z with local ~ half-Cauchy(1) and z ~ N(0, 1). This form is always
    non-centred, and `centred` hyperpriors are rejected. The local scales are called
    ``weight_1_local``, ``bias_1_local``, ... The hyperprior is on the global scale, which has a
    half-Cauchy distribution in the paper.

    ``per: unit`` gives the *group* horseshoe, which can switch off whole units: the incoming
    weights and the bias of a unit, or of a filter of a convolution, share one local scale. The
    local scales of a layer are then called ``unit_1_local``, ... In the paper, weights of the
    output layer are normal; here its units have local scales too.

    ``slab_scale`` gives the *regularised* horseshoe, whose largest weights are shrunk too. With
    slab² ~ inverse-gamma(ν / 2, ν s² / 2), one for each layer, where ν is ``slab_df`` and s
    ``slab_scale``,

        weight = z / √(1 / (scale · local)² + 1 / slab²).

    Where scale · local is far below the slab, this is the horseshoe. Where it is far above, the
    weight has Student's t distribution with ``slab_df`` degrees of freedom and scale
    ``slab_scale``, in units of the weights: neither ``fan_in`` nor the hyperprior changes the
    slab, and it holds for biases with a ``bias_scale`` too. The squares of the slabs are called
    ``layer_1_slab_variance``, ...

    Parameters
    ----------
    per
        One local scale a ``weight`` (or bias), or one for every receiving ``unit``.
    slab_scale
        Scale of the slab, in units of the weights: the size of the largest weights that one
        expects. By default there is no slab.
    slab_df
        Degrees of freedom of the slab.

    References
    ----------
    Carvalho, Polson and Scott (2010), The horseshoe estimator for sparse signals, section 1;
    Piironen and Vehtari (2017), Sparsity information and regularization in the horseshoe and
    other shrinkage priors, equations 2.8 and 2.9 (slab);
    Ghosh, Yao and Doshi-Velez (2018), Structured Variational Learning of Bayesian Neural Networks
    with Horseshoe Priors, section 3 (units).
    """

    kind: Literal["horseshoe"] = "horseshoe"
    per: Literal["weight", "unit"] = added("weight")
    slab_scale: Positive | None = added(None)
    slab_df: Positive = added(4.0)
    distribution: ClassVar[str] = "Normal"
    centrable: ClassVar[bool] = False

    @property
    def is_scale_family(self):
        """Not with a slab, which the scale does not move."""
        return self.slab_scale is None

    @model_validator(mode="after")
    def _degrees_are_of_a_slab(self):
        if self.slab_df != 4.0 and self.slab_scale is None:
            raise ValueError(f"must have a `slab_scale` to set `slab_df`, got {self.slab_df:g}")
        return self

    def n_free(self, weights):
        """The weights, and a scale for each unless units have them."""
        return 2 * weights if self.per == "weight" else weights

    def n_of_layers(self, units):
        """The scales of units, and the slab of each layer, where there are any."""
        local = sum(units) if self.per == "unit" else 0
        return local + (0 if self.slab_scale is None else len(units))

    def of_layer(self, number, dims):
        """Local scales of units and the slab, where there are any."""
        import numpy as np
        import pymc as pm
        import pytensor.tensor as pt

        variables = {}
        if self.per == "unit":
            variables["local"] = self._local(f"unit_{number}", dims)
        if self.slab_scale is not None:
            alpha, name = np.float64(self.slab_df / 2), f"layer_{number}_slab_variance"
            variance = pm.InverseGamma(name, alpha, alpha * self.slab_scale**2)
            variables["slab"] = pt.sqrt(variance)
        return variables

    def own_scales(self, name, dims, scale, layer):  # noqa: D102
        import pytensor.tensor as pt

        scales = scale * (layer["local"] if self.per == "unit" else self._local(name, dims))
        if self.slab_scale is None:
            return scales
        return scales / pt.sqrt(1 + (scales / layer["slab"]) ** 2)

    @staticmethod
    def _local(owner: str, dims: tuple[str, ...]) -> "TensorVariable":
        import numpy as np
        import pymc as pm

        return pm.HalfCauchy(f"{owner}_local", np.float64(1.0), dims=dims)


class R2D2(Prior):
    """R2D2 prior: units divide the variance of a layer among them, and most get little.

    weight = scale · √(n · share) · z, where z ~ N(0, 1) and the shares of a layer's n units have a
    symmetric Dirichlet distribution. The incoming weights and the bias of a unit, or of a filter of
    a convolution, have one share; the mean of n · share is one. In the paper, which is about linear
    regression, each coefficient has its own share and a double-exponential distribution, and
    scale² / (1 + scale²), the share of variance that the model explains (R²), has a beta
    distribution: with hyperprior ``half_cauchy`` of scale 1 it is beta(1/2, 1/2). This form is
    always non-centred, and `centred` hyperpriors are rejected. Shares are gamma variables over
    their sum; these are called ``unit_1_part``, ...

    Parameters
    ----------
    concentration
        Parameter of the Dirichlet distribution: few units matter at small ones, all at large ones.
        Below 0.25, shares are too small for single precision.

    References
    ----------
    Zhang, Naughton, Bondell and Reich (2022), Bayesian Regression Using a Prior on the Model Fit:
    The R2-D2 Shrinkage Prior, section 2.
    """

    kind: Literal["r2d2"] = "r2d2"
    concentration: Annotated[float, Field(ge=0.25)] = 0.5
    has_quantiles: ClassVar[bool] = False
    distribution: ClassVar[str] = "Normal"
    centrable: ClassVar[bool] = False
    is_scale_family: ClassVar[bool] = True

    def n_of_layers(self, units):
        """A gamma variable for every unit."""
        return sum(units)

    def of_layer(self, number, dims):
        """The gamma variables of the layer's units."""
        import numpy as np
        import pymc as pm

        alpha, one = np.float64(self.concentration), np.float64(1.0)
        return {"part": pm.Gamma(f"unit_{number}_part", alpha, one, dims=dims)}

    def own_scales(self, name, dims, scale, layer):  # noqa: D102
        import pytensor.tensor as pt

        return scale * pt.sqrt(layer["part"] / layer["part"].mean())


class Flat(Prior):
    """Improper uniform prior: the posterior is the normalised likelihood, if that exists.

    It has no scale and takes no hyperprior, and nothing can be drawn from it.
    """

    kind: Literal["flat"] = "flat"
    has_scale: ClassVar[bool] = False
    has_quantiles: ClassVar[bool] = False

    def variable(self, name, scale, dims, shared):  # noqa: D102
        import pymc as pm

        return pm.Flat(name, dims=dims)


class PyMCPrior(Prior, PyMCDistribution):
    """Any distribution of PyMC: each weight is the scale times a draw of the distribution.

    weight = scale · z with z ~ ``pm.<dist>(...)``, so that scale 1 gives the distribution as
    written, with its location. This form is always non-centred, and `centred` hyperpriors are
    rejected: it has the right density for every distribution. The draws z are called
    ``weight_1_z``, ``bias_1_z``, ...; those of a distribution on a part of the line are
    transformed by PyMC. A distribution of positive numbers makes all weights positive.
    """

    kind: Literal["pymc"] = "pymc"
    dist: OfReal
    centrable: ClassVar[bool] = False

    @property
    def has_quantiles(self) -> bool:
        """Whether the quantile function of the distribution is known."""
        return self.dist in WITH_QUANTILES

    @property
    def is_on_line(self) -> bool:
        """Not if PyMC transforms the distribution, as one of positive numbers or an interval."""
        return self.dist not in get_args(OfPositive)

    def variable(self, name, scale, dims, shared):
        """Draws of the distribution as written. The scale is 1; the model multiplies by its own."""
        import pymc as pm

        return getattr(pm, self.dist)(name, dims=dims, **as_constants(self.given))


PRIORS: dict[str, type[Prior]] = registry(
    Normal,
    Laplace,
    Cauchy,
    StudentT,
    MultivariateT,
    CorrelatedNormal,
    ScaleMixture,
    TrainableMean,
    Horseshoe,
    R2D2,
    Flat,
    PyMCPrior,
)


__all__ = [
    "HYPERPRIORS",
    "PRIORS",
    "STANDARD",
    "Cauchy",
    "CorrelatedNormal",
    "Fixed",
    "Flat",
    "HalfCauchy",
    "HalfNormal",
    "Hierarchical",
    "Horseshoe",
    "Hyperprior",
    "InverseGamma",
    "Laplace",
    "Match",
    "MultivariateT",
    "Normal",
    "PointScale",
    "Prior",
    "PyMCHyperprior",
    "PyMCPrior",
    "R2D2",
    "ScaleMixture",
    "StudentT",
    "TrainableMean",
    "Tune",
]
