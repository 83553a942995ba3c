"""What another kind of machine changes: the same sweep, compiled for older processors.

Run: ``uv run python benchmarks/kinds_of_machines.py`` (6 min). Each of ``--xla_cpu_max_isa`` takes
instructions from the compiler, as a worker of a cluster with another processor would: without
fused multiply-adds every product is rounded once more. Numbers of variational fits are held
against each other as they are; those of chains, which part after some hundred steps, in units of
their Monte-Carlo errors. Exit status 1 if chains differ by more than these errors explain
(chi-square, p < 0.001) or fits by more than a hundredth of a thousandth of a nat.
"""

import os
import sys
import tempfile
from pathlib import Path

import measuring
import numpy as np
import pandas as pd
from scipy import stats

EXPERIMENT = """
name: kinds
sweeps:
  - name: kinds
    dataset: {kind: moons, noise: 0.3, train: 200, test: 1000, seed: [0, 1, 2, 3]}
    network: {kind: dense, hidden: [[10]]}
    prior: [normal, laplace]
    hyperprior: half_normal
    inference: [{steps: 3000, restarts: 4, validation: 0}, {engine: mclmc, chains: 8}]
    predict: {draws: 500, map: {resolution: 5}}
"""

SETS = ("AVX", "SSE4_2")
"""Instruction sets without fused multiply-adds, with vectors of 256 and of 128 bits."""

FITS, LEVEL = 1e-5, 0.001


def swept(file: Path, folder: Path, flags: str) -> pd.DataFrame:
    """The table of the sweep, a row a cell, compiled under flags of XLA."""
    environment = measuring.caches_in(folder / "cache") | {"XLA_FLAGS": flags}
    command = measuring.sweep_command(file, "--out", str(folder / "out"), "--workers", "2")
    measuring.run_quietly(command, environment)
    return pd.read_csv(folder / "out" / "metrics.csv").set_index("name")


def compared(here: pd.DataFrame, there: pd.DataFrame) -> tuple[list[str], bool]:
    """A row of the table, and whether the numbers may be those of the same cells."""
    difference = (there["nll"] - here["nll"])[here.index]
    chains = here["inference.engine"] == "mclmc"
    error = np.hypot(here["nll_mcse"], there["nll_mcse"])[chains]
    z = difference[chains] / error
    p = stats.chi2.sf((z**2).sum(), len(z))
    fits = difference[~chains].abs().max()
    row = [f"{fits:.1e}", f"{difference[chains].abs().max():.1e}", f"{z.abs().max():.2f}"]
    return [*row, f"{p:.2f}"], bool(fits <= FITS and p >= LEVEL)


def main() -> int:
    """Print the table and keep it."""
    ordinary = os.environ.get("XLA_FLAGS", "")
    rows = [["NLL, nats", "fits, largest", "chains, largest", "in errors", "p"]]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kinds.yaml"
        file.write_text(EXPERIMENT)
        here, alike = swept(file, Path(folder) / "here", ordinary), True
        for name in SETS:
            flags = f"{ordinary} --xla_cpu_max_isa={name}".strip()
            row, passed = compared(here, swept(file, Path(folder) / name, flags))
            rows.append([name, *row])
            alike &= passed
    text = f"{measuring.machine_text()}; {len(here)} cells\n\n{measuring.table(rows)}"
    measuring.report(text, Path(__file__).with_suffix(".txt"))
    return 0 if alike else 1


if __name__ == "__main__":
    sys.exit(main())
