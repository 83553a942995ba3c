"""Fitted estimators as netCDF files: those of their posteriors, with their parameters."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from pmbnn.prediction.posterior import Posterior, read
from pmbnn.prediction.posterior_file import dataset_of, read_part, save, section_of
from pmbnn.spec import Specification, Tune, plain


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
    arrays = {name: _storable(array) for name, array in learned.items()}
    save(posterior, path, dataset_of(arrays).assign_attrs(attrs))


def read_estimator(
    path: Path, cls: type[BaseEstimator]
) -> tuple[dict[str, Any], Posterior, dict[str, np.ndarray]]:
    """Parameters of an estimator of a class, its posterior, and its learned attributes.

    Raises
    ------
    ValueError
        If the file does not hold such an estimator.
    """
    posterior, stored = read(path)
    content = "a posterior" if stored is None else f"a {stored.attrs.get('class')}"
    if content != f"a {cls.__name__}":
        raise ValueError(f"`{path}` must hold a {cls.__name__}, got {content}.")
    parameters = {name: _read(v) for name, v in json.loads(stored.attrs["parameters"]).items()}
    kinds = json.loads(stored.attrs["learned"])
    learned = {name: _learned(stored[name].values, kind) for name, kind in kinds.items()}
    return parameters, posterior, learned


SECTION = "section"
"""Key of a written specification with the section that it belongs to."""

TUNE = "tune"
"""Section of candidate values."""


def _written(value: object) -> Any:
    """A parameter as JSON has it; specifications with their section."""
    match value:
        case Specification():
            section = TUNE if isinstance(value, Tune) else section_of(value)
            return {SECTION: section, "settings": value.model_dump(mode="json")}
        case np.random.RandomState():
            raise ValueError("`random_state` must be a number or None to be saved.")
        case Mapping():
            return {key: _written(entry) for key, entry in value.items()}
    return plain(value)


def _read(value: Any) -> Any:
    """A parameter as `_written` wrote it; JSON has no tuples."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, dict):
        return value
    if SECTION not in value:
        return {name: _read(entry) for name, entry in value.items()}
    section, settings = value[SECTION], value["settings"]
    return Tune(**settings) if section == TUNE else read_part(section, settings)


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
