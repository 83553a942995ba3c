"""Data sets by the name an experiment file calls them."""

from pmbnn.data import datasets, ood
from pmbnn.data.base import DataError, DatasetSpec
from pmbnn.data.datasets import *  # noqa: F403
from pmbnn.data.synthetic import Bounds, Regression, Synthetic

__all__ = [  # noqa: PLE0604
    *datasets.__all__,
    "Bounds",
    "DataError",
    "DatasetSpec",
    "Regression",
    "Synthetic",
    "ood",
]
