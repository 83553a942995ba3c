"""How much is read of what lies in a results folder, which may come from anyone.

Nothing in it is unpickled or run; what is larger than a sweep writes is not read.
"""

from pathlib import Path

from pmbnn.experiment.machine import total_memory
from pmbnn.results.faults import ResultsError

MOST_JSON = 50_000_000
"""Bytes of a record or of provenance: a thousand times those of the largest one written so far."""

MOST_PIXELS = 100_000_000
"""Of a figure: the largest sheet has a tenth. Compressed, ten thousand times as many are small."""

LARGEST_TRACE = 64e9
"""Bytes of arrays where the system does not tell how much memory there is."""


def read_json_text(path: Path) -> str:
    """Text of a JSON file of moderate size.

    Raises
    ------
    ValueError
        If it is larger.
    """
    if (size := path.stat().st_size) > MOST_JSON:
        raise ValueError(f"it has {size:,} bytes, at most {MOST_JSON:,} are read")
    return path.read_text(encoding="utf-8")


def check_fits(size: float, path: Path) -> None:
    """Raise ResultsError unless arrays of that many bytes fit into memory.

    Compressed, arrays that do not can lie in a small file.
    """
    most = total_memory() or LARGEST_TRACE
    if size > most:
        told = f"`{path}` holds arrays of {size / 1e9:,.1f} GB"
        raise ResultsError(f"{told}: must be at most the memory here, {most / 1e9:,.1f} GB.")
