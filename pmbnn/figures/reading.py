"""Parts of stored traces: a figure loads the groups it draws, and no more."""

from collections.abc import Sequence

import h5netcdf
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


def stored_variables(results: Results, name: str, group: str) -> frozenset[str]:
    """Names of what a group of a stored trace holds; none if there is no such group."""
    with h5netcdf.File(results.cells / name / "trace.nc", "r") as file:
        return frozenset(file[group].variables) if group in file.groups else frozenset()


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
