"""What a results folder holds by now, also while a sweep writes it; nothing is written."""

import json
import os
import socket
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pmbnn.results.derived import COMMANDS, cells_digest, stale_files
from pmbnn.results.integrity import Problem, checked_record
from pmbnn.results.present import ResultsError, present_list, read_json_text, superseded_names
from pmbnn.results.record import CellRecord
from pmbnn.results.store import WRITER, Results

UNLESS_ENDED = ", unless that has ended"
"""End of the words on a writer of another machine, where it cannot be looked for."""


class FolderState(NamedTuple):
    """Cells and files of a results folder.

    Attributes
    ----------
    name
        Name of the experiment.
    records
        Finished present cells, in the experiment's order.
    missing
        Number of present cells that are not finished.
    unsampled
        Number of those that ``pmbnn check`` samples.
    broken
        Cells that have changed since they were written, a line each.
    superseded
        Number of stored cells that the experiment no longer has.
    stale
        Tables and figures of other cells than these, with the command that makes each.
    overrides
        Settings that the sweep was told to change.
    writer
        The process that writes the folder; empty if there is none.
    """

    name: str
    records: tuple[CellRecord, ...]
    missing: int
    unsampled: int
    broken: list[str]
    superseded: int
    stale: dict[str, str]
    overrides: tuple[str, ...]
    writer: str

    @property
    def statuses(self) -> Counter[str]:
        """Number of finished cells of each status."""
        return Counter(record.status for record in self.records)

    @property
    def is_being_written(self) -> bool:
        """Whether a process is known to write the folder, of this machine."""
        return bool(self.writer) and not self.writer.endswith(UNLESS_ENDED)

    @property
    def cells(self) -> int:
        """Number of cells that the experiment has."""
        return len(self.records) + len(self.broken) + self.missing


def folder_state(folder: Path) -> FolderState:
    """What a results folder holds by now.

    Raises
    ------
    ResultsError
        If there is none, or it is of another format.
    """
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise ResultsError(f"The results folder `{folder}` {problem}.")
    results, present = Results(folder), present_list(folder)
    if not present.cells:
        raise ResultsError(f"The folder `{folder}` must be a results folder: no sweep wrote it.")
    finished = [name for name in present.cells if results.is_finished(name)]
    missing = present.cells.keys() - set(finished)
    checked = [checked_record(results, name) for name in finished]
    records = tuple(record for record in checked if isinstance(record, CellRecord))
    broken = [str(problem) for problem in checked if isinstance(problem, Problem)]
    stale = stale_files(results, cells_digest(records)) if records else []
    return FolderState(
        present.experiment,
        records,
        len(missing),
        len(missing.intersection(present.references)),
        broken,
        len(superseded_names(folder)),
        {file: COMMANDS.get(file, "sweep") for file in stale},
        _overrides(folder),
        writer_of(folder),
    )


def _overrides(folder: Path) -> tuple[str, ...]:
    with suppress(OSError, ValueError, TypeError, AttributeError):
        content = json.loads(read_json_text(folder / "provenance.json"))
        return tuple(map(str, content.get("overrides", ())))
    return ()


def writer_of(folder: Path) -> str:
    """The running process that writes a folder, in words; empty if none is known."""
    try:
        writer = json.loads((folder / WRITER).read_text(encoding="utf-8"))
        host, process, started = writer["host"], int(writer["process"]), writer["started"]
        is_here = os.name == "posix" and host == socket.gethostname()
        if is_here:
            os.kill(process, 0)  # an error unless it runs
    except PermissionError:  # of another user
        pass
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return f"process {process} on {host} since {started}{'' if is_here else UNLESS_ENDED}"
