"""Weights and biases of a network under a prior, as variables of a PyMC model."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pmbnn.models.hyperpriors import Fixed, Hierarchical, Hyperprior
from pmbnn.models.networks import Parameter
from pmbnn.models.prior_base import STANDARD, Prior

if TYPE_CHECKING:
    from pytensor.tensor import TensorVariable


def declare_weights(
    parameters: tuple[Parameter, ...],
    prior: Prior,
    hyperprior: Hyperprior,
    data: Mapping[str, "TensorVariable"],
) -> dict[str, "TensorVariable"]:
    """Every weight and bias of the current model, by name.

    Parameters
    ----------
    data
        The constants of the hyperprior, by name.
    """
    if isinstance(hyperprior, Fixed):
        common = data.get("prior_scale", 1.0)
        scales = {p.name: data.get(f"prior_scale_{p.layer}", common) for p in parameters}
        centred = True
    else:
        scales, centred = _learned_scales(parameters, hyperprior, data), hyperprior.centred
    shared = prior.shared()
    units = {p.layer: p.dims[-1:] for p in parameters}
    layers = {number: prior.of_layer(number, dims) for number, dims in units.items()}
    return {
        p.name: _weight(p, prior, scales[p.name], centred, shared, layers[p.layer])
        for p in parameters
    }


def _weight(
    parameter: Parameter,
    prior: Prior,
    scale: "TensorVariable | float",
    centred: bool,
    shared: Mapping[str, "TensorVariable"],
    layer: Mapping[str, "TensorVariable"],
) -> "TensorVariable":
    """One weight matrix or bias vector of the current model: drawn, or scaled from draws."""
    import numpy as np
    import pymc as pm

    name, dims = parameter.name, parameter.dims
    if prior.bias_scale is not None and parameter.is_bias:
        scale, centred = np.float64(prior.bias_scale), True
    elif prior.fan_in:
        scale = scale / parameter.fan_in**0.5
    own = prior.own_scales(name, dims, scale, layer)
    if own is not None:
        scale = own
    elif centred and prior.centrable:
        return prior.variable(name, scale, dims, shared)
    # PyTensor would keep Python's 1.0 in single precision, and take its logarithm there.
    standard = prior.variable(name + STANDARD, np.float64(1.0), dims, shared)
    return pm.Deterministic(name, scale * standard, dims=dims)


def _learned_scales(
    parameters: tuple[Parameter, ...], hyperprior: Hierarchical, data
) -> dict[str, "TensorVariable"]:
    """The scale of every parameter, by its name; parameters of a layer share theirs."""
    scales: dict[str, TensorVariable] = {}
    for parameter in parameters:
        owner = "network" if hyperprior.per == "network" else f"layer_{parameter.layer}"
        if owner not in scales:
            dims = parameter.dims[-1:] if hyperprior.per == "unit" else ()
            scales[owner] = hyperprior.learned(f"{owner}_scale", f"{owner}_variance", data, dims)
        scales[parameter.name] = scales[owner]
    return scales
