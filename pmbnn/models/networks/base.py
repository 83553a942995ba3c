"""What every network has: parameters, their number, and a forward pass."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, NamedTuple

from pydantic import Field

from pmbnn.spec import Specification

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable

Width = Annotated[int, Field(ge=1, le=100_000)]


class ShapeError(ValueError):
    """A network that cannot be built on inputs of some shape.

    Attributes
    ----------
    problem
        What does not fit, as text that follows the name of the place.
    field, index
        The field of the network that does not fit and the entry in it; None for all of it.
    """

    def __init__(self, problem: str, field: str | None = None, index: int | None = None) -> None:
        super().__init__(problem, field, index)
        self.problem, self.field, self.index = problem, field, index

    def __str__(self) -> str:
        """The problem with its place, as seen from the network."""
        return self.at("network" if self.field is None else f"network.{self.field}") + "."

    def at(self, place: str) -> str:
        """The problem after the place of the field, or of the network, in a file."""
        entry = "" if self.index is None else f"[{self.index}]"
        return f"`{place}{entry}` {self.problem}"


class Parameter(NamedTuple):
    """One array of weights or biases.

    Attributes
    ----------
    name, layer
        ``weight_1`` of layer 1; layers without weights are not counted.
    dims, shape
        The last axis is that of the layer's units.
    fan_in
        Inputs that one unit sums over.
    positions
        Number of places of an observation where it is used: many in a convolution.
    """

    name: str
    layer: int
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    fan_in: int
    positions: int = 1

    @property
    def size(self) -> int:
        """Number of scalar parameters."""
        return math.prod(self.shape)

    @property
    def is_bias(self) -> bool:
        """Whether it holds biases, as its name says."""
        return self.name.startswith("bias_")


class Network(Specification):
    """A network as an experiment file names it.

    An *input shape* is ``(feature,)`` for points and ``(channel, row, column)`` for images.
    Rows of data are flat either way: the features of an image are its pixels, the columns
    fastest and the channels slowest.
    """

    kind: str

    def parameters(self, input_shape: tuple[int, ...], n_outputs: int) -> tuple[Parameter, ...]:
        """Every parameter, first layer first; weights have dims ``(input, ..., unit)``.

        Raises
        ------
        ShapeError
            If the network cannot take inputs of that shape.
        """
        raise NotImplementedError

    def size(self, input_shape: tuple[int, ...], n_outputs: int) -> int:
        """Number of scalar weights and biases."""
        return sum(p.size for p in self.parameters(input_shape, n_outputs))

    def multiply_adds(self, input_shape: tuple[int, ...], n_outputs: int) -> int:
        """Multiplications and additions that one observation takes, counted in pairs."""
        return sum(p.size * p.positions for p in self.parameters(input_shape, n_outputs))

    def forward(
        self,
        x: "TensorVariable",
        values: Mapping[str, "TensorVariable"],
        input_shape: tuple[int, ...],
    ) -> "TensorVariable":
        """Outputs ``(observation, output)`` for inputs ``(observation, feature)``."""
        raise NotImplementedError
