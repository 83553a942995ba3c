"""Microcanonical Langevin Monte Carlo (MCLMC), the default sampler.

A chain moves at constant speed along trajectories that the log-density bends, and its direction is
partly refreshed at every step. Steps are never rejected, so draws have a small bias, which the
variance of the energy error bounds: that variance is the only setting of the accuracy.

The integrator is that of blackjax. All chains have one step size and one decoherence length, which
the warm-up finds from all of them together; members of an ensemble have step sizes of their own, as
their modes differ in width. The warm-up runs in windows through the program that draws, so
that there is no second program to compile. A step that meets a value which is not finite is not
taken, and the chain turns round. If that happens to more chains of a window than may be broken, all
steps of the warm-up are at most half as long from then on. After the warm-up the chain is broken.

Of chains that start where the mass is, a step whose energy error is far beyond its target is not
taken either, and the chain turns round: its error counts for the step size. As steps are reversible
and the rule is the same in both directions, it changes no distribution that they would keep.
Without it, single steps throw chains of a learned scale to weights of zero, where long steps have
small errors and from where chains take long to come back. A chain that turns round often hardly
moves: steps are at most half as long from then on. Dispersed chains have large errors on their way
to the mass, which may be longer than the warm-up: they have no such limit.

References
----------
Robnik, De Luca, Silverstein and Seljak (2023), Microcanonical Hamiltonian Monte Carlo; Robnik and
Seljak (2024), Fluctuation without dissipation: Microcanonical Langevin Monte Carlo; Robnik, Bayer
and Seljak (2026), arXiv 2601.16696, for tuning by all chains together.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.integrators import (
    IntegratorState,
    isokinetic_mclachlan,
    with_isokinetic_maruyama,
)
from blackjax.util import generate_unit_vector

from pmbnn.core.stages import stage
from pmbnn.inference.log_density import LogDensity
from pmbnn.inference.samplers.chains import (
    BROKEN_SHARE,
    Chains,
    Tuning,
    chain_keys,
    find_start,
    is_finite,
    key_of,
)
from pmbnn.inference.samplers.settings import Mams, Microcanonical
from pmbnn.inference.xla.compile import compiler_options, shared


class State(NamedTuple):
    """State of all chains.

    Attributes
    ----------
    walk
        Positions and directions, ``(chain, size)``, log-densities and their gradients: the state of
        blackjax.
    step_size, length
        Length of a step, one or ``(chain,)`` of them, and the momentum decoherence length.
    is_tuned
        Whether the warm-up found a step size; one or ``(chain,)``.
    excess
        Error of steps over its target, the median over chains or that of one which is stuck; the
        largest of all kept blocks.
    draws
        Number of draws so far.
    """

    walk: IntegratorState
    step_size: jax.Array
    length: jax.Array
    is_tuned: jax.Array
    excess: jax.Array
    draws: jax.Array

    def moving_at(self, step_size: np.ndarray, length: float) -> "State":
        """The same chains with other step sizes and another decoherence length."""
        return self._replace(
            step_size=jnp.asarray(step_size, self.step_size.dtype),
            length=jnp.full_like(self.length, length),
        )


class Steps(NamedTuple):
    """How a chain moves.

    Attributes
    ----------
    size, length
        Length of a step, and the momentum decoherence length.
    limit
        Largest energy error of a step that is taken, in nats.
    """

    size: jax.Array
    length: jax.Array
    limit: jax.Array


class Draw(NamedTuple):
    """A draw that is kept, and the steps since the draw before.

    Attributes
    ----------
    position
        The unconstrained vector, ``(size,)``.
    log_density
        Log-density at the position, in nats.
    energy_error
        Mean squared energy error of the steps for each dimension, as far as the limit.
    n_not_finite
        Number of steps that met a value which is not finite.
    turned
        Share of the steps that were beyond the limit of the energy error.
    statistics
        Further statistics by ArviZ's names.
    """

    position: jax.Array
    log_density: jax.Array
    energy_error: jax.Array
    n_not_finite: jax.Array
    turned: jax.Array
    statistics: Mapping[str, jax.Array] = {}


def step(key, walk: IntegratorState, log_density: Callable, step_size, length, limit):
    """The chain after a step, its energy error in nats, and whether all was finite.

    The step is not taken, and the chain turns round, if something was not finite or the error is
    beyond `limit`.
    """
    integrate = with_isokinetic_maruyama(isokinetic_mclachlan(log_density, 1.0))
    moved, kinetic = integrate(walk, step_size, length, key)
    change = kinetic - moved.logdensity + walk.logdensity
    finite = is_finite(change, moved.logdensity_grad) & jnp.isfinite(moved.position).all()
    taken = finite & (jnp.abs(change) <= limit)
    back = walk._replace(momentum=-walk.momentum)
    walk = jax.tree.map(lambda a, b: jnp.where(taken, a, b), moved, back)
    return walk, jnp.where(finite, jnp.clip(change, -limit, limit), 0), finite


def move(key, number, walk: IntegratorState, log_density: Callable, steps, moving: Steps):
    """The chain after some steps, and the draw there by its number; a JAX function."""
    key = jax.random.fold_in(key, number)

    def body(i, carry):
        walk, squares, n_not_finite, n_turned = carry
        at = jax.random.fold_in(key, i)
        walk, change, finite = step(at, walk, log_density, *moving)
        n_turned += jnp.abs(change) >= moving.limit
        return walk, squares + change**2, n_not_finite + ~finite, n_turned

    zero, none = jnp.zeros((), walk.logdensity.dtype), jnp.zeros((), jnp.int32)
    start = (walk, zero, none, none)
    walk, squares, n_not_finite, n_turned = jax.lax.fori_loop(0, steps, body, start)
    error = squares / (steps * walk.position.size)
    return walk, Draw(walk.position, walk.logdensity, error, n_not_finite, n_turned / steps)


@dataclass(frozen=True, eq=False)
class MclmcSampler:
    """Chains of MCLMC as two compiled programs; `build` makes one.

    Attributes
    ----------
    name
        Name of the engine.
    move, statistics
        Function that takes a chain to its next draw, as `move`, and types of the further statistics
        of that draw.
    shares_step_size
        Whether all chains have one step size.
    longest_window
        Most steps of a window of the warm-up.
    decoherence
        Decoherence length, in units of the root of the sum of all variances.
    power
        The error that the step size is tuned by grows with about this power of it.
    trust
        Scale of the logarithms of errors, in units of the target, beyond which they have less
        weight. As in blackjax, so that an `energy_variance` means the same.
    first_step
        First step size, in units of the square root of the dimension: a chain that starts where the
        mass is stays there.
    is_biased
        Whether long steps bias the draws.
    density, settings
        The target, and the settings of the sampler.
    begin
        Function of the chains' keys for starts and for directions, ``(chain, 2)`` unsigned 32-bit
        words, of what starts are drawn about, and the prepared data; returns the chains at their
        starts.
    advance
        Function of the chains' keys; the chains; the number of the first draw, of the draws, and of
        the steps of each; how they move, with one step size or one for each chain; and the prepared
        data. Returns the chains and their draws, ``(chain, settings.draws, ...)``, of which only
        the first are filled.
    """

    name: ClassVar[str] = "mclmc"
    move: ClassVar[Callable[..., tuple[IntegratorState, Draw]]] = staticmethod(move)
    statistics: ClassVar[Mapping[str, type]] = {}
    shares_step_size: ClassVar[bool] = True
    longest_window: ClassVar[int | None] = None
    decoherence: ClassVar[float] = 1.9  # arXiv 2601.16696
    power: ClassVar[float] = 6.0
    trust: ClassVar[float] = 9.0
    first_step: ClassVar[float] = 0.001
    is_biased: ClassVar[bool] = True

    density: LogDensity
    settings: Microcanonical | Mams
    begin: Callable[..., IntegratorState]
    advance: Callable[..., tuple[IntegratorState, Draw]]

    @classmethod
    def build(cls, density: LogDensity, settings: Microcanonical | Mams) -> Self:
        """Programs of all chains of a model.

        Raises
        ------
        ValueError
            If the model has a single unconstrained scalar: on a line, constant speed has no
            direction.
        """
        if density.size < 2:
            raise ValueError(
                "`model` must have two unconstrained scalars at least to be sampled by "
                f"{cls.name.upper()}, got 1. Take pm.sample, whose result `pb.check` takes as "
                "`reference`."
            )
        of_start = settings.start, settings.spread, settings.descent, settings.descent_rate
        key = (cls.name, density.evaluate, density.dtype, settings.draws, *of_start)
        return cls(density, settings, *shared(key, lambda: _programs(cls, density, settings)))

    @property
    def target_error(self) -> float:
        """What `errors` of draws are to be on average."""
        return self.settings.energy_variance

    def errors(self, draws: Draw) -> np.ndarray:
        """Variance of the energy error per dimension, ``(chain, draw)``."""
        return draws.energy_error

    @property
    def limit(self) -> float:
        """Largest energy error of a step that is taken, in nats."""
        settings = self.settings
        if settings.largest_error is None:
            return math.inf
        return settings.largest_error * float(np.sqrt(settings.energy_variance * self.density.size))

    def of_all(self, failed: np.ndarray, excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Whether steps are too long, and the error over its target, from those of every chain.

        The median: a chain that is far from the posterior must not slow the others.
        """
        return failed.mean() > BROKEN_SHARE, np.median(excess)

    def length(self, wanted: float, step_size: np.ndarray) -> float:
        """Decoherence length, if nothing but the variances determined it to be `wanted`."""
        return wanted

    def start(self, prepared: tuple, identity: str, around: np.ndarray | None = None) -> State:
        """State after the warm-up."""
        settings = self.settings
        starts, moves, _ = chain_keys(identity, settings.chains)
        state, longest = self._first(self.begin(starts, moves, around, prepared)), np.inf
        for steps in windows(settings.tuning, self.longest_window):
            window = Window(self.density.size)
            for part in range(0, steps, settings.draws):
                number = min(settings.draws, steps - part)
                state, draws = self._extend(moves, state, number, 1, prepared)
                window.add(draws, self.errors(draws))
            state, longest = self._retuned(state, window, longest)
        shortest = SHORTEST * self.first_step * np.sqrt(self.density.size)
        return state._replace(
            is_tuned=state.step_size >= shortest, draws=jnp.zeros_like(state.draws)
        )

    def _retuned(self, state: State, window: "Window", longest) -> tuple[State, np.ndarray]:
        """Chains with step sizes by the last steps, and the longest that they may have."""
        excess = window.excess(self.target_error, self.trust)
        too_long, excess = self.of_all(window.not_finite | window.is_stuck, excess)
        step_size = np.asarray(state.step_size, float)
        longest = np.where(too_long, step_size / 2, longest)
        step_size = np.minimum(longest, next_step_size(step_size, excess, self.power))
        length = self.length(self.decoherence * window.spread, step_size)
        return state.moving_at(step_size, length), longest

    def _first(self, walk: IntegratorState) -> State:
        """State before the warm-up."""
        root = np.sqrt(np.asarray(self.density.size, walk.logdensity.dtype))
        step_size = self.first_step * root
        lengths = step_size, self.length(root, step_size)
        step_size, length = (jnp.asarray(value, root.dtype) for value in lengths)
        shape = () if self.shares_step_size else (self.settings.chains,)
        step_size, is_tuned = jnp.broadcast_to(step_size, shape), jnp.zeros(shape, bool)
        excess, draws = jnp.zeros((), root.dtype), jnp.zeros((), jnp.int32)
        return State(walk, step_size, length, is_tuned, excess, draws)

    def shapes(self, prepared: tuple) -> State:
        """Shapes and types of the arrays of a state."""
        starts, moves, _ = chain_keys("", self.settings.chains)
        return jax.eval_shape(self._first, self.begin.eval_shape(starts, moves, None, prepared))

    def extend(self, state: State, prepared: tuple, identity: str) -> tuple[State, Chains]:
        """State of the chains after their next draws, and these draws.

        If the error of the steps is far beyond its target, because chains had not come to the
        posterior when the warm-up ended, or a chain turned round often, the draws are thrown away
        and the step size is tuned anew.
        """
        *_, keys = chain_keys(identity, self.settings.chains)
        retries = self.settings.retries
        for attempt in range(retries + 1):
            with _again(attempt, retries):
                state, draws = self._extend(
                    keys, state, self.settings.draws, self.settings.thin, prepared
                )
            window = Window(self.density.size)
            window.add(draws, self.errors(draws))
            excess, stuck = window.excess(self.target_error, self.trust), window.is_stuck
            # A single chain that is stuck is no draw of the posterior.
            error = excess[stuck].max() if stuck.any() else np.median(excess)
            if error <= LARGEST_EXCESS or attempt == retries:
                state = state._replace(excess=jnp.maximum(state.excess, error))
                return state, self._chains(state, draws)
            too_long = stuck.any() if self.shares_step_size else stuck
            longest = np.where(too_long, np.asarray(state.step_size, float) / 2, np.inf)
            state, _ = self._retuned(state, window, longest)

    def _extend(self, keys, state: State, draws: int, steps: int, prepared) -> tuple[State, Draw]:
        """State of the chains after some draws of some steps each, and these draws."""
        numbers = (jnp.asarray(n, jnp.int32) for n in (state.draws, draws, steps))
        limit = jnp.asarray(self.limit, state.length.dtype)
        moving = Steps(state.step_size, state.length, limit)
        walk, found = self.advance(keys, state.walk, *numbers, moving, prepared)
        found = jax.tree.map(lambda array: array[:, :draws], jax.device_get(found))
        return state._replace(walk=walk, draws=state.draws + draws), found

    def tuning(self, state: State) -> Tuning:
        """Step size, the mean if members have their own, and momentum decoherence length."""
        values = {name: float(np.mean(getattr(state, name))) for name in ("step_size", "length")}
        doubt, excess = "", float(state.excess)
        if self.is_biased and excess > LARGEST_EXCESS:
            doubt = f"the energy error has {excess:.0f} times its target variance: draws are biased"
        return Tuning(np.full(self.settings.chains, ~np.asarray(state.is_tuned)), values, doubt)

    def _chains(self, state: State, draws: Draw) -> Chains:
        """Draws as `Chains`; a chain is broken if a step was not finite."""
        finite = np.isfinite(draws.position).all(axis=2) & np.isfinite(draws.log_density)
        diverging, shape = (draws.n_not_finite > 0) | ~finite, finite.shape
        statistics = {
            "lp": draws.log_density,
            "energy_error": np.sqrt(self.density.size * draws.energy_error),
            "diverging": diverging,
            "n_steps": np.full(shape, self.settings.thin),
            "step_size": np.full(shape, np.asarray(state.step_size, float)[..., None]),
        } | draws.statistics
        if np.isfinite(self.limit):
            statistics["turned"] = draws.turned
        return Chains(draws.position, statistics, diverging.any(axis=1))


