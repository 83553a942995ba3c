"""NetCDF files of draws, which ArviZ opens: written whole or not at all."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import xarray as xr

from pmbnn.core.files import whole_file

WORTH_COMPRESSING = 16_384
"""Bytes of an array; smaller ones grow by it, as a compressed array has an index of its own."""

END_OF_FILE = {0: 40, 2: 28, 3: 28}
"""Where the superblock of an HDF5 file says how long that is, by the superblock's version."""

MOST_IN_MEMORY = 2**31
"""Bytes of a trace that is written by way of memory; a larger one needs a disk with room."""

Writer = Callable[[Path], None]


def write_trace(trace: xr.DataTree, path: Path) -> None:
    """Write a netCDF file, which appears whole or not at all."""
    with whole_file(path) as part:
        trace_writer(trace)(part)


def load_tree(tree: xr.DataTree) -> xr.DataTree:
    """The tree of an open file with all of its arrays in memory.

    xarray's own ``DataTree.load`` leaves out arrays that have the name of a group (2026.9): it
    compares their names with paths. They would be read when used, from whatever file is there then.
    """
    for node in tree.subtree:
        for variable in node.variables.values():
            variable.load()
    return tree


def trace_writer(trace: xr.DataTree) -> Writer:
    """Writer of a compressed netCDF file that ArviZ opens.

    By netCDF's own library: h5netcdf takes four times as long to write the seventy variables of a
    small network.
    """

    def write(path: Path) -> None:
        if trace.nbytes > MOST_IN_MEMORY and shutil.disk_usage(path.parent).free < trace.nbytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        if trace.nbytes > MOST_IN_MEMORY:
            trace.to_netcdf(path, engine="netcdf4", encoding=_encoding(trace))
        else:
            path.write_bytes(netcdf_image(trace))

    return write


def netcdf_image(trace: xr.DataTree) -> memoryview:
    """The bytes of that file, made in memory; two of one trace differ in when they were made.

    HDF5 must not meet an error of the disk: where one is full, closing a file ends the process
    (SIGSEGV in HDF5 2.0). In memory it takes no more time, and as many bytes as the file has.
    """
    import netCDF4
    from xarray.backends import NetCDF4DataStore

    encoding = _encoding(trace)
    # Of a byte, for what it begins with is not cleared; it grows by 64 KiB, which are.
    file = netCDF4.Dataset("trace.nc", "w", memory=1)
    for node in trace.subtree:
        group = file if node is trace else file.createGroup(node.path)
        own = node.to_dataset(inherit=node is trace)
        own.dump_to_store(NetCDF4DataStore(group), encoding=encoding.get(node.path))
    image = file.close()
    place = END_OF_FILE.get(image[8])
    return image if place is None else image[: int.from_bytes(image[place : place + 8], "little")]


def _encoding(trace: xr.DataTree) -> dict[str, dict[str, Any]]:
    """How the arrays of each group are written, by its path."""
    return {
        group.path: {name: _compression(array) for name, array in group.data_vars.items()}
        for group in trace.subtree
        if group.data_vars
    }


def _compression(array: xr.DataArray) -> dict[str, Any]:
    # Level 4 takes 1.35 times as long for a file that is a hundredth smaller.
    compressed = array.nbytes >= WORTH_COMPRESSING
    return {"zlib": True, "complevel": 1, "shuffle": True} if compressed else {}
