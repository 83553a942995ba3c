"""Fully connected networks; an image is a vector of features."""

import math
from typing import Annotated, Literal

from pydantic import Field

from pmbnn.models.networks.activations import Nonlinear, activate
from pmbnn.models.networks.base import Network, Parameter, Width


class Dense(Network):
    """Fully connected layers with one activation between them and a linear last layer."""

    kind: Literal["dense"] = "dense"
    hidden: Annotated[tuple[Width, ...], Field(max_length=100)] = (5, 5)
    activation: Nonlinear = "tanh"

    def parameters(self, input_shape, n_outputs):  # noqa: D102
        widths = (math.prod(input_shape), *self.hidden, n_outputs)
        names = ("feature", *(f"hidden_{i + 1}" for i in range(len(self.hidden))), "output")
        parameters = []
        for layer in range(1, len(widths)):
            dims, shape = names[layer - 1 : layer + 1], widths[layer - 1 : layer + 1]
            parameters.append(Parameter(f"weight_{layer}", layer, dims, shape, shape[0]))
            parameters.append(Parameter(f"bias_{layer}", layer, dims[1:], shape[1:], shape[0]))
        return tuple(parameters)

    def forward(self, x, values, input_shape):  # noqa: D102
        # Observations on the last axis: XLA vectorises over them, while a matrix that is only
        # a few units wide makes the product the other way round five times slower.
        hidden = x.T
        for layer in range(1, len(self.hidden) + 2):
            if layer > 1:
                hidden = activate(hidden, self.activation)
            hidden = values[f"weight_{layer}"].T @ hidden + values[f"bias_{layer}"][:, None]
        return hidden.T
