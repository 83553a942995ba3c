"""The coordinator of a sweep on a Dask cluster: connects, follows its workers, runs jobs on them.

Dask distributes the jobs, runs those of a lost worker elsewhere, and transfers their results.
"""

import json
import logging
import pickle
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pmbnn.core.errors import UserError
from pmbnn.core.machine import machine_kind
from pmbnn.experiment.plan import decisive_versions
from pmbnn.experiment.plugin_files import Source
from pmbnn.fitting.helpers import deferred_interrupts
from pmbnn.fitting.workers import Event, Progressed
from pmbnn.results.store import WRITER, Results
from pmbnn.sweep.cluster.jobs import SubmittedJobs
from pmbnn.sweep.cluster.worker import RunSettings, WorkerInfo, end_session, worker_info

if TYPE_CHECKING:
    from distributed import Client, Future

    from pmbnn.fitting.tasks import JobTask

PATIENCE = 10.0
"""Seconds within which a scheduler must answer."""

FIRST_ANSWERS = 60.0
"""Seconds within which the workers that are there must say whether they can be used."""

LOOK_EVERY = 1.0
"""Seconds between two looks for new workers."""

PROGRESS_EVERY = 0.5
"""Least seconds between two reports of progress of one job."""

PROGRESS_PER_SECOND = 50.0
"""Reports of progress of all jobs, about: they pass through the scheduler."""


class ClusterError(UserError):
    """A cluster that cannot be used as it is; the message says what to change."""


class ClusterLostError(ClusterError):
    """A scheduler that does not answer, or workers whose machines must be repaired."""

    exit_status = 3


# Connecting


