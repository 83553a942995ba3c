"""Jobs of a turn on a cluster: which are on their way, and what follows from each that comes back.

Dask runs a job elsewhere when its worker is lost; what is kept here is which thread of which
worker is given what, so that jobs of one group meet the programs that are compiled for it, and no
more is on its way than workers can take.
"""

import pickle
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from distributed import Client, Future, KilledWorker

from pmbnn.data import DatasetSpec
from pmbnn.data.ood import OodSpec
from pmbnn.experiment.plugins import Source
from pmbnn.processes.workers import Event, Finished, Stored
from pmbnn.results.faults import StorageError
from pmbnn.results.store import Results
from pmbnn.sweep.cluster import arrivals
from pmbnn.sweep.cluster.arrivals import DamagedError
from pmbnn.sweep.cluster.crew import Crew, differing
from pmbnn.sweep.cluster.data import ood_shipments, shipments_of
from pmbnn.sweep.cluster.parcels import Parcel, Receipt, Setting, Shipment
from pmbnn.sweep.cluster.placement import LARGE, Placement, Slot
from pmbnn.sweep.cluster.worker import run_parcel

if TYPE_CHECKING:
    from pmbnn.fitting.tasks import JobTask

WITHOUT_WORKERS = 32
"""Jobs that wait at the scheduler while there is no worker, which a cluster may start at need."""

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


