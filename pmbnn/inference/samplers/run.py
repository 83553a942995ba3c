"""Draws from the posterior of a model: chains that continue until functions of them agree."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.core.stages import stage, staged
from pmbnn.inference.groups import Arrays, Checkpoint
from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.samplers.chains import Chains, Convergence, Sampler, Samples, Status, Tuning
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.inference.unsupported import explained
from pmbnn.inference.xla.compile import precision

# State of unfinished chains, and its checkpoints


@dataclass(frozen=True, eq=False)
class Walk:
    """Unfinished chains.

    Attributes
    ----------
    state
        State of the chains, a tree of arrays.
    chains
        Draws so far; None before the first.
    """

    state: Any
    chains: Chains | None = None

    @property
    def draws(self) -> int:
        """Number of draws of each chain so far."""
        return 0 if self.chains is None else self.chains.draws

    def followed_by(self, state: Any, later: Chains) -> "Walk":
        """The same chains with later draws and the state after them."""
        return Walk(state, later if self.chains is None else self.chains.followed_by(later))


def arrays_of(walk: Walk) -> Arrays:
    """Arrays of unfinished chains that a checkpoint stores."""
    leaves, chains = [np.asarray(leaf) for leaf in jax.tree.leaves(walk.state)], walk.chains
    if chains is None:
        return [np.array([], str), *leaves]
    names, statistics = list(chains.statistics), list(chains.statistics.values())
    return [np.array(names), *leaves, chains.values, chains.broken, *statistics]


def restored(checkpoint: Checkpoint, like: Any) -> Walk | None:
    """Chains from a checkpoint; None without one whose state has the shapes of `like`."""
    arrays = checkpoint.load()
    if not arrays:
        return None
    names, *arrays = arrays
    shapes, structure = jax.tree.flatten(like)
    leaves, draws = arrays[: len(shapes)], arrays[len(shapes) :]
    if [(a.shape, a.dtype) for a in leaves] != [(s.shape, s.dtype) for s in shapes]:
        return None
    state = jax.tree.unflatten(structure, map(jnp.asarray, leaves))
    if not draws:
        return Walk(state)
    values, broken, *statistics = draws
    return Walk(state, Chains(values, dict(zip(names.tolist(), statistics, strict=True)), broken))


IMPROPER = "a prior is improper, and draws cannot tell whether the posterior is"
"""Note on chains under an improper prior."""

Functions = Callable[[np.ndarray], np.ndarray]
"""Functions of draws of the flat vector, ``(chain, draw, size)``: ``(chain, draw, function)``."""


@staged("build")
def build_sampler(density: LogDensity, settings: Sampling) -> Sampler:
    """Programs of all chains of a model.

    Raises
    ------
    ValueError
        If the sampler cannot sample the model.
    """
    # Imported here: blackjax takes a second to import, and fits do not need it.
    module = import_module(f"{__package__}.{settings.engine}")
    return module.build_sampler(density, settings)


def sample_posterior(
    sampler: Sampler,
    data: Mapping[str, np.ndarray],
    functions: Functions,
    *,
    identity: str,
    checkpoint: Checkpoint | None = None,
    walk: Walk | None = None,
) -> Samples:
    """Draws of a model's posterior, until functions of them agree between chains.

    Parameters
    ----------
    sampler
        Chains have one block of `draws` at first, and then double. With another number of `draws`,
        the first ones may differ.
    data
        Values of the model's data variables by name.
    functions
        Functions whose R-hat is checked.
    identity
        Determines all random numbers: the same text gives the same bits.
    checkpoint
        Where the state of the chains is stored now and then, and read from.
    walk
        Chains to continue; by default they are tuned first.
    """
    density = sampler.density

    def save(walk: Walk, at_end: bool = False) -> Walk:
        if checkpoint is not None:
            checkpoint.save_if_due(lambda: arrays_of(walk), at_end)
        return walk

    with precision(density.dtype), explained(density.flat, density.dtype), stage("tune"):
        prepared = density.prepare(data)
        if checkpoint is not None:
            walk = restored(checkpoint, sampler.shapes(prepared))
        walk = walk or save(Walk(sampler.start(prepared, identity)))

    def extend(walk: Walk) -> Walk:
        with precision(density.dtype):
            return save(walk.followed_by(*sampler.extend(walk.state, prepared, identity)))

    settings = sampler.settings
    with stage("sample", settings.draws, "draw") as report_progress:
        walk, convergence = sample_until_agreed(
            extend, walk, functions, settings.draws, settings.doublings, report_progress
        )
    save(walk, at_end=True)
    tuning, improper = sampler.tuning(walk.state), density.flat.improper
    is_ensemble = settings.is_ensemble
    status, reason = verdict(walk.chains, convergence, tuning, improper, is_ensemble)
    chains = walk.chains if walk.chains.too_many_broken else walk.chains.whole
    return Samples(chains, status, reason, convergence, tuning.values)


def sample_until_agreed(
    extend: Callable[[Walk], Walk],
    walk: Walk,
    functions: Functions,
    draws: int,
    doublings: int,
    report_progress: Callable[[int, int, str], None],
) -> tuple[Walk, Convergence | None]:
    """Chains, doubled until functions of their draws agree or they doubled often enough.

    Broken chains are not compared. If too many are, none is continued, and there is no convergence.

    Parameters
    ----------
    extend
        Draws `draws` more draws of each chain.
    walk
        The chains before, with some blocks of `draws` draws or none.
    doublings
        Largest number of times that the draws double.
    report_progress
        Called with the numbers of draws of each chain so far and in all, and with a message.
    """
    values: list[np.ndarray] = []
    for doubled in range(doublings + 1):
        blocks = 2**doubled
        while len(values) < blocks:
            done = draws * len(values)
            if walk.draws == done:
                walk = extend(walk)
            if walk.chains.too_many_broken:
                return walk, None
            values.append(functions(walk.chains.values[:, done : done + draws]))
            if len(values) < blocks:
                report_progress(done + draws, draws * blocks, "")
        whole = ~walk.chains.broken
        convergence = Convergence.of(np.concatenate(values, axis=1)[whole])
        report_progress(draws * blocks, draws * blocks, str(convergence))
        if convergence.passed:
            break
    return walk, convergence


def verdict(
    chains: Chains,
    convergence: Convergence | None,
    tuning: Tuning,
    improper: bool,
    is_ensemble: bool = False,
) -> tuple[Status, str]:
    """Status of chains, and the reason.

    The reason notes an improper prior, which does not change the status: the posterior may be
    proper.

    Parameters
    ----------
    convergence
        None if too many chains are broken.
    tuning
        Chains that could not be tuned, and doubts about the draws.
    improper
        Whether a prior is improper.
    is_ensemble
        Whether every chain keeps to a mode of its own.
    """
    untuned, n, status = tuning.failed, len(tuning.failed), "diverged"
    broken = (
        f"{chains.broken.sum()} of {n} chains met a log-density or a gradient that is not "
        f"finite, on the way to {chains.statistics['diverging'].sum()} draws"
    )
    if chains.too_many_broken:
        reason = broken
    elif untuned.any():
        reason = f"the tuning of {untuned.sum()} of {n} chains found no step"
    elif is_ensemble:
        status = "ensemble"
        reason = f"{n} members, each about a mode of its own; between them {convergence}"
    elif tuning.doubt:
        status, reason = "undecided", f"{tuning.doubt}; {convergence}"
    elif convergence.passed:
        status, reason = "converged", str(convergence)
    else:
        status = "undecided"
        reason = f"{convergence} after {convergence.draws} draws of each of {n} chains"
    if chains.broken.any() and not chains.too_many_broken:
        reason += f"; {broken}, and are left out"
    return status, f"{reason}; {IMPROPER}" if improper else reason
