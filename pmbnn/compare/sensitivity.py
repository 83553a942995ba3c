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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from pmbnn.core.stages import stage
from pmbnn.data.arrays import Dataset, Rows
from pmbnn.data.base import DataError, DatasetSpec
from pmbnn.models.priors import Fixed
from pmbnn.results.names import posterior_row
from pmbnn.results.reading import load_arrays, scale_draws
from pmbnn.results.record import CellRecord
from pmbnn.results.specifications import stored_specifications
from pmbnn.results.store import Results, ResultsError

if TYPE_CHECKING:
    from pmbnn.prediction.density_parts import DensityParts
    from pmbnn.prediction.predictor import Predictor

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

UNRELATED = 8
"""Number of made-up quantities whose mean is the floor."""

COLUMNS = ("prior_of_weights", "prior_of_scales", "prior", "likelihood")
"""Sensitivities of a quantity; ``prior`` is to both priors together."""


def write_sensitivity(results: Results, records: Sequence[CellRecord]) -> None:
    """Write the table, computing the cells that it lacks; one without rows leaves no file."""
    path = results.folder / FILE
    # As text, so that what is kept is written as it was.
    held = {"dtype": str, "keep_default_na": False}
    before = pd.read_csv(path, **held) if path.is_file() else None
    table = sensitivity_table(results, records, before)
    if table.empty:
        results.remove_table(FILE)
    elif not results.holds_table(FILE, table):
        results.write_table(FILE, table)


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
    known = {} if before is None else dict(tuple(before.groupby("name", sort=False)))
    programs: dict[str, Programs] = {}
    sampled = [record for record in records if record.results and record.cell.is_sampled]
    tables = []
    with stage("sensitivity", len(sampled), "cell") as report_progress:
        for number, record in enumerate(sampled, 1):
            # A cell's name ends in a digest of all that decides its draws.
            held = known.get(record.name)
            tables.append(cell_sensitivity(results, record, programs) if held is None else held)
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

    if not record.cell.is_sampled:
        raise ResultsError(
            f"The cell `{record.name}` must be sampled: draws of a fit are not of the posterior, "
            "and do not show its sensitivity."
        )
    specs, dataset, values = _stored(results, record)
    if values is None or not _has_rows(specs, dataset, values):
        return pd.DataFrame()
    hyperprior = specs["hyperprior"].candidates[0]
    if isinstance(hyperprior, Fixed):
        hyperprior = Fixed(scale=record.results["scale"])
    used = _programs(specs, hyperprior, dataset.training, {} if programs is None else programs)
    data = model_data(hyperprior, dataset.training, specs["likelihood"])
    test = data | {"x": dataset.x_test, "target": dataset.y_test}
    draws = values.reshape(-1, values.shape[-1]).astype(np.float64)
    nll = -used.parts(test, draws)["likelihood"] / len(dataset.y_test)
    quantities = {"mean test NLL": nll} | _predicted(used.predictor, data, draws, dataset)
    quantities |= scale_draws(used.predictor.posterior(data, draws))
    rows = power_scaled(quantities, used.parts(data, draws), values.shape[:2])
    return pd.DataFrame([_head(record) | row for row in rows])


def _stored(
    results: Results, record: CellRecord
) -> tuple[dict[str, Any], Dataset, np.ndarray | None]:
    """Specifications and data of a cell, and the draws kept of it, ``(chain, draw, size)``."""
    specs = stored_specifications(results.cells / record.name, record)
    dataset = _loaded(specs["dataset"], record.fingerprint)
    if dataset.fingerprint != record.fingerprint:
        raise DataError(f"The data of cell `{record.name}` are not those it was sampled on.")
    kept = load_arrays(results, record.name, {"draws": "values"})
    if "draws" not in kept.children:
        return specs, dataset, None
    return specs, dataset, kept["draws"]["values"].transpose("chain", "draw", "parameter").values


