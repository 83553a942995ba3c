"""The No-U-Turn Sampler (NUTS): what most would take, as a check of the cheaper ones.

Chains run one after the other within one program: side by side, each would wait at every draw for
the one whose trajectory is longest. Kernel and warm-up are blackjax's; each chain is tuned alone.

A trajectory whose energy error is large is a divergence, which is counted and breaks nothing; it
is met at the edge of a support too, where the density is zero. A trajectory that ends at a point or
a log-density which is not a number does break the chain, as the sampler would take such places
for impossible ones without a word.

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
from pmbnn.inference.samplers.chains import Chains, Tuning
from pmbnn.inference.samplers.settings import Nuts
from pmbnn.inference.samplers.starts import chain_keys, find_start, key_of
from pmbnn.inference.xla.compile import compiler_options


class State(NamedTuple):
    """Where a chain is.

    Attributes
    ----------
    walk
        Position, log-density and its gradient, as blackjax has them.
    step_size, inverse_mass
        Length of a leapfrog step, and the diagonal of the inverse mass matrix, ``(size,)``.
    warm_up_steps
        Leapfrog steps of the warm-up.
    draws
        Draws so far.
    """

    walk: HMCState
    step_size: jax.Array
    inverse_mass: jax.Array
    warm_up_steps: jax.Array
    draws: jax.Array


class Draw(NamedTuple):
    """A draw, and the trajectory that it was chosen from.

    Attributes
    ----------
    position
        The unconstrained vector, ``(size,)``.
    statistics
        Of the draw, by ArviZ's names.
    is_broken
        Whether an end of the trajectory is not a number, or its log-density is not.
    """

    position: jax.Array
    statistics: dict[str, jax.Array]
    is_broken: jax.Array


def init(start_key, key, log_density: Callable, size: int, settings: Nuts, dtype) -> State:
    """A tuned chain before its first draw; a JAX function.

    Parameters
    ----------
    start_key, key
        PRNG keys of where it starts, and of the warm-up.
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
    start = find_start(start_key, log_density, size, settings, dtype)
    (walk, found), kept = warm_up.run(key, start, num_steps=settings.tuning)
    tuned = (jnp.asarray(found[name], dtype) for name in ("step_size", "inverse_mass_matrix"))
    return State(walk, *tuned, kept.info.num_integration_steps.sum(), jnp.zeros((), jnp.int32))


def build_kernel(settings: Nuts) -> Callable[..., tuple[State, Draw]]:
    """The kernel of a chain: from a state to the next draw; a JAX function.

    Its arguments are the chain's key, from which that of a draw is derived by its number; its
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
        is_broken = jnp.stack([_is_nan(end) for end in ends]).any()
        draw = Draw(walk.position, statistics, is_broken)
        return state._replace(walk=walk, draws=state.draws + 1), draw

    return kernel


def _is_nan(state) -> jax.Array:
    return jnp.isnan(state.logdensity) | jnp.isnan(state.position).any()


@dataclass(frozen=True, eq=False)
class NutsSampler:
    """All chains as two compiled programs; `build_sampler` makes one.

    Attributes
    ----------
    density, settings
        As given to `build_sampler`.
    init
        Chains from their keys, ``(chain, 2)`` unsigned 32-bit words for starts and for warm-ups,
        and the prepared data.
    advance
        Chains and the next block of their draws, ``(chain, draw, ...)``, from keys of the draws,
        states and prepared data.
    """

    density: LogDensity
    settings: Nuts
    init: Callable[..., State]
    advance: Callable[..., tuple[State, Draw]]

    def start(self, prepared: tuple, identity: str) -> State:
        """Chains after their warm-up."""
        starts, moves, _ = chain_keys(identity, self.settings.chains)
        return self.init(starts, moves, prepared)

    def shapes(self, prepared: tuple) -> State:
        """Shapes and types of the arrays of a state."""
        starts, moves, _ = chain_keys("", self.settings.chains)
        return self.init.eval_shape(starts, moves, prepared)

    def extend(self, state: State, prepared: tuple, identity: str) -> tuple[State, Chains]:
        """Chains after their next draws, and these."""
        *_, later = chain_keys(identity, self.settings.chains)
        state, drawn = self.advance(later, state, prepared)
        drawn = jax.device_get(drawn)
        is_finite = np.isfinite(drawn.position).all(axis=2)
        is_finite &= np.isfinite(drawn.statistics["lp"])
        broken = (drawn.is_broken | ~is_finite).any(axis=1)
        return state, Chains(drawn.position, drawn.statistics, broken)

    def tuning(self, state: State) -> Tuning:
        """Their median step, and the leapfrog steps of a warm-up."""
        is_tuned = np.isfinite(state.step_size) & np.isfinite(state.inverse_mass).all(axis=1)
        values = {
            "step_size": float(np.median(state.step_size)),
            "warm_up_steps": float(np.mean(state.warm_up_steps)),
        }
        return Tuning(~np.asarray(is_tuned), values)


def build_sampler(density: LogDensity, settings: Nuts) -> NutsSampler:
    """Programs of all chains of a model."""
    kernel = build_kernel(settings)

    def init_all(start_keys, keys, prepared):
        def one(words):
            start_key, key = map(key_of, words)
            dtype = jnp.dtype(density.dtype)
            return init(start_key, key, _of(density, prepared), density.size, settings, dtype)

        return jax.lax.map(one, (start_keys, keys))

    def advance_all(keys, states, prepared):
        def one(chain):
            words, state = chain
            key, log_density = key_of(words), _of(density, prepared)
            return jax.lax.scan(
                lambda state, _: kernel(key, state, log_density), state, length=settings.draws
            )

        return jax.lax.map(one, (keys, states))

    options = compiler_options()
    return NutsSampler(
        density=density,
        settings=settings,
        init=jax.jit(init_all, compiler_options=options),
        advance=jax.jit(advance_all, compiler_options=options),
    )


def _of(density: LogDensity, prepared) -> Callable:
    return lambda vector: density.value(vector, prepared)
