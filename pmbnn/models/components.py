"""Distributions of numbers at draws of their parameters, as SciPy freezes them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np


class Components(Protocol):
    """Distributions of numbers, one for each draw and observation, as SciPy freezes them.

    Every method returns ``(draw, observation)``, or ``(draw, 1)`` where all observations have the
    same value; arguments broadcast against that.
    """

    def mean(self) -> "np.ndarray":
        """Means."""

    def std(self) -> "np.ndarray":
        """Standard deviations."""

    def logpdf(self, x: "np.ndarray") -> "np.ndarray":
        """Log-densities, in nats."""

    def cdf(self, x: "np.ndarray") -> "np.ndarray":
        """Probabilities of less than `x`."""

    def ppf(self, q: float) -> "np.ndarray":
        """Quantiles."""

    def rvs(self, *, random_state: "np.random.Generator") -> "np.ndarray":
        """One draw of each."""


@dataclass(frozen=True)
class NormalComponents(Components):
    """Normal distributions, as `Components`.

    SciPy's frozen distributions check and mask every argument, which takes several times as long.

    Attributes
    ----------
    mu, sigma
        Mean and standard deviation, ``(draw, observation)`` or ``(draw, 1)``.
    """

    mu: "np.ndarray"
    sigma: "np.ndarray"

    def mean(self):  # noqa: D102
        return self.mu

    def std(self):  # noqa: D102
        return self.sigma

    def logpdf(self, x):  # noqa: D102
        import numpy as np

        squares = ((x - self.mu) / self.sigma) ** 2
        return -0.5 * squares - (np.log(self.sigma) + 0.5 * np.log(2 * np.pi))

    def cdf(self, x):  # noqa: D102
        from scipy.special import ndtr

        return ndtr((x - self.mu) / self.sigma)

    def ppf(self, q):  # noqa: D102
        from scipy.special import ndtri

        return self.mu + ndtri(q) * self.sigma

    def rvs(self, *, random_state):  # noqa: D102
        return self.mu + self.sigma * random_state.standard_normal(self.mu.shape)


@dataclass(frozen=True)
class StudentTComponents(Components):
    """Student's t distributions with more than two degrees of freedom, as `Components`.

    Attributes
    ----------
    nu, mu, sigma
        Degrees of freedom, mean and scale, ``(draw, observation)`` or ``(draw, 1)``.
    """

    nu: "np.ndarray"
    mu: "np.ndarray"
    sigma: "np.ndarray"

    def mean(self):  # noqa: D102
        return self.mu

    def std(self):  # noqa: D102
        import numpy as np

        return self.sigma * np.sqrt(self.nu / (self.nu - 2))

    def logpdf(self, x):  # noqa: D102
        import numpy as np
        from scipy.special import gammaln

        half, squares = 0.5 * (self.nu + 1), ((x - self.mu) / self.sigma) ** 2
        constant = gammaln(half) - gammaln(0.5 * self.nu) - 0.5 * np.log(np.pi * self.nu)
        return constant - np.log(self.sigma) - half * np.log1p(squares / self.nu)

    def cdf(self, x):  # noqa: D102
        from scipy.special import stdtr

        return stdtr(self.nu, (x - self.mu) / self.sigma)

    def ppf(self, q):  # noqa: D102
        from scipy.special import stdtrit

        return self.mu + stdtrit(self.nu, q) * self.sigma

    def rvs(self, *, random_state):  # noqa: D102
        return self.mu + self.sigma * random_state.standard_t(self.nu, size=self.mu.shape)
