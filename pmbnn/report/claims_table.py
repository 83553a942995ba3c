"""The report's claims in numbers, where a results folder has a table of them."""

import csv
from collections.abc import Sequence

from pmbnn.claims.command import TABLE
from pmbnn.report.data_table import Column, Entry, data_table
from pmbnn.report.folders import Folder
from pmbnn.report.markup import Markup, element
from pmbnn.report.numbers import plain

WORDS = ("claim", "data", "prior", "hyperprior", "against", "measure")


def claims_section(folders: Sequence[Folder]) -> Markup:
    """Every row of the folders' tables, with means ± standard errors over data seeds."""
    rows = [row for folder in folders for row in _read(folder)]
    return element(
        "section",
        element("h2", "Claims of the report"),
        _table(rows) if rows else _absent(),
        id="claims-section",
    )


def _absent() -> Markup:
    words = "no cell says anything on the claims, or they could not be computed and written."
    return element("p", "These results folders hold no ", element("code", TABLE), f": {words}")


def _read(folder: Folder) -> list[dict[str, str]]:
    path = folder.results.folder / TABLE
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _table(rows: Sequence[dict[str, str]]) -> Markup:
    columns = [
        *(Column(word, choose=word != "measure") for word in WORDS),
        Column("mean", number=True, note="± standard error over data seeds"),
        Column("seeds", number=True),
        Column("sweep", choose=True),
        Column("experiment", choose=True),
    ]
    return data_table("claims", "Claims in numbers", "rows", columns, [*map(_row, rows)])


def _row(row: dict[str, str]) -> list[Entry]:
    mean, error = (_number(row.get(name)) for name in ("mean", "se"))
    words = f"{plain(mean)} ± {plain(error, 2)}" if error is not None else plain(mean)
    return [
        *(Entry(row.get(word) or "") for word in WORDS),
        Entry(words, mean),
        Entry(row.get("seeds") or "", _number(row.get("seeds"))),
        Entry(row.get("sweep") or ""),
        Entry(row.get("experiment") or ""),
    ]


def _number(words: str | None) -> float | None:
    try:
        return float(words or "")
    except ValueError:
        return None
