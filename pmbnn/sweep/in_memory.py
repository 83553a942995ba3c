"""An experiment that Python code writes: a mapping with objects, and data that lie in memory."""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from pmbnn.core.errors import ConfigError
from pmbnn.core.spec import Specification, plain, validated
from pmbnn.data import Indices, Npz
from pmbnn.data.arrays import Dataset, Origin
from pmbnn.data.raw import RowSettings, comparable_groups, rows_from_arrays
from pmbnn.experiment.load import Experiment, check_data, experiment_of, value_as_written
from pmbnn.experiment.overrides import Overridden
from pmbnn.experiment.plugins import is_current
from pmbnn.results.store import Results, writing

FOLDER = "data"
"""Folder of a results folder with the rows that were handed over in memory."""

NAMES = ("features", "target_names", "categories")
"""Arrays of names, where there are such."""

ARRAYS = ("x", "y", *NAMES, "test", "file", "allow_pickle")
"""Names that an array of groups cannot have: of the other arrays, and of what `np.savez` takes."""

PLAIN = (str, int, float, bool, type(None))

Archives = dict[str, dict[str, np.ndarray]]
"""Arrays of each archive, by its path in the results folder."""


def experiment_in_memory(
    content: Mapping[str, Any], folder: Path, wait: bool = False, overrides: Overridden = ()
) -> Experiment:
    """Experiment of a mapping as an experiment file holds it, checked and expanded.

    Names may be objects of this package instead, tuples stand for lists, and data sets of
    `Dataset.from_arrays` and `from_frame` for files. Their rows are stored in the results folder,
    once for all data seeds, in archives whose names tell their content: cells are then those of
    ``kind: npz``. Files that the mapping names are looked up in the working directory.

    Parameters
    ----------
    folder
        The results folder.
    wait
        Whether to wait where another process writes it.
    overrides
        As `load_experiment` takes them.

    Raises
    ------
    ConfigError, DataError
        Something in it is not valid; nothing was written.
    """
    archives: Archives = {}
    datasets: dict[Npz, Dataset] = {}
    written = _plain(content, "", archives, datasets)
    with TemporaryDirectory() as trial:
        _save(archives, Path(trial))
        experiment = experiment_of(written, Path.cwd(), Path(trial), overrides)
        check_data(experiment)
        _check_unchanged(experiment, datasets)
    with writing(folder, wait):
        _save(archives, folder)
    return experiment_of(written, Path.cwd(), folder, overrides)


def _plain(value: object, place: str, archives: Archives, datasets: dict[Npz, Dataset]) -> Any:
    """The value as an experiment file writes it; rows to be stored are added to `archives`."""
    value = plain(value)
    if isinstance(value, Dataset):
        spec = _stored(value, place, archives)
        datasets[spec] = value
        return value_as_written(spec)
    if isinstance(value, Specification):
        if not is_current(value):
            raise ConfigError(
                f"`{place}` must be of a class as it is registered now, got `{value.kind}` of an "
                "earlier version: make the object again."
            )
        return value_as_written(value)
    if isinstance(value, Mapping):
        at = f"{place}." if place else ""
        # PyYAML reads the key `on` of the hyperpriors as true.
        named = {"on" if k is True and "on" not in value else k: v for k, v in value.items()}
        return {k: _plain(v, f"{at}{k}", archives, datasets) for k, v in named.items()}
    if isinstance(value, list | tuple):
        return [_plain(v, f"{place}[{i}]", archives, datasets) for i, v in enumerate(value)]
    if isinstance(value, PLAIN):
        return value
    raise ConfigError(
        f"`{place}` must be a name, a number, a list, a mapping or an object of pmbnn, got "
        f"{type(value).__name__}. `pb.Dataset.from_frame` and `from_arrays` make data sets."
    )


def _stored(dataset: Dataset, place: str, archives: Archives) -> Npz:
    """A data set as one of an archive, which is added to `archives`."""
    origin = dataset.origin
    if origin is None:
        raise ConfigError(
            f"`{place}` must be a data set that `pb.Dataset.from_arrays` or `from_frame` has made, "
            "or one that reads files, got another."
        )
    rows, split = origin.arrays, origin.settings.split
    is_text = rows.y.dtype.kind not in "biufU"
    arrays = {"x": rows.x, "y": np.array(list(map(str, rows.y))) if is_text else rows.y}
    names = {}
    for what in NAMES:
        if getattr(rows, what):
            arrays[what], names[what] = np.array(getattr(rows, what)), what
    if split.group is not None:
        group = "group" if split.group in ARRAYS else split.group
        arrays[group] = comparable_groups(rows.groups)
        split = split.model_copy(update={"group": group})
    if isinstance(split, Indices):
        arrays["test"] = _test_rows(origin, place)
    safe = re.sub(r"[^A-Za-z0-9_-]+", "-", origin.name)
    file = f"{FOLDER}/{safe}-{_digest(arrays)[:8]}.npz"
    archives[file] = arrays
    if isinstance(split, Indices):
        split = Indices(file=file, test="test")
    settings = {name: getattr(origin.settings, name) for name in RowSettings.model_fields}
    settings |= names | {"file": file, "split": split}
    return validated(Npz, settings, {}, place)


def _test_rows(origin: Origin, place: str) -> np.ndarray:
    """Numbers of the test rows that a file lists, among the rows that are stored."""
    settings, arrays = origin.settings, origin.arrays
    if settings.split.resplits:
        raise ConfigError(
            f"`{place}` must have the same test rows for every data seed, got a split by "
            f"{settings.split.file!r}: store the rows too, for `kind: npz`."
        )
    raw = rows_from_arrays(arrays, settings, place)
    _, test = settings.split.parts(raw, settings.seed)
    rows = raw.numbers[test]
    return rows if arrays.numbers is None else np.searchsorted(arrays.numbers, rows)


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
    digest = hashlib.sha256()
    for name, array in arrays.items():
        digest.update(f"{name}{array.shape}{array.dtype.str}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _save(archives: Archives, folder: Path) -> None:
    for file, arrays in archives.items():
        if not (folder / file).is_file():
            Results(folder).write_file(file, lambda path, a=arrays: np.savez(path, **a))


def _check_unchanged(experiment: Experiment, datasets: Mapping[Npz, Dataset]) -> None:
    """Raise ConfigError where a data set is no longer what its rows make."""
    for index, sweep in enumerate(experiment.sweeps):
        for number, spec in enumerate(sweep.sections["dataset"]):
            dataset = datasets.get(spec)
            if dataset is not None and spec.load().fingerprint != dataset.fingerprint:
                raise ConfigError(
                    f"`sweeps[{index}].dataset[{number}]` must be as it was made: it, or what it "
                    "was made of, has been changed since."
                )
