"""Fitted estimators as netCDF files: those of their posteriors, with their parameters."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from sklearn.base import BaseEstimator

from pmbnn.prediction.posterior import Posterior, read
from pmbnn.prediction.posterior_file import SECTIONS, read_part, save, written
from pmbnn.spec import Specification, plain


def write_estimator(
    path: Path, estimator: BaseEstimator, posterior: Posterior, learned: Mapping[str, np.ndarray]
) -> None:
    """Write an estimator, its posterior, and its learned attributes."""
    parameters = {name: _written(v) for name, v in estimator.get_params(deep=False).items()}
    attrs = {
        "class": type(estimator).__name__,
        "parameters": json.dumps(parameters),
        "learned": json.dumps({name: array.dtype.kind for name, array in learned.items()}),
    }
    arrays = {
        name: ([f"{name}_{axis}" for axis in range(array.ndim)], _storable(array))
        for name, array in learned.items()
    }
    save(posterior, path, xr.Dataset(arrays, attrs=attrs))


def read_estimator(
    path: Path, cls: type[BaseEstimator]
) -> tuple[dict[str, Any], Posterior, dict[str, np.ndarray]]:
    """Parameters of an estimator of a class, its posterior, and its learned attributes.

    Raises
    ------
    ValueError
        If the file does not hold such an estimator.
    """
    posterior, kept = read(path)
    stored = "a posterior" if kept is None else f"a {kept.attrs.get('class')}"
    if stored != f"a {cls.__name__}":
        raise ValueError(f"`{path}` must hold a {cls.__name__}, got {stored}.")
    parameters = {name: _read(v) for name, v in json.loads(kept.attrs["parameters"]).items()}
    kinds = json.loads(kept.attrs["learned"])
    learned = {name: _learned(kept[name].values, kind) for name, kind in kinds.items()}
    return parameters, posterior, learned


SECTION = "section"
"""Key of a written specification that says which part of a model it is."""


def _written(value: object) -> Any:
    """A parameter as JSON has it; specifications with the section that they are of."""
    match value:
        case Specification():
            return {SECTION: _section_of(value), "settings": written(value)}
        case np.random.RandomState():
            raise ValueError("`random_state` must be a number or None to be saved.")
        case Mapping():
            return {key: _written(entry) for key, entry in value.items()}
    return plain(value)


def _section_of(spec: Specification) -> str | None:
    found = (name for name, classes in SECTIONS.items() if type(spec) in classes.values())
    return next(found, None)


def _read(value: Any) -> Any:
    """A parameter as `_written` wrote it; JSON has no tuples."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    if SECTION in value:
        return read_part(value[SECTION], value["settings"])
    return {name: _read(entry) for name, entry in value.items()}


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
