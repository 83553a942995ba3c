"""Evaluate a prior on a data set: functions drawn from it, and numbers that describe them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import xarray as xr

from pmbnn.core.stages import stage
from pmbnn.data.arrays import Dataset, Line
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.cost import is_large
from pmbnn.fitting.evaluation import map_points
from pmbnn.fitting.job import load_dataset, raise_fault, reason_of
from pmbnn.fitting.prediction_groups import line_arrays, line_attributes, target_axes
from pmbnn.models.build import build_model
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.density import LEVEL, Density, mixture
from pmbnn.prediction.predictor import spread_rows
from pmbnn.prior_predictive import measures
from pmbnn.prior_predictive.functions import PriorFunctions
from pmbnn.prior_predictive.store import StoredPrior, save_prior
from pmbnn.results.store import Results
from pmbnn.spec.errors import must_be_one_of

if TYPE_CHECKING:
    from pmbnn.prior_predictive.plan import PriorTask

type Programs = dict[tuple, PriorFunctions]
"""Compiled programs by network, likelihood and shape of the data."""

DRAWS, LARGE_DRAWS = 1_000, 200
"""Functions of a small network and of a large one. Of so many, a share is known to 0.016 or less,
and to 0.035."""

ROWS, IMAGES = 1_000, 200
"""Largest numbers of training inputs at which functions are evaluated: of points, of images."""

AT_ONCE, LARGE_AT_ONCE = 100, 5
"""Functions whose values are in memory at once."""

LARGE_DRAWN = 20
"""Draws of a large network's weights in memory at once; those of a small one all are."""

MAPS, CURVES = 8, 30
"""Functions kept to be shown: over the plane, on lines."""


class PriorEvaluation(NamedTuple):
    """What a prior says of a data set.

    Attributes
    ----------
    numbers
        Numbers by name, with their Monte-Carlo errors; see `pmbnn.prior_predictive.measures`.
    groups
        Groups that figures are drawn of: ``predictions`` over the plane as a trace has it, with
        single functions beside it; or ``curve_1``, ... on lines, and ``rows``. None of images.
    """

    numbers: dict[str, float]
    groups: dict[str, xr.Dataset]


def run_prior(
    task: "PriorTask",
    folder: Path,
    stored: Callable[[str | None], None],
    programs: Programs | None = None,
) -> Programs:
    """Evaluate and store the prior of a task.

    Parameters
    ----------
    stored
        Called at the end, with the reason if the prior could not be evaluated.
    task, folder, programs
        Those of `run_job`.
    """
    programs, results, reason = programs or {}, Results(folder), None
    try:
        dataset = load_dataset(task)
        with stage("build"):
            functions = _functions(task.cell, dataset, programs)
        with stage("draw"):
            numbers, groups = evaluate_prior(task.cell, dataset, functions, task.random_seed)
        save_prior(
            results, StoredPrior(task.name, task.cell, task.tuned, numbers, tuple(groups)), groups
        )
    except Exception as error:
        raise_fault(error, results)
        reason = reason_of(error)
    stored(reason)
    return programs


def _functions(cell: Cell, dataset: Dataset, programs: Programs) -> PriorFunctions:
    """What is compiled for a network, whatever its prior."""
    rows = dataset.training
    key = (cell.network, cell.likelihood, rows.input_shape, rows.n_classes, rows.n_targets)
    if key not in programs:
        # Heavy tails need the range of double precision; a large network the memory.
        dtype = "float32" if is_large(cell) else "float64"
        programs[key] = PriorFunctions(cell.network, cell.likelihood, rows, dtype)
    return programs[key]


def evaluate_prior(
    cell: Cell, dataset: Dataset, functions: PriorFunctions, random_seed: int
) -> PriorEvaluation:
    """What the prior of a cell says; its hyperprior's scale is fixed or learned, not tuned.

    Raises
    ------
    ValueError
        If the prior cannot be drawn from, or the likelihood predicts neither classes nor numbers.
    """
    kind = cell.likelihood.predictive
    if kind not in KINDS:
        raise must_be_one_of("likelihood", KINDS, kind)
    most = ROWS if cell.dataset.image_shape is None else IMAGES
    rows = spread_rows(np.arange(len(dataset.y_train)), most)
    x, saturated = dataset.x_train[rows], []

    def batches() -> Iterator[np.ndarray]:
        for values in _drawn(cell, dataset, functions, random_seed):
            saturated.append(functions.saturated(values, x))
            yield values

    evaluation = KINDS[kind](cell, dataset, rows, functions, batches())
    if saturated[0] is not None:
        evaluation.numbers.update(measures.mean("saturated", np.concatenate(saturated)))
    return evaluation


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


