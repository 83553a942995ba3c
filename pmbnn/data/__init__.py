"""Data sets by the name an experiment file calls them."""

from pmbnn.data.base import DataError, DatasetSpec
from pmbnn.data.curves import Quartic, Regression, Sine
from pmbnn.data.mnist import Mnist
from pmbnn.data.toy import Bounds, Circles, Moons, Synthetic
from pmbnn.spec import registry

DATASETS = registry(Moons, Circles, Mnist, Sine, Quartic)

__all__ = [
    "DATASETS",
    "Bounds",
    "Circles",
    "DataError",
    "DatasetSpec",
    "Mnist",
    "Moons",
    "Quartic",
    "Regression",
    "Sine",
    "Synthetic",
]
