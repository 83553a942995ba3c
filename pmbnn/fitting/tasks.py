"""What the parent process hands to its workers: cells with everything that names them."""

import hashlib
from dataclasses import dataclass
from typing import Any

from pmbnn.experiment.load import Cell
from pmbnn.results.record import CellRecord


@dataclass(frozen=True)
class CellTask:
    """A cell to fit, with the name of its folder and the fingerprint of its data."""

    cell: Cell
    name: str
    identity: str
    fingerprint: str

    def record(self, **known: Any) -> CellRecord:
        """Record of the cell with what is known of its fit, by the names of its fields."""
        return CellRecord(
            sweep=self.cell.sweep,
            name=self.name,
            identity=self.identity,
            fingerprint=self.fingerprint,
            settings={
                section: spec.model_dump(mode="json")
                for section, spec in self.cell.settings.items()
            },
            **known,
        )


@dataclass(frozen=True)
class JobTask:
    """Cells that are fitted together; jobs of one `group` share their compiled programs.

    ``search_cell`` is the cell that the group's learning rate is searched on, where it is.
    """

    group: str
    width: int
    cells: tuple[CellTask, ...]
    search_cell: CellTask | None = None

    @property
    def identity(self) -> str:
        """Hexadecimal digits that decide every number of the job."""
        content = "\n".join(task.identity for task in self.cells)
        return hashlib.sha256(content.encode()).hexdigest()[:16]
