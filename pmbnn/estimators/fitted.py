"""The posterior of an estimator: its cell fitted or sampled, by programs that fits share."""

from functools import lru_cache
from typing import Literal

from pmbnn.core.machine import Device, current_device
from pmbnn.data.arrays import Dataset, Rows
from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.cost import is_large
from pmbnn.experiment.plan import group_key
from pmbnn.fitting.fit import fit_job
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.sampling import sample_job
from pmbnn.models.build import NetworkParts
from pmbnn.prediction.datatree import history_of
from pmbnn.prediction.posterior import Posterior
from pmbnn.prediction.predictor import NetworkModel

SHAPES = 8
"""Models of different shape whose programs a process keeps."""

STEPS_OF_ROWS = 16
"""Numbers of rows between two powers of two that programs are compiled for: rows that a fit leaves
empty are a sixteenth at most, and the folds of a cross-validation share one program."""


class InMemoryData(DatasetSpec):
    """Shape of arrays in memory, which decides the compiled programs.

    ``observations`` is the number of rows, rounded up as `rounded_up` does.
    """

    kind: Literal["given"] = "given"
    observations: int
    features: int
    classes: int | None = None

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        return self.observations, 0

    @property
    def n_features(self) -> int:
        """Number of input features."""
        return self.features

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None where the targets are numbers."""
        return self.classes


def rounded_up(rows: int) -> int:
    """Number of rows that a program is compiled for."""
    step = max(1, 2 ** (rows.bit_length() - 1) // STEPS_OF_ROWS)
    return -(-rows // step) * step


class SharedPrograms(GroupPrograms):
    """Programs that fits of similar numbers of rows share."""

    def program(self, cell: Cell, rows: Rows, most: int | None = None):  # noqa: D102
        return super().program(cell, rows, None if cell.is_sampled else cell.dataset.observations)


@lru_cache(maxsize=SHAPES)
def _programs(group: str, width: int, device: Device) -> SharedPrograms:
    """Programs of a group on a device."""
    return SharedPrograms(group, width)


def programs_of(cell: Cell) -> SharedPrograms:
    """Compiled programs of a cell, shared by all cells of its shape in a process."""
    one_by_one = cell.is_sampled or is_large(cell)
    width = 1 if one_by_one else cell.inference.restarts
    return _programs(group_key(cell), width, current_device())


def fitted(cell: Cell, dataset: Dataset) -> Posterior:
    """The posterior of a cell given the training rows of a data set.

    Raises
    ------
    ValueError
        If every restart, or some chain, met what is not finite.
    """
    programs, datasets, rows = programs_of(cell), {cell.dataset: dataset}, dataset.training
    if cell.is_sampled:
        (inferred,) = sample_job([cell], datasets, programs)
    else:
        (inferred,) = fit_job([cell], datasets, programs, search_cell=cell)
    if inferred.best is None:
        what = "some chain" if cell.is_sampled else "every restart"
        raise ValueError(f"{what} diverged: {inferred.reason}.")
    parts = (cell.network, cell.prior, inferred.hyperprior, cell.likelihood, rows.take([0]))
    maps = dataset.standardisation, dataset.target_standardisation
    return Posterior(
        origin=NetworkModel(NetworkParts(*parts), rows, *maps),
        settings=cell.inference,
        sources=inferred.sources,
        weights=inferred.weights,
        best=inferred.best,
        status=inferred.status,
        reason=inferred.reason,
        draws_of=inferred.draws_of,
        n_draws=cell.predict.draws,
        history=None if cell.is_sampled else history_of(inferred.fits),
        samples=inferred.samples,
    )
