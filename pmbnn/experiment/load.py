"""Experiment files: read, checked, and expanded into the cells of their grids.

Reading a file needs neither PyMC nor the data that it names. `check_data` reads these, so that
planning reports every mistake before anything is compiled.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmbnn.data import DataError, DatasetSpec
from pmbnn.data.files import beside
from pmbnn.experiment.cells import Experiment
from pmbnn.experiment.contrasts import check_contrasts, read_contrasts
from pmbnn.experiment.expand import Sweep, name_of, read_sweep
from pmbnn.experiment.plugins import load_plugins, trusting
from pmbnn.experiment.published import FILE, published_text
from pmbnn.experiment.yaml_file import read_yaml, yaml_text
from pmbnn.spec import Specification
from pmbnn.spec.errors import ConfigError, check_keys, must

if TYPE_CHECKING:
    from pmbnn.data.arrays import Dataset

DATA_FOLDER = "data_folder"
"""Key of where files of data are looked up first, which results folders have."""


def load_experiment(path: str | Path, trust_plugins: bool = False) -> Experiment:
    """Experiment that a YAML file describes, checked as far as that needs none of its data.

    Planning (`check_data`) reads the data sets and checks the rest.

    Parameters
    ----------
    path
        The file, or its copy in a results folder.
    trust_plugins
        Whether to run the copies of plugins that a results folder keeps, where the plugins
        themselves are not there as they were.

    Raises
    ------
    ConfigError
        The file cannot be read, or something in it is not valid; the message is one line.
    """
    with trusting(trust_plugins):
        return experiment_of(read_yaml(path), Path(path).parent)


def resolved(experiment: Experiment, folder: Path | None = None) -> dict[str, Any]:
    """The experiment with every default filled in, in the form of an experiment file.

    It names the copy of its published numbers that lies beside it in a results folder.

    Parameters
    ----------
    folder
        The results folder, from which the files of one's own data are found again.
    """
    sources = [source.as_written for source in experiment.plugins]
    plugins = {"plugins": sources} if sources else {}
    published = {} if experiment.published is None else {"published": FILE}
    return {
        "name": experiment.name,
        **_data_folder(experiment, folder),
        **plugins,
        **published,
        **experiment.contrasts.as_written,
        "sweeps": [
            {"name": sweep.name}
            | {
                section: [as_written(spec) for spec in specs]
                for section, specs in sweep.sections.by_name.items()
            }
            for sweep in experiment.sweeps
        ],
    }


def _data_folder(experiment: Experiment, folder: Path | None) -> dict[str, str]:
    """Where data of one's own and plugins were looked up first, seen from a results folder."""
    own = experiment.plugins or any(
        spec.is_user_data for sweep in experiment.sweeps for spec in sweep.sections.dataset
    )
    if folder is None or not own:
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


def experiment_of(content: dict, folder: Path, results: Path | None = None) -> Experiment:
    """Experiment that the content of a file describes, checked as far as that needs no data.

    Parameters
    ----------
    folder
        Where the files lie that it names.
    results
        Where stored rows lie, if not there.

    Raises
    ------
    ConfigError
        Something in it is not valid.
    """
    known = ["name", DATA_FOLDER, "plugins", "published", "contrasts", "margin", "sweeps"]
    check_keys(content, known, "")
    name = name_of(content)
    of_data = data_folder(content, folder)
    plugins = load_plugins(content.get("plugins", []), (folder, of_data), folder)
    with beside(of_data, results or folder):
        sweeps = _sweeps(content)
    published = published_text(content.get("published"), folder)
    contrasts = read_contrasts(content)
    experiment = Experiment(name, sweeps, plugins, published, contrasts, of_data)
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


def data_source(spec: DatasetSpec) -> tuple[str, str]:
    """Fingerprint and source of a data set; raises as `load_dataset` does."""
    dataset = load_dataset(spec)
    return dataset.fingerprint, dataset.source


def data_folder(content: dict, folder: Path) -> Path:
    """Where files are looked up first: beside the experiment file, unless it says where."""
    named = content.get(DATA_FOLDER, ".")
    if not isinstance(named, str):
        raise must(DATA_FOLDER, "must be text", named)
    return (Path(folder) / named).resolve()


def _sweeps(content: dict) -> tuple[Sweep, ...]:
    listed = content.get("sweeps")
    if not isinstance(listed, list) or not listed:
        raise must("sweeps", "must be a list with at least one sweep", listed)
    sweeps: list[Sweep] = []
    for index, item in enumerate(listed):
        sweep = read_sweep(item, f"sweeps[{index}]")
        for other, earlier in enumerate(sweeps):
            if earlier.name == sweep.name:
                rule = f"must not repeat `sweeps[{other}].name`"
                raise must(f"sweeps[{index}].name", rule, sweep.name)
        sweeps.append(sweep)
    return tuple(sweeps)


def _check_cells(experiment: Experiment) -> None:
    """Raise ConfigError if cells are repeated, or are not what the contrasts name."""
    _check_unique(experiment)
    check_contrasts(experiment.contrasts, experiment.cells)


def _check_unique(experiment: Experiment) -> None:
    seen: dict[tuple[Specification, ...], str] = {}
    for index, sweep in enumerate(experiment.sweeps):
        for cell in sweep.cells:
            first = seen.setdefault(tuple(cell.settings.values()), sweep.name)
            if first != sweep.name:
                kinds = (cell.dataset, cell.network, cell.prior, cell.hyperprior)
                what = ", ".join(spec.kind for spec in kinds)
                raise ConfigError(f"`sweeps[{index}]` repeats a cell of sweep `{first}`: {what}.")


def as_written(spec: Specification) -> dict[str, Any]:
    """A specification as an experiment file writes it."""
    return {name: value_as_written(getattr(spec, name)) for name in type(spec).model_fields}


def value_as_written(value: object) -> object:
    """A value of a specification, or a specification, as an experiment file writes it."""
    if isinstance(value, Specification) and not value.expands:
        return {type(value).__name__.lower(): value.model_dump(mode="json")}
    if isinstance(value, Specification):
        return as_written(value)
    if isinstance(value, tuple):
        return [[value_as_written(entry) for entry in value]]
    return value
