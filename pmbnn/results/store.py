"""The results folder: written atomically, read back, resumed.

A cell is written into a folder of a temporary name and renamed when it is whole, so what
carries its final name is complete, whatever stopped the run before.
"""

import hashlib
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr
from filelock import FileLock, Timeout

from pmbnn.core.files import TEMPORARY, flush, whole_file
from pmbnn.prediction.trace_file import Writer as Writer
from pmbnn.prediction.trace_file import load_tree
from pmbnn.prediction.trace_file import trace_writer as trace_writer
from pmbnn.results.present import FILE as CELLS
from pmbnn.results.present import (
    ResultsError,
    check_fits,
    is_finished,
    read_json_text,
    reading_netcdf,
    storage_error,
    stored_names,
    storing,
    unwritable,
)
from pmbnn.results.record import RECORD, CellRecord, OtherFormatError, StoredFile, finite

# One writer of a results folder: a second one waits, or is an error that names the first


LOCK, WRITER = ".lock", ".writer.json"
"""Files of a results folder: the lock itself, and its present writer."""


WRITTEN = (
    *("experiment.yaml", "published.yaml", "provenance.json"),
    *("metrics.csv", "summary.csv", "index.html"),
)
"""Files that a sweep writes or removes, under names that other files may have."""


class FolderBusyError(ResultsError):
    """A results folder that another process is writing."""

    exit_status = 3


@contextmanager
def writing(folder: Path, wait: bool = False) -> Iterator[None]:
    """Lock a results folder for one writer; readers need no lock.

    The operating system releases the lock when its process ends, even if it is killed.

    Parameters
    ----------
    wait
        Whether to wait for another writer to end.

    Raises
    ------
    FolderBusyError
        If another process writes there and `wait` is false.
    ResultsError, StorageError
        If the folder cannot be written, or has files of other origin that would be written over.
    """
    _check_free(folder)
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
            started = time.strftime("%Y-%m-%d %H:%M:%S %z")
            us = {"host": socket.gethostname(), "process": os.getpid(), "started": started}
            (folder / WRITER).write_text(json.dumps(us) + "\n", encoding="utf-8")
        yield
    finally:
        with suppress(OSError):
            (folder / WRITER).unlink(missing_ok=True)
        lock.release()


def _check_free(folder: Path) -> None:
    """Raise ResultsError if files would be written over in a folder that holds no results."""
    if (folder / "cells").is_dir() or (folder / CELLS).exists():
        return
    for name in WRITTEN:
        if (folder / name).is_file():
            raise ResultsError(
                f"The results folder `{folder}` must be new or one of results, and a file that no "
                f"sweep wrote would be lost: `{folder / name}`. Choose another folder (`--out`)."
            )


def _writer(folder: Path) -> str:
    """Description of the process that has the lock."""
    try:
        writer = json.loads((folder / WRITER).read_text(encoding="utf-8"))
        return f"process {writer['process']} on {writer['host']} since {writer['started']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"


BROKEN = ".broken-"
"""Start of the name of a cell that was set aside."""

PRIORS = "prior.csv"
"""Table of prior predictive checks."""

MATCH = ".match.png"
"""End of the names of their figures of matched scales."""

ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
"""Errors of a file that is not there as one."""


