"""Checks of stored cells: sizes of files at every start, digests on request."""

import os
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pmbnn.results.present import (
    MOST_PIXELS,
    ResultsError,
    storing,
)
from pmbnn.results.reading import load_netcdf
from pmbnn.results.record import CellRecord, OtherFormatError
from pmbnn.results.store import BROKEN, RECORD, Results, remove, sha256


class Problem(NamedTuple):
    """A file or cell in a results folder that has changed since it was written.

    ``cell`` is the name of the cell's folder; None for a figure outside cells.
    """

    path: Path
    cell: str | None
    reason: str

    def __str__(self) -> str:
        """One line."""
        return f"`{self.path}`: {self.reason}"


def set_aside_broken(results: Results, names: Iterable[str] | None = None) -> list[Problem]:
    """Move cells aside whose record cannot be read or whose files have another size.

    They are kept as ``cells/.broken-<name>`` and will be fitted again. All stored cells are checked
    unless `names` are given.
    """
    problems = list(broken_cells(results, names=names))
    for problem in problems:
        set_aside(results, problem.cell)
    return problems


def broken_cells(
    results: Results, digests: bool = False, names: Iterable[str] | None = None
) -> Iterator[Problem]:
    """The first problem of each broken cell.

    Parameters
    ----------
    digests
        Whether to read the files whole and compare their SHA-256; sizes alone otherwise.
    names
        Cells to check, if they are stored; all unless given.
    """
    stored = results.cell_names()
    for name in stored if names is None else sorted(set(stored).intersection(names)):
        problem = checked_record(results, name, digests)
        if isinstance(problem, Problem):
            yield problem


def set_aside(results: Results, name: str) -> None:
    """Move a cell aside, in place of an earlier broken one of its name."""
    aside = results.cells / f"{BROKEN}{name}"
    results.remove(aside.name)
    with storing(aside):
        os.replace(results.cells / name, aside)


def verify(folder: Path, repair: bool = False) -> list[Problem]:
    """Check all files of a results folder.

    Data files are compared with the digests in their cell's record, the record with its own;
    files of priors and ranks are read, figures are decoded.

    Parameters
    ----------
    repair
        Whether to set broken cells aside and remove other broken files, so that the next sweep of
        the folder fits and draws them again.

    Returns
    -------
    list of Problem
        Cells and files that have changed since they were written.

    Raises
    ------
    ResultsError
        If there is no results folder.
    """
    results = Results(folder)
    if not results.cells.is_dir():
        raise ResultsError(f"`{folder}` must be a results folder: it has no folder `cells`.")
    problems = [
        *broken_cells(results, digests=True),
        *_broken_files(results),
        *_broken_figures(results),
    ]
    for problem in problems if repair else ():
        if problem.cell is None:
            remove(problem.path)
        else:
            set_aside(results, problem.cell)
    return problems


def checked_record(results: Results, name: str, digests: bool = False) -> CellRecord | Problem:
    """Record of a whole stored cell, or its first problem; see `broken_cells`."""
    folder = results.cells / name
    if not (folder / RECORD).is_file():
        return Problem(folder, name, f"has no `{RECORD}`")
    try:
        record = results.load_record(name)
    except ResultsError as error:
        if isinstance(error.__cause__, OtherFormatError):
            raise
        return Problem(folder / RECORD, name, str(error.__cause__))
    for file, expected in record.files.items():
        path = folder / file
        if not path.is_file():
            return Problem(path, name, "is missing")
        size = path.stat().st_size
        if size != expected.size:
            return Problem(path, name, f"has {size} bytes, {expected.size} were written")
        if digests and sha256(path) != expected.sha256:
            return Problem(path, name, "is not what was written: its SHA-256 differs")
    return record


def _broken_files(results: Results) -> Iterator[Problem]:
    """Priors and ranks that cannot be read."""
    for folder in (results.priors, results.calibration):
        for path in sorted(folder.glob("*.nc")):
            try:
                load_netcdf(path)
            except (OSError, ValueError) as error:
                yield Problem(path, None, f"cannot be read: {error.__cause__ or error}")


def _broken_figures(results: Results) -> Iterator[Problem]:
    """Figures that cannot be decoded; PNG carries checksums of its own."""
    from PIL import Image

    folders = (results.cells.glob("[!.]*"), [results.figures], [results.priors])
    for path in sorted(path for one in chain(*folders) for path in one.glob("*.png")):
        try:
            with Image.open(path) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise ValueError(f"it has more than {MOST_PIXELS:,} pixels")
                image.verify()
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
            yield Problem(path, None, f"cannot be decoded: {error}")
