"""Tempered sequential Monte Carlo (SMC): particles move from the prior to the posterior.

At temperature β the target is the prior times the likelihood to the power of β. At each
temperature, particles are weighted by the increment of the likelihood, resampled, and moved by
Hamiltonian Monte Carlo, which leaves the target invariant. The next β is chosen so that the weights
leave a given effective sample size. The product of the mean weights estimates the evidence; it is
unbiased except that temperatures and step sizes adapt to the particles.

Particles move in coordinates in which the prior is standard normal. They are drawn from the prior
exactly, so that the evidence is normalised, and heavy tails become as short as those of a normal. A
run reaches separate modes in proportion to their weights, up to the number of its particles. The
particles of a run are not independent of one another; runs are.

Resampling, effective sample size and moves are those of blackjax. Its adaptive loop is not used: it
moves particles before it weights them, so that they end with weights, and its step size is fixed.

References
----------
Del Moral, Doucet and Jasra (2006), Sequential Monte Carlo samplers, for the sampler and its
evidence; Jasra et al. (2011), Inference for Lévy-driven stochastic volatility models via adaptive
sequential Monte Carlo, for temperatures by the effective sample size; Buchholz, Chopin and Jacob
(2021), Adaptive tuning of Hamiltonian Monte Carlo within sequential Monte Carlo.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.smc.ess import ess_solver
from blackjax.smc.resampling import systematic
from blackjax.smc.solver import dichotomy
from jax.scipy.special import logsumexp

from pmbnn.inference.log_density import LogDensity, TemperedDensity, build_tempered_density
from pmbnn.inference.samplers.chains import Chains, Tuning, chain_keys, key_of
from pmbnn.inference.samplers.settings import Smc
from pmbnn.inference.xla.compile import compiler_options

MOST_TEMPERATURES = 1_000
"""A run with more temperatures than this is broken."""

WITHIN = 10.0
"""Range of the coordinates, standard normal a priori, where no log-likelihood may be NaN."""

SHORTEST = 1e-30
"""Smallest difference of two temperatures."""

AT_ONCE = 16
"""Number of particles that move side by side. For a small network, gradients of all 512 at once
take twice as long, as they do not fit the cache."""

NARROWEST = 1e-6
"""Smallest standard deviation by which steps are scaled."""


class Run(NamedTuple):
    """State of a run.

    Attributes
    ----------
    coordinates
        Coordinates of the particles, ``(particle, size)``, standard normal a priori.
    log_likelihood
        Log-likelihood of the particles, ``(particle,)``, in nats.
    beta
        Temperature: the power of the likelihood.
    log_evidence
        Log-evidence up to this temperature, in nats.
    step_size
        Step size of the next move, in standard deviations of the particles.
    acceptance
        Mean acceptance probability of the moves at the last temperature.
    temperatures, n_steps
        Number of temperatures so far, and of leapfrog steps of each particle.
    is_broken
        Whether some log-likelihood was NaN.
    """

    coordinates: jax.Array
    log_likelihood: jax.Array
    beta: jax.Array
    log_evidence: jax.Array
    step_size: jax.Array
    acceptance: jax.Array
    temperatures: jax.Array
    n_steps: jax.Array
    is_broken: jax.Array


def init(key, log_likelihood: Callable, size: int, settings: Smc, dtype) -> Run:
    """Particles drawn from the prior; a JAX function.

    Parameters
    ----------
    log_likelihood
        JAX function of coordinates, ``(size,)``.
    """
    coordinates = jax.random.normal(key, (settings.draws, size), dtype)
    values = jax.lax.map(log_likelihood, coordinates, batch_size=AT_ONCE)
    zero, none = jnp.zeros((), dtype), jnp.zeros((), jnp.int32)
    step_size = jnp.asarray(settings.step_size, dtype)
    is_broken = ~(values < jnp.inf).all()
    return Run(coordinates, values, zero, zero, step_size, zero, none, none, is_broken)


def build_kernel(settings: Smc) -> Callable[..., Run]:
    """Kernel of a run, which goes to the next temperature; a JAX function.

    Its arguments are the run's key, from which the key of a temperature is derived by its number;
    the run; and the log-likelihood as a function of coordinates.
    """

    def kernel(key, run: Run, log_likelihood: Callable) -> Run:
        resampling_key, moving_key = jax.random.split(jax.random.fold_in(key, run.temperatures))
        beta, log_weights = _next_temperature(run, settings)
        total = logsumexp(log_weights)
        indices = systematic(resampling_key, jnp.exp(log_weights - total), settings.draws)
        run = run._replace(
            coordinates=run.coordinates[indices],
            beta=beta,
            log_evidence=run.log_evidence + total - np.log(settings.draws),
            temperatures=run.temperatures + 1,
        )
        run = _moved(moving_key, run, log_likelihood, settings)
        values = jax.lax.map(log_likelihood, run.coordinates, batch_size=AT_ONCE)
        is_broken = run.is_broken | ~jnp.isfinite(values).all()
        return run._replace(log_likelihood=values, is_broken=is_broken)

    return kernel


def _next_temperature(run: Run, settings: Smc) -> tuple[jax.Array, jax.Array]:
    """The next temperature, and logarithms of the particles' weights, ``(particle,)``."""
    left, values = 1 - run.beta, run.log_likelihood
    step = ess_solver(lambda _: values, run.coordinates, settings.target_ess, left, dichotomy)
    # No step is short enough if many likelihoods are zero: those particles are dropped first.
    step = jnp.clip(step, SHORTEST, left)
    beta = jnp.where(step == left, 1.0, run.beta + step).astype(run.beta.dtype)
    return beta, step * values


