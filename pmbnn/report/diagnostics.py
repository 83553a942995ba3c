"""How the fits went: verdicts by data set, and every cell whose fit did not converge."""

from collections.abc import Sequence

import pandas as pd

from pmbnn.report.cell_table import STATUSES, status_entry
from pmbnn.report.cells import CellView
from pmbnn.report.data_table import DataTable, Entry, Heading, PlainTable


def status_table(cells: Sequence[CellView]) -> PlainTable:
    """Number of cells with each verdict, a row a data set of a sweep."""
    rows = pd.DataFrame(
        [(f"{c.experiment}, {c.record.sweep}: {c.words['data']}", c.record.status) for c in cells],
        columns=["data", "status"],
    )
    found = [status for status in STATUSES if status in set(rows["status"])]
    found += sorted(set(rows["status"]) - set(STATUSES))
    counts = pd.crosstab(rows["data"], rows["status"]).reindex(
        index=rows["data"].unique(), columns=found
    )
    return PlainTable(
        "Verdicts on the fits",
        ("data", *(status.replace("_", " ") for status in found)),
        [(data, *map(str, row)) for data, row in zip(counts.index, counts.values, strict=True)],
    )


def unfinished_table(cells: Sequence[CellView]) -> DataTable | None:
    """Cells whose fits did not converge, with the reasons; None if all did."""
    shown = [cell for cell in cells if cell.record.status != "converged"]
    if not shown:
        return None
    headings = [
        Heading("cell"),
        Heading("data", choose=True),
        Heading("seed", number=True),
        Heading("status", choose=True),
        Heading("reason"),
    ]
    rows = [
        [
            Entry(cell.combination, opens=cell.key, label=f"Open {cell.title}"),
            Entry(cell.words["data"]),
            Entry(cell.words["seed"]),
            status_entry(cell.record.status),
            Entry(cell.record.reason),
        ]
        for cell in shown
    ]
    return DataTable("unfinished", "Fits that did not converge", "cells", headings, rows)
