"""Draws of chains, their convergence, and what all samplers have in common."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from pmbnn.core.display import Summarised
from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.result import derive_keys
from pmbnn.inference.samplers.settings import Dispersed, Sampling
from pmbnn.inference.xla.compile import compiler_options

# Starts of chains: dispersed points, moved uphill towards the posterior


NARROW = 0.1
"""Initial standard deviation of a guide, in units of that of the dispersed points."""

CANDIDATES = 100
"""Largest number of starts that are tried until density and gradient are finite, as in Stan."""


def chain_keys(identity: str, chains: int) -> Iterator[jax.Array]:
    """PRNG keys of starts, of tuning and of draws, ``(chain, 2)`` each."""
    keys = [derive_keys(f"{identity}/{chain}") for chain in range(chains)]
    for name in ("initial", "noise", "draws"):
        yield jnp.asarray(np.stack([getattr(key, name)[:2] for key in keys]), jnp.uint32)


def key_of(words) -> jax.Array:
    """Key of a generator whose numbers are the same under vmap; faster generators differ."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def find_start(key, log_density: Callable, size: int, settings: Dispersed, dtype) -> jax.Array:
    """Start of a chain, ``(size,)``: uphill from a dispersed point; a JAX function."""
    point = _dispersed(key, log_density, size, settings, dtype)
    if settings.uphill == "elbo":
        return _drawn_uphill(jax.random.fold_in(key, 1), point, log_density, settings)
    return _uphill(point, lambda _, x: log_density(x), settings)


def _drawn_uphill(key, point, log_density: Callable, settings: Dispersed) -> jax.Array:
    """A draw of the mean-field normal guide that is found uphill from a point."""
    step_key, draw_key = jax.random.split(key)

    def draw(key, guide):
        mean, log_sd = guide
        return mean + jnp.exp(log_sd) * jax.random.normal(key, mean.shape, mean.dtype)

    def elbo(i, guide):
        at = draw(jax.random.fold_in(step_key, i), guide)
        return log_density(at) + guide[1].sum()

    narrow = jnp.full_like(point, np.log(NARROW * settings.spread))
    return draw(draw_key, _uphill((point, narrow), elbo, settings))


def is_finite(value, gradient) -> jax.Array:
    """Whether a log-density and its gradient are finite."""
    return jnp.isfinite(value) & jnp.isfinite(gradient).all()


def _dispersed(key, log_density: Callable, size: int, settings: Dispersed, dtype) -> jax.Array:
    """The first of some dispersed points whose density and gradient are finite."""
    points = settings.spread * jax.random.normal(key, (CANDIDATES, size), dtype)

    def is_bad(point):
        return ~is_finite(*jax.value_and_grad(log_density)(point))

    # One after the other, as the first is nearly always finite.
    i = jax.lax.while_loop(
        lambda i: (i < CANDIDATES - 1) & is_bad(points[i]), lambda i: i + 1, np.int32(0)
    )
    return points[i]


def _uphill(start, objective: Callable, settings: Dispersed):
    """Point that Adam reaches from `start`; steps to values that are not finite are not taken.

    Parameters
    ----------
    start
        A tree of arrays.
    objective
        JAX function of the number of the step and a tree like `start`.
    """
    optimiser = optax.adam(settings.descent_rate)
    loss_and_gradient = jax.value_and_grad(lambda x, i: -objective(i, x))

    def body(i, carry):
        here, state = carry
        value, gradient = loss_and_gradient(here, i)
        change, new = optimiser.update(gradient, state)
        taken = is_finite(value, ravel_pytree(gradient)[0])
        moved = optax.apply_updates(here, change)
        return jax.tree.map(lambda a, b: jnp.where(taken, a, b), (moved, new), carry)

    end, _ = jax.lax.fori_loop(0, settings.descent, body, (start, optimiser.init(start)))
    value, gradient = loss_and_gradient(end, settings.descent)
    taken = is_finite(value, ravel_pytree(gradient)[0])
    return jax.tree.map(lambda a, b: jnp.where(taken, a, b), end, start)


# Convergence: R-hat of functions of the draws
#
# Many different weights make the same network function. Chains need not visit all of them to agree
# on every prediction, so that predictions are compared between chains, not weights.


Status = Literal["converged", "undecided", "diverged"]

PERCENTILE, AT_PERCENTILE = 95, 1.02
LARGEST = 1.05
"""Largest R-hat at this percentile of the functions, and of all functions, that passes.

For single parameters 1.01 is recommended (Vehtari et al. 2021); the largest R-hat of hundreds of
functions exceeds that by chance alone."""


