"""Snapshots of a fit: scores of the guide at chosen steps, and histograms of its weights."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pmbnn.data.arrays import Dataset
from pmbnn.fitting.image_evaluation import ImageEvaluation
from pmbnn.fitting.inferred import InferredCell
from pmbnn.inference.result import Snapshot
from pmbnn.prediction.class_probabilities import ClassProbabilities
from pmbnn.prediction.draws import GuideDraws
from pmbnn.prediction.predictor import Predictor

BINS = 60
"""Of the histograms of weights."""

LAYER = re.compile(r"(?:weight|bias)_\d+")

EXAMPLES, EXAMPLE_DRAWS = 8, 50
"""Images of each kind whose single draws are kept, and how many of those."""


@dataclass(frozen=True)
class Diagnosis:
    """The best restart of a cell at some steps; nats an observation.

    Attributes
    ----------
    steps
        ``(snapshot,)``.
    parts
        Rows judged: ``train``, ``validation`` if rows are set aside, ``test``.
    accuracy, log_likelihood, elbo, evidence
        ``(part, snapshot)``. The log-likelihood is the mean over draws; the ELBO has the fit's
        own KL weight; the evidence is its exponential over the number of classes.
    kl
        Divergence over the number of training rows, ``(snapshot,)``.
    tensors
        Weights and biases, by name.
    mean_edges, sd_edges
        Edges of the histograms, ``(tensor, bin + 1)``.
    mean_densities, sd_densities
        Of posterior means and standard deviations, ``(snapshot, tensor, bin)``.
    examples
        Images and what single draws say of them; None unless the rows are images.
    """

    steps: np.ndarray
    parts: tuple[str, ...]
    accuracy: np.ndarray
    log_likelihood: np.ndarray
    kl: np.ndarray
    elbo: np.ndarray
    evidence: np.ndarray
    tensors: tuple[str, ...]
    mean_edges: np.ndarray
    sd_edges: np.ndarray
    mean_densities: np.ndarray
    sd_densities: np.ndarray
    examples: "Examples | None"

    def numbers(self) -> dict[str, Any]:
        """What a record keeps: lists over the steps, those of each part under its name."""
        names = ("accuracy", "log_likelihood", "elbo", "evidence")
        parts = {
            part: {name: getattr(self, name)[i].tolist() for name in names}
            for i, part in enumerate(self.parts)
        }
        return {"step": self.steps.tolist(), "kl": self.kl.tolist(), "parts": parts}


@dataclass(frozen=True)
class Examples:
    """Images at every snapshot.

    Attributes
    ----------
    x
        Raw pixels, ``(example, feature)``.
    kinds, labels
        The set that each comes from, and what it shows.
    probability
        ``(snapshot, draw, example, class)``.
    sets, rejected
        Share of each set's images with no class above the threshold, ``(snapshot, set)``.
    """

    x: np.ndarray
    kinds: tuple[str, ...]
    labels: tuple[str, ...]
    probability: np.ndarray
    sets: tuple[str, ...]
    rejected: np.ndarray


def diagnose(
    fitted: InferredCell,
    dataset: Dataset,
    predictor: Predictor,
    images: ImageEvaluation | None,
) -> Diagnosis | None:
    """The best restart at the steps that its settings name; None where they name none."""
    if fitted.samples is not None or not fitted.fits[fitted.best].snapshots:
        return None
    snapshots, best = fitted.fits[fitted.best].snapshots, fitted.sources[fitted.best]
    sources = [replace(best, parameters=_parameters(best, snapshot)) for snapshot in snapshots]
    parts = _parts(dataset, fitted.cell.predict.diagnostics.rows)
    rows, classes = len(dataset.y_train), len(dataset.classes)
    draws = fitted.cell.predict.diagnostics.draws
    kl = np.array([snapshot.kl for snapshot in snapshots]) / rows
    accuracy, log_likelihood = np.empty((2, len(parts), len(kl)))
    for n, source in enumerate(sources):
        for i, (x, label) in enumerate(parts.values()):
            predictive = predictor.predict([source], [1.0], fitted.data, x, draws)
            accuracy[i, n] = np.mean(predictive.predicted == label)
            log_likelihood[i, n] = _mean_log_likelihood(predictive, label)
    elbo = log_likelihood - fitted.cell.inference.kl_weight * kl
    with np.errstate(under="ignore"):
        evidence = np.exp(elbo / classes)
    spread = [
        _spread(snapshot, source, fitted.data, predictor, draws)
        for snapshot, source in zip(snapshots, sources, strict=True)
    ]
    mean_edges, mean_densities = _histograms([{k: m for k, (m, _) in s.items()} for s in spread])
    sd_edges, sd_densities = _histograms([{k: sd for k, (_, sd) in s.items()} for s in spread])
    return Diagnosis(
        steps=np.array([snapshot.step for snapshot in snapshots]),
        parts=tuple(parts),
        accuracy=accuracy,
        log_likelihood=log_likelihood,
        kl=kl,
        elbo=elbo,
        evidence=evidence,
        tensors=tuple(spread[0]),
        mean_edges=mean_edges,
        sd_edges=sd_edges,
        mean_densities=mean_densities,
        sd_densities=sd_densities,
        examples=None if images is None else _examples(fitted, dataset, predictor, images, sources),
    )


def _parameters(source: GuideDraws, snapshot: Snapshot) -> dict[str, np.ndarray]:
    """Parameters of the guide of a snapshot."""
    return {name: snapshot.constrained[name] for name in source.parameters}


def _parts(dataset: Dataset, rows: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    parts = {"train": (dataset.x_train, dataset.y_train)}
    if dataset.x_validation is not None:
        parts["validation"] = (dataset.x_validation, dataset.y_validation)
    parts["test"] = (dataset.x_test, dataset.y_test)
    return {name: (x[:rows], label[:rows]) for name, (x, label) in parts.items()}


def _mean_log_likelihood(predictive: ClassProbabilities, label: np.ndarray) -> float:
    return float(np.mean(np.take_along_axis(predictive.mean_log, label[:, None], axis=1)))


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
) -> Examples:
    raw = dataset.standardisation.undo(dataset.x_test[: fitted.cell.predict.diagnostics.rows])
    sets = {"test": (raw, [dataset.classes[i] for i in dataset.y_test[: len(raw)]])}
    for name, of_set in images.ood.items():
        if name.endswith("_noise"):
            sets[name] = (of_set.images.x, list(of_set.images.labels))
    first = [(name, x[:EXAMPLES], labels[:EXAMPLES]) for name, (x, labels) in sets.items()]
    x = np.concatenate([of_set for _, of_set, _ in first])
    settings = fitted.cell.predict

    def probability(source: GuideDraws) -> np.ndarray:
        inputs = dataset.standardisation(x)
        drawn = predictor.single_draws(source, fitted.data, inputs, EXAMPLE_DRAWS)
        return drawn["probability"]

    def rejected(source: GuideDraws, raw: np.ndarray) -> float:
        inputs, draws = dataset.standardisation(raw), settings.diagnostics.draws
        probability = predictor.predict([source], [1.0], fitted.data, inputs, draws).mean
        return float(np.mean(probability.max(axis=1) <= settings.confidence_threshold))

    return Examples(
        x=x,
        kinds=tuple(name for name, of_set, _ in first for _ in of_set),
        labels=tuple(label for *_, labels in first for label in labels),
        probability=np.stack([probability(source) for source in sources]),
        sets=tuple(sets),
        rejected=np.array([[rejected(s, raw) for raw, _ in sets.values()] for s in sources]),
    )