def _moved(key, run: Run, log_likelihood: Callable, settings: Smc) -> Run:
    """A run whose particles have moved by trajectories that leave their target invariant."""
    fewest, most = settings.leapfrogs
    beta, hmc = run.beta, blackjax.hmc.build_kernel()
    variances = jnp.maximum(run.coordinates.var(axis=0), NARROWEST**2)

    def log_density(coordinates):
        prior = -0.5 * (coordinates**2).sum()
        return prior + beta * log_likelihood(coordinates)

    def move(key, state, step_size, length):
        state, info = hmc(key, state, log_density, step_size, variances, length)
        return state, (info.acceptance_rate, _met_nan(info.proposal))

    def body(i, carry):
        states, run = carry
        keys = jax.random.split(jax.random.fold_in(key, i), settings.draws + 1)
        length = jax.random.randint(keys[-1], (), fewest, most + 1, jnp.int32)
        states, (accepted, met_nan) = jax.lax.map(
            lambda one: move(*one, run.step_size, length), (keys[:-1], states), batch_size=AT_ONCE
        )
        mean = accepted.mean()
        return states, run._replace(
            step_size=run.step_size * jnp.exp(mean - settings.target_acceptance),
            acceptance=run.acceptance + mean / settings.moves,
            n_steps=run.n_steps + length,
            is_broken=run.is_broken | met_nan.any(),
        )

    states = jax.vmap(lambda x: blackjax.hmc.init(x, log_density))(run.coordinates)
    start = (states, run._replace(acceptance=jnp.zeros_like(run.acceptance)))
    states, run = jax.lax.fori_loop(0, settings.moves, body, start)
    return run._replace(coordinates=states.position)


def _met_nan(proposal) -> jax.Array:
    """Whether a trajectory ends in the range of the prior, at a density that is NaN."""
    # Far outside, a density may overflow after a step that is too long.
    is_within = (jnp.abs(proposal.position) < WITHIN).all()
    return is_within & jnp.isnan(proposal.logdensity)


class Particles(NamedTuple):
    """Particles of a finished run.

    Attributes
    ----------
    positions, log_density
        Unconstrained vectors of the particles, ``(particle, size)``, in random order, and their
        log-density, ``(particle,)``.
    run
        The run.
    """

    positions: jax.Array
    log_density: jax.Array
    run: Run


