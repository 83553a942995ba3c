"""Tables of the page, which readers can sort and filter: of cells and of combinations."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from pmbnn.compare.scores import NO_SCORE, SCORES, Column, scores_of
from pmbnn.core.numbers import number_text
from pmbnn.core.stages import stage
from pmbnn.fitting.helpers import ALONE, Helpers
from pmbnn.report.glossary import verdict_text
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.names import (
    cell_title,
    combination_title,
    dataset_title,
    group_by_settings,
    network_title,
    scale_title,
    title,
)
from pmbnn.results.ranking import (
    BEST,
    BETTER,
    EQUIVALENT,
    NOT_WORSE,
    SIGNIFICANTLY_WORSE,
    UNDECIDED,
    WORSE,
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
from pmbnn.results.record import CellRecord, choices_at_end, count, has_converged
from pmbnn.results.store import Results, ResultsError
from pmbnn.results.tables import (
    CORRECTED,
    WHERE_CORRECTED,
    accuracy_error,
    mean_over_seeds,
    of_targets,
    overlap_of,
    score_text,
)

# A cell as the page shows it: its record, parts of its trace, and names for both


# Parts of a trace that the page draws: ELBO of the fit, weights of the last layer, maps


ARRAYS = {
    "fit": "elbo|step",
    "posterior": WEIGHT.pattern,
    "restarts": WEIGHT.pattern,
    "predictions": "probability|sd",
}
"""Arrays that are read, as regular expressions, by group."""

MOST_POINTS = 40
"""Points of a line: more cannot be told apart at the width of a small figure."""

MOST_CURVES = 24
"""Weights up to which each has a density of its own; of more, all draws have one together."""

SHOWN = (0.005, 0.995)
"""Quantiles of all draws between which densities are drawn: Cauchy tails reach far."""

NORMAL_IQR = 1.3489795
"""Distance of the quartiles of the standard normal distribution."""


class Training(NamedTuple):
    """Mean ELBO of each window of steps, ``(restart, window)``, and the restart predicted with."""

    step: np.ndarray
    elbo: np.ndarray
    best: int


class Weights(NamedTuple):
    """Posterior of the last layer's weights under the restart predicted with.

    ``density`` is ``(curve, point)``, each scaled to a highest value of 1: a curve for each
    weight, or one of all draws where weights are many. ``away`` says of each weight whether its
    interval leaves out zero.
    """

    at: np.ndarray
    density: np.ndarray
    away: np.ndarray


class Parts(NamedTuple):
    """Parts of a trace; those that it does not have are None."""

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
        trace = load_arrays(results, name, ARRAYS)
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
    """Kernel density of draws, with a width that suits both peak and tails."""
    # Silverman's rule with the interquartile range alone, as the standard deviation of Cauchy
    # tails says nothing of the peak, and no narrower than the points are apart.
    low, high = np.quantile(draws, (0.25, 0.75))
    spread = (high - low) / NORMAL_IQR
    width = max(0.9 * spread * len(draws) ** -0.2, at[1] - at[0], np.finfo(float).tiny)
    # Point by point: all weights of a large layer at once would fill the memory.
    density = np.array([np.exp(-0.5 * ((x - draws) / width) ** 2).sum() for x in at])
    return density / max(density.max(), np.finfo(float).tiny)


def _plane(trace: xr.DataTree) -> PlaneMap | None:
    if "predictions" not in trace.children:
        return None
    dims = set(trace["predictions"].dataset.dims)
    return plane_map(trace) if {"x1", "x2", "output"} <= dims else None


@dataclass(frozen=True)
class CellView:
    """One cell.

    Attributes
    ----------
    key
        Name of its detail on the page.
    experiment
        Name of its experiment.
    record
        Content of metrics.json.
    added
        Numbers that the page adds to the record: ``standard_error`` of its accuracy, and number
        of last-layer ``weights`` away from zero.
    parts
        Parts of its trace.
    figures
        Files of figures in its folder.
    """

    key: str
    experiment: str
    record: CellRecord
    added: Mapping[str, Any]
    parts: Parts
    figures: tuple[Path, ...]

    @property
    def content(self) -> dict[str, Any]:
        """The record as dictionaries, with what the page adds; published numbers look there."""
        return self.record.model_dump() | dict(self.added)

    @property
    def settings(self) -> Mapping[str, str]:
        """Settings in words, for tables: sweep, data, network, prior, hyperprior, seed."""
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
        return f"{cell_title(self.record)}, data seed {self.settings['seed']}"

    @property
    def combination(self) -> str:
        """Prior and hyperprior in words."""
        return combination_title(self.record.cell, self.record.chosen_scale)

    @property
    def summary(self) -> str:
        """Its main score, the scale that was chosen, and its caveats."""
        results = self.record.results
        if not results:
            return self.record.status.replace("_", " ")
        parts, scale = [], self.record.chosen_scale
        if self.record.predictive in SCORES:
            name, form = SCORES[self.record.predictive].main
            parts += [form.format(results[name])] if results.get(name) is not None else []
        parts += [f"σ {scale:.2g}"] if scale is not None else []
        parts += [] if has_converged(self.record) else ["not converged"]
        return ", ".join(parts + choices_at_end(self.record))


def read_cells(folders: Sequence[ExperimentResults], helpers: Helpers = ALONE) -> list[CellView]:
    """Every cell of some folders, each trace opened once; helpers share the reading."""
    records = [(folder, record) for folder in folders for record in folder.records]
    reads = [partial(_read_cell, folder.results, record.name) for folder, record in records]
    with stage("reading", len(records), "cell") as report_progress:
        contents = helpers.share(reads, report_progress)
    return [
        CellView(
            f"cell-{number}", folder.name, record, _page_metrics(record, parts), parts, figures
        )
        for number, ((folder, record), (parts, figures)) in enumerate(
            zip(records, contents, strict=True)
        )
    ]


def _read_cell(results: Results, name: str) -> tuple[Parts, tuple[Path, ...]]:
    """Parts of the trace of a cell, and files of its figures."""
    return read_parts(results, name), tuple(sorted((results.cells / name).glob("*.png")))


def _page_metrics(record: CellRecord, parts: Parts) -> dict[str, Any]:
    """Numbers that the page adds to a record."""
    added: dict[str, Any] = {}
    error = accuracy_error(record)
    if error is not None:
        added["standard_error"] = {"accuracy": error}
    if parts.weights is not None:
        away = parts.weights.away
        added["weights"] = {"away_from_zero": int(np.sum(away)), "number": int(away.size)}
    return added


class Heading(NamedTuple):
    """Heading of a column; whether it holds numbers, and whether a list filters rows by it.

    ``start`` is the first choice of that list, ``note`` explains the heading.
    """

    title: str
    number: bool = False
    choose: bool = False
    start: str = ""
    note: str = ""


class Entry(NamedTuple):
    """An entry of a table.

    Attributes
    ----------
    text
        Text that is read; rows are filtered by it.
    order
        Number it is sorted by, if it has one.
    badge
        Class of its colour, where it is a badge.
    opens, label
        Key of the cell that it opens, and its label for screen readers.
    note, hint
        Text below it, and the tooltip.
    code, quiet
        Whether it is set as code, or in a muted colour.
    """

    text: str
    order: float | None = None
    badge: str = ""
    opens: str = ""
    label: str = ""
    note: str = ""
    hint: str = ""
    code: bool = False
    quiet: bool = False


class DataTable(NamedTuple):
    """A table that can be sorted and filtered.

    Attributes
    ----------
    name
        Start of the names of its parts.
    title
        Its title for screen readers.
    noun
        Name of its rows, in the plural.
    headings
        The first is the heading of its row.
    rows
        Entries in the order of the headings.
    """

    name: str
    title: str
    noun: str
    headings: Sequence[Heading]
    rows: Sequence[Sequence[Entry]]

    @property
    def choices(self) -> dict[int, list[str]]:
        """Texts to filter rows by, by the number of their column; none where all are equal."""
        columns = {n: [row[n].text for row in self.rows] for n in range(len(self.headings))}
        choices = {n: list(filter(None, dict.fromkeys(texts))) for n, texts in columns.items()}
        return {n: c for n, c in choices.items() if self.headings[n].choose and len(c) > 1}


class PlainTable(NamedTuple):
    """A table of text: headings and rows."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


