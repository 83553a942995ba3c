"""What travels between the coordinator of a sweep and the workers of a cluster.

Only this package's own classes and plain ones, so that neither the scheduler nor a worker of Dask
needs what jobs are made of: those are pickled once more, and read where they are run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pmbnn.experiment.plugins import Source


@dataclass(frozen=True)
class Setting:
    """What every job of a turn has in common.

    Attributes
    ----------
    session
        Name of the run; processes are its own.
    versions
        Of the packages that decide numbers, as the coordinator has them.
    machine
        Kind of the coordinator's machine.
    single_threaded
        Whether a job has one thread.
    folder
        The results folder, where workers see it too; None where cells travel.
    news_every
        Seconds between two reports of progress of a job, at least.
    """

    session: str
    versions: Mapping[str, str]
    machine: str
    single_threaded: bool
    folder: Path | None = None
    news_every: float = 0.5

    @property
    def topic(self) -> str:
        """Of its news at the scheduler."""
        return f"pmbnn-{self.session}"


@dataclass(frozen=True)
class Shipment:
    """A file or folder that goes to workers which cannot read it themselves.

    Attributes
    ----------
    key
        What tells its content.
    name
        Of the file.
    named
        How data sets name it; None of rows that were read already.
    fingerprint
        Of those rows.
    """

    key: str
    name: str
    named: str | None = None
    fingerprint: str | None = None


@dataclass(frozen=True)
class Parcel:
    """A job on its way to a worker.

    Attributes
    ----------
    number
        Of the job in its turn.
    group
        Whose compiled programs it shares.
    pickled
        The job itself.
    sources
        Plugin files that its classes may come from.
    shipments
        What its data are read from; contents travel beside it.
    bound
        A worker's address, and the cores that its processes are bound to.
    """

    setting: Setting
    number: int
    group: str
    pickled: bytes
    sources: tuple[Source, ...] = ()
    shipments: tuple[Shipment, ...] = ()
    bound: tuple[str, tuple[int, ...]] = ("", ())


@dataclass(frozen=True)
class PackedCell:
    """A finished cell: the text of its record, and its files unless the worker stored them."""

    record: str
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Lacking:
    """Data sets that a worker could not read as they are: fingerprints, and why."""

    why: Mapping[str, str]


@dataclass(frozen=True)
class Receipt:
    """What has become of a parcel.

    Attributes
    ----------
    worker
        Address of the worker.
    cells
        Those that are finished.
    seconds
        Wall-clock time of its stages, by their names.
    died
        How the process died, if it did.
    lacking
        Data sets without which nothing was done, and why, by their fingerprints.
    versions
        Those of the worker, if they are others, so that nothing was done.
    fault
        I/O error of the worker, such as a full disk.
    is_full
        Whether that is the disk of the results folder, which all workers share.
    """

    worker: str
    cells: tuple[PackedCell, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    died: str | None = None
    lacking: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] | None = None
    fault: str | None = None
    is_full: bool = False
