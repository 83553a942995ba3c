"""Experiment files: read, checked, and expanded into the cells of their grids.

Reading a file needs neither PyMC nor the data that it names. `check_data` reads these, so that
planning reports every mistake before anything is compiled.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pmbnn.core.errors import ConfigError, UserError, check_keys, must
from pmbnn.core.spec import Specification
from pmbnn.data import DataError, DatasetSpec
from pmbnn.data.base import NamesFiles, beside
from pmbnn.experiment.axes import check_names
from pmbnn.experiment.cells import Experiment
from pmbnn.experiment.contrasts import check_contrasts, read_contrasts
from pmbnn.experiment.expand import Sweep, name_of, read_sweep
from pmbnn.experiment.overrides import (
    KEY,
    Overridden,
    Overrides,
    one_sweep_remedy,
    overridden,
    override_texts,
    read_overrides,
)
from pmbnn.experiment.plugins import load_plugins, trusting
from pmbnn.experiment.published import FILE, published_text
from pmbnn.experiment.yaml_file import read_yaml, yaml_text

if TYPE_CHECKING:
    from pmbnn.data.arrays import Dataset

DATA_FOLDER = "data_folder"
"""Key of the folder where files of data are looked up first; results folders have it."""


def load_experiment(
    path: str | Path,
    trust_plugins: bool = False,
    overrides: Overridden = (),
) -> Experiment:
    """Experiment of a YAML file, checked as far as possible without its data.

    Planning (`check_data`) reads the data sets and checks the rest.

    Parameters
    ----------
    path
        The file, or its copy in a results folder.
    trust_plugins
        Whether to run the copies of plugins that a results folder keeps, where the plugins
        themselves are missing or have changed.
    overrides
        Settings to change, as ``["inference.steps=20000", "prior=normal,laplace"]`` or as a mapping
        ``{"inference.steps": 20000, "prior": ["normal", "laplace"]}``.

    Raises
    ------
    ConfigError
        The file cannot be read, or something in it is not valid; the message is one line.
    """
    with trusting(trust_plugins):
        return experiment_of(read_yaml(path), Path(path).parent, overrides=overrides)


def resolved(experiment: Experiment, folder: Path | None = None) -> dict[str, Any]:
    """The experiment with every default filled in, in the form of an experiment file.

    It names the copy of its published numbers that lies beside it in a results folder.

    Parameters
    ----------
    folder
        The results folder, from which the files of user data are found again.
    """
    content: dict[str, Any] = {"name": experiment.name} | _data_folder(experiment, folder)
    if experiment.plugins:
        content["plugins"] = [source.as_written for source in experiment.plugins]
    if experiment.published is not None:
        content["published"] = FILE
    if experiment.overrides:
        content[KEY] = list(experiment.overrides)
    content |= experiment.contrasts.as_written
    return content | {
        "sweeps": [
            {"name": sweep.name}
            | {
                section: [as_written(spec) for spec in specs]
                for section, specs in sweep.sections.items()
            }
            for sweep in experiment.sweeps
        ],
    }


def _data_folder(experiment: Experiment, folder: Path | None) -> dict[str, str]:
    """Folder of user data, stored cells and plugins, relative to a results folder."""
    has_files = experiment.plugins or any(
        getattr(spec, "is_user_data", isinstance(spec, NamesFiles))
        for sweep in experiment.sweeps
        for section in ("dataset", "prior")
        for spec in sweep.sections[section]
    )
    if folder is None or not has_files:
        return {}
    try:
        return {DATA_FOLDER: os.path.relpath(experiment.folder, Path(folder).resolve())}
    except ValueError:  # on another drive
        return {}


def resolved_text(experiment: Experiment, folder: Path | None = None) -> str:
    """YAML text of the resolved experiment, which loads as an equal experiment.

    Parameters
    ----------
    folder
        The results folder, where it is written into one.
    """
    return yaml_text(resolved(experiment, folder))


def experiment_of(
    content: dict,
    folder: Path,
    results: Path | None = None,
    overrides: Overridden = (),
) -> Experiment:
    """Experiment of the content of a file, checked as far as possible without its data.

    Parameters
    ----------
    folder
        Folder of the files that it names.
    results
        Folder of stored rows, if another one.
    overrides
        As `load_experiment` takes them.

    Raises
    ------
    ConfigError
        Something in it is not valid.
    """
    keys = ["name", DATA_FOLDER, "plugins", "published", KEY, "contrasts", "margin", "sweeps"]
    check_keys(content, keys, "")
    name = name_of(content)
    files = data_folder(content, folder)
    plugins = load_plugins(content.get("plugins", []), (folder, files), folder)
    changed = read_overrides(overrides)
    # Those of a results folder are in its settings already.
    texts = override_texts(read_overrides(content.get(KEY, []), KEY) | changed)
    content = overridden(content, changed)
    with beside(files, results or folder):
        sweeps = _sweeps(content, changed)
    published = published_text(content.get("published"), folder)
    contrasts = read_contrasts(content)
    experiment = Experiment(name, sweeps, plugins, published, contrasts, files, texts)
    if not any(sweep.needs_data for sweep in sweeps):
        _check_cells(experiment)
    return experiment


def check_data(experiment: Experiment) -> None:
    """Read the user's data and check an experiment against them: the first step of every plan.

    Raises
    ------
    DataError
        Some data set is unavailable, or not as it must be; the message names its place.
    ConfigError
        Something in the file does not fit one of them.
    """
    for sweep in experiment.sweeps:
        sweep.check_data()
    if any(sweep.needs_data for sweep in experiment.sweeps):
        _check_cells(experiment)


def load_dataset(spec: DatasetSpec) -> "Dataset":
    """The rows of a data set.

    Raises
    ------
    DataError
        If it is unavailable; the message names it.
    """
    try:
        return spec.load()
    except DataError as error:
        raise DataError(f"Data set `{spec.kind}`: {error}") from error


class DataSource(NamedTuple):
    """Digests of the arrays of a data set and of their names and units, and where they are from."""

    fingerprint: str
    encoding: str
    source: str


def data_source(spec: DatasetSpec) -> DataSource:
    """Fingerprint, encoding and source of a data set; raises as `load_dataset` does."""
    dataset = load_dataset(spec)
    return DataSource(dataset.fingerprint, dataset.encoding, dataset.source)


def data_folder(content: dict, folder: Path) -> Path:
    """Folder where files are looked up first: that of the experiment file by default."""
    relative = content.get(DATA_FOLDER, ".")
    if not isinstance(relative, str):
        raise must(DATA_FOLDER, "must be text", relative)
    return (Path(folder) / relative).resolve()


def _sweeps(content: dict, changed: Overrides) -> tuple[Sweep, ...]:
    listed = content.get("sweeps")
    if not isinstance(listed, list) or not listed:
        raise must("sweeps", "must be a list with at least one sweep", listed)
    try:
        sweeps = [read_sweep(item, f"sweeps[{index}]") for index, item in enumerate(listed)]
    except ConfigError as error:
        if changed and (remedy := one_sweep_remedy(str(error), changed, _valid_names(listed))):
            raise ConfigError(f"{error} {remedy}") from None
        raise
    check_names([sweep.name for sweep in sweeps], "sweeps")
    return tuple(sweeps)


def _valid_names(listed: Sequence[Any]) -> list[str]:
    """Names of the sweeps that can be read."""
    names = []
    for item in listed:
        with suppress(UserError):
            names.append(read_sweep(item, "sweeps").name)
    return names


def _check_cells(experiment: Experiment) -> None:
    """Raise ConfigError if cells are repeated, or are not what the contrasts name."""
    seen: dict[tuple[Specification, ...], str] = {}
    for index, sweep in enumerate(experiment.sweeps):
        for cell in sweep.cells:
            first = seen.setdefault(tuple(cell.settings.values()), sweep.name)
            if first != sweep.name:
                kinds = (cell.dataset, cell.network, cell.prior, cell.hyperprior)
                what = ", ".join(spec.kind for spec in kinds)
                raise ConfigError(f"`sweeps[{index}]` repeats a cell of sweep `{first}`: {what}.")
    check_contrasts(experiment.contrasts, experiment.cells)


def as_written(spec: Specification) -> dict[str, Any]:
    """A specification as an experiment file writes it."""
    return {name: value_as_written(getattr(spec, name)) for name in spec.written_fields}


def value_as_written(value: object) -> object:
    """A value of a specification, or a specification, as an experiment file writes it."""
    if isinstance(value, Specification) and not value.expands:
        return {type(value).__name__.lower(): value.model_dump(mode="json")}
    if isinstance(value, Specification):
        return as_written(value)
    if isinstance(value, tuple):
        return [[value_as_written(entry) for entry in value]]
    return value
