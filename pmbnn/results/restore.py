"""A stored cell made ready to draw from and to predict with, from what its trace keeps."""

import json
from dataclasses import dataclass
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
from pmbnn.models.priors import Fixed
from pmbnn.prediction.draws import GuideDraws, KeptDraws
from pmbnn.prediction.posterior import Posterior
from pmbnn.prediction.predictor import NetworkModel
from pmbnn.results.reading import target_standardisation
from pmbnn.results.record import CellRecord
from pmbnn.results.specifications import stored_specifications


def restored_posterior(
    record: CellRecord, folder: Path, trace: xr.DataTree, trust_plugins: bool = False
) -> Posterior:
    """The posterior of a stored cell; see `pmbnn.results.restore_cell`."""
    with trusting(trust_plugins):
        specs = stored_specifications(folder, record)
    training = TrainingRows(folder.name, specs["dataset"], record.fingerprint)
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


def _samples(record: CellRecord, values: np.ndarray) -> Samples:
    """Chains as far as a trace keeps them, with what the record says of all of their draws."""
    chains = Chains(values, {}, np.zeros(len(values), bool))
    found, evidence = record.sampling, None
    if "log_evidence" in record.results:
        names = ("log_evidence", "log_evidence_mcse")
        evidence = Evidence(*(record.results[name] for name in names))
    agreement = Convergence(found.rhat_percentile, found.rhat_largest, found.draws)
    return Samples(chains, record.status, record.reason, agreement, found.tuned, evidence)


def drawn_variables(posterior: Posterior, draws: int) -> xr.Dataset:
    """Posterior draws of every weight and scale; see `pmbnn.results.sample_posterior`."""
    predictor, sources = posterior.predictor, posterior.sources.values()
    if posterior.samples is not None:
        draws = min(source.n_distinct(draws) for source in sources)
    found = [
        predictor.posterior(posterior.data, predictor.values(source, draws)) for source in sources
    ]
    of_one = "restart" if posterior.samples is None else "chain"
    return _dataset(found, of_one, [*posterior.sources], draws, posterior.origin.graph_model)


def _described(trace: xr.DataTree, spec: DatasetSpec) -> tuple[Rows, Standardisation] | None:
    """One row to build the model on, and the standardisation, if the trace tells everything."""
    kept = trace["constant_data"].to_dataset()
    classes = trace["test_predictions"].coords.get("output")
    if "standardisation_mean" not in kept:
        return None
    if classes is None and not spec.is_user_data and spec.task_of_rows == "classification":
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
