"""The scale of the noise of numbers: known, learned, maximised, or a function of the inputs."""

from typing import TYPE_CHECKING, Literal

from pmbnn.core.spec import Positive, Specification
from pmbnn.models.hyperpriors import HalfCauchy, HalfNormal, InverseGamma

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable

NOISE = "noise"
"""Name of a learned standard deviation of the noise; names of its constants start with it."""

SMALLEST_SD = 1e-6
"""Added to a standard deviation that is an output: its logarithm stays finite if it underflows."""


class Heteroscedastic(Specification):
    """A scale of the noise that depends on the inputs: a second output of the network gives it.

    Parameters
    ----------
    link
        Function of the output that gives the scale: ``softplus`` or ``exp``.

    References
    ----------
    Nix and Weigend (1994), Estimating the mean and variance of the target probability
    distribution, where the output gives the logarithm of the variance.
    """

    kind: Literal["heteroscedastic"] = "heteroscedastic"
    link: Literal["softplus", "exp"] = "softplus"

    def scale(self, output: "TensorVariable") -> "TensorVariable":
        """Scale of the noise, positive, of any output."""
        import pytensor.tensor as pt

        return {"softplus": pt.softplus, "exp": pt.exp}[self.link](output) + SMALLEST_SD


class PointNoise(Specification):
    """A scale of the noise without a hyperprior: a free parameter, which is maximised."""

    kind: Literal["point"] = "point"


Scale = (
    Positive
    | tuple[Positive, ...]
    | HalfNormal
    | HalfCauchy
    | InverseGamma
    | PointNoise
    | Heteroscedastic
)
