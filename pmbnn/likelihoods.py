"""Likelihoods: how the outputs of a network turn into the distribution of what is observed."""

from typing import TYPE_CHECKING, Literal

from pmbnn.specification import Specification, registry

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable


class Likelihood(Specification):
    """A likelihood as an experiment file names it."""

    kind: str

    def observe(
        self, name: str, outputs: "TensorVariable", target: "TensorVariable"
    ) -> "TensorVariable":
        """Observed variable ``name`` of the current model, with dims ``("observation",)``."""
        raise NotImplementedError


class Categorical(Likelihood):
    """Class labels; the class probabilities are the softmax of the outputs."""

    kind: Literal["categorical"] = "categorical"

    def observe(self, name, outputs, target):  # noqa: D102
        import pymc as pm
        import pytensor.tensor as pt

        probabilities = pt.special.softmax(outputs, axis=-1)
        return pm.Categorical(name, p=probabilities, observed=target, dims="observation")


LIKELIHOODS: dict[str, type[Likelihood]] = registry(Categorical)
