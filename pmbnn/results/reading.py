"""Parts of stored traces: a figure loads the groups it draws, and no more."""

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import h5py
import numpy as np
import xarray as xr

from pmbnn.results.store import Results


def load_groups(results: Results, name: str, groups: Sequence[str]) -> xr.DataTree:
    """Those of the groups that the trace of cell ``name`` has, in memory.

    Raises
    ------
    FileNotFoundError
        If the cell has no trace.
    """
    return load_arrays(results, name, dict.fromkeys(groups, ".*"))


def load_arrays(results: Results, name: str, wanted: Mapping[str, str]) -> xr.DataTree:
    """Of each group that the trace of cell ``name`` has, the arrays wanted of it, in memory.

    It takes a fraction of the time of xarray and h5netcdf, which look at every array of a group
    several times, wanted or not.

    Parameters
    ----------
    results, name
        The results folder and the name of the cell.
    wanted
        Groups, each with a regular expression that the names of whole arrays must match. The
        coordinates of what is found come with it.

    Raises
    ------
    FileNotFoundError
        If the cell has no trace.
    """
    with h5py.File(results.cells / name / "trace.nc", "r") as file:
        found = {g: _arrays(file[g], pattern) for g, pattern in wanted.items() if g in file}
    return xr.DataTree.from_dict({f"/{group}": dataset for group, dataset in found.items()})


def stored_variables(results: Results, name: str) -> dict[str, frozenset[str]]:
    """Names of what every group of a stored trace holds."""
    with h5py.File(results.cells / name / "trace.nc", "r") as file:
        return {group: frozenset(_variables(held)) for group, held in file.items()}


# How netCDF lies in HDF5: the labels of a dim are an array of its name, and its scale; so is an
# image, of several dims, that has the name of its first. A dim without labels has a scale as well.

NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
"""Start of the name that the scale of a dim without labels has."""


def _variables(group: Mapping[str, h5py.Dataset]) -> dict[str, h5py.Dataset]:
    """What a group holds by name, without the scales of dims that have no labels."""
    return {
        name: array
        for name, array in group.items()
        if not (array.is_scale and h5py.h5ds.get_scale_name(array.id).startswith(NO_VARIABLE))
    }


def _arrays(group: h5py.Group, pattern: str) -> xr.Dataset:
    """The arrays of a group whose names match, as xarray would read them."""
    every = dict(group.items())
    held = _variables(every)
    labels = {name for name, array in held.items() if array.is_scale and array.ndim == 1}
    names = [name for name in held if re.fullmatch(pattern, name) and name not in labels]
    scales = {name: array for name, array in every.items() if array.is_scale}
    arrays = {name: (_dims(held[name], scales), _values(held[name])) for name in names}
    dims = {dim for axes, _ in arrays.values() for dim in axes}
    coords = {dim: (dim, _values(held[dim])) for dim in dims & labels}
    attributes = {name: _attribute(value) for name, value in group.attrs.items()}
    return xr.Dataset(arrays, coords, attributes)


def _dims(array: h5py.Dataset, scales: Mapping[str, h5py.Dataset]) -> tuple[str, ...]:
    if array.is_scale:  # which has no scales: an image names its dims by their numbers
        numbers = {scale.attrs["_Netcdf4Dimid"]: name for name, scale in scales.items()}
        return tuple(numbers[number] for number in array.attrs["_Netcdf4Coordinates"])
    # By their places in the file: HDF5 would search it for the name of each.
    names = {_place(scale): name for name, scale in scales.items()}
    return tuple(names[_place(axis[0])] for axis in array.dims)


def _place(array: h5py.Dataset) -> int:
    return h5py.h5o.get_info(array.id).addr


def _values(array: h5py.Dataset) -> np.ndarray:
    return np.asarray(array.asstr()[...], str) if array.dtype == object else array[...]


def _attribute(value: Any) -> Any:
    """An attribute as it was set: netCDF has a number as an array of one."""
    if not isinstance(value, np.ndarray):
        return value
    if value.size == 1:
        return value[0]
    return value.tolist() if value.dtype == object else value


def holds_array(results: Results, name: str, group: str, array: str) -> bool:
    """Whether a group of a stored trace holds an array; none that a dim has the name of."""
    with h5py.File(results.cells / name / "trace.nc", "r") as file:
        return f"{group}/{array}" in file


def group_of(trace: xr.DataTree, name: str) -> xr.Dataset:
    """One group of a trace.

    Raises
    ------
    ValueError
        If the trace does not have it.
    """
    if name not in trace.children:
        found = ", ".join(sorted(trace.children)) or "none"
        raise ValueError(f"The trace must have a group `{name}`, got {found}.")
    return trace[name].dataset


def values_of(trace: xr.DataTree, group: str, name: str, *axes: Hashable) -> np.ndarray:
    """One array of a group, its axes in the given order, or as they are if none is given.

    Raises
    ------
    ValueError
        If the trace does not have the group, or the group not the array.
    """
    held = group_of(trace, group)
    if name not in held:
        raise ValueError(f"The group `{group}` must have `{name}`.")
    return held[name].transpose(*axes).values if axes else held[name].values
