"""Networks: which parameters they have, and the forward pass in PyTensor."""

from pmbnn.networks.base import Network, Parameter, ShapeError
from pmbnn.networks.dense import Dense
from pmbnn.networks.known import Lenet5, ReportConv
from pmbnn.networks.layered import Layered
from pmbnn.networks.layers import Convolution, DenseLayer, Flatten, Layer, MaxPool
from pmbnn.specification import registry

NETWORKS: dict[str, type[Network]] = registry(Dense, Layered, ReportConv, Lenet5)

__all__ = [
    "NETWORKS",
    "Convolution",
    "Dense",
    "DenseLayer",
    "Flatten",
    "Layer",
    "Layered",
    "Lenet5",
    "MaxPool",
    "Network",
    "Parameter",
    "ReportConv",
    "ShapeError",
]
