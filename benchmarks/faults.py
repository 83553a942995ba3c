"""Faults by force: killed sweeps, refused calls of the system, thousands of files, a long soak.

Run: ``uv run python benchmarks/faults.py kills|calls|files|soak`` (``--help`` says how many). Each
prints a row with its counts, and ends with status 1 where something was not as it must be.
"""

import argparse
import contextlib
import csv
import ctypes
import errno
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

import measuring

EXPERIMENT = """
name: toy
sweeps:
  - name: toy
    dataset: {kind: moons, noise: 0.3, train: 40, test: 20, seed: [0, 1]}
    network: {kind: dense, hidden: [[2]]}
    prior: [normal, laplace]
    hyperprior: [half_normal, {kind: fixed, scale: 1.0}]
    inference: {steps: 200, validation: 0}
    predict: {draws: 20, trace_draws: 10, map: {resolution: 10}, fresh: {size: 50, draws: 2}}
"""
TIMES = ("seconds",)
TABLES = ("metrics.csv", "summary.csv")

ERRORS = {
    "disk full from there on": (False, errno.ENOSPC, True),
    "input/output error once": (False, errno.EIO, False),
    "no right once": (False, errno.EACCES, False),
    "half written once": (False, 0, False),
    "error in reading once": (True, errno.EIO, False),
    "no right to read once": (True, errno.EACCES, False),
    "half read once": (True, 0, False),
}
"""Whether it meets the calls that read, in a command that finds all its cells, or those that change
the folder; the number of the error; and whether every later call fails too."""


def tables(folder: Path) -> list[list[dict[str, str]]]:
    """Rows of both tables without what says how long something took."""
    found = []
    for name in TABLES:
        with (folder / name).open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        found.append([{k: v for k, v in r.items() if k.split("_")[0] not in TIMES} for r in rows])
    return found


# Kills


def kills(number: int, folder: Path) -> bool:
    """Sweeps killed at random moments, whole or one worker, until each ends by itself."""
    rng, counts, sweeps, wrong = random.Random(0), Counter(), 0, []
    file = folder / "toy.yaml"
    file.write_text(EXPERIMENT)
    command = [sys.executable, "-m", "pmbnn.sweep", str(file), "--workers", "2", "--out"]
    # The second one finds its programs compiled, as all that are killed do.
    for out in (folder / "first", folder / "whole"):
        start = time.monotonic()
        subprocess.run([*command, str(out)], check=True, capture_output=True)
        length = time.monotonic() - start
    whole = tables(folder / "whole")
    while sum(counts.values()) < number:
        out = folder / f"killed-{sweeps}"
        code = None
        while code != 0:
            code, how = _killed_at([*command, str(out)], rng.uniform(1, length), rng)
            counts.update([how] if how else [])
            assert how or code == 0, f"{out.name} ended with status {code} by itself"
        sweeps += 1
        print(f"  sweep {sweeps}: {dict(counts)}", flush=True)
        if tables(out) != whole:
            wrong.append(out.name)
    shown = ", ".join(f"{count} of {how}" for how, count in sorted(counts.items()))
    print(f"kills: {sum(counts.values())} ({shown}) in {sweeps} sweeps, {len(wrong)} other tables")
    return not wrong


def _killed_at(command: list[str], seconds: float, rng: random.Random) -> tuple[int, str | None]:
    """Exit status of a sweep, and what of it was killed after that time, if it still ran."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    with contextlib.suppress(subprocess.TimeoutExpired):
        return process.wait(seconds), None
    workers = measuring_children(process.pid)
    if workers and rng.random() < 0.4:
        with contextlib.suppress(ProcessLookupError):
            os.kill(rng.choice(workers), signal.SIGKILL)
        return process.wait(), "one worker"  # the sweep itself goes on
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return -signal.SIGKILL, "the whole tree"


def measuring_children(parent: int) -> list[int]:
    """Process ids of the workers of a running sweep."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            words = (stat.parent / "cmdline").read_text()
            ppid = int(stat.read_text().rpartition(")")[2].split()[1])
            if ppid == parent and "spawn_main" in words:
                found.append(int(stat.parent.name))
    return found


