"""Data sets by the name an experiment file calls them."""

from pmbnn.datasets.base import DataError, DatasetSpec
from pmbnn.datasets.mnist import Mnist
from pmbnn.datasets.regression import Quartic, Regression, Sine
from pmbnn.datasets.synthetic import Bounds, Circles, Moons, Synthetic
from pmbnn.specification import registry

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
