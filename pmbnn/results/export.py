"""A results folder as one ZIP file for a colleague: cells, plugins, tables and figures.

Every command reads the unzipped folder. Checkpoints, superseded and broken cells, and tables and
figures of other cells are left out. ``provenance.json`` has the fingerprints of the data; the files
of data come along only if asked for.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from pmbnn.core.files import whole_file
from pmbnn.data.base import found_files
from pmbnn.experiment.load import check_data, load_dataset, load_experiment
from pmbnn.results.derived import STALE, cells_digest, stale_files
from pmbnn.results.integrity import Problem, checked_record
from pmbnn.results.present import ResultsError, present_list, storing
from pmbnn.results.store import Results

ROWS = "data"
"""Folder of a results folder with rows that Python code handed over."""

LEFT_OUT = ("checkpoints", STALE)
"""Folders that only a sweep needs."""


def export(folder: Path, file: Path, data: bool = False) -> list[str]:
    """Write the present cells of a results folder, and all that reading them needs, as a ZIP file.

    A sweep may run meanwhile: finished cells are written.

    Parameters
    ----------
    file
        The ZIP file, which must not exist.
    data
        Whether to add the files of data that the experiment reads.

    Returns
    -------
    list of str
        Paths within the ZIP file.

    Raises
    ------
    ResultsError
        If there is no finished cell, one is broken, or the file cannot be written.
    ConfigError, DataError
        If the data are asked for and are not there.
    """
    if file.suffix.lower() != ".zip":
        raise ResultsError(f"`--to` must be a file that ends in .zip, got `{file}`.")
    if file.exists():
        raise ResultsError(f"`{file}` exists already: choose another (`--to`), or remove it.")
    contents = dict(_contents(Results(folder), data))
    if data:
        contents |= _data_files(folder, contents)
    root = folder.resolve().name
    names = {f"{root}/{name}": path for name, path in contents.items()}
    # Copies of files may have lost their dates, and a ZIP file has none before 1980.
    form = {"compression": zipfile.ZIP_DEFLATED, "strict_timestamps": False}
    with storing(file), whole_file(file) as part, zipfile.ZipFile(part, "x", **form) as archive:
        for name, path in names.items():
            archive.write(path, name)
    return list(names)


def _contents(results: Results, data: bool) -> Iterator[tuple[str, Path]]:
    """Files of a results folder, by their paths in it."""
    folder, records = results.folder, []
    for name in present_list(folder).cells:
        if results.is_finished(name):
            record = checked_record(results, name)
            if isinstance(record, Problem):
                raise ResultsError(
                    f"A cell is broken: {record}. `pmbnn verify {folder} --repair` sets it aside."
                )
            records.append(record)
    if not records:
        raise ResultsError(f"The folder `{folder}` holds no finished cell (cells/<name>).")
    cells, stale = {record.name for record in records}, stale_files(results, cells_digest(records))
    left_out = (*LEFT_OUT, *(() if data else (ROWS,)))
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        first, *rest = name.parts
        if (
            not path.is_file()
            or any(part.startswith(".") for part in name.parts)
            or first in left_out
            or name.as_posix() in stale
            or (first == results.cells.name and rest[0] not in cells)
        ):
            continue
        yield name.as_posix(), path


def _data_files(folder: Path, taken: dict[str, Path]) -> dict[str, Path]:
    """Files of data that the experiment reads, at their paths relative to its folder."""
    with found_files() as found:
        experiment = load_experiment(folder / "experiment.yaml")
        check_data(experiment)
        for spec in dict.fromkeys(cell.dataset for cell in experiment.cells):
            if spec.is_user_data:
                load_dataset(spec)
    files: dict[str, Path] = {}
    for name, path in found.items():
        inside = PurePosixPath(Path(name).as_posix())
        if inside.is_absolute() or ".." in inside.parts or (taken.get(str(inside), path) != path):
            raise ResultsError(
                f"The data `{name}` cannot be added to the ZIP file under that path: name them "
                "by a path below the folder of the experiment file, or export without `--data`."
            )
        inner = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
        files |= {
            str(inside / one.relative_to(path)) if one != path else str(inside): one
            for one in inner
        }
    return files
