"""A stored cell made ready to draw from and to predict with, from what its trace keeps."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pymc as pm
import xarray as xr

from pmbnn.data import DataError, DatasetSpec
from pmbnn.data.arrays import Rows, Standardisation
from pmbnn.experiment.plugins import trusting
from pmbnn.inference.result import StoredGuide
from pmbnn.models.build import build_model, model_data
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.models.priors import Fixed
from pmbnn.prediction.predictor import Predictor
from pmbnn.prediction.stored_draws import StoredDraws, kept_draws
from pmbnn.results.loading import StoredCell
from pmbnn.results.present import check_present
from pmbnn.results.reading import target_standardisation
from pmbnn.results.record import CellRecord
from pmbnn.results.specifications import stored_specifications
from pmbnn.results.store import Results, ResultsError
from pmbnn.spec import Specification
from pmbnn.spec.display import Summarised
from pmbnn.spec.errors import check_whole

SHOWN_CELLS = 5
"""Cells that a message names of those there are."""


@dataclass(frozen=True, repr=False)
class Restored(Summarised):
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
        Guides that did not diverge, by the number of their restart; or the draws of each chain.
    weights
        Weights of those that the cell predicts with, by number; their sum is 1.
    """

    record: CellRecord
    trace: xr.DataTree
    dataset: DatasetSpec
    standardisation: Standardisation
    model: pm.Model
    predictor: Predictor
    data: Mapping[str, np.ndarray]
    fits: Mapping[int, StoredGuide]
    weights: Mapping[int, float]

    @property
    def target_standardisation(self) -> Standardisation:
        """The map from targets in their own units to those that the predictor speaks of.

        Predictions of numbers take it by `Predictive.in_units_of`.
        """
        return target_standardisation(self.trace)


def restore_cell(cell: Path | str | StoredCell, trust_plugins: bool = False) -> Restored:
    """A stored cell, ready to draw from and to predict with.

    The data set is loaded only where the trace does not keep its standardisation, as those of
    large networks did not at first.

    Parameters
    ----------
    cell
        A cell of `load_results`, or its folder, ``results/<experiment>/cells/<name>``.
    trust_plugins
        Whether to run the copies of plugins that the results folder keeps, where the plugins
        themselves are not there as they were when the cell was fitted.

    Raises
    ------
    ResultsError
        If there is no such cell, it is superseded, it failed, it was stored by another version, or
        needs a plugin that is not there as it was.
    TypeError
        If it is something else.
    DataError
        If the data set is needed and is no longer available, or has changed.
    """
    cell = cell_folder(cell)
    record, trace = _stored(cell)
    with trusting(trust_plugins):
        specs = stored_specifications(cell, record)
    described = _described(trace, specs["dataset"]) or _loaded(cell, record, specs["dataset"])
    rows, standardisation = described
    hyperprior = specs["hyperprior"].candidates[0]
    if isinstance(hyperprior, Fixed):
        hyperprior = Fixed(scale=record.results["scale"])
    model = build_model(specs["network"], specs["prior"], hyperprior, specs["likelihood"], rows)
    predictor, fits, weights = _predicting(trace, model, specs)
    return Restored(
        record=record,
        trace=trace,
        dataset=specs["dataset"],
        standardisation=standardisation,
        model=model,
        predictor=predictor,
        data=model_data(hyperprior, rows, specs["likelihood"]),
        fits=fits,
        weights=weights,
    )


def restored(cell: object, trust_plugins: bool = False) -> Restored:
    """A cell that was restored already, or is restored now."""
    return cell if isinstance(cell, Restored) else restore_cell(cell, trust_plugins)


def _predicting(
    trace: xr.DataTree, model: pm.Model, specs: Mapping[str, Specification]
) -> tuple[Predictor, dict[int, StoredGuide], dict[int, float]]:
    """What predicts, what it takes of each restart or chain, and their weights, by number."""
    if "draws" in trace.children:
        values = trace["draws"]["values"].values
        share = 1 / len(values)
        chains = dict(enumerate(map(kept_draws, values)))
        return StoredDraws(model, specs["likelihood"]), chains, dict.fromkeys(chains, share)
    weights = {int(i): float(w) for i, w in enumerate(trace["fit"]["weight"].values) if w > 0}
    guides = {int(i): _guide(trace["guide"], i) for i in _alive(trace)}
    return Predictor(model, specs["likelihood"], specs["inference"]), guides, weights


def cell_folder(cell: object) -> Path:
    """Folder of a cell that Python code names by it, or has opened."""
    if isinstance(cell, StoredCell):
        return cell.folder
    if isinstance(cell, str | os.PathLike):
        return Path(cell)
    raise TypeError(
        "`cell` must be a cell of `load_results`, as `results.cell(...)` gives one, or a cell's "
        f"folder, got {type(cell).__name__}."
    )


