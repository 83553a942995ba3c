"""Activations by the name an experiment file calls them."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable

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
