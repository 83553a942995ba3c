"""The posterior of a stored cell, from its trace: to draw from and to predict with."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from pmbnn.data import DataError, DatasetSpec
from pmbnn.data.arrays import Dataset, Rows, Standardisation
from pmbnn.experiment.plugins import trusting
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.guides import build_guide
from pmbnn.inference.samplers.chains import Chains, Convergence, Evidence, Samples
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.inference.settings import Inference
from pmbnn.models.build import NetworkParts
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.prediction.draws import GuideDraws, KeptDraws
from pmbnn.prediction.posterior import Posterior
from pmbnn.prediction.predictor import NetworkModel
from pmbnn.results.present import ResultsError
from pmbnn.results.reading import target_standardisation
from pmbnn.results.record import CellRecord
from pmbnn.results.specifications import stored_specifications


def restored_posterior(
    record: CellRecord, folder: Path, trace: xr.DataTree, trust_plugins: bool = False
) -> Posterior:
    """The posterior of a stored cell; see `pmbnn.results.restore_cell`."""
    with trusting(trust_plugins):
        specs = stored_specifications(folder, record)
    row, standardisation = _first_row(trace, specs["dataset"])
    hyperprior = record.fitted_hyperprior(specs["hyperprior"])
    training = partial(_training_rows, record, specs["dataset"])
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


def fitted_dataset(record: CellRecord, spec: DatasetSpec) -> Dataset:
    """The data of a stored cell; a DataError if they are unavailable or have changed."""
    dataset = spec.load()
    if dataset.fingerprint != record.fingerprint:
        raise DataError(f"The data of cell `{record.name}` are not those it was fitted on.")
    return dataset


def _training_rows(record: CellRecord, spec: DatasetSpec) -> Rows:
    return fitted_dataset(record, spec).training


def _sources(
    record: CellRecord, trace: xr.DataTree, network: NetworkModel, settings: Inference | Sampling
) -> dict[str, Any]:
    """Arguments of `Posterior` with guides of finite restarts, or with draws of chains."""
    if isinstance(settings, Sampling):
        values = trace["draws"]["values"].values
        chains = dict(enumerate(map(KeptDraws.spread, values)))
        weights = _chain_weights(record, trace["draws"].dataset, settings)
        samples = _samples(record, values)
        return {"sources": chains, "weights": weights, "best": 0, "samples": samples}
    history = trace["fit"].to_dataset()
    statuses = json.loads(history.attrs["status"])
    finite = [i for i, status in enumerate(statuses) if status != "diverged"]
    flat = flatten_model(network.graph_model, rows=None)
    guide = build_guide(settings, flat.size, flat.improper, flat.spread)
    kept = trace["guide"].to_dataset().sel(restart=finite)
    return {
        "sources": dict(zip(finite, GuideDraws.from_arrays(guide, kept), strict=True)),
        "weights": {i: float(history["weight"].values[i]) for i in finite},
        "best": int(history.attrs["best"]),
        "history": history,
    }


def _chain_weights(record: CellRecord, draws: xr.Dataset, settings: Sampling) -> dict[int, float]:
    """Weight of each chain in the cell's predictions, by number."""
    if "weight" in draws:
        return dict(enumerate(draws["weight"].values.tolist()))
    if getattr(settings, "pooling", "equal") != "equal":
        raise ResultsError(
            f"The cell `{record.name}` was stored without the weights of its chains, by an earlier "
            "version. Fit the experiment again."
        )
    return dict.fromkeys(range(draws.sizes["chain"]), 1 / draws.sizes["chain"])


def _samples(record: CellRecord, values: np.ndarray) -> Samples:
    """Chains as far as a trace keeps them, with convergence and evidence from the record."""
    chains = Chains(values, {}, np.zeros(len(values), bool))
    sampling, evidence = record.sampling, None
    if "log_evidence" in record.results:
        names = ("log_evidence", "log_evidence_mcse")
        evidence = Evidence(*(record.results[name] for name in names))
    agreement = Convergence(sampling.rhat_percentile, sampling.rhat_largest, sampling.draws)
    return Samples(chains, record.status, record.reason, agreement, sampling.tuned, evidence)


def drawn_variables(posterior: Posterior, draws: int) -> xr.Dataset:
    """Posterior draws of every weight and scale; see `pmbnn.results.sample_posterior`."""
    predictor, sources = posterior.predictor, posterior.sources.values()
    if posterior.samples is not None:
        draws = min(source.n_distinct(draws) for source in sources)
    parts = [
        predictor.posterior(posterior.data, predictor.values(source, draws)) for source in sources
    ]
    dim = "restart" if posterior.samples is None else "chain"
    model = posterior.origin.graph_model
    arrays = {
        name: (
            (dim, "draw", *model.named_vars_to_dims.get(name, ())),
            np.stack([part[name] for part in parts]),
        )
        for name in parts[0]
    }
    used = {name for dims, _ in arrays.values() for name in dims}
    labels = {name: list(value) for name, value in model.coords.items() if name in used}
    coords = {dim: [*posterior.sources], "draw": range(draws)}
    return xr.Dataset(arrays, coords | labels)


def _first_row(trace: xr.DataTree, spec: DatasetSpec) -> tuple[Rows, Standardisation]:
    """A row of zeros to build the model on, and the standardisation; the data are not needed."""
    kept, predictions = trace["constant_data"].to_dataset(), trace["test_predictions"]
    mean = kept["standardisation_mean"].values
    stored = kept.attrs.get("input_shape")  # of user data
    shape = spec.input_shape if stored is None else tuple(json.loads(stored))
    features = tuple(f"pixel_{pixel}" for pixel in range(len(mean)))
    for group in ("posterior", "constant_data"):
        if "feature" in trace[group].coords:
            features = _labels(trace[group], "feature")
    classes, targets = _labels(predictions, "output"), _labels(predictions, TARGET_NAME)
    target = np.zeros((1, len(targets)) if targets else 1, np.int64 if classes else np.float64)
    standardisation = Standardisation(mean, kept["standardisation_sd"].values)
    maps = standardisation, target_standardisation(trace)
    x = np.zeros((1, len(mean)))
    return Rows(x, target, features, classes, shape, targets, *maps), standardisation


def _labels(group: xr.DataTree, dim: str) -> tuple[str, ...]:
    """Labels of a dimension; none where a group does not have it."""
    return tuple(map(str, group.coords[dim].values)) if dim in group.coords else ()
