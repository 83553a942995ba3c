"""Files of the user's own folder of data, which the environment names."""

import csv
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pmbnn.data.base import DataError

if TYPE_CHECKING:
    import numpy as np

VARIABLE = "PMBNN_DATA"
"""Environment variable that names the folder."""


def local_folder(folder: str | None = None) -> Path | None:
    """The folder given, or the one that the environment names; None where it names none."""
    named = folder or os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else None


def read_columns(path: Path, names: Sequence[str]) -> "np.ndarray":
    """Columns of a CSV file with a header, ``(row, column)``, float64; others are left out.

    Raises
    ------
    DataError
        The file cannot be read, lacks a column, has no rows, or an entry is no finite number.
    """
    import numpy as np

    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            missing = [name for name in names if name not in (table.fieldnames or ())]
            rows = [] if missing else [_entries(path, table, row, names) for row in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    if missing:
        raise DataError(
            f"{path} must have the columns {', '.join(names)}: {missing[0]} is missing."
        )
    if not rows:
        raise DataError(f"{path} has no rows.")
    return np.array(rows)


def _entries(path: Path, table: csv.DictReader, row: dict, names: Sequence[str]) -> list[float]:
    try:
        found = [float(row[name]) for name in names]
    except (TypeError, ValueError):
        found = [math.nan]
    if not all(map(math.isfinite, found)):
        raise DataError(f"{path}, line {table.line_num}: every entry must be a finite number.")
    return found
