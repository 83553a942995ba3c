"""How other processes are started, and for how many there is room."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for the processes started meanwhile; what the user had set is kept."""
    before = dict(os.environ)
    flags = " ".join(filter(None, [before.get("XLA_FLAGS"), variables.get("XLA_FLAGS")]))
    os.environ.update({**variables, **before} | ({"XLA_FLAGS": flags} if flags else {}))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Start processes that Ctrl-C does not end, not even while they import.

    It reaches every process of a terminal; the parent alone decides what it means.
    """
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    # Starting a first process starts the tracker, which would lift the mask again.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
