"""Checkpoints of unfinished fits and chains, which continue from them exactly."""

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
"""Seconds between two checkpoints; a shorter fit stores none."""

UNREADABLE = (OSError, ValueError, EOFError, KeyError, RuntimeError, MemoryError)
UNREADABLE += (zipfile.BadZipFile, zlib.error)
"""Errors of reading an archive that is truncated or damaged."""

type Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Checkpoints:
    """A folder for the checkpoints of one job, one file for each of its fits."""

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
        """The arrays that were saved last; None if there are none or they cannot be read."""
        try:
            # NumPy does not close a file that is no archive, so it is opened here.
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return [stored[f"arr_{i}"] for i in range(len(stored.files))]
        except UNREADABLE:
            return None

    def save_if_due(self, arrays: Callable[[], Arrays], at_end: bool = False) -> None:
        """Save `arrays` if enough time has passed since the last time.

        At the end, a fit that has a checkpoint also stores its last state, so that an interrupted
        job of several long fits repeats none of them.
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
            # The error of a full disk has no file name, and the partial file takes up space.
            if error.errno is not None and error.filename is None:
                error.filename = str(self.path)
            partial.unlink(missing_ok=True)
            raise


def arrays_of(tree: Any) -> Arrays:
    """Arrays of a tree, as a checkpoint stores them."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def restored[T](checkpoint: Checkpoint, like: T) -> T | None:
    """Tree of arrays from a checkpoint; None without one that has the shapes of `like`."""
    arrays, (leaves, structure) = checkpoint.load(), jax.tree.flatten(like)
    if arrays is None or [(a.shape, a.dtype) for a in arrays] != [
        (leaf.shape, leaf.dtype) for leaf in leaves
    ]:
        return None
    return jax.tree.unflatten(structure, arrays)
