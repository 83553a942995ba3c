"""What an estimator keeps of its fit: enough to predict, to draw, and to be written."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.data.arrays import Dataset, Rows
from pmbnn.data.base import DatasetSpec
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.plan import group_key, is_large
from pmbnn.fitting.fit import fit_job
from pmbnn.fitting.inferred import InferredCell
from pmbnn.fitting.programs import GroupPrograms
from pmbnn.fitting.sampling import SampledCell, sample_job
from pmbnn.inference.device import Device, current_device
from pmbnn.inference.result import Fit, StoredGuide
from pmbnn.models.build import build_model, model_data
from pmbnn.models.priors import Hyperprior
from pmbnn.prediction.approximation import Approximation
from pmbnn.prediction.density import Mixture, mixture
from pmbnn.prediction.predictive import Predictive
from pmbnn.prediction.reference import Reference
from pmbnn.spec.display import Summarised

SHAPES = 8
"""Shapes of models whose programs a process keeps."""

STEPS_OF_ROWS = 16
"""Numbers of rows between two powers of two that programs are compiled for: rows that a fit leaves
empty are a sixteenth at most, and the folds of a cross-validation share one program."""


class Given(DatasetSpec):
    """Arrays handed over in Python: no more than what decides a program.

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
    """Programs of fits of about as many rows."""

    def program(self, cell: Cell, rows: Rows, most: int | None = None):  # noqa: D102
        return super().program(cell, rows, None if cell.is_sampled else cell.dataset.observations)


@lru_cache(maxsize=SHAPES)
def _programs(group: str, width: int, device: Device) -> SharedPrograms:
    """Those of a group on a device."""
    return SharedPrograms(group, width)


def programs_of(cell: Cell) -> SharedPrograms:
    """What is compiled for a cell, once a process and device for all of its shape."""
    one_by_one = cell.is_sampled or is_large(cell)
    width = 1 if one_by_one else cell.inference.restarts
    return _programs(group_key(cell), width, current_device())


@dataclass(eq=False, repr=False)
class Fitted(Summarised):
    """A fitted or sampled network, and the rows that it was fitted on.

    It holds arrays and settings only, so that it can be sent to another process, which compiles
    what it needs itself.

    Attributes
    ----------
    cell
        What was fitted.
    hyperprior
        That of the model: the chosen one where a scale was tuned.
    dataset
        Standardised training rows; there are no test rows.
    fits
        Guides, or draws of each chain, in the place of a guide's parameters.
    weights
        Of each in predictions, ``(fit,)``.
    status, reason
        The verdict, and a few words on it.
    inferred
        Everything that is known of the fits; None of one that was read from a file.
    trace
        Draws as ArviZ takes them, once they were asked for.
    """

    cell: Cell
    hyperprior: Hyperprior
    dataset: Dataset
    fits: Sequence[Fit | StoredGuide]
    weights: Sequence[float]
    status: str
    reason: str
    inferred: InferredCell | None = None
    trace: xr.DataTree | None = None

    def predict(self, x: np.ndarray) -> Predictive:
        """Prediction at raw inputs, ``(observation, feature)``, in the targets' own units."""
        inputs, draws = self.dataset.standardisation(x), self.cell.predict.draws
        found = self._predictor.predict(self.fits, self.weights, self._data, inputs, draws)
        return found.in_units_of(self.dataset.target_standardisation)

    def mixture(self, x: np.ndarray) -> Mixture:
        """Distributions of numbers at raw inputs, in standardised targets' units."""
        inputs, draws = self.dataset.standardisation(x), self.cell.predict.draws
        drawn = [self._predictor.single_draws(f, self._data, inputs, draws) for f in self.fits]
        return mixture(self.cell.likelihood, drawn, self.weights)

    def model(self) -> pm.Model:
        """The PyMC model with the training rows."""
        cell = self.cell
        return build_model(
            cell.network, cell.prior, self.hyperprior, cell.likelihood, self.dataset.training
        )

    def draws(self) -> xr.DataTree:
        """Draws as ArviZ takes them; read off once."""
        if self.trace is None:
            self.trace = self._drawn()
        return self.trace

    def _drawn(self) -> xr.DataTree:
        cell, model, inferred = self.cell, self.model(), self.inferred
        if isinstance(inferred, SampledCell):
            return Reference(model, cell.inference, inferred.samples, "float32").to_datatree()
        program = programs_of(cell).program(cell, self.dataset.training)
        alive = tuple(inferred.fits[i] for i in inferred.alive)
        found = Approximation(model, cell.inference, program, alive)
        return found.to_datatree(cell.predict.draws)

    @property
    def _predictor(self):
        return programs_of(self.cell).predictor(self.cell, self.dataset.training)

    @property
    def _data(self) -> dict[str, np.ndarray]:
        return model_data(self.hyperprior, self.dataset.training, self.cell.likelihood)


def fitted(cell: Cell, dataset: Dataset) -> Fitted:
    """A cell fitted to the training rows of a data set.

    Raises
    ------
    ValueError
        If every restart, or some chain, met what is not finite.
    """
    programs, datasets = programs_of(cell), {cell.dataset: dataset}
    if cell.is_sampled:
        (inferred,) = sample_job([cell], datasets, programs)
        status, reason = inferred.samples.status, inferred.samples.reason
    else:
        (inferred,) = fit_job([cell], datasets, programs, search_cell=cell)
        best = inferred.fits[inferred.best or 0]
        status, reason = best.status, best.reason
    if inferred.best is None:
        what = "some chain" if cell.is_sampled else "every restart"
        raise ValueError(f"{what} diverged: {reason}.")
    used = [i for i in inferred.alive if inferred.weights[i] > 0]
    return Fitted(
        cell=cell,
        hyperprior=inferred.hyperprior,
        dataset=dataset,
        fits=[inferred.fits[i] for i in used],
        weights=[inferred.weights[i] for i in used],
        status=status,
        reason=reason,
        inferred=inferred,
    )
