"""The synthetic part of ``experiments/priors.yaml`` end to end, against its fits by the peers.

Ours is measured as it is: one command, empty caches, compilation, choosing of scales,
predictions, uncertainty maps, traces, tables and figures included. The peers have no such
command: of them a few fits are measured and multiplied; predictions, maps, traces and figures
are *not* in their time.

Run: ``uv run python benchmarks/grid.py`` (about seven minutes on two cores).
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import measuring
from small_network import build_problem

from pmbnn.experiment.cost import total_work
from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import jobs

EXPERIMENT = measuring.PROJECT / "experiments" / "priors.yaml"
SWEEP = "synthetic"


def ours(folder: Path, only: list[str]) -> float:
    """Seconds of the sweep, nothing compiled before."""
    chosen = [part for condition in [f"sweep={SWEEP}", *only] for part in ("--only", condition)]
    command = measuring.sweep_command(
        EXPERIMENT, "--out", str(folder / "results"), "--quiet", *chosen
    )
    return measuring.run_quietly(command, measuring.caches_in(folder / "cache"))


def peer(script: str, python: list[str], problem: Path, folder: Path):
    """What a peer's script says, on one core with empty caches."""
    environment = measuring.caches_in(folder / script) | measuring.SINGLE_THREADED
    paths = [str(measuring.HERE), environment.get("PYTHONPATH")]
    environment["PYTHONPATH"] = measuring.os.pathsep.join(filter(None, paths))
    path = measuring.HERE / "contestants" / f"{script}.py"
    command = [*python, str(path), str(problem)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def plan(only: list[str]) -> tuple[int, int]:
    """Numbers of fits and of programs: one a group and number of rows."""
    from pmbnn.experiment.selection import select_cells

    experiment = load_experiment(EXPERIMENT)
    wanted = select_cells(list(experiment.cells), [f"sweep={SWEEP}", *only])
    work = total_work(wanted)
    groups = {job.group for job in jobs(list(experiment.cells), wanted)}
    return work.fits, len(groups) * (2 if work.choosing_fits else 1)


def numpyro_lines(found: dict, fits: int, programs: int, workers: int) -> list[tuple]:
    """Rows of NumPyro's extrapolated times."""
    rows = []
    for width, models in found.items():
        compiling, fit = (statistics.mean(m[k] for m in models) for k in ("compile", "fit"))
        total = (programs * compiling + fits * fit) / workers
        how = f"({programs} programs x {compiling:.1f} s + {fits} fits x {fit:.2f} s) / {workers}"
        rows.append((f"NumPyro, kept scan, {width} at once", total, how))
    return rows


def main() -> None:
    """Measure, extrapolate, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=measuring.HERE / "grid.txt")
    parser.add_argument(
        "--only", action="append", default=[], metavar="KEY=VALUE", help="a part; not recorded"
    )
    given = parser.parse_args()
    workers = len(measuring.os.sched_getaffinity(0))
    fits, programs = plan(given.only)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        folder = Path(name)
        problem = folder / "problem.npz"
        build_problem(10_000, 1).save(problem)
        by_us = ours(folder, given.only)
        numpyro = peer("grid_numpyro", measuring.peers_python(), problem, folder)
        first, second = peer("grid_pymc", [measuring.sys.executable], problem, folder)
    by_pymc = (first + (fits - 1) * second) / workers
    rows = [
        ("pmbnn, the whole command", by_us, "measured"),
        *numpyro_lines(numpyro, fits, programs, workers),
        ("pm.fit, C", by_pymc, f"({first:.1f} s + {fits - 1} fits x {second:.1f} s) / {workers}"),
    ]
    text = [("", "seconds", "ratio to ours", "how")]
    text += [(row, f"{total:.0f}", f"{total / by_us:.2f}", how) for row, total, how in rows]
    lines = [
        f"synthetic part of experiments/priors.yaml: {fits} fits of 10,000 steps, {workers} cores",
        measuring.machine_text(),
        "",
        measuring.table(text),
        "",
        "Ours: compilation, choosing, predictions, maps, traces, tables and figures included.",
        "Peers: fits only, extrapolated. NumPyro: mean of a model with fixed and one with learned",
        "scales, compiled once for each group and number of rows; pm.fit compiles at every fit,",
        "the first with an empty cache. Divided by the cores, as if all were busy to the end.",
    ]
    measuring.report("\n".join(lines), None if given.only else given.out)


if __name__ == "__main__":
    main()
