"""Tables of the page, which readers can sort and filter: of cells and of combinations."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pmbnn.compare.scores import Column, scores_of
from pmbnn.report.cells import CellView
from pmbnn.report.numbers import WHERE_CORRECTED, fixed, plain, with_error
from pmbnn.results.caveats import choices_at_end, count
from pmbnn.results.groups import group_by_settings
from pmbnn.results.tables import CORRECTED, mean_over_seeds, of_targets, overlap_of


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

CHOICES = "a tuned scale or learning rate at an end of its candidates: one beyond may be better"

STATUSES = ("converged", "not_converged", "undecided", "improper")
"""Statuses of a fit that is there; any other is a failure."""


def status_entry(status: str, reason: str = "") -> Entry:
    """Status of a cell with a colour of its own."""
    kind = status if status in STATUSES else "failed"
    return Entry(status.replace("_", " "), badge=kind, hint=reason)


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
        Heading("choices", choose=True, note=CHOICES),
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
        entries.append(Entry(with_error(value, errors.get(name), column.decimals), value))
    return [
        *entries,
        status_entry(record.status, record.reason),
        caveats_entry(choices_at_end(record)),
        Entry(fixed(record.seconds, 1), record.seconds),
        Entry(plain(weight), weight),
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
        Heading("seeds", number=True),
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
    corrected = [overlap_of(cell.record for cell in group) > 0 for group in groups]
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
    weight = getattr(first.record.cell.inference, "kl_weight", None)
    entries = [
        Entry(str(number), number),
        *(Entry(settings[name]) for name in FIRST),
        Entry(str(len(usable)), len(usable)),
        caveats_entry(count(usable).words),
    ]
    for name, column in results.items():
        mean, error = mean_over_seeds(usable, name)
        order = mean if math.isfinite(mean) else None
        entries.append(Entry(with_error(mean, error, column.decimals), order))
    entries.append(Entry(plain(weight), weight))
    return [*entries, *(Entry(settings[name]) for name in LAST), Entry(first.experiment)]
