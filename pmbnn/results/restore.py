"""A stored cell made ready to draw from and to predict with, from what its trace keeps."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pmbnn.data import DataError, DatasetSpec
from pmbnn.data.arrays import Dataset, Rows
from pmbnn.data.standardisation import Standardisation
from pmbnn.experiment.plugins import trusting
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.guides import build_guide
from pmbnn.inference.samplers.chains import Chains, Evidence, Samples
from pmbnn.inference.samplers.convergence import Convergence
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.inference.settings import Inference
from pmbnn.models.build import NetworkParts
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.models.priors import Fixed
from pmbnn.prediction.draws import GuideDraws, KeptDraws
from pmbnn.prediction.posterior import NetworkModel, Posterior
from pmbnn.results.loading import StoredCell
from pmbnn.results.present import check_present
from pmbnn.results.reading import target_standardisation
from pmbnn.results.record import CellRecord
from pmbnn.results.specifications import stored_specifications
from pmbnn.results.store import Results, ResultsError
from pmbnn.spec.errors import check_whole

SHOWN_CELLS = 5
"""Cells that a message names of those there are."""


def restore_cell(cell: Path | str | StoredCell, trust_plugins: bool = False) -> Posterior:
    """The posterior of a stored cell, ready to draw from and to predict with.

    Its predictions are those that the cell was evaluated by. The data set is loaded for what needs
    the training rows (`Posterior.model`, `Posterior.log_joint`), and where the trace does not keep
    its standardisation, as those of large networks did not at first.

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
    cell = open_cell(cell)
    record, trace = cell.record, cell.trace
    with trusting(trust_plugins):
        specs = stored_specifications(cell.folder, record)
    training = TrainingRows(cell.folder.name, specs["dataset"], record.fingerprint)
    described = _described(trace, specs["dataset"]) or training.described()
    row, standardisation = described
    hyperprior = specs["hyperprior"].candidates[0]
    if isinstance(hyperprior, Fixed):
        hyperprior = Fixed(scale=record.results["scale"])
    parts = NetworkParts(specs["network"], specs["prior"], hyperprior, specs["likelihood"], row)
    network = NetworkModel(parts, training, standardisation, target_standardisation(trace))
    common = {
        "origin": network,
        "settings": specs["inference"],
        "status": record.status,
        "reason": record.reason,
        "draws_of": trace["posterior"].attrs["draws_of"],
        "n_draws": specs["predict"].draws,
        "trace": trace,
    }
    return Posterior(**common, **_sources(record, trace, network, specs["inference"]))


@dataclass(frozen=True)
class TrainingRows:
    """The training rows of a stored cell, loaded when they are asked for."""

    cell: str
    spec: DatasetSpec
    fingerprint: str

    def __call__(self) -> Rows:
        """Load them; a DataError if they are unavailable or have changed."""
        return self._dataset().training

    def described(self) -> tuple[Rows, Standardisation]:
        """One of them, and their standardisation."""
        dataset = self._dataset()
        return dataset.training.take([0]), dataset.standardisation

    def _dataset(self) -> Dataset:
        dataset = self.spec.load()
        if dataset.fingerprint != self.fingerprint:
            raise DataError(f"The data of cell `{self.cell}` are not those it was fitted on.")
        return dataset


def _sources(
    record: CellRecord, trace: xr.DataTree, network: NetworkModel, settings: Inference | Sampling
) -> dict[str, Any]:
    """Guides of the restarts that did not diverge, or draws of the chains: parts of a posterior."""
    if isinstance(settings, Sampling):
        values = trace["draws"]["values"].values
        chains = dict(enumerate(map(KeptDraws.spread, values)))
        weights = dict.fromkeys(chains, 1 / len(values))
        samples = _samples(record, values)
        return {"sources": chains, "weights": weights, "best": 0, "samples": samples}
    history = trace["fit"].to_dataset()
    statuses = json.loads(history.attrs["status"])
    alive = [i for i, status in enumerate(statuses) if status != "diverged"]
    flat = flatten_model(network.graph_model, rows=None)
    guide = build_guide(settings, flat.size, flat.improper, flat.spread)
    kept = trace["guide"].to_dataset().sel(restart=alive)
    return {
        "sources": dict(zip(alive, GuideDraws.restored(guide, kept), strict=True)),
        "weights": {i: float(history["weight"].values[i]) for i in alive},
        "best": int(history.attrs["best"]),
        "history": history,
    }


def _samples(record: CellRecord, values: np.ndarray) -> Samples:
    """Chains as far as a trace keeps them, with what the record says of all of their draws."""
    chains = Chains(values, {}, np.zeros(len(values), bool))
    found, evidence = record.sampling, None
    if "log_evidence" in record.results:
        names = ("log_evidence", "log_evidence_mcse")
        evidence = Evidence(*(record.results[name] for name in names))
    agreement = Convergence(found.rhat_percentile, found.rhat_largest, found.draws)
    return Samples(chains, record.status, record.reason, agreement, found.tuned, evidence)


def open_cell(cell: Path | str | StoredCell) -> StoredCell:
    """A stored cell by its folder, unless it is open already, with its trace in memory.

    Raises
    ------
    ResultsError, TypeError
        As `restore_cell` does.
    """
    if not isinstance(cell, StoredCell | str | os.PathLike):
        raise TypeError(
            "`cell` must be a cell of `load_results`, as `results.cell(...)` gives one, or a "
            f"cell's folder, got {type(cell).__name__}."
        )
    folder = cell.folder if isinstance(cell, StoredCell) else Path(cell)
    results = Results(folder.parent.parent)
    if folder.parent.name != "cells" or not results.is_finished(folder.name):
        raise ResultsError(
            f"`{folder}` must be the folder of a stored cell, results/<experiment>/cells/<name>; "
            f"{_found(folder)}."
        )
    check_present(folder)
    try:
        if not isinstance(cell, StoredCell):
            cell = StoredCell(results.load_record(folder.name), folder)
        cell.trace  # noqa: B018
        return cell
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise ResultsError(f"The cell `{folder}` cannot be read: {error}.") from error


def sample_posterior(
    cell: Path | str | StoredCell, draws: int, trust_plugins: bool = False
) -> xr.Dataset:
    """Posterior draws of every weight and scale of a stored cell.

    The first draws are those that the cell's predictions and its trace were made with. Of a sampled
    cell they are spread over those that were kept.

    Parameters
    ----------
    cell
        A cell as `restore_cell` takes it.
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
    posterior, draws = restore_cell(cell, trust_plugins), check_whole(draws, "draws")
    predictor, sources = posterior.predictor, posterior.sources.values()
    if posterior.samples is not None:
        draws = min(source.n_distinct(draws) for source in sources)
    found = [
        predictor.posterior(posterior.data, predictor.values(source, draws)) for source in sources
    ]
    of_one = "restart" if posterior.samples is None else "chain"
    return _dataset(found, of_one, [*posterior.sources], draws, posterior.origin.graph_model)


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
