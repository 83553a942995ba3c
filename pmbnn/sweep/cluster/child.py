"""A process that does jobs for a worker of Dask: as a worker of one machine does them.

It is one of its own, so that XLA is set up before JAX is imported, what is compiled is kept between
jobs, and a crash of compiled code takes nothing with it.
"""

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pmbnn.core.device import CPU
from pmbnn.data.files import copies
from pmbnn.experiment.machine import machine_kind
from pmbnn.experiment.plugins import Source, load_sources
from pmbnn.processes.workers import _serve
from pmbnn.sweep.cluster.parcels import Lacking

if TYPE_CHECKING:
    from pmbnn.fitting.programs import GroupPrograms
    from pmbnn.fitting.tasks import JobTask
    from pmbnn.results.record import CellRecord

IDLE = 300.0
"""Seconds without a job after which a process ends: it holds half a gigabyte of what is not its."""


@dataclass(frozen=True)
class TravelledJob:
    """A job as the process gets it.

    Attributes
    ----------
    group
        Whose compiled programs it shares.
    pickled
        The job, which may need classes of `sources`.
    machine
        Kind of the coordinator's machine: records of another say so.
    copies
        Files that came along, by the names that data sets have for them.
    rows
        Files of rows that came along, by their fingerprints.
    """

    group: str
    pickled: bytes
    sources: tuple[Source, ...]
    machine: str
    copies: Mapping[str, Path]
    rows: Mapping[str, Path]

    def run(
        self,
        folder: Path,
        stored: "Callable[[CellRecord | Lacking], None]",
        programs: "GroupPrograms | None" = None,
    ) -> "GroupPrograms | None":
        """Do it, or say what is lacking and do nothing."""
        load_sources(self.sources)
        with copies(self.copies):
            job = pickle.loads(self.pickled)
            if lacking := self._lacking(job):
                stored(Lacking(lacking))
                return programs
            return self._located(job).run(folder, stored, programs)

    def _lacking(self, job: "JobTask") -> dict[str, str]:
        """Fingerprints of data that cannot be read here as they are, and why."""
        from pmbnn.fitting import job as fitting

        found: dict[str, str] = {}
        for task in job.tasks:
            path = self.rows.get(task.fingerprint)
            try:
                if path is not None:
                    fitting.receive_dataset(
                        task.fingerprint, lambda path=path: pickle.loads(path.read_bytes())
                    )
                fitting.load_dataset(task)
            # Whatever a data set of the user's own raises where its files are not.
            except Exception as error:
                found[task.fingerprint] = fitting.reason_of(error)
        if found:
            fitting.forget_datasets()
        return found

    def _located(self, job: "JobTask") -> "JobTask":
        """The job, whose records say so if this is another kind of machine."""
        kind = machine_kind()
        if kind == self.machine:
            return job
        return replace(job, cells=tuple(replace(task, machine=kind) for task in job.cells))


class _Line(Connection):
    """An end of a line that takes silence for its end."""

    def recv(self) -> Any:
        """The next message; EOFError if there is none for long."""
        if not self.poll(IDLE):
            raise EOFError
        return super().recv()


def serve(descriptor: int) -> None:
    """Life of the process: its folder, then jobs, until the other end of the line closes."""
    line = _Line(descriptor)
    _serve(line, line.recv(), (), CPU)
