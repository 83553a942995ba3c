"""Evaluate a prior on a data set: functions drawn from it, and numbers that describe them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from pymc.pytensorf import collect_default_updates, reseed_rngs

from pmbnn.core.errors import must_be_one_of, reason_of
from pmbnn.core.stages import stage
from pmbnn.data.arrays import Dataset, Line, Rows
from pmbnn.experiment.cells import Cell
from pmbnn.experiment.cost import is_large
from pmbnn.fitting.evaluation import map_points
from pmbnn.fitting.job import load_dataset, raise_fault
from pmbnn.fitting.trace import line_arrays, line_attributes, target_axes
from pmbnn.inference.xla.compile import jax_function, precision
from pmbnn.models.build import build_model, model_data
from pmbnn.models.hyperpriors import Fixed
from pmbnn.models.layers import relative_slopes
from pmbnn.models.likelihoods import Likelihood
from pmbnn.models.matching import matched
from pmbnn.models.networks import Network
from pmbnn.models.prior_draws import interpreted, prior_draws, stacked
from pmbnn.models.priors import Normal
from pmbnn.prediction.chain_errors import jackknife_error, without_each
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.density import LEVEL, Density, mixture
from pmbnn.prediction.draws import unconstrained_draws
from pmbnn.prediction.metrics import entropy
from pmbnn.prediction.predictor import Predictor, spread_rows
from pmbnn.prior_predictive.process import GROUP, match_functions
from pmbnn.prior_predictive.store import StoredPrior, save_prior
from pmbnn.results.reading import shape_of
from pmbnn.results.store import Results

if TYPE_CHECKING:
    from pmbnn.prior_predictive.plan import PriorTask


# Functions drawn from a prior: what a network says before it has seen any data
#
# Draws of weights come from PyMC's own generators, which are exact for every prior that can be
# drawn from. They are interpreted: a compiler would take longer than thousands of draws. What a
# network says with given weights does not depend on their prior, so that one compiled program
# serves every prior and hyperprior.


FLAT = 0.05
"""Share of the steepest slope below which a hidden unit is saturated: tanh beyond ±0.975."""


def seeded_prior_draws(model: pm.Model, seeds: Sequence[Sequence[int]]) -> np.ndarray:
    """One draw of a model's flat vector for each seed, ``(draw, size)``, double precision.

    Parameters
    ----------
    model
        A model with proper priors; its data variables have their values.
    seeds
        Unsigned 32-bit words of each draw, which decide it whatever others are drawn.
    """
    variables = model.free_RVs
    generators = list(collect_default_updates(variables))
    draw, drawn = interpreted(variables), []
    for seed in seeds:
        reseed_rngs(generators, list(seed))
        drawn.append(draw())
    named = stacked([v.name for v in variables], drawn)
    return unconstrained_draws(model, {name: values[None] for name, values in named.items()})[0]


class PriorFunctions:
    """What networks of one shape say with given weights, compiled once for all priors.

    Parameters
    ----------
    rows
        Data of the shape that networks take; one row will do.
    dtype
        ``float32`` or ``float64``: heavy tails leave the range of the first.

    Attributes
    ----------
    names
        Variables that decide a function: weights, biases and what the likelihood learns.
    """

    def __init__(
        self, network: Network, likelihood: Likelihood, rows: Rows, dtype: str = "float64"
    ) -> None:
        row, usual = rows.take([0]), Fixed()
        # Under a normal prior these variables are all that is free, whatever the prior to come.
        self.model = build_model(network, Normal(), usual, likelihood, row)
        self.names = [v.name for v in self.model.free_RVs]
        self.data = model_data(usual, row, likelihood)
        self.predictor = Predictor(self.model, likelihood, dtype=dtype)
        self._saturated = self._build_saturated(network, rows.input_shape)

    def draws(
        self, model: pm.Model, draws: int, random_seed: int, at_once: int
    ) -> Iterator[np.ndarray]:
        """Flat vectors drawn from another model's prior, ``(draw, size)``, some at a time.

        Raises
        ------
        ValueError
            As `prior_draws` does.
        """
        draw = prior_draws(model, self.names, random_seed)
        for start in range(0, draws, at_once):
            with np.errstate(all="ignore"):  # functions that are not finite are refused
                named = draw(min(at_once, draws - start))
            one_chain = {name: values[None] for name, values in named.items()}
            yield unconstrained_draws(self.model, one_chain)[0]

    def parameters(self, values: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        """What the likelihood names, of draws ``(draw, size)``; see `Predictor.parameters`.

        Raises
        ------
        ValueError
            If some of it is not a finite number.
        """
        parameters = self.predictor.parameters(self.data, values, x)
        is_finite = [np.isfinite(v).reshape(len(v), -1).all(axis=1) for v in parameters.values()]
        if number := int((~np.all(is_finite, axis=0)).sum()):
            raise ValueError(
                f"functions drawn from the prior must be finite, but {number} of {len(values)} "
                f"leave the range of {self.predictor.dtype}: choose a prior or hyperprior with "
                "lighter tails"
            )
        return parameters

    def saturated(self, values: np.ndarray, x: np.ndarray) -> np.ndarray | None:
        """Share of hidden units and inputs where a unit is saturated, ``(draw,)``.

        A unit is so where its slope is less than `FLAT` of its steepest; a rectified one, where
        it is off. None if no activation is known.
        """
        if self._saturated is None:
            return None
        with precision(self.predictor.dtype):
            values, x = (jnp.asarray(v, self.predictor.dtype) for v in (values, x))
            return np.asarray(self._saturated(values, x), np.float64)

    def _build_saturated(self, network: Network, input_shape: tuple[int, ...]):
        flat, vector = self.predictor.flat, self.predictor.vector
        outputs = network.forward(flat.data["x"], flat.posterior, input_shape)
        slopes = relative_slopes(outputs)
        if not slopes:
            return None
        flattened = pt.concatenate([slope.ravel() for slope in slopes])
        graphs = flat.at(vector, [pt.mean(pt.lt(flattened, FLAT))])
        with precision(self.predictor.dtype):
            share = jax_function([vector, flat.data["x"]], graphs)
        return jax.jit(jax.vmap(lambda values, x: share(values, x)[0], (0, None)))


# What functions drawn from a prior have in common: NumPy in, numbers with their errors out
#
# Names that end in ``_mcse`` are Monte-Carlo standard errors of what stands before.


BLOCKS = 20
"""Blocks of draws for jackknife errors of what is not a mean over draws."""

TINY = np.finfo(np.float64).tiny


def boundary_length(x1: np.ndarray, x2: np.ndarray, probability: np.ndarray) -> float:
    """Length of all lines where another class becomes the most probable, in widths of the map.

    Marching squares on the difference of logarithms, which unlike probabilities of a steep function
    is near a straight line between two points. Where it jumps from one point to the next, lines
    run in eight directions and are 7 % too long on average and up to 16 %, however fine the map;
    what is narrower than a point is not seen. Of networks whose units are nearly all saturated, on
    maps of 100 points a side, the two nearly make up for each other.

    Parameters
    ----------
    x1, x2
        Coordinates of the points, in one unit; the width is the reach of `x1`.
    probability
        Of each class, ``(x1, x2, class)``.
    """
    from contourpy import LineType, contour_generator

    log = np.log(np.maximum(np.asarray(probability, np.float64), TINY))
    classes, total = log.shape[-1], 0.0
    # Of two classes one has the lines of both; of more, every line is found from both sides.
    for own in range(classes if classes > 2 else 1):
        ahead = log[..., own] - np.delete(log, own, axis=-1).max(axis=-1)
        lines = contour_generator(x1, x2, ahead.T, line_type=LineType.Separate).lines(0.0)
        total += sum(np.hypot(*np.diff(line, axis=0).T).sum() for line in lines)
    return float(total / (2 if classes > 2 else 1) / (x1[-1] - x1[0]))


def class_measures(probability: np.ndarray) -> dict[str, float]:
    """Numbers of functions that give class probabilities.

    ``constant`` is the share of functions whose most probable class is the same at all inputs;
    ``expected_entropy`` the entropy of one function's probabilities, a mean over inputs and
    functions, and ``entropy`` that of their mean over functions, both in nats; ``common_class``
    the larger of a function's mean class probabilities over inputs, its mean over functions and
    its standard deviation ``common_class_sd``.

    Parameters
    ----------
    probability
        ``(draw, observation, class)``.
    """
    p = np.asarray(probability, np.float64)
    label = p.argmax(axis=-1)
    numbers = share("constant", (label == label[:, :1]).all(axis=1))
    numbers |= mean("expected_entropy", entropy(p).mean(axis=1))
    numbers |= {"entropy": float(entropy(p.mean(axis=0)).mean())}
    blocks = [part.mean(axis=0) for part in np.array_split(p, min(BLOCKS, len(p)))]
    entropies = [entropy(others).mean() for others in without_each(blocks)]
    numbers |= {"entropy_mcse": jackknife_error(entropies)}
    common = p.mean(axis=1).max(axis=-1)
    return numbers | mean("common_class", common) | {"common_class_sd": float(common.std())}


def number_measures(function: np.ndarray, noise: np.ndarray) -> dict[str, float]:
    """Numbers of functions that give numbers; medians, which heavy tails have as well.

    ``output_range`` is the median over functions of largest less smallest value at the inputs,
    ``output_sd`` the median over inputs of the half width of the central 68 % of the functions;
    ``noise`` the median standard deviation of the noise; all in the units of the targets.

    Parameters
    ----------
    function
        ``(draw, observation)``.
    noise
        Standard deviations, ``(draw, observation)`` or ``(draw, 1)``.
    """
    low, high = np.quantile(function, (0.16, 0.84), axis=0)
    return (
        median("output_range", np.ptp(function, axis=1))
        | {"output_sd": float(np.median((high - low) / 2))}
        | median("noise", np.median(noise, axis=1))
    )


def for_target(numbers: dict[str, float], target: str) -> dict[str, float]:
    """Numbers of one of several targets: its name stands in theirs, before ``_mcse``."""
    return {
        f"{name.removesuffix('_mcse')}_{target}{'_mcse' * name.endswith('_mcse')}": value
        for name, value in numbers.items()
    }


def mean(name: str, values: np.ndarray) -> dict[str, float]:
    """Mean over draws, ``(draw,)``, and its error."""
    error = values.std(ddof=1) / np.sqrt(len(values))
    return {name: float(values.mean()), f"{name}_mcse": float(error)}


def share(name: str, is_one: np.ndarray) -> dict[str, float]:
    """Share of draws that something is true of, and its error.

    References
    ----------
    Agresti and Coull (1998), Approximate is better than "exact" for interval estimation of binomial
    proportions: the error of two more successes and two more failures, which is not zero where
    all draws say the same.
    """
    draws = len(is_one) + 4
    p = (is_one.sum() + 2) / draws
    return {name: float(is_one.mean()), f"{name}_mcse": float(np.sqrt(p * (1 - p) / draws))}


def median(name: str, values: np.ndarray) -> dict[str, float]:
    """Median over draws, ``(draw,)``, and its error.

    References
    ----------
    Maritz and Jarrett (1978), A note on estimating the variance of the sample median.
    """
    from scipy.stats.mstats import mjci

    middle = np.median(values)
    # Rounding may take the variance of draws far from zero below it.
    with np.errstate(invalid="ignore"):
        error = mjci(values - middle, prob=[0.5])[0]
    return {name: float(middle), f"{name}_mcse": float(error)}


# Evaluation of the prior of a cell on its data set


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
        Numbers by name, with their Monte-Carlo errors; see `class_measures`, `number_measures` and
        `ScaleMatch`.
    groups
        Groups that figures are drawn of: ``predictions`` over the plane as a trace has it, with
        single functions beside it; or ``curve_1``, ... on lines, and ``rows``; none of images. And
        ``match`` where scales were matched to a Gaussian process, as `match_functions` has it.
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
        evaluation.numbers.update(mean("saturated", np.concatenate(saturated)))
    match = match_functions(cell, dataset)
    if match is None:
        return evaluation
    numbers, groups = evaluation.numbers | match.attrs, evaluation.groups | {GROUP: match}
    return PriorEvaluation(numbers, groups)


def _drawn(
    cell: Cell, dataset: Dataset, functions: PriorFunctions, random_seed: int
) -> Iterator[np.ndarray]:
    """Functions drawn from a cell's prior, some at a time."""
    rows = dataset.training.take([0])
    hyperprior = matched(cell.hyperprior, cell.prior, cell.network, dataset.training)
    model = build_model(cell.network, cell.prior, hyperprior, cell.likelihood, rows)
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
    numbers = class_measures(np.concatenate(at_rows))
    if plane is None:
        return PriorEvaluation(numbers, {})
    numbers |= mean("boundary_length", np.array(plane.lengths))
    return PriorEvaluation(numbers, {"predictions": plane.group(list(dataset.classes))})


class _Plane:
    """Running moments of class probabilities over a map, boundaries, and the first functions."""

    def __init__(self, x1: np.ndarray, x2: np.ndarray, x: np.ndarray) -> None:
        self.x1, self.x2, self.x = x1, x2, x
        # Lengths are those of the map as it is drawn: inputs of different units have a square one.
        self.drawn = np.linspace(0, 1, len(x1)), np.linspace(0, shape_of(self), len(x2))
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
        self.lengths += [boundary_length(*self.drawn, one) for one in maps]
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
        numbers |= for_target(target_numbers, names[i]) if names else target_numbers
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
    numbers = number_measures(mean + sd * outputs, sd * noise)
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
