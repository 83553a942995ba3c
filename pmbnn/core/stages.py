"""Stages of work: their progress and the seconds that they take.

Work that may take a while runs within `stage`, or in a function decorated by `staged`. Progress is
shown by the function of `on_progress`; `measured` counts the seconds.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps


@dataclass(frozen=True)
class StageUpdate:
    """Progress of a stage.

    Attributes
    ----------
    stage
        Its name.
    done, total
        Amount that is done, in units of `unit`; a total of zero if that is not known.
    unit
        ``step``, ``draw`` or the like.
    words
        Further text.
    """

    stage: str
    done: int = 0
    total: int = 0
    unit: str = ""
    words: str = ""


OnProgress = Callable[[tuple[StageUpdate, ...]], None]
"""Called as a stage begins, progresses or ends, with all open stages, the outermost first."""


class _Clock(threading.local):
    """Open stages of this thread, its counters of seconds and its functions of progress."""

    def __init__(self) -> None:
        self.open: list[StageUpdate] = []
        self.since = 0.0
        self.sums: list[Counter[str]] = []
        self.callbacks: list[OnProgress] = []

    def charge(self) -> None:
        """Count the time since the last call for the innermost stage."""
        now = time.perf_counter()
        for seconds in self.sums if self.open else ():
            seconds[self.open[-1].stage] += now - self.since
        self.since = now

    def report(self) -> None:
        """Call the innermost function of progress with the open stages."""
        if self.callbacks:
            self.callbacks[-1](tuple(self.open))


_clock = _Clock()


@contextmanager
def stage(name: str, total: int = 0, unit: str = "") -> Iterator[Callable[..., None]]:
    """Run the block as a stage of this name.

    The time of stages within it is not counted for it.

    Yields
    ------
    Callable
        Function that reports progress: it takes ``done`` and, optionally, ``total`` and ``words``
        of `StageUpdate`.
    """
    place = len(_clock.open)

    def report_progress(done: int, total: int = total, words: str = "") -> None:
        _clock.open[place] = StageUpdate(name, done, total, unit, words)
        _clock.report()

    _clock.charge()
    _clock.open.append(StageUpdate(name, 0, total, unit))
    _clock.report()
    try:
        yield report_progress
    finally:
        _clock.charge()
        _clock.open.pop()
        _clock.report()


def recount(name: str, seconds: float) -> None:
    """Count some of the last seconds of the innermost stage for another."""
    for sums in _clock.sums if _clock.open else ():
        sums[_clock.open[-1].stage] -= seconds
        sums[name] += seconds


def staged[**P, T](name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator of a function whose calls are stages of this name."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def in_stage(*args: P.args, **kwargs: P.kwargs) -> T:
            with stage(name):
                return function(*args, **kwargs)

        return in_stage

    return decorate


@contextmanager
def on_progress(callback: OnProgress) -> Iterator[None]:
    """Call a function with the stages of the block, in place of the function around it."""
    _clock.callbacks.append(callback)
    try:
        yield
    finally:
        _clock.callbacks.pop()


@contextmanager
def measured() -> Iterator[Counter[str]]:
    """Wall-clock seconds of the stages of the block, by their names."""
    seconds: Counter[str] = Counter()
    _clock.charge()
    _clock.sums.append(seconds)
    try:
        yield seconds
    finally:
        _clock.charge()
        _clock.sums.pop()
