"""Parts of stored traces: a figure loads the groups it draws, and no more."""

from collections.abc import Hashable, Sequence

import h5netcdf
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


def stored_variables(results: Results, name: str) -> dict[str, frozenset[str]]:
    """Names of what every group of a stored trace holds."""
    with h5netcdf.File(results.cells / name / "trace.nc", "r") as file:
        return {group: frozenset(held.variables) for group, held in file.groups.items()}


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
