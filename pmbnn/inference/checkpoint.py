"""Checkpoints of fits and chains on their way: to go on from exactly there."""

import os
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

INTERVAL = 20.0
"""Seconds between two checkpoints; a fit that takes less leaves none."""

UNREADABLE = (OSError, ValueError, EOFError, KeyError, RuntimeError, MemoryError)
UNREADABLE += (zipfile.BadZipFile, zlib.error)
"""What reading an archive that was cut short or damaged may raise."""

type Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Checkpoints:
    """A folder for the checkpoints of one job, each fit of which has a name of its own."""

    folder: Path
    interval: float = INTERVAL

    def of(self, name: str) -> "Checkpoint":
        """The checkpoint of one fit."""
        return Checkpoint(self.folder / f"{name}.npz", self.interval)


class Checkpoint:
    """One file with the arrays of a fit, replaced whole."""

    def __init__(
        self, path: Path, interval: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path, self.interval, self._clock = path, interval, clock
        self._last = clock()

    def load(self) -> Arrays | None:
        """The arrays that were saved last; None if there are none that can be read."""
        try:
            # NumPy leaves the file open where it is no archive, so it is opened here.
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return [stored[f"arr_{i}"] for i in range(len(stored.files))]
        except UNREADABLE:
            return None

    def save_if_due(self, arrays: Callable[[], Arrays], at_end: bool = False) -> None:
        """Save `arrays` if enough time has passed since the last time.

        At the end, a fit that left a checkpoint before leaves its last one too, so that a job
        of several long fits starts none of them again.
        """
        if self._clock() - self._last >= self.interval or (at_end and self.path.exists()):
            self._save(arrays())
            self._last = self._clock()

    def _save(self, arrays: Arrays) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            with partial.open("wb") as file:
                np.savez(file, *arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, self.path)
        except OSError as error:
            # A full disk is told without a name, and half a file must not fill it any more.
            if error.errno is not None and error.filename is None:
                error.filename = str(self.path)
            partial.unlink(missing_ok=True)
            raise


def arrays_of(tree: Any) -> Arrays:
    """What a checkpoint keeps of a tree of arrays."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def restored[T](checkpoint: Checkpoint, like: T) -> T | None:
    """The tree of arrays that a checkpoint holds; None if there is none of the form of `like`."""
    arrays, (leaves, structure) = checkpoint.load(), jax.tree.flatten(like)
    if arrays is None or [(a.shape, a.dtype) for a in arrays] != [
        (leaf.shape, leaf.dtype) for leaf in leaves
    ]:
        return None
    return jax.tree.unflatten(structure, arrays)
