"""Networks: which parameters they have, and the forward pass in PyTensor."""

from pmbnn.models.networks.base import Network, Parameter, ShapeError
from pmbnn.models.networks.composed import Layered
from pmbnn.models.networks.dense import Dense
from pmbnn.models.networks.known import Lenet5, ReportConv
from pmbnn.models.networks.layers import (
    AveragePool,
    Convolution,
    DenseLayer,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
)
from pmbnn.spec import registry

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
