"""Networks: which parameters they have, and the forward pass in PyTensor."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from pmbnn.specification import Specification, registry

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable

Width = Annotated[int, Field(ge=1, le=100_000)]


@dataclass(frozen=True)
class Parameter:
    """One weight matrix or bias vector: its name, layer (from 1), dims, shape and fan-in."""

    name: str
    layer: int
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    fan_in: int

    @property
    def size(self) -> int:
        """Number of scalar parameters."""
        total = 1
        for length in self.shape:
            total *= length
        return total


class Network(Specification):
    """A network as an experiment file names it."""

    kind: str

    def parameters(self, n_features: int, n_outputs: int) -> tuple[Parameter, ...]:
        """Every parameter, first layer first; a matrix has dims ``(input, output)``."""
        raise NotImplementedError

    def size(self, n_features: int, n_outputs: int) -> int:
        """Number of scalar weights and biases."""
        return sum(p.size for p in self.parameters(n_features, n_outputs))

    def forward(
        self, x: "TensorVariable", values: Mapping[str, "TensorVariable"]
    ) -> "TensorVariable":
        """Outputs ``(observation, output)`` for inputs ``(observation, feature)``."""
        raise NotImplementedError


class Dense(Network):
    """Fully connected layers with one activation between them and a linear last layer."""

    kind: Literal["dense"] = "dense"
    hidden: Annotated[tuple[Width, ...], Field(max_length=100)] = (5, 5)
    activation: Literal["tanh", "relu", "sigmoid"] = "tanh"

    def parameters(self, n_features, n_outputs):  # noqa: D102
        widths = (n_features, *self.hidden, n_outputs)
        names = ("feature", *(f"hidden_{i + 1}" for i in range(len(self.hidden))), "output")
        found = []
        for layer in range(1, len(widths)):
            dims, shape = names[layer - 1 : layer + 1], widths[layer - 1 : layer + 1]
            found.append(Parameter(f"weight_{layer}", layer, dims, shape, shape[0]))
            found.append(Parameter(f"bias_{layer}", layer, dims[1:], shape[1:], shape[0]))
        return tuple(found)

    def forward(self, x, values):  # noqa: D102
        import pytensor.tensor as pt

        activation = {"tanh": pt.tanh, "relu": pt.maximum, "sigmoid": pt.sigmoid}[self.activation]
        zero = (0.0,) if self.activation == "relu" else ()
        # Observations on the last axis: XLA vectorises over them, while a matrix that is only
        # a few units wide makes the product the other way round five times slower.
        hidden = x.T
        for layer in range(1, len(self.hidden) + 2):
            if layer > 1:
                hidden = activation(hidden, *zero)
            hidden = values[f"weight_{layer}"].T @ hidden + values[f"bias_{layer}"][:, None]
        return hidden.T


NETWORKS: dict[str, type[Network]] = registry(Dense)
