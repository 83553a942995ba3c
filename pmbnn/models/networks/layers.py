"""Layers, of which networks are composed.

Between layers, images have the axes ``(channel, row, column, observation)`` and features
``(feature, observation)``: observations last, because XLA vectorises over the last axis.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from pmbnn.models.networks.activations import Activation, activate
from pmbnn.models.networks.base import Parameter, Width
from pmbnn.models.networks.convolution import (
    Padding,
    average_pool,
    convolve,
    max_pool,
    positions,
)
from pmbnn.spec import Specification, added

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable

Size = Annotated[int, Field(ge=1, le=1000)]


class Signal(NamedTuple):
    """The output of one layer, which is the input of the next.

    Attributes
    ----------
    shape
        Of one observation: ``(channel, row, column)`` or ``(feature,)``.
    dim
        Name of its first axis in the model.
    layers
        Number of layers with weights before it.
    is_input
        Whether it is the unchanged input of the network.
    """

    shape: tuple[int, ...]
    dim: str
    layers: int = 0
    is_input: bool = False

    @property
    def is_flat(self) -> bool:
        """Whether it consists of features, not images."""
        return len(self.shape) == 1


class Layer(Specification):
    """A layer as an experiment file names it."""

    kind: str

    @property
    def title(self) -> str:
        """Name with the settings that matter, for messages: ``convolution, 5 × 5``."""
        return self.kind

    def misfit(self, signal: Signal) -> str | None:
        """Why the layer cannot take a signal, as text that follows its name; None if it can."""
        return None

    def output(self, signal: Signal) -> Signal:
        """Output of the layer for a signal that fits."""
        raise NotImplementedError

    def parameters(self, signal: Signal) -> tuple[Parameter, ...]:
        """Weights and biases of the layer for a signal."""
        return ()

    def forward(
        self, values: "TensorVariable", signal: Signal, weights: Mapping[str, "TensorVariable"]
    ) -> "TensorVariable":
        """Values after the layer, from the values and the signal before it."""
        raise NotImplementedError


class Convolution(Layer):
    """Cross-correlation with ``filters`` square kernels, a bias each, and an activation.

    ``padding`` is ``valid``, kernels within the image only; or ``same``, the same number of zeros
    on every side. ``stride`` is the number of pixels between neighbouring positions of a kernel.
    """

    kind: Literal["convolution"] = "convolution"
    filters: Width
    size: Size
    padding: Padding = "valid"
    activation: Activation = "tanh"
    stride: Size = added(1)

    @model_validator(mode="after")
    def _centred(self):
        if self.padding == "same" and self.size % 2 == 0:
            raise ValueError(f"must have an odd `size` with `padding` same, got {self.size}")
        return self

    @property
    def title(self):  # noqa: D102
        moves = f", stride {self.stride}" if self.stride > 1 else ""
        return f"convolution, {self.size} × {self.size}{moves}"

    def misfit(self, signal):  # noqa: D102
        return _image_misfit(signal, 1 if self.padding == "same" else self.size)

    def output(self, signal):  # noqa: D102
        around = self.size - 1 if self.padding == "same" else 0
        sides = (positions(n + around, self.size, self.stride) for n in signal.shape[1:])
        number = signal.layers + 1
        return Signal((self.filters, *sides), f"channel_{number}", number)

    def parameters(self, signal):  # noqa: D102
        channels, number = signal.shape[0], signal.layers + 1
        _, *sides = self.output(signal).shape
        kernel = (f"kernel_row_{number}", f"kernel_column_{number}")
        return _weight_and_bias(
            number,
            (signal.dim, *kernel, f"channel_{number}"),
            (channels, self.size, self.size, self.filters),
            math.prod(sides),
        )

    def forward(self, values, signal, weights):  # noqa: D102
        number = signal.layers + 1
        kernels, bias = weights[f"weight_{number}"], weights[f"bias_{number}"]
        options = (self.size, self.padding, bias, self.filters, self.stride)
        maps = convolve(values, kernels, signal.shape, *options)
        return activate(maps, self.activation)


class Pool(Layer):
    """One number per square of pixels; rows and columns that fill no square are dropped."""

    size: Size = 2

    @property
    def title(self):  # noqa: D102
        return f"{self.kind}, {self.size} × {self.size}"

    def misfit(self, signal):  # noqa: D102
        return _image_misfit(signal, self.size)

    def output(self, signal):  # noqa: D102
        channels, rows, columns = signal.shape
        shape = (channels, rows // self.size, columns // self.size)
        return signal._replace(shape=shape, is_input=False)


class MaxPool(Pool):
    """Maxima over adjacent squares; rows and columns that fill no square are dropped."""

    kind: Literal["max_pool"] = "max_pool"

    def forward(self, values, signal, weights):  # noqa: D102
        return max_pool(values, signal.shape, self.size)


class AveragePool(Pool):
    """Means over adjacent squares; rows and columns that fill no square are dropped."""

    kind: Literal["average_pool"] = "average_pool"

    def forward(self, values, signal, weights):  # noqa: D102
        return average_pool(values, signal.shape, self.size)


class GlobalAveragePool(Layer):
    """The mean of each channel over all of an image, as a feature."""

    kind: Literal["global_average_pool"] = "global_average_pool"

    def misfit(self, signal):  # noqa: D102
        return _image_misfit(signal, 1)

    def output(self, signal):  # noqa: D102
        return Signal(signal.shape[:1], signal.dim, signal.layers)

    def forward(self, values, signal, weights):  # noqa: D102
        return values.sum(axis=(1, 2)) / math.prod(signal.shape[1:])


class Flatten(Layer):
    """Images as features: the columns vary fastest, the channels slowest.

    That is the order of the features of an image in the data. Features are unchanged, so that one
    network takes points and images.
    """

    kind: Literal["flatten"] = "flatten"

    def output(self, signal):  # noqa: D102
        if signal.is_flat:
            return signal
        dim = "feature" if signal.is_input else f"flat_{signal.layers}"
        return Signal((math.prod(signal.shape),), dim, signal.layers)

    def forward(self, values, signal, weights):  # noqa: D102
        if signal.is_flat:
            return values
        return values.reshape((math.prod(signal.shape), values.shape[-1]))


class DenseLayer(Layer):
    """Fully connected units with an activation, on features."""

    kind: Literal["dense"] = "dense"
    units: Width
    activation: Activation = "tanh"

    @property
    def title(self):  # noqa: D102
        return f"dense, {self.units} units"

    def misfit(self, signal):  # noqa: D102
        if signal.is_flat:
            return None
        return (
            f"takes features, not its input of {shape_text(signal.shape)}: put `flatten` before it"
        )

    def output(self, signal):  # noqa: D102
        number = signal.layers + 1
        return Signal((self.units,), f"hidden_{number}", number)

    def parameters(self, signal):  # noqa: D102
        return dense_parameters(signal, self.units, f"hidden_{signal.layers + 1}")

    def forward(self, values, signal, weights):  # noqa: D102
        return activate(dense_forward(values, signal, weights), self.activation)


AnyLayer = Annotated[
    Convolution | MaxPool | AveragePool | GlobalAveragePool | Flatten | DenseLayer,
    Field(discriminator="kind"),
]


def dense_parameters(signal: Signal, units: int, dim: str) -> tuple[Parameter, ...]:
    """Weights and biases of units on a flat signal; `dim` names the units."""
    return _weight_and_bias(signal.layers + 1, (signal.dim, dim), (*signal.shape, units))


def dense_forward(
    values: "TensorVariable", signal: Signal, weights: Mapping[str, "TensorVariable"]
) -> "TensorVariable":
    """Outputs of linear units, ``(unit, observation)``."""
    number = signal.layers + 1
    return weights[f"weight_{number}"].T @ values + weights[f"bias_{number}"][:, None]


def _weight_and_bias(number, dims, shape, positions=1) -> tuple[Parameter, ...]:
    fan_in = math.prod(shape[:-1])
    return (
        Parameter(f"weight_{number}", number, dims, shape, fan_in, positions),
        Parameter(f"bias_{number}", number, dims[-1:], shape[-1:], fan_in, positions),
    )


def _image_misfit(signal: Signal, least: int) -> str | None:
    """Why a layer that needs images of at least this size cannot take a signal."""
    if signal.is_flat:
        return f"takes images, not its input of {shape_text(signal.shape)}"
    if min(signal.shape[1:]) < least:
        return f"does not fit its input of {shape_text(signal.shape)}"
    return None


def shape_text(shape: tuple[int, ...]) -> str:
    """Shape of a signal in words: ``32 × 4 × 4``, ``2 features``."""
    return " × ".join(map(str, shape)) if len(shape) > 1 else f"{shape[0]} features"
