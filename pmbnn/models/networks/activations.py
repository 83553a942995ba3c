"""Activations by their names in experiment files, and their slopes."""

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
