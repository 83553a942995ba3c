"""How much is read of what lies in a results folder, which may come from anyone.

Nothing in it is unpickled or run; what is larger than a sweep writes is not read.
"""

from pathlib import Path

from pmbnn.core import device
from pmbnn.results.faults import ResultsError

MOST_JSON = 50_000_000
"""Bytes of a record or of provenance: a thousand times those of the largest one written so far."""

MOST_PIXELS = 100_000_000
"""Of a figure: the largest sheet has a tenth. Compressed, ten thousand times as many are small."""


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
    """Raise ResultsError unless arrays of that many bytes fit into memory."""
    device.check_fits(size, path, ResultsError)
