"""Power-scaling sensitivity of sampled posteriors to prior and likelihood: ``sensitivity.csv``.

Prior or likelihood is raised to a power near 1, and draws of the posterior are weighted
accordingly. The sensitivity of a quantity is how fast its distribution changes with the logarithm
of the power.

References
----------
Kallioinen, Paananen, Bürkner and Vehtari (2023), Detecting and diagnosing prior and likelihood
sensitivity with power-scaling.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from pmbnn.core.stages import stage
from pmbnn.data.arrays import Dataset, Rows
from pmbnn.data.base import DataError, DatasetSpec
from pmbnn.results.derived import cells_digest, has_changed, note_files
from pmbnn.results.names import posterior_row
from pmbnn.results.reading import load_arrays, scale_draws
from pmbnn.results.record import CellRecord
from pmbnn.results.specifications import stored_specifications
from pmbnn.results.store import Results, ResultsError

if TYPE_CHECKING:
    from pmbnn.prediction.predictor import DensityParts, Predictor

FILE = "sensitivity.csv"
"""File of a results folder that holds its table."""

ALPHAS = (0.99, 1.01)
"""Powers, as arviz-stats has them by default."""

LEAST_DRAWS = 100
"""Fewer draws do not show the tails of the weights."""

QUARTILES = (0.25, 0.5, 0.75)
"""Test rows that have a quantity of their own, as quantiles of what is predicted of all."""

DIGITS = 6
"""Decimals of a sensitivity, more than are known of it."""

FLOOR_QUANTITIES = 8
"""Number of made-up quantities whose mean is the floor."""

COLUMNS = ("prior_of_weights", "prior_of_scales", "prior", "likelihood")
"""Sensitivities of a quantity; ``prior`` is to both priors together."""


def write_sensitivity(results: Results, records: Sequence[CellRecord]) -> None:
    """Write the table, computing the cells that it lacks; one without rows leaves no file."""
    table = sensitivity_table(results, records, _computed_before(results))
    if results.replace_table(FILE, table):
        note_files(results, [FILE], cells_digest(records))


def _computed_before(results: Results) -> pd.DataFrame | None:
    """The stored table; None where there is none, or where someone has changed it."""
    path = results.folder / FILE
    if not path.is_file() or has_changed(results, FILE):
        return None
    try:
        # As text: rows that are kept are written as they were.
        before = pd.read_csv(path, dtype=str, keep_default_na=False)
    except ValueError:
        return None
    return before if "name" in before else None


def sensitivity_table(
    results: Results, records: Sequence[CellRecord], before: pd.DataFrame | None = None
) -> pd.DataFrame:
    """A row for each sampled cell and quantity.

    Columns: ``sweep``, ``name``, the settings that name the posterior, ``engine``, ``status``,
    ``quantity``; its sensitivity to ``prior_of_weights``, ``prior_of_scales``, ``prior`` (both
    together) and ``likelihood``; ``diagnosis`` by these two in ArviZ's words, whose threshold is
    0.05; ``floor``, the largest of the four for a quantity that is independent of the posterior,
    with the same number of independent draws; ``pareto_k``, the largest k-hat of the weights: above
    0.7 the row is not reliable.

    Fits are left out, whose draws are not of the posterior; so are cells with improper priors,
    large networks or fewer than `LEAST_DRAWS` draws.

    Parameters
    ----------
    before
        A table whose cells are not computed again.
    """
    computed = {} if before is None else dict(tuple(before.groupby("name", sort=False)))
    programs: dict[str, Programs] = {}
    sampled = [record for record in records if record.results and record.cell.samples_posterior]
    tables = []
    with stage("sensitivity", len(sampled), "cell") as report_progress:
        for number, record in enumerate(sampled, 1):
            # A cell's name ends in a digest of all that decides its draws.
            rows = computed.get(record.name)
            tables.append(cell_sensitivity(results, record, programs) if rows is None else rows)
            report_progress(number)
    tables = [rows for rows in tables if len(rows)]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


class Programs(NamedTuple):
    """Programs that cells share which differ in values only."""

    parts: "DensityParts"
    predictor: "Predictor"


def cell_sensitivity(
    results: Results, record: CellRecord, programs: dict[str, Programs] | None = None
) -> pd.DataFrame:
    """Rows of one cell; see `sensitivity_table`.

    Parameters
    ----------
    programs
        Programs compiled for other cells; those compiled here are added.

    Raises
    ------
    ResultsError
        If the cell was fitted, not sampled.
    DataError
        If its data are unavailable, or are no longer those it was sampled on.
    """
    from pmbnn.models.build import model_data

    if not record.cell.samples_posterior:
        raise ResultsError(
            f"The cell `{record.name}` must be sampled: draws of a fit or an ensemble are not of "
            "the posterior, and do not show its sensitivity."
        )
    specs = stored_specifications(results.cells / record.name, record)
    dataset = _load(specs["dataset"], record.fingerprint)
    if dataset.fingerprint != record.fingerprint:
        raise DataError(f"The data of cell `{record.name}` are not those it was sampled on.")
    trace = load_arrays(results, record.name, {"draws": "values"})
    if "draws" not in trace.children:
        return pd.DataFrame()
    # (chain, draw, parameter)
    values = trace["draws"]["values"].transpose("chain", "draw", "parameter").values
    shape, draws = values.shape[:2], values.reshape(-1, values.shape[-1]).astype(np.float64)
    if len(draws) < LEAST_DRAWS or not _is_supported(specs, dataset):
        return pd.DataFrame()
    hyperprior = record.fitted_hyperprior(specs["hyperprior"])
    used = _programs(specs, hyperprior, dataset.training, {} if programs is None else programs)
    data = model_data(hyperprior, dataset.training, specs["likelihood"], specs["prior"])
    test = data | {"x": dataset.x_test, "target": dataset.y_test}
    nll = -used.parts(test, draws)["likelihood"] / len(dataset.y_test)
    quantities = {"mean test NLL": nll} | _predicted(used.predictor, data, draws, dataset)
    quantities |= scale_draws(used.predictor.posterior(data, draws))
    head = {"sweep": record.sweep, "name": record.name, **posterior_row(record.settings)}
    head |= {"engine": record.cell.inference.engine, "status": record.status}
    rows = power_scaled(quantities, used.parts(data, draws), shape)
    return pd.DataFrame([head | row for row in rows])


def power_scaled(
    quantities: Mapping[str, np.ndarray], parts: Mapping[str, np.ndarray], shape: tuple[int, int]
) -> list[dict[str, Any]]:
    """Sensitivities of quantities to the parts of a posterior's log-density, a row a quantity.

    Parameters
    ----------
    quantities
        By name, ``(draw,)``, the draws of all chains one after the other.
    parts
        ``likelihood``, ``weights`` and, where there are any, ``scales``: nats, ``(draw,)``.
    shape
        Chains, and draws of each.
    """
    unrelated = np.random.default_rng(0).standard_normal((FLOOR_QUANTITIES, np.prod(shape)))
    others = {f"unrelated {i}": values for i, values in enumerate(unrelated)}
    table = _sensitivities({**quantities, **others}, parts, shape)
    priors = [part for name, part in parts.items() if name != "likelihood"]
    floor = table.loc[list(others), list(COLUMNS)].max(axis=1).mean()
    k = _largest_k([*priors, sum(priors), parts["likelihood"]])
    rows = table.loc[list(quantities), [*COLUMNS, "diagnosis"]].to_dict("index")
    shared = {"floor": float(floor), "pareto_k": k}
    return [{"quantity": name} | row | shared for name, row in rows.items()]


def _sensitivities(quantities, parts, shape: tuple[int, int]) -> pd.DataFrame:
    """Sensitivities and ArviZ's diagnosis by the names of quantities."""
    from arviz_stats import psense, psense_summary

    def group(arrays: Mapping[str, np.ndarray]) -> xr.Dataset:
        axes = ("chain", "draw")
        coords = {axis: range(n) for axis, n in zip(axes, shape, strict=True)}
        return xr.Dataset({n: (axes, a.reshape(shape)) for n, a in arrays.items()}, coords)

    groups = {"/posterior": group(quantities)}
    groups["/log_likelihood"] = group({"y": parts["likelihood"]})
    groups["/log_prior"] = group({n: part for n, part in parts.items() if n != "likelihood"})
    tree = xr.DataTree.from_dict(groups)
    # The table says what the warnings say.
    logger = logging.getLogger("arviz_stats.psense")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        table = psense_summary(tree, alphas=ALPHAS, round_to=DIGITS)
    finally:
        logger.setLevel(level)
    for name in ("weights", "scales"):
        table[f"prior_of_{name}"] = np.nan
        if name in parts:
            alone = psense(tree, group="prior", group_var_names=[name], alphas=ALPHAS)
            values = {quantity: float(value) for quantity, value in alone.items()}
            table[f"prior_of_{name}"] = pd.Series(values).round(DIGITS)
    return table


