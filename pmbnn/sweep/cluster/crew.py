"""Workers of a cluster: those that agree with a sweep, and those that are left out, and why."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from distributed import Client

from pmbnn.sweep.cluster.errors import ClusterError, ClusterLostError
from pmbnn.sweep.cluster.worker import About, about

LOOK_AROUND = 1.0
"""Seconds between two looks for new workers."""


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


class Crew:
    """Workers that are there.

    Parameters
    ----------
    versions
        That a worker must have.

    Attributes
    ----------
    seen
        All of them, those that are left out as well.
    """

    def __init__(self, versions: Mapping[str, str]) -> None:
        self.versions = versions
        self.seen: tuple[Seen, ...] = ()
        self._told: set[str] = set()
        self._left_out: dict[str, str] = {}
        self._broken: set[str] = set()

    @property
    def agreeing(self) -> list[Seen]:
        """Those that can be used."""
        return [one for one in self.seen if isinstance(one.about, About)]

    @property
    def threads(self) -> int:
        """Jobs that run beside each other on them; one at least."""
        return max(1, sum(one.threads for one in self.agreeing))

    def leave_out(self, address: str, why: str, broken: bool = False) -> None:
        """Have a worker get no more jobs; `broken` of a machine that must be mended first."""
        self._left_out[address] = why
        if broken:
            self._broken.add(address)

    def look_at(self, seen: tuple[Seen, ...], say: Callable[[str], None]) -> None:
        """Take in which workers are there; say which of them are left out, and why.

        Raises
        ------
        ClusterError
            If there are some, and none of them can be used.
        ClusterLostError
            If that is so because of a machine that must be mended.
        """
        self.seen = tuple(
            replace(one, about=self._left_out.get(one.address, one.about)) for one in seen
        )
        refused = {one.address: one.about for one in self.seen if isinstance(one.about, str)}
        for address in refused.keys() - self._told:
            self._told.add(address)
            say(f"left out: worker {address}: {refused[address]}")
        if refused and len(refused) == len(seen):
            # What is the matter with a machine nobody mends by another command.
            error = ClusterLostError if refused.keys() & self._broken else ClusterError
            raise error(f"no worker can be used: {next(iter(refused.values()))}.")


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
