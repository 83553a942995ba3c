"""Where the time of a sweep goes beside its steps: groups, cells, maps, and a whole experiment.

Run: ``uv run python benchmarks/end_to_end.py`` (about 15 minutes). Processor times are of one
core; the whole experiment is the wall-clock time of the command with empty caches and two workers,
beside the time that these spent stepping, which the run itself records (``times.csv``).
"""

import argparse
import csv
import json
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

import measuring

PRIORS = measuring.PROJECT / "experiments" / "priors.yaml"

TOY = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.4, seed: [0, 1]}
    network: {kind: dense, hidden: [[4, 4], [5, 5]], activation: tanh}
    prior: [laplace, normal]
    hyperprior: half_normal
    inference: {steps: 2000, learning_rate: 0.02, restarts: 6}
"""
"""Two cells of four groups: what the first of a group takes more than its second is the group's.
The first group of a process imports what they all need, too; the second and fourth are of networks
that are compiled for another prior already."""

CELLS = """
import json, os, sys, time
from pathlib import Path

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # as workers are

from pmbnn.experiment.load import load_experiment
from pmbnn.experiment.plan import jobs
from pmbnn.figures.stage import _write, missing_cell_figures
from pmbnn.fitting.job import run_job
from pmbnn.fitting.tasks import JobTask
from pmbnn.core.stages import measured
from pmbnn.inference.xla.compile import use_compilation_cache
from pmbnn.inference.xla.compile import sharing_programs
from pmbnn.sweep.cells import prepare

use_compilation_cache()
sharing = sharing_programs()
sharing.__enter__()  # as workers do, for as long as they live
run = prepare(load_experiment(Path(sys.argv[1])), Path(sys.argv[2]))
run.results.prepare()
records, found = [], []
for job in jobs(list(run.tasks)):
    programs = None
    for cell in job.wanted:
        task = JobTask(job.group, job.width, (run.tasks[cell],))
        start = time.process_time()
        with measured() as seconds:
            programs = run_job(task, run.results.folder, records.append, programs)
        found.append(time.process_time() - start - seconds["fit"])
maps = []
for number in range(6):
    (drawing, *_) = missing_cell_figures(run.results, records)
    start = time.process_time()
    path = _write(drawing, run.results)
    maps.append(time.process_time() - start)
    path.unlink()
process, prior, group = (found[i] - found[i + 1] for i in (0, 2, 4))
spent = {"process": process, "prior": prior, "group": group, "cell": found[5]}
print(json.dumps(spent | {"map": sorted(maps[1:])[2]}))
"""
"""Processor seconds of groups and a cell without their steps, and of a map that is drawn again."""

FIT = """
import numpy as np
import pmbnn as pb

rng = np.random.default_rng(0)
x = rng.normal(size=(700, 2))
model = pb.dense_classifier(x, (x[:, 0] * x[:, 1] > 0).astype(int), hidden=(5, 5))
pb.fit(model, progress=False).sample()
"""


def cells(folder: Path, cache: Path) -> dict[str, float]:
    """What `CELLS` prints, in a process of its own with a given cache of programs."""
    file = folder / "toy.yaml"
    file.write_text(TOY)
    with tempfile.TemporaryDirectory(dir=folder) as out:
        command = [sys.executable, "-c", CELLS, str(file), out]
        environment = measuring.caches_in(cache) | measuring.SINGLE_THREADED | {"NPROC": "1"}
        return json.loads(measuring.output_of(command, environment).splitlines()[-1])


def overheads(rounds: int) -> str:
    """Rows on a group, a cell, a map and a cold `pb.fit`."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder)
            cold, warm = cells(own, own / "cache"), cells(own, own / "cache")
            fit = [sys.executable, "-c", FIT]
            taken = {
                "a new group, all its programs": cold["group"],
                "the same, programs in the cache": warm["group"],
                "another prior of a network": cold["prior"],
                "that, programs in the cache": warm["prior"],
                "the first group of a process, with imports": cold["process"],
                "all that, programs in the cache": warm["process"],
                "a cell after its fits": cold["cell"],
                "a map": cold["map"],
                "pb.fit in a cold process, wall-clock": measuring.run_quietly(
                    fit, measuring.caches_in(own / "of-fit")
                ),
            }
        for name, spent in taken.items():
            found.setdefault(name, []).append(spent)
    rows = [["", "seconds"]]
    rows += [[name, measuring.median_and_range(spent)] for name, spent in found.items()]
    return measuring.table(rows)


def whole(rounds: int) -> str:
    """Shares of the stages of `priors.yaml`, and its time over that of its steps."""
    stages: Counter[str] = Counter()
    walls, over = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            own = Path(folder)
            command = measuring.sweep_command(PRIORS, "--out", str(own / "out"), "--workers", "2")
            wall = measuring.run_quietly(command, measuring.caches_in(own / "cache"))
            with (own / "out" / "times.csv").open() as file:
                rows = [row for row in csv.DictReader(file) if row["of"] == "workers"]
        spent = Counter({row["stage"]: float(row["seconds"]) for row in rows})
        stages += spent
        walls.append(wall)
        over.append(wall / (spent["fit"] / 2))
    total = sum(stages.values())
    shares = [["stage of the workers", "share"]]
    shares += [[name, f"{spent / total:.1%}"] for name, spent in stages.most_common()]
    return (
        f"{measuring.table(shares)}\n\n"
        f"whole command over its steps on two cores: {measuring.median_and_range(over)}; "
        f"wall-clock {statistics.median(walls):.0f} s"
    )


def main() -> None:  # noqa: D103
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of groups and cells")
    parser.add_argument("--runs", type=int, default=1, help="of priors.yaml")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".txt"))
    given = parser.parse_args()
    parts = [measuring.machine_text(), "", overheads(given.rounds)]
    if given.runs:
        parts += ["", f"{PRIORS.name}, empty caches", "", whole(given.runs)]
    measuring.report("\n".join(parts), given.out)


if __name__ == "__main__":
    main()
