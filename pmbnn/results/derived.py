"""Files of a results folder that are made of its cells, and of which cells each was made.

``derived.json`` has for each file a digest of the cells that it was made of, and one of the file. A
file is *current* while both hold. Times say nothing of that: copying a folder changes them. Other
files are *stale* and shown nowhere, and the next sweep sets them aside.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

from pmbnn.results.faults import ResultsError, read_json_text, storing
from pmbnn.results.present import (
    checkpoint_name,
    is_finished,
    present_list,
    present_records,
    superseded_names,
)
from pmbnn.results.record import CellRecord
from pmbnn.results.store import BROKEN, PRIORS, Results, remove, sha256, writing

FILE = "derived.json"
"""File of a results folder that says of which cells other files were made."""

STALE = "stale"
"""Folder, in a results folder, of the tables that were set aside."""

TABLES = ("metrics.csv", "summary.csv", "ood.csv", "agreement.csv", "ladder.csv")
"""Tables that every sweep makes anew. Rows of ``sensitivity.csv`` are kept by the names of cells,
and so by the digests of all that decides them: a sweep drops those of other cells."""

INDEX = "index.html"
"""Page that every sweep makes anew."""

COMMANDS = {
    "baselines.csv": "baselines",
    "paired_baselines.csv": "baselines",
    "compare.csv": "compare",
    "evidence.csv": "compare",
    "regret.csv": "compare",
    "claims.csv": "claims",
    "report.html": "report",
}
"""Other files, and the command that makes each."""


def cells_digest(records: Iterable[CellRecord]) -> str:
    """Digest of everything that is known of some cells, whatever their order."""
    digest = hashlib.sha256()
    for text in sorted(record.model_dump_json() for record in records):
        digest.update(hashlib.sha256(text.encode()).digest())
    return digest.hexdigest()[:16]


def note_files(
    results: Results,
    files: Iterable[str],
    digest: str,
    command: str | None = None,
    plugin: str | None = None,
) -> None:
    """Note that files of a results folder were made of the cells of a digest, those that exist.

    Parameters
    ----------
    command
        That makes a figure, where it is no sweep that does.
    plugin
        What registered figure or table was written to the files, and the version of its code.
    """
    entries = _entries(results)
    made_by = {"command": command, "plugin": plugin}
    made_by = {key: text for key, text in made_by.items() if text is not None}
    for file in files:
        entries.pop(file, None)
        if (results.folder / file).is_file():
            noted = {"cells": digest, "sha256": sha256(results.folder / file)}
            entries[file] = noted | made_by
    kept = {file: entries[file] for file in sorted(entries) if (results.folder / file).exists()}
    results.write_json(FILE, kept)


def is_current(results: Results, file: str, digest: str) -> bool:
    """Whether a file is there, as it was made, of the cells of a digest."""
    return bool(current_files(results, [file], digest))


def current_files(results: Results, files: Iterable[str], digest: str) -> list[str]:
    """Those of some files that are there, as they were made, of the cells of a digest."""
    entries = _entries(results)
    return [
        file
        for file in files
        if (results.folder / file).is_file()
        and (noted := entries.get(file))
        and (noted.get("cells"), noted.get("sha256")) == (digest, sha256(results.folder / file))
    ]


def overview_files(results: Results) -> list[str]:
    """Overviews that a results folder holds, of whichever cells."""
    return [f"{results.figures.name}/{path.name}" for path in sorted(results.figures.glob("*.png"))]


def files_of_plugins(results: Results) -> dict[str, str]:
    """Files that hold figures and tables of plugins, with which of them each holds."""
    there = {*overview_files(results), *(path.name for path in results.folder.glob("*.csv"))}
    noted = {file: entry.get("plugin") for file, entry in _entries(results).items()}
    return {f: noted[f] for f in sorted(there & noted.keys()) if isinstance(noted[f], str)}


def stale_files(results: Results, digest: str) -> list[str]:
    """Files that are made of cells and are there, but not of the cells of a digest.

    A figure that nobody has noted is the user's.
    """
    noted = _entries(results)
    figures = (file for file in overview_files(results) if file in noted)
    every = dict.fromkeys([*TABLES, INDEX, *COMMANDS, *figures, *files_of_plugins(results)])
    current = set(current_files(results, every, digest))
    return [file for file in every if (results.folder / file).is_file() and file not in current]


def set_aside_stale(results: Results, digest: str) -> dict[str, str]:
    """Move stale files out of the way, and remove those that every sweep makes anew.

    Returns
    -------
    dict
        Commands that make them anew, by the files that were moved, into the folder ``stale``.
    """
    entries, moved = _entries(results), {}
    for file in stale_files(results, digest):
        command = COMMANDS.get(file) or entries.get(file, {}).get("command")
        if command is None:
            remove(results.folder / file)
            continue
        path = results.folder / STALE / file
        with storing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(results.folder / file, path)
        moved[file] = command
    return moved


def stale_line(files: Mapping[str, str]) -> str:
    """What is said of tables and figures of other cells, by the commands that make them anew."""
    commands = ", ".join(f"`pmbnn {command}`" for command in dict.fromkeys(files.values()))
    return f"of other cells than the present ones: {', '.join(files)} (made anew by {commands})"


def _entries(results: Results) -> dict[str, Any]:
    """What was noted; nothing where it cannot be read, so that files are made again."""
    try:
        content = json.loads(read_json_text(results.folder / FILE))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {file: noted for file, noted in entries if isinstance(noted, dict)}


# What a results folder holds beside its present cells and what is made of them: removed


class Superseded(NamedTuple):
    """A file or folder that `prune` removes: where it is, its size in bytes, and why it goes."""

    path: Path
    size: int
    reason: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.path} ({self.size:,} bytes): {self.reason}"


def prune(folder: Path | str, dry_run: bool = False, wait: bool = False) -> list[Superseded]:
    """Remove superseded cells from a results folder, and what was made of them.

    Superseded are stored cells that the experiment no longer has, because its data, plugins or
    settings have changed; cells that were set aside as broken, once they are fitted again or
    superseded; checkpoints of cells that are finished or superseded; tables and figures of other
    cells than the present ones; and priors that the experiment no longer has. Present cells stay,
    also those that failed.

    Parameters
    ----------
    folder
        Results folder.
    dry_run
        Whether to remove nothing.
    wait
        Whether to wait where another process writes the folder.

    Returns
    -------
    list of Superseded
        What was removed, or would be.

    Raises
    ------
    ResultsError
        If the folder is none, is of an older format, or has a present cell that is broken.
    FolderBusyError
        If another process writes the folder, and `wait` is false.
    """
    results = Results(Path(folder))
    if not results.cells.is_dir():
        raise ResultsError(f"`{folder}` must be a results folder: it has no folder `cells`.")
    with nullcontext() if dry_run else writing(results.folder, wait):
        found = [Superseded(p, _size(p), reason) for p, reason in _superseded(results)]
        for one in () if dry_run else found:
            remove(one.path)
    return found


def _superseded(results: Results) -> Iterator[tuple[Path, str]]:
    """Every file or folder that goes, and why."""
    folder, present = results.folder, present_list(results.folder).cells
    for name in superseded_names(folder):
        yield results.cells / name, "a superseded cell"
    for path in sorted(results.cells.glob(f"{BROKEN}*")):
        name = path.name.removeprefix(BROKEN)
        if name not in present or is_finished(folder, name):
            yield path, "a broken cell that was fitted again or is superseded"
    for path in _checkpoints(results):
        yield path, "checkpoints of cells that are finished or superseded"
    for file in stale_files(results, cells_digest(present_records(results))):
        yield folder / file, "of other cells than the present ones"
    if (folder / STALE).is_dir():
        yield folder / STALE, "tables that were set aside"
    priors = set(results.names_in_table(PRIORS))
    for path in sorted(results.priors.glob("*")):
        if path.stem not in priors:
            yield path, "a prior that the experiment no longer has"


def _checkpoints(results: Results) -> list[Path]:
    """Folders of checkpoints that no job with cells to fit has."""
    cells = present_list(results.folder)
    due = {name for name in cells.cells if not is_finished(results.folder, name)}
    jobs = [job for job in cells.jobs if due.intersection(job) and cells.cells.keys() >= set(job)]
    kept = set(map(checkpoint_name, [*jobs, *([name] for name in due)]))
    return [path for path in sorted(results.checkpoints("").glob("*")) if path.name not in kept]


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir())
