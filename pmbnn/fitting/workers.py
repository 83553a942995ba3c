"""Worker processes, which are sent jobs and send back progress and records.

Workers are spawned, so that each sets up XLA before JAX is imported. A worker that dies takes its
job with it, not the sweep: cells that it had not stored are reported, and another worker takes its
place.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pmbnn.core.machine import CPU, Device, claim, cores, processes, running_on
from pmbnn.core.stages import StageUpdate, measured, on_progress, stage
from pmbnn.fitting.helpers import deferred_interrupts, end_with_parent, environment, spawning
from pmbnn.results.present import StorageError, fault_of

if TYPE_CHECKING:
    from pmbnn.experiment.plugin_files import Source

SINGLE_THREADED = {
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "NPROC": "1",  # threads of XLA's own pool, which would hand small operations around
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
"""Environment of workers that have one core each: most networks gain little from more.

Where there is a worker for each core, it is bound to its own: XLA reads off how many cores a
process may use in how many parts it cuts an operation, and these take 1.2 times as long when every
worker cuts in as many as there are cores (moons, `experiments/priors.yaml`, two of two).
"""

ENDED_BY = "the worker process was ended by {}"

UPDATE_EVERY = 0.2
"""Least number of seconds between two reports of progress of one worker."""


class Task(Protocol):
    """Task of a worker, pickled with everything that it needs; its class decides what is done."""

    @property
    def group(self) -> str:
        """Tasks of one group share their compiled programs."""

    def run(self, folder: Path, stored: Callable[[Any], None], programs: Any = None) -> Any:
        """Run the task, and return its compiled programs.

        Parameters
        ----------
        folder
            The results folder.
        stored
            Called with each result as soon as it is stored: it becomes a `Stored` event.
        programs
            Compiled programs that the worker's last task returned.
        """


@dataclass(frozen=True)
class Progressed:
    """Progress of a job: its present stages, outermost first."""

    job: int
    stages: tuple[StageUpdate, ...]


@dataclass(frozen=True)
class Stored:
    """A result of a job that is stored, such as the record of a cell."""

    job: int
    record: Any


@dataclass(frozen=True)
class Finished:
    """End of a job.

    Attributes
    ----------
    died
        How its worker died, if it did.
    seconds
        Wall-clock time of its stages, by their names.
    """

    job: int
    died: str | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def killed(self) -> bool:
        """Whether its worker was ended by a signal that a system out of memory sends."""
        return self.died == ENDED_BY.format("SIGKILL")


Event = Progressed | Stored | Finished


@dataclass(frozen=True)
class _Place:
    """Device of a worker, and the core that it is bound to, if to one."""

    device: Device
    core: int | None = None


@dataclass
class _Worker:
    process: multiprocessing.Process
    connection: Connection
    place: int
    job: int | None = None
    group: str | None = None


def turns[T](
    jobs: Sequence[T],
    fills_machine: Callable[[T], bool],
    workers: int,
    devices: Sequence[Device] = (CPU,),
) -> list[tuple[list[T], int, bool]]:
    """Jobs that run at the same time, their number of processes, and whether these have one thread.

    On a processor jobs that fill it come last, one after the other on all cores; the others share
    the cores. Which of the two is decided by the job alone, for the number of threads can change
    the last digits of its results. An accelerator has a process, whatever the job.
    """
    alone = [job for job in jobs if fills_machine(job)]
    others = [job for job in jobs if not fills_machine(job)]
    if devices[0].is_accelerator:
        return [([*others, *alone], processes(workers, devices), False)]
    return [(others, workers, True), (alone, 1, False)]


def run_jobs(
    jobs: Sequence[Task],
    folder: Path,
    workers: int,
    single_threaded: bool,
    plugins: "Sequence[Source]" = (),
    devices: Sequence[Device] = (CPU,),
) -> Iterator[Event]:
    """Run jobs on worker processes, and yield their events.

    Jobs of one group go to one worker, where the group is compiled already, unless another
    worker would have nothing to do. Each imports the files of `plugins` first, which
    may define classes of its jobs. Accelerators have a worker each. Closing the iterator ends the
    workers; stored cells stay. Until then Ctrl-C has an effect only while the workers are waited
    for, which is nearly always.

    Raises
    ------
    StorageError
        If a worker meets an error of the system, such as a full disk: it would be the next one's.
    """
    waiting = dict(enumerate(jobs))
    pool: list[_Worker] = []
    places = _places(workers, single_threaded, devices)
    with (
        environment(SINGLE_THREADED if single_threaded else {}),
        deferred_interrupts() as interrupts_allowed,
    ):
        try:
            while waiting or any(w.job is not None for w in pool):
                while waiting and (idle := _idle_worker(pool, places, folder, plugins)):
                    _give(idle, waiting, pool)
                busy = {worker.connection: worker for worker in pool if worker.job is not None}
                with interrupts_allowed():
                    ready = wait(list(busy))
                for connection in ready:
                    yield _event(busy[connection], pool)
        finally:
            for worker in pool:
                worker.connection.close()
                worker.process.terminate()
                worker.process.join()


def _give(worker: _Worker, waiting: dict[int, Task], pool: list[_Worker]) -> None:
    """Send a worker its next job."""
    groups = {number: job.group for number, job in waiting.items()}
    worker.job = next_job(groups, worker.group, {other.group for other in pool})
    job = waiting.pop(worker.job)
    worker.group = job.group
    # A worker that has just died is noticed when its next event is received.
    with suppress(OSError):
        worker.connection.send(job)


def next_job(waiting: Mapping[int, str], own: str | None, taken: Collection[str | None]) -> int:
    """Number of the job to give a worker: of its own group, else of one nobody has, else the first.

    Parameters
    ----------
    waiting
        Groups of the jobs that nobody has yet, by number.
    own
        The group that the worker has compiled; None if there is none.
    taken
        The groups that some worker has compiled.
    """
    return min(waiting, key=lambda number: (waiting[number] != own, waiting[number] in taken))


def _places(workers: int, single_threaded: bool, devices: Sequence[Device]) -> list[_Place]:
    """Device and core of each worker."""
    if devices[0].is_accelerator:
        return [_Place(device) for device in devices[:workers]]
    bound: Sequence[int | None] = [None] * workers
    # Fewer workers than cores are left to the system: others like them may be running.
    if single_threaded and workers == cores() and hasattr(os, "sched_setaffinity"):
        bound = sorted(os.sched_getaffinity(0))
    return [_Place(devices[0], core) for core in bound]


def _idle_worker(
    pool: list[_Worker], places: Sequence[_Place], folder: Path, plugins: "Sequence[Source]"
) -> _Worker | None:
    for worker in pool:
        if worker.job is None:
            return worker
    taken = {worker.place for worker in pool}
    free = next((number for number in range(len(places)) if number not in taken), None)
    if free is None:
        return None
    pool.append(_Worker(*_start(places[free], folder, plugins), free))
    return pool[-1]


def _start(
    place: _Place, folder: Path, plugins: "Sequence[Source]"
) -> tuple[multiprocessing.Process, Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    arguments = theirs, folder, plugins, place.device
    process = context.Process(target=_serve, args=arguments, daemon=True)
    with spawning():
        process.start()
    if place.core is not None:
        # Before its imports, and so before XLA starts; a worker that died is noticed later.
        with suppress(OSError):
            os.sched_setaffinity(process.pid, {place.core})
    theirs.close()
    return process, ours


def _event(worker: _Worker, pool: list[_Worker]) -> Event:
    """Next event of a worker; the end of its job if the worker died."""
    try:
        event = worker.connection.recv()
    except (EOFError, OSError):  # of a worker ended in between, before or in a message
        worker.process.join()
        event = Finished(-1, ended_by(worker.process.exitcode))
        pool.remove(worker)
    if isinstance(event, StorageError):
        raise event
    event = replace(event, job=worker.job)
    if isinstance(event, Finished):
        worker.job = None
    return event


def ended_by(code: int | None) -> str:
    """Description of how a worker process ended."""
    if code is not None and code < 0:
        return ENDED_BY.format(signal.Signals(-code).name)
    return f"the worker process ended with exit code {code}"


def _serve(
    connection: Connection, folder: Path, plugins: "Sequence[Source]", device: Device
) -> None:
    """Main function of a worker: run jobs until the connection closes or the system fails."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not at the next message: another sweep may write the folder by then.
    end_with_parent()
    sender = _Sender(connection)
    try:
        _work(sender, folder, plugins, device)
    except Exception as error:
        fault = fault_of(error, folder)
        if fault is None:
            raise
        sender.send(fault)


