"""Tables of the page, sorted and filtered by their readers: of cells and of combinations."""

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
    """Heading of a column; whether it holds numbers, and whether rows are chosen by it.

    ``start`` is the choice that is made at first, ``note`` says more of the heading.
    """

    title: str
    number: bool = False
    choose: bool = False
    start: str = ""
    note: str = ""


class Entry(NamedTuple):
    """What stands in a row under a heading.

    Attributes
    ----------
    words
        What is read; rows are chosen by it.
    order
        Number it is sorted by, if it has one.
    badge
        Class of its colour, where it is a badge.
    opens, label
        Key of the cell that it opens, and what it is called by those who do not see it.
    note, hint
        What stands below it, and what is shown when it is pointed at.
    code, quiet
        Whether it is set as code, or stands back.
    """

    words: str
    order: float | None = None
    badge: str = ""
    opens: str = ""
    label: str = ""
    note: str = ""
    hint: str = ""
    code: bool = False
    quiet: bool = False


class Choice(NamedTuple):
    """A list of what stands in a column, by its place, to choose rows by."""

    at: int
    heading: Heading
    words: tuple[str, ...]


class DataTable(NamedTuple):
    """A table with what filters it above.

    Attributes
    ----------
    name
        Starts the names of its parts.
    title
        Names it for those who do not see it.
    noun
        What a row is, in the plural.
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
    def choices(self) -> list[Choice]:
        """Columns by which rows are chosen; none where all rows say the same."""
        found = []
        for at, heading in enumerate(self.headings):
            if heading.choose:
                words = tuple(dict.fromkeys(row[at].words for row in self.rows if row[at].words))
                if len(words) > 1:
                    found.append(Choice(at, heading, words))
        return found


class PlainTable(NamedTuple):
    """A table to be read: headings, and rows of words."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


# Tables of results: a row a cell, and a row a combination with means over seeds


FIRST = ("data", "prior", "hyperprior")
CHOICES = "a tuned scale or learning rate at an end of its candidates: one beyond may be better"

LAST = ("network", "sweep")
"""Names of what was set, before and after the results."""

STATUSES = ("converged", "not_converged", "undecided", "improper")
"""Statuses of a fit that is there; any other is a failure."""


def status_entry(status: str, reason: str = "") -> Entry:
    """Status of a cell with a colour of its own."""
    kind = status if status in STATUSES else "failed"
    return Entry(status.replace("_", " "), badge=kind, hint=reason)


def against_entry(words: Sequence[str]) -> Entry:
    """What there is to say against cells, marked; empty if nothing."""
    return Entry("; ".join(words), badge="not_converged" if words else "")


def result_columns(cells: Sequence[CellView]) -> dict[str, Column]:
    """Results that have a column, where any cell has them."""
    held = [n for cell in cells for n, value in cell.record.results.items() if value is not None]
    known: dict[str, Column] = {}
    for scores in scores_of(cell.record for cell in cells):
        for name, column in scores.columns.items():
            known[name] = _of_both(known.get(name, column), column)
    return {
        name: known[of]._replace(title=f"{known[of].title}{words}")
        for name, (of, words) in of_targets(known, held).items()
    }


def _of_both(first: Column, second: Column) -> Column:
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
        *(Heading(word, choose=True) for word in FIRST),
        Heading("seed", number=True, note="of the data set"),
        *(Heading(c.heading, number=True, note=c.note) for c in results.values()),
        Heading("status", choose=True),
        Heading("choices", choose=True, note=CHOICES),
        Heading("seconds", number=True),
        Heading("KL weight", number=True),
        *(Heading(word, choose=True) for word in (*LAST, "experiment")),
    ]
    rows = [_cell_row(number, cell, results) for number, cell in enumerate(cells, 1)]
    return DataTable("cells", "All cells", "cells", headings, rows)


def _cell_row(number: int, cell: CellView, results: Mapping[str, Column]) -> list[Entry]:
    record, words = cell.record, cell.words
    weight = getattr(record.cell.inference, "kl_weight", None)
    label = f"Open cell {number}: {cell.title}"
    return [
        Entry(str(number), number, opens=cell.key, label=label),
        *(Entry(words[word]) for word in FIRST),
        Entry(words["seed"], _order(words["seed"])),
        *(_result(cell, name, column.decimals) for name, column in results.items()),
        status_entry(record.status, record.reason),
        against_entry(choices_at_end(record)),
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
    note = f"± {WHERE_CORRECTED}"
    headings = [
        Heading("combination"),
        *(Heading(word, choose=True) for word in FIRST),
        Heading("seeds", number=True),
        Heading("of its cells", note="those that did not converge, or chose an end of a grid"),
        *(Heading(c.heading, number=True, note=note) for c in results.values()),
        Heading("KL weight", number=True),
        *(Heading(word, choose=True) for word in (*LAST, "experiment")),
    ]
    rows = [_mean_row(number, group, results) for number, group in enumerate(groups, 1)]
    title = f"Means over seeds ± {_error_title(groups)}"
    return DataTable("means", title, "combinations", headings, rows)


def _error_title(groups: Sequence[Sequence[CellView]]) -> str:
    """Standard error, and whether it is corrected: of all groups, of some, or of none."""
    corrected = [overlap_of(cell.record for cell in group) > 0 for group in groups]
    if not any(corrected):
        return "standard error"
    words = f"standard error, {CORRECTED}"
    return words if all(corrected) else f"{words} where data seeds split the same rows anew"


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
    weight = getattr(first.record.cell.inference, "kl_weight", None)
    entries = [
        Entry(str(number), number),
        *(Entry(words[word]) for word in FIRST),
        Entry(str(len(usable)), len(usable)),
        against_entry(count(usable).words),
    ]
    for name, column in results.items():
        mean, error = mean_over_seeds(usable, name)
        entries.append(Entry(with_error(mean, error, column.decimals), _finite(mean)))
    entries.append(Entry(plain(weight), weight))
    return [*entries, *(Entry(words[word]) for word in LAST), Entry(first.experiment)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
