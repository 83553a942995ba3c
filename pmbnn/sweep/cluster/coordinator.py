"""The coordinator of a sweep on a cluster: sends jobs, stores what comes back, tells what happens.

It yields the events of `run_jobs` on one machine. Dask runs a job elsewhere when its worker is
lost; what is kept here is which thread of which worker is given what, so that jobs of one group
meet the programs that are compiled for it, and no more is on its way than workers can take.
"""

import pickle
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from distributed import Client, Future, KilledWorker

from pmbnn.data import DatasetSpec
from pmbnn.experiment.machine import machine_kind
from pmbnn.experiment.plugins import Source, read_sources
from pmbnn.figures.processes import deferred_interrupts
from pmbnn.results.lock import WRITER
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.sweep.cluster.connect import PATIENCE, ClusterError, ClusterLostError
from pmbnn.sweep.cluster.data import shipments_of
from pmbnn.sweep.cluster.parcels import PackedCell, Parcel, Receipt, Setting, Shipment
from pmbnn.sweep.cluster.placement import LARGE, Placement, Scout, Seen, Slot, differing
from pmbnn.sweep.cluster.worker import About, end_processes, news_of, run_parcel
from pmbnn.sweep.versions import decisive_versions
from pmbnn.sweep.workers import Event, Finished, Stored

if TYPE_CHECKING:
    from pmbnn.fitting.tasks import JobTask

FIRST_LOOK = 60.0
"""Seconds in which workers that are there must say what they are."""

WITHOUT_WORKERS = 32
"""Jobs that wait at the scheduler while there is no worker, which a cluster may start at need."""

LEAST_NEWS = 0.5
"""Seconds between two reports of progress of one job, at least."""

NEWS_A_SECOND = 50.0
"""Reports of progress of all jobs together, more or less: they pass through the scheduler."""

ARRIVAL = 60.0
"""Seconds that finished cells may take to arrive, before they are asked for again."""

UNDONE = ("pending", "lost")
"""States of a task that nobody has done, or nobody any more."""

LOST = 20
"""Times that a job is sent whose cells never arrive."""

DEATHS = 3
"""Workers that die while they have a job, before it is tried by itself, and fails with the next."""

DAMAGED = 3
"""Times that a job is done whose cells arrive damaged."""

VISIBLE = 60.0
"""Seconds in which a cell must be seen that a worker has stored: file systems of clusters lag."""


class _Damaged(Exception):
    """A cell that is not what was sent."""


