"""Fits on their way through the loop, and their checkpoints: to go on from exactly there."""

import os
import time
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.inference.loop import Parameters, State

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


class ParameterSnapshot(NamedTuple):
    """Parameters of some fits after some steps, and their divergences there, ``(replica,)``."""

    step: int
    parameters: Parameters
    kl: np.ndarray


class ChunkState(NamedTuple):
    """Fits of one program on their way.

    Attributes
    ----------
    state
        The replicas' states, stacked on a first axis.
    sums
        Sums of log-likelihood and divergence in each window, ``(window, replica, part)``.
    ends
        Steps done at the end of each window.
    stopped
        Windows after which each replica stopped early; 0 while it has not, ``(replica,)``.
    snapshots
        What was asked to be kept on the way.
    """

    state: State
    sums: list[np.ndarray]
    ends: list[int]
    stopped: np.ndarray
    snapshots: tuple[ParameterSnapshot, ...] = ()

    @property
    def done(self) -> int:
        """Steps done."""
        return self.ends[-1] if self.ends else 0


def kept(old: State, new: State, stopped: np.ndarray) -> State:
    """The new state of replicas that go on, the old one of those that stopped."""

    def choose(a, b):
        return jnp.where(stopped.reshape(-1, *(1,) * (b.ndim - 1)), a, b)

    return jax.tree.map(choose, old, new)


def arrays_of(run: ChunkState) -> list[np.ndarray]:
    """What a checkpoint keeps of a run."""
    steps = np.array([s.step for s in run.snapshots], np.int64)
    kl = np.array([s.kl for s in run.snapshots])
    trees = [run.state, *(s.parameters for s in run.snapshots)]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(trees)]
    return [np.array(run.ends), np.stack(run.sums), run.stopped, steps, kl, *leaves]


def restored(checkpoint: Checkpoint, like: ChunkState) -> ChunkState | None:
    """The run that a checkpoint holds; None if there is none of the same shapes as `like`."""
    arrays = checkpoint.load()
    if arrays is None or len(arrays) < len(ChunkState._fields):
        return None
    ends, sums, stopped, steps, kl, *kept = arrays
    trees = [like.state, *[like.state.parameters] * steps.size]
    leaves, structure = jax.tree.flatten(trees)
    if [a.shape for a in kept] != [leaf.shape for leaf in leaves]:
        return None
    state, *parameters = jax.tree.unflatten(structure, [jnp.asarray(a) for a in kept])
    found = [ParameterSnapshot(int(n), p, k) for n, p, k in zip(steps, parameters, kl, strict=True)]
    return ChunkState(state, list(sums), [int(e) for e in ends], stopped, tuple(found))
