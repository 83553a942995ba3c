"""What a prior says of a data set before anything is seen: numbers, and functions drawn from it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import xarray as xr

from pmbnn.data.arrays import Dataset
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.plan import is_large
from pmbnn.fitting.evaluation import map_points
from pmbnn.fitting.prediction_groups import line_arrays, line_attributes, target_axes
from pmbnn.models.build import build_model
from pmbnn.prediction import prior_measures as measures
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.density import LEVEL, Density, mixture
from pmbnn.prediction.predictor import spread_rows
from pmbnn.prediction.prior_draws import NotDrawnError
from pmbnn.prediction.prior_functions import PriorFunctions

DRAWS, LARGE_DRAWS = 1_000, 200
"""Functions of a small network and of a large one. Of so many, a share is known to 0.016 or less,
and to 0.035."""

ROWS, IMAGES = 1_000, 200
"""Training inputs at most at which functions are looked at: points or the like, and images."""

AT_ONCE, LARGE_AT_ONCE = 100, 5
"""Functions whose values are in memory at once."""

LARGE_DRAWN = 20
"""Draws of a large network's weights in memory at once; those of a small one all are."""

MAPS, CURVES = 8, 30
"""Functions kept to be shown: over the plane, on lines."""


@dataclass(frozen=True)
class PriorEvaluation:
    """What a prior says of a data set.

    Attributes
    ----------
    numbers
        By name, with their Monte-Carlo errors; see `pmbnn.prediction.prior_measures`.
    groups
        What figures are drawn of: ``predictions`` over the plane as a trace has it, with single
        functions beside it; or ``curve_1``, ... on lines and ``rows``. None of images.
    """

    numbers: dict[str, float]
    groups: dict[str, xr.Dataset]


class Gathering(Protocol):
    """What is made of functions as they come, some at a time; of one kind of prediction."""

    def __init__(self, cell: Cell, dataset: Dataset, functions: PriorFunctions) -> None:
        """Take what functions are looked at with."""

    def add(self, values: np.ndarray) -> None:
        """Take the next functions, flat vectors ``(draw, size)``."""

    def found(self) -> PriorEvaluation:
        """What all of them come to."""


def evaluate_prior(
    cell: Cell, dataset: Dataset, functions: PriorFunctions, random_seed: int
) -> PriorEvaluation:
    """What the prior of a cell says; its hyperprior's scale is given or learned, not tuned.

    Raises
    ------
    NotDrawnError
        If nothing can be drawn from it, or nothing is known of what the likelihood predicts.
    """
    kind = cell.likelihood.predictive
    if kind not in GATHERINGS:
        raise NotDrawnError(f"`likelihood` must be one of {' or '.join(GATHERINGS)}, got {kind}.")
    gathering = GATHERINGS[kind](cell, dataset, functions)
    x = dataset.x_train[looked_at(cell, dataset)]
    saturated = []
    for values in _drawn(cell, dataset, functions, random_seed):
        gathering.add(values)
        saturated.append(functions.saturated(values, x))
    found = gathering.found()
    if saturated[0] is not None:
        found.numbers.update(measures.mean("saturated", np.concatenate(saturated)))
    return found


def looked_at(cell: Cell, dataset: Dataset) -> np.ndarray:
    """Numbers of the training rows at whose inputs functions are looked at."""
    most = ROWS if cell.dataset.image_shape is None else IMAGES
    return spread_rows(np.arange(len(dataset.y_train)), most)


def _drawn(
    cell: Cell, dataset: Dataset, functions: PriorFunctions, random_seed: int
) -> Iterator[np.ndarray]:
    """Functions drawn from a cell's prior, some at a time."""
    rows = dataset.training.take([0])
    model = build_model(cell.network, cell.prior, cell.hyperprior, cell.likelihood, rows)
    large = is_large(cell)
    draws, drawn = (LARGE_DRAWS, LARGE_DRAWN) if large else (DRAWS, DRAWS)
    at_once = LARGE_AT_ONCE if large else AT_ONCE
    for values in functions.draws(model, draws, random_seed, drawn):
        for start in range(0, len(values), at_once):
            yield values[start : start + at_once]


class _Classes:
    """Class probabilities: at the data's inputs, and over the plane where there is one."""

    def __init__(self, cell: Cell, dataset: Dataset, functions: PriorFunctions) -> None:
        self.functions, self.classes = functions, list(dataset.classes)
        self.x, self.at_rows = dataset.x_train[looked_at(cell, dataset)], []
        planar = cell.dataset.is_planar
        self.plane = _Plane(*map_points(dataset, cell.predict.map)) if planar else None

    def add(self, values: np.ndarray) -> None:
        self.at_rows.append(self._probability(values, self.x))
        if self.plane is not None:
            self.plane.add(self._probability(values, self.plane.x))

    def _probability(self, values: np.ndarray, x: np.ndarray) -> np.ndarray:
        (probability,) = self.functions.parameters(values, x).values()
        return probability

    def found(self) -> PriorEvaluation:
        numbers = measures.class_measures(np.concatenate(self.at_rows))
        if self.plane is None:
            return PriorEvaluation(numbers, {})
        numbers |= measures.mean("boundary_length", np.array(self.plane.lengths))
        return PriorEvaluation(numbers, {"predictions": self.plane.group(self.classes)})


