"""Files of data sets: finding them, and reading NumPy archives, CSV and IDX files."""

import csv
import gzip
import hashlib
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import PrivateAttr

from pmbnn.data.base import DataError, DataSettingError, check_choice
from pmbnn.spec import Specification

if TYPE_CHECKING:
    import numpy as np

VARIABLE = "PMBNN_DATA"
"""Environment variable that names the folder of data."""

_FOLDERS: ContextVar[tuple[Path, ...]] = ContextVar("folders of the experiment file", default=())
_COPIES: ContextVar[Mapping[str, Path] | None] = ContextVar("copies of files", default=None)
_FOUND: ContextVar[dict[str, Path] | None] = ContextVar("files that were found", default=None)


def local_folder(folder: str | None = None) -> Path | None:
    """The folder, or else the one that the environment names; None where it names none."""
    folder = folder or os.environ.get(VARIABLE)
    return Path(folder).expanduser() if folder else None


def beside(*folders: Path) -> AbstractContextManager:
    """Make data sets that are created within the block look up their files in folders first."""
    return _set(_FOLDERS, tuple(Path(folder).resolve() for folder in folders))


def found_files() -> AbstractContextManager[dict[str, Path]]:
    """Record the paths of files and folders that are found within the block, by their names."""
    return _set(_FOUND, {})


def copies(paths: Mapping[str, Path]) -> AbstractContextManager:
    """Use copies of files, by their names, within the block: they came from another machine."""
    return _set(_COPIES, paths)


@contextmanager
def _set[T](variable: ContextVar[T], value: T) -> Iterator[T]:
    token = variable.set(value)
    try:
        yield value
    finally:
        variable.reset(token)


class NamesFiles(Specification):
    """A specification that names files, with the folders of the experiment file that it is from.

    The folders are not written, and specifications of the same settings are equal without them.
    """

    _folders: tuple[Path, ...] = PrivateAttr(default_factory=_FOLDERS.get)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__


def find(name: str, folders: Sequence[Path], setting: str) -> Path:
    """A file or folder: beside the experiment file, in the working directory, or in PMBNN_DATA.

    Parameters
    ----------
    name
        Its path as the experiment file has it.
    folders
        Folders of the experiment file, if there is one.
    setting
        Setting that has the name, for the message.

    Raises
    ------
    DataError
        It is in none of these places.
    """
    places = (*folders, Path.cwd(), local_folder())
    # An absolute path stays what it is.
    path = located(name, *(place / Path(name).expanduser() for place in filter(None, places)))
    if path is None:
        rule = (
            "must be there: beside the experiment file, in the working directory or in the folder "
            f"that {VARIABLE} names"
        )
        raise DataSettingError(setting, f"{rule}, got {name!r}")
    return path


def located(name: str, *paths: Path) -> Path | None:
    """The copy of a file, or the first path that exists; None where none does.

    `found_files` records it by its name.
    """
    if copy := (_COPIES.get() or {}).get(name):
        return copy
    path = next((path for path in paths if path.exists()), None)
    if path is not None and (found := _FOUND.get()) is not None:
        found[name] = path
    return path


Stamp = tuple[str, int, int]
"""Path, size and time of a file: its content stays the same as long as they do."""


def stamp_of(path: Path) -> Stamp:
    """Stamp of a file.

    Raises
    ------
    DataError
        It does not exist.
    """
    try:
        status = path.stat()
    except FileNotFoundError as error:
        raise DataError(f"{path} is not there.") from error
    return str(path), status.st_size, status.st_mtime_ns


def one_line(error: Exception) -> str:
    """Message of an error on one line, without a full stop."""
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


# CSV files of numbers


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
        rule = f"must have the columns {', '.join(names)}"
        raise DataError(f"{path} {rule}: {missing[0]} is missing.")
    if not rows:
        raise DataError(f"{path} has no rows.")
    return np.array(rows)


def _entries(path: Path, table: csv.DictReader, row: dict, names: Sequence[str]) -> list[float]:
    try:
        entries = [float(row[name]) for name in names]
    except (TypeError, ValueError):
        entries = [math.nan]
    if not all(map(math.isfinite, entries)):
        raise DataError(f"{path}, line {table.line_num}: every entry must be a finite number.")
    return entries


# NumPy archives