# Tables of results: a row a cell, and a row a combination with means over seeds


FIRST, LAST = ("data", "prior", "hyperprior"), ("network", "sweep")
"""Columns of settings before and after the results."""

CHOICE_AT_END = (
    "a tuned scale or learning rate at an end of its candidates: one beyond may be better"
)

STATUSES = ("converged", "ensemble", "not_converged", "undecided", "improper")
"""Statuses of a fit that is there; any other is a failure."""


def status_entry(status: str, reason: str = "") -> Entry:
    """Status of a cell with a colour of its own."""
    kind = status if status in STATUSES else "failed"
    return Entry(status.replace("_", " "), badge=kind, hint=reason)


VERDICT_COLOURS = {
    BEST: "best",
    BETTER: "best",
    EQUIVALENT: "equivalent",
    NOT_WORSE: "level",
    UNDECIDED: "undecided",
    WORSE: "behind",
    SIGNIFICANTLY_WORSE: "behind",
    NO_SCORE: "failed",
    "faithful": "best",
    "distorts": "behind",
    "reverses": "failed",
}
"""Classes of the colours of verdicts, in badges and in forest plots."""


def verdict_entry(verdict: str) -> Entry:
    """A verdict with a colour of its own; empty where there is none."""
    return Entry(verdict_text(verdict), badge=VERDICT_COLOURS[verdict]) if verdict else Entry("")