class _Plane:
    """Running moments of class probabilities over a map, boundaries, and the first functions."""

    def __init__(self, x1: np.ndarray, x2: np.ndarray, x: np.ndarray) -> None:
        self.x1, self.x2, self.x = x1, x2, x
        self.draws, self.total, self.squares = 0, 0.0, 0.0
        self.lengths: list[float] = []
        self.first: list[np.ndarray] = []

    def add(self, probability: np.ndarray) -> None:
        """Take probabilities ``(draw, point, class)``."""
        shape = (len(probability), len(self.x1), len(self.x2), probability.shape[-1])
        maps = probability.reshape(shape).astype(np.float64)
        self.draws += len(maps)
        self.total = self.total + maps.sum(axis=0)
        # About one half: the squares of small deviations keep their digits.
        self.squares = self.squares + ((maps - 0.5) ** 2).sum(axis=0)
        self.lengths += [measures.boundary_length(self.x1, self.x2, one) for one in maps]
        self.first += list(maps[: MAPS - len(self.first)].astype("f4"))

    def group(self, classes: list[str]) -> xr.Dataset:
        """Mean and standard deviation over functions, and the first of these."""
        mean = self.total / self.draws
        variance = self.squares / self.draws - (mean - 0.5) ** 2
        axes = ("x1", "x2", "output")
        arrays = {
            "probability": (axes, mean.astype("f4")),
            "sd": (axes, np.sqrt(np.maximum(variance, 0)).astype("f4")),
            "function": (("function", *axes), np.stack(self.first)),
        }
        return xr.Dataset(arrays, {"x1": self.x1, "x2": self.x2, "output": classes})


class _Numbers:
    """Functions of numbers: at the data's inputs, and on the lines that they are looked at on."""

    def __init__(self, cell: Cell, dataset: Dataset, functions: PriorFunctions) -> None:
        self.functions, self.likelihood = functions, cell.likelihood
        rows = looked_at(cell, dataset)
        self.x, self.y = dataset.x_train[rows], dataset.raw_targets(dataset.y_train[rows])
        self.raw, self.at_rows = dataset.standardisation.undo(self.x), []
        self.lines, self.names = cell.dataset.lines(), dataset.target_names
        self.axes = target_axes("point", dataset)[1:]
        self.on_lines: list[list[np.ndarray]] = [[] for _ in self.lines]
        self.standardisation = dataset.standardisation
        self.targets = dataset.target_standardisation

    def add(self, values: np.ndarray) -> None:
        self.at_rows.append(self.functions.parameters(values, self.x))
        for found, line in zip(self.on_lines, self.lines, strict=True):
            x = self.standardisation(line.inputs)
            found.append(self._outputs(self.functions.parameters(values, x)))

    def _outputs(self, parameters: Mapping[str, np.ndarray]) -> np.ndarray:
        return self._raw(np.asarray(self.likelihood.components(parameters).mean(), np.float64))

    def _raw(self, targets: np.ndarray) -> np.ndarray:
        return targets if self.targets.is_identity else self.targets.undo(targets)

    def found(self) -> PriorEvaluation:
        parameters = {
            name: np.concatenate([part[name] for part in self.at_rows]) for name in self.at_rows[0]
        }
        numbers = {}
        for i, own in enumerate(self.likelihood.by_target(parameters)):
            numbers |= self._numbers(own, i)
        return PriorEvaluation(numbers, self._groups() if self.lines else {})

    def _numbers(self, parameters: Mapping[str, np.ndarray], i: int) -> dict[str, float]:
        """Numbers of one target, with its name in theirs where there are several."""
        components = self.likelihood.components(parameters)
        mean, sd = self.targets.mean[i], self.targets.sd[i]
        outputs, noise = (np.asarray(v, np.float64) for v in (components.mean(), components.std()))
        found = measures.number_measures(mean + sd * outputs, sd * noise)
        low, high = mean + sd * mixture(self.likelihood, [parameters], None).total_interval()
        y = self.y.reshape(len(self.y), -1)[:, i]
        within = float(np.mean((low <= y) & (y <= high)))
        found |= {"target_range": float(np.ptp(y)), "targets_within": within}
        return measures.called(found, self.names[i]) if self.names else found

    def _groups(self) -> dict[str, xr.Dataset]:
        labels = {axis: list(self.names) for axis in self.axes}
        y = (("observation", *self.axes), self.y)
        groups = {"rows": xr.Dataset({"x": (("observation", "feature"), self.raw), "y": y}, labels)}
        tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
        for number, (line, found) in enumerate(zip(self.lines, self.on_lines, strict=True), 1):
            functions = np.concatenate(found)
            arrays = line_arrays(line) | {
                "function": (("function", "point", *self.axes), functions[:CURVES]),
                "interval": (("bound", "point", *self.axes), np.quantile(functions, tails, axis=0)),
            }
            attrs = {"level": LEVEL} | line_attributes(line)
            groups[f"curve_{number}"] = xr.Dataset(arrays, labels, attrs)
        return groups


GATHERINGS: dict[str, type[Gathering]] = {
    ClassProbabilities.key: _Classes,
    Density.key: _Numbers,
}
"""By the kind of prediction that a likelihood names."""
