"""A chunk of fits on its way through the loop, and its checkpoint."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.inference.checkpoint import Checkpoint
from pmbnn.inference.loop import Parameters, State


class Taken(NamedTuple):
    """Parameters after some steps, and log-likelihood and divergence at one draw there."""

    step: int
    parameters: Parameters
    sums: np.ndarray


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
    taken
        What was asked to be kept on the way.
    """

    state: State
    sums: list[np.ndarray]
    ends: list[int]
    stopped: np.ndarray
    taken: tuple[Taken, ...] = ()

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
    taken = [np.array([t.step for t in run.taken], np.int64), np.array([t.sums for t in run.taken])]
    trees = [run.state, *(t.parameters for t in run.taken)]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(trees)]
    return [np.array(run.ends), np.stack(run.sums), run.stopped, *taken, *leaves]


def restored(checkpoint: Checkpoint, like: Run) -> Run | None:
    """The run that a checkpoint holds; None if there is none of the same shapes as `like`."""
    arrays = checkpoint.load()
    if arrays is None or len(arrays) < len(Run._fields):
        return None
    ends, sums, stopped, steps, taken_sums, *kept = arrays
    trees = [like.state, *[like.state.parameters] * steps.size]
    leaves, structure = jax.tree.flatten(trees)
    if [a.shape for a in kept] != [leaf.shape for leaf in leaves]:
        return None
    state, *parameters = jax.tree.unflatten(structure, [jnp.asarray(a) for a in kept])
    taken = [Taken(int(n), p, s) for n, p, s in zip(steps, parameters, taken_sums, strict=True)]
    return Run(state, list(sums), [int(e) for e in ends], stopped, tuple(taken))
