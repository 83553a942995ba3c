"""What ``pmbnn predict`` does where it is given a table instead of images."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pmbnn.cli.shared import written

if TYPE_CHECKING:
    import pandas as pd

TABLES = (".csv", ".tsv", ".parquet", ".pq")
"""Suffixes that tell a table, one of packing perhaps behind them."""


def is_table(path: Path) -> bool:
    """Whether a file is a table, by its name."""
    return any(suffix.lower() in TABLES for suffix in path.suffixes[-2:])


def predict_table(
    cell: Path, files: list[Path], draws: int, as_json: bool, out: Path | None
) -> None:
    """Write what a cell predicts for the rows of a table: CSV or JSON, printed or into a file.

    Raises
    ------
    DataError, ResultsError
        If it is not one table, or cannot be predicted for.
    """
    from pmbnn.data import DataError
    from pmbnn.results.new_rows import predict_rows
    from pmbnn.results.restore import restore_cell

    if len(files) > 1:
        raise DataError(f"A table must be given alone, got {', '.join(map(str, files))}.")
    (file,) = files
    if not file.exists():
        raise DataError(f"{file} does not exist.")
    it = restore_cell(cell)
    # As that which the network was fitted on, unless the file says otherwise.
    separator = getattr(it.dataset, "separator", ",")
    found = predict_rows(it, _read(file, separator), draws, title=str(file))
    text = (
        found.to_json(orient="records", indent=2) + "\n" if as_json else found.to_csv(index=False)
    )
    if out is None:
        sys.stdout.write(text)
    else:
        with written(out):
            out.write_text(text, encoding="utf-8")


def _read(file: Path, separator: str) -> "pd.DataFrame":
    from pmbnn.data.local_files import stamp_of
    from pmbnn.data.table import read_frame

    tabs = any(suffix.lower() == ".tsv" for suffix in file.suffixes)
    return read_frame(stamp_of(file), str(file), "\t" if tabs else separator)
