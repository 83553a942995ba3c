"""Parts of stored traces: a figure loads the groups it draws, and no more."""

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

import netCDF4
import numpy as np
import xarray as xr

from pmbnn.data.arrays import Standardisation, identity_standardisation
from pmbnn.models.likelihoods import TARGET_NAME
from pmbnn.results.faults import reading_netcdf
from pmbnn.results.limits import check_fits
from pmbnn.results.store import Results

PHOTOGRAPHS = "photographs"
"""Attribute of groups whose images are to be shown as they are."""


def load_groups(results: Results, name: str, groups: Sequence[str]) -> xr.DataTree:
    """Those of the groups that the trace of cell ``name`` has, in memory.

    Raises
    ------
    FileNotFoundError
        If the cell has no trace.
    OSError
        If it cannot be read.
    """
    return load_arrays(results, name, dict.fromkeys(groups, ".*"))


def load_arrays(results: Results, name: str, wanted: Mapping[str, str]) -> xr.DataTree:
    """Of each group that the trace of cell ``name`` has, the arrays wanted of it, in memory.

    It takes a fraction of the time of xarray, which looks at every array of a group several times.

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
    OSError
        If it cannot be read.
    """
    path = results.cells / name / "trace.nc"
    with reading_netcdf(path), netCDF4.Dataset(path) as file:
        held = file.groups
        check_fits(sum(_bytes(held[group]) for group in wanted if group in held), path)
        found = {g: _arrays(held[g], pattern) for g, pattern in wanted.items() if g in held}
    return xr.DataTree.from_dict({f"/{group}": dataset for group, dataset in found.items()})


def load_netcdf(path: Path) -> xr.Dataset:
    """The one group of a netCDF file, in memory.

    Raises
    ------
    OSError, ValueError
        If it cannot be read.
    """
    with reading_netcdf(path), xr.open_dataset(path, engine="netcdf4") as opened:
        check_fits(opened.nbytes, path)
        return opened.load()


def stored_variables(results: Results, name: str) -> dict[str, frozenset[str]]:
    """Names of what every group of a stored trace holds."""
    path = results.cells / name / "trace.nc"
    with reading_netcdf(path), netCDF4.Dataset(path) as file:
        return {group: frozenset(held.variables) for group, held in file.groups.items()}


def target_standardisation(trace: xr.DataTree) -> Standardisation:
    """The map from targets in their own units to those that were fitted."""
    kept = trace["constant_data"].dataset
    if "target_sd" not in kept:
        return identity_standardisation()
    return Standardisation(kept["target_mean"].values, kept["target_sd"].values)


def by_target(trace: xr.DataTree) -> dict[str, xr.DataTree]:
    """The trace as of each of several targets alone, by their names; of one, as it is, by none."""
    groups = {f"/{name}": group.dataset for name, group in trace.children.items()}
    labels = [group[TARGET_NAME].values for group in groups.values() if TARGET_NAME in group.coords]
    if not labels:
        return {"": trace}

    def alone(i: int) -> xr.DataTree:
        at = {TARGET_NAME: i}
        own = {p: g.isel(at, drop=True, missing_dims="ignore") for p, g in groups.items()}
        return xr.DataTree.from_dict(own)

    return {str(name): alone(i) for i, name in enumerate(labels[0])}


def _arrays(group: netCDF4.Group, pattern: str) -> xr.Dataset:
    """The arrays of a group whose names match, as xarray would read them."""
    held = group.variables
    # Images may have a dim of their own name; labels of a dim have it alone.
    labels = {name for name in held if held[name].dimensions == (name,)}
    names = [name for name in held if re.fullmatch(pattern, name) and name not in labels]
    arrays = {name: (held[name].dimensions, _values(held[name])) for name in names}
    dims = {dim for axes, _ in arrays.values() for dim in axes}
    coords = {dim: (dim, _values(held[dim])) for dim in dims & labels}
    return xr.Dataset(arrays, coords, {name: group.getncattr(name) for name in group.ncattrs()})


def _bytes(group: netCDF4.Group) -> float:
    """Bytes of the arrays of a group; those of text as eight a word."""
    return sum(
        math.prod(map(float, variable.shape)) * getattr(variable.dtype, "itemsize", 8)
        for variable in group.variables.values()
    )


def _values(variable: netCDF4.Variable) -> np.ndarray:
    variable.set_auto_mask(False)
    values = variable[...]
    return values.astype(str) if values.dtype == object else values


def holds_array(results: Results, name: str, group: str, array: str) -> bool:
    """Whether a group of a stored trace holds an array."""
    return array in stored_variables(results, name).get(group, ())


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


def images_of(trace: xr.DataTree, group: str, name: str, axis: Hashable) -> np.ndarray:
    """Images of a group as they are to be shown, ``(image, row, column)``, colours last; bytes.

    Photographs are as they are; what is bright on black, as digits are, is dark on white paper.

    Raises
    ------
    ValueError
        As `values_of`.
    """
    pixels = values_of(trace, group, name, axis, "row", "column", ...)
    is_foreground = pixels.ndim == 3 and not group_of(trace, group).attrs.get(PHOTOGRAPHS, 0)
    return 255 - pixels if is_foreground else pixels
