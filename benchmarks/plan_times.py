"""How long the plan says that experiments take, beside how long they did.

Run: ``uv run python benchmarks/plan_times.py`` (some six hours; ``--only NAME`` runs one and writes
nothing). Of files that take longer than some minutes a share is run, all of whose stages the whole
file has. Times are of the command, with empty caches of programs and two workers.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

import measuring

EXPERIMENTS = measuring.PROJECT / "experiments"

SHARES: dict[str, tuple[str, ...]] = {
    "cifar": ("sweep=report_deterministic",),
    "fashion": ("sweep=convolutional_deterministic",),
    "in_between": (),
    "mnist_backprop": ("sweep=deterministic",),
    "mnist_dense": ("sweep=wide", "prior=normal", "inference.seed=0"),
    "mnist_lenet": ("sweep=deterministic",),
    "mnist_priors": ("prior=normal",),
    "mnist_report": ("sweep=grid", "prior=normal", "hyperprior=fixed"),
    "mnist_tempered": (),
    "noise": ("dataset.kind=moons", "dataset.noise=0.4"),
    "priors": (),
    "reference_digits": ("prior=normal", "hyperprior=fixed"),
    "regression_quartic": (),
    "regression_sine": (),
    "scales": (),
    "tables": (),
    "trust": ("dataset.seed=0",),
    "trust_headline": ("dataset.seed=5",),
    "trust_ladder": ("dataset.seed=0", "prior=normal"),
    "trust_samplers": ("dataset.kind=moons", "prior=normal", "hyperprior=fixed"),
    "uci": ("dataset.file=uci/energy.csv.gz", "prior=normal"),
    "uci_large": ("sweep=hundred", "prior=normal", "hyperprior=fixed"),
}
"""Conditions for `--only` by experiment file."""

UNITS = {"s": 1, "min": 60, "h": 3600}


def said(command: list[str]) -> tuple[int, float]:
    """Cells and seconds of a plan, as it prints them."""
    text = measuring.output_of([*command, "--dry-run"])
    number, unit = re.search(r"about (\d+) (s|min|h) on this machine", text).groups()
    return int(re.search(r": (\d+)", text).group(1)), float(number) * UNITS[unit]


def compared(name: str) -> list[str]:
    """A row of the table."""
    conditions = SHARES[name]
    chosen = [part for condition in conditions for part in ("--only", condition)]
    with tempfile.TemporaryDirectory() as folder:
        options = (*chosen, "--out", str(Path(folder) / "out"), "--workers", "2")
        command = measuring.sweep_command(EXPERIMENTS / f"{name}.yaml", *options)
        cells, plan = said(command)
        took = measuring.run_quietly(command, measuring.caches_in(Path(folder) / "cache"))
    row = [name, " ".join(conditions) or "whole", f"{cells}", f"{plan:.0f}", f"{took:.0f}"]
    return [*row, f"{plan / took:.2f}"]


def main() -> None:  # noqa: D103
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=SHARES, help="an experiment file")
    given = parser.parse_args()
    rows = [["experiment", "share", "cells", "the plan says, s", "took, s", "ratio"]]
    for name in given.only or SHARES:
        rows.append(compared(name))
        print(*rows[-1], file=sys.stderr, flush=True)
    text = f"{measuring.machine_text()}\n\n{measuring.table(rows)}"
    measuring.report(text, None if given.only else Path(__file__).with_suffix(".txt"))


if __name__ == "__main__":
    main()
