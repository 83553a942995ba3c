"""Who works for a sweep: workers of a cluster that agree with it, and which job each gets."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from distributed import Client

from pmbnn.sweep.cluster.worker import About, about
from pmbnn.sweep.workers import next_job

LARGE = "pmbnn-large"
"""Resource of the workers that large networks go to, where some have it."""

LOOK_AROUND = 1.0
"""Seconds between two looks for new workers."""

AHEAD = 2
"""Jobs that are sent for each thread of a worker: it has the next one before it asks for it."""


@dataclass(frozen=True)
class Seen:
    """A worker that is there.

    Attributes
    ----------
    address
        Of the worker, which tells it from one that came in its place.
    threads
        How many tasks it runs at once.
    resources
        Labels that it has.
    about
        What it said of itself, or why it cannot be used.
    """

    address: str
    threads: int
    resources: Mapping[str, float]
    about: About | str


class Scout(threading.Thread):
    """Looks for workers, old and new, and asks each once what it is.

    Parameters
    ----------
    tell
        Called with all that are there, whenever they are others than before.
    folder, writer
        As `about` takes them.
    """

    def __init__(
        self,
        client: Client,
        versions: Mapping[str, str],
        folder: Path | None,
        writer: str,
        tell: Callable[[tuple[Seen, ...]], None],
    ) -> None:
        super().__init__(name="pmbnn-scout", daemon=True)
        self.client, self.versions, self.folder = client, versions, folder
        self.writer, self.tell = writer, tell
        self.known: dict[str, About | str] = {}
        self.over = threading.Event()

    def run(self) -> None:
        """Look until it is over; a scheduler that does not answer is the coordinator's matter."""
        last: tuple[Seen, ...] | None = None
        while not self.over.is_set():
            try:
                found = self._look()
            except Exception:  # whatever a comm that breaks raises
                self.over.wait(LOOK_AROUND)
                continue
            if found != last:
                self.tell(found)
                last = found
            self.over.wait(LOOK_AROUND)

    def stop(self) -> None:
        """End it, at its next breath."""
        self.over.set()

    def _look(self) -> tuple[Seen, ...]:
        workers: Mapping[str, Any] = self.client.scheduler_info()["workers"]
        if new := [address for address in workers if address not in self.known]:
            self.known |= self._asked(new)
        return tuple(
            Seen(address, worker["nthreads"], worker["resources"], self.known[address])
            for address, worker in workers.items()
            if address in self.known
        )

    def _asked(self, addresses: list[str]) -> dict[str, About | str]:
        """What workers say of themselves, or why they cannot be used; nothing of those gone."""
        options = {"workers": addresses, "on_error": "return"}
        answers = self.client.run(about, self.folder, self.writer, **options)
        found = {a: self._judged(answer) for a, answer in answers.items()}
        broken = [address for address, answer in found.items() if answer is None]
        if broken:
            # Without this module it may still have some version of the package.
            options["workers"] = broken
            names = self.client.run(version, "pmbnn", **options)
            for address in broken:
                found[address] = _other_package(names.get(address), answers[address])
        return {address: judged for address, judged in found.items() if judged is not None}

    def _judged(self, answer: object) -> About | str | None:
        """What a worker said, or why it cannot be used; None where it could not even answer."""
        if not isinstance(answer, About):
            return None
        if answer.versions != self.versions:
            return differing(self.versions, answer.versions)
        if not answer.sees_folder:
            return f"it does not see the results folder {self.folder} that is written here"
        return answer


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Versions that are not the same, both named."""
    return ", ".join(
        f"{name} {theirs.get(name, 'missing')} there, {ours[name]} here"
        for name in ours
        if theirs.get(name) != ours[name]
    )


def _other_package(found: object, error: object) -> str | None:
    """Why a worker could not say what it is; None where it is gone."""
    if isinstance(error, OSError):
        return None
    if isinstance(found, str) and found != version("pmbnn"):
        return f"pmbnn {found} there, {version('pmbnn')} here"
    return f"pmbnn cannot be loaded there: {type(error).__name__}: {error}"


# Who gets what


@dataclass(eq=False)
class Slot:
    """A thread of a worker, and what it was given; of no worker as long as there is none."""

    address: str | None
    group: str | None = None
    jobs: set[int] = field(default_factory=set)
    cores: tuple[int, ...] = ()


class Placement:
    """Threads of workers that agree, and the jobs that each has.

    Parameters
    ----------
    large
        Whether jobs fill a machine: those go to workers with the label `LARGE`, or to one of each
        host, one at a time.
    """

    def __init__(self, large: bool) -> None:
        self.large = large
        self.depth = 1 if large else AHEAD
        self.slots: list[Slot] = []

    def update(self, seen: Iterable[Seen]) -> None:
        """Take in who is there now; what those that are gone had goes elsewhere by itself."""
        usable = _usable(seen, self.large)
        kept = [slot for slot in self.slots if slot.address in usable]
        bound = {slot.address: slot.cores for slot in kept}
        for address, one in usable.items():
            if address not in bound:
                cores = () if self.large else _free_cores(one, usable, bound)
                bound[address] = cores
                number = 1 if self.large else one.threads
                kept += [Slot(address, cores=cores) for _ in range(number)]
        self.slots = kept

    def next(self, groups: Mapping[int, str]) -> tuple[int, Slot] | None:
        """The next job of those that wait, by their groups, and where it goes; None for now.

        Whoever has least comes first, with jobs of its own group if there are any.
        """
        slot = min(self.slots, key=lambda one: len(one.jobs), default=None)
        if not groups or slot is None or len(slot.jobs) >= self.depth:
            return None
        number = next_job(groups, slot.group, {one.group for one in self.slots})
        slot.jobs.add(number)
        slot.group = groups[number]
        return number, slot

    def done(self, number: int) -> None:
        """Take a job off whoever had it."""
        for slot in self.slots:
            slot.jobs.discard(number)


def _usable(seen: Iterable[Seen], large: bool) -> dict[str, Seen]:
    """Workers that jobs may go to, by address."""
    agreeing = {one.address: one for one in seen if isinstance(one.about, About)}
    if not large:
        return agreeing
    labelled = {a: one for a, one in agreeing.items() if one.resources.get(LARGE)}
    if labelled:
        return labelled
    hosts: dict[str, str] = {}
    for address, one in agreeing.items():
        hosts.setdefault(one.about.host, address)
    return {address: agreeing[address] for address in hosts.values()}


def _free_cores(
    one: Seen, usable: Mapping[str, Seen], bound: Mapping[str | None, tuple[int, ...]]
) -> tuple[int, ...]:
    """Cores that a new worker's processes are bound to: where a host has a thread for each core.

    As on one machine: fewer are left to the system.
    """
    there = [other for other in usable.values() if other.about.host == one.about.host]
    cores = {core for other in there for core in other.about.cores}
    if sum(other.threads for other in there) != len(cores):
        return ()
    taken = {core for other in there for core in bound.get(other.address, ())}
    free = [core for core in one.about.cores if core not in taken]
    return tuple(free[: one.threads]) if len(free) >= one.threads else ()
