"""Parts of stored traces: a figure loads the groups it draws, and no more."""

import re
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import h5netcdf
import h5py
import numpy as np
import xarray as xr

from pmbnn.storage import Results


def load_groups(results: Results, name: str, groups: Sequence[str]) -> xr.DataTree:
    """Those of the groups that the trace of cell ``name`` has, in memory.

    Raises
    ------
    FileNotFoundError
        If the cell has no trace.
    """
    path = results.cells / name / "trace.nc"
    with h5netcdf.File(path, "r") as file:
        present = [group for group in groups if group in file.groups]
    loaded = {group: xr.load_dataset(path, group=group, engine="h5netcdf") for group in present}
    return xr.DataTree.from_dict({f"/{group}": dataset for group, dataset in loaded.items()})


def load_arrays(results: Results, name: str, wanted: Mapping[str, str]) -> xr.DataTree:
    """Of each group that the trace of cell ``name`` has, the arrays wanted of it, in memory.

    It takes a tenth of the time of `load_groups`, for xarray looks at every array of a group.

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


def _arrays(group: h5py.Group, pattern: str) -> xr.Dataset:
    """The arrays of a group whose names match, as xarray would read them."""
    arrays = {name: _array(group[name]) for name in group if re.fullmatch(pattern, name)}
    dims = {dim for axes, _ in arrays.values() for dim in axes}
    coords = {dim: _array(group[dim]) for dim in dims if dim in group and _has_values(group[dim])}
    attrs = {k: _attribute(v) for k, v in group.attrs.items() if not k.startswith("_")}
    return xr.Dataset(arrays, coords, attrs)


def _array(held: h5py.Dataset) -> tuple[list[str], np.ndarray]:
    if "DIMENSION_LIST" in held.attrs:
        dims = [scale[0].name.rsplit("/", 1)[-1] for scale in held.dims]
    else:
        dims = [held.name.rsplit("/", 1)[-1]] if held.ndim else []
    is_text = h5py.check_string_dtype(held.dtype) is not None
    return dims, held.asstr()[...].astype(str) if is_text else held[...]


def _has_values(held: h5py.Dataset) -> bool:
    """Whether it is more than a dimension; netCDF marks those without values by their name."""
    bare = b"This is a netCDF dimension but not a"
    return not (held.is_scale and held.attrs.get("NAME", b"").startswith(bare))


def _attribute(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value


def stored_variables(results: Results, name: str) -> dict[str, frozenset[str]]:
    """Names of what every group of a stored trace holds."""
    with h5py.File(results.cells / name / "trace.nc", "r") as file:
        return {
            group: frozenset(n for n in held if _has_values(held[n]))
            for group, held in file.items()
        }


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