def caveats_entry(caveats: Sequence[str]) -> Entry:
    """Caveats of cells as a badge; empty if there are none."""
    return Entry("; ".join(caveats), badge="not_converged" if caveats else "")


def result_columns(cells: Sequence[CellView]) -> dict[str, Column]:
    """Columns of the results that any cell has."""
    results = [n for cell in cells for n, value in cell.record.results.items() if value is not None]
    columns: dict[str, Column] = {}
    for scores in scores_of(cell.record for cell in cells):
        for name, column in scores.columns.items():
            columns[name] = _common_column(columns.get(name, column), column)
    return {
        name: columns[base]._replace(title=f"{columns[base].title}{target}")
        for name, (base, target) in of_targets(columns, results).items()
    }


def _common_column(first: Column, second: Column) -> Column:
    """Column of cells of several kinds, with the unit that they share."""
    if first.unit == second.unit:
        return second
    short, long = sorted((first, second), key=lambda column: len(column.unit))
    return short._replace(note=f"{short.note}; of numbers in {long.unit}")


def cell_table(cells: Sequence[CellView]) -> DataTable:
    """Every cell, with a button that opens it."""
    results = result_columns(cells)
    headings = [
        Heading("cell", number=True),
        *(Heading(name, choose=True) for name in FIRST),
        Heading("seed", number=True, note="of the data set"),
        *(Heading(c.heading, number=True, note=c.note) for c in results.values()),
        Heading("status", choose=True),
        Heading("choices", choose=True, note=CHOICE_AT_END),
        Heading("seconds", number=True),
        Heading("KL weight", number=True),
        *(Heading(name, choose=True) for name in (*LAST, "experiment")),
    ]
    rows = [_cell_row(number, cell, results) for number, cell in enumerate(cells, 1)]
    return DataTable("cells", "All cells", "cells", headings, rows)


