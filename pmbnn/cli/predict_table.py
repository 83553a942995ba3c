"""What ``pmbnn predict`` does where it is given a table instead of images."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pmbnn.cli.shared import written

if TYPE_CHECKING:
    import pandas as pd

    from pmbnn.results.loading import StoredCell

TABLES = (".csv", ".tsv", ".tab", ".txt", ".parquet", ".pq", ".xlsx", ".xlsm", ".xls", ".ods")
"""Suffixes that tell a table, one of packing perhaps behind them."""


def is_table(path: Path) -> bool:
    """Whether a file is a table: by its name, or because it is text under a name of no image."""
    if any(suffix.lower() in TABLES for suffix in path.suffixes[-2:]):
        return True
    from PIL import Image

    is_image = path.suffix.lower() in Image.registered_extensions()
    return not is_image and path.is_file() and _is_text(path)


def _is_text(path: Path) -> bool:
    """Whether a file holds text: no control characters but in UTF-16, which says that it is."""
    with path.open("rb") as file:
        start = file.read(2048)
    is_utf_16 = start.startswith((b"\xff\xfe", b"\xfe\xff"))
    return is_utf_16 or (bool(start) and not set(start) & {*range(9), *range(14, 32)})


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
    from pmbnn.results.restore import open_cell

    if len(files) > 1:
        raise DataError(f"A table must be given alone, got {', '.join(map(str, files))}.")
    (file,) = files
    if not file.exists():
        raise DataError(f"{file} does not exist.")
    opened = open_cell(cell)
    found = predict_rows(opened, _read(file, opened), draws, title=str(file))
    text = (
        found.to_json(orient="records", indent=2) + "\n" if as_json else found.to_csv(index=False)
    )
    if out is None:
        sys.stdout.write(text)
    else:
        with written(out):
            out.write_text(text, encoding="utf-8")


def _read(file: Path, cell: "StoredCell") -> "pd.DataFrame":
    """The table, in a format of its own; where that is not clear, in that of the training rows.

    Columns of categories stay text.
    """
    from pmbnn.data.local_files import stamp_of
    from pmbnn.data.table_file import SEPARATORS, Format, read_table

    dataset = cell.record.cell.dataset
    separator = getattr(dataset, "separator", ",")
    given = Format() if separator in SEPARATORS else Format(separator)
    features = cell.posterior.coords.get("feature", ())
    texts = {name[:end] for name in features for end, sign in enumerate(name) if sign == "="}
    decimal = getattr(dataset, "decimal", None)
    return read_table(stamp_of(file), str(file), given, decimal, frozenset(texts)).frame
