"""An experiment as checked and expanded: frozen, and independent of how its file is written."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from pmbnn.datasets import DATASETS
from pmbnn.datasets.base import DatasetSpec
from pmbnn.inference.settings import Inference
from pmbnn.likelihoods import LIKELIHOODS, Likelihood
from pmbnn.networks import NETWORKS, Network
from pmbnn.prediction_settings import Predict
from pmbnn.priors import HYPERPRIORS, PRIORS, Hyperprior, Prior
from pmbnn.specification import Specification

SOURCES = {
    "dataset": DATASETS,
    "network": NETWORKS,
    "prior": PRIORS,
    "hyperprior": HYPERPRIORS,
    "likelihood": LIKELIHOODS,
    "inference": Inference,
    "predict": Predict,
}
"""Where the classes of each section come from: a registry by ``kind``, or one class."""


@dataclass(frozen=True)
class Cell:
    """One point of the grid: everything that is fitted, and the name of its sweep."""

    sweep: str
    dataset: DatasetSpec
    network: Network
    prior: Prior
    hyperprior: Hyperprior
    likelihood: Likelihood
    inference: Inference
    predict: Predict

    @property
    def settings(self) -> dict[str, Specification]:
        """The specifications by section: everything but the sweep's name."""
        return {section: getattr(self, section) for section in SOURCES}


class LeftOut(NamedTuple):
    """Combinations of a sweep that mean nothing, and why."""

    prior: str
    hyperpriors: tuple[str, ...]
    reason: str

    def __str__(self) -> str:
        """One line for the plan."""
        return f"prior {self.prior} with {', '.join(self.hyperpriors)}: {self.reason}"


class Sections(NamedTuple):
    """Every specification of each section of a sweep."""

    dataset: tuple[DatasetSpec, ...]
    network: tuple[Network, ...]
    prior: tuple[Prior, ...]
    hyperprior: tuple[Hyperprior, ...]
    likelihood: tuple[Likelihood, ...]
    inference: tuple[Inference, ...]
    predict: tuple[Predict, ...]


class Sweep(NamedTuple):
    """One grid: its sections, the cells they make, and the combinations left out."""

    name: str
    sections: Sections
    cells: tuple[Cell, ...]
    left_out: tuple[LeftOut, ...]


class Experiment(NamedTuple):
    """All sweeps of an experiment file."""

    name: str
    sweeps: tuple[Sweep, ...]

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Cells of all sweeps, in the order of the file."""
        return tuple(cell for sweep in self.sweeps for cell in sweep.cells)


def choosing_rows(rows: int, validation: float) -> int:
    """Training rows left to fit on when a share of them is held out to choose by."""
    # Scikit-learn rounds the held-out rows up.
    return rows - math.ceil(validation * rows)
