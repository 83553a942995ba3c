"""Where the page goes: whole or not at all."""

import os
import tempfile
from pathlib import Path

from pmbnn.results.store import TEMPORARY, ResultsError


def check_writable(folder: Path) -> None:
    """Make the folder, and see that a file can be written in it before any work is done.

    Raises
    ------
    ResultsError
        If it cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(folder, error) from error


def write_page(path: Path, text: str) -> None:
    """Write the page so that its name never stands for half of it.

    Raises
    ------
    ResultsError
        If it cannot be written.
    """
    part = path.with_name(f"{TEMPORARY}{path.name}")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise _unwritable(path.parent, error) from error


def _unwritable(folder: Path, error: OSError) -> ResultsError:
    return ResultsError(f"The folder `{folder}` cannot be written: {error.strerror or error}.")
