"""A model of this package, built when it is needed."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import pymc as pm

from pmbnn.data.arrays import Rows
from pmbnn.data.standardisation import Standardisation
from pmbnn.models.build import NetworkParts


@dataclass(frozen=True, eq=False, repr=False)
class NetworkModel:
    """A model of this package that is built when it is needed.

    Attributes
    ----------
    parts
        What the model is made of, on at least one of the rows.
    training
        All training rows, or a function that loads them.
    standardisation, target_standardisation
        The maps from inputs and targets in their own units to those of the model.
    """

    parts: NetworkParts
    training: Rows | Callable[[], Rows]
    standardisation: Standardisation
    target_standardisation: Standardisation

    @cached_property
    def graph_model(self) -> pm.Model:
        """The model with the rows of `parts` alone: its variables are the same."""
        return self.parts.build()

    @cached_property
    def model(self) -> pm.Model:
        """The model with all training rows."""
        training = self.training
        return self.parts.build(training() if callable(training) else training)

    def __getstate__(self) -> dict[str, object]:
        """What another process needs, which builds models itself."""
        return {f.name: getattr(self, f.name) for f in fields(self)}
