"""Microcanonical Langevin Monte Carlo (MCLMC), the default sampler.

A chain moves at constant speed along trajectories that the log-density bends, and its direction is
partly refreshed at every step. Steps are never rejected, so draws have a small bias, which the
variance of the energy error bounds: that variance is the only setting of the accuracy.

The integrator, the kernel and the tuning are those of blackjax. If a step meets a value that is not
finite, the kernel of blackjax keeps the position and takes a new direction. Such steps are counted
here, and chains with any are reported as diverged. During tuning, where steps may still be too
long, they are allowed.

References
----------
Robnik, De Luca, Silverstein and Seljak (2023), Microcanonical Hamiltonian Monte Carlo; Robnik and
Seljak (2024), Fluctuation without dissipation: Microcanonical Langevin Monte Carlo.
"""

from collections.abc import Callable
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mclmc_adaptation import MCLMCAdaptationState
from blackjax.mcmc.integrators import IntegratorState, isokinetic_mclachlan

from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.samplers.chains import Chains, MarkovChains, Tuning, find_start, side_by_side
from pmbnn.inference.samplers.settings import Mclmc

FIRST_STEP = 0.001
"""First step size of the tuning of chains that start in the bulk of the posterior, in units of the
square root of the dimension."""

STEP = blackjax.mclmc.build_kernel(integrator=isokinetic_mclachlan)


class State(NamedTuple):
    """State of a chain.

    Attributes
    ----------
    walk
        Position, direction, log-density and its gradient: the state of blackjax.
    length, step_size
        Tuned momentum decoherence length, and tuned length of a step.
    is_tuned
        Whether the tuning succeeded.
    draws
        Number of draws so far.
    """

    walk: IntegratorState
    length: jax.Array
    step_size: jax.Array
    is_tuned: jax.Array
    draws: jax.Array


class Draw(NamedTuple):
    """A draw that is kept, and the steps since the draw before.

    Attributes
    ----------
    position
        The unconstrained vector, ``(size,)``.
    log_density
        Log-density at the position, in nats.
    energy_error
        Mean squared energy error of the steps for each dimension.
    n_not_finite
        Number of steps that met a value which is not finite, and were not taken.
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
        PRNG keys of the start, and of everything else.
    log_density
        JAX function of the vector, ``(size,)``.
    """
    direction_key, tuning_key = jax.random.split(key)
    position = find_start(start_key, log_density, size, settings, dtype)
    walk = blackjax.mclmc.init(position, log_density, direction_key)
    first, second, third = settings.shares
    walk, tuned, _ = blackjax.mclmc_find_L_and_step_size(
        mclmc_kernel=STEP,
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
    length, step_size = (jnp.asarray(v, dtype) for v in (tuned.L, tuned.step_size))
    is_tuned = jnp.isfinite(step_size) & jnp.isfinite(length)
    return State(walk, length, step_size, is_tuned, jnp.zeros((), jnp.int32))


def _first_guess(size: int, settings: Mclmc, dtype) -> MCLMCAdaptationState | None:
    """First values of the tuning; None for those of blackjax."""
    if settings.uphill == "density":
        return None
    # The first step of blackjax, 250 times as long, leaves the bulk of a large posterior at once.
    length = jnp.sqrt(jnp.asarray(size, dtype))
    return MCLMCAdaptationState(length, FIRST_STEP * length, jnp.ones(size, dtype))


def build_kernel(settings: Mclmc) -> Callable[..., tuple[State, Draw]]:
    """Kernel of a chain, which takes `thin` steps to the next draw; a JAX function.

    Its arguments are the chain's key, from which the key of a draw is derived by its number; its
    state; and the log-density as a function of the vector.
    """

    def kernel(key, state: State, log_density: Callable) -> tuple[State, Draw]:
        key = jax.random.fold_in(key, state.draws)

        def body(i, carry):
            walk, squares, n_not_finite = carry
            walk, info = STEP(
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


class MclmcSampler(MarkovChains[State]):
    """Chains of MCLMC; `build_sampler` makes one."""

    def start(self, prepared: tuple, identity: str) -> State:
        """State of tuned chains, all with the median of the tuned step sizes and lengths."""
        return with_common_steps(super().start(prepared, identity))

    def tuning(self, state: State) -> Tuning:
        """Step size and momentum decoherence length."""
        values = {name: float(getattr(state, name)[0]) for name in ("step_size", "length")}
        return Tuning(~np.asarray(state.is_tuned), values)

    def chains(self, state: State, draws: Draw) -> Chains:
        """Draws of the kernel as `Chains`; a chain is broken if a step was not finite."""
        finite = np.isfinite(draws.position).all(axis=2) & np.isfinite(draws.log_density)
        diverging, shape = (draws.n_not_finite > 0) | ~finite, finite.shape
        statistics = {
            "lp": draws.log_density,
            "energy_error": np.sqrt(self.density.size * draws.energy_error),
            "diverging": diverging,
            "n_steps": np.full(shape, self.settings.thin),
            "step_size": np.full(shape, float(state.step_size[0])),
        }
        return Chains(draws.position, statistics, diverging.any(axis=1))


def with_common_steps(state: State) -> State:
    """Chains with the median of the tuned step sizes and lengths.

    The tuned values of a chain depend on its last position. The energy error grows with the sixth
    power of the step size, so that the chain with the largest would have a far larger error.
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
        If the model has a single unconstrained scalar: on a line, constant speed has no direction.
    """
    if density.size < 2:
        raise ValueError(
            "`model` must have two unconstrained scalars at least to be sampled by MCLMC, got 1. "
            "Take pm.sample, whose result `pb.check` takes as `reference`."
        )
    return MclmcSampler.build(density, settings, init, build_kernel(settings), side_by_side)
