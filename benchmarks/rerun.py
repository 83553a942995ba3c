"""Rerun an experiment of ``results/reference`` and report which of its numbers moved.

``python benchmarks/rerun.py NAME`` runs ``experiments/NAME.yaml`` into ``results/NAME`` (stored
cells are not fitted again), writes the tables that ``results/reference/NAME`` has, and compares
each number with the stored one. A number that has a standard error moved if the two differ by more
than twice the standard error of their difference; these are listed. Of the others the largest
relative difference of each column is printed. ``--out FOLDER`` takes another folder of results;
``--set inference.seed=0,1,2`` fits three seeds of each cell, whose means then have standard errors;
``--store`` copies the new tables and figures to ``results/reference/NAME`` and writes commit, date
and changed settings to ``results/reference/versions.csv``. Exit status 1 if a number moved or a
table is missing.
"""

import argparse
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
from golden import command
from same_numbers import TIMES

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "results" / "reference"

WRITERS = {"claims": "claims", "compare": "compare", "evidence": "compare", "regret": "compare"}
"""Commands that write the tables which a sweep does not, by table."""


def main() -> int:
    """Run the experiment, compare its tables with the stored ones, and print what moved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="a folder of results/reference")
    parser.add_argument("--out", type=Path, help="results folder (default: results/NAME)")
    parser.add_argument("--set", action="append", default=[], help="as of `pmbnn sweep`")
    parser.add_argument("--store", action="store_true", help="replace the stored tables")
    options = parser.parse_args()
    stored, out = REFERENCE / options.name, options.out or ROOT / "results" / options.name
    tables = sorted(stored.glob("*.csv"))
    changes = [word for change in options.set for word in ("--set", change)]
    command("sweep", ROOT / "experiments" / f"{options.name}.yaml", "--out", out, *changes)
    for name in sorted({WRITERS[table.stem] for table in tables if table.stem in WRITERS}):
        command(name, out)
    if (baselines := stored / "baselines.csv").is_file():
        names = {"gradient boosting": "boosting", "Gaussian process": "process"}
        text = baselines.read_text(encoding="utf-8")
        others = [key for name, key in names.items() if name in text]
        command("baselines", out, "--methods", ",".join(["linear", "forest", *others]))
    moved = sum(report(table, out / table.name) for table in tables)
    if options.store:
        store(stored, out, " ".join(changes))
    return 1 if moved else 0


def report(stored: Path, new: Path) -> int:
    """Print how a table differs from the stored one; return how many numbers moved."""
    if not new.is_file():
        print(f"{stored.name}: missing in {new.parent}")
        return 1
    try:
        numbers = compare(pd.read_csv(stored), pd.read_csv(new))
    except UnmatchedError as error:
        print(f"{stored.name}: {error}")
        return 1
    difference = (numbers["new"] - numbers["stored"]).abs()
    changed, known = difference != 0, numbers["error"].notna()
    moved = numbers[difference > 2 * numbers["error"]]
    print(
        f"{stored.name}: {len(numbers)} numbers, {(~changed).sum()} equal to the last bit, "
        f"{(changed & known).sum() - len(moved)} within two standard errors, {len(moved)} moved, "
        f"{(changed & ~known).sum()} differ and have no standard error"
    )
    for row in moved.itertuples():
        print(f"  {row.row}: {row.column} {row.stored:.6g} -> {row.new:.6g} (± {row.error:.2g})")
    relative = (difference / numbers["stored"].abs())[changed & ~known]
    for column, largest in relative.groupby(numbers["column"]).max().items():
        print(f"  {column}: largest relative difference {largest:.2g}")
    return len(moved)


class UnmatchedError(ValueError):
    """Rows of two tables have no names in common, as those of other cells."""


def compare(stored: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """A row for each number of `stored`, with the standard error of the difference."""
    keys = key_columns(stored, new)
    old, now = (table.set_axis(labels(table, keys)) for table in (stored, new))
    if not now.index.is_unique:  # several seeds of each row that was stored
        now = now.select_dtypes("number").groupby(level=0).mean()
    if not (now.index.is_unique and old.index.isin(now.index).all()):
        raise UnmatchedError(f"rows of the two tables cannot be matched by {', '.join(keys)}.")
    now = now.loc[old.index]
    columns = [
        pd.DataFrame(
            {
                "row": old.index,
                "column": name,
                "stored": old[name].to_numpy(float),
                "new": now[name].to_numpy(float),
                "error": np.hypot(*(standard_error(table, name) for table in (old, now))),
            }
        )
        for name in old.columns.intersection(now.columns)
        if old[name].dtype.kind in "fi" and now[name].dtype.kind in "fi"
        if not (is_setting(name) or name in (*TIMES, "se", "cells") or name.endswith("_se"))
    ]
    return pd.concat(columns, ignore_index=True).dropna(subset=["stored", "new"])


def standard_error(table: pd.DataFrame, column: str) -> np.ndarray:
    """Standard errors of a column; NaN where the table has none."""
    name = "se" if column in ("mean", "difference") else f"{column}_se"
    return table[name].to_numpy(float) if name in table else np.full(len(table), np.nan)


def is_setting(column: str) -> bool:
    """Whether a column of a table is a setting of cells, such as ``prior.kind``."""
    return column in ("sweep", "seed", "seeds") or bool(re.match(r"[a-z]+\.[a-z]", column))


def key_columns(stored: pd.DataFrame, new: pd.DataFrame) -> list[str]:
    """The first columns of settings and texts that tell the rows of `stored` from each other."""
    keys: list[str] = []
    for name in stored.columns.intersection(new.columns):
        if name not in TIMES and (is_setting(name) or stored[name].dtype.kind == "O"):
            before = len(stored.drop_duplicates(keys)) if keys else 1
            if len(stored.drop_duplicates([*keys, name])) > before:
                keys.append(name)
    return keys


def labels(table: pd.DataFrame, keys: list[str]) -> list[str]:
    """The key columns of each row as one text, in which 1 and 1.0 are the same."""
    return [
        " ".join(f"{value:g}" if isinstance(value, int | float) else str(value) for value in row)
        for row in table[keys].itertuples(index=False)
    ]


def store(stored: Path, out: Path, note: str) -> None:
    """Replace the stored tables and figures by new ones; write down commit, date and a note."""
    for file in sorted(stored.iterdir()):
        for new in (out / file.name, out / "figures" / file.name):
            if new.is_file():
                shutil.copyfile(new, file)
    head = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(head, check=True, capture_output=True, text=True).stdout.strip()
    file = REFERENCE / "versions.csv"
    versions = pd.read_csv(file, dtype=str, keep_default_na=False).set_index("folder")
    versions.loc[stored.name] = [commit, date.today().isoformat(), note]
    versions.to_csv(file)


if __name__ == "__main__":
    sys.exit(main())
