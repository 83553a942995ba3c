"""What runs on a Dask worker: its task, which passes a job to a process, and that process.

A worker has one thread, and one process for each sweep, which stays for the next job. The process
is the worker's own, so that XLA's flags are set before JAX is imported, compiled programs are kept
between jobs, and a crash of compiled code ends no worker. Dask is imported where it is needed: the
process needs none of it.
"""

import io
import math
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmbnn.core.errors import reason_of
from pmbnn.core.machine import CPU, machine_kind
from pmbnn.data.base import copies
from pmbnn.experiment.plan import decisive_versions
from pmbnn.experiment.plugin_files import Source
from pmbnn.experiment.plugins import load_sources
from pmbnn.fitting.helpers import with_variables
from pmbnn.fitting.workers import (
    SINGLE_THREADED,
    Finished,
    Progressed,
    Stored,
    _serve,
    ended_by,
)
from pmbnn.results.present import StorageError
from pmbnn.results.record import CellRecord
from pmbnn.results.store import WRITER, Results

if TYPE_CHECKING:
    from distributed import Worker

    from pmbnn.fitting.programs import GroupPrograms
    from pmbnn.fitting.tasks import JobTask

IDLE = 300.0
"""Seconds without a job after which a process ends: it holds half a gigabyte."""

SERVE = "from pmbnn.sweep.cluster.worker import serve"
"""What a process imports before it serves."""

LARGE = "pmbnn-large"
"""Dask resource of the workers that large networks run on, where some have it."""

CHECK_EVERY = 1.0
"""Seconds at most between two checks whether a job is still wanted."""

CLOSING = ("closing", "closed", "failed")
"""States of a worker that takes its tasks with it."""

# What is sent to workers and back


@dataclass(frozen=True)
class WorkerInfo:
    """A worker as it describes itself.

    ``cores`` are those that it may use, ``is_for_large`` is whether it is labelled for large
    networks, ``unfit`` why it cannot be used, if it cannot, and ``is_broken`` whether that is an
    I/O error of its machine, such as a full disk. A worker that replaces it has another address.
    """

    address: str
    host: str = ""
    cores: tuple[int, ...] = ()
    is_for_large: bool = False
    unfit: str | None = None
    is_broken: bool = False


@dataclass(frozen=True)
class RunSettings:
    """What the tasks of a sweep have in common.

    ``session`` identifies the sweep, ``versions`` are the coordinator's, ``machine`` is the kind of
    its machine. ``folder`` is the results folder where workers write it themselves, ``writer`` the
    content of its lock file; None where cells are sent back. ``progress_every`` is the least number
    of seconds between two reports of progress of a job.
    """

    session: str
    versions: Mapping[str, str]
    machine: str = ""
    single_threaded: bool = True
    folder: Path | None = None
    writer: str = ""
    progress_every: float = 0.5

    @property
    def topic(self) -> str:
        """Topic of Dask's events under which progress is reported."""
        return f"pmbnn-{self.session}"


@dataclass(frozen=True)
class DataFile:
    """A file or folder that is sent to workers which cannot read it themselves.

    ``key`` is the digest of its content, ``setting`` its path as data sets name it. Rows that were
    read already have no such path but a ``fingerprint``.
    """

    key: str
    name: str
    setting: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True)
