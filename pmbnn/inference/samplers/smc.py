"""Tempered sequential Monte Carlo (SMC): particles on their way from the prior to the posterior.

The likelihood is turned on by degrees: at temperature β the target is the prior times the
likelihood to the power of β. At each, particles are weighted by what is new of the likelihood,
resampled, and moved by Hamiltonian Monte Carlo that leaves the target as it is. The next β is where
the weights leave a given effective sample size; means of the weights multiply to the evidence,
whose estimate is unbiased but for what temperatures and step sizes have learnt from the particles.

Particles move in coordinates in which the prior is standard normal. They are drawn from it exactly,
so that the evidence has its constant, and heavy tails are as short as the normal's. A run reaches
separate modes in proportion to their weights, as far as its particles go; they are not independent
of one another, but runs are.

Resampling, effective sample size and moves are blackjax's. Its own adaptive loop moves particles
before it weights them, so that they come out weighted at the last temperature, and its steps are of
one size.

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
from pmbnn.inference.samplers.chains import Chains, Tuning
from pmbnn.inference.samplers.settings import Smc
from pmbnn.inference.samplers.starts import chain_keys, key_of
from pmbnn.inference.xla.compile import compiler_options

MOST_TEMPERATURES = 1_000
"""A run that has not arrived by then is broken."""

WITHIN = 10.0
"""Coordinates, standard normal a priori, that a log-likelihood must be a number within."""

SHORTEST = 1e-30
"""Smallest difference of two temperatures."""

AT_ONCE = 16
"""Particles that move side by side: of a small network, a gradient of all 512 at once takes twice
as long, as they do not fit the cache."""

NARROWEST = 1e-6
"""Smallest standard deviation of the particles that steps are scaled by."""


class Run(NamedTuple):
    """A run on its way.

    Attributes
    ----------
    coordinates
        Of the particles, ``(particle, size)``: standard normal a priori.
    log_likelihood
        Theirs, ``(particle,)``, in nats.
    beta
        Temperature: the power of the likelihood.
    log_evidence
        So far, in nats.
    step_size
        Of the next move, in standard deviations of the particles.
    acceptance
        Mean acceptance probability of the moves at the last temperature.
    temperatures, n_steps
        How many there were, and leapfrog steps of each particle at all of them.
    is_broken
        Whether a log-likelihood was not a number.
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
    """The kernel of a run: from one temperature to the next; a JAX function.

    Its arguments are the run's key, from which that of a temperature is derived by its number; the
    run; and the log-likelihood as a function of coordinates.
    """

    def kernel(key, run: Run, log_likelihood: Callable) -> Run:
        resampling_key, moving_key = jax.random.split(jax.random.fold_in(key, run.temperatures))
        beta, log_weights = _next(run, settings)
        total = logsumexp(log_weights)
        chosen = systematic(resampling_key, jnp.exp(log_weights - total), settings.draws)
        found = run._replace(
            coordinates=run.coordinates[chosen],
            beta=beta,
            log_evidence=run.log_evidence + total - np.log(settings.draws),
            temperatures=run.temperatures + 1,
        )
        found = _moved(moving_key, found, log_likelihood, settings)
        values = jax.lax.map(log_likelihood, found.coordinates, batch_size=AT_ONCE)
        is_broken = found.is_broken | ~jnp.isfinite(values).all()
        return found._replace(log_likelihood=values, is_broken=is_broken)

    return kernel


def is_under_way(run: Run) -> bool:
    """Whether there is a next temperature."""
    beta, is_broken, temperatures = jax.device_get((run.beta, run.is_broken, run.temperatures))
    return bool(beta < 1 and not is_broken and temperatures < MOST_TEMPERATURES)


def _next(run: Run, settings: Smc) -> tuple[jax.Array, jax.Array]:
    """The next temperature, and logarithms of the particles' weights, ``(particle,)``."""
    left, values = 1 - run.beta, run.log_likelihood
    step = ess_solver(lambda _: values, run.coordinates, settings.target_ess, left, dichotomy)
    # No step is short enough where many likelihoods are zero: these go first, by themselves.
    step = jnp.clip(step, SHORTEST, left)
    beta = jnp.where(step == left, 1.0, run.beta + step).astype(run.beta.dtype)
    return beta, step * values


def _moved(key, run: Run, log_likelihood: Callable, settings: Smc) -> Run:
    """Particles after some trajectories that leave their target as it is."""
    fewest, most = settings.leapfrogs
    hmc = blackjax.hmc.build_kernel()
    variances = jnp.maximum(run.coordinates.var(axis=0), NARROWEST**2)

    def log_density(coordinates):
        prior = -0.5 * (coordinates**2).sum()
        return prior + run.beta * log_likelihood(coordinates)

    def move(key, state, step_size, length):
        state, info = hmc(key, state, log_density, step_size, variances, length)
        return state, (info.acceptance_rate, _met_nan(info.proposal))

    def body(i, carry):
        states, step_size, acceptance, n_steps, is_broken = carry
        keys = jax.random.split(jax.random.fold_in(key, i), settings.draws + 1)
        length = jax.random.randint(keys[-1], (), fewest, most + 1, jnp.int32)
        states, (accepted, met_nan) = jax.lax.map(
            lambda of: move(*of, step_size, length), (keys[:-1], states), batch_size=AT_ONCE
        )
        mean = accepted.mean()
        return (
            states,
            step_size * jnp.exp(mean - settings.target_acceptance),
            acceptance + mean / settings.moves,
            n_steps + length,
            is_broken | met_nan.any(),
        )

    states = jax.vmap(lambda x: blackjax.hmc.init(x, log_density))(run.coordinates)
    start = (states, run.step_size, jnp.zeros_like(run.acceptance), run.n_steps, run.is_broken)
    states, step_size, acceptance, n_steps, is_broken = jax.lax.fori_loop(
        0, settings.moves, body, start
    )
    return run._replace(
        coordinates=states.position,
        step_size=step_size,
        acceptance=acceptance,
        n_steps=n_steps,
        is_broken=is_broken,
    )