def _cell_row(number: int, cell: CellView, results: Mapping[str, Column]) -> list[Entry]:
    record, settings = cell.record, cell.settings
    weight = getattr(record.cell.inference, "kl_weight", None)
    errors = cell.added.get("standard_error", {})
    label = f"Open cell {number}: {cell.title}"
    entries = [
        Entry(str(number), number, opens=cell.key, label=label),
        *(Entry(settings[name]) for name in FIRST),
        Entry(settings["seed"], _order(settings["seed"])),
    ]
    for name, column in results.items():
        value = record.results.get(name)
        entries.append(
            Entry(score_text(name, value, errors.get(name), decimals=column.decimals), value)
        )
    return [
        *entries,
        status_entry(record.status, record.reason),
        caveats_entry(choices_at_end(record)),
        Entry(number_text(record.seconds, decimals=1), record.seconds),
        Entry(number_text(weight), weight),
        *(Entry(settings[name]) for name in LAST),
        Entry(cell.experiment),
    ]


def _order(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def mean_table(cells: Sequence[CellView]) -> DataTable | None:
    """Means over seeds of every combination that was run with several; None without."""
    groups = [group for group in _repetitions(cells) if len(group) > 1]
    if not groups:
        return None
    results = result_columns([cell for group in groups for cell in group])
    note = f"± {WHERE_CORRECTED}"
    headings = [
        Heading("combination"),
        *(Heading(name, choose=True) for name in FIRST),
        Heading("data seeds", number=True, note="of which each may have several fits"),
        Heading("of its cells", note="those that did not converge, or chose an end of a grid"),
        *(Heading(c.heading, number=True, note=note) for c in results.values()),
        Heading("KL weight", number=True),
        *(Heading(name, choose=True) for name in (*LAST, "experiment")),
    ]
    rows = [_mean_row(number, group, results) for number, group in enumerate(groups, 1)]
    title = f"Means over seeds ± {_error_title(groups)}"
    return DataTable("means", title, "combinations", headings, rows)


def _error_title(groups: Sequence[Sequence[CellView]]) -> str:
    """Standard error, and whether it is corrected: of all groups, of some, or of none."""
    overlaps = [overlap_of(cell.record for cell in group) for group in groups]
    corrected = [overlap > 0 for overlap in overlaps if math.isfinite(overlap)]
    if not any(corrected):
        return "standard error"
    where = "" if all(corrected) else " where data seeds split the same rows anew"
    return f"standard error, {CORRECTED}{where}"


def _repetitions(cells: Sequence[CellView]) -> list[list[CellView]]:
    """Cells that differ in their seeds only, together."""
    repetitions = []
    for experiment in dict.fromkeys(cell.experiment for cell in cells):
        by_name = {cell.record.name: cell for cell in cells if cell.experiment == experiment}
        groups = group_by_settings([cell.record for cell in by_name.values()])
        repetitions += [[by_name[record.name] for record in group] for group in groups]
    return repetitions


def _mean_row(number: int, group: Sequence[CellView], results: Mapping[str, Column]) -> list[Entry]:
    first, settings = group[0], group[0].settings
    usable = [cell.record for cell in group if cell.record.results]
    seeds = len({record.cell.data_seed for record in usable})
    weight = getattr(first.record.cell.inference, "kl_weight", None)
    entries = [
        Entry(str(number), number),
        *(Entry(settings[name]) for name in FIRST),
        Entry(str(seeds), seeds),
        caveats_entry(count(usable).words),
    ]
    for name, column in results.items():
        mean, error = mean_over_seeds(usable, name)
        order = None if math.isnan(mean) else mean
        entries.append(Entry(score_text(name, mean, error, decimals=column.decimals), order))
    entries.append(Entry(number_text(weight), weight))
    return [*entries, *(Entry(settings[name]) for name in LAST), Entry(first.experiment)]
