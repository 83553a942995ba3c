"""Chains on their way, and their checkpoints: to go on from exactly there."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.inference.checkpoint import Arrays, Checkpoint
from pmbnn.inference.samplers.chains import Chains


@dataclass(frozen=True, eq=False)
class Walk:
    """Chains on their way.

    Attributes
    ----------
    state
        Where they are, a tree of arrays.
    chains
        Their draws so far; None before the first.
    """

    state: Any
    chains: Chains | None = None

    @property
    def draws(self) -> int:
        """Draws of each chain so far."""
        return 0 if self.chains is None else self.chains.draws

    def followed_by(self, state: Any, later: Chains) -> "Walk":
        """The same chains with later draws, and where they are then."""
        return Walk(state, later if self.chains is None else self.chains.followed_by(later))


def arrays_of(walk: Walk) -> Arrays:
    """What a checkpoint keeps of chains on their way."""
    leaves, chains = [np.asarray(leaf) for leaf in jax.tree.leaves(walk.state)], walk.chains
    if chains is None:
        return [np.array([], str), *leaves]
    names, statistics = list(chains.statistics), list(chains.statistics.values())
    return [np.array(names), *leaves, chains.values, chains.broken, *statistics]


def restored(checkpoint: Checkpoint, like: Any) -> Walk | None:
    """The chains that a checkpoint holds; None if there is none of a state of the shapes `like`."""
    arrays = checkpoint.load()
    if not arrays:
        return None
    names, *arrays = arrays
    shapes, structure = jax.tree.flatten(like)
    leaves, drawn = arrays[: len(shapes)], arrays[len(shapes) :]
    if [(a.shape, a.dtype) for a in leaves] != [(s.shape, s.dtype) for s in shapes]:
        return None
    state = jax.tree.unflatten(structure, map(jnp.asarray, leaves))
    if not drawn:
        return Walk(state)
    values, broken, *statistics = drawn
    return Walk(state, Chains(values, dict(zip(names.tolist(), statistics, strict=True)), broken))
