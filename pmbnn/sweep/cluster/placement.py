"""Which thread of which worker gets which job."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pmbnn.processes.workers import next_job
from pmbnn.sweep.cluster.crew import Seen
from pmbnn.sweep.cluster.worker import About

LARGE = "pmbnn-large"
"""Resource of the workers that large networks go to, where some have it."""

AHEAD = 2
"""Jobs that are sent for each thread of a worker: it has the next one before it asks for it."""


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
