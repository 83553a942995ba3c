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
    """A cell in the table: its name, the address of its link, and the entries of its columns."""

    name: str
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
    """HTML page of a results folder, which refers to files of this folder alone.

    `cells` is the folder of the cells; `superseded` says how many of them are left out.
    """
    scores = list(dict.fromkeys(name for scores in scores_of(records) for name in scores.index))
    results = of_targets(scores, (name for record in records for name in record.results))
    columns = []
    for score in scores:
        columns += [name for name, (base, _) in results.items() if base == score] or [score]
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
    label = f"{record.sweep}: {seed_label(cell)}, {combination_label(cell)}"
    numbers = [fixed(results.get(column), 4) for column in columns]
    scores = SCORES.get(record.predictive or "")
    figures = () if scores is None else scores.figures
    file = next((name for name in figures if (cells / record.name / name).is_file()), RECORD)
    status = ", ".join([record.status, *choices_at_end(record)])
    return CellRow(label, f"cells/{record.name}/{file}", status, record.reason, numbers)
