"""Superseded cells, and the files that were made of them, are removed."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from pmbnn.results.derived import STALE, cells_digest, stale_files
from pmbnn.results.present import (
    ResultsError,
    checkpoint_name,
    is_finished,
    present_list,
    present_records,
    superseded_names,
)
from pmbnn.results.store import BROKEN, MATCH, PRIORS, Results, remove, writing


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
        if path.name.removesuffix(MATCH) not in priors and path.stem not in priors:
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
