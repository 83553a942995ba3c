"""One writer a results folder: a second one waits, or is told who is at work."""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from pmbnn.results.faults import ResultsError, storing, unwritable

LOCK, WRITER = ".lock", ".writer.json"
"""Files of a results folder: the lock itself, and who holds it."""


class FolderBusyError(ResultsError):
    """A results folder that another process is writing."""

    exit_status = 3


@contextmanager
def writing(folder: Path, wait: bool = False) -> Iterator[None]:
    """Hold a results folder as its only writer; readers need no leave.

    The operating system lets go of the lock when its process ends, however it ends: what a
    killed process leaves behind is taken over.

    Parameters
    ----------
    wait
        Whether to wait for another writer to end.

    Raises
    ------
    FolderBusyError
        If another process writes there and `wait` is false.
    ResultsError, StorageError
        If the folder cannot be written.
    """
    lock = FileLock(folder / LOCK, timeout=-1 if wait else 0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise FolderBusyError(
            f"The results folder `{folder}` is being written by {_writer(folder)}: wait for it "
            "to end (`--wait`), or choose another folder (`--out`)."
        ) from None
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        with storing(folder / WRITER):
            (folder / WRITER).write_text(json.dumps(_ourselves()) + "\n", encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            (folder / WRITER).unlink(missing_ok=True)
        lock.release()


def _ourselves() -> dict[str, str | int]:
    started = time.strftime("%Y-%m-%d %H:%M:%S %z")
    return {"host": socket.gethostname(), "process": os.getpid(), "started": started}


def _writer(folder: Path) -> str:
    """Who holds the lock, in words."""
    try:
        held = json.loads((folder / WRITER).read_text(encoding="utf-8"))
        return f"process {held['process']} on {held['host']} since {held['started']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
