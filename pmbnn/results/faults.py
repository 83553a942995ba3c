"""Errors of the system over results: a full disk, missing rights, too many open files.

They are of no cell, and so end what is being done: one line with the file, what the system says,
and the remedy. What is finished by then stays.
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pmbnn.core import machine
from pmbnn.spec.errors import UserError

GO_ON = "what is finished is kept, and the same command goes on from there"

_RIGHTS = "make it writable, or choose another place (`--out`)"

REMEDIES = {
    errno.ENOSPC: "make room on that disk",
    errno.EDQUOT: "make room within the quota",
    errno.EFBIG: "raise the limit of the size of files (`ulimit -f`)",
    errno.EROFS: _RIGHTS,
    errno.EACCES: _RIGHTS,
    errno.EPERM: _RIGHTS,
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "close what holds many files open",
    errno.EAGAIN: "raise the limit of processes (`ulimit -u`)",
    errno.ENOMEM: "end what takes the memory",
    errno.ENAMETOOLONG: "choose a folder of a shorter name (`--out`)",
    errno.EIO: "look after that disk",
    errno.ESTALE: "look after that disk",
}
"""What to do about errors that say nothing of what was asked for, by their number."""

OF_ANY_FILE = {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE}
"""Those that are the system's whatever file they are met at: rights may be missing to data."""

OF_WHAT_WAS_ASKED = (FileExistsError, NotADirectoryError, IsADirectoryError)
"""Errors over a folder that the user named and that cannot be one."""


class ResultsError(UserError):
    """A results folder that cannot be written or read."""


class StorageError(Exception):
    """An error of the system over a file, after whose remedy the same command goes on.

    Attributes
    ----------
    number
        That the system gives it, if there is one.
    file
        That it is over, if there is one.
    """

    number: int | None = None
    file: str | None = None

    def is_full(self, folder: Path) -> bool:
        """Whether there is no more room in a folder, whoever writes there."""
        return self.number in (errno.ENOSPC, errno.EDQUOT) and _lies_in(folder, self.file)


def storage_error(path: Path | str, error: OSError, what: str = "written") -> StorageError:
    """An error that names a file, what the system says, and the remedy.

    Parameters
    ----------
    what
        What could not be done to the file.
    """
    remedy = REMEDIES.get(error.errno)
    told = [f"`{path}` cannot be {what}: {error.strerror or error}"]
    found = StorageError(": ".join([*told, *([remedy] if remedy else [])]) + f"; {GO_ON}.")
    found.number, found.file = error.errno, str(path)
    return found


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
    """Have errors of HDF5 over a file be one of the system: of input and output.

    It has numbers of its own or none, and does not tell a failing disk from a damaged file.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    try:
        yield
    except (OSError, RuntimeError) as error:  # on opening it, and of one of its variables
        if isinstance(error, FileNotFoundError) or getattr(error, "errno", None) in REMEDIES:
            raise
        words = getattr(error, "strerror", None) or error
        told = f"{words} (if it is damaged, `pmbnn verify` says so)"
        raise OSError(errno.EIO, told, str(path)) from error


def unwritable(folder: Path, error: OSError) -> ResultsError | StorageError:
    """What to raise of a folder that cannot be made or written."""
    if isinstance(error, OF_WHAT_WAS_ASKED):
        return ResultsError(f"The results folder `{folder}` cannot be written: {error.strerror}.")
    return storage_error(folder, error)


@contextmanager
def named_faults() -> Iterator[None]:
    """Turn an error of the system that nothing has named yet into one line.

    Raises
    ------
    StorageError
        In place of an `OSError` that there is a remedy for.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in REMEDIES:
            raise
        if error.filename is None:
            words = f"{error.strerror}: {REMEDIES[error.errno]}; {GO_ON}."
            raise StorageError(words) from error
        raise storage_error(error.filename, error, "opened") from error


def fault_of(error: BaseException, folder: Path) -> StorageError | None:
    """The error of the system that another comes from; None if it comes from none.

    An error over a file of the results folder is one, and a full disk wherever it is.
    """
    at: BaseException | None = error
    while at is not None:
        if isinstance(at, StorageError):
            return at
        if isinstance(at, OSError) and (at.errno in OF_ANY_FILE or _lies_in(folder, at.filename)):
            return storage_error(at.filename or folder, at, "written or read")
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return None


def _lies_in(folder: Path, file: object) -> bool:
    return isinstance(file, str) and Path(file).resolve().is_relative_to(folder.resolve())


# How much is read of what lies in a results folder, which may come from anyone
#
# Nothing in it is unpickled or run; what is larger than a sweep writes is not read.


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
