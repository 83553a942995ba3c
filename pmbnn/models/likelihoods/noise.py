"""A scale of the noise: known, learned under a hyperprior, maximised, or a function of inputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from pmbnn.models.likelihoods.base import NUMBER, DensityLikelihood
from pmbnn.models.priors import Hierarchical
from pmbnn.spec import Specification

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable

NOISE = "noise"
"""Name of a learned standard deviation of the noise, and start of the names of its constants."""

SMALLEST_SD = 1e-6
"""Added to a standard deviation that is an output, whose logarithm stays finite where that
underflows."""


class Heteroscedastic(Specification):
    """A scale of the noise that depends on the inputs: a second output of the network gives it.

    Parameters
    ----------
    link
        The scale is the ``softplus`` or the ``exp`` of the output.

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


class NumberLikelihood(DensityLikelihood):
    """A likelihood of numbers about the network's first output, with a scale of the noise.

    The scale is known; or learned under a hyperprior, as the variable ``noise``; or maximised, of
    that name too; or a function of the inputs, by a second output.
    """

    scale_field: ClassVar[str]
    """Name of the field that has the scale."""

    @property
    def scale_of_noise(self) -> "float | Specification":
        """The scale where it is known, else what it is learned by."""
        return getattr(self, self.scale_field)

    @model_validator(mode="after")
    def _one_noise(self):
        name = self.scale_field
        for field in ("per", "centred") if self.is_learned else ():
            found = getattr(self.scale_of_noise, field)
            if found != type(self.scale_of_noise).model_fields[field].default:
                raise ValueError(
                    f"must leave out `{name}.{field}`: there is one standard deviation, of no "
                    f"layer, got {found}"
                )
        return self

    @property
    def is_known(self) -> bool:
        """Whether the scale is given as a number."""
        return not isinstance(self.scale_of_noise, Specification)

    @property
    def is_learned(self) -> bool:
        """Whether the scale is one number, learned under a hyperprior."""
        return isinstance(self.scale_of_noise, Hierarchical)

    def outputs(self, classes):
        """The mean; and the scale, where that depends on the inputs."""
        by_input = isinstance(self.scale_of_noise, Heteroscedastic)
        return (NUMBER, NOISE) if by_input else (NUMBER,)

    @property
    def constants(self) -> Mapping[str, float]:  # noqa: D102
        if self.is_known:
            return {f"{NOISE}_{self.scale_field}": self.scale_of_noise}
        if self.is_learned:
            constants = self.scale_of_noise.constants
            return {f"{NOISE}_{name}": value for name, value in constants.items()}
        return {}

    @property
    def is_point(self) -> bool:
        """Whether the scale is maximised."""
        return isinstance(self.scale_of_noise, PointNoise)

    @property
    def n_free(self) -> int:  # noqa: D102
        return int(self.is_learned or self.is_point)

    @property
    def structure(self) -> Mapping[str, object]:  # noqa: D102
        return {"kind": self.kind, self.scale_field: self._structure_of_scale()}

    def _structure_of_scale(self) -> object:
        if self.is_known:
            return "known"
        if self.is_learned:
            return dict(self.scale_of_noise.structure)
        return self.scale_of_noise.model_dump(mode="json")

    def _mean_and_scale(self, outputs, data) -> "tuple[TensorVariable, TensorVariable]":
        """Mean and scale of the noise of the current model, ``(observation,)`` or scalars."""
        import pytensor.tensor as pt

        # Flattened or split: PyMC would carry an index into the product that the output comes
        # from, where estimators look for whole matrices of weights.
        if self.is_known:
            return outputs.flatten(), data[f"{NOISE}_{self.scale_field}"]
        if self.is_learned:
            return outputs.flatten(), self._learned(data)
        if self.is_point:
            return outputs.flatten(), _maximised()
        mean, of_scale = (part.flatten() for part in pt.split(outputs, [1, 1], axis=1))
        return mean, self.scale_of_noise.scale(of_scale)

    def _learned(self, data) -> "TensorVariable":
        import pymc as pm
        import pytensor.tensor as pt

        hyperprior = self.scale_of_noise
        constants = {name: data[f"{NOISE}_{name}"] for name in hyperprior.constants}
        if hyperprior.on == "scale":
            return hyperprior.variable(NOISE, constants, ())
        variance = hyperprior.variable(f"{NOISE}_variance", constants, ())
        return pm.Deterministic(NOISE, pt.sqrt(variance))


def _maximised() -> "TensorVariable":
    from pmbnn.models.point import positive_point

    return positive_point(NOISE)
