"""Likelihoods of numbers: the network's output plus noise."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from pmbnn.models.likelihoods.base import distribution_parameters
from pmbnn.models.likelihoods.components import NormalComponents, StudentTComponents
from pmbnn.models.likelihoods.noise import (
    Heteroscedastic,
    NumberLikelihood,
    PointNoise,
    shaped,
    target_dims,
)
from pmbnn.models.priors import HalfCauchy, HalfNormal, InverseGamma
from pmbnn.spec import Positive, Specification

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable

DEGREES = "degrees_of_freedom"
"""Name of learned degrees of freedom; names of their constants start with it."""

LEAST_DEGREES = 2.0
"""Degrees of freedom above which a Student's t distribution has a variance."""


Scale = (
    Positive
    | tuple[Positive, ...]
    | HalfNormal
    | HalfCauchy
    | InverseGamma
    | PointNoise
    | Heteroscedastic
)


class Normal(NumberLikelihood):
    """Numbers: the network's output plus Gaussian noise.

    Parameters
    ----------
    sd
        Standard deviation of the noise, in the units of the targets that are fitted: a number
        where it is known, or a list of one for each of several targets; a hyperprior, under which
        the variable ``noise`` is learned; ``point``, maximised without a hyperprior; or
        ``heteroscedastic``, a function of the inputs. The default is the half-Cauchy distribution
        that Gelman (2006), Prior distributions for variance parameters, section 7, recommends for
        a scale of which little is known. A mean-field guide of a wide network may learn too large
        a noise: give the noise where it is known.
    """

    kind: Literal["normal"] = "normal"
    sd: Scale = HalfCauchy()
    scale_field: ClassVar[str] = "sd"

    def observe(self, name, outputs, data):  # noqa: D102
        import pymc as pm

        mu, sd = self._mean_and_scale(outputs, data)
        dims = ("observation", *target_dims(data))
        return pm.Normal(name, mu, sd, observed=data["target"], dims=dims)

    def parameters(self, observed):  # noqa: D102
        import pymc as pm

        mu, sigma = distribution_parameters(observed, pm.Normal, self.kind)
        return {"mu": mu, "sigma": shaped(sigma, mu)}

    def components(self, parameters):  # noqa: D102
        return NormalComponents(parameters["mu"], parameters["sigma"])


class Gamma(Specification):
    """Gamma distribution with shape ``alpha`` and rate ``beta``, shifted to a lower bound."""

    kind: Literal["gamma"] = "gamma"
    alpha: Positive = 2.0
    beta: Positive = 0.1


class StudentT(NumberLikelihood):
    """Numbers: the network's output plus Student's t noise, which leaves room for outliers.

    Parameters
    ----------
    nu
        Degrees of freedom, above 2, so that there is a variance: a number where they are known;
        or ``gamma``, the prior of their excess over 2. Learned ones are the variable
        ``degrees_of_freedom``, one for each target. The default is that of Juárez and Steel (2010),
        Model-based clustering of non-Gaussian panel data based on skew-t distributions, section 3,
        shifted by the bound.
    scale
        Scale of the noise, set as the standard deviation of `Normal` is. The standard deviation is
        ``scale`` times √(nu / (nu - 2)).
    """

    kind: Literal["student_t"] = "student_t"
    nu: Annotated[float, Field(gt=LEAST_DEGREES)] | Gamma = Gamma()
    scale: Scale = HalfCauchy()
    scale_field: ClassVar[str] = "scale"

    @property
    def constants(self) -> Mapping[str, float]:  # noqa: D102
        degrees = self.nu.model_dump(exclude={"kind"}) if self._learns_nu else {"nu": self.nu}
        return super().constants | {f"{DEGREES}_{name}": value for name, value in degrees.items()}

    @property
    def n_free(self) -> int:  # noqa: D102
        return super().n_free + int(self._learns_nu)

    @property
    def structure(self) -> Mapping[str, object]:  # noqa: D102
        return {**super().structure, "nu": self.nu.kind if self._learns_nu else "known"}

    @property
    def _learns_nu(self) -> bool:
        return isinstance(self.nu, Gamma)

    def observe(self, name, outputs, data):  # noqa: D102
        import pymc as pm

        mu, sigma = self._mean_and_scale(outputs, data)
        dims = ("observation", *target_dims(data))
        nu = self._degrees(data)
        return pm.StudentT(name, nu=nu, mu=mu, sigma=sigma, observed=data["target"], dims=dims)

    def _degrees(self, data) -> "TensorVariable":
        import numpy as np
        import pymc as pm

        if not self._learns_nu:
            return data[f"{DEGREES}_nu"]
        alpha, beta = (data[f"{DEGREES}_{name}"] for name in ("alpha", "beta"))
        dims, name = target_dims(data), f"{DEGREES}_above_{LEAST_DEGREES:g}"
        above = pm.Gamma(name, alpha=alpha, beta=beta, dims=dims)
        return pm.Deterministic(DEGREES, np.float64(LEAST_DEGREES) + above, dims=dims)

    def parameters(self, observed):  # noqa: D102
        import pymc as pm

        nu, mu, sigma = distribution_parameters(observed, pm.StudentT, self.kind)
        return {"nu": shaped(nu, mu), "mu": mu, "sigma": shaped(sigma, mu)}

    def components(self, parameters):  # noqa: D102
        return StudentTComponents(*(parameters[name] for name in ("nu", "mu", "sigma")))
