"""The machine that a plan is for: its kind, its cores, and how fast one is."""

import functools
import os
import platform
import time
from pathlib import Path

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