@contextmanager
def _again(attempt: int, retries: int) -> Iterator[None]:
    """Draw the block as a stage that says how often the draws were made anew; 0 is none."""
    if not attempt:
        yield
        return
    with stage("sample again") as report_progress:
        report_progress(attempt, words=f"with shorter steps, attempt {attempt} of {retries}")
        yield


# Warm-up

FIRST_WINDOW = 10
"""Steps of the first windows; a later one has half as many as all before it."""

LARGEST_CHANGE = 2.0
"""Largest factor between the step sizes of two windows."""

GAIN = 0.5
"""Part of the way to the step size by this law. Near the longest stable step the power is higher,
16 for a network of rectified units: the whole way would lead far beyond the target and back."""

LARGEST_EXCESS = 4.0
"""Largest error of the steps of draws over its target. At eight times the target, chains of a
network of two layers agreed on predictions that were wrong. Means of few large errors vary, too."""

MOST_TURNED = 0.1
"""Share of the steps of a chain, in a window or block of draws, that may be beyond the limit."""

SHORTEST = 1e-3
"""Shortest tuned step size, in units of the first."""


def windows(steps: int, longest: int | None = None) -> Iterator[int]:
    """Numbers of steps of the windows of a warm-up."""
    done = 0
    while done < steps:
        window, left = min(max(FIRST_WINDOW, done // 2), longest or steps), steps - done
        # What would be left is too little for a window of its own.
        window = left if left < 2 * window else window
        yield window
        done += window


def next_step_size(step_size: np.ndarray, excess: np.ndarray, power: float) -> np.ndarray:
    """Step sizes whose errors are nearer to their target than `excess` times."""
    return step_size * np.clip(excess ** (-GAIN / power), 1 / LARGEST_CHANGE, LARGEST_CHANGE)


class Window:
    """Steps of all chains in a window of the warm-up.

    Parameters
    ----------
    size
        Dimension of the target.

    Attributes
    ----------
    not_finite
        Whether a chain met a value that is not finite, ``(chain,)``.
    """

    def __init__(self, size: int):
        self.steps, self.sums = 0, np.zeros((2, size))
        self.errors: list[np.ndarray] = []
        self.not_finite: np.ndarray = np.zeros((), bool)
        self.turned: list[np.ndarray] = []

    def add(self, draws: Draw, errors: np.ndarray) -> None:
        """Steps of all chains, ``(chain, step, ...)``, and their errors, ``(chain, step)``."""
        positions = draws.position.reshape(-1, self.sums.shape[1]).astype(np.float64)
        self.steps += len(positions)
        self.sums += positions.sum(axis=0), (positions**2).sum(axis=0)
        self.errors.append(errors)
        self.not_finite = self.not_finite | draws.n_not_finite.any(axis=1)
        self.turned.append(draws.turned)

    @property
    def is_stuck(self) -> np.ndarray:
        """Whether a chain turned round so often that it hardly moved, ``(chain,)``."""
        return np.concatenate(self.turned, axis=1).mean(axis=1) > MOST_TURNED

    @property
    def spread(self) -> float:
        """Root of the sum of the variances of all scalars, over steps and chains."""
        mean, square = self.sums / self.steps
        return float(np.sqrt((square - mean**2).clip(0).sum()))

    def excess(self, target: float, trust: float) -> np.ndarray:
        """Mean error of each chain over its target, ``(chain,)``.

        Errors far from the target have less weight, on the scale `trust`.
        """
        ratios = np.concatenate(self.errors, axis=1) / target + 1e-8
        weights = np.exp(-0.5 * (np.log(ratios) / trust) ** 2)
        return ((weights * ratios).sum(axis=1) / weights.sum(axis=1)).astype(float)


def _programs(
    cls: type[MclmcSampler], density: LogDensity, settings: Microcanonical | Mams
) -> tuple[Callable, Callable]:
    """The programs `begin` and `advance` of a sampler."""
    dtype = jnp.dtype(density.dtype)

    def begin(start_key, key, around, prepared):
        target = density.at(prepared)
        start = find_start(key_of(start_key), target, density.size, settings, dtype, around)
        return IntegratorState(
            start.position,
            generate_unit_vector(key_of(key), start.position),
            start.log_density,
            start.gradient,
        )

    def advance(keys, walk, first, draws, steps, moving: Steps, prepared):
        target = density.at(prepared)

        def chain(words, walk, moving: Steps):
            key = key_of(words)

            def body(i, carry):
                walk, kept = carry
                walk, draw = cls.move(key, first + i, walk, target, steps, moving)
                return walk, jax.tree.map(lambda array, new: array.at[i].set(new), kept, draw)

            further = {name: jnp.zeros((), of) for name, of in cls.statistics.items()}
            zero = walk.logdensity
            draw = Draw(walk.position, zero, zero, jnp.int32(0), zero, further)
            kept = jax.tree.map(lambda a: jnp.zeros((settings.draws, *a.shape), a.dtype), draw)
            return jax.lax.fori_loop(0, draws, body, (walk, kept))

        axes = Steps(None if cls.shares_step_size else 0, None, None)
        return jax.vmap(chain, (0, 0, axes))(keys, walk, moving)

    options = compiler_options()
    return (
        jax.jit(jax.vmap(begin, (0, 0, 0, None)), compiler_options=options),
        jax.jit(advance, compiler_options=options),
    )


build_sampler = MclmcSampler.build