def _work(sender: "_Sender", folder: Path, plugins: "Sequence[Source]", device: Device) -> None:
    programs = None
    with on_progress(sender.report), measured() as seconds, ExitStack() as contexts:
        with stage("start"):
            # Before anything else asks JAX for a device.
            contexts.enter_context(running_on(claim(device)))
            from pmbnn.experiment.plugins import load_sources
            from pmbnn.inference.xla.compile import (
                count_compiling,
                sharing_programs,
                use_compilation_cache,
            )

            contexts.enter_context(sharing_programs())
            use_compilation_cache()
            count_compiling()
            load_sources(plugins)
        while (job := sender.receive()) is not None:
            programs = job.run(folder, lambda record: sender.send(Stored(0, record)), programs)
            sender.send(Finished(0, seconds=dict(seconds)))
            seconds.clear()


class _Sender:
    """A worker's end of the connection; progress is sent no more often than anyone can read."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.last, self.names = -UPDATE_EVERY, ()

    def receive(self) -> Task | None:
        """The next job, or None when there will be no more."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def send(self, event: Event | StorageError) -> None:
        """Send an event; if nobody receives it, end the process."""
        try:
            self.connection.send(event)
        except OSError:
            # Not an error of the cell being fitted, which must not be stored as failed.
            raise SystemExit(0) from None

    def report(self, stages: tuple[StageUpdate, ...]) -> None:
        """Send the stages of a job if they have changed or some time has passed."""
        now, names = time.monotonic(), tuple(update.stage for update in stages)
        if names != self.names or now - self.last >= UPDATE_EVERY:
            self.last, self.names = now, names
            self.send(Progressed(0, stages))
