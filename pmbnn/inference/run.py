"""A chunk of fits on its way through the loop, and its checkpoint."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.inference.checkpoint import Checkpoint
from pmbnn.inference.loop import State


class Run(NamedTuple):
    """A chunk of fits on its way.

    Attributes
    ----------
    state
        The members' states, stacked on a first axis.
    sums
        Sums of log-likelihood and divergence in each window, ``(window, member, part)``.
    ends
        Steps done at the end of each window.
    stopped
        Windows after which each member stopped early; 0 while it has not, ``(member,)``.
    """

    state: State
    sums: list[np.ndarray]
    ends: list[int]
    stopped: np.ndarray

    @property
    def done(self) -> int:
        """Steps done."""
        return self.ends[-1] if self.ends else 0


def kept(old: State, new: State, stopped: np.ndarray) -> State:
    """The new state of members that go on, the old one of those that stopped."""

    def choose(a, b):
        return jnp.where(stopped.reshape(-1, *(1,) * (b.ndim - 1)), a, b)

    return jax.tree.map(choose, old, new)


def arrays_of(run: Run) -> list[np.ndarray]:
    """What a checkpoint keeps of a run."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(run.state)]
    return [np.array(run.ends), np.stack(run.sums), run.stopped, *leaves]


def restored(checkpoint: Checkpoint, like: Run) -> Run | None:
    """The run that a checkpoint holds; None if there is none of the same shapes as `like`."""
    arrays = checkpoint.load()
    leaves, structure = jax.tree.flatten(like.state)
    if arrays is None or [a.shape for a in arrays[3:]] != [leaf.shape for leaf in leaves]:
        return None
    ends, sums, stopped, *kept = arrays
    state = jax.tree.unflatten(structure, [jnp.asarray(a) for a in kept])
    return Run(state, list(sums), [int(e) for e in ends], stopped)
