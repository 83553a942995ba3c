"""``index.html`` of a results folder: its overviews, and every cell with its numbers."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pmbnn.compare.scores import SCORES, scores_of
from pmbnn.report.numbers import fixed
from pmbnn.report.rendering import render
from pmbnn.results.caveats import choices_at_end
from pmbnn.results.names import combination_label, seed_label
from pmbnn.results.record import CellRecord
from pmbnn.results.store import RECORD
from pmbnn.results.tables import of_targets, with_unit


class CellRow(NamedTuple):
    """A cell in the table: where its link leads, and what stands in the columns."""

    words: str
    link: str
    status: str
    reason: str
    numbers: list[str]


def index_page(
    name: str,
    figures: Sequence[Path],
    records: Sequence[CellRecord],
    cells: Path,
    superseded: str = "",
) -> str:
    """One HTML page that needs nothing but the folder it lies in; that of the cells is `cells`.

    `superseded` says how many cells are left out.
    """
    known = list(dict.fromkeys(c for scores in scores_of(records) for c in scores.index))
    held = of_targets(known, (name for record in records for name in record.results))
    columns = [c for name in known for c in ([c for c in held if held[c][0] == name] or [name])]
    tables = ["metrics.csv", "summary.csv"]
    if any(record.images for record in records):
        tables.append("ood.csv")
    return render(
        "index.html",
        name=name,
        superseded=superseded,
        tables=tables,
        figures=[path.name for path in figures],
        columns=[with_unit(column, column) for column in columns],
        rows=[_row(record, columns, cells) for record in records],
    )


def _row(record: CellRecord, columns: Sequence[str], cells: Path) -> CellRow:
    cell, results = record.cell, record.results
    words = f"{record.sweep}: {seed_label(cell)}, {combination_label(cell)}"
    numbers = [fixed(results.get(column), 4) for column in columns]
    scores = SCORES.get(record.predictive or "")
    figures = () if scores is None else scores.figures
    file = next((name for name in figures if (cells / record.name / name).is_file()), RECORD)
    status = ", ".join([record.status, *choices_at_end(record)])
    return CellRow(words, f"cells/{record.name}/{file}", status, record.reason, numbers)
