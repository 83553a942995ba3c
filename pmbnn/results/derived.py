"""Tables and figures of a results folder, and the cells that each was made of.

``derived.json`` has for each file a digest of the cells that it was made of, and one of the file. A
file is *current* while both hold; times do not matter, because copying a folder changes them. Other
files are *stale*: they are shown nowhere, and the next sweep sets them aside.
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
"""File of a results folder with the digests of the other files and of their cells."""

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
    """Digest of the records of some cells, in any order."""
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
    """Note that existing files of a results folder were made of the cells of a digest.

    Parameters
    ----------
    command
        Command that makes a figure, unless a sweep does.
    plugin
        Registered figure or table that was written to the files, and the version of its code.
    """
    entries = _entries(results)
    for file in files:
        if (results.folder / file).is_file():
            entry = {"cells": digest, "sha256": sha256(results.folder / file)}
            entry |= {"command": command, "plugin": plugin}
            entries[file] = {key: text for key, text in entry.items() if text is not None}
    existing = {file: entries[file] for file in sorted(entries) if (results.folder / file).exists()}
    results.write_json(FILE, existing)


def is_current(results: Results, file: str, digest: str) -> bool:
    """Whether a file is unchanged and was made of the cells of a digest."""
    return bool(current_files(results, [file], digest))


def current_files(results: Results, files: Iterable[str], digest: str) -> list[str]:
    """Files that are unchanged and were made of the cells of a digest."""
    entries = _entries(results)
    return [
        file
        for file in files
        if (results.folder / file).is_file()
        and (entry := entries.get(file))
        and (entry.get("cells"), entry.get("sha256")) == (digest, sha256(results.folder / file))
    ]


def overview_files(results: Results) -> list[str]:
    """Overviews in a results folder, of any cells."""
    return [f"{results.figures.name}/{path.name}" for path in sorted(results.figures.glob("*.png"))]


def files_of_plugins(results: Results) -> dict[str, str]:
    """Figures and tables of plugins: the plugin's figure or table, by the file."""
    files = {*overview_files(results), *(path.name for path in results.folder.glob("*.csv"))}
    plugins = {file: entry.get("plugin") for file, entry in _entries(results).items()}
    return {f: plugins[f] for f in sorted(files & plugins.keys()) if isinstance(plugins[f], str)}


def stale_files(results: Results, digest: str) -> list[str]:
    """Existing tables and figures that are not current for the cells of a digest.

    A figure that is not noted is the user's.
    """
    entries = _entries(results)
    figures = (file for file in overview_files(results) if file in entries)
    every = dict.fromkeys([*TABLES, INDEX, *COMMANDS, *figures, *files_of_plugins(results)])
    current = set(current_files(results, every, digest))
    return [file for file in every if (results.folder / file).is_file() and file not in current]


def set_aside_stale(results: Results, digest: str) -> dict[str, str]:
    """Move stale files aside, and remove those that every sweep makes anew.

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
    """Line on stale tables and figures, with the commands that make them anew."""
    commands = ", ".join(f"`pmbnn {command}`" for command in dict.fromkeys(files.values()))
    return f"of other cells than the present ones: {', '.join(files)} (made anew by {commands})"


def _entries(results: Results) -> dict[str, Any]:
    """Entries of the file; none where it cannot be read, so that files are made again."""
    try:
        content = json.loads(read_json_text(results.folder / FILE))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {file: entry for file, entry in entries if isinstance(entry, dict)}


# Superseded cells, and the files that were made of them, are removed


class Superseded(NamedTuple):
    """A file or folder that `prune` removes, with its size in bytes and the reason."""

    path: Path
    size: int
    reason: str

    def __str__(self) -> str:
        """One line."""
        return f"{self.path} ({self.size:,} bytes): {self.reason}"


def prune(folder: Path | str, dry_run: bool = False, wait: bool = False) -> list[Superseded]:
    """Remove superseded cells from a results folder, and the files that were made of them.

    These are stored cells that the experiment no longer has, because its data, plugins or settings
    have changed; cells that were set aside as broken, once they are fitted again or superseded;
    checkpoints of cells that are finished or superseded; tables and figures of other cells than the
    present ones; and priors that the experiment no longer has. Present cells stay, also failed
    ones.

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
        Removed files and folders; in a dry run, those that would be.

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
        superseded = [Superseded(p, _size(p), reason) for p, reason in _superseded(results)]
        for entry in () if dry_run else superseded:
            remove(entry.path)
    return superseded


def _superseded(results: Results) -> Iterator[tuple[Path, str]]:
    """Files and folders to remove, and why."""
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
    """Folders of checkpoints that no job with unfinished cells has."""
    present = present_list(results.folder)
    unfinished = {name for name in present.cells if not is_finished(results.folder, name)}
    jobs = [
        j for j in present.jobs if unfinished.intersection(j) and present.cells.keys() >= set(j)
    ]
    used = set(map(checkpoint_name, [*jobs, *([name] for name in unfinished)]))
    return [path for path in sorted(results.checkpoints("").glob("*")) if path.name not in used]


def _size(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if not file.is_dir())