def _largest_k(parts: Sequence[np.ndarray]) -> float:
    """Largest Pareto k-hat of the weights that powers of some parts of the density give."""
    from arviz_stats.base import array_stats

    # `psislw` takes what leave-one-out has: the logarithms of the ratios' inverses.
    return float(max(array_stats.psislw(-(a - 1) * part)[1] for part in parts for a in ALPHAS))


@lru_cache(maxsize=8)
def _load(spec: DatasetSpec, _: str) -> Dataset:
    # By the fingerprint as well: another experiment may name a file of its own by the same name.
    return spec.load()


def _is_supported(specs: Mapping[str, Any], dataset: Dataset) -> bool:
    """Whether a cell has a proper prior, a small network and predictions of a type with rows."""
    from pmbnn.experiment.cost import LARGE_NETWORK

    rows, likelihood = dataset.training, specs["likelihood"]
    n_outputs = likelihood.n_outputs(rows.n_classes, rows.n_targets)
    work = specs["network"].multiply_adds(rows.input_shape, n_outputs)
    is_small = work <= LARGE_NETWORK
    return specs["prior"].has_scale and likelihood.predictive in PREDICTED and is_small


def _programs(
    specs: Mapping[str, Any], hyperprior, rows: Rows, programs: dict[str, Programs]
) -> Programs:
    """Programs of a cell's graph, compiled if they are missing."""
    from pmbnn.models.build import build_model
    from pmbnn.prediction.predictor import DensityParts, Predictor

    prior, likelihood, network = (specs[name] for name in ("prior", "likelihood", "network"))
    parts = (network, prior, dict(hyperprior.structure), dict(likelihood.structure))
    key = repr((*parts, rows.input_shape, rows.classes, rows.target_names))
    if key not in programs:
        model = build_model(network, prior, hyperprior, likelihood, rows.take([0]))
        parts = DensityParts(model, own_bias_scale=prior.bias_scale is not None)
        programs[key] = Programs(parts, Predictor(model, likelihood))
    return programs[key]