def sample_posterior(
    cell: Path | str | StoredCell | Restored, draws: int, trust_plugins: bool = False
) -> xr.Dataset:
    """Posterior draws of every weight and scale of a stored cell.

    The first draws are those that the cell's predictions and its trace were made with. Of a sampled
    cell they are spread over those that were kept.

    Parameters
    ----------
    cell
        A cell as `restore_cell` takes it, or what that has made of it.
    draws
        Draws of each restart, or of each chain at most.
    trust_plugins
        As that of `restore_cell`.

    Returns
    -------
    xr.Dataset
        Variables with dims ``(restart, draw, ...)``, of restarts that did not diverge, or
        ``(chain, draw, ...)``.

    Raises
    ------
    ResultsError, DataError
        As `restore_cell` does.
    """
    it, draws = restored(cell, trust_plugins), check_whole(draws, "draws")
    fits, of_one = it.fits.values(), "chain" if it.record.sampling else "restart"
    if it.record.sampling:
        draws = min(it.predictor.n_distinct(fit, draws) for fit in fits)
    found = [it.predictor.posterior(it.data, it.predictor.values(fit, draws)) for fit in fits]
    return _dataset(found, of_one, list(it.fits), draws, it.model)


def _stored(cell: Path) -> tuple[CellRecord, xr.DataTree]:
    """Record and trace of a finished cell."""
    results = Results(cell.parent.parent)
    if cell.parent.name != "cells" or not results.is_finished(cell.name):
        raise ResultsError(
            f"`{cell}` must be the folder of a stored cell, results/<experiment>/cells/<name>; "
            f"{_found(cell)}."
        )
    check_present(cell)
    try:
        record = results.load_record(cell.name)
        if not record.results:
            raise ResultsError(f"The cell `{cell}` has no fit: {record.reason}.")
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
    if "standardisation_mean" not in kept:
        return None
    if classes is None and not spec.is_own and spec.targets == "classes":
        return None
    standardisation = Standardisation(
        kept["standardisation_mean"].values, kept["standardisation_sd"].values
    )
    features = _features(trace, spec, len(standardisation.mean))
    if features is None:
        return None
    row = np.zeros((1, len(features)))
    names = () if classes is None else tuple(str(name) for name in classes.values)
    target = np.zeros(1, np.float64 if classes is None else np.int64)
    of_targets = trace["test_predictions"].coords.get(TARGET_NAME)
    several = () if of_targets is None else tuple(str(name) for name in of_targets.values)
    if several:
        target = np.zeros((1, len(several)))
    rows = Rows(row, target, features, names, _input_shape(kept, spec), several)
    return rows, standardisation


def _input_shape(kept: xr.Dataset, spec: DatasetSpec) -> tuple[int, ...]:
    """What a row stands for; data of one's own need not be there to tell."""
    stored = kept.attrs.get("input_shape")
    return spec.input_shape if stored is None else tuple(json.loads(stored))


def _features(trace: xr.DataTree, spec: DatasetSpec, count: int) -> tuple[str, ...] | None:
    """Names of the input features, None if the trace does not tell."""
    for group in ("constant_data", "posterior"):
        if "feature" in trace[group].coords:
            return tuple(str(name) for name in trace[group].coords["feature"].values)
    stored = trace["constant_data"].attrs.get("input_shape")
    if spec.image_shape is not None if stored is None else len(json.loads(stored)) > 1:
        return tuple(f"pixel_{pixel}" for pixel in range(count))
    return None


def _loaded(cell: Path, record: CellRecord, spec: DatasetSpec) -> tuple[Rows, Standardisation]:
    """The same from the data set that the cell was fitted on."""
    dataset = spec.load()
    if dataset.fingerprint != record.fingerprint:
        raise DataError(f"The data of cell `{cell.name}` are not those it was fitted on.")
    return dataset.training.take([0]), dataset.standardisation


def _alive(trace: xr.DataTree) -> list[int]:
    """Numbers of the restarts that did not diverge."""
    statuses = json.loads(trace["fit"].attrs["status"])
    return [i for i, status in enumerate(statuses) if status != "diverged"]


def _guide(group: xr.DataTree, restart: int) -> StoredGuide:
    """A restart's guide, whose draws are those that were made of it when it was fitted."""
    kept = group.to_dataset().sel(restart=restart)
    constrained = {name: kept[name].values for name in kept if name != "draw_key"}
    return StoredGuide(constrained, kept["draw_key"].values)


def _dataset(parts: list[dict], of_one: str, numbers: list[int], draws: int, model) -> xr.Dataset:
    """Variables of each restart or chain, which `of_one` says."""
    arrays = {
        name: ((of_one, "draw", *model.named_vars_to_dims.get(name, ())), stacked)
        for name in parts[0]
        for stacked in [np.stack([found[name] for found in parts])]
    }
    used = {dim for dims, _ in arrays.values() for dim in dims}
    labels = {name: list(value) for name, value in model.coords.items() if name in used}
    return xr.Dataset(arrays, coords={of_one: numbers, "draw": range(draws)} | labels)
