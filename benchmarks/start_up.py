"""How fast the command answers, plans of 20,000 cells, and what the compilation cache saves.

Run: ``uv run python benchmarks/start_up.py`` (about four minutes).
"""

import argparse
import csv
import itertools
import statistics
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import measuring

PRIORS = measuring.PROJECT / "experiments" / "priors.yaml"
BASE = "import typer, pydantic.BaseModel"
COMMANDS = {
    # Both load most of themselves on first use only; a program that uses them pays for that.
    BASE: [sys.executable, "-c", "import typer\nfrom pydantic import BaseModel"],
    "the same, one model defined": [
        sys.executable,
        "-c",
        "import typer, pydantic\nclass One(pydantic.BaseModel):\n    x: int",
    ],
    "import pmbnn": [sys.executable, "-c", "import pmbnn"],
    "--help": [sys.executable, "-m", "pmbnn.sweep", "--help"],
    "priors.yaml --dry-run": measuring.sweep_command(PRIORS, "--dry-run"),
}
BAR = 3
"""Times the base that ``--help`` and ``--dry-run`` may take, at most."""

GRID = """
name: grid
sweeps:
  - name: grid
    dataset: {{kind: moons, noise: 0.4, seed: {seeds}}}
    network: {{kind: dense, hidden: [[5, 5], [10]]}}
    prior: [normal, laplace]
    hyperprior: [half_normal, half_cauchy, inverse_gamma, {{kind: fixed, scale: [0.1, 1]}}]
    inference: {{steps: 1000, learning_rate: {rate}}}
"""
RATES = {"a given learning rate": "0.02", "tuned ones": "{tune: {log: [0.001, 0.1, 5]}}"}

NAMING = """
import sys
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.cells import cell_label
from pmbnn.experiment.plan import identity, jobs, search_cells

cells = load_experiment(sys.argv[1]).cells
searched_on = search_cells(cells)
names = set()
for cell in cells:
    search_cell = searched_on.get(cell)
    names.add(cell_label(cell) + identity(cell, "data", {}, search_cell and (search_cell, "data")))
assert len(names) == len(cells) and jobs(cells)
"""
"""What a sweep does before it fits, but for loading the data: it names every cell."""

TINY = """
name: tiny
sweeps:
  - name: tiny
    dataset: {kind: moons, noise: 0.4}
    network: {kind: dense, hidden: [[5, 5]]}
    prior: normal
    hyperprior: [half_normal, half_cauchy]
    inference: {steps: 200, validation: 0}
    predict: {draws: 10}
"""
"""Two groups, so that nearly all of the time is start-up and compilation."""


def answers(rounds: int) -> str:
    """Wall times of commands that fit nothing."""
    for command in COMMANDS.values():
        measuring.run_quietly(command)  # fills the caches of bytecode and of the disk
    calls = {name: lambda c=command: measuring.run_quietly(c) for name, command in COMMANDS.items()}
    times = measuring.interleaved(calls, rounds)
    rows = [("", "s", f"ratio to {BASE} (bar: {BAR})")]
    for name, found in times.items():
        ratio = measuring.median_and_range(measuring.ratios(found, times[BASE]))
        rows.append((name, f"{statistics.median(found):.2f}", ratio))
    return measuring.table(rows)


def plans(rounds: int) -> str:
    """Wall times of plans of 20,000 cells, printed and with every cell named."""
    with tempfile.TemporaryDirectory() as name:
        calls = {}
        for words, rate in RATES.items():
            file = Path(name) / f"{words}.yaml"
            file.write_text(GRID.format(seeds=list(range(1000)), rate=rate))
            for what, command in (
                ("--dry-run", measuring.sweep_command(file, "--dry-run")),
                ("naming", [sys.executable, "-c", NAMING, str(file)]),
            ):
                calls[words, what] = lambda c=command: measuring.run_quietly(c)
        times = measuring.interleaved(calls, rounds)
    rows = [("20,000 cells", "", "s")]
    rows += [(*case, measuring.median_and_range(found, 1)) for case, found in times.items()]
    return measuring.table(rows)