# Quantities


def _predicted(
    predictor: "Predictor", data: Mapping[str, np.ndarray], values: np.ndarray, dataset: Dataset
) -> dict[str, np.ndarray]:
    """Predictions for a few test rows: those at the quartiles of the posterior mean."""
    from pmbnn.prediction.predictor import spread_rows

    rows = spread_rows(np.arange(len(dataset.y_test)))
    parameters = predictor.parameters(data, values, dataset.x_test[rows])
    predict = PREDICTED[predictor.likelihood.predictive]
    quantities = {}
    for name, predicted in predict(predictor.likelihood, parameters, dataset).items():
        order = np.argsort(predicted.mean(axis=0), kind="stable")
        chosen = [order[round(q * (len(order) - 1))] for q in QUARTILES]
        quantities |= {
            f"{name} at test row {rows[i]}": predicted[:, i] for i in dict.fromkeys(chosen)
        }
    return quantities


def _first_class(likelihood, parameters, dataset: Dataset) -> dict[str, np.ndarray]:
    (probability,) = parameters.values()
    name = f"probability of class {dataset.classes[0]}"
    return {name: np.asarray(probability[..., 0], np.float64)}


def _outputs(likelihood, parameters, dataset: Dataset) -> dict[str, np.ndarray]:
    names = [f"output {name}" for name in dataset.target_names] or ["output"]
    means = (likelihood.components(p).mean() for p in likelihood.by_target(parameters))
    return {name: np.asarray(m, np.float64) for name, m in zip(names, means, strict=True)}


PREDICTED: dict[str, Callable[..., dict[str, np.ndarray]]] = {
    "class_probabilities": _first_class,
    "density": _outputs,
}
"""Quantities by the kind of prediction, ``(draw, observation)`` by their names."""
