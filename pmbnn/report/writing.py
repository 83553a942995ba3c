"""Where the page goes: whole or not at all."""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from pmbnn.results.faults import storing, unwritable
from pmbnn.results.store import TEMPORARY


def check_writable(folder: Path) -> None:
    """Make the folder, and see that a file can be written in it before any work is done.

    Raises
    ------
    ResultsError, StorageError
        If it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise unwritable(folder, error) from error


def write_page(path: Path, text: str) -> None:
    """Write the page so that its name never stands for half of it.

    Raises
    ------
    StorageError
        If it cannot be written.
    """
    part = path.with_name(f"{TEMPORARY}{path.name}")
    with storing(path):
        try:
            part.write_text(text, encoding="utf-8")
            os.replace(part, path)
        except OSError:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
