"""Fitted estimators as netCDF files: settings, arrays and draws, and nothing that is run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from sklearn.base import BaseEstimator

from pmbnn.data.arrays import Dataset, Standardisation
from pmbnn.estimators.fitted import Fitted, Given
from pmbnn.experiment.cells import SOURCES, Cell
from pmbnn.experiment.plugins import METRIC, sources_of, stored_parts
from pmbnn.inference.result import StoredGuide
from pmbnn.results.limits import check_fits
from pmbnn.results.store import trace_writer
from pmbnn.spec import Registry, Specification, plain

GROUP = "estimator"
"""Group of what a fitted estimator needs beside the draws that ArviZ reads."""

FORMAT = 2
"""Of that group; files of other ones are refused."""


def write_fitted(
    path: Path, estimator: BaseEstimator, found: Fitted, learned: Mapping[str, np.ndarray]
) -> None:
    """Write an estimator, what was fitted, and its learned attributes."""
    parameters = {name: _written(v) for name, v in estimator.get_params(deep=False).items()}
    cell, dataset = found.cell, found.dataset
    attrs = {
        "format": FORMAT,
        "class": type(estimator).__name__,
        "parameters": json.dumps(parameters),
        "cell": json.dumps({name: _written(spec) for name, spec in cell.settings.items()}),
        "hyperprior": json.dumps(_written(found.hyperprior)),
        "classes": json.dumps(dataset.classes),
        "features": json.dumps(dataset.features),
        "status": found.status,
        "reason": found.reason,
        "plugins": json.dumps(_plugins(cell)),
        "learned": json.dumps({name: array.dtype.kind for name, array in learned.items()}),
        "guide": json.dumps(list(found.fits[0].constrained)),
    }
    arrays = {
        "x": dataset.x_train,
        "target": dataset.y_train,
        "mean": dataset.standardisation.mean,
        "sd": dataset.standardisation.sd,
        "target_mean": dataset.target_standardisation.mean,
        "target_sd": dataset.target_standardisation.sd,
        "weight": np.asarray(found.weights),
        "draw_key": np.stack([fit.draw_key for fit in found.fits]),
    }
    for name in found.fits[0].constrained:
        arrays[f"guide_{name}"] = np.stack([fit.constrained[name] for fit in found.fits])
    arrays |= {name: _storable(array) for name, array in learned.items()}
    group = xr.Dataset({n: _numbered(n, a) for n, a in arrays.items()}, attrs=attrs)
    tree = found.draws().copy()
    tree[GROUP] = xr.DataTree(group)
    trace_writer(tree)(path)


def read_fitted(
    path: Path, cls: type[BaseEstimator]
) -> tuple[dict[str, Any], Fitted, dict[str, np.ndarray]]:
    """Parameters of an estimator of a class, what was fitted, and its learned attributes.

    Raises
    ------
    ValueError
        If the file does not hold such an estimator.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist.")
    try:
        with xr.open_datatree(path, engine="netcdf4") as tree:
            check_fits(tree.nbytes, path)
            tree = tree.load()
        group = tree[GROUP].dataset
    except (OSError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is no file of an estimator.") from error
    attrs = group.attrs
    if attrs["format"] != FORMAT or attrs["class"] != cls.__name__:
        raise ValueError(
            f"{path} must hold a {cls.__name__} in format {FORMAT}, "
            f"got a {attrs['class']} in format {attrs['format']}."
        )
    said = {name: json.loads(attrs[name]) for name in ("parameters", "cell", "learned", "guide")}
    with stored_parts(json.loads(attrs.get("plugins", "{}")), f"The estimator of {path}"):
        specs = {name: _read(spec) for name, spec in said["cell"].items()}
        hyperprior = _read(json.loads(attrs["hyperprior"]))
        parameters = {name: _read(value) for name, value in said["parameters"].items()}
    dataset = Dataset(
        x_train=group["x"].values,
        y_train=group["target"].values,
        x_test=group["x"].values[:0],
        y_test=group["target"].values[:0],
        features=tuple(json.loads(attrs["features"])),
        classes=tuple(json.loads(attrs["classes"])),
        standardisation=Standardisation(group["mean"].values, group["sd"].values),
        source="given",
        target_standardisation=Standardisation(
            group["target_mean"].values, group["target_sd"].values
        ),
    )
    guides = {name: group[f"guide_{name}"].values for name in said["guide"]}
    fits = [
        StoredGuide({name: array[i] for name, array in guides.items()}, key)
        for i, key in enumerate(group["draw_key"].values)
    ]
    del tree[GROUP]
    found = Fitted(
        cell=Cell(sweep=GROUP, **specs),
        hyperprior=hyperprior,
        dataset=dataset,
        fits=fits,
        weights=group["weight"].values.tolist(),
        status=attrs["status"],
        reason=attrs["reason"],
        trace=tree,
    )
    learned = {name: _learned(group[name].values, kind) for name, kind in said["learned"].items()}
    return parameters, found, learned


def _plugins(cell: Cell) -> dict[str, str]:
    """Names of the sources of one's own that an estimator is made of, by their SHA-256."""
    sources = sources_of(cell).items()
    return {digest: name for digest, (name, sections) in sources if sections != (METRIC,)}


SECTION, GIVEN = "section", "given"
"""Key of a written specification that says which section it is of; the section of given arrays."""


def _written(value: object) -> Any:
    """A parameter as JSON has it; specifications with the section that they are of."""
    match value:
        case Given():
            return {SECTION: GIVEN, "settings": value.model_dump(mode="json")}
        case Specification():
            return {SECTION: _section_of(value), "settings": value.model_dump(mode="json")}
        case np.random.RandomState():
            raise ValueError("`random_state` must be a number or None to be saved.")
        case Mapping():
            return {key: _written(entry) for key, entry in value.items()}
    return plain(value)


def _section_of(spec: Specification) -> str:
    for section, source in SOURCES.items():
        classes = source.values() if isinstance(source, Registry) else (source,)
        if type(spec) in classes:
            return section
    raise ValueError(f"{type(spec).__name__} must be registered to be saved: see pmbnn.register.")


def _read(value: Any) -> Any:
    """A parameter as `_written` wrote it; JSON has no tuples."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    if SECTION not in value:
        return {name: _read(entry) for name, entry in value.items()}
    section, settings = value[SECTION], value["settings"]
    if section == GIVEN:
        return Given.model_validate_json(json.dumps(settings))
    source = SOURCES[section]
    try:
        cls = source.class_of(settings) if isinstance(source, Registry) else source
    except KeyError as error:
        raise ValueError(
            f"the {section} {error} is not known: register its class as it was before loading."
        ) from error
    return cls.model_validate_json(json.dumps(settings))


def _numbered(name: str, array: np.ndarray) -> tuple[list[str], np.ndarray]:
    """An array with dims of its own."""
    return [f"{name}_{axis}" for axis in range(array.ndim)], array


def _storable(array: np.ndarray) -> np.ndarray:
    """An array of a kind that netCDF has."""
    if array.dtype.kind == "b":
        return array.astype("i1")
    return array.astype(str) if array.dtype.kind == "O" else array


def _learned(array: np.ndarray, kind: str) -> np.ndarray | int:
    """An attribute as it was before it was stored."""
    if array.ndim == 0:
        return array.item()
    if kind in "UO":
        return array.astype(object if kind == "O" else str)
    return array.astype(bool) if kind == "b" else array
