"""What runs in a worker of Dask: it has jobs done by processes of their own, one for each thread.

A thread of a worker is a core that a cluster has given; so many processes run beside each other,
and stay for the next job of their run.
"""

import contextlib
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dask
from distributed import Reschedule, Worker, get_worker

from pmbnn.core.stages import News
from pmbnn.experiment.versions import decisive_versions
from pmbnn.processes.helpers import with_variables
from pmbnn.processes.workers import SINGLE_THREADED, Finished, Progressed, Stored, ended_by
from pmbnn.results.lock import WRITER
from pmbnn.results.record import CellRecord
from pmbnn.results.store import RECORD, Results
from pmbnn.sweep.cluster.child import TravelledJob
from pmbnn.sweep.cluster.data import unpack
from pmbnn.sweep.cluster.parcels import Lacking, PackedCell, Parcel, Receipt, Setting, Shipment

SERVE = "from pmbnn.sweep.cluster.child import serve"
"""What a process imports for its life."""

LOOK_UP = 1.0
"""Seconds between two looks whether a job is still wanted."""

OVER = ("closing", "closed", "failed")
"""States of a worker that takes its tasks with it."""


@dataclass(frozen=True)
class About:
    """What a coordinator asks of a worker before it sends jobs there.

    ``sees_folder`` is whether the results folder is there too; ``cores`` those it may use.
    """

    versions: Mapping[str, str]
    sees_folder: bool
    host: str
    cores: tuple[int, ...]


versions_here = cache(decisive_versions)


def about(folder: Path | None = None, writer: str = "") -> About:
    """What this worker is; `writer` is what its results folder says of who writes it."""
    seen = folder is None
    if folder is not None:
        with contextlib.suppress(OSError):
            seen = (folder / WRITER).read_text(encoding="utf-8") == writer
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return About(versions_here(), seen, socket.gethostname(), tuple(sorted(cores)))


@dataclass(eq=False)
class _Process:
    """A process of this worker: whose it is, where it writes, and what it has compiled."""

    owner: tuple[str, str, bool]
    number: int
    process: subprocess.Popen
    line: Connection
    folder: Path
    group: str | None = None
    is_idle: bool = False

    @property
    def is_of_ended_run(self) -> bool:
        """Whether nobody will give it another job."""
        return self.owner[1] in _ENDED

    def end(self) -> int:
        """End it, and forget what it wrote; its exit status."""
        self.line.close()
        self.process.terminate()
        status = self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        return status


_PROCESSES: list[_Process] = []
_ENDED: set[str] = set()
"""Runs that have ended: a job of theirs may still begin after that, but its process is not kept."""
_LOCK = threading.Lock()


def run_parcel(parcel: Parcel, *contents: bytes) -> Receipt:
    """Have a job done: the task that Dask runs.

    Parameters
    ----------
    contents
        Of the parcel's shipments, in their order.

    Raises
    ------
    Reschedule
        If the process was asked to end, as those of a machine that is taken away are.
    """
    worker = get_worker()
    if (versions := versions_here()) != parcel.setting.versions:
        return Receipt(worker.address, versions=versions)
    shipments = dict(zip(parcel.shipments, contents, strict=True))
    try:
        places = unpack(shipments, _scratch(worker) / "data")
        with _process(worker, parcel) as process:
            return _done(worker, parcel, process, places)
    except Reschedule:
        raise
    # Of its disk or memory: the job is done elsewhere, and no other is sent here.
    except Exception as error:
        return Receipt(worker.address, fault=f"{type(error).__name__}: {error}".splitlines()[0])


def end_processes(session: str) -> None:
    """End the processes of a run."""
    with _LOCK:
        _ENDED.add(session)
        for one in [one for one in _PROCESSES if one.is_of_ended_run]:
            # A busy one is cleared away by the thread that waits for it.
            if one.is_idle:
                _PROCESSES.remove(one)
                one.end()
            else:
                one.process.terminate()


def _scratch(worker: Worker) -> Path:
    return Path(worker.local_directory) / "pmbnn"


@contextlib.contextmanager
def _process(worker: Worker, parcel: Parcel):
    """A process for a job: an idle one of this run, of the same group if there is one."""
    setting = parcel.setting
    owner = (worker.address, setting.session, setting.single_threaded)
    with _LOCK:
        idle = [one for one in _PROCESSES if one.is_idle and one.owner[:2] == owner[:2]]
        # Those of another number of threads are of an earlier turn.
        for one in [one for one in idle if one.owner != owner or one.process.poll() is not None]:
            idle.remove(one)
            _PROCESSES.remove(one)
            one.end()
        process = min(idle, key=lambda one: one.group != parcel.group, default=None)
        if process is None:
            taken = {one.number for one in _PROCESSES if one.owner == owner}
            number = next(n for n in range(len(taken) + 1) if n not in taken)
            process = _started(worker, parcel, owner, number)
            _PROCESSES.append(process)
        process.is_idle, process.group = False, parcel.group
    try:
        yield process
    finally:
        with _LOCK:
            process.is_idle = True
            died = process.process.poll() is not None or process.line.closed
            gone = died or process.is_of_ended_run
            if gone and process in _PROCESSES:
                _PROCESSES.remove(process)
        if gone:
            process.end()