@dataclass(frozen=True)
class Convergence:
    """Agreement of chains on functions of their draws.

    Attributes
    ----------
    percentile, largest
        R-hat at the 95th percentile of the functions, and the largest; 1 if all are constant.
    draws
        Number of draws of each chain that were compared.
    """

    percentile: float
    largest: float
    draws: int

    @property
    def passed(self) -> bool:
        """Whether the chains agree well enough to be draws of one distribution."""
        return self.percentile <= AT_PERCENTILE and self.largest <= LARGEST

    def __str__(self) -> str:
        at_percentile = f"R-hat {self.percentile:.3f} at the {PERCENTILE}th percentile"
        return f"{at_percentile}, {self.largest:.3f} at most"

    @classmethod
    def of(cls, values: np.ndarray) -> "Convergence":
        """From values of functions, ``(chain, draw, function)``."""
        rhat = function_rhat(values)
        with np.errstate(invalid="ignore"):
            percentile = np.percentile(rhat, PERCENTILE)
        # Interpolation between two infinities gives NaN.
        percentile = np.inf if np.isnan(percentile) else percentile
        return cls(float(percentile), float(rhat.max()), values.shape[1])


def function_rhat(values: np.ndarray) -> np.ndarray:
    """Rank-normalised split R-hat of every function, ``(function,)``.

    Parameters
    ----------
    values
        ``(chain, draw, function)``, with at least two chains and four draws.

    Returns
    -------
    np.ndarray
        1 for a function that is the same constant in every draw; infinity if R-hat is undefined:
        some value is not finite, or each chain has another constant.

    References
    ----------
    Vehtari et al. (2021), Rank-normalization, folding, and localization: An improved R-hat for
    assessing convergence of MCMC, section 4.
    """
    from arviz_stats.base import array_stats

    values = np.asarray(values)
    usable = np.isfinite(values).all(axis=(0, 1))
    constant = usable & (np.ptp(values, axis=(0, 1)) == 0)
    rhat = np.where(constant, 1.0, np.inf)
    varying = usable & ~constant
    if varying.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            defined = array_stats.rhat(values[..., varying], chain_axis=0, draw_axis=1)
        rhat[varying] = np.where(np.isnan(defined), np.inf, defined)
    return rhat


@dataclass(frozen=True, eq=False, repr=False)
class Chains(Summarised):
    """Draws of all chains.

    Attributes
    ----------
    values
        Unconstrained vectors, ``(chain, draw, size)``.
    statistics
        Statistics of the draws, ``(chain, draw)``, by ArviZ's names: ``lp``, the log-density in
        nats, ``diverging``, and those that only some samplers have.
    broken
        Whether a chain met a log-density or a gradient that is not finite, ``(chain,)``; its draws
        are not used.
    """

    values: np.ndarray
    statistics: Mapping[str, np.ndarray]
    broken: np.ndarray

    @property
    def draws(self) -> int:
        """Draws of each chain."""
        return self.values.shape[1]

    @property
    def merged(self) -> np.ndarray:
        """Draws of all chains one after the other, ``(chain · draw, size)``."""
        return self.values.reshape(-1, self.values.shape[-1])

    def followed_by(self, later: "Chains") -> "Chains":
        """The same chains with later draws."""
        return Chains(
            np.concatenate([self.values, later.values], axis=1),
            {
                name: np.concatenate([array, later.statistics[name]], axis=1)
                for name, array in self.statistics.items()
            },
            self.broken | later.broken,
        )


class Evidence(NamedTuple):
    """Logarithm of the evidence, and its standard error from independent runs; in nats."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.error:.2f}"

    @classmethod
    def of(cls, runs: np.ndarray) -> "Evidence":
        """Mean of the evidences of at least two runs, whose logarithms may be repeated per draw.

        The evidence of a run is an unbiased estimate, its logarithm is not.
        """
        # Equal values of several chains are different runs.
        runs = np.sort(np.concatenate([np.unique(chain) for chain in np.asarray(runs, np.float64)]))
        ratios = np.exp(runs - runs.max())
        error = ratios.std(ddof=1) / np.sqrt(len(runs)) / ratios.mean()
        return cls(float(runs.max() + np.log(ratios.mean())), float(error))


class Tuning(NamedTuple):
    """Result of the tuning of chains.

    Attributes
    ----------
    failed
        Chains that could not be tuned, ``(chain,)``.
    values
        Tuned values, by name.
    """

    failed: np.ndarray
    values: Mapping[str, float]


class Sampler[State](Protocol):
    """All chains of a model as compiled programs, for any data of the same shapes.

    Its methods are called within ``precision(density.dtype)``, with the prepared data and an
    identity that determines every random number. The state of its chains is a tree of arrays.

    Attributes
    ----------
    density, settings
        The target, and the settings of the sampler.
    """

    density: LogDensity
    settings: Sampling

    def start(self, prepared: tuple, identity: str) -> State:
        """State of tuned chains before their first draw."""

    def shapes(self, prepared: tuple) -> State:
        """Shapes and types of the arrays of a state; nothing is computed."""

    def extend(self, state: State, prepared: tuple, identity: str) -> tuple[State, Chains]:
        """State of the chains after their next `settings.draws` draws, and these draws."""

    def tuning(self, state: State) -> Tuning:
        """Result of the tuning of the chains."""


def side_by_side(function: Callable) -> Callable:
    """Function of all chains at once: a chain's first two arguments get an axis of chains."""
    return jax.vmap(function, (0, 0, None))


