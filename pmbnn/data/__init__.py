"""Data sets by the name an experiment file calls them."""

from pmbnn.data import ood
from pmbnn.data.base import DataError, DatasetSpec
from pmbnn.data.datasets import (
    DATASETS,
    Circles,
    Folds,
    Idx,
    Images,
    InBetween,
    Indices,
    Mnist,
    Moons,
    Npz,
    OpenML,
    Quartic,
    Share,
    Sine,
    Sklearn,
    Table,
)
from pmbnn.data.synthetic import Bounds, Regression, Synthetic

__all__ = [
    "DATASETS",
    "Bounds",
    "Circles",
    "DataError",
    "DatasetSpec",
    "Folds",
    "Idx",
    "Images",
    "InBetween",
    "Indices",
    "Mnist",
    "Moons",
    "Npz",
    "OpenML",
    "Quartic",
    "Regression",
    "Share",
    "Sine",
    "Sklearn",
    "Synthetic",
    "Table",
    "ood",
]
