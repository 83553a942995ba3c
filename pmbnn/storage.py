"""The results folder: written atomically, read back, resumed.

A cell is written into a folder of a temporary name and renamed when it is whole, so what
carries its final name is complete, whatever stopped the run before.
"""

import csv
import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import xarray as xr

TEMPORARY = ".part-"
"""Start of the name of a folder or file that is not whole yet."""

Writer = Callable[[Path], None]


class ResultsError(ValueError):
    """A results folder that cannot be written or read."""


class Results:
    """One experiment's folder of results.

    Parameters
    ----------
    folder
        Where everything lies; `prepare` makes it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.cells = self.folder / "cells"
        self.figures = self.folder / "figures"

    def prepare(self) -> None:
        """Make the folders and clear away what an interrupted run left half written.

        Raises
        ------
        ResultsError
            If the folder cannot be written.
        """
        try:
            self.cells.mkdir(parents=True, exist_ok=True)
            self.figures.mkdir(exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise ResultsError(
                f"The results folder `{self.folder}` cannot be written: {error.strerror}."
            ) from error
        for left_over in (*self.cells.glob(f"{TEMPORARY}*"), *self.folder.glob(f"{TEMPORARY}*")):
            _remove(left_over)

    def is_finished(self, name: str) -> bool:
        """Whether a cell of that folder name is there, whole."""
        return (self.cells / name / "metrics.json").is_file()

    def remove(self, name: str) -> None:
        """Forget a cell."""
        _remove(self.cells / name)

    def save_cell(self, name: str, files: Mapping[str, Writer]) -> None:
        """Write a cell's files and make them appear together, in place of what was there."""
        part = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=self.cells))
        try:
            for file, write in files.items():
                write(part / file)
        except BaseException:
            _remove(part)
            raise
        self.remove(name)
        part.chmod(0o755)
        os.replace(part, self.cells / name)

    def checkpoints(self, job: str) -> Path:
        """Folder of the checkpoints of a job's fits; it may not exist."""
        return self.folder / "checkpoints" / job

    def remove_checkpoints(self, job: str | None = None) -> None:
        """Forget the checkpoints of a job, or all."""
        kept = self.folder / "checkpoints"
        _remove(kept if job is None else kept / job)
        if kept.is_dir() and not any(kept.iterdir()):
            kept.rmdir()

    def load_metrics(self, name: str) -> dict[str, Any]:
        """The numbers of a finished cell."""
        return json.loads((self.cells / name / "metrics.json").read_text(encoding="utf-8"))

    def load_trace(self, name: str) -> xr.DataTree:
        """The trace of a finished cell, in memory.

        Raises
        ------
        FileNotFoundError
            If the cell failed, so that there is none.
        """
        with xr.open_datatree(self.cells / name / "trace.nc", engine="h5netcdf") as tree:
            return tree.load()

    def write_text(self, file: str, text: str) -> None:
        """Write a text file of the folder, whole or not at all."""
        part = self.folder / f"{TEMPORARY}{file}"
        part.write_text(text, encoding="utf-8")
        os.replace(part, self.folder / file)

    def write_json(self, file: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file of the folder, whole or not at all."""
        self.write_text(file, _json_text(content))

    def write_table(self, file: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write rows as CSV; columns in order of first appearance, missing values empty."""
        self.write_text(file, _table_text(rows))

    def remove_table(self, file: str) -> None:
        """Remove a table, if it is there."""
        _remove(self.folder / file)

    def holds_table(self, file: str, rows: Iterable[Mapping[str, Any]]) -> bool:
        """Whether a table is there already, with exactly these rows."""
        path = self.folder / file
        return path.is_file() and path.read_text(encoding="utf-8") == _table_text(rows)


def _table_text(rows: Iterable[Mapping[str, Any]]) -> str:
    rows = list(rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows({k: _cell_text(v) for k, v in row.items()} for row in rows)
    return text.getvalue()


def json_writer(content: Mapping[str, Any]) -> Writer:
    """Writer of a JSON file; numbers that are not finite become null."""
    text = _json_text(content)
    return lambda path: path.write_text(text, encoding="utf-8")


def trace_writer(trace: xr.DataTree) -> Writer:
    """Writer of a compressed netCDF file that ArviZ opens."""
    encoding = {
        group.path: {name: _compression(array) for name, array in group.data_vars.items()}
        for group in trace.subtree
        if group.data_vars
    }
    return lambda path: trace.to_netcdf(path, engine="h5netcdf", encoding=encoding)


def _json_text(content: Mapping[str, Any]) -> str:
    return json.dumps(_finite(content), indent=2, allow_nan=False) + "\n"


def _compression(array: xr.DataArray) -> dict[str, Any]:
    return {"zlib": True, "complevel": 4, "shuffle": True} if array.ndim else {}


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cell_text(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return "" if value is None else value


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
