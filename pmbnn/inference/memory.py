"""Memory of the machine, and whether arrays of a file fit into it."""

import contextlib
import os
from pathlib import Path, PurePosixPath

LARGEST_TRACE = 64e9
"""Bytes of arrays where the system does not tell how much memory there is."""


def check_fits(size: float, path: Path, error: type[ValueError] = ValueError) -> None:
    """Raise an error unless arrays of that many bytes fit into memory.

    Compressed, arrays that do not can lie in a small file.
    """
    most = total_memory() or LARGEST_TRACE
    if size > most:
        told = f"`{path}` holds arrays of {size / 1e9:,.1f} GB"
        raise error(f"{told}: must be at most the memory here, {most / 1e9:,.1f} GB.")


def total_memory() -> float | None:
    """Bytes of memory of the machine, or of the container or job; None where nothing tells."""
    try:
        there = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not on Windows
        return None
    return min([there, *_control_group_limits(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup"))])


def _control_group_limits(own: Path, root: Path) -> list[float]:
    """Limits of memory of the control groups of Linux that a process is in, of both versions.

    Those of a container often lie at the root: it does not see what is above.
    """
    found = []
    for line in own.read_text().splitlines() if own.is_file() else []:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            top, name = root, "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "memory", "memory.limit_in_bytes"
        else:
            continue
        inner = PurePosixPath(path.lstrip("/"))
        for group in (inner, *inner.parents):
            with contextlib.suppress(OSError, ValueError):  # "max" is none
                found.append(float(int((top / group / name).read_text())))
    return found
