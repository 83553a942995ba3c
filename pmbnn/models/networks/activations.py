"""Activations by the name an experiment file calls them, and how steep they are where."""

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
    """Slope of each activation that outputs are made of, as a share of its steepest.

    Elementwise, shaped as the hidden units are: 1 in the middle of tanh and sigmoid, towards 0
    where they are saturated; of a rectified unit 1 where it is on and 0 where it is off.

    Parameters
    ----------
    outputs
        Of a network's `forward`. What it is made of by other operations than `activate`'s is not
        found.
    """
    from pytensor.graph.traversal import ancestors
    from pytensor.scalar import Maximum, Sigmoid, Tanh
    from pytensor.tensor.elemwise import Elemwise

    forms = {
        Tanh: lambda value: 1 - value**2,
        Sigmoid: lambda value: 4 * value * (1 - value),
        Maximum: lambda value: (value > 0).astype(value.dtype),
    }
    found = []
    for v in ancestors([outputs]):
        op = None if v.owner is None else v.owner.op
        form = forms.get(type(op.scalar_op)) if isinstance(op, Elemwise) else None
        if form is not None:
            found.append(form(v))
    return found