# Calls of the system


def calls(every: int, folder: Path) -> bool:
    """Each call that changes or reads the results folder refused in turn; cells are made up."""
    library = folder / "faults.so"
    source = str(measuring.HERE / "faults.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    command = [sys.executable, __file__, "within", "--every", str(every), "--folder", str(folder)]
    return subprocess.run(command, env=os.environ | {"LD_PRELOAD": str(library)}).returncode == 0


def within(every: int, folder: Path) -> bool:
    """The same, in the process that the shim is loaded into: each case in a fork of it."""
    shim = ctypes.CDLL(os.environ["LD_PRELOAD"])
    shim.fault_count.restype = ctypes.c_long
    sweep = _made_up_sweep(folder)

    def forked(
        out: Path, at: int = -1, reading: bool = False, number: int = 0, lasting: bool = False
    ) -> tuple[int, str]:
        log = folder / "log"
        child = os.fork()
        if child == 0:
            descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(descriptor, 1), os.dup2(descriptor, 2)
            code = 99
            try:
                shim.fault_arm(str(out).encode(), reading, at, number, lasting)
                code = sweep(out)
                counted = shim.fault_count()
                shim.fault_arm(b"", 0, -1, 0, 0)
                (folder / "count").write_text(str(counted))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), log.read_text()

    shim.fault_arm(b"", 0, -1, 0, 0)
    # What a sweep imports takes two seconds; forks find it here, and a tenth of that is left.
    assert sweep(folder / "first") == 0
    code, log = forked(folder / "whole")
    assert code == 0, log
    whole = tables(folder / "whole")
    totals = {False: int((folder / "count").read_text())}
    forked(_copied(folder), reading=True)
    totals[True] = int((folder / "count").read_text())
    shutil.rmtree(folder / "out")
    wrong, counts = [], Counter()
    for how, (reading, *error) in ERRORS.items():
        total = totals[reading]
        for at in range(0, total, every):
            out = _copied(folder) if reading else folder / "out"
            first, told = forked(out, at, reading, *error)
            second, log = forked(out)
            lines = [line for line in told.splitlines() if line.startswith("error: ")]
            good = first in (0, 3) and "Traceback" not in told + log and len(lines) == (first == 3)
            left = list(out.rglob(".part-*"))
            if not good or second != 0 or left or tables(out) != whole:
                wrong.append((how, at, first, second, (told + log)[-600:]))
            counts[how, first] += 1
            shutil.rmtree(out)
            print(f"  {how}, call {at} of {total}: {first}, then {second}", flush=True)
    for how, (reading, *_) in ERRORS.items():
        found = {code: counts[how, code] for code in (0, 3, *range(256)) if counts[how, code]}
        print(f"calls: {how}: {sum(found.values())} of {totals[reading]}, by exit status {found}")
    print(f"calls: {len(wrong)} wrong")
    for one in wrong[:10]:
        print(*one)
    return not wrong


def _copied(folder: Path) -> Path:
    """A copy of the finished results folder."""
    return shutil.copytree(folder / "whole", folder / "out")


def _made_up_sweep(folder: Path):
    """A command of two cells that nothing is fitted for; its exit status."""
    sys.path.insert(0, str(measuring.PROJECT / "tests"))
    from makers import plane_trace

    from pmbnn.cli import app
    from pmbnn.experiment.load import load_experiment
    from pmbnn.fitting.workers import Stored
    from pmbnn.results.store import trace_writer
    from pmbnn.sweep import stages

    file = folder / "toy.yaml"
    file.write_text(
        EXPERIMENT.replace("seed: [0, 1]", "seed: 0").replace("[normal, laplace]", "normal")
    )
    load_experiment(file)
    trace = plane_trace(resolution=(5, 4), points=10)

    def run_cells(run, wanted, *_):
        for cell in wanted:
            task = run.tasks[cell]
            known = {"predictive": "class_probabilities", "results": {"accuracy": 0.5}}
            record = task.record(status="converged", **known)
            yield None, Stored(0, run.results.save_cell(record, {"trace.nc": trace_writer(trace)}))

    stages.run_cells = run_cells
    stages.CellDrawer.add = lambda *_: None
    # One figure of each kind is as good as all, and drawing is what takes time.
    cells, sheets = stages.missing_cell_figures, stages.outdated_overviews
    stages.missing_cell_figures = lambda *given: cells(*given)[:1]
    stages.outdated_overviews = lambda *given: sheets(*given)[:1]

    def sweep(out: Path) -> int:
        arguments = ["sweep", str(file), "--out", str(out), "--quiet", "--device", "cpu"]
        try:
            app([*arguments, "--workers", "1"], standalone_mode=True)
        except SystemExit as stop:
            return int(stop.code or 0)
        return 0

    return sweep


