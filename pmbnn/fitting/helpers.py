"""Processes that are started by this one, and that share its work."""

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib import import_module
from multiprocessing import resource_tracker
from types import ModuleType
from typing import Any, Self

ENOUGH = 4
"""Least number of calls worth the start of a process, each as long as drawing a figure."""


@contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables for processes that are started within the block; the user's own are kept."""
    before = dict(os.environ)
    os.environ.update(with_variables(before, variables))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def with_variables(before: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """An environment with variables that it lacks; flags of XLA are appended to its own."""
    flags = " ".join(filter(None, [before.get("XLA_FLAGS"), variables.get("XLA_FLAGS")]))
    return {**variables, **before} | ({"XLA_FLAGS": flags} if flags else {})


@contextmanager
def spawning() -> Iterator[None]:
    """Start processes that Ctrl-C does not end, and that do not run the caller's script again."""
    with deferred_interrupts(), _without_interrupts(), _without_main():
        yield


@contextmanager
def deferred_interrupts() -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Defer Ctrl-C to the end of the block, or to blocks of the context that is yielded.

    It could come between any two lines otherwise: within the start of a process, which then fails
    for lack of its arguments, or within a callback or a library that swallows it.
    """
    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before in (None, signal.SIG_IGN):
        yield nullcontext  # only the main thread may change what was set, and only what Python set
        return
    pending = []

    def later(number, frame):
        pending.append(number)

    @contextmanager
    def allowed():
        signal.signal(signal.SIGINT, before)
        try:
            if pending:
                pending.clear()
                signal.raise_signal(signal.SIGINT)
            yield
        finally:
            signal.signal(signal.SIGINT, later)

    signal.signal(signal.SIGINT, later)
    try:
        yield allowed
    finally:
        signal.signal(signal.SIGINT, before)
        if pending:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Block Ctrl-C in processes that are starting: the parent alone handles it.

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

    Our processes need nothing of it, and a script that sweeps without testing ``__name__`` would
    sweep within each of them.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class HelperPool:
    """Processes that help this one: they start with the first calls and end with the block.

    Parameters
    ----------
    processes
        How many.
    niceness
        By how much their priority is lower.
    """

    def __init__(self, processes: int, niceness: int = 0) -> None:
        self.processes, self._niceness = processes, niceness
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, calls: Sequence[Callable[[], Any]]) -> list[Future]:
        """Futures of picklable calls; a process that has died is replaced."""
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(
                self.processes, context, initializer=_prepare, initargs=(self._niceness,)
            )
        try:
            with spawning():
                return [self._pool.submit(call) for call in calls]
        except BrokenProcessPool:
            self.close()
            return self.submit(calls)

    def close(self) -> None:
        """Wait for running calls, cancel the others, and end the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class Helpers(HelperPool):
    """Processes that share the work of this one, started once and ended with the block.

    Parameters
    ----------
    processes
        Number of processes at most, this one included.
    calls
        Approximate number of calls to share; few are not worth a process.
    """

    def __init__(self, processes: int, calls: int) -> None:
        super().__init__(min(processes, calls // ENOUGH) - 1)

    def start(self, *modules: str) -> None:
        """Import modules that the work will need in the processes, in the background."""
        if self.processes > 0:
            self.submit([partial(_import, modules)] * self.processes)

    def share[T](
        self, calls: Sequence[Callable[[], T]], report_progress: Callable[[int], None]
    ) -> list[T]:
        """Results of picklable calls, in their order.

        An error of a call is raised here, whichever process ran it.

        Parameters
        ----------
        calls
            Each worth about as much time as drawing a figure.
        report_progress
            Called with the number of finished calls.
        """
        if self.processes < 1 or len(calls) < 2 * ENOUGH:
            results = []
            for call in calls:
                results.append(call())
                report_progress(len(results))
            return results
        futures = self.submit(calls)
        try:
            own: dict[int, T] = {}
            # Helpers begin at the start, this process at the end, until all are taken.
            for number in reversed(range(len(calls))):
                if futures[number].cancel():
                    own[number] = calls[number]()
                report_progress(sum(future.done() for future in futures))
            return [
                own[number] if number in own else _result(call, futures[number])
                for number, call in enumerate(calls)
            ]
        finally:
            for future in futures:
                future.cancel()


ALONE = Helpers(1, 0)
"""No helpers: this process does all work."""


def _result[T](call: Callable[[], T], future: Future) -> T:
    """Result of a helper, or of the call here if that helper has died."""
    try:
        return future.result()
    except BrokenProcessPool:
        return call()


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        import_module(module)


def _prepare(niceness: int) -> None:
    """Start of a helper: its priority, and a thread that ends it with its parent."""
    if niceness and hasattr(os, "nice"):  # not on Windows
        os.nice(niceness)
    # A helper waits on a pipe of which it has both ends open: it would not notice.
    end_with_parent()


def end_with_parent() -> None:
    """Let this process end with the one that started it, also if that one is killed."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        parent.join()
        os._exit(1)

    if parent is not None:
        threading.Thread(target=wait, daemon=True).start()
