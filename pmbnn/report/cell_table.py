"""Tables of results: a row a cell, and a row a combination with means over seeds."""

import math
from collections.abc import Mapping, Sequence

from pmbnn.compare.scores import Column, scores_of
from pmbnn.report.cells import CellView
from pmbnn.report.data_table import DataTable, Entry, Heading
from pmbnn.report.numbers import fixed, plain, with_error
from pmbnn.results.tables import group_by_settings, mean_and_error, of_targets, repetitions

FIRST = ("data", "prior", "hyperprior")
LAST = ("network", "sweep")
"""Names of what was set, before and after the results."""

STATUSES = ("converged", "not_converged", "undecided", "improper")
"""Statuses of a fit that is there; any other is a failure."""


def status_entry(status: str, reason: str = "") -> Entry:
    """Status of a cell with a colour of its own."""
    kind = status if status in STATUSES else "failed"
    return Entry(status.replace("_", " "), badge=kind, hint=reason)


def result_columns(cells: Sequence[CellView]) -> dict[str, Column]:
    """Results that have a column, where any cell has them."""
    held = [n for cell in cells for n, value in cell.record.results.items() if value is not None]
    known: dict[str, Column] = {}
    for scores in scores_of(cell.record for cell in cells):
        known |= scores.columns
    return {
        name: known[of]._replace(title=f"{known[of].title}{words}")
        for name, (of, words) in of_targets(known, held).items()
    }


def cell_table(cells: Sequence[CellView]) -> DataTable:
    """Every cell, with a button that opens it."""
    results = result_columns(cells)
    headings = [
        Heading("cell", number=True),
        *(Heading(word, choose=True) for word in FIRST),
        Heading("seed", number=True, note="of the data set"),
        *(Heading(c.title, number=True, note=c.note) for c in results.values()),
        Heading("status", choose=True),
        Heading("seconds", number=True),
        Heading("KL weight", number=True),
        *(Heading(word, choose=True) for word in (*LAST, "experiment")),
    ]
    rows = [_cell_row(number, cell, results) for number, cell in enumerate(cells, 1)]
    return DataTable("cells", "All cells", "cells", headings, rows)


def _cell_row(number: int, cell: CellView, results: Mapping[str, Column]) -> list[Entry]:
    record, words = cell.record, cell.words
    weight = record.settings.get("inference", {}).get("kl_weight")
    label = f"Open cell {number}: {cell.title}"
    return [
        Entry(str(number), number, opens=cell.key, label=label),
        *(Entry(words[word]) for word in FIRST),
        Entry(words["seed"], _order(words["seed"])),
        *(_result(cell, name, column.decimals) for name, column in results.items()),
        status_entry(record.status, record.reason),
        Entry(fixed(record.seconds, 1), record.seconds),
        Entry(plain(weight), weight),
        *(Entry(words[word]) for word in LAST),
        Entry(cell.experiment),
    ]


def _result(cell: CellView, name: str, decimals: int) -> Entry:
    value = cell.record.results.get(name)
    error = cell.added.get("standard_error", {}).get(name)
    return Entry(with_error(value, error, decimals), value)


def _order(words: str) -> float | None:
    try:
        return float(words)
    except ValueError:
        return None


def mean_table(cells: Sequence[CellView]) -> DataTable | None:
    """Means over seeds of every combination that was run with several; None without."""
    groups = [group for group in _combinations(cells) if len(group) > 1]
    if not groups:
        return None
    results = result_columns([cell for group in groups for cell in group])
    note = "± standard error over seeds"
    headings = [
        Heading("combination"),
        *(Heading(word, choose=True) for word in FIRST),
        Heading("seeds", number=True),
        *(Heading(c.title, number=True, note=note) for c in results.values()),
        Heading("KL weight", number=True),
        *(Heading(word, choose=True) for word in (*LAST, "experiment")),
    ]
    rows = [_mean_row(number, group, results) for number, group in enumerate(groups, 1)]
    title = "Means over seeds ± their standard error"
    return DataTable("means", title, "combinations", headings, rows)


def _combinations(cells: Sequence[CellView]) -> list[list[CellView]]:
    """Cells that differ in their seeds only, together."""
    found = []
    for experiment in dict.fromkeys(cell.experiment for cell in cells):
        own = {cell.record.name: cell for cell in cells if cell.experiment == experiment}
        groups = group_by_settings([cell.record for cell in own.values()])
        found += [[own[record.name] for record in group] for group in groups]
    return found


def _mean_row(number: int, group: Sequence[CellView], results: Mapping[str, Column]) -> list[Entry]:
    first, words = group[0], group[0].words
    usable = [cell.record for cell in group if cell.record.results]
    weight = first.record.settings.get("inference", {}).get("kl_weight")
    entries = [
        Entry(str(number), number),
        *(Entry(words[word]) for word in FIRST),
        Entry(str(len(usable)), len(usable)),
    ]
    for name, column in results.items():
        mean, error = mean_and_error(repetitions(usable, name))
        entries.append(Entry(with_error(mean, error, column.decimals), _finite(mean)))
    entries.append(Entry(plain(weight), weight))
    return [*entries, *(Entry(words[word]) for word in LAST), Entry(first.experiment)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