# Files


def files(number: int, folder: Path) -> bool:
    """Experiment files, valid and broken: planned as their axes say, or one line."""
    sys.path.insert(0, str(measuring.PROJECT / "tests"))
    from random_experiments import at_random, broken_text, valid_experiment

    from pmbnn.core.errors import ConfigError
    from pmbnn.experiment.load import load_experiment
    from pmbnn.experiment.yaml_file import yaml_text

    counts, wrong, file = Counter(), [], folder / "file.yaml"

    def look(text: str, cells: int | None) -> None:
        try:
            file.write_text(text, encoding="utf-8")
            found = len(load_experiment(file).cells)
            counts["planned"] += 1
            if cells not in (None, found):
                wrong.append((found, cells, text))
        except ConfigError as error:
            counts["one line"] += 1
            if cells is not None or len(str(error).splitlines()) != 1:
                wrong.append((str(error), text))
        except Exception as error:
            wrong.append((repr(error), text))
        if counts.total() % 1000 == 0:
            print(f"  {counts.total()}: {dict(counts)}, {len(wrong)} wrong", flush=True)

    @at_random(number // 2)
    def valid(rng: random.Random) -> None:
        content, cells = valid_experiment(rng)
        look(yaml_text(content), cells)

    @at_random(number // 2)
    def broken(rng: random.Random) -> None:
        look(broken_text(yaml_text(valid_experiment(rng)[0]), rng), None)

    valid()
    broken()
    print(f"files: {counts.total()}: {dict(counts)}, {len(wrong)} wrong")
    for one in wrong[:5]:
        print(*one)
    return not wrong


# Soak


def soak(number: int, folder: Path) -> bool:
    """One small sweep again and again in one process: its memory stays where it was."""
    import pmbnn

    (folder / "toy.yaml").write_text(EXPERIMENT)
    sizes = []
    one = ["prior=normal", "hyperprior=half_normal", "dataset.seed=0"]
    for _ in range(number):
        pmbnn.run(folder / "toy.yaml", out=folder / "out", fresh=True, quiet=True, only=one)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        sizes.append(pages * resource.getpagesize() / 1e6)
        print(f"{sizes[-1]:.0f}", end=" ", flush=True)
    growth = (sizes[-1] - sizes[2]) / (number - 3)
    print(
        f"\nsoak: {number} sweeps: {sizes[2]:.0f} MB after the third, {sizes[-1]:.0f} after the "
        f"last, {growth:+.2f} MB a sweep"
    )
    return growth < 1


PARTS = {"kills": (kills, 100), "calls": (calls, 1), "files": (files, 10_000), "soak": (soak, 30)}


def main() -> None:
    """Run the part that is named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=[*PARTS, "within"])
    parser.add_argument("--number", type=int, help="kills, files, sweeps")
    parser.add_argument("--every", type=int, default=1, help="of calls: refuse each so-manieth")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part == "within":
        raise SystemExit(not within(given.every, given.folder))
    run, usual = PARTS[given.part]
    amount = given.every if given.part == "calls" else given.number or usual
    with tempfile.TemporaryDirectory() as folder:
        raise SystemExit(not run(amount, Path(folder).resolve()))


if __name__ == "__main__":
    main()
