"""Draws of chains, their convergence, and what all samplers have in common."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
import optax

from pmbnn.core.display import Summarised
from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.result import derive_keys
from pmbnn.inference.samplers.settings import Sampling, Started

# Starts of chains: points that are moved uphill towards the posterior


NARROW = 0.1
"""Initial standard deviation of a guide, in units of that of the first points."""

CANDIDATES = 100
"""Largest number of points that are tried until density and gradient are finite, as in Stan."""


def chain_keys(identity: str, chains: int) -> Iterator[jax.Array]:
    """PRNG keys of starts, of tuning and of draws, ``(chain, 2)`` each."""
    keys = [derive_keys(f"{identity}/{chain}") for chain in range(chains)]
    for name in ("initial", "noise", "draws"):
        yield jnp.asarray(np.stack([getattr(key, name)[:2] for key in keys]), jnp.uint32)


def key_of(words) -> jax.Array:
    """Key of a generator whose numbers are the same under vmap; faster generators differ."""
    return jax.random.wrap_key_data(words, impl="threefry2x32")


class Start(NamedTuple):
    """Start of a chain.

    Attributes
    ----------
    position
        The unconstrained vector, ``(size,)``.
    log_density, gradient
        Log-density there, in nats, and its gradient, ``(size,)``.
    """

    position: jax.Array
    log_density: jax.Array
    gradient: jax.Array


def find_start(
    key, log_density: Callable, size: int, settings: Started, dtype, around=None
) -> Start:
    """Start of a chain: the point that Adam reaches from a random one; a JAX function.

    The random point is drawn about `around`, ``(size,)``, or about zero.

    Random points are drawn until density and gradient are finite at one of them. A step to a point
    where they are not is taken back. With `start` ``fit``, Adam maximises the ELBO of a mean-field
    normal guide by one draw a step, and the chain starts at the last draw.
    """
    optimiser = optax.adam(settings.descent_rate)
    is_guide = settings.start == "fit"

    def first(i):
        """Point number `i`, or a narrow guide there."""
        point = settings.spread * jax.random.normal(jax.random.fold_in(key, i), (size,), dtype)
        point = point if around is None else around + point
        return (point, jnp.full_like(point, np.log(NARROW * settings.spread)))[: 1 + is_guide]

    def place(here, i):
        """The point, or a draw of the guide."""
        if not is_guide:
            return here[0]
        noise = jax.random.normal(jax.random.fold_in(key, CANDIDATES + i), (size,), dtype)
        return here[0] + jnp.exp(here[1]) * noise

    # One evaluation of the gradient in the whole program, which takes as long to compile as all
    # else together. The loop therefore evaluates the start as it does every point before.
    def body(carry):
        i, found, here, state, good, last = carry
        at, pull = jax.vjp(lambda here: place(here, i), here)
        value, gradient = jax.value_and_grad(log_density)(at)
        is_good = is_finite(value, gradient)
        (uphill,) = pull(gradient)
        if is_guide:
            uphill = (uphill[0], uphill[1] + 1)  # of the guide's entropy
        change, new = optimiser.update(jax.tree.map(jnp.negative, uphill), state)
        moved = optax.apply_updates(here, change), new, here, Start(at, value, gradient)
        # Another first point, or back to the last good one, whose next step is a first step again.
        again = jax.tree.map(lambda a, b: jnp.where(found, a, b), good, first(i + 1))
        back = again, optimiser.init(here), good, last
        chosen = jax.tree.map(lambda a, b: jnp.where(is_good, a, b), moved, back)
        return i + 1, found | is_good, *chosen

    def goes_on(carry):
        i, found, *_ = carry
        return (i <= settings.descent) | (~found & (i < CANDIDATES))

    here, zero = first(0), jnp.zeros((), dtype)
    nowhere = Start(here[0], zero + jnp.nan, jnp.zeros(size, dtype))
    carry = np.int32(0), jnp.zeros((), bool), here, optimiser.init(here), here, nowhere
    *_, start = jax.lax.while_loop(goes_on, body, carry)
    return start


def is_finite(value, gradient) -> jax.Array:
    """Whether a log-density and its gradient are finite."""
    return jnp.isfinite(value) & jnp.isfinite(gradient).all()


# Convergence: R-hat of functions of the draws
#
# Many different weights make the same network function. Chains need not visit all of them to agree
# on every prediction, so that predictions are compared between chains, not weights.


Status = Literal["converged", "undecided", "ensemble", "diverged"]

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


BROKEN_SHARE = 1 / 8
"""Largest share of broken chains that are left out; with more there is no result."""


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
        Whether a chain met a log-density or a gradient that is not finite, ``(chain,)``. Draws of
        a broken chain are not used, and if there are too many, those of the others neither.
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

    @property
    def too_many_broken(self) -> bool:
        """Whether so many chains are broken that the others may not stand for all.

        Every run that estimates an evidence counts: without the failed ones it is biased.
        """
        tolerated = 0 if "log_evidence" in self.statistics else BROKEN_SHARE
        return bool(self.broken.mean() > tolerated)

    @property
    def whole(self) -> "Chains":
        """The chains that are not broken."""
        kept = ~self.broken
        statistics = {name: array[kept] for name, array in self.statistics.items()}
        return Chains(self.values[kept], statistics, self.broken[kept])

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
    doubt
        Why the draws so far may not be of the posterior although chains agree; empty otherwise.
    """

    failed: np.ndarray
    values: Mapping[str, float]
    doubt: str = ""


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

    def start(self, prepared: tuple, identity: str, around: np.ndarray | None = None) -> State:
        """State of tuned chains before their first draw.

        Chains start at random points about `around`, ``(chain, size)``, or about zero.
        """

    def shapes(self, prepared: tuple) -> State:
        """Shapes and types of the arrays of a state; nothing is computed."""

    def extend(self, state: State, prepared: tuple, identity: str) -> tuple[State, Chains]:
        """State of the chains after their next `settings.draws` draws, and these draws."""

    def tuning(self, state: State) -> Tuning:
        """Result of the tuning of the chains, with which their last draws were made."""


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Summarised):
    """Draws from a posterior with the verdict on their convergence.

    Attributes
    ----------
    chains
        The draws, without the few broken chains that are tolerated; of all chains if too many are
        broken.
    status, reason
        ``converged``; ``undecided`` if chains still disagree, or steps were too long; ``ensemble``
        of chains that keep to modes of their own, whether they agree or not; ``diverged`` if more
        than one chain in eight met a density that is not finite. The reason also says how many
        chains were left out, and if a prior is improper.
    convergence
        Agreement of the chains; None if too many are broken.
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