@dataclass
class _Turn:
    """Jobs of one turn, and where each is."""

    jobs: Sequence["JobTask"]
    setting: Setting
    sources: tuple[Source, ...]
    placement: Placement
    waiting: dict[int, "JobTask"]
    running: dict[int, Future] = field(default_factory=dict)
    shared: set[int] = field(default_factory=set)
    suspects: list[int] = field(default_factory=list)
    tries: dict[int, int] = field(default_factory=dict)
    places: dict[int, str | None] = field(default_factory=dict)
    deaths: dict[int, int] = field(default_factory=dict)
    needed: dict[str, dict[Shipment, bytes]] = field(default_factory=dict)
    alone: bool = False
    name: str = field(default_factory=lambda: uuid.uuid4().hex)


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
        self.session = uuid.uuid4().hex[:12]
        self.versions = decisive_versions()
        self.seen: tuple[Seen, ...] = ()
        self.say: Callable[[str], None] = lambda line: None
        self._inbox: queue.SimpleQueue = queue.SimpleQueue()
        self._scout: Scout | None = None
        self._told: set[str] = set()
        self._left_out: dict[str, str] = {}
        self._broken: set[str] = set()
        self._silent_since: float | None = None
        self._scattered: dict[str, Future] = {}

    @property
    def threads(self) -> int:
        """Jobs that run beside each other on the workers that agree; one at least."""
        return max(1, sum(one.threads for one in self.seen if isinstance(one.about, About)))

    # The beginning and the end

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
        self._scout = Scout(self.client, self.versions, shared, writer, self._inbox.put)
        self._scout.start()
        deadline = time.monotonic() + FIRST_LOOK
        while not isinstance(message := self._message(1.0), tuple):
            self._check_scheduler()
            if time.monotonic() > deadline:
                raise ClusterLostError(
                    f"the workers of {self._address} did not say within {FIRST_LOOK:.0f} seconds "
                    "what they are."
                )
        self._look_at(message)
        agreeing = [one for one in self.seen if isinstance(one.about, About)]
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

    @property
    def _address(self) -> str:
        return self.client.scheduler.address if self.client.scheduler else "the scheduler"

    # A turn of jobs

    def run_jobs(
        self,
        jobs: Sequence["JobTask"],
        results: Results,
        single_threaded: bool,
        plugins: Sequence[str] = (),
    ) -> Iterator[Event]:
        """Run jobs on the cluster, yielding what happens as `run_jobs` on one machine does.

        Raises
        ------
        ClusterError
            If no worker can be used any more.
        ClusterLostError
            If the scheduler does not answer any more.
        """
        setting = Setting(
            self.session,
            self.versions,
            machine_kind(),
            single_threaded,
            results.folder.absolute() if self.shared_folder else None,
            max(LEAST_NEWS, self.threads / NEWS_A_SECOND),
        )
        placement = Placement(large=not single_threaded)
        placement.update(self.seen)
        waiting = dict(enumerate(jobs))
        turn = _Turn(jobs, setting, read_sources(plugins), placement, waiting)
        self.client.subscribe_topic(setting.topic, self._hear)
        with deferred_interrupts() as interrupts_allowed:
            try:
                while turn.waiting or turn.running or turn.suspects:
                    self._give(turn)
                    with interrupts_allowed():
                        message = self._message(1.0)
                    self._check_scheduler()
                    yield from self._events(turn, message, results)
            except Exception:
                self._check_scheduler()  # without it everything fails
                raise
            finally:
                self._drop(turn)

    def _message(self, seconds: float) -> object:
        try:
            return self._inbox.get(timeout=seconds)
        except queue.Empty:
            return None

    def _hear(self, event: tuple[float, Mapping]) -> None:
        self._inbox.put(news_of(event[1]))

    def _events(self, turn: _Turn, message: object, results: Results) -> Iterator[Event]:
        match message:
            case None:
                return
            case (int(number), Future() as future):
                if turn.running.get(number) is future:
                    yield from self._came(turn, number, future, results)
            case tuple():
                self._look_at(message)
                turn.placement.update(self.seen)
                yield from self._orphaned(turn)
            case progressed:
                if progressed.job in turn.running:
                    yield progressed

    def _orphaned(self, turn: _Turn) -> Iterator[Event]:
        """Send anew what was meant for a worker that is gone.

        Dask would have it done elsewhere, but if no worker was left at that moment: then it waits
        for that address, which no other worker ever has.
        """
        there = {one.address for one in self.seen}
        for number, future in list(turn.running.items()):
            place = turn.places[number]
            if place is None or place in there or future.status not in UNDONE:
                continue
            del turn.running[number]
            turn.placement.done(number)
            self.client.cancel([future], force=True)
            turn.deaths[number] = turn.deaths.get(number, 0) + 1
            if turn.deaths[number] < DEATHS:
                turn.waiting[number] = turn.jobs[number]
            else:
                yield from self._failed(turn, number, turn.deaths[number])

    def _came(self, turn: _Turn, number: int, future: Future, results: Results) -> Iterator[Event]:
        """Take in a task that is done; send it anew if its result was lost with its worker."""
        del turn.running[number]
        turn.placement.done(number)
        yield from self._received(turn, number, future, results)
        if future.status in UNDONE:
            # It is sent by another name now: Dask may have this one made again, or may not.
            self.client.cancel([future], force=True)
        future.release()

    def _look_at(self, seen: tuple[Seen, ...]) -> None:
        """Take in which workers are there; say which of them are left out, and why."""
        self.seen = seen = tuple(
            replace(one, about=self._left_out.get(one.address, one.about)) for one in seen
        )
        refused = {one.address: one.about for one in seen if isinstance(one.about, str)}
        for address, why in refused.items():
            if address not in self._told:
                self._told.add(address)
                self.say(f"left out: worker {address}: {why}")
        if refused and len(refused) == len(seen):
            # What is the matter with a machine nobody mends by another command.
            error = ClusterLostError if refused.keys() & self._broken else ClusterError
            raise error(
                f"no worker of {self._address} can be used: {next(iter(refused.values()))}."
            )

    # On the way there

    def _give(self, turn: _Turn) -> None:
        """Send jobs to whoever has room for them."""
        if turn.suspects and not turn.waiting and not turn.running:
            # One that others died with may not be what killed them: now it is by itself.
            turn.alone = True
            number = turn.suspects.pop(0)
            turn.waiting[number] = turn.jobs[number]
        groups = {number: job.group for number, job in turn.waiting.items()}
        if not turn.placement.slots:
            self._send_ahead(turn)
            return
        while given := turn.placement.next(groups):
            number, slot = given
            del groups[number]
            self._send(turn, number, slot)

    def _send_ahead(self, turn: _Turn) -> None:
        """Have some jobs wait at the scheduler for the first worker."""
        for number in list(turn.waiting)[: max(0, WITHOUT_WORKERS - len(turn.running))]:
            self._send(turn, number, Slot(None))

    def _send(self, turn: _Turn, number: int, slot: Slot) -> None:
        job = turn.waiting.pop(number)
        if not turn.alone:
            turn.shared.add(number)
        carried: dict[Shipment, bytes] = {}
        for task in (*job.cells, *([job.search_cell] if job.search_cell else [])):
            carried |= turn.needed.get(task.fingerprint, {})
        parcel = Parcel(
            turn.setting,
            number,
            job.group,
            pickle.dumps(job),
            turn.sources,
            tuple(carried),
            (slot.address or "", slot.cores),
        )
        try_number = turn.tries[number] = turn.tries.get(number, 0) + 1
        contents = [self._scatter(shipment, content) for shipment, content in carried.items()]
        labelled = turn.placement.large and any(one.resources.get(LARGE) for one in self.seen)
        future = self.client.submit(
            run_parcel,
            parcel,
            *contents,
            key=f"pmbnn-job-{turn.name}-{number}-{try_number}",
            workers=None if slot.address is None else [slot.address],
            allow_other_workers=slot.address is not None,
            resources={LARGE: 1} if labelled else None,
            pure=False,
        )
        turn.running[number], turn.places[number] = future, slot.address
        future.add_done_callback(lambda done: self._inbox.put((number, done)))

    def _scatter(self, shipment: Shipment, content: bytes) -> Future:
        """The content of a shipment among the workers, each of which gets it once."""
        if shipment.key not in self._scattered:
            self._scattered[shipment.key] = self.client.scatter(content)
        return self._scattered[shipment.key]

    # On the way back

    def _received(
        self, turn: _Turn, number: int, future: Future, results: Results
    ) -> Iterator[Event]:
        """What follows from a task that is done, or that nobody does any more."""
        try:
            if future.status in UNDONE:
                raise TimeoutError("its result was lost with its worker")
            receipt = future.result(timeout=ARRIVAL)
        except KilledWorker as error:
            yield from self._failed(turn, number, error.allowed_failures + 1)
            return
        # It was lost on its way, or data that it needs were, or the scheduler is.
        except Exception as error:
            self._scattered.clear()
            if future.status != "error" and turn.tries[number] < LOST:
                turn.waiting[number] = turn.jobs[number]
            else:
                yield Finished(number, f"{type(error).__name__}: {error}".splitlines()[0])
            return
        if receipt.versions is not None:
            self._leave_out(receipt.worker, differing(self.versions, receipt.versions))
            turn.waiting[number] = turn.jobs[number]
        elif receipt.fault is not None:
            self._broken.add(receipt.worker)
            self._leave_out(receipt.worker, receipt.fault)
            turn.waiting[number] = turn.jobs[number]
        elif receipt.lacking:
            yield from self._needed(turn, number, receipt)
        else:
            yield from self._stored(turn, number, receipt, results)

    def _leave_out(self, address: str, why: str) -> None:
        """Have a worker get no more jobs."""
        self._left_out[address] = why
        self._inbox.put(self.seen)

    def _failed(self, turn: _Turn, number: int, died: int) -> Iterator[Event]:
        """Try a job by itself that workers died with, which may have had others beside it."""
        if number in turn.shared:
            turn.shared.discard(number)
            turn.suspects.append(number)
        else:
            yield Finished(number, f"{died} workers died while they had it")

    def _needed(self, turn: _Turn, number: int, receipt: Receipt) -> Iterator[Event]:
        """Have data come along that a worker does not have; an end of the job where they cannot."""
        job = turn.jobs[number]
        tasks = [*job.cells, *([job.search_cell] if job.search_cell else [])]
        specs: dict[str, DatasetSpec] = {task.fingerprint: task.cell.dataset for task in tasks}
        for fingerprint, why in receipt.lacking.items():
            if fingerprint in turn.needed and turn.tries[number] > DAMAGED:
                yield Finished(number, f"{receipt.worker}: {why}")
                return
            try:
                turn.needed[fingerprint] = shipments_of(specs[fingerprint], fingerprint)
            except Exception as error:  # of a data set of the user's own
                yield Finished(number, f"{type(error).__name__}: {error}".splitlines()[0])
                return
        turn.waiting[number] = job

    def _stored(
        self, turn: _Turn, number: int, receipt: Receipt, results: Results
    ) -> Iterator[Event]:
        try:
            records = [self._store(cell, results) for cell in receipt.cells]
        except _Damaged as error:
            if turn.tries[number] < DAMAGED:
                turn.waiting[number] = turn.jobs[number]
            else:
                yield Finished(number, f"{receipt.worker}: {error}")
            return
        for record in records:
            yield Stored(number, record)
        yield Finished(number, receipt.died, receipt.seconds)

    def _store(self, cell: PackedCell, results: Results) -> CellRecord:
        """Store a cell that came back, whole as it was sent; its record."""
        try:
            record = CellRecord.from_json(cell.record)
        except ValueError as error:
            raise _Damaged(f"the record of a cell: {error}") from error
        if self.shared_folder:
            deadline = time.monotonic() + VISIBLE
            while not results.is_finished(record.name):
                if time.monotonic() > deadline:
                    raise _Damaged(f"the worker stored {record.name}, and it is not seen here")
                time.sleep(0.5)
            return record
        for name, file in record.files.items():
            content = cell.files.get(name, b"")
            if not file.holds(content):
                raise _Damaged(f"{name} of {record.name} has changed on its way")
        writers = {
            name: lambda path, content=content: path.write_bytes(content)
            for name, content in cell.files.items()
        }
        return results.save_cell(record, writers)

    # What may go wrong

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

    def _drop(self, turn: _Turn) -> None:
        """Take back what is still on its way."""
        with suppress(Exception):  # without a scheduler there is nothing to take back
            self.client.unsubscribe_topic(turn.setting.topic)
            if turn.running:
                self.client.cancel(list(turn.running.values()), force=True)
        turn.running.clear()
