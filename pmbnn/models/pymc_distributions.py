"""A continuous distribution of PyMC by its name and parameters: what such priors have in common."""

import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from pmbnn.core.errors import SettingError
from pmbnn.core.spec import Specification, added

if TYPE_CHECKING:
    import numpy as np

OfPositive = Literal[
    "Beta", "ChiSquared", "Exponential", "Gamma", "HalfCauchy", "HalfNormal", "HalfStudentT",
    "InverseGamma", "Kumaraswamy", "LogNormal", "Pareto", "Triangular", "TruncatedNormal",
    "Uniform", "Wald", "Weibull",
]  # fmt: skip
"""Distributions of a positive number, some of them only with the right parameters."""

OfReal = Literal[
    OfPositive, "AsymmetricLaplace", "Cauchy", "Gumbel", "Laplace", "Logistic", "Moyal", "Normal",
    "SkewStudentT", "StudentT",
]  # fmt: skip
"""All continuous distributions of one number in PyMC but nine.

``Flat`` and ``HalfFlat`` are improper, ``Interpolated`` takes arrays, and ``PolyaGamma`` has no
density in JAX. ``LogitNormal`` has no transformation to the real line in PyMC, and that of
``VonMises`` is periodic, so that no distribution on the line corresponds to it. In single precision
under JAX, PyMC 6.4 gives gradients that are not finite: those of ``SkewNormal`` near 0, of
``ExGaussian`` at -5 and of ``Rice`` at 55, with unit scales.
"""

WITH_QUANTILES = (
    "Cauchy", "Exponential", "Gumbel", "HalfCauchy", "HalfNormal", "InverseGamma", "Kumaraswamy",
    "Laplace", "LogNormal", "Logistic", "Moyal", "Normal", "Pareto", "Triangular",
    "TruncatedNormal", "Uniform", "Weibull",
)  # fmt: skip
"""Distributions with a quantile function that JAX computes: PyMC's, or one of this package."""

NEGATIVE = [-(10.0**exponent) for exponent in (-300, *range(-8, 9))]
"""Numbers at which a positive number has density 0; the first is in any interval that ends at 0."""


class PyMCDistribution(Specification):
    """A distribution of PyMC with numbers as parameters.

    Parameters
    ----------
    dist
        Name of the distribution in PyMC: ``Logistic`` is ``pm.Logistic``.
    a, alpha, b, beta, c, kappa, lam, lower, m, mu, nu, phi, q, s, sigma, tau, upper
        Parameter of the distribution, as PyMC names and defines it. By default that of PyMC,
        and required where PyMC has no default.
    """

    kind: str
    dist: str
    a: float | None = added(None)
    alpha: float | None = added(None)
    b: float | None = added(None)
    beta: float | None = added(None)
    c: float | None = added(None)
    kappa: float | None = added(None)
    lam: float | None = added(None)
    lower: float | None = added(None)
    m: float | None = added(None)
    mu: float | None = added(None)
    nu: float | None = added(None)
    phi: float | None = added(None)
    q: float | None = added(None)
    s: float | None = added(None)
    sigma: float | None = added(None)
    tau: float | None = added(None)
    upper: float | None = added(None)

    must_be_positive: ClassVar[bool] = False
    """Whether the distribution must leave out negative numbers."""

    @property
    def given(self) -> Mapping[str, float]:
        """Parameters of the distribution that are given, by name."""
        values = {name: getattr(self, name) for name in PARAMETERS}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def written_fields(self) -> tuple[str, ...]:
        """Every field but the parameters that are left to PyMC."""
        left_out = set(PARAMETERS) - self.given.keys()
        return tuple(name for name in super().written_fields if name not in left_out)

    @model_validator(mode="after")
    def _is_a_distribution(self):
        _check(self.dist, tuple(self.given.items()), self.must_be_positive)
        return self

    def __repr_args__(self):
        return [(name, getattr(self, name)) for name in self.written_fields]


PARAMETERS = tuple(PyMCDistribution.model_fields)[2:]
"""Names of the parameters of all distributions."""


@functools.cache  # cells share their distributions
def _check(dist: str, given: tuple[tuple[str, float], ...], must_be_positive: bool) -> None:
    """Raise SettingError unless PyMC has the parameters of a distribution, in their domain."""
    import numpy as np
    import pymc as pm
    from pymc.distributions.distribution import support_point
    from pymc.logprob.utils import ParameterValueError

    values = dict(given)
    names = _check_names(dist, values)
    got = f"got {', '.join(f'{name} {value:g}' for name, value in given) or 'none'}"
    try:
        with np.errstate(all="ignore"):
            variable = getattr(pm, dist).dist(**as_constants(values))
            centre = support_point(variable).eval(mode="FAST_COMPILE")
            density = pm.logp(variable, np.append(NEGATIVE, centre)).eval(mode="FAST_COMPILE")
    except ParameterValueError as error:
        rule = str(error).splitlines()[0]
        raise SettingError(
            _outside(rule, values), f"must have {rule} in pm.{dist}, {got}"
        ) from None
    except Exception as error:
        text = str(error).splitlines()[0].rstrip(".")
        reason = "it needs more of them" if "None" in text else text
        rule = (
            f"must have parameters of pm.{dist}, among {', '.join(names)}, that make one: {reason}"
        )
        raise SettingError(None, f"{rule}, {got}") from None
    if not np.isfinite(density[-1]):
        raise SettingError(None, f"must give pm.{dist} a finite density, {got}")
    if must_be_positive and np.any(density[:-1] > -np.inf):
        raise SettingError("lower", f"must leave pm.{dist} no negative numbers, {got}")


def _check_names(dist: str, given: Mapping[str, float]) -> list[str]:
    """Names of a distribution's parameters; a SettingError if some are unknown or missing."""
    import inspect

    import pymc as pm

    found = inspect.signature(getattr(pm, dist).dist).parameters
    names = [name for name in PARAMETERS if name in found]
    for name, value in given.items():
        if name not in names:
            rule = f"must be left out: pm.{dist} has {', '.join(names)}"
            raise SettingError(name, f"{rule}, got {value:g}")
    for name in names:
        if found[name].default is inspect.Parameter.empty and name not in given:
            raise SettingError(name, f"is missing: pm.{dist} has no default of it")
    return names


def _outside(rule: str, given: Mapping[str, float]) -> str | None:
    """Name of the parameter that breaks PyMC's rule, where that can be told."""
    for name, sign in re.findall(r"(\w+) (>=?) 0", rule):
        if name in given and (given[name] < 0 or (given[name] == 0 and sign == ">")):
            return name
    return next(iter(given)) if len(given) == 1 else None


def as_constants(given: Mapping[str, float]) -> "dict[str, np.float64]":
    """Parameters in double precision: PyTensor would keep some of Python's numbers in single."""
    import numpy as np

    return {name: np.float64(value) for name, value in given.items()}
