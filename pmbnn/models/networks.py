"""Networks: which parameters they have, and the forward pass in PyTensor."""

import math
from typing import Annotated, Literal

from pydantic import Field

from pmbnn.core.spec import registry
from pmbnn.models.layers import (
    Activation,
    AnyLayer,
    AveragePool,
    Convolution,
    DenseLayer,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    Network,
    Nonlinear,
    Parameter,
    ShapeError,
    Signal,
    Width,
    dense_forward,
    dense_parameters,
    shape_text,
)

# Networks that are a sequence of layers, and the network whose layers an experiment file lists


class Composed(Network):
    """Layers one after the other, and a linear layer of outputs at their end."""

    @property
    def composition(self) -> tuple[Layer, ...]:
        """The layers, without that of the outputs."""
        raise NotImplementedError

    def parameters(self, input_shape, n_outputs):  # noqa: D102
        *before, last = self._signals(input_shape)
        hidden = [
            parameter
            for layer, signal in zip(self.composition, before, strict=True)
            for parameter in layer.parameters(signal)
        ]
        return (*hidden, *dense_parameters(last, n_outputs, "output"))

    def forward(self, x, values, input_shape):  # noqa: D102
        *before, last = self._signals(input_shape)
        # Observations on the last axis: XLA vectorises over them, while a matrix that is only a few
        # units wide makes the product the other way round five times slower.
        hidden = x.T
        if len(input_shape) > 1:
            hidden = hidden.reshape((*input_shape, x.shape[0]))
        for layer, signal in zip(self.composition, before, strict=True):
            hidden = layer.forward(hidden, signal, values)
        return dense_forward(hidden, last, values).T

    def _signals(self, input_shape: tuple[int, ...]) -> list[Signal]:
        """Input of each layer, and of the layer of outputs last."""
        dim = "feature" if len(input_shape) == 1 else "channel"
        signals = [Signal(input_shape, dim, is_input=True)]
        for index, layer in enumerate(self.composition):
            problem = layer.misfit(signals[-1])
            if problem is not None:
                raise self._error(index, f"({layer.title}) {problem}")
            signals.append(layer.output(signals[-1]))
        if not signals[-1].is_flat:
            shape = shape_text(signals[-1].shape)
            problem = f"must end with features, not with {shape}: put `flatten` last"
            raise self._error(None, problem)
        return signals

    def _error(self, index: int | None, problem: str) -> ShapeError:
        """Error of one layer, or of the whole network if `index` is None."""
        raise NotImplementedError


class Layered(Composed):
    """The given layers one after the other, and a linear layer of outputs at their end.

    Parameters
    ----------
    layers
        The layers in order, without that of the outputs, as a list of lists. Each is a name or a
        mapping such as ``{kind: convolution, filters: 32, size: 5}``.
    """

    kind: Literal["layers"] = "layers"
    layers: Annotated[tuple[AnyLayer, ...], Field(max_length=100)]

    @property
    def composition(self):  # noqa: D102
        return self.layers

    def _error(self, index, problem):
        return ShapeError(problem, "layers", index)


# Fully connected networks; an image is a vector of features


class Dense(Composed):
    """Fully connected layers with one activation between them and a linear last layer.

    Parameters
    ----------
    hidden
        Number of units of each hidden layer, as a list of lists: ``[[50, 50], [20]]`` are two
        networks, ``[[]]`` is a linear model.
    activation
        Activation function of the hidden layers.
    """

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


class Known(Composed):
    """A network whose layers follow from its name."""

    def _error(self, index, problem):
        return ShapeError(f"({self.kind}): its layer {index + 1} {problem}")


class ReportConv(Known):
    """Two convolutions of 32 filters with pooling, then 64 units.

    The network of the report whose experiments this project repeats.

    Parameters
    ----------
    activation
        Activation function of the convolutions and of the 64 units.
    """

    kind: Literal["report_conv"] = "report_conv"
    activation: Activation = "tanh"

    @property
    def composition(self):  # noqa: D102
        convolution = Convolution(filters=32, size=5, activation=self.activation)
        return (
            convolution,
            MaxPool(),
            convolution,
            MaxPool(),
            Flatten(),
            DenseLayer(units=64, activation=self.activation),
        )


class Lenet5(Known):
    """LeNet-5 as it is built today: padded convolutions, maxima and rectified units.

    Parameters
    ----------
    activation
        Activation function of the convolutions and of the 84 units.

    References
    ----------
    LeCun, Bottou, Bengio and Haffner (1998), Gradient-Based Learning Applied to Document
    Recognition, section II.B, for the numbers of filters and units.
    """

    kind: Literal["lenet5"] = "lenet5"
    activation: Activation = "relu"

    @property
    def composition(self):  # noqa: D102
        return (
            self._convolution(6),
            MaxPool(),
            self._convolution(16),
            MaxPool(),
            self._convolution(120),
            Flatten(),
            DenseLayer(units=84, activation=self.activation),
        )

    def _convolution(self, filters: int) -> Convolution:
        return Convolution(filters=filters, size=5, padding="same", activation=self.activation)


NETWORKS: dict[str, type[Network]] = registry(Dense, Layered, ReportConv, Lenet5)

__all__ = [
    "NETWORKS",
    "AveragePool",
    "Convolution",
    "Dense",
    "DenseLayer",
    "Flatten",
    "GlobalAveragePool",
    "Layer",
    "Layered",
    "Lenet5",
    "MaxPool",
    "Network",
    "Parameter",
    "ReportConv",
    "ShapeError",
]