def one_after_the_other(function: Callable) -> Callable:
    """As `side_by_side`, one chain after the other within one program."""
    return lambda *chains_and_data: jax.lax.map(
        lambda chain: function(*chain, chains_and_data[-1]), chains_and_data[:-1]
    )


@dataclass(frozen=True, eq=False)
class MarkovChains[State](ABC):
    """A `Sampler` that moves every chain by a kernel, as two compiled programs.

    Attributes
    ----------
    density, settings
        The target, and the settings of the sampler.
    init
        Function that returns tuned chains. Its arguments are the chains' keys for starts and for
        tuning, ``(chain, 2)`` unsigned 32-bit words, and the prepared data.
    advance
        Function that returns the chains and the next block of their draws, ``(chain, draw, ...)``.
        Its arguments are the chains' keys for draws, their states, and the prepared data.
    """

    density: LogDensity
    settings: Sampling
    init: Callable[..., State]
    advance: Callable[..., tuple[State, Any]]

    @classmethod
    def build(
        cls,
        density: LogDensity,
        settings: Sampling,
        init: Callable[..., State],
        kernel: Callable[..., tuple[State, Any]],
        map_chains: Callable[[Callable], Callable],
    ) -> Self:
        """Programs of all chains from the functions `init` and `kernel` of one chain.

        Parameters
        ----------
        map_chains
            `side_by_side` or `one_after_the_other`.
        """

        def start(start_key, key, prepared):
            keys = key_of(start_key), key_of(key)
            target, dtype = density.at(prepared), jnp.dtype(density.dtype)
            return init(*keys, target, density.size, settings, dtype)

        def advance(key, state, prepared):
            target = density.at(prepared)
            return jax.lax.scan(
                lambda state, _: kernel(key_of(key), state, target), state, length=settings.draws
            )

        options = compiler_options()
        programs = (jax.jit(map_chains(f), compiler_options=options) for f in (start, advance))
        return cls(density, settings, *programs)

    def start(self, prepared: tuple, identity: str) -> State:
        """State of tuned chains before their first draw."""
        starts, moves, _ = chain_keys(identity, self.settings.chains)
        return self.init(starts, moves, prepared)

    def shapes(self, prepared: tuple) -> State:
        """Shapes and types of the arrays of a state."""
        starts, moves, _ = chain_keys("", self.settings.chains)
        return self.init.eval_shape(starts, moves, prepared)

    def extend(self, state: State, prepared: tuple, identity: str) -> tuple[State, Chains]:
        """State of the chains after their next draws, and these draws."""
        *_, keys = chain_keys(identity, self.settings.chains)
        state, draws = self.advance(keys, state, prepared)
        return state, self.chains(state, jax.device_get(draws))

    @abstractmethod
    def chains(self, state: State, draws: Any) -> Chains:
        """Draws of the kernel as `Chains`."""

    @abstractmethod
    def tuning(self, state: State) -> Tuning:
        """Result of the tuning of the chains."""


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Summarised):
    """Draws from a posterior with the verdict on their convergence.

    Attributes
    ----------
    chains
        The draws.
    status, reason
        ``converged``; ``undecided`` if chains still disagree; ``diverged`` if some chain met a
        density that is not finite. The reason also says if a prior is improper.
    convergence
        Agreement of the chains; None if some chain is broken.
    tuned
        Tuned values of the sampler, by name.
    evidence
        Evidence of all draws, if `chains` holds a part of them only.
    """

    chains: Chains
    status: Status
    reason: str
    convergence: Convergence | None
    tuned: Mapping[str, float]
    evidence: Evidence | None = None

    @property
    def log_evidence(self) -> Evidence | None:
        """Logarithm of the evidence; None if it is not estimated or a run is broken."""
        if self.evidence is not None:
            return self.evidence
        runs = self.chains.statistics.get("log_evidence")
        return None if runs is None or self.chains.broken.any() else Evidence.of(runs)
