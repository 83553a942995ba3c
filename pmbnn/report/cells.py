"""A cell as the page shows it: its record, what its trace holds, and names for both."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pmbnn.compare.scores import SCORES
from pmbnn.core.stages import stage
from pmbnn.processes.helpers import ALONE, Helpers
from pmbnn.report.images import Image, figure_image
from pmbnn.results.caveats import choices_at_end, has_converged
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.names import (
    cell_title,
    combination_title,
    dataset_title,
    network_title,
    scale_title,
    title,
)
from pmbnn.results.reading import (
    WEIGHT,
    PlaneMap,
    away_from_zero,
    best_restart,
    last_layer,
    load_arrays,
    plane_map,
    values_of,
)
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results, ResultsError

# The little of a trace that the page draws: how the fit went, the last layer, the maps


WANTED = {
    "fit": "elbo|step",
    "posterior": WEIGHT.pattern,
    "restarts": WEIGHT.pattern,
    "predictions": "probability|sd",
}
"""Arrays by group, as regular expressions."""

MOST_POINTS = 60
"""Points of a line: more cannot be told apart at the width of a small figure."""

MOST_CURVES = 24
"""Weights up to which each has a density of its own; of more, all draws have one together."""

SHOWN = (0.005, 0.995)
"""Quantiles of all draws between which densities are drawn: Cauchy tails reach far."""

QUARTILES_APART = 1.3489795
"""Distance of the quartiles of the standard normal distribution."""


class Training(NamedTuple):
    """Mean ELBO of each window of steps, ``(restart, window)``, and the restart predicted with."""

    step: np.ndarray
    elbo: np.ndarray
    best: int


class Weights(NamedTuple):
    """Posterior of the last layer's weights under the restart predicted with.

    ``density`` is ``(curve, point)``, each scaled to a highest value of 1: a curve for each
    weight, ``away`` telling which leave out zero, or one of all draws where weights are many.
    """

    at: np.ndarray
    density: np.ndarray
    away: np.ndarray


class Parts(NamedTuple):
    """What was found of a trace; parts that it does not have are None."""

    training: Training | None = None
    weights: Weights | None = None
    plane: PlaneMap | None = None


def read_parts(results: Results, name: str) -> Parts:
    """Parts of the trace of a cell, all empty where it has none.

    Raises
    ------
    ResultsError
        If the trace cannot be read.
    """
    path = results.cells / name / "trace.nc"
    if not path.is_file():
        return Parts()
    try:
        trace = load_arrays(results, name, WANTED)
    except OSError as error:
        raise ResultsError(f"The trace `{path}` cannot be read: {error}.") from error
    return Parts(_training(trace), _weights(trace), _plane(trace))


def _training(trace: xr.DataTree) -> Training | None:
    if "fit" not in trace.children or "elbo" not in trace["fit"].dataset:
        return None
    elbo = values_of(trace, "fit", "elbo", "restart", "window")
    step = values_of(trace, "fit", "step")
    kept = np.unique(np.linspace(0, len(step) - 1, MOST_POINTS).round().astype(int))
    return Training(step[kept], elbo[:, kept], best_restart(trace))


def _weights(trace: xr.DataTree) -> Weights | None:
    if not {"fit", "posterior"} <= set(trace.children):
        return None
    try:
        draws = last_layer(trace)
    except ValueError:  # a posterior without weights
        return None
    if len(draws) < 2 or not np.isfinite(draws).all():
        return None
    curves = draws.T if draws.shape[1] <= MOST_CURVES else draws.reshape(1, -1)
    at = np.linspace(*np.quantile(draws, SHOWN), MOST_POINTS)
    return Weights(at, np.array([_density(c, at) for c in curves]), away_from_zero(draws))


def _density(draws: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Density of draws, smoothed by normal kernels of a width that suits both peak and tails."""
    # Silverman's rule with the interquartile range alone, as the standard deviation of Cauchy
    # tails says nothing of the peak, and no narrower than the points are apart.
    low, high = np.quantile(draws, (0.25, 0.75))
    spread = (high - low) / QUARTILES_APART
    width = max(0.9 * spread * len(draws) ** -0.2, at[1] - at[0], np.finfo(float).tiny)
    # Point by point: all weights of a large layer at once would fill the memory.
    density = np.array([np.exp(-0.5 * ((x - draws) / width) ** 2).sum() for x in at])
    return density / max(density.max(), np.finfo(float).tiny)


