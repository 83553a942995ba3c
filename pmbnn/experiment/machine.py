"""The machine that a plan is for: its kind, its cores, how fast one is, and its memory."""

import contextlib
import functools
import os
import platform
import time
from pathlib import Path, PurePosixPath

LOOP, TRIES = 20_000, 25

REFERENCE = 0.42e-3
"""Seconds of that loop where `pmbnn.experiment.cost` has its constants from: half of what it takes
on a machine on which a step, in C too, takes twice as long as in the tables of ``benchmarks/``."""


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def machine_kind() -> str:
    """What decides the last digits of a machine's numbers: its processor's model, in words."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return ", ".join(filter(None, [platform.machine(), *models[:1]]))


def total_memory() -> float | None:
    """Bytes of memory of the machine, or of the container or job; None where nothing tells."""
    try:
        there = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not on Windows
        return None
    return min([there, *_control_group_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def _control_group_limits(own: Path, root: Path) -> list[float]:
    """Limits of memory of the control groups of Linux that a process is in, of both versions.

    Those of a container often lie at the root: it does not see what is above.
    """
    found = []
    for line in own.read_text().splitlines() if own.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = PurePosixPath(path.lstrip("/"))
        for group in (inner, *inner.parents):
            with contextlib.suppress(OSError, ValueError):  # "max" is none
                found.append(float(int((top / group / name).read_text())))
    return found


@functools.cache
def slowness() -> float:
    """Time that a core takes for anything, in units of the time on that machine.

    A loop of Python tells it in some milliseconds; of compiled steps it is right within a third.
    """
    return min(_loop() for _ in range(TRIES)) / REFERENCE


def _loop() -> float:
    start, total = time.perf_counter(), 0
    for number in range(LOOP):
        total += number
    return time.perf_counter() - start
