"""The process that a Dask worker runs jobs in, and what is sent to workers and back.

It is a process of its own, so that XLA's flags are set before JAX is imported, compiled programs
are kept between jobs, and a crash of compiled code ends no worker. Nothing here needs Dask.
"""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmbnn.core.machine import CPU, machine_kind
from pmbnn.data.base import copies
from pmbnn.experiment.plugins import Source, load_sources
from pmbnn.fitting.workers import _serve

if TYPE_CHECKING:
    from pmbnn.fitting.fit import GroupPrograms
    from pmbnn.fitting.tasks import JobTask
    from pmbnn.results.record import CellRecord

IDLE = 300.0
"""Seconds without a job after which the process ends: it holds half a gigabyte."""


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
    """A finished cell: the text of its record, and its files unless the worker stored them."""

    record: str
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class TaskResult:
    """What came of a task: finished cells, seconds of stages by name, and what went wrong.

    ``died`` says how the process died, ``missing`` why data sets could not be read, by fingerprint,
    so that nothing was run; ``full`` is the message of a full disk of the shared results folder.
    """

    worker: str
    cells: tuple[PackedCell, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    died: str | None = None
    missing: Mapping[str, str] = field(default_factory=dict)
    full: str | None = None


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
    group: str
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
            reasons[task.fingerprint] = fitting.reason_of(error)
    if reasons:
        fitting.forget_datasets()
    return reasons


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