def _plane(trace: xr.DataTree) -> PlaneMap | None:
    if "predictions" not in trace.children:
        return None
    held = trace["predictions"].dataset
    return plane_map(trace) if {"x1", "x2", "output"} <= set(held.dims) else None


class Figure(NamedTuple):
    """A figure in a cell's folder: its file, and the image of it for the page."""

    path: Path
    image: Image


@dataclass(frozen=True)
class CellView:
    """One cell.

    Attributes
    ----------
    key
        Name of its detail on the page.
    experiment
        Name of the experiment it is of.
    record
        What metrics.json holds.
    added
        Numbers that the page adds to the record: ``standard_error`` of its accuracy, and number
        of last-layer ``weights`` away from zero.
    parts
        What its trace holds.
    figures
        Those in its folder.
    """

    key: str
    experiment: str
    record: CellRecord
    added: Mapping[str, Any]
    parts: Parts
    figures: tuple[Figure, ...]

    @property
    def content(self) -> dict[str, Any]:
        """The record as plain content, with what the page adds: where published numbers look."""
        return self.record.model_dump() | dict(self.added)

    @property
    def words(self) -> Mapping[str, str]:
        """Names of what was set, for tables: sweep, data, network, prior, hyperprior, seed."""
        cell = self.record.cell
        return {
            "sweep": self.record.sweep,
            "data": dataset_title(cell.dataset),
            "network": network_title(cell.network),
            "prior": title(cell.prior),
            "hyperprior": scale_title(cell.hyperprior),
            "seed": str(getattr(cell.dataset, "seed", "")),
        }

    @property
    def title(self) -> str:
        """Data, prior, hyperprior, main score and data seed in words."""
        return f"{cell_title(self.record)}, data seed {self.words['seed']}"

    @property
    def combination(self) -> str:
        """Prior and hyperprior in words."""
        return combination_title(self.record.cell, self.record.chosen_scale)

    @property
    def summary(self) -> str:
        """Its main score, the scale that was chosen, and what there is to say against it."""
        results = self.record.results
        if not results:
            return self.record.status.replace("_", " ")
        words, scale = [], self.record.chosen_scale
        if self.record.predictive in SCORES:
            name, form = SCORES[self.record.predictive].main
            words += [form.format(results[name])] if results.get(name) is not None else []
        words += [f"σ {scale:.2g}"] if scale is not None else []
        words += [] if has_converged(self.record) else ["not converged"]
        return ", ".join(words + choices_at_end(self.record))


def read_cells(folders: Sequence[ExperimentResults], helpers: Helpers = ALONE) -> list[CellView]:
    """Every cell of some folders, each trace and figure opened once; helpers share the reading."""
    owned = [(folder, record) for folder in folders for record in folder.records]
    reads = [partial(_read_cell, folder.results, record.name) for folder, record in owned]
    with stage("reading", len(owned), "cell") as report_progress:
        found = helpers.share(reads, report_progress)
    cells = []
    for number, ((folder, record), (parts, figures)) in enumerate(zip(owned, found, strict=True)):
        added = _added(record, parts)
        cells.append(CellView(f"cell-{number}", folder.name, record, added, parts, figures))
    return cells


def _read_cell(results: Results, name: str) -> tuple[Parts, tuple[Figure, ...]]:
    """What the page shows of a cell's folder: parts of its trace, and its figures."""
    paths = sorted((results.cells / name).glob("*.png"))
    return read_parts(results, name), tuple(Figure(path, figure_image(path)) for path in paths)


def _added(record: CellRecord, parts: Parts) -> dict[str, Any]:
    """Numbers that the page adds to a record."""
    found: dict[str, Any] = {}
    error = accuracy_error(record)
    if error is not None:
        found["standard_error"] = {"accuracy": error}
    if parts.weights is not None:
        away = parts.weights.away
        found["weights"] = {"away_from_zero": int(np.sum(away)), "number": int(away.size)}
    return found


def accuracy_error(record: CellRecord) -> float | None:
    """Standard error of an accuracy on so many test rows; None if they are not known."""
    accuracy = record.results.get("accuracy")
    rows = getattr(record.cell.dataset, "test", None)
    rows = rows or (record.images or {}).get("test", {}).get("size")
    if accuracy is None or not rows:
        return None
    return math.sqrt(accuracy * (1 - accuracy) / rows)
