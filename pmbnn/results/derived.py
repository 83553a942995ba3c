"""Tables and figures of a results folder, and the cells that each was made of.

``derived.json`` has for each file a digest of the cells that it was made of, and one of the file. A
file is *current* while both hold; times do not matter, because copying a folder changes them. Other
files are *stale*: they are shown nowhere, and the next sweep sets them aside. Verdicts on contrasts
are stale, too, where the contrasts or their margin have changed, and comparisons with published
results of each split where the files of these have.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from pmbnn.core.errors import ConfigError
from pmbnn.data import DataError
from pmbnn.data.base import find
from pmbnn.experiment.contrasts import stored_contrasts
from pmbnn.experiment.published import FILE as PUBLISHED
from pmbnn.experiment.published import read_published
from pmbnn.results.present import (
    read_json_text,
    storing,
)
from pmbnn.results.record import CellRecord
from pmbnn.results.specifications import stored_data_folder
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


BASELINES = ("baselines.csv", "paired_baselines.csv")
"""Those with the published results of each split that the experiment's table names."""


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
            entry |= {"command": command, "plugin": plugin, "splits": _splits(results, file)}
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
        and _has_splits(results, file, entry.get("splits"))
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


def _splits(results: Results, file: str) -> dict[str, str | None] | None:
    """SHA-256 of the files of published splits that a table is made of; None of one not there.

    None where a table is made of none, or they are not known.
    """
    path = results.folder / PUBLISHED
    if file not in BASELINES or not path.is_file():
        return None
    digests: dict[str, str | None] = {}
    try:
        table = read_published(path.read_text(encoding="utf-8"), str(path))
        for named in dict.fromkeys(entry.file for entry in table.splits):
            digests[named] = None
            with suppress(DataError):
                digests[named] = sha256(find(named, [stored_data_folder(results.folder)], "file"))
    except (ConfigError, OSError, ValueError):
        return None
    return digests


def _has_splits(results: Results, file: str, noted: object) -> bool:
    """Whether the files of published splits are as noted; those that are not here may be."""
    if not isinstance(noted, dict) or (now := _splits(results, file)) is None:
        return True
    return noted.keys() == now.keys() and all(d in (None, noted[named]) for named, d in now.items())


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
    further = {"contrasts": VERDICTS, "published results": BASELINES}
    what = ["cells", *(name for name, tables in further.items() if files.keys() & set(tables))]
    than = f"of other {' or '.join(what)} than the present ones"
    return f"{than}: {', '.join(files)} (made anew by {commands})"


def _entries(results: Results) -> dict[str, Any]:
    """Entries of the file; none where it cannot be read, so that files are made again."""
    try:
        content = json.loads(read_json_text(results.folder / FILE))
    except (FileNotFoundError, ValueError, RecursionError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {file: entry for file, entry in entries if isinstance(entry, dict)}
