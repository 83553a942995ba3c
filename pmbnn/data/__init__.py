"""Data sets by the name an experiment file calls them."""

from pmbnn.data.base import DataError, DatasetSpec
from pmbnn.data.curves import Quartic, Regression, Sine
from pmbnn.data.in_between import InBetween
from pmbnn.data.mnist import Mnist
from pmbnn.data.toy import Bounds, Circles, Moons, Synthetic
from pmbnn.spec import registry

DATASETS = registry(Moons, Circles, Mnist, Sine, Quartic, InBetween)

__all__ = [
    "DATASETS",
    "Bounds",
    "Circles",
    "DataError",
    "DatasetSpec",
    "InBetween",
    "Mnist",
    "Moons",
    "Quartic",
    "Regression",
    "Sine",
    "Synthetic",
]
