"""What the benchmarks share: one core, sub-processes, medians, ratios and text tables."""

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
PEERS = HERE / "peers"

# Where Python is told to keep no bytecode, a start compiles every library anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

SINGLE_THREADED = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}


def use_one_core() -> None:
    """Keep this process, and all it starts, on one core; call before importing JAX or NumPy."""
    os.environ.update(SINGLE_THREADED)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def seconds(call: Callable[[], object]) -> float:
    """Wall time of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def interleaved(calls: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """What each call returns, `rounds` times; every other round goes backwards.

    Noise of the machine, and its slow drift, then hits all alike.
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(rounds):
        order = list(calls) if number % 2 == 0 else list(reversed(calls))
        for name in order:
            found[name].append(calls[name]())
    return found


def ratios(times: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Ratio of each round to the same round of the reference."""
    return [ours / theirs for ours, theirs in zip(times, reference, strict=True)]


def median_and_range(values: Sequence[float], digits: int = 2) -> str:
    """Median and, in brackets, the smallest and largest."""
    middle, low, high = statistics.median(values), min(values), max(values)
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)


def versions_text(found: Mapping[str, str]) -> str:
    """Names and versions in one line."""
    return ", ".join(f"{name} {number}" for name, number in sorted(found.items()))


def machine_text() -> str:
    """The processor, as far as the system tells, and how many cores this process may use."""
    import platform

    name = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text().splitlines()
        models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        name = models[0] if models else name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} core{'' if cores == 1 else 's'} used"


def report(text: str, out: Path | None) -> None:
    """Print a result and, unless told not to, keep it."""
    print(text)
    if out is not None:
        out.write_text(text + "\n")


def peers_python() -> list[str]:
    """Command of Python in the environment of the peers, which uv sets up when needed."""
    return [*uv_command(), "run", "--quiet", "--project", str(PEERS), "python"]


def uv_command() -> list[str]:
    """Command of uv: that of `uv run`, which tells its children, or one on the path."""
    uv = os.environ.get("UV") or shutil.which("uv")
    return [uv] if uv else [sys.executable, "-m", "uv"]


def caches_in(folder: Path) -> dict[str, str]:
    """Environment in which every cache of compiled programs lies in `folder`."""
    flags = [os.environ.get("PYTENSOR_FLAGS"), f"base_compiledir={folder / 'pytensor'}"]
    return os.environ | {
        "XDG_CACHE_HOME": str(folder),
        "PYTENSOR_FLAGS": ",".join(filter(None, flags)),
    }


def sweep_command(file: Path, *options: str) -> list[str]:
    """Command of a sweep with the project's own Python."""
    return [sys.executable, "-m", "pmbnn.sweep", str(file), *options]


def output_of(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """What a command prints; a RuntimeError with all of it if the command fails."""
    done = subprocess.run(
        command, env=environment, cwd=PROJECT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def run_quietly(command: Sequence[str], environment: Mapping[str, str] | None = None) -> float:
    """Wall time of a command; its output is shown only if it fails."""
    return seconds(lambda: output_of(command, environment))
