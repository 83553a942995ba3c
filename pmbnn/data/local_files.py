"""Files of the user's: beside an experiment file, or in a folder that the environment names."""

import csv
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import PrivateAttr

from pmbnn.data.base import DataError, DataSettingError
from pmbnn.spec import Specification

if TYPE_CHECKING:
    import numpy as np

VARIABLE = "PMBNN_DATA"
"""Environment variable that names the folder."""

_BESIDE: ContextVar[tuple[Path, ...]] = ContextVar("folders of the experiment file", default=())


_COPIES: ContextVar[Mapping[str, Path] | None] = ContextVar("copies of files", default=None)
_FOUND: ContextVar[dict[str, Path] | None] = ContextVar("files that were found", default=None)


def local_folder(folder: str | None = None) -> Path | None:
    """The folder given, or the one that the environment names; None where it names none."""
    named = folder or os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else None


@contextmanager
def beside(*folders: Path) -> Iterator[None]:
    """Have data sets that are named within the block look up their files in some folders first."""
    token = _BESIDE.set(tuple(Path(folder).resolve() for folder in folders))
    try:
        yield
    finally:
        _BESIDE.reset(token)


def experiment_folders() -> tuple[Path, ...]:
    """Folders of the experiment file that is being read, and of its data; none where none is."""
    return _BESIDE.get()


@contextmanager
def found_files() -> Iterator[dict[str, Path]]:
    """Learn which files and folders are looked up within the block, by the names they have."""
    found: dict[str, Path] = {}
    token = _FOUND.set(found)
    try:
        yield found
    finally:
        _FOUND.reset(token)


@contextmanager
def copies(of: Mapping[str, Path]) -> Iterator[None]:
    """Have some files found elsewhere within the block: they came from another machine."""
    token = _COPIES.set(of)
    try:
        yield
    finally:
        _COPIES.reset(token)


class NamesFiles(Specification):
    """A specification that names files, and knows the folders of the experiment file it is from.

    They are written nowhere, and specifications of the same settings are equal without them.
    """

    _folders: tuple[Path, ...] = PrivateAttr(default_factory=experiment_folders)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__


def find(named: str, folders: Sequence[Path], setting: str) -> Path:
    """A file or folder: beside the experiment file, in the working directory, or in PMBNN_DATA.

    Parameters
    ----------
    named
        Its path as a file names it.
    folders
        Of the experiment file, if there is one.
    setting
        That names it, for the message.

    Raises
    ------
    DataError
        It is in none of these places.
    """
    places = (*folders, Path.cwd(), local_folder())
    # An absolute path stays what it is.
    path = located(named, *(place / Path(named).expanduser() for place in filter(None, places)))
    if path is None:
        rule = (
            "must be there: beside the experiment file, in the working directory or in the folder "
            f"that {VARIABLE} names"
        )
        raise DataSettingError(setting, f"{rule}, got {named!r}")
    return path


def located(named: str, *paths: Path) -> Path | None:
    """The first of some paths that is there, or the copy that came along; None where none is.

    `found_files` learns of it by the name it is given.
    """
    if copy := (_COPIES.get() or {}).get(named):
        return copy
    path = next((path for path in paths if path.exists()), None)
    if path is not None and (found := _FOUND.get()) is not None:
        found[named] = path
    return path


Stamp = tuple[str, int, int]
"""Path, size and time of a file: what is read of it stays the same as long as they do."""


def stamp_of(path: Path) -> Stamp:
    """Stamp of a file.

    Raises
    ------
    DataError
        It is not there, or not any more.
    """
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise DataError(f"{path} is not there.") from error
    return str(path), found.st_size, found.st_mtime_ns


def read_columns(path: Path, names: Sequence[str]) -> "np.ndarray":
    """Columns of a CSV file with a header, ``(row, column)``, float64; others are left out.

    Raises
    ------
    DataError
        The file cannot be read, lacks a column, has no rows, or an entry is no finite number.
    """
    import numpy as np

    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
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