def _met_nan(proposal) -> jax.Array:
    """Whether a trajectory ends where the prior may be but the density is not a number."""
    # A step that is too long leads far out before anything overflows.
    is_within = (jnp.abs(proposal.position) < WITHIN).all()
    return is_within & jnp.isnan(proposal.logdensity)


class Drawn(NamedTuple):
    """A run that is done.

    Attributes
    ----------
    positions, log_density
        Unconstrained vectors of the particles, ``(particle, size)``, in random order, and their
        log-density, ``(particle,)``.
    run
        What else is known of it.
    """

    positions: jax.Array
    log_density: jax.Array
    run: Run


@dataclass(frozen=True, eq=False)
class SmcSampler:
    """A run as compiled programs; `build_sampler` makes one.

    A program ends at every temperature: one of the whole run would hold gigabytes, because a core
    by itself gives back what a product of matrices took only when its program ends (jaxlib 0.12).

    Attributes
    ----------
    density, settings
        Prior and likelihood, and how particles move.
    init, advance, finish
        A run at its start, at its next temperature, and done: from the key of its chain, ``(2,)``
        unsigned 32-bit words, the number of the block, the run but at the start, and the prepared
        data.
    """

    density: TemperedDensity
    settings: Smc
    init: Callable[..., Run]
    advance: Callable[..., Run]
    finish: Callable[..., Drawn]

    def start(self, prepared: tuple, identity: str) -> jax.Array:
        """No block of runs so far: the state is their number."""
        return jnp.zeros((), jnp.int32)

    def shapes(self, prepared: tuple) -> jax.ShapeDtypeStruct:
        """That of a number."""
        return jax.ShapeDtypeStruct((), jnp.int32)

    def extend(self, state: jax.Array, prepared: tuple, identity: str) -> tuple[jax.Array, Chains]:
        """A new run of each chain, independent of those before."""
        *_, chains = chain_keys(identity, self.settings.chains)
        # One after the other: side by side, all would wait for the one of most temperatures.
        runs = [self._run(words, state, prepared) for words in chains]
        return state + 1, _chains(jax.tree.map(lambda *leaves: np.stack(leaves), *runs))

    def _run(self, words: jax.Array, block: jax.Array, prepared: tuple) -> Drawn:
        run = self.init(words, block, prepared)
        while is_under_way(run):
            run = self.advance(words, block, run, prepared)
        return jax.device_get(self.finish(words, block, run, prepared))

    def tuning(self, state: jax.Array) -> Tuning:
        """Nothing: steps adapt as particles go."""
        return Tuning(np.zeros(self.settings.chains, bool), {})


def _chains(drawn: Drawn) -> Chains:
    run = drawn.run
    finite = np.isfinite(drawn.positions).all(axis=2) & np.isfinite(drawn.log_density)
    of_runs = {
        "log_evidence": run.log_evidence,
        "acceptance_rate": run.acceptance,
        "n_temperatures": run.temperatures,
        "n_steps": run.n_steps,
        "step_size": run.step_size,
    }
    shape = finite.shape
    statistics = {"lp": drawn.log_density, "diverging": ~finite} | {
        name: np.broadcast_to(value[:, None], shape) for name, value in of_runs.items()
    }
    return Chains(drawn.positions, statistics, run.is_broken | (run.beta < 1) | ~finite.all(axis=1))


def build_sampler(density: LogDensity, settings: Smc) -> SmcSampler:
    """Programs of a run of a model.

    Raises
    ------
    ValueError
        If the quantile function of a free variable's prior is not known, naming it.
    """
    tempered = build_tempered_density(density)
    kernel = build_kernel(settings)

    def keys_of(words, block):
        return jax.random.split(jax.random.fold_in(key_of(words), block), 3)

    def of(prepared):
        return lambda coordinates: tempered.log_likelihood(coordinates, prepared)

    def start(words, block, prepared):
        prior_key, _, _ = keys_of(words, block)
        dtype = jnp.dtype(tempered.dtype)
        return init(prior_key, of(prepared), tempered.size, settings, dtype)

    def advance(words, block, run, prepared):
        _, key, _ = keys_of(words, block)
        return kernel(key, run, of(prepared))

    def finish(words, block, run, prepared):
        # Particles of one ancestor lie side by side.
        _, _, order_key = keys_of(words, block)
        order = jax.random.permutation(order_key, settings.draws)
        places = jax.vmap(lambda c: tempered.place(c, prepared))(run.coordinates[order])
        return Drawn(*places, run)

    options = compiler_options()
    programs = (jax.jit(one, compiler_options=options) for one in (start, advance, finish))
    return SmcSampler(tempered, settings, *programs)
