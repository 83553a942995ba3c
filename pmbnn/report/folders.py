"""Results folders as the page reads them: records, origin and figures; traces come later."""

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pmbnn.storage import Results, ResultsError
from pmbnn.tables import Record

NEEDED = ("sweep", "name", "status", "reason", "seconds", "settings", "results")
"""What every record has."""


@dataclass(frozen=True)
class Folder:
    """One results folder.

    Attributes
    ----------
    name
        Name of the experiment, or of the folder where it is not recorded.
    results
        What reads the cells.
    records
        Every whole cell, in the experiment's order.
    provenance
        Versions, machine, data and date; empty where they are not recorded.
    figures
        Overviews that were drawn.
    """

    name: str
    results: Results
    records: tuple[Record, ...]
    provenance: Mapping[str, Any]
    figures: tuple[Path, ...]


def read_folder(path: Path) -> Folder:
    """Everything of a results folder but its traces.

    Raises
    ------
    ResultsError
        If the folder does not exist, is none, or holds no finished cell.
    """
    if not path.is_dir():
        problem = "is not a folder" if path.exists() else "does not exist"
        raise ResultsError(f"The results folder `{path}` {problem}.")
    results = Results(path)
    origin = path / "provenance.json"
    provenance = _read_json(origin) if origin.is_file() else {}
    records = tuple(_read_record(results.cells / n / "metrics.json") for n in _finished(results))
    if not records:
        raise ResultsError(
            f"The folder `{path}` holds no finished cell (cells/<name>/metrics.json); "
            "name a folder that `python -m pmbnn.sweep` has written."
        )
    name = str(provenance.get("experiment", path.resolve().name))
    return Folder(name, results, records, provenance, find_overviews(results))


def find_overviews(results: Results) -> tuple[Path, ...]:
    """Overviews that a results folder holds."""
    return tuple(sorted(results.figures.glob("*.png")))


def _finished(results: Results) -> list[str]:
    """Names of the cells, in the order of the table where there is one."""
    found = sorted(path.name for path in results.cells.glob("*") if results.is_finished(path.name))
    table = results.folder / "metrics.csv"
    listed = _listed(table) if table.is_file() else []
    known = set(found)
    return list(dict.fromkeys([*(name for name in listed if name in known), *found]))


def _listed(table: Path) -> list[str]:
    with table.open(encoding="utf-8", newline="") as file:
        return [row["name"] for row in csv.DictReader(file) if row.get("name")]


def _read_record(path: Path) -> Record:
    record = _read_json(path)
    missing = [key for key in NEEDED if key not in record]
    if missing:
        raise ResultsError(f"`{path}` must have `{missing[0]}`.")
    return record


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultsError(f"`{path}` cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise ResultsError(f"`{path}` must hold a mapping.")
    return content
