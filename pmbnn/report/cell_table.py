"""Tables of results: a row a cell, and a row a combination with means over seeds."""

import math
from collections.abc import Sequence

from pmbnn.report.cells import Shown
from pmbnn.report.data_table import Column, Entry, data_table
from pmbnn.report.markup import Markup, element, join
from pmbnn.report.numbers import fixed, plain, with_error
from pmbnn.tables import group_by_settings, mean_and_error, repetitions

RESULTS = {
    "accuracy": ("accuracy", 4),
    "excess_error": ("excess error", 4),
    "rmse": ("RMSE", 4),
    "nll": ("NLL", 4),
    "expected_calibration_error": ("ECE", 4),
    "crps": ("CRPS", 4),
    "elbo": ("ELBO", 1),
}
"""Results with a column where any cell has them: heading and decimals."""

COVERAGE = "coverage"
"""Start of the names of results that say how often an interval holds the target."""

NOTES = {
    "accuracy": "± standard error on so many test rows",
    "excess error": "above the best possible classifier, on fresh points",
    "ECE": "expected calibration error",
    "ELBO": "evidence lower bound, nats, of the restart predicted with",
}

FIRST = ("data", "prior", "hyperprior")
LAST = ("network", "sweep")
"""Names of what was set, before and after the results."""

STATUSES = ("converged", "not_converged", "improper")
"""Statuses of a fit that is there; any other is a failure."""


def status_badge(status: str) -> Markup:
    """Status of a cell with a colour of its own."""
    kind = status if status in STATUSES else "failed"
    return element("span", status.replace("_", " "), class_=f"badge {kind}")


def result_columns(cells: Sequence[Shown]) -> dict[str, tuple[str, int]]:
    """Results that have a column, with heading and decimals."""
    held = dict.fromkeys(
        name
        for cell in cells
        for name, value in cell.record["results"].items()
        if value is not None
    )
    coverages = [name for name in held if name.startswith(COVERAGE)]
    found = {name: told for name, told in RESULTS.items() if name in held}
    return found | {name: (name.replace("_", " "), 3) for name in coverages}


def cell_table(cells: Sequence[Shown]) -> Markup:
    """Every cell, with a button that opens it."""
    results = result_columns(cells)
    columns = [
        Column("cell", number=True),
        *(Column(word, choose=True) for word in FIRST),
        Column("seed", number=True, note="of the data set"),
        *(Column(title, number=True, note=NOTES.get(title, "")) for title, _ in results.values()),
        Column("status", choose=True),
        Column("seconds", number=True),
        Column("KL weight", number=True),
        *(Column(word, choose=True) for word in (*LAST, "experiment")),
    ]
    rows = [_cell_row(number, cell, results) for number, cell in enumerate(cells, 1)]
    return data_table("cells", "All cells", "cells", columns, rows)


def _cell_row(number: int, cell: Shown, results) -> list[Entry]:
    record, words = cell.record, cell.words
    opener = element("button", f"{number}", type="button", data_cell=cell.key, class_="open",
                     aria_label=f"Open cell {number}: {cell.title}")  # fmt: skip
    weight = record["settings"].get("inference", {}).get("kl_weight")
    status = record["status"]
    return [
        Entry(opener, number),
        *(Entry(words[word]) for word in FIRST),
        Entry(words["seed"], _order(words["seed"])),
        *(_result(cell, name, decimals) for name, (_, decimals) in results.items()),
        Entry(_status(record), text=status.replace("_", " ")),
        Entry(fixed(record["seconds"], 1), record["seconds"]),
        Entry(plain(weight), weight),
        *(Entry(words[word]) for word in LAST),
        Entry(cell.experiment),
    ]


def _status(record) -> Markup:
    return element("span", status_badge(record["status"]), title=record["reason"] or None)


def _result(cell: Shown, name: str, decimals: int) -> Entry:
    value = cell.record["results"].get(name)
    error = cell.record.get("standard_error", {}).get(name)
    return Entry(with_error(value, error, decimals), value)


def _order(words: str) -> float | None:
    try:
        return float(words)
    except ValueError:
        return None


def mean_table(cells: Sequence[Shown]) -> Markup:
    """Means over seeds of every combination that was run with several; empty without."""
    groups = [group for group in _combinations(cells) if len(group) > 1]
    if not groups:
        return Markup("")
    every = [cell for group in groups for cell in group]
    results = result_columns(every)
    columns = [
        Column("combination"),
        *(Column(word, choose=True) for word in FIRST),
        Column("seeds", number=True),
        *(Column(t, number=True, note="± standard error over seeds") for t, _ in results.values()),
        Column("KL weight", number=True),
        *(Column(word, choose=True) for word in (*LAST, "experiment")),
    ]
    rows = [_mean_row(number, group, results) for number, group in enumerate(groups, 1)]
    title = "Means over seeds ± their standard error"
    return data_table("means", title, "combinations", columns, rows)


def _combinations(cells: Sequence[Shown]) -> list[list[Shown]]:
    """Cells that differ in their seeds only, together."""
    found = []
    for experiment in dict.fromkeys(cell.experiment for cell in cells):
        own = {cell.record["name"]: cell for cell in cells if cell.experiment == experiment}
        groups = group_by_settings([cell.record for cell in own.values()])
        found += [[own[record["name"]] for record in group] for group in groups]
    return found


def _mean_row(number: int, group: Sequence[Shown], results) -> list[Entry]:
    first, words = group[0], group[0].words
    usable = [cell.record for cell in group if cell.record["results"]]
    weight = first.record["settings"].get("inference", {}).get("kl_weight")
    entries = [
        Entry(str(number), number),
        *(Entry(words[word]) for word in FIRST),
        Entry(str(len(usable)), len(usable)),
    ]
    for name, (_, decimals) in results.items():
        mean, error = mean_and_error(repetitions(usable, name))
        entries.append(Entry(with_error(mean, error, decimals), _finite(mean)))
    entries.append(Entry(plain(weight), weight))
    return [*entries, *(Entry(words[word]) for word in LAST), Entry(first.experiment)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def tables_section(cells: Sequence[Shown]) -> Markup:
    """All cells, and means over seeds where there are several."""
    means = mean_table(cells)
    note = (
        "Accuracy is on the test rows, with the standard error of a share of so many. Excess error "
        "is above the best possible classifier, on fresh points. Choose a cell to see it."
    )
    parts = [element("h2", "Cells"), element("p", note), cell_table(cells)]
    if means:
        parts += [element("h3", "Means over seeds ± standard error"), means]
    return element("section", join(parts), id="cells-section")
