"""Snapshots of a fit: scores of the guide at chosen steps, and histograms of its weights."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from pmbnn.data.arrays import Dataset
from pmbnn.fitting.fit import InferredCell
from pmbnn.fitting.image_evaluation import ImageEvaluation, pixels
from pmbnn.inference.result import Snapshot
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.predictor import Predictor

BINS = 60
"""Bins of the histograms of weights."""

LAYER = re.compile(r"(?:weight|bias)_\d+")

SCORES = ("accuracy", "log_likelihood", "elbo", "evidence")

EXAMPLES, EXAMPLE_DRAWS = 8, 50
"""Images of each kind whose single draws are kept, and the number of those."""


@dataclass(frozen=True)
class Diagnosis:
    """The best restart of a cell at some steps.

    Attributes
    ----------
    fit
        Variables of the group ``fit`` of a trace. ``snapshot_step`` and ``snapshot_kl``, the
        divergence over the number of training rows, ``(snapshot,)``. ``snapshot_accuracy``,
        ``snapshot_log_likelihood``, ``snapshot_elbo``, ``snapshot_evidence``,
        ``(part, snapshot)``, nats an observation, for the parts ``train``, ``validation`` if rows
        are set aside, ``test``: the log-likelihood is the mean over draws; the ELBO has the fit's
        own KL weight; the evidence is its exponential over the number of classes. Histograms of
        posterior means and standard deviations of each tensor of weights or biases:
        ``mean_edge`` and ``sd_edge``, ``(tensor, edge)``, ``snapshot_mean_density`` and
        ``snapshot_sd_density``, ``(snapshot, tensor, bin)``.
    examples
        Group ``snapshot_examples``: images with class probabilities of single draws, and the share
        of each set's images with no class above the threshold (``rejected``). None unless the rows
        are images.
    """

    fit: xr.Dataset
    examples: xr.Dataset | None

    def numbers(self) -> dict[str, Any]:
        """Entries of a record: lists over the steps, those of each part under its name."""
        scores = {name: self.fit[f"snapshot_{name}"] for name in SCORES}
        parts = {
            str(part): {name: score.values[i].tolist() for name, score in scores.items()}
            for i, part in enumerate(self.fit["part"].values)
        }
        steps, kl = (self.fit[f"snapshot_{name}"].values.tolist() for name in ("step", "kl"))
        return {"step": steps, "kl": kl, "parts": parts}


def diagnose(
    fitted: InferredCell, dataset: Dataset, predictor: Predictor, images: ImageEvaluation | None
) -> Diagnosis | None:
    """The best restart at the steps in its settings; None where there are none."""
    if fitted.samples is not None or not fitted.fits[fitted.best].snapshots:
        return None
    snapshots, best = fitted.fits[fitted.best].snapshots, fitted.sources[fitted.best]
    sources = [
        replace(best, parameters={name: snapshot.constrained[name] for name in best.parameters})
        for snapshot in snapshots
    ]
    parts = _parts(dataset, fitted.cell.predict.diagnostics.rows)
    draws = fitted.cell.predict.diagnostics.draws
    kl = np.array([snapshot.kl for snapshot in snapshots]) / len(dataset.y_train)
    accuracy, log_likelihood = np.empty((2, len(parts), len(kl)))
    for n, source in enumerate(sources):
        for i, (x, label) in enumerate(parts.values()):
            predictive = predictor.predict([source], [1.0], fitted.data, x, draws)
            accuracy[i, n] = np.mean(predictive.predicted == label)
            by_label = np.take_along_axis(predictive.mean_log, label[:, None], axis=1)
            log_likelihood[i, n] = float(np.mean(by_label))
    elbo = log_likelihood - fitted.cell.inference.kl_weight * kl
    with np.errstate(under="ignore"):
        evidence = np.exp(elbo / len(dataset.classes))
    spread = [
        _spread(snapshot, source, fitted.data, predictor, draws)
        for snapshot, source in zip(snapshots, sources, strict=True)
    ]
    steps = ("snapshot", [snapshot.step for snapshot in snapshots])
    arrays = {"snapshot_step": steps, "snapshot_kl": ("snapshot", kl)}
    for i, name in enumerate(("mean", "sd")):
        edges, densities = _histograms([{k: v[i] for k, v in one.items()} for one in spread])
        arrays[f"{name}_edge"] = ("tensor", "edge"), edges
        arrays[f"snapshot_{name}_density"] = ("snapshot", "tensor", "bin"), densities
    for name, score in zip(SCORES, (accuracy, log_likelihood, elbo, evidence), strict=True):
        arrays[f"snapshot_{name}"] = ("part", "snapshot"), score
    fit = xr.Dataset(arrays, {"part": list(parts), "tensor": list(spread[0])})
    if images is None:
        return Diagnosis(fit, None)
    examples = _examples(fitted, dataset, predictor, images, sources)
    return Diagnosis(fit, examples.assign(snapshot_step=steps))


def _parts(dataset: Dataset, rows: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    parts = {"train": (dataset.x_train, dataset.y_train)}
    if dataset.x_validation is not None:
        parts["validation"] = (dataset.x_validation, dataset.y_validation)
    parts["test"] = (dataset.x_test, dataset.y_test)
    return {name: (x[:rows], label[:rows]) for name, (x, label) in parts.items()}


def _spread(
    snapshot: Snapshot,
    source: GuideDraws,
    data: Mapping[str, np.ndarray],
    predictor: Predictor,
    draws: int,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Posterior means and standard deviations of every weight, by the name of their tensor.

    Exact where the guide is one of the weights themselves, else from draws.
    """
    slots = {slot.name: slot for slot in predictor.flat.layout.slots}
    names = [name for name in predictor.flat.posterior if LAYER.fullmatch(name)]
    drawn: Mapping[str, np.ndarray] = {}
    if not slots.keys() >= set(names):
        drawn = predictor.posterior(data, predictor.values(source, draws))
    moments = {}
    for name in names:
        if name in slots:
            mean, sd = (slots[name].of(v) for v in (snapshot.constrained["loc"], snapshot.scale))
        else:
            mean, sd = drawn[name].mean(axis=0), drawn[name].std(axis=0)
        moments[name] = mean.ravel(), sd.ravel()
    return moments


