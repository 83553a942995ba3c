"""What runs in a Dask worker: it passes a job to its process and returns what the job stored.

A worker has one thread, and one process for each sweep, which stays for the next job.
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
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dask
from distributed import Reschedule, Worker, get_worker

from pmbnn.experiment.plan import decisive_versions
from pmbnn.fitting.helpers import with_variables
from pmbnn.fitting.workers import SINGLE_THREADED, Finished, Progressed, Stored, ended_by
from pmbnn.results.record import CellRecord
from pmbnn.results.store import RECORD, WRITER, Results
from pmbnn.sweep.cluster.child import (
    DataFile,
    PackedCell,
    RemoteTask,
    RunSettings,
    TaskResult,
    WorkerInfo,
)

SERVE = "from pmbnn.sweep.cluster.child import serve"
"""What the process imports before it serves."""

LARGE = "pmbnn-large"
"""Dask resource of the workers that large networks run on, where some have it."""

CHECK_EVERY = 1.0
"""Seconds between two checks whether a job is still wanted."""

CLOSING = ("closing", "closed", "failed")
"""States of a worker that takes its tasks with it."""

# Whether this worker can be used

worker_versions = cache(decisive_versions)


def worker_info(settings: RunSettings, dask_worker: Worker) -> WorkerInfo:
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


def end_session(session: str, dask_worker: Worker) -> None:
    """End the process of a sweep, as soon as the worker's thread is free to do it."""
    _ENDED.add(session)
    dask_worker.executors["default"].submit(_end_child, (dask_worker.address, session))


def _end_child(key: tuple[str, str]) -> None:
    if (child := _CHILDREN.pop(key, None)) is not None:
        child.end()


def _find_child(worker: Worker, task: RemoteTask) -> Child:
    """The process of a worker for a sweep, started if there is none."""
    key = worker.address, task.settings.session
    child = _CHILDREN.get(key)
    if child is None or child.is_dead or child.single_threaded != task.settings.single_threaded:
        _end_child(key)
        child = _CHILDREN[key] = _start_child(worker, task)
    return child


def _start_child(worker: Worker, task: RemoteTask) -> Child:
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


def _scratch_folder(worker: Worker) -> Path:
    return Path(worker.local_directory) / "pmbnn"


def _environment(settings: RunSettings) -> dict[str, str]:
    """The environment that processes of one machine have, without the variables that Dask sets."""
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
    """
    worker, session = get_worker(), task.settings.session
    # A worker that has just come gets tasks before the coordinator has asked it.
    if unfit := unfit_reason(task.settings, worker.state.nthreads):
        return WorkerInfo(worker.contact_address, unfit=unfit)
    try:
        paths = unpack(task.files, contents, _scratch_folder(worker) / "data")
        child = _find_child(worker, task)
        try:
            return _run(worker, child, replace(task, paths=paths))
        finally:
            if child.is_dead or session in _ENDED:
                _end_child((worker.address, session))
    except Reschedule:
        raise
    # Of this machine's disk or memory: the job runs elsewhere.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return WorkerInfo(worker.contact_address, unfit=reason, is_broken=True)


def _run(worker: Worker, child: Child, task: RemoteTask) -> TaskResult | WorkerInfo:
    """Run a job in a process, passing on its progress."""
    key, settings = worker.get_current_task(), task.settings
    result, cells = TaskResult(worker.address), []
    checked, reported, is_silent = time.monotonic(), -math.inf, True
    try:
        with suppress(OSError):  # of a process that has just died, which shows below
            child.connection.send(task)
        while True:
            now = time.monotonic()
            if now - checked >= CHECK_EVERY:
                checked = now
                if not _is_wanted(worker, key, settings.session):
                    child.end()
                    return replace(result, died="the job was cancelled")
            event = child.receive()
            is_silent = is_silent and event is None
            match event:
                case None:
                    pass
                case Progressed():
                    if now - reported >= settings.progress_every:
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
                    if settings.folder is not None and fault.is_full(settings.folder):
                        return replace(result, full=str(fault))
                    return WorkerInfo(worker.contact_address, unfit=str(fault), is_broken=True)
    except EOFError:
        child.connection.close()
        status = child.process.wait()
    # A machine that is taken away ends every process on it, this worker next. And a process that
    # was idle for long may end just as it is sent a job.
    taken_away = status == -signal.SIGTERM or (status == 0 and is_silent)
    if taken_away and settings.session not in _ENDED:
        raise Reschedule
    return replace(result, cells=tuple(cells), died=ended_by(status))


def _is_wanted(worker: Worker, key: Any, session: str) -> bool:
    """Whether somebody waits for a task: Dask does not stop one that is running."""
    task = worker.state.tasks.get(key)
    is_cancelled = task is None or task.state == "cancelled" or session in _ENDED
    return not is_cancelled and worker.status.name not in CLOSING


def _packed(record: CellRecord, folder: Path, settings: RunSettings) -> PackedCell:
    """A finished cell as it is sent back, removed here unless it lies where it should."""
    if settings.folder is not None:
        return PackedCell(record.to_json())
    results = Results(folder)
    cell = results.cells / record.name
    text = (cell / RECORD).read_text(encoding="utf-8")
    files = {name: (cell / name).read_bytes() for name in record.files}
    results.remove(record.name)
    return PackedCell(text, files)


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
