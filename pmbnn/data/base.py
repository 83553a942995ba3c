"""Base class, field types and errors of the data sets of an experiment file."""

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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PrivateAttr

from pmbnn.core.errors import UserError
from pmbnn.core.spec import Specification, renamed_values

if TYPE_CHECKING:
    import numpy as np

    from pmbnn.data.arrays import Dataset, Line


Seed = Annotated[int, Field(ge=0, lt=2**32)]
Standardise = Literal["feature", "global", "none"]
Task = Annotated[
    Literal["classification", "regression"],
    renamed_values(classification="classes", regression="numbers"),
]
Missing = Annotated[Literal["error", "mean", "drop"], renamed_values(error="refuse")]
Redundant = Annotated[Literal["error", "drop", "keep"], renamed_values(error="refuse")]
Calibration = Annotated[float, Field(ge=0, lt=1)]

FEWEST_CALIBRATION_ROWS = 19
"""The least number of rows that decide a conformal interval of 95 %: 0.95 / (1 - 0.95)."""

SIDE = 28
"""Height and width of the digits of MNIST."""

DEFAULT_LIKELIHOODS: dict[Task, str] = {"classification": "categorical", "regression": "normal"}
"""Kind of the default likelihood of each task."""


class DataError(UserError):
    """A data set that is unavailable: a missing, foreign or damaged file, too few rows."""


class DataSettingError(DataError):
    """A setting of a data set that does not fit the rows.

    ``setting`` is its name and ``rule`` the requirement, from which `check_data` makes a message
    with the place in the experiment file.
    """

    def __init__(self, setting: str, rule: str) -> None:
        super().__init__(f"`{setting}` {rule}.")
        self.setting, self.rule = setting, rule

    def __reduce__(self):
        # By its own arguments: it may come from another process.
        return type(self), (self.setting, self.rule)


SHOWN = 10
"""Names that a message lists at most."""


def show_names(names: Sequence) -> str:
    """Names on one line, the first `SHOWN` of many."""
    shown = ", ".join(f"`{name_of(name)}`" for name in list(names)[:SHOWN])
    more = len(names) - SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def check_choice(setting: str, name: str, choices: Sequence[str], title: str) -> None:
    """Raise DataSettingError if a setting is a name that a file does not have."""
    if name not in choices:
        rule = f"must be one of {show_names(choices)} of {title}, got {name!r}"
        raise DataSettingError(setting, rule)


def check_unique(setting: str, names: Sequence[str], noun: str) -> None:
    """Raise DataSettingError if a setting has a name twice."""
    for name in names:
        if names.count(name) > 1:
            raise DataSettingError(setting, f"must name each {noun} once, got {name!r} twice")


def name_of(value: Any) -> str:
    """Name of a class: a number without a needless fraction, a truth value as YAML writes it."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}" if abs(value) < 1e6 else str(int(value))
    return str(value)


def calibration_rows(train: int, share: float, group: str | None = None) -> int:
    """Number of training rows that a share of them sets aside.

    Raises
    ------
    DataSettingError
        They are too few for conformal intervals, leave fewer than 2 training rows, or a `group`
        keeps rows together, so that they would be of other groups than the test rows.
    """
    if share and group is not None:
        rule = "must be 0 with `split.group`, whose test rows are of other groups"
        raise DataSettingError("calibration", f"{rule}, got {share:g}")
    rows = math.ceil(share * train)
    if share and not FEWEST_CALIBRATION_ROWS <= rows <= train - 2:
        rule = (
            f"must set aside at least {FEWEST_CALIBRATION_ROWS} of {train} training rows and "
            f"leave at least 2, got {share:g}: {rows} rows"
        )
        raise DataSettingError("calibration", rule)
    return rows


class DatasetSpec(Specification):
    """A data set of an experiment file.

    Parameters
    ----------
    seed
        Data seed: decides which rows are drawn, and which of them are test rows. A list of seeds
        repeats every cell on other rows.
    """

    kind: str
    seed: Seed = 0

    image_shape: ClassVar[tuple[int, int] | None] = None
    """Height and width where a row is an image."""

    channels: ClassVar[int] = 1
    """Channels of an image: 1 of grey, 3 of red, green and blue."""

    has_bright_foreground: ClassVar[bool] = False
    """Whether images are bright on black, as digits are: figures have them dark on white paper."""

    is_user_data: ClassVar[bool] = False
    """Whether the rows are the user's, so that they must be read to plan."""

    locations: ClassVar[dict[str, Any]] = {}
    """Fields that only locate the rows and names, as pydantic's ``exclude``: no result depends on
    them."""

    n_classes: ClassVar[int | None] = None
    """Number of classes; None where the targets are numbers."""

    n_targets: ClassVar[int] = 1
    """Number of targets a row."""

    @property
    def task_of_rows(self) -> Task:
        """``classification`` where targets are class labels, else ``regression``."""
        return "regression" if self.n_classes is None else "classification"

    @property
    def declared_task(self) -> Task | None:
        """The task, if the settings decide it; None where the rows must be read."""
        return None if self.is_user_data else self.task_of_rows

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one row: ``(channel, row, column)`` of an image, or ``(feature,)``."""
        shape = self.image_shape
        return (self.channels, *shape) if shape else (self.n_features,)

    @property
    def is_planar(self) -> bool:
        """Whether the inputs are points of a plane, so that maps can be drawn."""
        return False

    def lines(self) -> "tuple[Line, ...]":
        """Lines through the inputs along which predicted numbers are drawn."""
        return ()

    @property
    def line_points(self) -> int:
        """Number of points of all `lines`, which a plan counts without NumPy."""
        return 0

    def check(self) -> None:
        """Raise DataError over faults that show without loading all rows."""

    def load(self) -> "Dataset":
        """Load or generate the rows, split and standardise them."""
        raise NotImplementedError


# Files of data sets: finding them, and reading NumPy archives, CSV and IDX files


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


def current_folders() -> tuple[Path, ...]:
    """Folders of the experiment file that is being read, which `beside` names."""
    return _FOLDERS.get()


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

    _folders: tuple[Path, ...] = PrivateAttr(default_factory=current_folders)

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


Stamp = tuple[str, int, int, int, int]
"""Path, size, times and number of a file: its content stays the same as long as they do.

The number and the time of the last change of any kind tell files apart that were moved to the same
place, which keep their size and the time at which they were written.
"""


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
    times = status.st_mtime_ns, status.st_ctime_ns
    return str(path.absolute()), status.st_size, *times, status.st_ino


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
