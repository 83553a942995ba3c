"""Specifications that a stored cell's settings were written from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pmbnn.data import DATASETS
from pmbnn.data.local_files import beside
from pmbnn.experiment.cells import SOURCES
from pmbnn.experiment.errors import ConfigError
from pmbnn.experiment.load import data_folder
from pmbnn.experiment.plugins import load_stored_plugins
from pmbnn.experiment.yaml_file import read_yaml
from pmbnn.results.record import CellRecord
from pmbnn.results.store import ResultsError
from pmbnn.spec import Registry, Specification


def stored_specifications(cell: Path, record: CellRecord) -> dict[str, Specification]:
    """Specifications of every section of a stored cell's settings, by its name.

    Plugins are found from the cell's folder.

    Raises
    ------
    ResultsError
        If some section is not known to this version, or needs a plugin that is unavailable.
    """
    folder = cell.parent.parent
    with beside(_data_folder(folder, record), folder):
        return {name: _specification(cell, name, record.settings) for name in SOURCES}


def _data_folder(folder: Path, record: CellRecord) -> Path:
    """Where files of a cell's data are looked up first; the results folder where it has none."""
    cls = DATASETS.get(record.settings["dataset"].get("kind"))
    return folder if cls is None or not cls.is_own else stored_data_folder(folder)


def stored_data_folder(folder: Path) -> Path:
    """Where a results folder's experiment looks up files first; the folder where it says nothing.

    Raises
    ------
    ConfigError
        If its copy of the experiment file cannot be read.
    """
    file = folder / "experiment.yaml"
    return data_folder(read_yaml(file), folder) if file.is_file() else folder


def _specification(cell: Path, section: str, settings: Mapping[str, Any]) -> Specification:
    source = SOURCES[section]
    try:
        own = settings[section]
        if isinstance(source, Registry) and own[source.tag] not in source:
            load_stored_plugins(cell.parent.parent)
        cls = source.class_of(own) if isinstance(source, Registry) else source
        return cls.model_validate_json(json.dumps(own))
    except ConfigError as error:
        raise ResultsError(
            f"The settings `{section}` of cell `{cell}` need a plugin: {error}"
        ) from error
    except (KeyError, ValidationError) as error:
        raise ResultsError(
            f"The settings `{section}` of cell `{cell}` are not known to this version: "
            "fit the experiment again."
        ) from error
