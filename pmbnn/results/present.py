"""The present cells of a results folder: those that its experiment had when it was last run.

A sweep lists them in ``cells.json`` before it fits, and readers take the finished cells of the list
alone. Other stored cells are *superseded*: their data, plugins or settings have changed since. They
stay, and are used again without a fit if the experiment has them again; `pmbnn prune` removes them.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pmbnn.results.faults import ResultsError, read_json_text
from pmbnn.results.record import RECORD, CellRecord

if TYPE_CHECKING:
    from pmbnn.results.store import Results

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
