"""Files of a results folder that are made of its cells, and of which cells each was made.

``derived.json`` has for each file a digest of the cells that it was made of, and one of the file. A
file is *current* while both hold. Times say nothing of that: copying a folder changes them. Other
files are *stale* and shown nowhere, and the next sweep sets them aside.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pmbnn.results.faults import storing
from pmbnn.results.limits import read_json_text
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results, remove, sha256

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
