"""Specifications of stored cells: their settings, with the plugins and data folders of the fit."""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pmbnn.core.errors import ConfigError
from pmbnn.core.spec import Specification
from pmbnn.data import DATASETS
from pmbnn.data.base import NamesFiles, beside
from pmbnn.experiment.cells import SOURCES, Unknown, stored_specification
from pmbnn.experiment.load import data_folder
from pmbnn.experiment.plugins import METRIC, stored_parts
from pmbnn.experiment.yaml_file import read_yaml
from pmbnn.results.present import ResultsError
from pmbnn.results.record import CellRecord


def stored_specifications(
    cell: Path, record: CellRecord, sections: Collection[str] = tuple(SOURCES)
) -> dict[str, Specification]:
    """Specifications of sections of a stored cell's settings, by the section's name.

    User-defined parts are those that the cell was fitted with, and no others: parts that this
    process has registered, the plugin where the experiment has it, unless it has changed, or the
    copy in the results folder within `pmbnn.experiment.plugins.trusting`.

    Parameters
    ----------
    cell
        The cell's folder.
    record
        Its record.
    sections
        Names of the sections; all unless given.

    Raises
    ------
    ResultsError
        If some section is unknown to this version, or needs a plugin that is missing or has
        changed.
    """
    folder = cell.parent.parent
    needed = {
        plugin.sha256: plugin.name
        for plugin in record.plugins
        if not set(sections).isdisjoint(plugin.sections)
    }
    dataset = DATASETS.get(getattr(record.cell.dataset, "kind", None))
    is_user_data = dataset is not None and dataset.is_user_data
    names_files = is_user_data or isinstance(record.cell.prior, NamesFiles)
    with (
        _stored_parts(needed, folder, f"The cell `{cell}`"),
        beside(stored_data_folder(folder) if names_files else folder, folder),
    ):
        specs = {
            section: stored_specification(
                section,
                json.dumps(record.settings.get(section, {})),
                record.sources.get(section, frozenset()),
            )
            for section in sections
        }
    for section, spec in specs.items():
        if isinstance(spec, Unknown):
            raise ResultsError(
                f"The settings `{section}` of cell `{cell}` are not known to this version, or "
                "are made of a source that has changed since it was fitted: put that back as it "
                "was, or fit the experiment again."
            )
    return specs


def run_stored_plugins(folder: Path, records: Iterable[CellRecord]) -> None:
    """Run the plugins of stored cells, so that the cells can be restored.

    Raises
    ------
    ResultsError
        Some plugin is missing or has changed, and its copy is not trusted, or there is none.
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
    """Register parts of some plugins of a results folder, and no others, within the block."""
    try:
        folders = (stored_data_folder(folder), folder) if needed else ()
        with stored_parts(needed, user, folders, folder):
            yield
    except ConfigError as error:
        raise ResultsError(str(error)) from error


def stored_data_folder(folder: Path) -> Path:
    """Folder where a results folder's experiment looks up files first; itself by default.

    Raises
    ------
    ConfigError
        If its copy of the experiment file cannot be read.
    """
    file = folder / "experiment.yaml"
    return data_folder(read_yaml(file), folder) if file.is_file() else folder
