"""Networks that are a sequence of layers, and the network whose layers an experiment file lists."""

from typing import Annotated, Literal

from pydantic import Field

from pmbnn.models.networks.base import Network, ShapeError
from pmbnn.models.networks.layers import (
    AnyLayer,
    Layer,
    Signal,
    dense_forward,
    dense_parameters,
    shape_text,
)


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
    """The given layers one after the other, and a linear layer of outputs at their end."""

    kind: Literal["layers"] = "layers"
    layers: Annotated[tuple[AnyLayer, ...], Field(max_length=100)]

    @property
    def composition(self):  # noqa: D102
        return self.layers

    def _error(self, index, problem):
        return ShapeError(problem, "layers", index)
