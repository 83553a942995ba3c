"""Stages of work: reported as they begin and go on, and counted in seconds.

Whatever may take a while says so by `stage`, or `staged` if it is a whole function. Who wants to
show it says so with `on_progress`; who wants to know how long it took, within `measured`. Where
nobody does, nothing happens.
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
    """Where a stage is.

    Attributes
    ----------
    stage
        Its name.
    done, total
        How much of it is done, in units of `unit`; a total of zero if that is not known.
    unit
        ``step``, ``draw`` or the like.
    words
        What else is to be said.
    """

    stage: str
    done: int = 0
    total: int = 0
    unit: str = ""
    words: str = ""


Tell = Callable[[tuple[StageUpdate, ...]], None]
"""Called as a stage begins, goes on, or ends, with where it is and those around it, outermost
first; of nothing when there is none left."""


class _Clock(threading.local):
    """Stages that this thread is in, and who wants to know of them."""

    def __init__(self) -> None:
        self.open: list[StageUpdate] = []
        self.since = 0.0
        self.sums: list[Counter[str]] = []
        self.tellers: list[Tell] = []

    def charge(self) -> None:
        """Count the time since the last call to the innermost stage."""
        now = time.perf_counter()
        for seconds in self.sums if self.open else ():
            seconds[self.open[-1].stage] += now - self.since
        self.since = now

    def tell(self) -> None:
        """Say where the open stages are."""
        if self.tellers:
            self.tellers[-1](tuple(self.open))


_clock = _Clock()


@contextmanager
def stage(name: str, total: int = 0, unit: str = "") -> Iterator[Callable[..., None]]:
    """Do what is within as a stage of this name.

    Time that stages within it take is theirs, not its own.

    Yields
    ------
    Callable
        To be called as it goes on with how much is done, then if need be ``total`` and ``words``
        as those of `StageUpdate`.
    """
    place = len(_clock.open)

    def report_progress(done: int, total: int = total, words: str = "") -> None:
        _clock.open[place] = StageUpdate(name, done, total, unit, words)
        _clock.tell()

    _clock.charge()
    _clock.open.append(StageUpdate(name, 0, total, unit))
    _clock.tell()
    try:
        yield report_progress
    finally:
        _clock.charge()
        _clock.open.pop()
        _clock.tell()


def recount(name: str, seconds: float) -> None:
    """Count so many of the last seconds of the innermost stage to another."""
    for sums in _clock.sums if _clock.open else ():
        sums[_clock.open[-1].stage] -= seconds
        sums[name] += seconds


def staged[**P, T](name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function whose calls are stages of this name."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def in_stage(*args: P.args, **kwargs: P.kwargs) -> T:
            with stage(name):
                return function(*args, **kwargs)

        return in_stage

    return decorate


@contextmanager
def on_progress(tell: Tell) -> Iterator[None]:
    """Call a function with the stages within, in place of the one that was called before."""
    _clock.tellers.append(tell)
    try:
        yield
    finally:
        _clock.tellers.pop()


@contextmanager
def measured() -> Iterator[Counter[str]]:
    """Seconds that stages within take, wall-clock, by their names."""
    seconds: Counter[str] = Counter()
    _clock.charge()
    _clock.sums.append(seconds)
    try:
        yield seconds
    finally:
        _clock.charge()
        _clock.sums.pop()
