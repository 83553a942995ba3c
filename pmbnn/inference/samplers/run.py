"""Draws from the posterior of a model: chains that go on until their functions agree."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.inference.result import derive_keys
from pmbnn.inference.samplers.convergence import Convergence, Status
from pmbnn.inference.samplers.mclmc import Sampler, State
from pmbnn.inference.unsupported import explained
from pmbnn.inference.xla.compile import precision

DOUBLINGS = 3
"""How often the draws may double: up to eight times as many."""

Report = Callable[[int, int, str], None]
"""Called with draws of each chain so far, how many are wanted, and what is to be said of it."""

Functions = Callable[[np.ndarray], np.ndarray]
"""From draws of the flat vector, ``(chain, draw, size)``, to ``(chain, draw, function)``."""


@dataclass(frozen=True, eq=False)
class Chains:
    """Draws of all chains.

    Attributes
    ----------
    values
        Unconstrained vectors, ``(chain, draw, size)``.
    log_density
        At them, ``(chain, draw)``, in nats.
    energy_error
        Mean squared energy error for each dimension, of the steps that led to each draw.
    n_not_finite
        Of those steps, how many met something that is not finite.
    """

    values: np.ndarray
    log_density: np.ndarray
    energy_error: np.ndarray
    n_not_finite: np.ndarray

    @property
    def draws(self) -> int:
        """Draws of each chain."""
        return self.values.shape[1]

    @property
    def broken(self) -> np.ndarray:
        """Which chains met something that is not finite, ``(chain,)``."""
        finite = np.isfinite(self.values).all(axis=(1, 2)) & np.isfinite(self.log_density).all(1)
        return ~finite | (self.n_not_finite > 0).any(axis=1)

    def followed_by(self, later: "Chains") -> "Chains":
        """The same chains with later draws."""
        names = [field.name for field in fields(self)]
        pairs = [(getattr(self, name), getattr(later, name)) for name in names]
        return Chains(*(np.concatenate(pair, axis=1) for pair in pairs))


@dataclass(frozen=True, eq=False)
class Samples:
    """Draws from a posterior, and what is to be thought of them.

    Attributes
    ----------
    chains
        The draws.
    status, reason
        ``converged``; ``undecided``, where chains still disagree; ``diverged``, where some chain
        met a density that is not finite; ``improper``, where a prior has no density that
        integrates to one. And a few words on it.
    convergence
        Agreement of the chains; None where it was not looked at.
    step_size, length
        Of a step, and after which a direction is forgotten: the medians of what chains were tuned
        to, which all of them then moved by.
    """

    chains: Chains
    status: Status
    reason: str
    convergence: Convergence | None
    step_size: float
    length: float


def sample_posterior(
    sampler: Sampler,
    data: Mapping[str, np.ndarray],
    functions: Functions,
    *,
    chains: int,
    random_seed: int,
    report: Report | None = None,
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
    random_seed
        Decides everything: the same seed gives the same bits.
    report
        Called as the chains go on.
    """
    density, improper = sampler.density, sampler.density.flat.improper
    starts, moves, later = _keys(random_seed, chains)
    with precision(density.dtype), explained(density.flat, density.dtype):
        prepared = density.prepare(data)
        state = sampler.init(starts, moves, prepared)
        is_tuned = np.isfinite(state.step_size) & np.isfinite(state.length)
        state = with_common_steps(state)
    found, convergence = drawn_until_agreed(
        _extender(sampler, later, state, prepared),
        functions,
        sampler.draws,
        report,
        doublings=0 if improper else DOUBLINGS,
    )
    status, reason = verdict(found, convergence, np.asarray(is_tuned), improper)
    step_size, length = (float(v[0]) for v in (state.step_size, state.length))
    return Samples(found, status, reason, convergence, step_size, length)


def _keys(random_seed: int, chains: int) -> Iterator[jax.Array]:
    """PRNG keys of starts, of tuning, and of draws: ``(chain, 2)`` each, every chain its own."""
    keys = [derive_keys(f"mclmc/{random_seed}/{chain}") for chain in range(chains)]
    for name in ("initial", "noise", "draws"):
        yield jnp.asarray(np.stack([getattr(key, name)[:2] for key in keys]), jnp.uint32)


def with_common_steps(state: State) -> State:
    """Chains that all move as the median chain was tuned to.

    What a chain is tuned to depends on where it was last; the energy error grows with the sixth
    power of the step, so that the chain with the longest would have many times that of the others.
    """
    step_size, length = (
        jnp.full_like(tuned, jnp.nanmedian(jnp.where(jnp.isfinite(tuned), tuned, jnp.nan)))
        for tuned in (state.step_size, state.length)
    )
    return state._replace(step_size=step_size, length=length)


def _extender(sampler: Sampler, keys, state: State, prepared) -> Callable[[], Chains]:
    """A function that gives the chains' next block of draws, each time it is called."""

    def extend() -> Chains:
        nonlocal state
        with precision(sampler.density.dtype):
            state, drawn = sampler.advance(keys, state, prepared)
        return Chains(*map(np.asarray, jax.device_get(drawn)))

    return extend


def drawn_until_agreed(
    extend: Callable[[], Chains],
    functions: Functions,
    draws: int,
    report: Report | None = None,
    doublings: int = DOUBLINGS,
) -> tuple[Chains, Convergence | None]:
    """Chains, doubled until functions of their draws agree or there are eight times as many.

    Broken chains are not gone on with: more of the same would not mend them.

    Parameters
    ----------
    extend
        Gives the next `draws` draws of each chain.
    """
    found, values = None, []
    for doubled in range(doublings + 1):
        wanted = draws * 2**doubled
        while found is None or found.draws < wanted:
            new = extend()
            found = new if found is None else found.followed_by(new)
            if new.broken.any():
                return found, None
            values.append(functions(new.values))
        convergence = Convergence.of(np.concatenate(values, axis=1))
        if report is not None:
            report(found.draws, wanted, str(convergence))
        if convergence.passed:
            break
    return found, convergence


def verdict(
    chains: Chains, convergence: Convergence | None, is_tuned: np.ndarray, improper: bool
) -> tuple[Status, str]:
    """Status of chains, and a few words on it.

    Parameters
    ----------
    convergence
        None if some chain is broken.
    is_tuned
        Which chains were tuned to finite numbers, ``(chain,)``.
    """
    if improper:
        return "improper", "a prior is improper, and draws cannot tell whether the posterior is"
    broken, n = chains.broken | ~is_tuned, len(is_tuned)
    if broken.any():
        return "diverged", (
            f"{broken.sum()} of {n} chains met a log-density or a gradient that is not finite, in "
            f"{chains.n_not_finite.sum()} steps after tuning"
        )
    if convergence.passed:
        return "converged", str(convergence)
    return "undecided", f"{convergence} after {convergence.draws} draws of each of {n} chains"