def read_archive(path: Path, title: str, names: Mapping[str, str]) -> "dict[str, np.ndarray]":
    """Arrays of an ``.npz`` archive by the settings that name them; nothing is unpickled.

    Raises
    ------
    DataError
        It is no archive, or lacks an array.
    """
    import numpy as np

    try:
        # Opened here, because NumPy leaves a file open whose archive is damaged.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if not hasattr(arrays, "files"):
                raise DataError(f"{title}: must be an .npz archive, got a single array.")
            for setting, name in names.items():
                check_choice(setting, name, sorted(arrays.files), title)
            return {setting: arrays[name] for setting, name in names.items()}
    except DataError:
        raise
    except (OSError, EOFError, ValueError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        reason = one_line(error)
        if "pickle" in reason.lower():
            reason = "it is no archive, or holds Python objects, which are never unpickled"
        raise DataError(f"{title}: cannot be read: {reason}.") from error


# IDX files, as those of MNIST


CHECKSUMS = {
    "train-images": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels": "a25bea736e30d166cdddb491f175f624",
    "t10k-images": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels": "27ae3e4e09519cfbb04c329615203637",
}
"""MD5 of each unpacked original file of MNIST, in hexadecimal, by its name up to ``-idx``."""

HEADERS = {"images": (2051, 3), "labels": (2049, 1)}
"""Magic number and number of dimensions: 8 is unsigned bytes, then the dimensions."""

LONGEST_HEADER = 16
"""Bytes: the magic number and three dimensions."""


def read_idx_folder(
    folder: Path, checksums: Mapping[str, str], title: str = "MNIST"
) -> "tuple[np.ndarray, ...]":
    """Contents of IDX files in a folder, uint8: images ``(observation, pixel)`` and labels.

    Parameters
    ----------
    folder
        Folder of the files; they may also lie in its subfolder ``mnist``.
    checksums
        MD5 of each unpacked file, by its name up to ``-idx``; the order is that of the arrays.
    title
        The data set, for messages.

    Raises
    ------
    DataError
        A file is missing, truncated, of another format, or not the one its checksum names.
    """
    arrays = (
        read_idx(find_idx(folder, name), name.split("-")[1], checksum, title)
        for name, checksum in checksums.items()
    )
    return tuple(x.reshape(len(x), -1) if x.ndim > 1 else x for x in arrays)


def find_idx(folder: Path, name: str) -> Path:
    """Path of the file called ``name`` (such as ``train-images``) in a folder."""
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder.")
    dimensions = HEADERS[name.split("-")[1]][1]
    endings = [f"{dash}idx{dimensions}-ubyte{suffix}" for dash in "-." for suffix in ("", ".gz")]
    paths = [place / f"{name}{end}" for place in (folder, folder / "mnist") for end in endings]
    path = next(filter(Path.is_file, paths), None)
    if path is None:
        raise DataError(f"{name}-idx{dimensions}-ubyte (or .gz) is missing from {folder}.")
    return path


def read_idx(
    path: Path, what: str, checksum: str | None = None, title: str = "MNIST"
) -> "np.ndarray":
    """Contents of one IDX file, uint8, in the shape its header gives.

    Parameters
    ----------
    path
        The file; it is unpacked first if its name ends in ``.gz``.
    what
        ``images`` or ``labels``.
    checksum
        MD5 of the unpacked file, in hexadecimal; None for any file.
    title
        The data set it belongs to, for messages.

    Raises
    ------
    DataError
        The file is truncated, of another format, or not the one the checksum names.
    """
    import numpy as np

    content = _read_bytes(path)
    shape, header = _shape(path, content, what)
    size = header + math.prod(shape)
    if len(content) != size:
        raise DataError(f"{path} has the wrong size: must be {size} bytes, got {len(content)}.")
    # MD5 detects damaged and mistaken files; it is no defence against an attack.
    if checksum not in (None, hashlib.md5(content, usedforsecurity=False).hexdigest()):
        raise DataError(f"{path} is not the original {title} file: its MD5 must be {checksum}.")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def read_idx_shape(path: Path, what: str) -> tuple[int, ...]:
    """Shape of one IDX file, from its header alone.

    Raises
    ------
    DataError
        The file is truncated, or of another format.
    """
    return _shape(path, _read_bytes(path, LONGEST_HEADER), what)[0]


def _shape(path: Path, content: bytes, what: str) -> tuple[tuple[int, ...], int]:
    """Shape in a header, and the header's length."""
    magic, dimensions = HEADERS[what]
    start = int.from_bytes(content[:4])
    if start != magic:
        raise DataError(f"{path} is no IDX file of {what}: magic must be {magic}, got {start}.")
    header = 4 * (1 + dimensions)
    if len(content) < header:
        raise DataError(f"{path} is truncated.")
    return struct.unpack(f">{dimensions}I", content[4:header]), header


def _read_bytes(path: Path, size: int = -1) -> bytes:
    """Contents of a file, unpacked, or as many bytes of it as asked for."""
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            return file.read(size)
    except EOFError as error:
        raise DataError(f"{path} is truncated.") from error
    except (OSError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
