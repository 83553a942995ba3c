"""The jobs of a sweep on a Dask cluster: submitted to workers, stored when they come back."""

import hashlib
import io
import pickle
import tarfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pmbnn.core.errors import reason_of
from pmbnn.data import DataError, DatasetSpec
from pmbnn.data.base import found_files
from pmbnn.data.ood import OodSpec
from pmbnn.experiment.plugin_files import Source
from pmbnn.fitting.workers import Event, Finished, Stored
from pmbnn.results.present import StorageError
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.sweep.cluster import worker
from pmbnn.sweep.cluster.worker import (
    DataFile,
    PackedCell,
    RemoteTask,
    RunSettings,
    TaskResult,
    WorkerInfo,
)

if TYPE_CHECKING:
    from distributed import Future

    from pmbnn.fitting.tasks import JobTask
    from pmbnn.sweep.cluster.coordinator import Cluster

JOBS_PER_WORKER = 2
"""Submitted jobs per worker, so that it has its next job when it is done with one.

No more, for Dask counts the death of a worker against every job that it has, and assigns all jobs
at once that may not run everywhere. No fewer, for a cluster that adapts its size must see more jobs
than it has workers.
"""

JOBS_WITHOUT_WORKERS = 32
"""Submitted jobs while there is no worker, which a cluster may start when it has jobs."""

LOST = 20
"""Times that a job is submitted whose data are lost with workers."""

DAMAGED = 3
"""Times that a job is run whose cells arrive damaged."""

VISIBLE = 60.0
"""Seconds within which a cell that a worker stored must be seen: shared file systems lag."""


class SubmittedJobs:
    """Jobs of one call of `Cluster.run_jobs`, each numbered by its place: waiting, running or done.

    Attributes
    ----------
    waiting
        Jobs to be submitted, in this order.
    running
        Futures of submitted jobs, and the addresses that each is restricted to, if it is.
    retry_alone
        Jobs that workers died with while they had others as well.
    """

    def __init__(
        self,
        cluster: "Cluster",
        jobs: Sequence["JobTask"],
        results: Results,
        settings: RunSettings,
        plugins: Sequence[Source],
    ) -> None:
        self.cluster, self.client, self.pool = cluster, cluster.client, cluster.pool
        self.jobs, self.results, self.settings = jobs, results, settings
        self.plugins = tuple(plugins)
        self.waiting = list(range(len(jobs)))
        self.running: dict[int, tuple[Future, list[str]]] = {}
        self.retry_alone: list[int] = []
        self._repeats: Counter[tuple[int, int]] = Counter()
        self._alone: int | None = None
        self._needed: dict[str, dict[DataFile, bytes]] = {}
        self._ood: dict[OodSpec, dict[DataFile, bytes]] = {}

    @property
    def is_done(self) -> bool:
        """Whether every job is done."""
        return not (self.waiting or self.running or self.retry_alone)

    def submit(self) -> None:
        """Submit as many waiting jobs as workers have room for."""
        if self.retry_alone and not self.waiting and not self.running:
            self._alone = self.retry_alone.pop(0)
            self.waiting.append(self._alone)
        is_large = not self.settings.single_threaded
        workers = self.pool.for_large_jobs() if is_large else self.pool.usable
        room = len(workers) * (1 if is_large else JOBS_PER_WORKER) or JOBS_WITHOUT_WORKERS
        # Dask alone decides where a job runs, except where it must not run on all workers.
        is_restricted = len(workers) < len(self.pool.workers)
        addresses = [worker.address for worker in workers] if is_restricted else []
        while self.waiting and len(self.running) < room:
            self._submit(self.waiting.pop(0), addresses)

    def cancel(self) -> None:
        """Cancel what is still running."""
        if self.running:
            self.client.cancel([future for future, _ in self.running.values()], force=True)

    def _submit(self, number: int, addresses: list[str]) -> None:
        job = self.jobs[number]
        files = self._files(job)
        task = RemoteTask(
            self.settings,
            number,
            pickle.dumps(job),
            self.plugins,
            tuple(files),
            self.pool.cores,
        )
        future = self.client.submit(
            worker.run_task,
            task,
            *[self._scatter(file, content) for file, content in files.items()],
            workers=addresses or None,
            pure=False,
        )
        self.running[number] = future, addresses
        self.client.loop.add_callback(self._collect, number, future)

    async def _collect(self, number: int, future: "Future") -> None:
        """Report a result, the error of its task, or None if it is lost with what it needs.

        Dask runs a task again whose result alone is lost.
        """
        try:
            result = await self.client.gather(future, asynchronous=True)
        except Exception as error:
            result = error if future.status == "error" else None
        self.cluster.inbox.put((number, future, result))

    def _files(self, job: "JobTask") -> dict[DataFile, bytes]:
        """Files that are sent along with a job, and their contents.

        Those of out-of-distribution images always are: a worker without them would leave the set
        out, as one machine does.
        """
        files: dict[DataFile, bytes] = {}
        for task in job.tasks:
            files |= self._needed.get(task.fingerprint, {})
            for spec in task.cell.predict.ood:
                if spec not in self._ood:
                    self._ood[spec] = pack_ood(spec)
                files |= self._ood[spec]
        return files

    def _scatter(self, file: DataFile, content: bytes) -> "Future":
        """The content of a file among the workers, each of which gets it once."""
        scattered = self.cluster.scattered
        if file.key not in scattered:
            scattered[file.key] = self.client.scatter(content)
        return scattered[file.key]

    def cancel_stranded(self) -> None:
        """Cancel futures that are restricted to workers which are all gone.

        Dask would wait for their addresses, which no other worker ever has.
        """
        there = {worker.address for worker in self.pool.workers}
        stranded = [
            future
            for future, addresses in self.running.values()
            if addresses and there.isdisjoint(addresses)
        ]
        if stranded:
            self.client.cancel(stranded, force=True)

    def receive(self, number: int, future: "Future", result: object) -> Iterator[Event]:
        """Events of a job whose future has a result, an error of its task, or None."""
        from distributed import KilledWorker

        if self.running.get(number, (None,))[0] is not future:
            return  # of an earlier call
        del self.running[number]
        match result:
            case WorkerInfo():
                self.waiting.append(number)
                self.pool.leave_out(result, self.cluster.say)
            case TaskResult() if result.missing:
                yield from self._send_data(number, result)
            case TaskResult():
                yield from self._store(number, result)
            case StorageError():
                raise result  # of no worker: none of them can write there
            case KilledWorker() if number != self._alone:
                # Dask blames every job of a worker; one alone has only itself to blame.
                self.retry_alone.append(number)
            case KilledWorker():
                workers = result.allowed_failures + 1
                yield Finished(number, f"{workers} workers died while they had it")
            case Exception():
                yield Finished(number, reason_of(result))
            case None:
                self.cluster.scattered.clear()
                yield from self._repeat(number, LOST, "its data were lost with workers")

    def _repeat(self, number: int, most: int, reason: str) -> Iterator[Event]:
        """Submit a job again; after `most` times it ends, for that reason."""
        self._repeats[number, most] += 1
        if self._repeats[number, most] < most:
            self.waiting.append(number)
        else:
            yield Finished(number, reason)

    def _send_data(self, number: int, result: TaskResult) -> Iterator[Event]:
        """Submit a job again with data that its worker lacks; the job ends without them."""
        specs: dict[str, DatasetSpec] = {
            task.fingerprint: task.cell.dataset for task in self.jobs[number].tasks
        }
        try:
            for fingerprint in result.missing:
                self._needed[fingerprint] = pack_dataset(specs[fingerprint], fingerprint)
        except Exception as error:  # of a user-defined data set
            yield Finished(number, reason_of(error))
            return
        reason = f"{result.worker}: {next(iter(result.missing.values()))}"
        yield from self._repeat(number, DAMAGED, reason)

    def _store(self, number: int, result: TaskResult) -> Iterator[Event]:
        # Workers that see the results folder have stored their cells there.
        store = store_cell if self.settings.folder is None else find_cell
        try:
            records = [store(cell, self.results) for cell in result.cells]
        except DamagedError as error:
            yield from self._repeat(number, DAMAGED, f"{result.worker}: {error}")
            return
        for record in records:
            yield Stored(number, record)
        yield Finished(number, result.died, result.seconds)


