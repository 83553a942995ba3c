"""Draws from the posterior of a model: chains that go on until their functions agree."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.core.stages import stage, staged
from pmbnn.inference.checkpoint import Arrays, Checkpoint
from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.samplers.chains import Chains, Convergence, Sampler, Samples, Status
from pmbnn.inference.samplers.settings import Sampling
from pmbnn.inference.unsupported import explained
from pmbnn.inference.xla.compile import precision

# Chains on their way, and their checkpoints: to go on from exactly there


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


DOUBLINGS = 3
"""How often the draws may double: up to eight times as many."""

IMPROPER = "a prior is improper, and draws cannot tell whether the posterior is"
"""What is noted of chains under an improper prior."""

Functions = Callable[[np.ndarray], np.ndarray]
"""From draws of the flat vector, ``(chain, draw, size)``, to ``(chain, draw, function)``."""


@staged("build")
def build_sampler(density: LogDensity, settings: Sampling) -> Sampler:
    """Programs of all chains of a model.

    Raises
    ------
    ValueError
        If the sampler does not take the model.
    """
    # Each has a module of its name; blackjax takes a second to import, which no fit needs.
    module = import_module(f"{__package__}.{settings.engine}")
    return module.build_sampler(density, settings)


def sample_posterior(
    sampler: Sampler,
    data: Mapping[str, np.ndarray],
    functions: Functions,
    *,
    identity: str,
    checkpoint: Checkpoint | None = None,
) -> Samples:
    """Draws of a model's posterior, as many as it takes for functions of them to agree.

    Parameters
    ----------
    sampler
        Chains have a block of its draws at first, and up to eight; the first draws of more need
        not be those of fewer.
    data
        Values of the model's data variables by name.
    functions
        Whose R-hat decides.
    identity
        Decides everything: the same text gives the same bits.
    checkpoint
        Where chains are left from time to time, and looked for.
    """
    density = sampler.density

    def leave(walk: Walk, at_end: bool = False) -> Walk:
        if checkpoint is not None:
            checkpoint.save_if_due(lambda: arrays_of(walk), at_end)
        return walk

    with precision(density.dtype), explained(density.flat, density.dtype), stage("tune"):
        prepared = density.prepare(data)
        walk = None
        if checkpoint is not None:
            walk = restored(checkpoint, sampler.shapes(prepared))
        walk = walk or leave(Walk(sampler.start(prepared, identity)))
        tuning = sampler.tuning(walk.state)

    def extend(walk: Walk) -> Walk:
        with precision(density.dtype):
            return leave(walk.followed_by(*sampler.extend(walk.state, prepared, identity)))

    draws = sampler.settings.draws
    with stage("sample", draws, "draw") as report_progress:
        walk, convergence = drawn_until_agreed(extend, walk, functions, draws, report_progress)
    leave(walk, at_end=True)
    status, reason = verdict(walk.chains, convergence, tuning.failed, density.flat.improper)
    return Samples(walk.chains, status, reason, convergence, tuning.values)


def drawn_until_agreed(
    extend: Callable[[Walk], Walk],
    walk: Walk,
    functions: Functions,
    draws: int,
    report_progress: Callable[[int, int, str], None] | None = None,
) -> tuple[Walk, Convergence | None]:
    """Chains, doubled until functions of their draws agree or there are eight times as many.

    Broken chains are not gone on with: more of the same would not mend them.

    Parameters
    ----------
    extend
        Goes on for `draws` draws of each chain.
    walk
        Where the chains are, some blocks of `draws` draws having been drawn before, or none.
    report_progress
        Called with draws of each chain so far, how many are wanted, and what is to be said of it.
    """
    values: list[np.ndarray] = []
    for doubled in range(DOUBLINGS + 1):
        blocks = 2**doubled
        while len(values) < blocks:
            done = draws * len(values)
            if walk.draws == done:
                walk = extend(walk)
            if walk.chains.broken.any():
                return walk, None
            values.append(functions(walk.chains.values[:, done : done + draws]))
            if report_progress is not None and len(values) < blocks:
                report_progress(done + draws, draws * blocks, "")
        convergence = Convergence.of(np.concatenate(values, axis=1))
        if report_progress is not None:
            report_progress(draws * blocks, draws * blocks, str(convergence))
        if convergence.passed:
            break
    return walk, convergence


def verdict(
    chains: Chains, convergence: Convergence | None, untuned: np.ndarray, improper: bool
) -> tuple[Status, str]:
    """Status of chains, and a few words on it.

    An improper prior is noted beside the verdict, not in its place: the posterior may be proper,
    and chains that disagree are not of it.

    Parameters
    ----------
    convergence
        None if some chain is broken.
    untuned
        Which chains could not be tuned, ``(chain,)``.
    improper
        Whether a prior is improper.
    """
    status, reason = _verdict(chains, convergence, untuned)
    return status, f"{reason}; {IMPROPER}" if improper else reason


def _verdict(
    chains: Chains, convergence: Convergence | None, untuned: np.ndarray
) -> tuple[Status, str]:
    n = len(untuned)
    if chains.broken.any():
        return "diverged", (
            f"{chains.broken.sum()} of {n} chains met a log-density or a gradient that is not "
            f"finite, on the way to {chains.statistics['diverging'].sum()} draws"
        )
    if untuned.any():
        return "diverged", f"the tuning of {untuned.sum()} of {n} chains found no step"
    if convergence.passed:
        return "converged", str(convergence)
    return "undecided", f"{convergence} after {convergence.draws} draws of each of {n} chains"
