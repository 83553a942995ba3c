"""A sweep on a Dask cluster by force, beside one on the processes of this machine.

Run: ``uv run python benchmarks/cluster.py kills|jobs|memory`` (6 min, 4 min, 3 min).

kills
    Three workers, one of which is killed every ten seconds for five minutes, then the scheduler;
    then the same command again. Nothing may be lost, and nothing stored twice.
jobs
    1,000 jobs of 0.1 s that leave a cell of 2 MB: time from the first to the last cell, by
    processes and by a worker of Dask for each core.
memory
    5,000 jobs of a sleep of 10 ms: resident memory of the scheduler, and of this process.
"""

import argparse
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import measuring

JOBS = Path(__file__).with_name("sleeping_jobs.py")

EXPERIMENT = """
name: kills
sweeps:
  - name: points
    dataset: {{kind: moons, noise: 0.3, train: 60, test: 40, seed: [{seeds}]}}
    network: {{kind: dense, hidden: [[3]]}}
    prior: [normal, laplace]
    hyperprior: half_normal
    inference: {{steps: 200, restarts: 16, validation: 0}}
    predict: {{draws: 5, trace_draws: 4, map: {{resolution: 5}}, fresh: {{size: 50, draws: 2}}}}
"""


class DaskProcesses:
    """A scheduler and workers of one thread each, as processes that can be killed."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self.file = folder, folder / "scheduler.json"
        self.file.unlink(missing_ok=True)
        self.log = (folder / "dask.log").open("a")
        options = ["--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(self.file)]
        self.scheduler = self._start("dask_scheduler", *options)
        while not self.file.exists():
            time.sleep(0.1)
        self.workers: list[subprocess.Popen] = []
        for _ in range(workers):
            self.add()

    def add(self) -> None:
        """Start one more worker."""
        options = ["--nthreads", "1", "--no-nanny", "--death-timeout", "10"]
        options += ["--local-directory", str(self.folder), "--scheduler-file", str(self.file)]
        self.workers.append(self._start("dask_worker", *options))

    def _start(self, what: str, *options: str) -> subprocess.Popen:
        command = [sys.executable, "-m", f"distributed.cli.{what}", *options]
        command += ["--dashboard-address", "127.0.0.1:0"]
        return subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=self.folder)

    def end(self) -> None:
        """End all of them."""
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()


@contextmanager
def dask_processes(folder: Path, workers: int):
    """A scheduler and workers, for as long as the `with` lasts."""
    started = DaskProcesses(folder, workers)
    try:
        yield started
    finally:
        started.end()


# By force


def kills(folder: Path, minutes: float, every: float, seeds: int) -> str:
    """What became of the cells of a sweep whose workers, and then scheduler, are killed."""
    file, out = folder / "kills.yaml", folder / "results"
    file.write_text(EXPERIMENT.format(seeds=", ".join(map(str, range(seeds)))))
    lines, killed, started = [], 0, time.monotonic()
    with dask_processes(folder, 3) as cluster:
        sweep = _sweep(file, out, cluster, folder / "first.log")
        for number in itertools.count():
            due = min(every, started + 60 * minutes - time.monotonic())
            if due <= 0 or _ends(sweep, due):
                break
            cluster.workers[number % 3].kill()
            cluster.workers[number % 3].wait()
            cluster.add()
            cluster.workers[number % 3] = cluster.workers.pop()
            killed += 1
        cluster.scheduler.kill()
        status = sweep.wait(120)
    spent = time.monotonic() - started
    stored = _stored(folder / "first.log")
    last = (folder / "first.log").read_text().splitlines()[-1]
    lines.append(f"{killed} workers killed in {spent:.0f} s, then the scheduler: status {status}")
    lines.append(f"  {len(stored)} cells stored; last line: {last}")
    with dask_processes(folder, 3) as cluster:
        status = _sweep(file, out, cluster, folder / "second.log").wait(3600)
    again = _stored(folder / "second.log")
    verify = [sys.executable, "-m", "pmbnn", "verify", str(out)]
    broken = measuring.output_of(verify).strip() or "every file whole"
    twice = sum((stored + again).values()) - len(stored + again)
    missing = 2 * seeds - len(list(out.glob("cells/*/metrics.json")))
    lines.append(f"the same command: status {status}, {len(again)} cells stored")
    lines.append(f"  of {2 * seeds} cells {missing} missing, {twice} stored twice; {broken}")
    return "\n".join(lines)


def _sweep(file: Path, out: Path, cluster: DaskProcesses, log: Path) -> subprocess.Popen:
    options = ["--out", str(out), "--scheduler", str(cluster.file)]
    with log.open("w") as text:
        return subprocess.Popen(measuring.sweep_command(file, *options), stdout=text, stderr=text)


def _ends(process: subprocess.Popen, seconds: float) -> bool:
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _stored(log: Path) -> Counter[str]:
    """How often each cell is said to be stored, by its words."""
    return Counter(re.findall(r"^\[\d+/\d+\] (.*?): ", log.read_text(), re.MULTILINE))


# Beside processes


def jobs(folder: Path, number: int, rounds: int) -> str:
    """Time of many short jobs by processes and by workers of Dask, from the first cell on."""
    from pmbnn.core.machine import cores
    from pmbnn.fitting.workers import run_jobs
    from pmbnn.results.store import Results

    sleep = sleeping_job()
    todo = [sleep(f"cell{i}", 0.1, 2_000_000) for i in range(number)]
    folders = (Results(folder / f"results-{i}") for i in itertools.count())

    def fresh():
        results = next(folders)
        results.prepare()
        return results

    with dask_processes(folder, cores()) as cluster, connected(cluster, cores()) as client:
        times = measuring.interleaved(
            {
                "processes": lambda: _time(
                    run_jobs(todo, fresh().folder, cores(), True, sleeping_plugin())
                ),
                "Dask": lambda: _on_cluster(client, todo, fresh())[0],
            },
            rounds,
        )
    rows = [("", "s", "ratio")]
    for name, spent in times.items():
        ratio = measuring.ratios(spent, times["processes"])
        rows.append((name, measuring.median_and_range(spent), measuring.median_and_range(ratio)))
    return f"{number} jobs of 0.1 s with 2 MB, {cores()} workers\n{measuring.table(rows)}"


def memory(folder: Path, number: int) -> str:
    """Memory of the scheduler and of this process while short jobs come and go."""
    import psutil

    from pmbnn.results.store import Results

    sleep = sleeping_job()
    todo = [sleep(f"cell{i}", 0.01, 1_000) for i in range(number)]
    results = Results(folder / "results")
    results.prepare()
    rows = [("jobs", "scheduler, MB", "coordinator, MB")]
    with dask_processes(folder, 2) as cluster, connected(cluster, 2) as client:
        watched = [psutil.Process(cluster.scheduler.pid), psutil.Process()]

        def look(done: int) -> None:
            if done % (number // 10) == 0:
                taken = [process.memory_info().rss / 1e6 for process in watched]
                rows.append((f"{done:,}", *(f"{one:.0f}" for one in taken)))

        spent, found = _on_cluster(client, todo, results, look)
    rows.append((f"{found:,} in all", f"{spent:.0f} s", ""))
    return measuring.table(rows)


def sleeping_plugin() -> tuple:
    """The plugin of jobs that sleep, as it is handed to workers."""
    from pmbnn.experiment.plugins import load_plugins

    return load_plugins([str(JOBS)], [JOBS.parent])


def sleeping_job() -> type:
    """The class of jobs that sleep, as a plugin of this process."""
    sleeping_plugin()
    (name,) = [name for name in sys.modules if name.startswith("pmbnn_plugin_sleeping_jobs")]
    return sys.modules[name].Sleep


@contextmanager
def connected(cluster: DaskProcesses, workers: int):
    """Client of a cluster whose workers are there."""
    from distributed import Client

    with Client(scheduler_file=str(cluster.file), set_as_default=False) as client:
        client.wait_for_workers(workers)
        yield client


def _on_cluster(client, todo, results, look=lambda done: None) -> tuple[float, int]:
    from pmbnn.sweep.cluster.coordinator import cluster_of

    cluster = cluster_of(client)
    cluster.begin(results.folder, lambda line: None)
    try:
        return _time(cluster.run_jobs(todo, results, True, sleeping_plugin()), look), len(
            results.cell_names()
        )
    finally:
        cluster.end()


def _time(events, look=lambda done: None) -> float:
    """Seconds from the first cell of events to the last."""
    from pmbnn.fitting.workers import Finished, Stored

    start, done = None, 0
    for event in events:
        if isinstance(event, Stored) and start is None:
            start = time.perf_counter()
        if isinstance(event, Finished):
            assert event.died is None, event.died
            done += 1
            look(done)
    return time.perf_counter() - start


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("kills", "jobs", "memory"))
    parser.add_argument("--minutes", type=float, default=5.0, help="of kills")
    parser.add_argument("--every", type=float, default=10.0, help="seconds between two kills")
    parser.add_argument("--seeds", type=int, default=400, help="data seeds of the sweep of kills")
    parser.add_argument("--number", type=int, help="of jobs")
    parser.add_argument("--rounds", type=int, default=3, help="of jobs")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ.setdefault("DASK_DISTRIBUTED__LOGGING__DISTRIBUTED", "error")
    with tempfile.TemporaryDirectory() as folder:
        match given.part:
            case "kills":
                text = kills(Path(folder), given.minutes, given.every, given.seeds)
            case "jobs":
                text = jobs(Path(folder), given.number or 1_000, given.rounds)
            case _:
                text = memory(Path(folder), given.number or 5_000)
    print(f"{measuring.machine_text()}\n\n{text}")


if __name__ == "__main__":
    main()
