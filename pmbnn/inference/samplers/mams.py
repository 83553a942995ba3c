"""Metropolis-adjusted microcanonical sampling (MAMS): MCLMC without its bias.

A draw is the end of a trajectory at constant speed, whose first direction is random. It is accepted
with the probability that makes the draws those of the posterior; otherwise the chain stays. Step
size and length are found as those of MCLMC, but by the probability of acceptance.

References
----------
Robnik, Cohn-Gordon and Seljak (2025), Metropolis adjusted microcanonical Hamiltonian Monte Carlo,
arXiv 2503.01707.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.dynamic_hmc import halton_sequence
from blackjax.mcmc.integrators import IntegratorState, isokinetic_mclachlan
from blackjax.util import generate_unit_vector

from pmbnn.inference.samplers.chains import is_finite
from pmbnn.inference.samplers.mclmc import Draw, MclmcSampler, Steps

MOST_STEPS = 64
"""Largest mean number of steps of a trajectory. In the warm-up, first steps are too short to cross
the posterior."""


def move(key, number, walk: IntegratorState, log_density: Callable, _, moving: Steps):
    """The chain after a trajectory, and the draw there by its number; a JAX function.

    Lengths are quasi-random, and the same for all chains, which therefore move side by side.
    """
    step_size, length, _ = moving
    direction, uniform = jax.random.split(jax.random.fold_in(key, number))
    steps = jnp.ceil(2 * halton_sequence(number) * length / step_size).astype(jnp.int32)
    steps = jnp.maximum(steps, 1)
    integrate = isokinetic_mclachlan(log_density, 1.0)

    def body(_, carry):
        walk, kinetic = carry
        walk, change = integrate(walk, step_size)
        return walk, kinetic + change

    start = walk._replace(momentum=generate_unit_vector(direction, walk.position))
    moved, kinetic = jax.lax.fori_loop(0, steps, body, (start, jnp.zeros_like(walk.logdensity)))
    change = kinetic - moved.logdensity + walk.logdensity
    whole = is_finite(change, moved.logdensity_grad) & jnp.isfinite(moved.position).all()
    probability = jnp.where(whole, jnp.exp(jnp.minimum(-change, 0)), 0)
    accepted = jax.random.uniform(uniform, dtype=probability.dtype) < probability
    walk = jax.tree.map(lambda a, b: jnp.where(accepted, a, b), moved, start)
    error = jnp.where(whole, change, 0) ** 2 / walk.position.size
    statistics = {"n_steps": steps, "acceptance_rate": probability}
    counts = (~whole).astype(jnp.int32), jnp.zeros_like(error)
    return walk, Draw(walk.position, walk.logdensity, error, *counts, statistics)


@dataclass(frozen=True, eq=False)
class MamsSampler(MclmcSampler):
    """Chains of MAMS as two compiled programs; `build` makes one.

    Attributes
    ----------
    decoherence
        Mean length of a trajectory, in units of the root of the sum of all variances. Effective
        draws of predictions a gradient are most near here (2-5-5-2 network on moons: 58, 132, 152,
        103, 67 per thousand at .1, .25, .5, 1, 2).
    power
        The probability of rejection grows with the root of the energy error's variance.
    trust
        Every probability counts alike.
    first_step
        Longer than that of MCLMC, because a step that is too long is rejected.
    """

    name: ClassVar[str] = "mams"
    move: ClassVar[Callable[..., tuple[IntegratorState, Draw]]] = staticmethod(move)
    statistics: ClassVar[Mapping[str, type]] = {"n_steps": jnp.int32, "acceptance_rate": float}
    decoherence: ClassVar[float] = 0.5
    power: ClassVar[float] = 3.0
    trust: ClassVar[float] = np.inf
    first_step: ClassVar[float] = 0.01
    is_biased: ClassVar[bool] = False

    @property
    def target_error(self) -> float:
        """Probability of rejection that is wanted."""
        return 1 - self.settings.target_acceptance

    def errors(self, draws: Draw) -> np.ndarray:
        """Probabilities of rejection, ``(chain, draw)``."""
        return 1 - draws.statistics["acceptance_rate"]

    @property
    def limit(self) -> float:
        """No limit: trajectories are rejected by their probability."""
        return math.inf

    def length(self, wanted: float, step_size: np.ndarray) -> float:
        """Mean length of a trajectory."""
        return min(wanted, MOST_STEPS * float(step_size))


build_sampler = MamsSampler.build