class PackedCell:
    """A finished cell: its record, and its files unless the worker stored them in their place."""

    record: CellRecord
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskResult:
    """Result of a task: finished cells, seconds of stages by name, and what went wrong.

    ``died`` says how the process died, ``missing`` why data sets could not be read, by fingerprint,
    so that nothing was run.
    """

    worker: str
    cells: tuple[PackedCell, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    died: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RemoteTask:
    """A job as it is sent to a worker, and from there to the worker's process.

    The job is pickled once more, so that the scheduler and the worker need none of the classes
    that it is made of, such as those of plugins (``sources``). The contents of ``files`` are
    further arguments of the Dask task; the worker fills in the ``paths`` where it has put them.
    ``cores`` has the core that a worker's process is bound to, by address of the worker.
    """

    settings: RunSettings
    number: int
    pickled: bytes
    sources: tuple[Source, ...] = ()
    files: tuple[DataFile, ...] = ()
    cores: Mapping[str, int] = field(default_factory=dict)
    paths: tuple[Path, ...] = ()

    def run(
        self,
        folder: Path,
        stored: "Callable[[CellRecord | dict[str, str]], None]",
        programs: "GroupPrograms | None" = None,
    ) -> "GroupPrograms | None":
        """Run the job; or report why data sets are missing, by fingerprint, and run nothing."""
        load_sources(self.sources)
        placed = list(zip(self.files, self.paths, strict=True))
        with copies({file.setting: path for file, path in placed if file.setting is not None}):
            job = pickle.loads(self.pickled)
            rows = {file.fingerprint: path for file, path in placed if file.fingerprint}
            if reasons := _missing_data(job, rows):
                stored(reasons)
                return programs
            return self._with_machine(job).run(folder, stored, programs)

    def _with_machine(self, job: "JobTask") -> "JobTask":
        """The job, whose records name the kind of this machine if it is another."""
        kind = machine_kind()
        if kind == self.settings.machine:
            return job
        return replace(job, cells=tuple(replace(task, machine=kind) for task in job.cells))


def _missing_data(job: "JobTask", rows: Mapping[str, Path]) -> dict[str, str]:
    """Why data of a job cannot be read here, by fingerprint; `rows` were sent along."""
    from pmbnn.fitting import job as fitting

    reasons: dict[str, str] = {}
    for task in job.tasks:
        path = rows.get(task.fingerprint)
        try:
            if path is not None:
                fitting.receive_dataset(
                    task.fingerprint, lambda path=path: pickle.loads(path.read_bytes())
                )
            fitting.load_dataset(task)
        # Whatever a user-defined data set raises where its files are missing.
        except Exception as error:
            reasons[task.fingerprint] = reason_of(error)
    if reasons:
        fitting.forget_datasets()
    return reasons


# Whether this worker can be used

worker_versions = cache(decisive_versions)


def worker_info(settings: RunSettings, dask_worker: "Worker") -> WorkerInfo:
    """Description of this worker, which the coordinator asks for by `Client.run`."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return WorkerInfo(
        dask_worker.contact_address,
        socket.gethostname(),
        tuple(sorted(cores)),
        bool(dask_worker.state.total_resources.get(LARGE)),
        unfit_reason(settings, dask_worker.state.nthreads),
    )


def unfit_reason(settings: RunSettings, threads: int) -> str | None:
    """Why this worker cannot run jobs of a sweep; None if it can."""
    versions = worker_versions()
    differences = [
        f"{name} {versions.get(name, 'missing')} there, {version} here"
        for name, version in settings.versions.items()
        if versions.get(name) != version
    ]
    if differences:
        return ", ".join(differences)
    if threads != 1:
        return f"it has {threads} threads: start it with `--nworkers {threads} --nthreads 1`"
    if settings.folder is not None:
        writer = None
        with suppress(OSError):
            writer = (settings.folder / WRITER).read_text(encoding="utf-8")
        if writer != settings.writer:
            return f"it does not see the results folder {settings.folder} that is written here"
    return None


# The process


@dataclass(eq=False)
class Child:
    """The process of a worker for one sweep, and the folder that it writes."""

    process: subprocess.Popen
    connection: Connection
    folder: Path
    single_threaded: bool

    @property
    def is_dead(self) -> bool:
        """Whether it can run no more jobs."""
        return self.connection.closed or self.process.poll() is not None

    def receive(self) -> Any:
        """Return its next message, None if there is none for a while; EOFError if it has ended."""
        try:
            return self.connection.recv() if self.connection.poll(CHECK_EVERY) else None
        except OSError as error:  # ended before a message, or within one
            raise EOFError from error

    def end(self) -> None:
        """End it and remove its folder."""
        self.connection.close()
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


_CHILDREN: dict[tuple[str, str], Child] = {}
"""By address of the worker and session. Only the thread of that worker uses an entry."""

_ENDED: set[str] = set()
"""Sessions that have ended; a job of one may still be running or about to begin."""


def end_session(session: str, dask_worker: "Worker") -> None:
    """End the process of a sweep, as soon as the worker's thread is free to do it."""
    _ENDED.add(session)
    dask_worker.executors["default"].submit(_end_child, (dask_worker.address, session))


def _end_child(key: tuple[str, str]) -> None:
    if (child := _CHILDREN.pop(key, None)) is not None:
        child.end()


def _find_child(worker: "Worker", task: RemoteTask) -> Child:
    """The process of a worker for a sweep, started if there is none."""
    key = worker.address, task.settings.session
    child = _CHILDREN.get(key)
    if child is None or child.is_dead or child.single_threaded != task.settings.single_threaded:
        _end_child(key)
        child = _CHILDREN[key] = _start_child(worker, task)
    return child


def _start_child(worker: "Worker", task: RemoteTask) -> Child:
    """Start a process out of reach of the terminal's Ctrl-C, which is the coordinator's."""
    settings, scratch = task.settings, _scratch_folder(worker)
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=scratch))
    Results(folder).prepare()
    ours, theirs = socket.socketpair()
    with theirs:
        # Not by multiprocessing: the worker of a nanny is a daemon, which may start no process so.
        process = subprocess.Popen(
            [sys.executable, "-c", f"{SERVE}; serve({theirs.fileno()})"],
            env=_environment(settings),
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,
        )
    connection = Connection(ours.detach())
    with suppress(OSError):  # of a process that is dead already, which shows later
        if settings.single_threaded and worker.contact_address in task.cores:
            os.sched_setaffinity(process.pid, {task.cores[worker.contact_address]})
        connection.send(settings.folder or folder)
    return Child(process, connection, folder, settings.single_threaded)


