"""Weight priors by class, as `pmbnn.priors`, and their registry.

Those with local scales are in `global_local`, those with correlated weights in `correlated`, that
of a stored cell is in `cell_posterior`. Every other weight prior has location 0.
"""

from math import log
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, model_validator

from pmbnn.core.spec import Positive, registry
from pmbnn.models.cell_posterior import CellPosterior
from pmbnn.models.correlated import CorrelatedNormal, MatrixNormal
from pmbnn.models.global_local import R2D2, Horseshoe, MultivariateT
from pmbnn.models.prior_base import STANDARD, Prior
from pmbnn.models.pymc_distributions import (
    WITH_QUANTILES,
    OfPositive,
    OfReal,
    PyMCDistribution,
    as_constants,
)

Proportion = Annotated[float, Field(gt=0, lt=1)]


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
    MatrixNormal,
    ScaleMixture,
    TrainableMean,
    Horseshoe,
    R2D2,
    Flat,
    CellPosterior,
    PyMCPrior,
)

__all__ = [
    "PRIORS",
    "Cauchy",
    "CellPosterior",
    "CorrelatedNormal",
    "Flat",
    "Horseshoe",
    "Laplace",
    "MatrixNormal",
    "MultivariateT",
    "Normal",
    "PyMCPrior",
    "R2D2",
    "ScaleMixture",
    "StudentT",
    "TrainableMean",
]
