"""Errors of the system over results: a full disk, missing rights, too many open files.

They concern no single cell, so they end the command with one line: the file and the system's
message. Finished cells are kept.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pmbnn.core import machine
from pmbnn.spec.errors import UserError

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
