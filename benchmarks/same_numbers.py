"""Whether two runs have the same numbers, whatever their versions.

``python benchmarks/same_numbers.py OLD NEW [--rtol 0]`` compares every table (CSV) of two folders,
rows matched by their order, columns by name, and every array of their traces; a column that has
been renamed is given as ``--renamed OLD=NEW``. It prints the largest relative difference of every
column or array that differs, and names what only one of them has. Exit status 1 if a number
differs by more than `rtol`, or if a table or trace of the old folder is missing in the new one.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

TIMES = ("seconds", "name")
"""Columns that say how long something took, or hold a digest of versions."""


def main() -> int:
    """Print what differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rtol", type=float, default=0.0)
    parser.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW")
    given = parser.parse_args()
    renamed = dict(pair.split("=", 1) for pair in given.renamed)
    compared = failed = 0
    for file in files(given.old):
        compared += 1
        for line in compare(given.old / file, given.new / file, given.rtol, renamed):
            failed += not line.startswith("only ")
            print(f"{file}: {line}")
    for file in sorted(set(files(given.new)) - set(files(given.old))):
        print(f"{file}: only in the new folder")
    print(f"{compared} tables and traces, {failed} differences")
    return 1 if failed or not compared else 0


def files(folder: Path) -> list[Path]:
    """Tables and traces beneath a folder, in the order of their names."""
    found = [*folder.rglob("*.csv"), *folder.rglob("trace.nc")]
    return sorted(path.relative_to(folder) for path in found)


def compare(old: Path, new: Path, rtol: float, renamed: dict[str, str]) -> Iterator[str]:
    """What differs between two files, a line each."""
    if not new.is_file():
        yield "missing in the new folder"
        return
    read = read_table if old.suffix == ".csv" else read_trace
    ours, theirs = read(old), read(new)
    ours = {renamed.get(name, name): values for name, values in ours.items()}
    for words, alone in (("old", ours.keys() - theirs), ("new", theirs.keys() - ours)):
        if alone:
            yield f"only in the {words} one: {', '.join(sorted(alone))}"
    for name in ours.keys() & theirs.keys():
        if difference := compare_values(ours[name], theirs[name], rtol):
            yield f"{name}: {difference}"


def read_table(path: Path) -> dict[str, np.ndarray]:
    """Columns of a table by name."""
    table = pd.read_csv(path)
    return {name: table[name].to_numpy() for name in table.columns if name not in TIMES}


def read_trace(path: Path) -> dict[str, np.ndarray]:
    """Arrays of a trace by group and name."""
    with xr.open_datatree(path) as tree:
        return {
            f"{group.path}/{name}": array.values
            for group in tree.subtree
            for name, array in group.to_dataset(inherit=False).variables.items()
        }


def compare_values(ours: np.ndarray, theirs: np.ndarray, rtol: float) -> str:
    """The largest relative difference, or how many other texts; empty without any."""
    if ours.shape != theirs.shape:
        return f"shapes {ours.shape} and {theirs.shape}"
    if ours.dtype.kind in "fiub" and theirs.dtype.kind in "fiub":
        a, b = ours.astype(float), theirs.astype(float)
        if np.allclose(a, b, rtol=rtol, atol=0, equal_nan=True):
            return ""
        largest = np.nanmax(np.abs(b - a) / np.maximum(np.abs(a), 1e-300))
        return f"largest relative difference {largest:.2e}"
    differing = (ours.astype(str) != theirs.astype(str)).sum()
    return f"{differing} other texts" if differing else ""


if __name__ == "__main__":
    sys.exit(main())
