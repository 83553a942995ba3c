"""Likelihoods: how the outputs of a network turn into the distribution of what is observed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import model_validator

from pmbnn.priors import HalfCauchy, HalfNormal, InverseGamma
from pmbnn.specification import Positive, Specification, registry

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable

NOISE = "noise"
"""Name of a learned standard deviation of the noise, and start of the names of its constants."""


class Likelihood(Specification):
    """A likelihood as an experiment file names it."""

    kind: str

    is_of_numbers: ClassVar[bool] = False
    """Whether what is observed are numbers, and not classes."""

    @property
    def constants(self) -> Mapping[str, float]:
        """Names and values of the constants that a model holds as data."""
        return {}

    @property
    def n_free(self) -> int:
        """Number of free scalars."""
        return 0

    @property
    def structure(self) -> Mapping[str, object]:
        """Everything but the constants: what decides the shape of the model's graph."""
        return self.model_dump(mode="json")

    def observe(
        self, name: str, outputs: "TensorVariable", data: Mapping[str, "TensorVariable"]
    ) -> "TensorVariable":
        """Observed variable ``name`` of the current model, with dims ``("observation",)``.

        Parameters
        ----------
        outputs
            Of the network, ``(observation, output)``.
        data
            ``target``, ``(observation,)``, and the constants by name.
        """
        raise NotImplementedError


class Categorical(Likelihood):
    """Class labels; the class probabilities are the softmax of the outputs."""

    kind: Literal["categorical"] = "categorical"

    def observe(self, name, outputs, data):  # noqa: D102
        import pymc as pm
        import pytensor.tensor as pt

        probabilities = pt.special.softmax(outputs, axis=-1)
        return pm.Categorical(name, p=probabilities, observed=data["target"], dims="observation")


class Normal(Likelihood):
    """Numbers: the network's one output plus Gaussian noise, the same everywhere.

    Parameters
    ----------
    sd
        Standard deviation of the noise, in the units of the targets: a number where it is
        known, or the hyperprior it is learned under. Learned, it is the variable ``noise``. The
        default is half-Cauchy, as Gelman (2006), Prior distributions for variance parameters,
        section 7, has it for a scale of which little is known. A mean-field guide pays dearly
        for each weight of a wide network, and may put down to noise what such a network could
        explain: where the noise is known, say so.
    """

    kind: Literal["normal"] = "normal"
    sd: Positive | HalfNormal | HalfCauchy | InverseGamma = HalfCauchy()

    is_of_numbers: ClassVar[bool] = True

    @model_validator(mode="after")
    def _one_noise(self):
        for name in ("per", "centred") if self.is_learned else ():
            if getattr(self.sd, name) != type(self.sd).model_fields[name].default:
                raise ValueError(
                    f"must leave out `sd.{name}`: there is one standard deviation, of no layer, "
                    f"got {getattr(self.sd, name)}"
                )
        return self

    @property
    def is_learned(self) -> bool:
        """Whether the standard deviation is learned."""
        return isinstance(self.sd, Specification)

    @property
    def constants(self) -> Mapping[str, float]:  # noqa: D102
        if not self.is_learned:
            return {f"{NOISE}_sd": self.sd}
        return {f"{NOISE}_{name}": value for name, value in self.sd.constants.items()}

    @property
    def n_free(self) -> int:  # noqa: D102
        return int(self.is_learned)

    @property
    def structure(self) -> Mapping[str, object]:  # noqa: D102
        return {"kind": self.kind, "sd": dict(self.sd.structure) if self.is_learned else "known"}

    def observe(self, name, outputs, data):  # noqa: D102
        import pymc as pm

        sd = self._learned(data) if self.is_learned else data[f"{NOISE}_sd"]
        # Flattened: PyMC would carry an index into the product that the output comes from, where
        # estimators look for whole matrices of weights.
        mu = outputs.flatten()
        return pm.Normal(name, mu, sd, observed=data["target"], dims="observation")

    def _learned(self, data) -> "TensorVariable":
        import pymc as pm
        import pytensor.tensor as pt

        constants = {name: data[f"{NOISE}_{name}"] for name in self.sd.constants}
        if self.sd.on == "scale":
            return self.sd.variable(NOISE, constants, ())
        return pm.Deterministic(
            NOISE, pt.sqrt(self.sd.variable(f"{NOISE}_variance", constants, ()))
        )


LIKELIHOODS: dict[str, type[Likelihood]] = registry(Categorical, Normal)
