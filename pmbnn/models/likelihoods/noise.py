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
    that name too; or a function of the inputs, by a second output. Several targets are independent
    given the network, whose first outputs are their means, and each has a scale of its own.
    """

    takes_several: ClassVar[bool] = True

    scale_field: ClassVar[str]
    """Name of the field that has the scale."""

    @property
    def scale_of_noise(self) -> "float | tuple[float, ...] | Specification":
        """The scale where it is known, or one for each target; else what it is learned by."""
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
        """Whether the scale is given as a number, or a number for each target."""
        return not isinstance(self.scale_of_noise, Specification)

    @property
    def is_learned(self) -> bool:
        """Whether the scale is one number a target, learned under a hyperprior."""
        return isinstance(self.scale_of_noise, Hierarchical)

    def rule_of_known(self, n_targets: int) -> str | None:
        """What the known scale must be for so many targets; None where it is."""
        known = self.scale_of_noise
        if not isinstance(known, tuple) or len(known) == n_targets > 1:
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
        return {"kind": self.kind, self.scale_field: self._structure_of_scale()}

    def _structure_of_scale(self) -> object:
        if self.is_known:
            # How many numbers are known is a matter of the graph, which they are is not.
            known = self.scale_of_noise
            return ["known"] * len(known) if isinstance(known, tuple) else "known"
        if self.is_learned:
            return dict(self.scale_of_noise.structure)
        return self.scale_of_noise.model_dump(mode="json")

    def _mean_and_scale(self, outputs, data) -> "tuple[TensorVariable, TensorVariable]":
        """Mean and scale of the noise of the current model, ``(observation,)`` or scalars.

        Of several targets ``(observation, target)``, or scales ``(target,)``.
        """
        import pytensor.tensor as pt

        from pmbnn.models.point import positive_point

        dims = target_dims(data)
        heads = isinstance(self.scale_of_noise, Heteroscedastic)
        parts = pt.split(outputs, [_n_targets(dims)] * 2, axis=1) if heads else [outputs]
        # Flattened or split: PyMC would carry an index into the product that the output comes
        # from, where estimators look for whole matrices of weights.
        mean, *of_scale = parts if dims else [part.flatten() for part in parts]
        if heads:
            return mean, self.scale_of_noise.scale(of_scale[0])
        if self.is_known:
            return mean, data[f"{NOISE}_{self.scale_field}"]
        if self.is_learned:
            return mean, self._learned(data, dims)
        return mean, positive_point(NOISE, dims)

    def _learned(self, data, dims: tuple[str, ...]) -> "TensorVariable":
        import pymc as pm
        import pytensor.tensor as pt

        hyperprior = self.scale_of_noise
        constants = {name: data[f"{NOISE}_{name}"] for name in hyperprior.constants}
        if hyperprior.on == "scale":
            return hyperprior.variable(NOISE, constants, dims)
        variance = hyperprior.variable(f"{NOISE}_variance", constants, dims)
        return pm.Deterministic(NOISE, pt.sqrt(variance), dims=dims)

    def by_target(self, parameters):  # noqa: D102
        shape = parameters["mu"].shape
        if len(shape) == 2:
            return [parameters]
        # What all targets share has a last axis of length 1.
        return [
            {name: array[..., min(i, array.shape[-1] - 1)] for name, array in parameters.items()}
            for i in range(shape[2])
        ]


def target_dims(data: Mapping[str, "TensorVariable"]) -> tuple[str, ...]:
    """Dims of what there is one of for each target of the current model; none of one target."""
    return (TARGET_NAME,) if data["target"].type.ndim > 1 else ()


def _n_targets(dims: tuple[str, ...]) -> int:
    import pymc as pm

    return len(pm.modelcontext(None).coords[TARGET_NAME]) if dims else 1


def shaped(parameter: "TensorVariable", mean: "TensorVariable") -> "TensorVariable":
    """A parameter beside the mean; a scalar of one target without the axis that PyMC gives it."""
    import pytensor.tensor as pt

    return pt.squeeze(parameter) if mean.type.ndim == 1 else parameter