def _scratch_folder(worker: "Worker") -> Path:
    return Path(worker.local_directory) / "pmbnn"


def _environment(settings: RunSettings) -> dict[str, str]:
    """The environment that processes of one machine have, without the variables that Dask sets."""
    import dask

    preset = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    kept = {k: v for k, v in os.environ.items() if str(preset.get(k)) != v}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return with_variables(kept, SINGLE_THREADED if settings.single_threaded else {})


# The Dask task


def run_task(task: RemoteTask, *contents: bytes) -> TaskResult | WorkerInfo:
    """Run a job in the worker's process: the function that Dask calls.

    Parameters
    ----------
    contents
        Contents of ``task.files``.

    Returns
    -------
    TaskResult or WorkerInfo
        The latter if this worker cannot be used.

    Raises
    ------
    Reschedule
        If the process was asked to end, as on a machine that is taken away.
    StorageError
        If the folder that workers share is full.
    """
    from distributed import Reschedule, get_worker

    worker, settings = get_worker(), task.settings
    # A worker that has just come gets tasks before the coordinator has asked it.
    if unfit := unfit_reason(settings, worker.state.nthreads):
        return WorkerInfo(worker.contact_address, unfit=unfit)
    try:
        paths = unpack(task.files, contents, _scratch_folder(worker) / "data")
        child = _find_child(worker, task)
        try:
            return _run(worker, child, replace(task, paths=paths))
        finally:
            if child.is_dead or settings.session in _ENDED:
                _end_child((worker.address, settings.session))
    except Reschedule:
        raise
    # Of this machine's disk or memory: the job runs elsewhere.
    except StorageError as fault:
        if settings.folder is not None and fault.is_full(settings.folder):
            raise
        return WorkerInfo(worker.contact_address, unfit=str(fault), is_broken=True)
    except Exception as error:
        return WorkerInfo(worker.contact_address, unfit=reason_of(error), is_broken=True)


def _run(worker: "Worker", child: Child, task: RemoteTask) -> TaskResult:
    """Run a job in a process, passing on its progress."""
    settings, cells = task.settings, []
    result = TaskResult(worker.address)
    reported, is_silent = -math.inf, True
    try:
        with suppress(OSError):  # of a process that has just died, which shows below
            child.connection.send(task)
        while True:
            if settings.session in _ENDED or worker.status.name in CLOSING:
                child.end()
                return replace(result, died="the job was cancelled")
            event = child.receive()
            is_silent = is_silent and event is None
            match event:
                case None:
                    pass
                case Progressed():
                    if (now := time.monotonic()) - reported >= settings.progress_every:
                        reported = now
                        progress = replace(event, job=task.number)
                        worker.log_event(settings.topic, pickle.dumps(progress))
                case Stored(_, dict(reasons)):
                    result = replace(result, missing=reasons)
                case Stored(_, record):
                    cells.append(_packed(record, child.folder, settings))
                case Finished(seconds=seconds):
                    return replace(result, cells=tuple(cells), seconds=seconds)
                case fault:
                    raise fault
    except EOFError:
        child.connection.close()
        status = child.process.wait()
    # A machine that is taken away ends every process on it, this worker next. And a process that
    # was idle for long may end just as it is sent a job.
    taken_away = status == -signal.SIGTERM or (status == 0 and is_silent)
    if taken_away and settings.session not in _ENDED:
        from distributed import Reschedule

        raise Reschedule
    return replace(result, cells=tuple(cells), died=ended_by(status))


def _packed(record: CellRecord, folder: Path, settings: RunSettings) -> PackedCell:
    """A finished cell as it is sent back, removed here unless it lies where it should."""
    if settings.folder is not None:
        return PackedCell(record)
    results = Results(folder)
    files = {name: (results.cells / record.name / name).read_bytes() for name in record.files}
    results.remove(record.name)
    return PackedCell(record, files)


def unpack(files: Sequence[DataFile], contents: Sequence[bytes], folder: Path) -> tuple[Path, ...]:
    """Paths of files that were sent along, in a folder that each is written to once."""
    paths = []
    for file, content in zip(files, contents, strict=True):
        place = folder / file.key
        if not place.exists():
            folder.mkdir(parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(dir=folder))
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                archive.extractall(part, filter="data")
            os.replace(part, place)
        paths.append(place / file.name)
    return tuple(paths)


# The process, which imports no Dask


class ChildConnection(Connection):
    """The process's end of its connection, which takes long silence for the end."""

    def recv(self) -> Any:
        """Return the next message; EOFError if there is none for `IDLE` seconds."""
        if not self.poll(IDLE):
            raise EOFError
        return super().recv()


def serve(descriptor: int) -> None:
    """Receive a folder, then run jobs until the other end of the connection closes."""
    connection = ChildConnection(descriptor)
    _serve(connection, connection.recv(), (), CPU)