class Results:
    """One experiment's folder of results.

    Parameters
    ----------
    folder
        The folder; `prepare` makes it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.cells = self.folder / "cells"
        self.figures = self.folder / "figures"
        self.priors = self.folder / "prior"
        self.calibration = self.folder / "calibration"

    def prepare(self) -> None:
        """Make the folders and remove files that an interrupted run left half written.

        Raises
        ------
        ResultsError, StorageError
            If the folder cannot be written.
        """
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
            self.figures.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise unwritable(self.folder, error) from error
        for left_over in (*self.cells.glob(f"{TEMPORARY}*"), *self.folder.glob(f"{TEMPORARY}*")):
            remove(left_over)

    def is_finished(self, name: str) -> bool:
        """Whether a cell of that folder name is stored, whole."""
        return is_finished(self.folder, name)

    def cell_names(self) -> list[str]:
        """Names of all stored cells: present or superseded, whole or broken."""
        return stored_names(self.folder)

    def remove(self, name: str) -> None:
        """Remove a cell."""
        remove(self.cells / name)

    def save_cell(self, record: CellRecord, files: Mapping[str, Writer]) -> CellRecord:
        """Write a cell's files and make them appear together, in place of what was there.

        Returns
        -------
        CellRecord
            The record as stored, with the size and digest of every file.

        Raises
        ------
        StorageError
            If the system does not let it be written; what was there before may be gone.
        """
        with self._new_cell(record.name) as part:
            for file, write in files.items():
                write(part / file)
            stored = {
                file: StoredFile(size=(part / file).stat().st_size, sha256=sha256(part / file))
                for file in files
            }
            text = record.model_copy(update={"files": stored}).to_json()
            (part / RECORD).write_text(text, encoding="utf-8")
        return CellRecord.from_json(text)

    def save_record(self, record: CellRecord) -> None:
        """Write the record of a stored cell anew; its other files stay."""
        self.write_text(f"{self.cells.name}/{record.name}/{RECORD}", record.to_json())

    def copy_cell(self, folder: Path) -> None:
        """Copy a cell's folder, which appears whole, in place of what was there."""
        with self._new_cell(folder.name) as part:
            # Without times of change: figures that are older than the copy are to be drawn.
            shutil.copytree(folder, part, copy_function=shutil.copyfile, dirs_exist_ok=True)

    @contextmanager
    def _new_cell(self, name: str) -> Iterator[Path]:
        """Folder to fill; after the block it replaces the cell of a name, whole or not at all."""
        with storing(self.cells / name):
            part = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=self.cells))
            try:
                yield part
                for path in (*part.iterdir(), part):
                    flush(path)
                self.remove(name)
                part.chmod(0o755)
                os.replace(part, self.cells / name)
                flush(self.cells)
            except BaseException:
                with suppress(OSError):
                    shutil.rmtree(part)
                raise

    def checkpoints(self, job: str) -> Path:
        """Folder of the checkpoints of a job's fits; it may not exist."""
        return self.folder / "checkpoints" / job

    def remove_checkpoints(self, job: str | None = None) -> None:
        """Remove the checkpoints of a job, or all."""
        folder = self.folder / "checkpoints"
        remove(folder if job is None else folder / job)
        with storing(folder):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def load_record(self, name: str) -> CellRecord:
        """The record of a finished cell.

        Raises
        ------
        ResultsError
            If it has changed since it was written, or is of another format.
        StorageError
            If the system does not let it be read.
        """
        path = self.cells / name / RECORD
        try:
            return CellRecord.from_json(read_json_text(path))
        except OtherFormatError as error:
            raise ResultsError(
                f"The results folder `{self.folder}` was written {error}: choose another folder "
                "(`--out`), or move this one away and run the experiment again."
            ) from error
        except OSError as error:
            if isinstance(error, ABSENT):
                raise self._unreadable(path, error) from error
            # The cell may be whole: setting it aside would mean to fit it again.
            raise storage_error(path, error, "read") from error
        except (ValueError, RecursionError) as error:
            raise self._unreadable(path, error) from error

    def _unreadable(self, path: Path, error: Exception) -> ResultsError:
        return ResultsError(
            f"The record `{path}` cannot be read: {error}. `pmbnn verify {self.folder} "
            "--repair` sets broken cells aside."
        )

    def load_trace(self, name: str) -> xr.DataTree:
        """Trace of a finished cell, in memory.

        Raises
        ------
        FileNotFoundError
            If the cell failed, so that there is none.
        ResultsError
            If its arrays are larger than memory.
        OSError
            If it cannot be read.
        """
        path = self.cells / name / "trace.nc"
        with reading_netcdf(path), xr.open_datatree(path, engine="netcdf4") as tree:
            check_fits(tree.nbytes, path)
            return load_tree(tree)

    def write_file(self, file: str | Path, write: Writer) -> None:
        """Write a file of the folder, or of a folder in it, which is made; whole or not at all.

        Raises
        ------
        StorageError
            If the system does not let it be written.
        """
        path = self.folder / file
        # Readers note what they make beside a running sweep.
        with storing(path), whole_file(path, self.folder) as part:
            write(part)
            path.parent.mkdir(parents=True, exist_ok=True)

    def write_text(self, file: str, text: str) -> None:
        """Write a text file of the folder, whole or not at all."""
        self.write_file(file, lambda path: path.write_text(text, encoding="utf-8"))

    def write_json(self, file: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file of the folder, whole or not at all."""
        text = json.dumps(finite(content), indent=2, allow_nan=False)
        self.write_text(file, f"{text}\n")

    def write_table(self, file: str, table: pd.DataFrame) -> None:
        """Write a table as CSV; missing values are empty."""
        self.write_text(file, table.to_csv(index=False, lineterminator="\n"))

    def replace_table(self, file: str, table: pd.DataFrame) -> bool:
        """Write a table and return True; one without rows leaves no file."""
        if table.empty:
            self.remove_table(file)
            return False
        self.write_table(file, table)
        return True

    def remove_table(self, file: str) -> None:
        """Remove a table, if it is there."""
        remove(self.folder / file)

    def names_in_table(self, file: str) -> list[str]:
        """Column ``name`` of a table; empty where there is no such table.

        Raises
        ------
        ResultsError
            If it has no such column, as one that a spreadsheet has saved with other separators.
        """
        path = self.folder / file
        if not path.is_file():
            return []
        try:
            return pd.read_csv(path, usecols=["name"], dtype=str)["name"].tolist()
        except ValueError as error:
            raise ResultsError(
                f"The table `{path}` is not as it was written: {str(error).strip()} Remove it and "
                "run the command that makes it again."
            ) from error


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove(path: Path) -> None:
    """Remove a file or a whole folder, if it exists.

    Raises
    ------
    StorageError
        If the system does not let it be removed.
    """
    with storing(path):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
