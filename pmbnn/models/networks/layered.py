"""Networks whose layers an experiment file lists."""

from typing import Annotated, Literal

from pydantic import Field

from pmbnn.models.networks.base import ShapeError
from pmbnn.models.networks.composed import Composed
from pmbnn.models.networks.layers import AnyLayer


class Layered(Composed):
    """The given layers one after the other, and a linear layer of outputs at their end."""

    kind: Literal["layers"] = "layers"
    layers: Annotated[tuple[AnyLayer, ...], Field(max_length=100)]

    @property
    def composition(self):  # noqa: D102
        return self.layers

    def _error(self, index, problem):
        return ShapeError(problem, "layers", index)