def _histograms(snapshots: list[dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Edges ``(tensor, bin + 1)`` that all snapshots share, and densities."""
    edges, densities = [], []
    for name in snapshots[0]:
        values = [snapshot[name] for snapshot in snapshots]
        low, high = np.percentile(np.concatenate(values), [0.1, 99.9])
        # All the same, as the scales are at the start: a bin still needs a width.
        reach = max(0.02 * (high - low), 1e-6 + 1e-3 * abs(high))
        edges.append(np.linspace(low - reach, high + reach, BINS + 1))
        counts = np.array([np.histogram(v, edges[-1])[0] for v in values])
        densities.append(counts / (values[0].size * np.diff(edges[-1])))
    return np.array(edges), np.stack(densities, axis=1)


def _examples(
    fitted: InferredCell,
    dataset: Dataset,
    predictor: Predictor,
    images: ImageEvaluation,
    sources: Sequence[GuideDraws],
) -> xr.Dataset:
    """Single images at every snapshot."""
    settings = fitted.cell.predict
    raw = dataset.standardisation.undo(dataset.x_test[: settings.diagnostics.rows])
    sets = {"test": (raw, [dataset.classes[i] for i in dataset.y_test[: len(raw)]])}
    for name, ood in images.ood.items():
        if name.endswith("_noise"):
            sets[name] = (ood.images.x, list(ood.images.labels))
    x = np.concatenate([raw[:EXAMPLES] for raw, _ in sets.values()])
    labels = [label for _, labels in sets.values() for label in labels[:EXAMPLES]]
    kinds = [name for name, (raw, _) in sets.items() for _ in raw[:EXAMPLES]]

    def probability(source: GuideDraws) -> np.ndarray:
        inputs = dataset.standardisation(x)
        drawn = predictor.single_draws(source, fitted.data, inputs, EXAMPLE_DRAWS)
        return drawn["probability"]

    def rejected(source: GuideDraws, raw: np.ndarray) -> float:
        inputs, draws = dataset.standardisation(raw), settings.diagnostics.draws
        mean = predictor.predict([source], [1.0], fitted.data, inputs, draws).mean
        return float(np.mean(mean.max(axis=1) <= settings.confidence_threshold))

    probabilities = np.stack([probability(source) for source in sources]).astype("f4")
    shares = np.array([[rejected(s, raw) for raw, _ in sets.values()] for s in sources])
    return xr.Dataset(
        {
            "probability": (("snapshot", "draw", "example", "output"), probabilities),
            "image": pixels(x, dataset.input_shape, "example"),
            "label": ("example", np.array(labels, dtype=object)),
            "kind": ("example", np.array(kinds, dtype=object)),
            "rejected": (("snapshot", "set"), shares),
        },
        coords={"output": list(dataset.classes), "set": list(sets)},
        attrs={
            "confidence_threshold": settings.confidence_threshold,
            "draws_of": f"the guide of restart {fitted.best}, the best, at every snapshot",
        },
    )
