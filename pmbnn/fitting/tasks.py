"""Tasks of workers: cells with their names, identities and fingerprints of their data."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pmbnn.experiment.cells import Cell
from pmbnn.experiment.plugins import sources_of
from pmbnn.results.present import checkpoint_name
from pmbnn.results.record import CellRecord, StoredPlugin

if TYPE_CHECKING:
    from pmbnn.fitting.programs import GroupPrograms


class TaskWithData(Protocol):
    """A task with a cell, and the fingerprint that its data must have."""

    cell: Cell
    fingerprint: str


@dataclass(frozen=True)
class CellTask:
    """A cell to fit, with the name of its folder and the fingerprint of its data.

    ``device``, ``width``, ``machine`` and ``encoding`` are as its record has them. ``modules`` are
    names of imported ones that register its metrics: nothing else of a task imports them in a
    worker.
    """

    cell: Cell
    name: str
    identity: str
    fingerprint: str
    device: str = "cpu"
    width: int | None = None
    machine: str | None = None
    encoding: str = ""
    modules: tuple[str, ...] = ()

    def record(self, **entries: Any) -> CellRecord:
        """Record of the cell, with further fields by name."""
        return CellRecord(
            sweep=self.cell.sweep,
            name=self.name,
            identity=self.identity,
            fingerprint=self.fingerprint,
            encoding=self.encoding,
            device=self.device,
            width=self.width,
            machine=self.machine,
            settings=self.cell.stored_settings,
            plugins=tuple(
                StoredPlugin(name=name, sha256=digest, sections=sections)
                for digest, (name, sections) in sources_of(self.cell).items()
            ),
            **entries,
        )


@dataclass(frozen=True)
class JobTask:
    """Cells that are fitted together; jobs of one `group` share their compiled programs.

    ``search_cell`` is the cell on whose data the learning rate is searched for, if it is.
    """

    group: str
    width: int
    cells: tuple[CellTask, ...]
    search_cell: CellTask | None = None

    @property
    def tasks(self) -> tuple[CellTask, ...]:
        """The cells, and the search cell if there is one."""
        return self.cells if self.search_cell is None else (*self.cells, self.search_cell)

    @property
    def identity(self) -> str:
        """Hexadecimal digits that identify the job and its checkpoints."""
        return checkpoint_name(task.name for task in self.cells)

    def run(
        self,
        folder: Path,
        stored: Callable[[CellRecord], None],
        programs: "GroupPrograms | None" = None,
    ) -> "GroupPrograms":
        """Run the job; see `run_job`."""
        from pmbnn.fitting.job import run_job

        return run_job(self, folder, stored, programs)
