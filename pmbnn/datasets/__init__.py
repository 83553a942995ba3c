"""Data sets by the name an experiment file calls them, with the arrays they load."""

from pmbnn.datasets.base import DataError, Dataset, DatasetSpec, Standardisation
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
    "Dataset",
    "DatasetSpec",
    "Mnist",
    "Moons",
    "Quartic",
    "Regression",
    "Sine",
    "Standardisation",
    "Synthetic",
]
