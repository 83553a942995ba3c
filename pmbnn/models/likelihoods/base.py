"""What every likelihood has in common: what is observed, predicted, and by which kind."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from pmbnn.models.likelihoods.components import Components
from pmbnn.spec import Specification

if TYPE_CHECKING:
    import numpy as np
    from pytensor.tensor import TensorVariable

    from pmbnn.data.arrays import Rows

NUMBER = "y"
"""What a network's output is called that is the mean of a number."""

TARGET_NAME = "target_name"
"""Dim of what there is one of for each of several targets; its coordinates are their names."""


class Likelihood(Specification, ABC):
    """A likelihood as an experiment file names it, which owns its task.

    It says what is observed under it, what its predictions are made of, and what kind they are
    of. A subclass is of classes (`ClassLikelihood`), of numbers (`DensityLikelihood`), or brings
    a kind of prediction of its own.
    """

    kind: str

    task: ClassVar[str]
    """What it observes: ``classes`` or ``numbers``, as data sets name it."""

    predictive: ClassVar[str]
    """Key of the kind of its predictions, one of `pmbnn.prediction.PREDICTIVES`."""

    takes_several: ClassVar[bool] = False
    """Whether it observes several targets a row, as ``(observation, target)``."""

    @classmethod
    def takes(cls, n_classes: int | None) -> bool:
        """Whether it observes labels of so many classes; numbers, of None."""
        return ("regression" if n_classes is None else "classification") == cls.task

    def fits(self, rows: "Rows") -> bool:
        """Whether the rows hold what it observes."""
        return self.observes(rows.n_classes, rows.n_targets)

    @classmethod
    def observes(cls, n_classes: int | None, n_targets: int) -> bool:
        """Whether it observes so many targets a row, of what `takes` says."""
        return cls.takes(n_classes) and (cls.takes_several or n_targets == 1)

    def outputs(self, classes: Sequence) -> tuple:
        """Names of the outputs that a network must have, by those of the classes.

        One for each class, or for each of several targets by their names; for a single number,
        which has neither, its mean.
        """
        return tuple(classes) or (NUMBER,)

    def n_outputs(self, n_classes: int | None, n_targets: int = 1) -> int:
        """Number of the outputs that a network must have; for numbers, of None."""
        return len(self.outputs(range(n_classes or (n_targets if n_targets > 1 else 0))))

    is_point: ClassVar[bool] = False
    """Whether it has parameters that are points, which no guide is spread about."""

    @property
    def constants(self) -> Mapping[str, float]:
        """Names and values of the constants that a model holds as data."""
        return {}

    @property
    def n_free(self) -> int:
        """Number of free scalars, of each target."""
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
            Of the network, ``(observation, output)``.
        data
            ``target``, ``(observation,)``, and the constants by name. Of several targets it is
            ``(observation, target)``, and so is the observed variable, whose last dim is
            `TARGET_NAME`.
        """

    @abstractmethod
    def parameters(self, observed: "TensorVariable") -> "dict[str, TensorVariable]":
        """Graphs by name that predictions are made of, read off the observed variable.

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
            By name, ``(draw, observation, ...)``; ``(draw, 1)`` of scalars.
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
        """Distributions of what is observed, at draws of the parameters; arrays as in `sample`."""

    def by_target(self, parameters: "Mapping[str, np.ndarray]") -> "list[Mapping[str, np.ndarray]]":
        """Parameters of each of several targets alone; of one they are what they are."""
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
