"""How other processes are started."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from multiprocessing import resource_tracker
from types import ModuleType


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
def spawning() -> Iterator[None]:
    """Start processes that Ctrl-C does not end, and that do not run the caller's script again."""
    with deferred_interrupts(), _without_interrupts(), _without_main():
        yield


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Let Ctrl-C wait until the end, or until what is yielded is entered, where it may come.

    It would come between any two lines otherwise: within the start of a process, which then
    complains of what it was not sent, or within a callback or a library that swallows it.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is None:
        yield nullcontext  # only the main thread may change what was set, and only what Python set
        return
    came = []

    def later(number, frame):
        came.append(number)

    @contextmanager
    def allowed():
        signal.signal(signal.SIGINT, before)
        try:
            if came:
                came.clear()
                signal.raise_signal(signal.SIGINT)
            yield
        finally:
            signal.signal(signal.SIGINT, later)

    signal.signal(signal.SIGINT, later)
    try:
        yield allowed
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from processes that are starting: the parent alone decides what it means.

    It reaches every process of a terminal, even while they import.
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


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the main module, which a spawned process would import.

    What it is sent may be defined there; ours need nothing of it, and a script that sweeps without
    asking for its name would sweep within each of them.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
