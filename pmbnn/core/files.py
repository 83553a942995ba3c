"""Files that appear whole or not at all."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = ".part-"
"""Start of the names of files and folders that are being written."""


@contextmanager
def whole_file(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """Path to write a file to, which gets its own name at the end of the block.

    By then it is on the disk. It keeps the mode of a file that it replaces. After an error nothing
    is left of it, and what was there stays.

    Parameters
    ----------
    folder
        Where the file lies until then, on the disk of `path`; by default, in the folder of `path`.
    """
    part = (folder or path.parent) / f"{TEMPORARY}{os.getpid()}-{path.name}"
    try:
        yield part
        flush(part)
        with suppress(OSError):  # a new file, or a disk without modes
            shutil.copymode(path, part)
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def flush(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    if os.name == "nt" and path.is_dir():  # folders cannot be opened there
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
