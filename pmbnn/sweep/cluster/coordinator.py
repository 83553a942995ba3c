"""The coordinator of a sweep on a cluster: has its jobs done there, and tells what happens.

It yields the events of `run_jobs` on one machine.
"""

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distributed import Client, Future

from pmbnn.experiment.machine import machine_kind
from pmbnn.experiment.plugins import Source
from pmbnn.experiment.versions import decisive_versions
from pmbnn.processes.helpers import deferred_interrupts
from pmbnn.processes.workers import Event
from pmbnn.results.lock import WRITER
from pmbnn.results.store import Results
from pmbnn.sweep.cluster.crew import Crew, Scout
from pmbnn.sweep.cluster.errors import PATIENCE, ClusterLostError
from pmbnn.sweep.cluster.parcels import Setting
from pmbnn.sweep.cluster.turn import Turn
from pmbnn.sweep.cluster.worker import end_processes, news_of

if TYPE_CHECKING:
    from pmbnn.fitting.tasks import JobTask

FIRST_LOOK = 60.0
"""Seconds in which workers that are there must say what they are."""

LEAST_NEWS = 0.5
"""Seconds between two reports of progress of one job, at least."""

NEWS_A_SECOND = 50.0
"""Reports of progress of all jobs together, more or less: they pass through the scheduler."""


class Cluster:
    """A cluster that a sweep runs on.

    Parameters
    ----------
    client
        Connected to its scheduler.
    shared_folder
        Whether workers see the results folder under the path that it has here, and write it.
    """

    def __init__(self, client: Client, shared_folder: bool = False) -> None:
        self.client, self.shared_folder = client, shared_folder
        # A client that has lost its scheduler does not know any more where that was.
        self._address = client.scheduler.address if client.scheduler else "of that client"
        self.session = uuid.uuid4().hex[:12]
        self.crew = Crew(decisive_versions())
        self.say: Callable[[str], None] = lambda line: None
        self._inbox: queue.SimpleQueue = queue.SimpleQueue()
        self._scout: Scout | None = None
        self._silent_since: float | None = None
        self._scattered: dict[str, Future] = {}

    @property
    def threads(self) -> int:
        """Jobs that run beside each other on the workers that agree; one at least."""
        return self.crew.threads

    def begin(self, folder: Path, say: Callable[[str], None]) -> None:
        """Ask the workers that are there what they are, and say it.

        Parameters
        ----------
        folder
            The results folder, which is being written.
        say
            Called with each line that the user should see.

        Raises
        ------
        ClusterError
            If there are workers, and none of them can be used.
        ClusterLostError
            If the scheduler does not answer.
        """
        self.say = say
        shared = folder.absolute() if self.shared_folder else None
        writer = (folder / WRITER).read_text(encoding="utf-8") if shared else ""
        self._scout = Scout(self.client, self.crew.versions, shared, writer, self._inbox.put)
        self._scout.start()
        deadline = time.monotonic() + FIRST_LOOK
        while not isinstance(message := self._message(1.0), tuple):
            self._check_scheduler()
            if time.monotonic() > deadline:
                raise ClusterLostError(
                    f"the workers of {self._address} did not say within {FIRST_LOOK:.0f} seconds "
                    "what they are."
                )
        self.crew.look_at(message, say)
        agreeing = self.crew.agreeing
        number = f"{len(agreeing)} workers, {self.threads} threads" if agreeing else "no worker yet"
        dashboard = self.client.dashboard_link
        say(f"scheduler {self._address}: {number}" + (f"; {dashboard}" if dashboard else ""))

    def end(self) -> None:
        """Let workers go; the client stays connected."""
        if self._scout is not None:
            self._scout.stop()
        if self.client.status == "running":
            # A worker that does not answer ends its processes by itself, only later.
            asking = threading.Thread(target=self._end_processes, daemon=True)
            asking.start()
            asking.join(PATIENCE)
        for future in self._scattered.values():
            future.release()

    def _end_processes(self) -> None:
        with suppress(Exception):  # of a comm that breaks meanwhile
            self.client.run(end_processes, self.session, on_error="ignore")

    def run_jobs(
        self,
        jobs: Sequence["JobTask"],
        results: Results,
        single_threaded: bool,
        plugins: Sequence[Source] = (),
    ) -> Iterator[Event]:
        """Run jobs on the cluster, yielding what happens as `run_jobs` on one machine does.

        Raises
        ------
        ClusterError
            If no worker can be used any more.
        ClusterLostError
            If the scheduler does not answer any more.
        StorageError
            If the folder that workers share is full.
        """
        setting = Setting(
            self.session,
            self.crew.versions,
            machine_kind(),
            single_threaded,
            results.folder.absolute() if self.shared_folder else None,
            max(LEAST_NEWS, self.threads / NEWS_A_SECOND),
        )
        turn = Turn(
            self.client,
            self.crew,
            jobs,
            results,
            setting,
            tuple(plugins),
            self._scattered,
            self._inbox.put,
        )
        self.client.subscribe_topic(setting.topic, self._hear)
        with deferred_interrupts() as interrupts_allowed:
            try:
                while not turn.is_over:
                    turn.give()
                    with interrupts_allowed():
                        message = self._message(1.0)
                    self._check_scheduler()
                    yield from self._events(turn, message)
            except Exception:
                self._check_scheduler()  # without it everything fails
                raise
            finally:
                with suppress(Exception):  # without a scheduler there is nothing to take back
                    self.client.unsubscribe_topic(setting.topic)
                    turn.drop()

    def _hear(self, event: tuple[float, Mapping]) -> None:
        self._inbox.put(news_of(event[1]))

    def _message(self, seconds: float) -> object:
        try:
            return self._inbox.get(timeout=seconds)
        except queue.Empty:
            return None

    def _events(self, turn: Turn, message: object) -> Iterator[Event]:
        match message:
            case None:
                return
            case (int(number), Future() as future):
                yield from turn.take_in(number, future)
            case tuple():
                self.crew.look_at(message, self.say)
                yield from turn.look_around()
            case progressed:
                if progressed.job in turn.running:
                    yield progressed

    def _check_scheduler(self) -> None:
        """Raise ClusterLostError where the scheduler has not been there for long."""
        if self.client.status == "running":
            self._silent_since = None
            return
        now = time.monotonic()
        self._silent_since = self._silent_since or now
        if self.client.status == "closed" or now - self._silent_since > PATIENCE:
            raise ClusterLostError(
                f"the scheduler {self._address} does not answer any more: finished cells are kept; "
                "the same command goes on from here."
            )
