"""Layers, of which networks are composed.

Between layers, images have the axes ``(channel, row, column, observation)`` and features
``(feature, observation)``: observations last, because XLA vectorises over the last axis.
"""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from pmbnn.core.spec import Specification, added

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable


# What every network has: parameters, their number, and a forward pass


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


def units_of_layers(parameters: Iterable[Parameter]) -> list[int]:
    """Number of units of each layer that has weights, first layer first."""
    return list({p.layer: p.shape[-1] for p in parameters}.values())


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


# Activations by their names in experiment files, and their slopes


Nonlinear = Literal["tanh", "relu", "sigmoid"]
Activation = Literal["tanh", "relu", "sigmoid", "linear"]


def activate(values: "TensorVariable", activation: Activation) -> "TensorVariable":
    """The activation of every element."""
    import pytensor.tensor as pt

    if activation == "linear":
        return values
    if activation == "relu":
        return pt.maximum(values, 0.0)
    return {"tanh": pt.tanh, "sigmoid": pt.sigmoid}[activation](values)


def relative_slopes(outputs: "TensorVariable") -> "list[TensorVariable]":
    """Slope of each activation in the graph of outputs, relative to its steepest slope.

    Elementwise, in the shape of the hidden units: for tanh and sigmoid 1 at zero and near 0 where
    they saturate; for rectified units 1 where they are on and 0 where they are off.

    Parameters
    ----------
    outputs
        Outputs of a network's `forward`. Only the operations of `activate` are recognised.
    """
    from pytensor.graph.traversal import ancestors
    from pytensor.scalar import Maximum, Sigmoid, Tanh
    from pytensor.tensor.elemwise import Elemwise

    forms = {
        Tanh: lambda value: 1 - value**2,
        Sigmoid: lambda value: 4 * value * (1 - value),
        Maximum: lambda value: (value > 0).astype(value.dtype),
    }
    slopes = []
    for v in ancestors([outputs]):
        op = None if v.owner is None else v.owner.op
        form = forms.get(type(op.scalar_op)) if isinstance(op, Elemwise) else None
        if form is not None:
            slopes.append(form(v))
    return slopes


# Convolution and pooling in PyTensor, in the form that XLA runs fast on a CPU
#
# Images have the axes ``(channel, row, column, observation)``: observations last, because XLA
# vectorises over the last axis. A convolution is a product of its kernels with patches: XLA's own
# is many times slower inside a loop (jax issue 12868), as are its gradients.


Padding = Literal["valid", "same"]


def convolve(
    images: "TensorVariable",
    kernels: "TensorVariable",
    shape: tuple[int, int, int],
    size: int,
    padding: Padding = "valid",
    bias: "TensorVariable | None" = None,
    units: int = -1,
    stride: int = 1,
) -> "TensorVariable":
    """Cross-correlation of images with kernels, ``(output channel, row, column, observation)``.

    Parameters
    ----------
    images
        ``(input channel, row, column, observation)``.
    kernels
        ``(input channel, size, size, output channel)``.
    shape
        Channels, rows and columns of `images`: known numbers, which slices need.
    size
        Rows and columns of a kernel; odd with padding ``same``.
    padding
        ``valid``, kernels within the image only; or ``same``, zeros around it.
    bias
        Added at every position, ``(output channel,)``.
    units
        Number of output channels; JAX needs it for gradients where the type of `kernels` does
        not tell.
    stride
        Rows and columns between neighbouring positions of a kernel.
    """
    import pytensor.tensor as pt

    channels, rows, columns = shape
    observations = images.shape[-1]
    if padding == "same":
        reach, inner = size // 2, images
        rows, columns = rows + 2 * reach, columns + 2 * reach
        images = pt.zeros((channels, rows, columns, observations))
        images = images[:, reach:-reach, reach:-reach].set(inner) if reach else inner
    rows, columns = (positions(length, size, stride) for length in (rows, columns))
    steps = None if stride == 1 else stride

    def every(start: int, number: int) -> slice:
        return slice(start, start + (number - 1) * stride + 1, steps)

    windows = [
        images[:, every(i, rows), every(j, columns), :] for i in range(size) for j in range(size)
    ]
    patches = pt.stack(windows, axis=1).reshape((channels * size**2, -1))
    flat = kernels.reshape((channels * size**2, -1))
    maps = flat.T @ patches
    if bias is not None:
        # Next to the product, where estimators that rewrite products find it.
        maps = maps + bias[:, None]
    return maps.reshape((units, rows, columns, observations))


def positions(length: int, size: int, stride: int) -> int:
    """Number of positions of a kernel along an axis of `length` pixels, padding included."""
    return (length - size) // stride + 1


def max_pool(images: "TensorVariable", shape: tuple[int, int, int], size: int) -> "TensorVariable":
    """Maxima over squares that do not overlap; rows and columns left over are dropped.

    Parameters
    ----------
    images
        ``(channel, row, column, observation)``.
    shape
        Channels, rows and columns of `images`.
    size
        Rows and columns of a square.
    """
    return _squares(images, shape, size).max(axis=(2, 4))


def average_pool(
    images: "TensorVariable", shape: tuple[int, int, int], size: int
) -> "TensorVariable":
    """Means over squares that do not overlap; arguments and what is dropped as `max_pool`."""
    return _squares(images, shape, size).sum(axis=(2, 4)) / size**2


def _squares(images, shape: tuple[int, int, int], size: int) -> "TensorVariable":
    """Squares side by side, ``(channel, row, within, column, within, observation)``."""
    channels, rows, columns = (shape[0], shape[1] // size, shape[2] // size)
    whole = images[:, : rows * size, : columns * size, :]
    return whole.reshape((channels, rows, size, columns, size, images.shape[-1]))


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
    """Cross-correlation with square kernels, a bias for each, and an activation.

    Parameters
    ----------
    filters
        Number of kernels, which is the number of channels of the output.
    size
        Height and width of a kernel, in pixels; odd with ``padding: same``.
    padding
        ``valid`` keeps kernels within the image; ``same`` adds the same number of zeros on every
        side, so that the output has the size of the input.
    activation
        Activation function.
    stride
        Number of pixels between neighbouring positions of a kernel.
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
    """One number per square of pixels; rows and columns that fill no square are dropped.

    Parameters
    ----------
    size
        Height and width of a square, in pixels.
    """

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
    """Fully connected units with an activation, on features.

    Parameters
    ----------
    units
        Number of units.
    activation
        Activation function.
    """

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