class Turn:
    """Jobs of a turn, and where each is.

    Parameters
    ----------
    client
        Connected to the scheduler.
    crew
        The workers.
    jobs
        To be done, each by its number in this sequence.
    results
        Where their cells go.
    setting
        What they have in common.
    sources
        Plugin files that their classes may come from.
    scattered
        Data that are among the workers already; those that are sent are added.
    post
        Called, by any thread, with what the coordinator is to come back with: the number of a job
        and its task, once that is done; workers, when others are left out.
    """

    def __init__(
        self,
        client: Client,
        crew: Crew,
        jobs: Sequence["JobTask"],
        results: Results,
        setting: Setting,
        sources: tuple[Source, ...],
        scattered: dict[str, Future],
        post: Callable[[object], None],
    ) -> None:
        self.client, self.crew, self.jobs, self.results = client, crew, jobs, results
        self.setting, self.sources, self.scattered, self.post = setting, sources, scattered, post
        self.placement = Placement(large=not setting.single_threaded)
        self.placement.update(crew.seen)
        self.waiting = dict(enumerate(jobs))
        self.running: dict[int, tuple[Future, str | None]] = {}
        """Tasks, and the workers that they are meant for."""
        self.suspects: list[int] = []
        """Jobs that workers died with while they had others."""
        self.tries: Counter[int] = Counter()
        self.deaths: Counter[int] = Counter()
        self._alone = False
        self._tried_beside_others: set[int] = set()
        self._needed: dict[str, dict[Shipment, bytes]] = {}
        self._ood: dict[OodSpec, dict[Shipment, bytes]] = {}
        self._name = uuid.uuid4().hex

    @property
    def is_over(self) -> bool:
        """Whether every job is done."""
        return not (self.waiting or self.running or self.suspects)

    def drop(self) -> None:
        """Take back what is still on its way."""
        if self.running:
            self.client.cancel([future for future, _ in self.running.values()], force=True)

    # On the way there

    def give(self) -> None:
        """Send jobs to whoever has room for them."""
        if self.suspects and not self.waiting and not self.running:
            # One that others died with may not be what killed them: now it is by itself.
            self._alone = True
            self._again(self.suspects.pop(0))
        if not self.placement.slots:
            # Some wait at the scheduler for the first worker.
            for number in list(self.waiting)[: max(0, WITHOUT_WORKERS - len(self.running))]:
                self._send(number, Slot(None))
            return
        groups = {number: job.group for number, job in self.waiting.items()}
        while given := self.placement.next(groups):
            number, slot = given
            del groups[number]
            self._send(number, slot)

    def _again(self, number: int) -> None:
        self.waiting[number] = self.jobs[number]

    def _send(self, number: int, slot: Slot) -> None:
        job = self.waiting.pop(number)
        self.tries[number] += 1
        if not self._alone:
            self._tried_beside_others.add(number)
        carried: dict[Shipment, bytes] = {}
        for task in job.tasks:
            carried |= self._needed.get(task.fingerprint, {})
            for spec in task.cell.predict.ood:
                carried |= self._images(spec)
        parcel = Parcel(
            self.setting,
            number,
            job.group,
            pickle.dumps(job),
            self.sources,
            tuple(carried),
            (slot.address or "", slot.cores),
        )
        contents = [self._scatter(shipment, content) for shipment, content in carried.items()]
        labelled = self.placement.large and any(one.resources.get(LARGE) for one in self.crew.seen)
        future = self.client.submit(
            run_parcel,
            parcel,
            *contents,
            key=f"pmbnn-job-{self._name}-{number}-{self.tries[number]}",
            workers=None if slot.address is None else [slot.address],
            allow_other_workers=slot.address is not None,
            resources={LARGE: 1} if labelled else None,
            pure=False,
        )
        self.running[number] = (future, slot.address)
        future.add_done_callback(lambda done: self.post((number, done)))

    def _images(self, spec: OodSpec) -> dict[Shipment, bytes]:
        """Files of out-of-distribution images: a worker that lacks them would not say so."""
        if spec not in self._ood:
            self._ood[spec] = ood_shipments(spec)
        return self._ood[spec]

    def _scatter(self, shipment: Shipment, content: bytes) -> Future:
        """The content of a shipment among the workers, each of which gets it once."""
        if shipment.key not in self.scattered:
            self.scattered[shipment.key] = self.client.scatter(content)
        return self.scattered[shipment.key]

    # On the way back

    def look_around(self) -> Iterator[Event]:
        """Take in which workers are there; send anew what was meant for one that is gone.

        Dask would have it done elsewhere, but if no worker was left at that moment: then it waits
        for that address, which no other worker ever has.
        """
        self.placement.update(self.crew.seen)
        there = {one.address for one in self.crew.seen}
        for number, (future, place) in list(self.running.items()):
            if place is None or place in there or future.status not in UNDONE:
                continue
            self._take_off(number)
            self.client.cancel([future], force=True)
            self.deaths[number] += 1
            if self.deaths[number] < DEATHS:
                self._again(number)
            else:
                yield from self._failed(number, self.deaths[number])

    def take_in(self, number: int, future: Future) -> Iterator[Event]:
        """What follows from a task that is done, or that nobody does any more."""
        if self.running.get(number, (None,))[0] is not future:
            return  # it was sent anew meanwhile
        self._take_off(number)
        yield from self._received(number, future)
        if future.status in UNDONE:
            # It is sent by another name now: Dask may have this one made again, or may not.
            self.client.cancel([future], force=True)
        future.release()

    def _take_off(self, number: int) -> None:
        del self.running[number]
        self.placement.done(number)

    def _received(self, number: int, future: Future) -> Iterator[Event]:
        try:
            if future.status in UNDONE:
                raise TimeoutError("its result was lost with its worker")
            receipt = future.result(timeout=ARRIVAL)
        except KilledWorker as error:
            yield from self._failed(number, error.allowed_failures + 1)
        # It was lost on its way, or data that it needs were, or the scheduler is.
        except Exception as error:
            self.scattered.clear()
            if future.status != "error" and self.tries[number] < LOST:
                self._again(number)
            else:
                yield Finished(number, _line(error))
        else:
            yield from self._followed(number, receipt)

    def _followed(self, number: int, receipt: Receipt) -> Iterator[Event]:
        if receipt.versions is not None:
            why = differing(self.crew.versions, receipt.versions)
            self._leave_out(number, receipt.worker, why)
        elif receipt.is_full:
            raise StorageError(receipt.fault)  # of no worker: none of them can write there
        elif receipt.fault is not None:
            self._leave_out(number, receipt.worker, receipt.fault, broken=True)
        elif receipt.lacking:
            yield from self._supplied(number, receipt)
        else:
            yield from self._stored(number, receipt)

    def _leave_out(self, number: int, worker: str, why: str, broken: bool = False) -> None:
        """Have a job done elsewhere, and all others too."""
        self._again(number)
        self.crew.leave_out(worker, why, broken)
        self.post(self.crew.seen)

    def _failed(self, number: int, died: int) -> Iterator[Event]:
        """Try a job by itself that workers died with, which may have had others beside it."""
        if number in self._tried_beside_others:
            self._tried_beside_others.discard(number)
            self.suspects.append(number)
        else:
            yield Finished(number, f"{died} workers died while they had it")

    def _supplied(self, number: int, receipt: Receipt) -> Iterator[Event]:
        """Have data come along that a worker does not have; an end of the job where they cannot."""
        tasks = self.jobs[number].tasks
        specs: dict[str, DatasetSpec] = {task.fingerprint: task.cell.dataset for task in tasks}
        for fingerprint, why in receipt.lacking.items():
            if fingerprint in self._needed and self.tries[number] > DAMAGED:
                yield Finished(number, f"{receipt.worker}: {why}")
                return
            try:
                self._needed[fingerprint] = shipments_of(specs[fingerprint], fingerprint)
            except Exception as error:  # of a data set of the user's own
                yield Finished(number, _line(error))
                return
        self._again(number)

    def _stored(self, number: int, receipt: Receipt) -> Iterator[Event]:
        # Where workers see the results folder they have written it themselves.
        take = arrivals.store if self.setting.folder is None else arrivals.find
        try:
            records = [take(cell, self.results) for cell in receipt.cells]
        except DamagedError as error:
            if self.tries[number] < DAMAGED:
                self._again(number)
            else:
                yield Finished(number, f"{receipt.worker}: {error}")
            return
        for record in records:
            yield Stored(number, record)
        yield Finished(number, receipt.died, receipt.seconds)


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