class TinySweeps:
    """Sweeps of one shape, each into a new folder, with caches named by the caller."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.numbers = folder, itertools.count(1)
        self.file = folder / "tiny.yaml"
        self.file.write_text(TINY)

    def run(self, cache: str) -> tuple[float, float]:
        """Seconds of a sweep by one process, and of its cells alone: compiled, fitted, stored."""
        # `next` is one step: two threads never get the same folder.
        out = self.folder / f"results-{next(self.numbers)}"
        options = ("--out", str(out), "--quiet", "--workers", "1")
        environment = measuring.caches_in(self.folder / cache)
        spent = measuring.run_quietly(measuring.sweep_command(self.file, *options), environment)
        with (out / "metrics.csv").open() as file:
            return spent, sum(float(row["seconds"]) for row in csv.DictReader(file))

    def run_both(self, cache: str) -> tuple[float, float]:
        """The same of two sweeps, started together on one cache: of the slower one."""
        with ThreadPoolExecutor(2) as pool:
            return max(pool.map(self.run, [cache, cache]))

    def programs(self, cache: str) -> set[str]:
        """Names of the programs that a cache holds."""
        return {path.name for path in (self.folder / cache).rglob("*-cache")}

    def differing_tables(self) -> str:
        """How many sweeps have another summary than the first, of how many."""
        tables = [path.read_bytes() for path in self.folder.glob("results-*/summary.csv")]
        return f"{sum(table != tables[0] for table in tables)} of {len(tables)}"


def caching(rounds: int) -> str:
    """Wall times of a tiny sweep with an empty and with a filled cache."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        sweeps = TinySweeps(Path(name))
        times: dict[str, list[tuple[float, float]]] = {}
        compiled: list[int] = []

        def keep(case: str, spent: tuple[float, float]) -> None:
            times.setdefault(case, []).append(spent)

        for i in range(rounds):
            keep("first sweep, empty cache", sweeps.run(f"alone-{i}"))
            programs = sweeps.programs(f"alone-{i}")
            keep("second sweep, same cache", sweeps.run(f"alone-{i}"))
            compiled.append(len(sweeps.programs(f"alone-{i}") - programs))
            keep("two at once, one empty cache", sweeps.run_both(f"shared-{i}"))
            keep("two at once, that cache filled", sweeps.run_both(f"shared-{i}"))
        differing = sweeps.differing_tables()
    return f"{_cache_table(times)}\n" + (
        f"programs that a second sweep compiled: {', '.join(map(str, compiled))}, "
        f"of {len(programs)} in the cache\n"
        f"sweeps whose summary.csv differs from the first: {differing}"
    )


def _cache_table(times: dict[str, list[tuple[float, float]]]) -> str:
    first = [wall for wall, _ in times["first sweep, empty cache"]]
    head = ("tiny sweep of two groups", "whole command s", "ratio to the first", "its cells s")
    rows = [head]
    for case, found in times.items():
        walls, cells = zip(*found, strict=True)
        ratio = measuring.median_and_range(measuring.ratios(walls, first))
        middle = statistics.median(walls), statistics.median(cells)
        rows.append((case, f"{middle[0]:.1f}", ratio, f"{middle[1]:.1f}"))
    return measuring.table(rows)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21, help="of the commands that fit nothing")
    parser.add_argument("--sweeps", type=int, default=3, help="rounds of the tiny sweeps")
    parser.add_argument("--quick", action="store_true", help="one round of each, no record")
    parser.add_argument("--out", type=Path, default=measuring.HERE / "start_up.txt")
    given = parser.parse_args()
    rounds, sweeps = (1, 1) if given.quick else (given.rounds, given.sweeps)
    few = min(rounds, 3)
    parts = [
        f"wall times, medians and ranges; {rounds} rounds of commands, {few} of plans, "
        f"{sweeps} of sweeps",
        measuring.machine_text(),
        "",
        answers(rounds),
        "",
        plans(few),
        "",
        caching(sweeps),
    ]
    measuring.report("\n".join(parts), None if given.quick else given.out)


if __name__ == "__main__":
    main()
