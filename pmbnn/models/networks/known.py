"""Convolutional networks with a name of their own in experiment files."""

from typing import Literal

from pmbnn.models.networks.activations import Activation
from pmbnn.models.networks.base import ShapeError
from pmbnn.models.networks.composed import Composed
from pmbnn.models.networks.layers import Convolution, DenseLayer, Flatten, MaxPool


class Known(Composed):
    """A network whose layers follow from its name."""

    def _error(self, index, problem):
        return ShapeError(f"({self.kind}): its layer {index + 1} {problem}")


class ReportConv(Known):
    """Two convolutions of 32 filters with pooling, then 64 units.

    The network of the report whose experiments this project repeats.
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