def _started(worker: Worker, parcel: Parcel, owner, number: int) -> _Process:
    """A new process; it has no part in the terminal's Ctrl-C, which is the coordinator's."""
    _scratch(worker).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=_scratch(worker)))
    Results(folder).prepare()
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", f"{SERVE}; serve({theirs.fileno()})"],
            env=_environment(parcel.setting),
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            process_group=0,
        )
    address, cores = parcel.bound
    if address == worker.address and number < len(cores):
        with contextlib.suppress(OSError):  # of one that is dead already, which shows later
            os.sched_setaffinity(process.pid, {cores[number]})
    line = Connection(ours.detach())
    with contextlib.suppress(OSError):
        line.send(parcel.setting.folder or folder)
    return _Process(owner, number, process, line, folder)


def _environment(setting: Setting) -> dict[str, str]:
    """The environment that a process of one machine has, where Dask has set nothing."""
    preset = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    kept = {k: v for k, v in os.environ.items() if str(preset.get(k)) != v}
    kept["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    return with_variables(kept, SINGLE_THREADED if setting.single_threaded else {})


def _done(
    worker: Worker, parcel: Parcel, process: _Process, places: Mapping[Shipment, Path]
) -> Receipt:
    """Have a job done by a process, passing its news on."""
    key, setting = worker.get_current_task(), parcel.setting
    cells: list[PackedCell] = []
    looked, told, heard = time.monotonic(), -math.inf, False
    try:
        with contextlib.suppress(OSError):  # of one that has just died, which shows below
            process.line.send(_travelled(parcel, places))
        while True:
            now = time.monotonic()
            if now - looked >= LOOK_UP:
                looked = now
                if not _is_wanted(worker, key):
                    process.end()
                    return Receipt(worker.address, died="nobody wants the job any more")
            event = _heard(process.line)
            if event is None:
                continue
            heard = True
            match event:
                case Progressed(_, stages):
                    if now - told >= setting.news_every:
                        told = now
                        worker.log_event(setting.topic, _message(parcel.number, stages))
                case Stored(_, Lacking(why)):
                    lacking = why
                    while not isinstance(_heard(process.line), Finished):
                        pass
                    return Receipt(worker.address, lacking=lacking)
                case Stored(_, record):
                    cells.append(_packed(record, process.folder, setting))
                case Finished(seconds=seconds):
                    return Receipt(worker.address, tuple(cells), seconds)
                case fault:
                    shared = setting.folder
                    is_full = shared is not None and fault.is_full(shared)
                    return Receipt(worker.address, fault=str(fault), is_full=is_full)
    except EOFError:
        process.line.close()
        status = process.process.wait()
    # A machine that is taken away tells every process on it; this worker hears it too. And one that
    # was idle for long may end as it is given a job.
    taken_away = status == -signal.SIGTERM or (status == 0 and not heard)
    if taken_away and not process.is_of_ended_run:
        raise Reschedule
    return Receipt(worker.address, tuple(cells), died=ended_by(status))


def _heard(line: Connection) -> Any:
    """What a process says next, None if it is silent; EOFError of one that has ended."""
    try:
        return line.recv() if line.poll(LOOK_UP) else None
    except OSError as error:  # ended before a message, or within one
        raise EOFError from error


def _travelled(parcel: Parcel, places: Mapping[Shipment, Path]) -> TravelledJob:
    return TravelledJob(
        parcel.group,
        parcel.pickled,
        parcel.sources,
        parcel.setting.machine,
        copies={s.named: path for s, path in places.items() if s.named is not None},
        rows={s.fingerprint: path for s, path in places.items() if s.fingerprint is not None},
    )


def _is_wanted(worker: Worker, key: Any) -> bool:
    """Whether the scheduler still waits for a task; a running one cannot be told otherwise."""
    task = worker.state.tasks.get(key)
    return task is not None and task.state != "cancelled" and worker.status.name not in OVER


def _message(number: int, stages: tuple[News, ...]) -> dict[str, Any]:
    """News of a job, as the scheduler can pass them on."""
    told = [(n.stage, int(n.done), int(n.total), n.unit, n.words) for n in stages]
    return {"job": number, "stages": told}


def news_of(message: Mapping[str, Any]) -> Progressed:
    """The event that a message tells."""
    return Progressed(message["job"], tuple(News(*stage) for stage in message["stages"]))


def _packed(record: CellRecord, folder: Path, setting: Setting) -> PackedCell:
    """A finished cell as it travels; nothing of it stays unless it lies where it should."""
    if setting.folder is not None:
        return PackedCell(record.to_json())
    results = Results(folder)
    cell = results.cells / record.name
    text = (cell / RECORD).read_text(encoding="utf-8")
    files = {name: (cell / name).read_bytes() for name in record.files}
    results.remove(record.name)
    return PackedCell(text, files)
