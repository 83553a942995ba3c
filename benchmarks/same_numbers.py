"""Whether two runs of one experiment have the same numbers, whatever their versions.

``python benchmarks/same_numbers.py OLD NEW [--rtol 0]`` compares ``summary.csv`` of two results
folders, rows matched by their order, columns by name; a column that has been renamed is given as
``--renamed OLD=NEW``. It prints the largest relative difference of every column that differs, and
names columns that only one of them has. Exit status 1 if a number differs by more than `rtol`.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd


def main() -> int:
    """Print what differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rtol", type=float, default=0.0)
    parser.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW")
    given = parser.parse_args()
    old, new = (pd.read_csv(folder / "summary.csv") for folder in (given.old, given.new))
    old = old.rename(columns=dict(pair.split("=", 1) for pair in given.renamed))
    if len(old) != len(new):
        print(f"{len(old)} and {len(new)} combinations")
        return 1
    for words, columns in (("old", old.columns), ("new", new.columns)):
        alone = [c for c in columns if c not in old.columns or c not in new.columns]
        if alone:
            print(f"in the {words} table alone: {', '.join(alone)}")
    differing = differences(old, new, given.rtol)
    for column, difference in differing.items():
        print(f"{column}: {difference}")
    print(f"{len(old)} combinations, {len(differing)} columns with other values")
    return 1 if differing else 0


def differences(old: pd.DataFrame, new: pd.DataFrame, rtol: float) -> dict[str, str]:
    """The largest relative difference of each column of numbers, and how many other texts."""
    found = {}
    for column in [c for c in old.columns if c in new.columns]:
        ours, theirs = old[column], new[column]
        if ours.dtype.kind in "fiu" and theirs.dtype.kind in "fiu":
            a, b = ours.to_numpy(float), theirs.to_numpy(float)
            if not np.allclose(a, b, rtol=rtol, atol=0, equal_nan=True):
                found[column] = f"{np.nanmax(np.abs(b - a) / np.maximum(np.abs(a), 1e-300)):.2e}"
        elif not ours.equals(theirs):
            found[column] = f"{(ours.astype(str) != theirs.astype(str)).sum()} texts"
    return found


if __name__ == "__main__":
    sys.exit(main())
