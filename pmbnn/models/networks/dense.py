"""Fully connected networks; an image is a vector of features."""

import math
from typing import Annotated, Literal

from pydantic import Field

from pmbnn.models.networks.activations import Nonlinear
from pmbnn.models.networks.base import Width
from pmbnn.models.networks.composed import Composed
from pmbnn.models.networks.layers import DenseLayer


class Dense(Composed):
    """Fully connected layers with one activation between them and a linear last layer."""

    kind: Literal["dense"] = "dense"
    hidden: Annotated[tuple[Width, ...], Field(max_length=100)] = (5, 5)
    activation: Nonlinear = "tanh"

    @property
    def composition(self):  # noqa: D102
        # Not validated again, as the plan of an experiment asks thousands of times.
        layer = DenseLayer.model_construct
        return tuple(layer(units=units, activation=self.activation) for units in self.hidden)

    def parameters(self, input_shape, n_outputs):  # noqa: D102
        return super().parameters((math.prod(input_shape),), n_outputs)

    def forward(self, x, values, input_shape):  # noqa: D102
        return super().forward(x, values, (math.prod(input_shape),))
