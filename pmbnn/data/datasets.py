"""Data sets and their splits by class, as `pmbnn.datasets`: what an experiment file names.

Images that a classifier does not know are in `pmbnn.ood`.
"""

from pmbnn.data.curves import Quartic, Sine
from pmbnn.data.embedded import Sklearn
from pmbnn.data.images import Images
from pmbnn.data.in_between import InBetween
from pmbnn.data.mnist import Mnist
from pmbnn.data.npz import Npz
from pmbnn.data.own_idx import Idx
from pmbnn.data.own_openml import OpenML
from pmbnn.data.splits import Folds, Indices, Share
from pmbnn.data.table import Table
from pmbnn.data.toy import Circles, Moons
from pmbnn.spec import registry

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
    "Share",
    "Sine",
    "Sklearn",
    "Table",
]
