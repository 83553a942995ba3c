"""Microcanonical Langevin Monte Carlo (MCLMC): the everyday sampler.

A chain moves at constant speed through a landscape bent by the log-density, its direction
partly refreshed at every step. Steps are never rejected, so draws have a small bias, which the
variance of the energy error bounds: its size is the sampler's one accuracy setting.

The integrator, the kernel and its tuning are blackjax's. Where a step meets something that is not
finite, blackjax's kernel stays where it was and takes a new direction, without a word; here such
steps are counted, so that no result rests on them unnoticed. Tuning may meet them while its step
is still too long, and learns from that.

References
----------
Robnik, De Luca, Silverstein and Seljak (2023), Microcanonical Hamiltonian Monte Carlo; Robnik and
Seljak (2024), Fluctuation without dissipation: Microcanonical Langevin Monte Carlo.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mclmc_adaptation import MCLMCAdaptationState
from blackjax.mcmc.integrators import IntegratorState, isokinetic_mclachlan

from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.samplers.chains import Chains, Tuning
from pmbnn.inference.samplers.settings import Mclmc
from pmbnn.inference.samplers.starts import chain_keys, find_start, key_of
from pmbnn.inference.xla.compile import compiler_options

FIRST_STEP = 0.001
"""First step of the tuning for a chain that starts where the mass is, in roots of the dimension."""


class State(NamedTuple):
    """Where a chain is.

    Attributes
    ----------
    walk
        Position, direction, log-density and its gradient, as blackjax has them.
    length, step_size
        Length after which a direction is forgotten, and that of a step, as they were tuned.
    is_tuned
        Whether that succeeded.
    draws
        Draws so far.
    """

    walk: IntegratorState
    length: jax.Array
    step_size: jax.Array
    is_tuned: jax.Array
    draws: jax.Array


class Draw(NamedTuple):
    """A draw that is kept, and the steps that led there.

    Attributes
    ----------
    position
        The unconstrained vector, ``(size,)``.
    log_density
        At it, in nats.
    energy_error
        Mean squared energy error of the steps for each dimension.
    n_not_finite
        Steps that met something not finite, and were not taken.
    """

    position: jax.Array
    log_density: jax.Array
    energy_error: jax.Array
    n_not_finite: jax.Array


def init(start_key, key, log_density: Callable, size: int, settings: Mclmc, dtype) -> State:
    """A tuned chain before its first draw; a JAX function.

    Parameters
    ----------
    start_key, key
        PRNG keys of where it starts, and of all else.
    log_density
        JAX function of the vector, ``(size,)``.
    """
    direction_key, tuning_key = jax.random.split(key)
    position = find_start(start_key, log_density, size, settings, dtype)
    walk = blackjax.mclmc.init(position, log_density, direction_key)
    first, second, third = settings.shares
    walk, found, _ = blackjax.mclmc_find_L_and_step_size(
        mclmc_kernel=_step(),
        num_steps=settings.tuning,
        state=walk,
        rng_key=tuning_key,
        logdensity_fn=log_density,
        frac_tune1=first,
        frac_tune2=second,
        frac_tune3=third,
        desired_energy_var=settings.energy_variance,
        diagonal_preconditioning=False,
        params=_first_guess(size, settings, dtype),
    )
    length, step_size = (jnp.asarray(v, dtype) for v in (found.L, found.step_size))
    is_tuned = jnp.isfinite(step_size) & jnp.isfinite(length)
    return State(walk, length, step_size, is_tuned, jnp.zeros((), jnp.int32))


def _first_guess(size: int, settings: Mclmc, dtype) -> MCLMCAdaptationState | None:
    """Where the tuning sets out; None for what blackjax takes."""
    if settings.uphill == "density":
        return None
    # Blackjax's own first step, 250 times as long, leaves the mass of a large network at once.
    length = jnp.sqrt(jnp.asarray(size, dtype))
    return MCLMCAdaptationState(length, FIRST_STEP * length, jnp.ones(size, dtype))


def build_kernel(settings: Mclmc) -> Callable[..., tuple[State, Draw]]:
    """The kernel of a chain: from a state, `thin` steps to the next draw; a JAX function.

    Its arguments are the chain's key, from which that of a draw is derived by its number; its
    state; and the log-density as a function of the vector.
    """
    step = _step()

    def kernel(key, state: State, log_density: Callable) -> tuple[State, Draw]:
        key = jax.random.fold_in(key, state.draws)

        def body(i, carry):
            walk, squares, n_not_finite = carry
            walk, info = step(
                rng_key=jax.random.fold_in(key, i),
                state=walk,
                logdensity_fn=log_density,
                inverse_mass_matrix=1.0,
                L=state.length,
                step_size=state.step_size,
            )
            return walk, squares + info.energy_change**2, n_not_finite + ~info.nonans

        zero = jnp.zeros((), state.walk.logdensity.dtype)
        start = (state.walk, zero, jnp.zeros((), jnp.int32))
        walk, squares, n_not_finite = jax.lax.fori_loop(0, settings.thin, body, start)
        error = squares / (settings.thin * walk.position.size)
        draw = Draw(walk.position, walk.logdensity, error, n_not_finite)
        return state._replace(walk=walk, draws=state.draws + 1), draw

    return kernel


@dataclass(frozen=True, eq=False)
class MclmcSampler:
    """All chains as two compiled programs; `build_sampler` makes one.

    Attributes
    ----------
    density, settings
        As given to `build_sampler`.
    init
        Chains from their keys, ``(chain, 2)`` unsigned 32-bit words for starts and for all else,
        and the prepared data.
    advance
        Chains and the next block of their draws, ``(chain, draw, ...)``, from keys of the draws,
        states and prepared data.
    """

    density: LogDensity
    settings: Mclmc
    init: Callable[..., State]
    advance: Callable[..., tuple[State, Draw]]

    def start(self, prepared: tuple, identity: str) -> State:
        """Chains that are tuned, and all move as the median one was tuned to."""
        starts, moves, _ = chain_keys(identity, self.settings.chains)
        return with_common_steps(self.init(starts, moves, prepared))

    def shapes(self, prepared: tuple) -> State:
        """Shapes and types of the arrays of a state."""
        starts, moves, _ = chain_keys("", self.settings.chains)
        return self.init.eval_shape(starts, moves, prepared)

    def extend(self, state: State, prepared: tuple, identity: str) -> tuple[State, Chains]:
        """Chains after their next draws, and these."""
        *_, later = chain_keys(identity, self.settings.chains)
        state, drawn = self.advance(later, state, prepared)
        return state, self._chains(jax.device_get(drawn), float(state.step_size[0]))

    def tuning(self, state: State) -> Tuning:
        """Their step, and the length after which a direction is forgotten."""
        values = {name: float(getattr(state, name)[0]) for name in ("step_size", "length")}
        return Tuning(~np.asarray(state.is_tuned), values)

    def _chains(self, drawn: Draw, step_size: float) -> Chains:
        finite = np.isfinite(drawn.position).all(axis=2) & np.isfinite(drawn.log_density)
        diverging, shape = (drawn.n_not_finite > 0) | ~finite, finite.shape
        statistics = {
            "lp": drawn.log_density,
            "energy_error": np.sqrt(self.density.size * drawn.energy_error),
            "diverging": diverging,
            "n_steps": np.full(shape, self.settings.thin),
            "step_size": np.full(shape, step_size),
        }
        return Chains(drawn.position, statistics, diverging.any(axis=1))


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


def build_sampler(density: LogDensity, settings: Mclmc) -> MclmcSampler:
    """Programs of all chains of a model.

    Raises
    ------
    ValueError
        If the model has a single unconstrained scalar: constant speed on a line goes nowhere.
    """
    if density.size < 2:
        raise ValueError(
            "`model` must have two unconstrained scalars at least to be sampled by MCLMC, got 1. "
            "Take pm.sample, whose result `pb.check` takes as `reference`."
        )
    kernel = build_kernel(settings)

    def init_one(start_key, key, prepared):
        log_density = _of(density, prepared)
        keys = [key_of(start_key), key_of(key)]
        return init(*keys, log_density, density.size, settings, jnp.dtype(density.dtype))

    def advance_one(key, state, prepared):
        log_density = _of(density, prepared)

        def body(state, _):
            return kernel(key_of(key), state, log_density)

        return jax.lax.scan(body, state, length=settings.draws)

    options = compiler_options()
    return MclmcSampler(
        density=density,
        settings=settings,
        init=jax.jit(jax.vmap(init_one, (0, 0, None)), compiler_options=options),
        advance=jax.jit(jax.vmap(advance_one, (0, 0, None)), compiler_options=options),
    )


def _step() -> Callable:
    return blackjax.mclmc.build_kernel(integrator=isokinetic_mclachlan)


def _of(density: LogDensity, prepared) -> Callable:
    return lambda vector: density.value(vector, prepared)