@dataclass(frozen=True, eq=False)
class SmcSampler:
    """A run as compiled programs; `build_sampler` makes one.

    A program ends at every temperature. A program of the whole run would hold gigabytes: on one
    core, memory of matrix products is freed only when their program ends (jaxlib 0.12).

    Attributes
    ----------
    density, settings
        Prior and likelihood, and the settings of the sampler.
    init, advance, finish
        Functions that return a run at its start, at its next temperature, and its particles. Their
        arguments are the key of the chain, ``(2,)`` unsigned 32-bit words, the number of the block,
        the run (not of `init`), and the prepared data.
    """

    density: TemperedDensity
    settings: Smc
    init: Callable[..., Run]
    advance: Callable[..., Run]
    finish: Callable[..., Particles]

    def start(self, prepared: tuple, identity: str) -> jax.Array:
        """State before the first run: the number of blocks of runs, 0."""
        return jnp.zeros((), jnp.int32)

    def shapes(self, prepared: tuple) -> jax.ShapeDtypeStruct:
        """Shape and type of that number."""
        return jax.ShapeDtypeStruct((), jnp.int32)

    def extend(self, state: jax.Array, prepared: tuple, identity: str) -> tuple[jax.Array, Chains]:
        """State after a new run of each chain, and the particles; runs are independent."""
        *_, keys = chain_keys(identity, self.settings.chains)
        # One after the other: side by side, all would wait for the run with the most temperatures.
        runs = [self._run(key, state, prepared) for key in keys]
        return state + 1, _chains(jax.tree.map(lambda *leaves: np.stack(leaves), *runs))

    def _run(self, key: jax.Array, block: jax.Array, prepared: tuple) -> Particles:
        run = self.init(key, block, prepared)
        while (
            float(run.beta) < 1 and not run.is_broken and int(run.temperatures) < MOST_TEMPERATURES
        ):
            run = self.advance(key, block, run, prepared)
        return jax.device_get(self.finish(key, block, run, prepared))

    def tuning(self, state: jax.Array) -> Tuning:
        """No tuned values: steps adapt at every temperature."""
        return Tuning(np.zeros(self.settings.chains, bool), {})


def _chains(particles: Particles) -> Chains:
    positions, log_density, run = particles
    finite = np.isfinite(positions).all(axis=2) & np.isfinite(log_density)
    by_run = {
        "log_evidence": run.log_evidence,
        "acceptance_rate": run.acceptance,
        "n_temperatures": run.temperatures,
        "n_steps": run.n_steps,
        "step_size": run.step_size,
    }
    statistics = {"lp": log_density, "diverging": ~finite} | {
        name: np.broadcast_to(value[:, None], finite.shape) for name, value in by_run.items()
    }
    return Chains(positions, statistics, run.is_broken | (run.beta < 1) | ~finite.all(axis=1))


def build_sampler(density: LogDensity, settings: Smc) -> SmcSampler:
    """Programs of a run of a model.

    Raises
    ------
    ValueError
        If the quantile function of a free variable's prior is not known, naming it.
    """
    tempered = build_tempered_density(density)
    kernel = build_kernel(settings)

    def split(key, block):
        """Keys of the prior draws, of the temperatures, and of the final order."""
        return jax.random.split(jax.random.fold_in(key_of(key), block), 3)

    def start(key, block, prepared):
        prior_key, _, _ = split(key, block)
        dtype = jnp.dtype(tempered.dtype)
        return init(prior_key, tempered.at(prepared), tempered.size, settings, dtype)

    def advance(key, block, run, prepared):
        _, run_key, _ = split(key, block)
        return kernel(run_key, run, tempered.at(prepared))

    def finish(key, block, run, prepared):
        # Particles with the same ancestor are neighbours.
        _, _, order_key = split(key, block)
        order = jax.random.permutation(order_key, settings.draws)
        places = jax.vmap(lambda c: tempered.place(c, prepared))(run.coordinates[order])
        return Particles(*places, run)

    options = compiler_options()
    programs = (jax.jit(one, compiler_options=options) for one in (start, advance, finish))
    return SmcSampler(tempered, settings, *programs)
