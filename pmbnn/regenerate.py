"""Draw a stored cell's posterior again, in full, from the guide that its trace keeps."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pmbnn.datasets import DataError
from pmbnn.experiment import SOURCES
from pmbnn.fitting import candidates
from pmbnn.inference.fit import Fit, History, Streams
from pmbnn.models import build_model, model_data
from pmbnn.prediction import Predictor
from pmbnn.priors import Fixed
from pmbnn.specification import Specification
from pmbnn.storage import Results


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
    DataError
        If the cell's data set cannot be had any more, or has changed.
    FileNotFoundError
        If there is no such cell, or it failed.
    """
    cell = Path(cell)
    results = Results(cell.parent.parent)
    record, trace = results.load_metrics(cell.name), results.load_trace(cell.name)
    specs = {name: _specification(name, record["settings"][name]) for name in SOURCES}
    dataset = specs["dataset"].load()
    if dataset.fingerprint != record["fingerprint"]:
        raise DataError(f"The data of cell `{cell.name}` are not those it was fitted on.")
    hyperprior = candidates(specs["hyperprior"])[0]
    if isinstance(hyperprior, Fixed):
        hyperprior = Fixed(scale=record["results"]["scale"])
    rows = dataset.training
    model = build_model(specs["network"], specs["prior"], hyperprior, specs["likelihood"], rows)
    predictor, data = Predictor(model, specs["inference"]), model_data(hyperprior, rows)
    fits = {i: _fit(trace["guide"], i) for i in trace["posterior"]["chain"].values}
    chains = [predictor.posterior(data, predictor.values(fit, draws)) for fit in fits.values()]
    return _dataset(chains, list(fits), draws, model)


def _specification(section: str, settings: dict[str, Any]) -> Specification:
    """The specification that a record's settings were written from."""
    source = SOURCES[section]
    cls = source[settings["kind"]] if isinstance(source, dict) else source
    return cls.model_validate_json(json.dumps(settings))


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
