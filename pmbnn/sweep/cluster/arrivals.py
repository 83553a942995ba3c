"""Cells that come back from workers, stored here only as they were sent."""

import time

from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.sweep.cluster.parcels import PackedCell

VISIBLE = 60.0
"""Seconds in which a cell must be seen that a worker has stored: file systems of clusters lag."""


class DamagedError(Exception):
    """A cell that is not what was sent."""


def store(cell: PackedCell, results: Results) -> CellRecord:
    """Store a cell that came back; its record.

    Raises
    ------
    DamagedError
        If it is not whole.
    """
    record = _record(cell)
    for name, file in record.files.items():
        if not file.holds(cell.files.get(name, b"")):
            raise DamagedError(f"{name} of {record.name} has changed on its way")
    writers = {
        name: lambda path, content=content: path.write_bytes(content)
        for name, content in cell.files.items()
    }
    return results.save_cell(record, writers)


def find(cell: PackedCell, results: Results) -> CellRecord:
    """The record of a cell that a worker has stored itself, once it is seen here.

    Raises
    ------
    DamagedError
        If it is not seen within `VISIBLE` seconds.
    """
    record, deadline = _record(cell), time.monotonic() + VISIBLE
    while not results.is_finished(record.name):
        if time.monotonic() > deadline:
            raise DamagedError(f"the worker stored {record.name}, and it is not seen here")
        time.sleep(0.5)
    return record


def _record(cell: PackedCell) -> CellRecord:
    try:
        return CellRecord.from_json(cell.record)
    except ValueError as error:
        raise DamagedError(f"the record of a cell: {error}") from error
