"""The present cells of a results folder: those that its experiment had when it was last run.

A sweep lists them in ``cells.json`` before it fits, and readers take the finished cells of the list
alone. Other stored cells are *superseded*: their data, plugins or settings have changed since. They
stay, and are used again without a fit if the experiment has them again; `pmbnn prune` removes them.
"""

import errno
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pmbnn.core import machine
from pmbnn.core.errors import UserError
from pmbnn.results.record import RECORD, CellRecord

if TYPE_CHECKING:
    from pmbnn.results.store import Results


# Errors of the system over results: a full disk, missing rights, too many open files
#
# They concern no single cell, so they end the command with one line: the file and the system's
# message. Finished cells are kept.


RERUN = "fix this and run the same command again, finished work is kept"

SYSTEM_ERRORS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.ENAMETOOLONG),
    *(errno.EIO, errno.ESTALE),
}
"""Numbers of errors of the machine, which say nothing about the input."""

OF_ANY_FILE = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE}
"""Those that are the machine's whatever file they concern: permissions may be missing for data."""

NO_FOLDER = (FileExistsError, NotADirectoryError, IsADirectoryError)
"""Errors over a folder that the user named and that cannot be one."""


class ResultsError(UserError):
    """A results folder that cannot be written or read."""


class StorageError(Exception):
    """An I/O error (disk full, permissions): once it is fixed, the same command can be run again.

    Attributes
    ----------
    number
        The system's error number, if there is one.
    file
        The file concerned, if there is one.
    """

    number: int | None = None
    file: str | None = None

    def is_full(self, folder: Path) -> bool:
        """Whether there is no more room in a folder, whoever writes there."""
        return self.number in (errno.ENOSPC, errno.EDQUOT) and _lies_in(folder, self.file)


def storage_error(path: Path | str | None, error: OSError, what: str = "written") -> StorageError:
    """An error with the name of a file and the message of the system.

    Parameters
    ----------
    path
        The file, if it is known.
    what
        What could not be done to the file.
    """
    place = "" if path is None else f"`{path}` cannot be {what}: "
    fault = StorageError(f"{place}{error.strerror or error}; {RERUN}.")
    fault.number, fault.file = error.errno, path if path is None else str(path)
    return fault


@contextmanager
def storing(path: Path) -> Iterator[None]:
    """Turn an error of the system over a file that is written into one that names it.

    Raises
    ------
    StorageError
        If the system does not let it be written.
    """
    try:
        yield
    except OSError as error:
        raise storage_error(path, error) from error


@contextmanager
def reading_netcdf(path: Path) -> Iterator[None]:
    """Turn errors of HDF5 over a file into errors of the system: of input and output.

    HDF5 has numbers of its own or none, and does not tell a failing disk from a damaged file.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:  # on opening it, and of one of its variables
        if isinstance(error, FileNotFoundError) or getattr(error, "errno", None) in SYSTEM_ERRORS:
            raise
        reason = getattr(error, "strerror", None) or error
        message = f"{reason} (`pmbnn verify` tells whether it is damaged)"
        raise OSError(errno.EIO, message, str(path)) from error


def unwritable(folder: Path, error: OSError) -> ResultsError | StorageError:
    """Error to raise for a folder that cannot be made or written."""
    if isinstance(error, NO_FOLDER):
        return ResultsError(f"The results folder `{folder}` cannot be written: {error.strerror}.")
    return storage_error(folder, error)


@contextmanager
def named_faults() -> Iterator[None]:
    """Turn an error of the system that nothing has named yet into one line.

    Raises
    ------
    StorageError
        In place of an `OSError` of the machine.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in SYSTEM_ERRORS:
            raise
        raise storage_error(error.filename, error, "opened") from error


