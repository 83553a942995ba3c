"""Data sets and their splits by class, as `pmbnn.datasets`: what an experiment file names.

Images that a classifier does not know are in `pmbnn.ood`.
"""

from pmbnn.core.spec import registry
from pmbnn.data.images import Idx, Images, Mnist
from pmbnn.data.openml import OpenML
from pmbnn.data.splits import Folds, Indices, RandomSplit
from pmbnn.data.synthetic import Circles, InBetween, Moons, Quartic, Sine
from pmbnn.data.tabular import Npz, Sklearn, Table

DATASETS = registry(
    *(Moons, Circles, Mnist, Sine, Quartic, InBetween),
    *(Table, Npz, Sklearn, OpenML, Images, Idx),
)

__all__ = [
    "DATASETS",
    "Circles",
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
    "RandomSplit",
    "Sine",
    "Sklearn",
    "Table",
]
