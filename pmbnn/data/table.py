"""Tables of one's own: CSV and Parquet files."""

import csv
import io
import lzma
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pmbnn.data.base import DataError, DataSettingError, Standardise
from pmbnn.data.local_files import Stamp, find, stamp_of
from pmbnn.data.own import SplitRows

if TYPE_CHECKING:
    import pandas as pd

    from pmbnn.data.raw import RawRows

PARQUET = (".parquet", ".pq")

SEPARATORS = (",", ";", "\t", "|")
"""What may stand between columns, likelier ones first."""


class Table(SplitRows):
    """Rows of a table: CSV, also packed (``.gz``, ``.bz2``, ``.xz``, ``.zip``), or Parquet.

    ``target`` names the column that is to be predicted, ``features`` those that it is predicted
    from: all others unless given, less those under ``without``. Text is one-hot encoded, a column
    ``colour=red`` for each category, and so are numbers in columns named under ``categorical``;
    truth values are 0 and 1. ``target: [[height, weight]]``, several columns of numbers, has all of
    them predicted by one network.

    Targets of text and truth values are classes, numbers are numbers. Whole numbers may be either,
    and ``target_is`` says which: ``classes`` or ``numbers``; where they have ten values or fewer
    it must. Numbers are standardised on the training rows, unless ``standardise_target`` is
    false.

    ``missing`` says what is done where a value is missing: ``refuse``, take the ``mean`` of the
    training rows, or ``drop`` the row; ``redundant`` the same of columns that are constant or
    repeat another: ``refuse``, ``drop`` or ``keep``.
    """

    kind: Literal["table"] = "table"
    file: str
    target: str | tuple[str, ...]
    features: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    target_is: Literal["classes", "numbers"] | None = None
    missing: Literal["refuse", "mean", "drop"] = "refuse"
    redundant: Literal["refuse", "drop", "keep"] = "refuse"
    separator: str = ","
    standardise: Standardise = "feature"
    standardise_target: bool = True

    locations: ClassVar[dict[str, Any]] = {"file": True, "split": {"file": True}}

    def raw(self) -> "RawRows":  # noqa: D102
        path = find(self.file, self._folders, "file")
        columns = (self.target, self.features, self.without, self.categorical, self.split.group)
        return _raw(
            stamp_of(path), self.file, self.separator, columns,
            self.target_is, self.missing, self.redundant,
        )  # fmt: skip


@lru_cache(maxsize=8)
def _raw(
    stamp: Stamp, title: str, separator: str, columns: tuple, target_is, missing, redundant
) -> "RawRows":
    from pmbnn.data.frames import Columns, raw_of_frame

    frame = read_frame(stamp, title, separator)
    return raw_of_frame(frame, Columns(*columns), target_is, missing, redundant, title)


@lru_cache(maxsize=2)
def read_frame(stamp: Stamp, title: str, separator: str = ",") -> "pd.DataFrame":
    """Frame of a file; it is not to be changed."""
    path = Path(stamp[0])
    if path.is_dir():
        raise DataSettingError("file", f"must be a CSV or Parquet file, got the folder {title!r}")
    if path.suffix in PARQUET:
        return _read_parquet(path, title)
    return _read_csv(path, title, separator)


def _read_parquet(path: Path, title: str) -> "pd.DataFrame":
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError as error:
        raise DataError(
            f"{title}: Parquet needs the package pyarrow: install `pmbnn[parquet]`."
        ) from error
    except (OSError, ValueError) as error:
        raise DataError(f"{title}: cannot be read: {_line(error)}.") from error


def _read_csv(path: Path, title: str, separator: str) -> "pd.DataFrame":
    import pandas as pd

    if len(separator) != 1:
        raise DataSettingError("separator", f"must be one character, got {separator!r}")
    text = _text(path, title)
    _check_lines(text, title, separator)
    try:
        return pd.read_csv(io.StringIO(text), sep=separator)
    except (ValueError, pd.errors.ParserError) as error:
        raise DataError(f"{title}: cannot be read: {_line(error)}.") from error


def _text(path: Path, title: str) -> str:
    """Text of a file, unpacked."""
    try:
        return _unpacked(path, title).decode("utf-8-sig")
    except DataError:
        raise
    except UnicodeDecodeError as error:
        raise DataError(
            f"{title}: must be UTF-8 text, got byte {error.start} of another."
        ) from None
    # What the decoders raise over damaged files.
    except (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile) as error:
        raise DataError(f"{title}: cannot be read: {_line(error)}.") from error


def _unpacked(path: Path, title: str) -> bytes:
    import bz2
    import gzip

    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            files = [name for name in archive.namelist() if not name.endswith("/")]
            if len(files) != 1:
                raise DataError(f"{title}: must hold one file, got {len(files)}.")
            return archive.read(files[0])
    opened = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(path.suffix, open)
    with opened(path, "rb") as file:
        return file.read()


def _check_lines(text: str, title: str, separator: str) -> None:
    """Raise DataError unless there are a header and rows, all of the same length.

    Pandas fills short rows with missing values, and takes a column for row names where rows are
    longer than the header.
    """
    lines = csv.reader(io.StringIO(text), delimiter=separator)
    try:
        header = next((line for line in lines if line), None)
        if header is None:
            raise DataError(f"{title}: is empty.")
        other = separator_of(header[0]) if len(header) == 1 else None
        if other:
            raise DataSettingError(
                "separator",
                f"must stand between the columns of {title}, {other!r} it seems, got {separator!r}",
            )
        repeated = [name for name in header if header.count(name) > 1]
        if repeated:
            raise DataError(f"{title}: column `{repeated[0]}` must be there once, got it twice.")
        if not all(name.strip() for name in header):
            number = [bool(name.strip()) for name in header].index(False) + 1
            raise DataError(f"{title}: column {number} must have a name in the first line.")
        for line in lines:
            if line and len(line) != len(header):
                raise DataError(
                    f"{title}, line {lines.line_num}: must have {len(header)} entries, one for "
                    f"each column, got {len(line)}."
                )
    except csv.Error as error:
        raise DataError(f"{title}, line {lines.line_num}: {_line(error)}.") from error


def separator_of(header: str) -> str | None:
    """What stands between the columns of a first line; None where it is one column."""
    return next((one for one in SEPARATORS if one in header), None)


def first_line(stamp: Stamp, title: str) -> str:
    """First line of a CSV file, packed or not."""
    return next(iter(_text(Path(stamp[0]), title).splitlines()), "")


def _line(error: Exception) -> str:
    """Message of an error on one line, without a full stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__
