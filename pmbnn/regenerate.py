"""A stored cell made ready to draw from and to predict with, from what its trace keeps."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from pydantic import ValidationError

from pmbnn.datasets import DataError, DatasetSpec
from pmbnn.datasets.rows import Rows, Standardisation
from pmbnn.experiment import SOURCES
from pmbnn.fitting import candidates
from pmbnn.inference.fit import Fit, History, Streams
from pmbnn.models import build_model, model_data
from pmbnn.predictors import AnyPredictor, build_predictor
from pmbnn.priors import Fixed
from pmbnn.specification import Specification
from pmbnn.storage import Results, ResultsError

SHOWN_CELLS = 5
"""Cells that a message names of those there are."""


@dataclass(frozen=True)
class Restored:
    """A fitted cell read back.

    Attributes
    ----------
    record
        The numbers of the cell (``metrics.json``).
    trace
        Everything that was kept of it.
    dataset
        What it was fitted on, by its settings.
    standardisation
        The map from raw inputs to those of the network.
    model
        Its PyMC model, on one row: inputs are handed to the predictor.
    predictor, data
        What predicts, and the values of the model's data variables to predict with.
    fits
        Guides that did not diverge, by the number of their restart.
    weights
        Weights of the restarts that the cell predicts with, by number; their sum is 1.
    """

    record: Mapping[str, Any]
    trace: xr.DataTree
    dataset: DatasetSpec
    standardisation: Standardisation
    model: pm.Model
    predictor: AnyPredictor
    data: Mapping[str, np.ndarray]
    fits: Mapping[int, Fit]
    weights: Mapping[int, float]


def restore_cell(cell: Path | str) -> Restored:
    """A stored cell, ready to draw from and to predict with.

    The data set is loaded only where the trace does not keep its standardisation, as those of
    large networks did not at first.

    Parameters
    ----------
    cell
        A cell's folder, ``results/<experiment>/cells/<name>``.

    Raises
    ------
    ResultsError
        If there is no such cell, it failed, or it was stored by another version.
    DataError
        If the data set is needed and cannot be had any more, or has changed.
    """
    cell = Path(cell)
    record, trace = _stored(cell)
    specs = {name: _specification(cell, name, record["settings"]) for name in SOURCES}
    described = _described(trace, specs["dataset"]) or _loaded(cell, record, specs["dataset"])
    rows, standardisation = described
    hyperprior = candidates(specs["hyperprior"])[0]
    if isinstance(hyperprior, Fixed):
        hyperprior = Fixed(scale=record["results"]["scale"])
    model = build_model(specs["network"], specs["prior"], hyperprior, specs["likelihood"], rows)
    weights = {int(i): float(w) for i, w in enumerate(trace["fit"]["weight"].values) if w > 0}
    return Restored(
        record=record,
        trace=trace,
        dataset=specs["dataset"],
        standardisation=standardisation,
        model=model,
        predictor=build_predictor(model, specs["likelihood"], specs["inference"]),
        data=model_data(hyperprior, rows, specs["likelihood"]),
        fits={int(i): _fit(trace["guide"], i) for i in trace["posterior"]["chain"].values},
        weights=weights,
    )


def sample_posterior(cell: Path | str, draws: int) -> xr.Dataset:
    """Posterior draws of every weight and scale of a stored cell.

    The first draws are those that the cell's predictions and its trace were made with.

    Parameters
    ----------
    cell
        A cell's folder, ``results/<experiment>/cells/<name>``.
    draws
        Draws of each restart.

    Returns
    -------
    xr.Dataset
        Variables with dims ``(chain, draw, ...)``; a chain is a restart that did not diverge.

    Raises
    ------
    ResultsError, DataError
        As `restore_cell` does.
    """
    it = restore_cell(cell)
    chains = [
        it.predictor.posterior(it.data, it.predictor.values(fit, draws)) for fit in it.fits.values()
    ]
    return _dataset(chains, list(it.fits), draws, it.model)


def _stored(cell: Path) -> tuple[dict[str, Any], xr.DataTree]:
    """Record and trace of a finished cell."""
    results = Results(cell.parent.parent)
    if cell.parent.name != "cells" or not results.is_finished(cell.name):
        raise ResultsError(
            f"`{cell}` must be the folder of a stored cell, results/<experiment>/cells/<name>; "
            f"{_found(cell)}."
        )
    try:
        record = results.load_metrics(cell.name)
        if not record["results"]:
            raise ResultsError(f"The cell `{cell}` has no fit: {record['reason']}.")
        return record, results.load_trace(cell.name)
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise ResultsError(f"The cell `{cell}` cannot be read: {error}.") from error


def _found(folder: Path) -> str:
    """Cells within a folder that is none, for a message."""
    levels = ("*", "cells/*", "*/cells/*")
    stored = [path.parent for level in levels for path in folder.glob(f"{level}/metrics.json")]
    if not stored:
        return "there are none in it" if folder.is_dir() else "there is no such folder"
    names = ", ".join(str(path) for path in sorted(stored)[:SHOWN_CELLS])
    more = len(stored) - SHOWN_CELLS
    return f"it holds {names}" + (f" and {more} more" if more > 0 else "")


def _described(trace: xr.DataTree, spec: DatasetSpec) -> tuple[Rows, Standardisation] | None:
    """One row to build the model on, and the standardisation, if the trace tells everything."""
    kept = trace["constant_data"].to_dataset()
    classes = trace["test_predictions"].coords.get("output")
    is_of_numbers = spec.n_classes is None
    if "standardisation_mean" not in kept or (classes is None and not is_of_numbers):
        return None
    standardisation = Standardisation(
        kept["standardisation_mean"].values, kept["standardisation_sd"].values
    )
    features = _features(trace, spec, len(standardisation.mean))
    if features is None:
        return None
    row = np.zeros((1, len(features)))
    names = () if is_of_numbers else tuple(str(name) for name in classes.values)
    target = np.zeros(1, np.float64 if is_of_numbers else np.int64)
    rows = Rows(row, target, features, names, spec.input_shape)
    return rows, standardisation


def _features(trace: xr.DataTree, spec: DatasetSpec, count: int) -> tuple[str, ...] | None:
    """Names of the input features, None if the trace does not tell."""
    for group in ("constant_data", "posterior"):
        if "feature" in trace[group].coords:
            return tuple(str(name) for name in trace[group].coords["feature"].values)
    if spec.image_shape is not None:
        return tuple(f"pixel_{pixel}" for pixel in range(count))
    return None


def _loaded(cell: Path, record: Mapping, spec: DatasetSpec) -> tuple[Rows, Standardisation]:
    """The same from the data set that the cell was fitted on."""
    dataset = spec.load()
    if dataset.fingerprint != record["fingerprint"]:
        raise DataError(f"The data of cell `{cell.name}` are not those it was fitted on.")
    return dataset.training.take([0]), dataset.standardisation


def _specification(cell: Path, section: str, settings: Mapping[str, Any]) -> Specification:
    """The specification that a record's settings were written from."""
    source = SOURCES[section]
    try:
        own = settings[section]
        cls = source[own["kind"]] if isinstance(source, dict) else source
        return cls.model_validate_json(json.dumps(own))
    except (KeyError, ValidationError) as error:
        raise ResultsError(
            f"The settings `{section}` of cell `{cell}` are not known to this version: "
            "fit the experiment again."
        ) from error


def _fit(guide: xr.DataTree, chain: int) -> Fit:
    """As much of a fit as drawing from its guide takes."""
    kept = guide.to_dataset().sel(chain=chain)
    empty, nothing = np.zeros(4, dtype=np.uint32), np.empty(0)
    return Fit(
        natural={name: kept[name].values for name in kept if name != "draw_stream"},
        scale=kept["scale"].values,
        history=History(nothing, nothing, nothing, nothing),
        elbo=np.nan,
        status="converged",
        reason="",
        streams=Streams(empty, empty, empty, kept["draw_stream"].values),
    )


def _dataset(chains: list[dict], numbers: list[int], draws: int, model) -> xr.Dataset:
    arrays = {
        name: (("chain", "draw", *model.named_vars_to_dims.get(name, ())), stacked)
        for name in chains[0]
        for stacked in [np.stack([chain[name] for chain in chains])]
    }
    used = {dim for dims, _ in arrays.values() for dim in dims}
    labels = {name: list(value) for name, value in model.coords.items() if name in used}
    return xr.Dataset(arrays, coords={"chain": numbers, "draw": range(draws)} | labels)
