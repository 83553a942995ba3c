"""Base classes of likelihoods: what they observe, their parameters, the kind of predictions."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from pmbnn.models.likelihoods.components import Components
from pmbnn.spec import Specification

if TYPE_CHECKING:
    import numpy as np
    from pytensor.tensor import TensorVariable

NUMBER = "y"
"""Name of the network output that is the mean of a single numeric target."""

TARGET_NAME = "target_name"
"""Dim of variables with one value per target; its coordinates are the names of the targets."""


class Likelihood(Specification, ABC):
    """A likelihood as an experiment file names it.

    It defines the observed variable, the parameters that predictions need, and the kind of
    predictions. Subclasses are for class labels (`ClassLikelihood`), for numbers
    (`DensityLikelihood`), or define another kind of prediction.
    """

    kind: str

    task: ClassVar[str]
    """``classification`` or ``regression``, as data sets name it."""

    predictive: ClassVar[str]
    """Kind of its predictions: a key of `pmbnn.prediction.PREDICTIVES`."""

    takes_several: ClassVar[bool] = False
    """Whether it takes several targets per row, ``(observation, target)``."""

    @classmethod
    def takes(cls, n_classes: int | None) -> bool:
        """Whether it is for labels of this number of classes, or for numbers if that is None."""
        return ("regression" if n_classes is None else "classification") == cls.task

    @classmethod
    def observes(cls, n_classes: int | None, n_targets: int) -> bool:
        """Whether it is for this number of targets per row, of the type that `takes` checks."""
        return cls.takes(n_classes) and (cls.takes_several or n_targets == 1)

    def outputs(self, classes: Sequence) -> tuple:
        """Names of the outputs that a network must have, from the names of the classes.

        One for each class, or for each of several targets by their names; for a single numeric
        target, which has no name, its mean.
        """
        return tuple(classes) or (NUMBER,)

    def n_outputs(self, n_classes: int | None, n_targets: int = 1) -> int:
        """Number of outputs that a network must have; `n_classes` is None for numbers."""
        return len(self.outputs(range(n_classes or (n_targets if n_targets > 1 else 0))))

    is_point: ClassVar[bool] = False
    """Whether some of its parameters are point parameters, which are maximised."""

    @property
    def constants(self) -> Mapping[str, float]:
        """Names and values of the constants that a model holds as data."""
        return {}

    @property
    def n_free(self) -> int:
        """Number of free scalars per target."""
        return 0

    @property
    def structure(self) -> Mapping[str, object]:
        """Everything but the constants: what decides the shape of the model's graph."""
        return self.model_dump(mode="json")

    @abstractmethod
    def observe(
        self, name: str, outputs: "TensorVariable", data: Mapping[str, "TensorVariable"]
    ) -> "TensorVariable":
        """Observed variable ``name`` of the current model, with dims ``("observation",)``.

        Parameters
        ----------
        outputs
            Outputs of the network, ``(observation, output)``.
        data
            ``target``, ``(observation,)``, and the constants by name. With several targets,
            ``target`` and the observed variable are ``(observation, target)``; the last dim is
            `TARGET_NAME`.
        """

    @abstractmethod
    def parameters(self, observed: "TensorVariable") -> "dict[str, TensorVariable]":
        """Parameters of the observed variable that predictions need, as graphs by name.

        Scalars, or with observations on the first axis.

        Raises
        ------
        ValueError
            If the variable was observed under another likelihood.
        """

    @abstractmethod
    def sample(
        self, parameters: "Mapping[str, np.ndarray]", rng: "np.random.Generator"
    ) -> "np.ndarray":
        """Targets drawn at draws of the parameters, ``(draw, observation)``.

        Parameters
        ----------
        parameters
            By name, ``(draw, observation, ...)``; scalars are ``(draw, 1)``.
        """


class ClassLikelihood(Likelihood):
    """A likelihood of class labels, whose one parameter is ``probability``."""

    task: ClassVar[str] = "classification"
    predictive: ClassVar[str] = "class_probabilities"

    def sample(self, parameters, rng):  # noqa: D102
        p = parameters["probability"]
        uniform = rng.random(p.shape[:-1])[..., None]
        return (p.cumsum(axis=-1)[..., :-1] < uniform).sum(axis=-1).astype("i1")


class DensityLikelihood(Likelihood):
    """A likelihood of numbers with a density."""

    task: ClassVar[str] = "regression"
    predictive: ClassVar[str] = "density"

    @abstractmethod
    def components(self, parameters: "Mapping[str, np.ndarray]") -> Components:
        """Distributions of the target at draws of the parameters; arrays as in `sample`."""

    def by_target(self, parameters: "Mapping[str, np.ndarray]") -> "list[Mapping[str, np.ndarray]]":
        """Parameters of each target; the only entry is `parameters` if there is one target."""
        return [parameters]

    def sample(self, parameters, rng):  # noqa: D102
        return self.components(parameters).rvs(random_state=rng).astype("f4")


def distribution_parameters(
    observed: "TensorVariable", distribution: type, kind: str
) -> "list[TensorVariable]":
    """Parameters of an observed variable, as PyMC orders them.

    Raises
    ------
    ValueError
        If it is drawn from another distribution.
    """
    node = observed.owner
    if not isinstance(node.op, type(distribution.rv_op)):
        raise ValueError(
            f"`likelihood` must be that of the model, whose `{observed.name}` is drawn from "
            f"`{node.op.name}`, got `{kind}`."
        )
    return node.op.dist_params(node)