# Cells that come back


class DamagedError(Exception):
    """A cell that is not what the worker sent."""


def store_cell(cell: PackedCell, results: Results) -> CellRecord:
    """Store a cell that was sent back; its record.

    Raises
    ------
    DamagedError
        If a file does not have its digest.
    """
    for name, file in cell.record.files.items():
        if not file.holds(cell.files.get(name, b"")):
            raise DamagedError(f"{name} of {cell.record.name} has changed on its way")
    writers = {
        name: lambda path, content=content: path.write_bytes(content)
        for name, content in cell.files.items()
    }
    return results.save_cell(cell.record, writers)


def find_cell(cell: PackedCell, results: Results) -> CellRecord:
    """The record of a cell that a worker has stored itself, once it is seen here.

    Raises
    ------
    DamagedError
        If it is not seen within `VISIBLE` seconds.
    """
    record, deadline = cell.record, time.monotonic() + VISIBLE
    while not results.is_finished(record.name):
        if time.monotonic() > deadline:
            raise DamagedError(f"the worker stored {record.name}, and it is not seen here")
        time.sleep(0.5)
    return record


# Data that workers lack


def pack_dataset(spec: DatasetSpec, fingerprint: str) -> dict[DataFile, bytes]:
    """What a worker needs to load a data set: the files it names, or its rows if it names none.

    Raises
    ------
    DataError
        If it is unavailable, or has changed.
    """
    with found_files() as files:
        dataset = spec.load()
    if dataset.fingerprint != fingerprint:
        raise DataError("the data changed while the sweep was running")
    if files:
        return _packed(files)
    rows = DataFile(fingerprint, "rows.pickle", fingerprint=fingerprint)
    content = pickle.dumps(dataset)
    entry = tarfile.TarInfo(rows.name)
    entry.size = len(content)
    return {rows: _archive(lambda archive: archive.addfile(entry, io.BytesIO(content)))}


def pack_ood(spec: OodSpec) -> dict[DataFile, bytes]:
    """Files of out-of-distribution images; empty where they are read from none, or are missing."""
    from pmbnn.data.ood import no_digits

    with found_files() as files, suppress(Exception):  # which is recorded with the cells
        spec.load(no_digits())
    return _packed(files)


def _packed(files: Mapping[str, Path]) -> dict[DataFile, bytes]:
    packed = {}
    for setting, path in files.items():
        content = _archive(lambda archive, path=path: archive.add(path.resolve(), path.name))
        key = hashlib.sha256(content).hexdigest()[:32]
        packed[DataFile(key, path.name, setting)] = content
    return packed


def _archive(add: Callable[[tarfile.TarFile], None]) -> bytes:
    """A tar archive of one file, or of one folder with all that is in it."""
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            add(archive)
        return buffer.getvalue()
