"""Specifications that a stored cell's settings were written from."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pmbnn.data import DATASETS
from pmbnn.data.files import beside
from pmbnn.experiment.cells import SOURCES, Unknown, stored_specification
from pmbnn.experiment.load import data_folder
from pmbnn.experiment.plugins import METRIC, Source, stored_parts, stored_source
from pmbnn.experiment.yaml_file import read_yaml
from pmbnn.results.record import CellRecord
from pmbnn.results.store import ResultsError
from pmbnn.spec import Specification
from pmbnn.spec.errors import ConfigError


def stored_specifications(
    cell: Path, record: CellRecord, sections: Collection[str] = tuple(SOURCES)
) -> dict[str, Specification]:
    """Specifications of sections of a stored cell's settings, by the section's name.

    Parts of one's own are those of the sources that the cell was fitted with, and of no others:
    those that this process has run, the plugin where the experiment has it, unless it has changed,
    or the copy in the results folder within `pmbnn.experiment.plugins.trusting`.

    Parameters
    ----------
    cell
        The cell's folder.
    record
        Its record.
    sections
        Those that are asked for; all unless given.

    Raises
    ------
    ResultsError
        If some section is not known to this version, or needs a plugin that is not there as it
        was.
    """
    folder, user = cell.parent.parent, f"The cell `{cell}`"
    needed = {
        plugin.sha256: plugin.name
        for plugin in record.plugins
        if not set(sections).isdisjoint(plugin.sections)
    }
    with (
        _stored_parts(needed, folder, user),
        beside(_data_folder(folder, record), folder),
    ):
        found = {
            section: stored_specification(
                section,
                json.dumps(record.settings.get(section, {})),
                record.sources.get(section, frozenset()),
            )
            for section in sections
        }
    for section, spec in found.items():
        if isinstance(spec, Unknown):
            raise ResultsError(
                f"The settings `{section}` of cell `{cell}` are not known to this version, or "
                "are made of a source that has changed since it was fitted: put that back as it "
                "was, or fit the experiment again."
            )
    return found


def run_stored_plugins(folder: Path, records: Iterable[CellRecord]) -> None:
    """Run what the plugins of stored cells were, so that the cells can be restored.

    Raises
    ------
    ResultsError
        Some plugin is not there as it was, and its copy is not trusted, or there is none.
    """
    needed = {
        plugin.sha256: plugin.name
        for record in records
        for plugin in record.plugins
        if plugin.sections != (METRIC,)
    }
    with _stored_parts(needed, folder, f"The folder `{folder}`"):
        pass


@contextmanager
def _stored_parts(needed: Mapping[str, str], folder: Path, user: str) -> Iterator[None]:
    """Know parts of some sources that cells of a results folder were fitted with, and no others."""

    def find(name: str, digest: str) -> Source:
        folders = (stored_data_folder(folder), folder)
        return stored_source(name, digest, user, folders, folder)

    try:
        with stored_parts(needed, user, find):
            yield
    except ConfigError as error:
        raise ResultsError(str(error)) from error


def _data_folder(folder: Path, record: CellRecord) -> Path:
    """Where files of a cell's data are looked up first; the results folder where it has none."""
    cls = DATASETS.get(getattr(record.cell.dataset, "kind", None))
    return folder if cls is None or not cls.is_user_data else stored_data_folder(folder)


def stored_data_folder(folder: Path) -> Path:
    """Where a results folder's experiment looks up files first; the folder where it says nothing.

    Raises
    ------
    ConfigError
        If its copy of the experiment file cannot be read.
    """
    file = folder / "experiment.yaml"
    return data_folder(read_yaml(file), folder) if file.is_file() else folder