def _evaluate_classes(
    cell: Cell,
    dataset: Dataset,
    rows: np.ndarray,
    functions: PriorFunctions,
    batches: Iterator[np.ndarray],
) -> PriorEvaluation:
    """Class probabilities at the given training rows, and over the plane where there is one."""

    def probability(values: np.ndarray, x: np.ndarray) -> np.ndarray:
        (array,) = functions.parameters(values, x).values()
        return array

    x, at_rows = dataset.x_train[rows], []
    plane = None
    if cell.dataset.is_planar:
        plane = _Plane(*map_points(dataset, cell.predict.map))
    for values in batches:
        at_rows.append(probability(values, x))
        if plane is not None:
            plane.add(probability(values, plane.x))
    numbers = measures.class_measures(np.concatenate(at_rows))
    if plane is None:
        return PriorEvaluation(numbers, {})
    numbers |= measures.mean("boundary_length", np.array(plane.lengths))
    return PriorEvaluation(numbers, {"predictions": plane.group(list(dataset.classes))})


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


def _evaluate_numbers(
    cell: Cell,
    dataset: Dataset,
    rows: np.ndarray,
    functions: PriorFunctions,
    batches: Iterator[np.ndarray],
) -> PriorEvaluation:
    """Numbers at the given training rows, and on the lines of the data set."""
    x, y = dataset.x_train[rows], dataset.raw_targets(dataset.y_train[rows])
    lines = cell.dataset.lines()
    places = [x, *(dataset.standardisation(line.inputs) for line in lines)]
    parts: list[list[Mapping[str, np.ndarray]]] = [[] for _ in places]
    for values in batches:
        for part, inputs in zip(parts, places, strict=True):
            part.append(functions.parameters(values, inputs))
    at_rows, *on_lines = (
        {name: np.concatenate([part[name] for part in place]) for name in place[0]}
        for place in parts
    )
    columns, names, numbers = y.reshape(len(y), -1).T, dataset.target_names, {}
    for i, parameters in enumerate(cell.likelihood.by_target(at_rows)):
        target_numbers = _numbers_of_target(cell, dataset, parameters, columns[i], i)
        numbers |= measures.for_target(target_numbers, names[i]) if names else target_numbers
    if not lines:
        return PriorEvaluation(numbers, {})
    axes = target_axes("point", dataset)[1:]
    labels = {axis: list(dataset.target_names) for axis in axes}
    raw = (("observation", "feature"), dataset.standardisation.undo(x))
    groups = {"rows": xr.Dataset({"x": raw, "y": (("observation", *axes), y)}, labels)}
    for number, (line, parameters) in enumerate(zip(lines, on_lines, strict=True), 1):
        outputs = np.asarray(cell.likelihood.components(parameters).mean(), np.float64)
        on_line = dataset.raw_targets(outputs)
        groups[f"curve_{number}"] = _curve(line, on_line, axes).assign_coords(labels)
    return PriorEvaluation(numbers, groups)


def _numbers_of_target(
    cell: Cell, dataset: Dataset, parameters: Mapping[str, np.ndarray], y: np.ndarray, i: int
) -> dict[str, float]:
    """Numbers of one target, whose training values are `y`."""
    components = cell.likelihood.components(parameters)
    mean, sd = (getattr(dataset.target_standardisation, name)[i] for name in ("mean", "sd"))
    outputs, noise = (np.asarray(v, np.float64) for v in (components.mean(), components.std()))
    numbers = measures.number_measures(mean + sd * outputs, sd * noise)
    low, high = mean + sd * mixture(cell.likelihood, [parameters], [1.0]).total_interval()
    within = float(np.mean((low <= y) & (y <= high)))
    return numbers | {"target_range": float(np.ptp(y)), "targets_within": within}


def _curve(line: Line, functions: np.ndarray, axes: Sequence[str]) -> xr.Dataset:
    """Some functions ``(function, point)`` on a line, and the central interval of all."""
    tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    arrays = line_arrays(line) | {
        "function": (("function", "point", *axes), functions[:CURVES]),
        "interval": (("bound", "point", *axes), np.quantile(functions, tails, axis=0)),
    }
    return xr.Dataset(arrays, attrs={"level": LEVEL} | line_attributes(line))


KINDS = {ClassProbabilities.key: _evaluate_classes, Density.key: _evaluate_numbers}
"""How functions are evaluated, by the kind of prediction that a likelihood names."""