def fault_of(error: BaseException, folder: Path) -> StorageError | None:
    """The error of the system that another comes from; None if it comes from none.

    An error over a file of the results folder is one, and so is a full disk anywhere.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, StorageError):
            return cause
        if isinstance(cause, OSError) and (
            cause.errno in OF_ANY_FILE or _lies_in(folder, cause.filename)
        ):
            return storage_error(cause.filename or folder, cause, "written or read")
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return None


def _lies_in(folder: Path, file: object) -> bool:
    return isinstance(file, str) and Path(file).resolve().is_relative_to(folder.resolve())


# A results folder may come from anyone: nothing in it is unpickled or run, and files that are
# larger than a sweep writes are not read


MOST_JSON = 50_000_000
"""Bytes of a record or of provenance: a thousand times those of the largest one written so far."""

MOST_PIXELS = 100_000_000
"""Of a figure: the largest sheet has a tenth. Compressed, ten thousand times as many are small."""


def read_json_text(path: Path) -> str:
    """Text of a JSON file of moderate size.

    Raises
    ------
    ValueError
        If it is larger.
    """
    if (size := path.stat().st_size) > MOST_JSON:
        raise ValueError(f"it has {size:,} bytes, at most {MOST_JSON:,} are read")
    return path.read_text(encoding="utf-8")


def check_fits(size: float, path: Path) -> None:
    """Raise ResultsError unless arrays of that many bytes fit into memory."""
    machine.check_fits(size, path, ResultsError)


FILE = "cells.json"
"""File of a results folder that lists its present cells."""

FORMAT = 3
"""Version of the results folder."""


class CellList(NamedTuple):
    """The present cells of a results folder.

    Attributes
    ----------
    experiment
        Name of the experiment.
    cells
        Digest of the settings of each present cell, by the cell's name, in the order of tables.
    references
        Names of all cells that `pmbnn check` sampled here: such a cell is present as long as a
        fitted cell of the same posterior is.
    jobs
        Names of the cells of each job that was started and may have left checkpoints.
    """

    experiment: str
    cells: Mapping[str, str]
    references: tuple[str, ...] = ()
    jobs: tuple[tuple[str, ...], ...] = ()

    @property
    def content(self) -> dict[str, Any]:
        """Content of the file."""
        return {"format": FORMAT, **self._asdict()}


def read_list(folder: Path) -> CellList | None:
    """The list of a results folder; None where there is none.

    Raises
    ------
    ResultsError
        If it is of another format, or cannot be read.
    """
    path = folder / FILE
    try:
        content = json.loads(read_json_text(path))
        version = content["format"]
        if version == FORMAT:
            return _checked(content)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ResultsError(
            f"The list of cells `{path}` cannot be read: {type(error).__name__}: {error}. Remove "
            "it and run the experiment again: stored cells are used as they are."
        ) from error
    raise ResultsError(
        f"The results folder `{folder}` has format {version}, this version reads {FORMAT}: choose "
        "another folder (`--out`), or install the version of pmbnn that wrote it "
        "(provenance.json)."
    )


def _checked(content: Mapping[str, Any]) -> CellList:
    cells = {_name(name): str(digest) for name, digest in content["cells"].items()}
    references = tuple(map(_name, content["references"]))
    jobs = tuple(tuple(map(_name, job)) for job in content["jobs"])
    return CellList(str(content["experiment"]), cells, references, jobs)


def _name(name: str) -> str:
    """Name of a cell; a ValueError unless it is a folder beside the others."""
    if Path(name).name != name or name.startswith("."):
        raise ValueError(f"{name!r} must be the name of a cell")
    return name


def present_list(folder: Path) -> CellList:
    """The list of a results folder that has cells; an empty one where there are none.

    Raises
    ------
    ResultsError
        If there are cells and no list, or it cannot be read.
    """
    present = read_list(folder)
    if present is None and stored_names(folder):
        raise ResultsError(
            f"The results folder `{folder}` has no list of its present cells ({FILE}). Run the "
            f"experiment again in this folder (`pmbnn sweep FILE --out {folder}`): it uses stored "
            "cells as they are, and fits what is missing."
        )
    return present or CellList("", {})


def stored_names(folder: Path) -> list[str]:
    """Names of all stored cells: present or superseded, whole or broken."""
    cells = folder / "cells"
    if not cells.is_dir():
        return []
    return sorted(path.name for path in cells.iterdir() if not path.name.startswith("."))


def is_finished(folder: Path, name: str) -> bool:
    """Whether a cell of that name is stored, whole."""
    return (folder / "cells" / name / RECORD).is_file()


def superseded_names(folder: Path) -> list[str]:
    """Names of the stored cells that are not present."""
    present = present_list(folder).cells
    return [name for name in stored_names(folder) if name not in present]


def present_records(results: "Results") -> list[CellRecord]:
    """Records of the finished present cells, in the order of the list."""
    names = present_list(results.folder).cells
    return [results.load_record(name) for name in names if is_finished(results.folder, name)]


def check_present(cell: Path) -> None:
    """Raise ResultsError if a stored cell, ``RESULTS/cells/NAME``, is superseded.

    Without a list of present cells that is unknown, and the cell is read.
    """
    folder = cell.parent.parent
    present = read_list(folder)
    if present is not None and cell.name not in present.cells:
        raise ResultsError(
            f"The cell `{cell}` is superseded: the experiment's data, plugins or settings have "
            f"changed since it was fitted. {FILE} lists the present cells, and `pmbnn prune "
            f"{folder}` removes the others."
        )


def superseded_line(folder: Path, number: int) -> str:
    """Line on superseded cells, for readers of stored cells; empty without any."""
    if not number:
        return ""
    return (
        f"{counted(number, 'superseded cell')} left out (of data, plugins or settings that have "
        f"changed since): `pmbnn prune {folder}` removes what is superseded"
    )


def missing_line(folder: Path, missing: int) -> str:
    """Line on present cells that are not stored, for readers of the others; empty without any."""
    if not missing:
        return ""
    are = "is" if missing == 1 else "are"
    return f"{counted(missing, 'cell')} of {folder} {are} missing: not fitted yet, or removed"


def left_behind(folder: Path, present: Iterable[str]) -> list[str]:
    """Finished cells that were present in a folder until now, and are not any more.

    Without a list of present cells, all that are stored.
    """
    before = read_list(folder)
    names = stored_names(folder) if before is None else before.cells
    still = set(present)
    return [name for name in names if name not in still and is_finished(folder, name)]


def settings_left_behind(folder: Path, digests: Iterable[str]) -> list[str]:
    """Finished cells whose settings are not among the given digests; no data are read."""
    before, present = read_list(folder), set(digests)
    if before is None:
        return []
    gone = {name for name, digest in before.cells.items() if digest not in present}
    return [n for n in gone.difference(before.references) if is_finished(folder, n)]


def left_behind_line(folder: Path, number: int) -> str:
    """Line on cells that a sweep will leave behind; empty without any."""
    if not number:
        return ""
    return (
        f"{counted(number, 'stored cell')} in {folder} will be left behind: the experiment no "
        "longer has the data, plugins or settings that they were fitted with. They stay in the "
        f"folder, no table counts them, and `pmbnn prune {folder}` removes them"
    )


def checkpoint_name(cells: Iterable[str]) -> str:
    """Name of the folder of a job's checkpoints: a digest of all that decides its numbers.

    Parameters
    ----------
    cells
        Names of its cells, in the order of the job; each ends in the digits of its identity.
    """
    content = "\n".join(name.rpartition("-")[2] for name in cells)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it is not one."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
