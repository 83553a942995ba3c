"""A scale of the noise: known, learned under a hyperprior, maximised, or a function of inputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from pmbnn.models.likelihoods.base import NUMBER, TARGET_NAME, DensityLikelihood
from pmbnn.models.priors import Hierarchical
from pmbnn.spec import Specification

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
    """A likelihood of numbers: the network's first output is the mean, the noise has a scale.

    The scale is known; or the variable ``noise``, learned under a hyperprior or maximised; or a
    function of the inputs, by a second output. Several targets are independent given the network,
    whose first outputs are their means, and each target has its own scale.
    """

    takes_several: ClassVar[bool] = True

    scale_field: ClassVar[str]
    """Name of the field that has the scale."""

    @property
    def scale_of_noise(self) -> "float | tuple[float, ...] | Specification":
        """The scale where it is known, or one per target; otherwise its hyperprior."""
        return getattr(self, self.scale_field)

    @model_validator(mode="after")
    def _one_noise(self):
        name = self.scale_field
        for field in ("per", "centred") if self.is_learned else ():
            value = getattr(self.scale_of_noise, field)
            if value != type(self.scale_of_noise).model_fields[field].default:
                raise ValueError(
                    f"must leave out `{name}.{field}`: there is one standard deviation, of no "
                    f"layer, got {value}"
                )
        return self

    @property
    def is_known(self) -> bool:
        """Whether the scale is given as a number, or a number for each target."""
        return not isinstance(self.scale_of_noise, Specification)

    @property
    def is_learned(self) -> bool:
        """Whether the scale is one number a target, learned under a hyperprior."""
        return isinstance(self.scale_of_noise, Hierarchical)

    def rule_of_known(self, n_targets: int) -> str | None:
        """What the known scale must be for this number of targets; None if it is right."""
        scale = self.scale_of_noise
        if not isinstance(scale, tuple) or len(scale) == n_targets > 1:
            return None
        several = f", or {n_targets} of them, one for each target" if n_targets > 1 else ""
        return f"must be a number{several}"

    def outputs(self, classes):
        """The mean of each target; and the scales, where those depend on the inputs."""
        if not isinstance(self.scale_of_noise, Heteroscedastic):
            return tuple(classes) or (NUMBER,)
        return (*classes, *(f"{NOISE}_{name}" for name in classes)) or (NUMBER, NOISE)

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
        scale = self.scale_of_noise
        if self.is_known:
            # The graph depends on the number of known scales, not on their values.
            structure = ["known"] * len(scale) if isinstance(scale, tuple) else "known"
        elif self.is_learned:
            structure = dict(scale.structure)
        else:
            structure = scale.model_dump(mode="json")
        return {"kind": self.kind, self.scale_field: structure}

    def _mean_and_scale(self, outputs, data) -> "tuple[TensorVariable, TensorVariable]":
        """Mean and scale of the noise of the current model, ``(observation,)`` or scalars.

        With several targets ``(observation, target)``, or scales ``(target,)``.
        """
        import pymc as pm
        import pytensor.tensor as pt

        from pmbnn.models.point import positive_point

        dims, scale = target_dims(data), self.scale_of_noise
        depends_on_inputs = isinstance(scale, Heteroscedastic)
        n_targets = len(pm.modelcontext(None).coords[TARGET_NAME]) if dims else 1
        parts = pt.split(outputs, [n_targets] * 2, axis=1) if depends_on_inputs else [outputs]
        # Flattened or split: PyMC would carry an index into the product that the output comes
        # from, where estimators look for whole matrices of weights.
        mean, *rest = parts if dims else [part.flatten() for part in parts]
        if depends_on_inputs:
            return mean, scale.scale(rest[0])
        if self.is_known:
            return mean, data[f"{NOISE}_{self.scale_field}"]
        if self.is_point:
            return mean, positive_point(NOISE, dims)
        constants = {name: data[f"{NOISE}_{name}"] for name in scale.constants}
        return mean, scale.learned(NOISE, f"{NOISE}_variance", constants, dims)

    def by_target(self, parameters):  # noqa: D102
        shape = parameters["mu"].shape
        if len(shape) == 2:
            return [parameters]
        # Arrays that all targets share have a last axis of length 1.
        return [
            {name: array[..., min(i, array.shape[-1] - 1)] for name, array in parameters.items()}
            for i in range(shape[2])
        ]


def target_dims(data: Mapping[str, "TensorVariable"]) -> tuple[str, ...]:
    """Dims of a variable with one value per target of the current model; none with one target."""
    return (TARGET_NAME,) if data["target"].type.ndim > 1 else ()


def shaped(parameter: "TensorVariable", mean: "TensorVariable") -> "TensorVariable":
    """A parameter that broadcasts with the mean; with one target without the axis PyMC adds."""
    import pytensor.tensor as pt

    return pt.squeeze(parameter) if mean.type.ndim == 1 else parameter