def _head(record: CellRecord) -> dict[str, Any]:
    """Columns that name a cell and its posterior."""
    head = {"sweep": record.sweep, "name": record.name, **posterior_row(record.settings)}
    return head | {"engine": record.cell.inference.engine, "status": record.status}


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
    unrelated = np.random.default_rng(0).standard_normal((UNRELATED, np.prod(shape)))
    others = {f"unrelated {i}": values for i, values in enumerate(unrelated)}
    table = _sensitivities({**quantities, **others}, parts, shape)
    priors = [part for name, part in parts.items() if name != "likelihood"]
    floor = table.loc[list(others), list(COLUMNS)].max(axis=1).mean()
    k = _largest_k([*priors, sum(priors), parts["likelihood"]])
    ordered = table.loc[list(quantities), [*COLUMNS, "diagnosis"]].to_dict("index")
    found = ({"quantity": name} | row for name, row in ordered.items())
    return [row | {"floor": float(floor), "pareto_k": k} for row in found]


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
    with _silent("arviz_stats.psense"):
        table = psense_summary(tree, alphas=ALPHAS, round_to=DIGITS)
    for name in ("weights", "scales"):
        table[f"prior_of_{name}"] = np.nan
        if name in parts:
            alone = psense(tree, group="prior", group_var_names=[name], alphas=ALPHAS)
            found = {quantity: float(value) for quantity, value in alone.items()}
            table[f"prior_of_{name}"] = pd.Series(found).round(DIGITS)
    return table


def _largest_k(parts: Sequence[np.ndarray]) -> float:
    """Largest Pareto k-hat of the weights that powers of some parts of the density give."""
    from arviz_stats.base import array_stats

    # It takes what leave-one-out has: the logarithms of the ratios' inverses.
    found = [array_stats.psislw(-(a - 1) * part)[1] for part in parts for a in ALPHAS]
    return float(max(found))


@contextmanager
def _silent(logger: str) -> Iterator[None]:
    """Suppress warnings of a logger: the table has what they say."""
    log = logging.getLogger(logger)
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


@lru_cache(maxsize=8)
def _loaded(spec: DatasetSpec, _: str) -> Dataset:
    # By the fingerprint as well: another experiment may name a file of its own by the same name.
    return spec.load()


def _has_rows(specs: Mapping[str, Any], dataset: Dataset, values: np.ndarray) -> bool:
    """Whether the table has rows for a cell."""
    from pmbnn.experiment.cost import LARGE_NETWORK

    rows = dataset.training
    n_outputs = specs["likelihood"].n_outputs(rows.n_classes, rows.n_targets)
    work = specs["network"].multiply_adds(rows.input_shape, n_outputs)
    known = specs["likelihood"].predictive in PREDICTED
    enough = values.shape[0] * values.shape[1] >= LEAST_DRAWS
    return specs["prior"].has_scale and known and enough and work <= LARGE_NETWORK


def _programs(
    specs: Mapping[str, Any], hyperprior, rows: Rows, programs: dict[str, Programs]
) -> Programs:
    """Programs of a cell's graph, compiled if they are missing."""
    from pmbnn.models.build import build_model
    from pmbnn.prediction.density_parts import DensityParts
    from pmbnn.prediction.predictor import Predictor

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
    of_kind = PREDICTED[predictor.likelihood.predictive]
    found = {}
    for words, predicted in of_kind(predictor.likelihood, parameters, dataset).items():
        order = np.argsort(predicted.mean(axis=0), kind="stable")
        chosen = [order[round(q * (len(order) - 1))] for q in QUARTILES]
        found |= {f"{words} at test row {rows[i]}": predicted[:, i] for i in dict.fromkeys(chosen)}
    return found


def _first_class(likelihood, parameters, dataset: Dataset) -> dict[str, np.ndarray]:
    (probability,) = parameters.values()
    words = f"probability of class {dataset.classes[0]}"
    return {words: np.asarray(probability[..., 0], np.float64)}


def _outputs(likelihood, parameters, dataset: Dataset) -> dict[str, np.ndarray]:
    words = [f"output {name}" for name in dataset.target_names] or ["output"]
    means = (likelihood.components(own).mean() for own in likelihood.by_target(parameters))
    return {w: np.asarray(mean, np.float64) for w, mean in zip(words, means, strict=True)}


PREDICTED: dict[str, Callable[..., dict[str, np.ndarray]]] = {
    "class_probabilities": _first_class,
    "density": _outputs,
}
"""Quantities by the kind of prediction, ``(draw, observation)`` by their names."""
