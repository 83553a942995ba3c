"""Jobs that sleep and leave a cell: what is left of their time is the way there and back."""

import time
from dataclasses import dataclass

from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results


@dataclass(frozen=True)
class Sleep:
    """So many seconds of sleep, and a cell of so many bytes."""

    name: str
    seconds: float
    size: int
    group: str = "sleep"
    tasks: tuple = ()

    def run(self, folder, stored, programs=None):
        """Sleep, and store the cell."""
        time.sleep(self.seconds)
        record = CellRecord(sweep="sleep", name=self.name, status="converged", settings={})
        write = {"trace.nc": lambda path: path.write_bytes(b"x" * self.size)}
        stored(Results(folder).save_cell(record, write))
        return programs
