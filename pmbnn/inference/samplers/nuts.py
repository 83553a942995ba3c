"""The No-U-Turn Sampler (NUTS), the standard sampler, to check the cheaper ones against.

Chains run one after the other within one program: side by side, every chain would wait at every
draw for the longest trajectory. Kernel and warm-up are those of blackjax; each chain is tuned
by itself.

A trajectory with a large energy error is a divergence. Divergences are counted and do not end a
chain, but chains with many are not said to have converged. Those at the edge of a support, where
the density is zero, do no harm. A trajectory that ends at a position or a log-density that is
NaN marks the chain as broken: the kernel would treat such places as impossible.

References
----------
Hoffman and Gelman (2014), The No-U-Turn Sampler; Betancourt (2017), A Conceptual Introduction to
Hamiltonian Monte Carlo, for the multinomial choice along a trajectory; the windows of the warm-up
are those of Stan's reference manual.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.base import get_filter_adapt_info_fn
from blackjax.mcmc.hmc import HMCState

from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.samplers.chains import Chains, Tuning, chain_keys, find_start, key_of
from pmbnn.inference.samplers.settings import Nuts
from pmbnn.inference.xla.compile import compiler_options, shared

LARGEST_SHARE = 1 / 400
"""Largest share of trajectories that diverge of chains that agree. On a Gaussian process of
posteriordb, chains with three times as many agreed on a standard deviation that was 10 % off."""


class State(NamedTuple):
    """State of a chain.

    Attributes
    ----------
    walk
        Position, log-density and its gradient: the state of blackjax.
    step_size, inverse_mass
        Length of a leapfrog step, and the diagonal of the inverse mass matrix, ``(size,)``.
    warm_up_steps
        Leapfrog steps of the warm-up.
    draws, divergences
        Number of draws so far, and of those whose trajectories diverged within the support.
    """

    walk: HMCState
    step_size: jax.Array
    inverse_mass: jax.Array
    warm_up_steps: jax.Array
    draws: jax.Array
    divergences: jax.Array


class Draw(NamedTuple):
    """A draw and the trajectory it was chosen from.

    Attributes
    ----------
    position
        The unconstrained vector, ``(size,)``.
    statistics
        Statistics of the draw, by ArviZ's names.
    is_broken
        Whether an end of the trajectory, or its log-density, is NaN.
    """

    position: jax.Array
    statistics: dict[str, jax.Array]
    is_broken: jax.Array


def init(start_key, key, around, log_density: Callable, size: int, settings: Nuts, dtype) -> State:
    """A tuned chain before its first draw; a JAX function.

    Parameters
    ----------
    start_key, key
        PRNG keys of the start and of the warm-up.
    around
        What the start is drawn about, ``(size,)``; None for zero.
    log_density
        JAX function of the vector, ``(size,)``.
    """
    warm_up = blackjax.window_adaptation(
        blackjax.nuts,
        log_density,
        target_acceptance_rate=settings.target_acceptance,
        adaptation_info_fn=get_filter_adapt_info_fn(info_keys={"num_integration_steps"}),
        max_num_doublings=settings.max_treedepth,
    )
    start = find_start(start_key, log_density, size, settings, dtype, around).position
    (walk, tuned), history = warm_up.run(key, start, num_steps=settings.tuning)
    step_size, inverse_mass = (
        jnp.asarray(tuned[name], dtype) for name in ("step_size", "inverse_mass_matrix")
    )
    n_steps = history.info.num_integration_steps.sum()
    zero = jnp.zeros((), jnp.int32)
    return State(walk, step_size, inverse_mass, n_steps, zero, zero)


def build_kernel(settings: Nuts) -> Callable[..., tuple[State, Draw]]:
    """Kernel of a chain, which goes to the next draw; a JAX function.

    Its arguments are the chain's key, from which the key of a draw is derived by its number; its
    state; and the log-density as a function of the vector.
    """
    step = blackjax.nuts.build_kernel()

    def kernel(key, state: State, log_density: Callable) -> tuple[State, Draw]:
        walk, info = step(
            jax.random.fold_in(key, state.draws),
            state.walk,
            log_density,
            state.step_size,
            state.inverse_mass,
            settings.max_treedepth,
        )
        statistics = {
            "lp": walk.logdensity,
            "diverging": info.is_divergent,
            "tree_depth": info.num_trajectory_expansions,
            "n_steps": info.num_integration_steps,
            "acceptance_rate": info.acceptance_rate,
            "energy": info.energy,
            "step_size": state.step_size,
        }
        ends = (walk, info.trajectory_leftmost_state, info.trajectory_rightmost_state)
        is_nan = [jnp.isnan(end.logdensity) | jnp.isnan(end.position).any() for end in ends]
        draw = Draw(walk.position, statistics, jnp.stack(is_nan).any())
        is_at_edge = jnp.stack([jnp.isneginf(end.logdensity) for end in ends]).any()
        divergences = state.divergences + (info.is_divergent & ~is_at_edge)
        return state._replace(walk=walk, draws=state.draws + 1, divergences=divergences), draw

    return kernel


@dataclass(frozen=True, eq=False)
class NutsSampler:
    """Chains of NUTS as two compiled programs; `build_sampler` makes one.

    Attributes
    ----------
    density, settings
        The target, and the settings of the sampler.
    begin
        Function of the chains' keys for starts and for the warm-up, ``(chain, 2)`` unsigned 32-bit
        words, of what starts are drawn about, and the prepared data; returns tuned chains.
    advance
        Function of the chains' keys for draws, their states, and the prepared data; returns the
        chains and the next block of their draws, ``(chain, draw, ...)``.
    """

    density: LogDensity
    settings: Nuts
    begin: Callable[..., State]
    advance: Callable[..., tuple[State, Draw]]

    def start(self, prepared: tuple, identity: str, around: np.ndarray | None = None) -> State:
        """State of tuned chains before their first draw."""
        starts, moves, _ = chain_keys(identity, self.settings.chains)
        return self.begin(starts, moves, around, prepared)

    def shapes(self, prepared: tuple) -> State:
        """Shapes and types of the arrays of a state."""
        starts, moves, _ = chain_keys("", self.settings.chains)
        return self.begin.eval_shape(starts, moves, None, prepared)

    def extend(self, state: State, prepared: tuple, identity: str) -> tuple[State, Chains]:
        """State of the chains after their next draws, and these draws."""
        *_, keys = chain_keys(identity, self.settings.chains)
        state, draws = self.advance(keys, state, prepared)
        return state, _chains(jax.device_get(draws))

    def tuning(self, state: State) -> Tuning:
        """Median step size, and mean number of leapfrog steps of a warm-up."""
        is_tuned = np.isfinite(state.step_size) & np.isfinite(state.inverse_mass).all(axis=1)
        values = {
            "step_size": float(np.median(state.step_size)),
            "warm_up_steps": float(np.mean(state.warm_up_steps)),
        }
        divergences, draws = int(np.sum(state.divergences)), int(np.sum(state.draws))
        doubt = ""
        if divergences > LARGEST_SHARE * draws:
            doubt = (
                f"{divergences:,} of {draws:,} trajectories diverged, and draws may lack a narrow "
                "part of the posterior: raise `target_acceptance`"
            )
        return Tuning(~np.asarray(is_tuned), values, doubt)


def _chains(draws: Draw) -> Chains:
    """Draws of the kernel as `Chains`; a chain is broken if some value is not finite."""
    is_finite = np.isfinite(draws.position).all(axis=2) & np.isfinite(draws.statistics["lp"])
    broken = (draws.is_broken | ~is_finite).any(axis=1)
    return Chains(draws.position, draws.statistics, broken)


PROGRAM = ("start", "spread", "descent", "descent_rate", "draws", "tuning")
PROGRAM += ("target_acceptance", "max_treedepth")
"""Settings that the programs depend on."""


def build_sampler(density: LogDensity, settings: Nuts) -> NutsSampler:
    """Programs of all chains of a model."""
    of_settings = (getattr(settings, name) for name in PROGRAM)
    key = ("nuts", density.evaluate, density.dtype, *of_settings)
    return NutsSampler(density, settings, *shared(key, lambda: _programs(density, settings)))


def _programs(density: LogDensity, settings: Nuts) -> tuple[Callable, Callable]:
    """The programs `begin` and `advance` of a sampler."""
    kernel, dtype = build_kernel(settings), jnp.dtype(density.dtype)

    def begin(start_keys, keys, around, prepared):
        target = density.at(prepared)

        def chain(arguments):
            *words, place = arguments
            return init(*map(key_of, words), place, target, density.size, settings, dtype)

        return jax.lax.map(chain, (start_keys, keys, around))

    def advance(keys, states, prepared):
        target = density.at(prepared)

        def chain(words_and_state):
            words, state = words_and_state
            return jax.lax.scan(
                lambda state, _: kernel(key_of(words), state, target),
                state,
                length=settings.draws,
            )

        return jax.lax.map(chain, (keys, states))

    options = compiler_options()
    return tuple(jax.jit(f, compiler_options=options) for f in (begin, advance))