@contextmanager
def connected(scheduler: str, shared_folder: bool = False) -> "Iterator[Cluster]":
    """Connect to the cluster of a scheduler for the duration of the `with` block.

    Parameters
    ----------
    scheduler
        Its address, or the path of a scheduler file (``….json``).
    shared_folder
        Whether workers see the results folder under the path that it has here.

    Raises
    ------
    ClusterError
        If the packages are not installed, or there is no such file.
    ClusterLostError
        If the scheduler does not answer.
    """
    client_class, address = _client_class(), _address(scheduler)
    # Dask would log in many lines what is one line here; some of its loggers have their own level.
    for name in ("distributed", "distributed.client", "distributed.gc"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = client_class(address, timeout=PATIENCE, set_as_default=False)
    except OSError as error:
        raise ClusterLostError(
            f"no scheduler answers at {address} within {PATIENCE:.0f} seconds."
        ) from error
    except (ValueError, TypeError) as error:
        raise ClusterError(
            f"`--scheduler` must be an address, got {scheduler!r}: {error}"
        ) from None
    try:
        yield cluster_of(client, shared_folder)
    finally:
        client.close(timeout=2)


def cluster_of(client: "Client", shared_folder: bool = False) -> "Cluster":
    """The cluster that a Dask client is connected to.

    Raises
    ------
    ClusterError
        If the packages are not installed.
    TypeError
        If it is no client, or an asynchronous one.
    """
    if not isinstance(client, _client_class()) or client.asynchronous:
        raise TypeError(
            f"`client` must be a `dask.distributed.Client` that is not asynchronous, got {client!r}"
        )
    return Cluster(client, shared_folder)


def device_of_workers(device: str) -> str:
    """Device of fits on a cluster: the processor.

    Raises
    ------
    ClusterError
        If another one is asked for.
    """
    if device == "gpu":
        raise ClusterError(
            "fits on a cluster run on processors: `--device` must be cpu, got 'gpu'."
        )
    return "cpu"


def _client_class() -> "type[Client]":
    try:
        from distributed import Client
    except ImportError as error:
        raise ClusterError(
            "a cluster needs the packages dask and distributed: pip install '.[cluster]' in a copy "
            "of the repository."
        ) from error
    return Client


def _address(scheduler: str) -> str:
    """The address itself, or the one in a scheduler file."""
    if not scheduler.endswith(".json"):
        if "://" not in scheduler:
            raise ClusterError(
                "`--scheduler` must be an address like tcp://host:8786 or a scheduler file "
                f"(….json), got {scheduler!r}."
            )
        return scheduler
    try:
        return json.loads(Path(scheduler).read_text(encoding="utf-8"))["address"]
    except OSError as error:
        raise ClusterError(
            f"the scheduler file `{scheduler}` cannot be read: {error.strerror}."
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise ClusterError(f"`{scheduler}` must be a scheduler file of Dask.") from error


# Workers


class WorkerPool:
    """The workers of a cluster: those that can be used, and those that are left out.

    Attributes
    ----------
    workers
        All workers that are there.
    cores
        Core that the process of a worker is bound to, by address; see `assign_cores`.
    """

    def __init__(self) -> None:
        self.workers: tuple[WorkerInfo, ...] = ()
        self.cores: dict[str, int] = {}
        self._left_out: dict[str, WorkerInfo] = {}

    @property
    def usable(self) -> list[WorkerInfo]:
        """Workers that can be used."""
        return [worker for worker in self.workers if worker.unfit is None]

    def for_large_jobs(self) -> list[WorkerInfo]:
        """Workers that are labelled for jobs which fill a machine, or one of each host."""
        labelled = [worker for worker in self.usable if worker.is_for_large]
        return labelled or list({w.host: w for w in reversed(self.usable)}.values())

    def leave_out(self, worker: WorkerInfo, say: Callable[[str], None]) -> None:
        """Submit no more jobs to a worker; errors as of `update`."""
        self._left_out[worker.address] = worker
        self.update(self.workers, say)

    def update(self, workers: tuple[WorkerInfo, ...], say: Callable[[str], None]) -> None:
        """Set the workers that are there; say which of them are left out, and why.

        Raises
        ------
        ClusterError
            If there are some, and none of them can be used.
        ClusterLostError
            If that is so because machines must be repaired.
        """
        reported = {worker.address for worker in self.workers if worker.unfit is not None}
        self.workers = tuple(self._left_out.get(worker.address, worker) for worker in workers)
        self.cores = assign_cores(self.usable, self.cores)
        unfit = [worker for worker in self.workers if worker.unfit is not None]
        for worker in unfit:
            if worker.address not in reported:
                say(f"left out: worker {worker.address}: {worker.unfit}")
        if unfit and not self.usable:
            # No other command repairs a machine.
            lost = any(worker.is_broken for worker in unfit)
            error = ClusterLostError if lost else ClusterError
            raise error(f"no worker can be used: {unfit[0].unfit}.")


def assign_cores(workers: Sequence[WorkerInfo], before: Mapping[str, int]) -> dict[str, int]:
    """Core that the process of each worker is bound to, on hosts with a worker for every core.

    As on one machine (`SINGLE_THREADED` says why), where fewer processes are left to the system.
    """
    addresses = {worker.address for worker in workers}
    cores = {address: core for address, core in before.items() if address in addresses}
    for worker in workers:
        beside = [other.address for other in workers if other.host == worker.host]
        free = set(worker.cores) - {cores[address] for address in beside if address in cores}
        if worker.address not in cores and len(beside) == len(worker.cores) and free:
            cores[worker.address] = min(free)
    return cores


def look_for_workers(
    client: "Client", settings: RunSettings, described: dict[str, WorkerInfo]
) -> tuple[WorkerInfo, ...]:
    """The workers that are there; new ones are asked for descriptions, which are kept."""
    addresses = list(client.scheduler_info()["workers"])
    if new := [address for address in addresses if address not in described]:
        answers = client.run(worker_info, settings, workers=new, on_error="return")
        for address, answer in answers.items():
            if isinstance(answer, WorkerInfo):
                described[address] = answer
            elif not isinstance(answer, OSError):  # of a worker that is gone
                reason = f"pmbnn cannot be loaded there: {type(answer).__name__}: {answer}"
                described[address] = WorkerInfo(address, unfit=reason)
    return tuple(described[a] for a in addresses if a in described)


# The cluster


class Cluster:
    """A cluster that a sweep runs on.

    Parameters
    ----------
    client
        Connected to its scheduler.
    shared_folder
        Whether workers see the results folder under the path that it has here, and write it.
    """

    def __init__(self, client: "Client", shared_folder: bool = False) -> None:
        self.client, self.shared_folder = client, shared_folder
        # A client that has lost its scheduler no longer knows its address.
        self._address = client.scheduler.address if client.scheduler else "of that client"
        self.settings = RunSettings(uuid.uuid4().hex[:12], decisive_versions(), machine_kind())
        self.pool = WorkerPool()
        self.say: Callable[[str], None] = lambda line: None
        self.scattered: dict[str, Future] = {}
        self.inbox: queue.SimpleQueue = queue.SimpleQueue()
        """What other threads report: workers, progress, and jobs that are done."""
        self._watch: threading.Thread | None = None
        self._has_ended = threading.Event()

    @property
    def threads(self) -> int:
        """Jobs that run at the same time; at least one."""
        return max(1, len(self.pool.usable))

    def begin(self, folder: Path, say: Callable[[str], None]) -> None:
        """Ask the workers that are there whether they can be used, and say how many can.

        Parameters
        ----------
        folder
            The results folder, which this process is writing.
        say
            Called with each line for the user.

        Raises
        ------
        ClusterError
            If there are workers, and none of them can be used.
        ClusterLostError
            If the scheduler does not answer.
        """
        self.say = say
        if self.shared_folder:
            writer = (folder / WRITER).read_text(encoding="utf-8")
            self.settings = replace(self.settings, folder=folder.absolute(), writer=writer)
        self._watch = threading.Thread(target=self._watch_workers, daemon=True)
        self._watch.start()
        deadline = time.monotonic() + FIRST_ANSWERS
        while not isinstance(message := self._message(), tuple):
            self._check_scheduler()
            if time.monotonic() > deadline:
                raise ClusterLostError(
                    f"the workers of {self._address} did not say within {FIRST_ANSWERS:.0f} "
                    "seconds whether they can be used."
                )
        self.pool.update(message, say)
        number = len(self.pool.usable)
        workers = f"{number} worker{'s' * (number > 1)}" if number else "no worker yet"
        dashboard = self.client.dashboard_link
        say(f"scheduler {self._address}: {workers}" + (f"; {dashboard}" if dashboard else ""))

    def end(self) -> None:
        """End the processes of the workers; the client stays connected."""
        self._has_ended.set()
        if self._watch is not None:
            # The process of a worker that does not answer ends by itself, only later.
            self._watch.join(PATIENCE)
        for future in self.scattered.values():
            future.release()

    def _watch_workers(self) -> None:
        """Report the workers whenever they have changed; in the end have their processes end."""
        described: dict[str, WorkerInfo] = {}
        last: tuple[WorkerInfo, ...] | None = None
        while not self._has_ended.is_set():
            with suppress(Exception):  # of a broken connection, which `_check_scheduler` notices
                workers = look_for_workers(self.client, self.settings, described)
                if workers != last:
                    self.inbox.put(workers)
                    last = workers
            self._has_ended.wait(LOOK_EVERY)
        if self.client.status == "running":
            with suppress(Exception):
                self.client.run(end_session, self.settings.session, on_error="ignore")

    def run_jobs(
        self,
        jobs: Sequence["JobTask"],
        results: Results,
        single_threaded: bool,
        plugins: Sequence[Source] = (),
    ) -> Iterator[Event]:
        """Run jobs on the cluster, yielding the events that `run_jobs` on one machine does.

        Raises
        ------
        ClusterError
            If no worker can be used any more.
        ClusterLostError
            If the scheduler does not answer any more.
        StorageError
            If the folder that workers share is full.
        """
        settings = replace(
            self.settings,
            single_threaded=single_threaded,
            progress_every=max(PROGRESS_EVERY, self.threads / PROGRESS_PER_SECOND),
        )
        submitted = SubmittedJobs(self, jobs, results, settings, plugins)
        self.client.subscribe_topic(
            settings.topic, lambda event: self.inbox.put(pickle.loads(event[1]))
        )
        with deferred_interrupts() as interrupts_allowed:
            try:
                while not submitted.is_done:
                    submitted.submit()
                    with interrupts_allowed():
                        message = self._message()
                    self._check_scheduler()
                    match message:
                        case (int(number), future, result):
                            yield from submitted.receive(number, future, result)
                        case tuple():
                            self.pool.update(message, self.say)
                            submitted.cancel_stranded()
                        case Progressed(job) if job in submitted.running:
                            yield message
            except Exception:
                self._check_scheduler()  # without it everything fails
                raise
            finally:
                with suppress(Exception):  # without a scheduler there is nothing to cancel
                    self.client.unsubscribe_topic(settings.topic)
                    submitted.cancel()

    def _message(self) -> object:
        """The next report of another thread; None if there is none for a second."""
        try:
            return self.inbox.get(timeout=1.0)
        except queue.Empty:
            return None

    def _check_scheduler(self) -> None:
        """Raise ClusterLostError once the client has given up to connect to the scheduler again."""
        if self.client.status in ("closing", "closed"):
            raise ClusterLostError(
                f"the scheduler {self._address} does not answer any more: finished cells are kept; "
                "the same command goes on from here."
            )
