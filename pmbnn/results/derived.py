"""Tables and figures of a results folder, and the cells that each was made of.

``derived.json`` has for each file a digest of the cells that it was made of, and one of the file. A
file is *current* while both hold; times do not matter, because copying a folder changes them. Other
files are *stale*: they are shown nowhere, and the next sweep sets them aside. Verdicts on contrasts
are stale, too, where the contrasts or their margin have changed.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from pmbnn.core.errors import ConfigError
from pmbnn.experiment.contrasts import stored_contrasts
from pmbnn.results.present import (
    read_json_text,
    storing,
)
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results, remove, sha256

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
    "compare_over_data.csv": "compare",
    "compare_rows.csv": "compare --rows",
    "evidence.csv": "compare",
    "regret.csv": "compare",
    "claims.csv": "claims",
}
"""Other files, and the command that makes each."""

VERDICTS = ("compare.csv", "compare_over_data.csv", "compare_rows.csv")
"""Those on the contrasts of the experiment file, which may change while its cells do not."""


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
            made_of = _made_of(results, file, digest)
            entry = {"cells": made_of, "sha256": sha256(results.folder / file)}
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
        and entry.get("cells") == _made_of(results, file, digest)
        and entry.get("sha256") == sha256(results.folder / file)
    ]


def _made_of(results: Results, file: str, digest: str) -> str:
    """Digest of what a file is made of: of verdicts, the contrasts and their margin as well."""
    if file not in VERDICTS:
        return digest
    try:
        written = stored_contrasts(results.folder).as_written
    except ConfigError:
        return digest
    text = json.dumps(written, sort_keys=True, default=str)
    return f"{digest}-{hashlib.sha256(text.encode()).hexdigest()[:8]}" if written else digest


def has_changed(results: Results, file: str) -> bool:
    """Whether an existing file is another than was noted, as one that a spreadsheet has saved."""
    noted = _entries(results).get(file, {}).get("sha256")
    return noted is not None and noted != sha256(results.folder / file)


def set_aside(results: Results, file: str) -> None:
    """Move a file into the folder ``stale``."""
    path = results.folder / STALE / file
    with storing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(results.folder / file, path)


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
        set_aside(results, file)
        moved[file] = command
    return moved


def stale_line(files: Mapping[str, str]) -> str:
    """Line on stale tables and figures, with the commands that make them anew."""
    commands = ", ".join(f"`pmbnn {command}`" for command in dict.fromkeys(files.values()))
    what = "cells or contrasts" if files.keys() & set(VERDICTS) else "cells"
    return f"of other {what} than the present ones: {', '.join(files)} (made anew by {commands})"


def _entries(results: Results) -> dict[str, Any]:
    """Entries of the file; none where it cannot be read, so that files are made again."""
    try:
        content = json.loads(read_json_text(results.folder / FILE))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {file: entry for file, entry in entries if isinstance(entry, dict)}
