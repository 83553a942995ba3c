"""A compiled ADVI program: a model's ELBO and the gradient steps that raise it.

`pmbnn.inference.advi` has the public names.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pymc as pm

from pmbnn.core.display import Summarised
from pmbnn.core.spec import Tune
from pmbnn.core.stages import staged
from pmbnn.inference.batches import cast, flatten_for_steps, model_values, stack
from pmbnn.inference.coordinates import Coordinates
from pmbnn.inference.dropout import find_masks
from pmbnn.inference.elbo import ROW_WEIGHTS, Objective, build_objective, row_weights
from pmbnn.inference.flat import FlatModel, ModelGraphs, n_observations, value_shapes
from pmbnn.inference.guides import Guide, build_guide
from pmbnn.inference.observed import check_support
from pmbnn.inference.result import Replica, derive_keys
from pmbnn.inference.settings import Inference
from pmbnn.inference.unsupported import explained
from pmbnn.inference.xla.compile import (
    compiler_options,
    jax_function,
    precision,
    split_jax_function,
)
from pmbnn.inference.xla.random import draw_noise
from pmbnn.inference.xla.rewrites import Leaves, computed_once, divided, divided_graph, joined

# Learning-rate schedules, optimisers and the averaging of their steps


WARM_UP = 0.1
"""Share of the steps in which a one-cycle schedule rises."""
START = 25.0
"""Ratio of the highest to the first rate of a one-cycle schedule (Smith and Topin 2018)."""

DIRECTIONS = {
    "adam": optax.scale_by_adam,
    "adamax": optax.scale_by_adamax,
    "sgd": optax.identity,
}


def relative_rate[A: (jax.Array, np.ndarray)](settings: Inference, step: A, steps: A | int) -> A:
    """Learning rate at `step` of `steps`, relative to the highest; for arrays of JAX or NumPy."""
    schedule, xp = settings.schedule, step.__array_namespace__()
    if schedule == "exponential":
        return settings.decay ** (step / steps)
    if schedule == "constant":
        return xp.ones_like(step / steps)
    if schedule == "cosine":
        return 0.5 * (1 + xp.cos(xp.pi * step / steps))
    warm_up = xp.maximum(1, xp.round(WARM_UP * steps))
    rising = 1 / START + (1 - 1 / START) * step / warm_up
    falling = 0.5 * (1 + xp.cos(xp.pi * (step - warm_up) / xp.maximum(1, steps - warm_up)))
    return xp.where(step < warm_up, rising, falling)


def build_optimiser(settings: Inference) -> optax.GradientTransformation:
    """Direction of a step at learning rate 1, which is subtracted from the parameters.

    References
    ----------
    Kingma and Ba (2015), Adam: A Method for Stochastic Optimization, algorithms 1 and 2.
    """
    direction = DIRECTIONS[settings.optimiser]()
    if settings.clip is None:
        return direction
    return optax.chain(optax.clip_by_global_norm(settings.clip), direction)


def averaged(average, parameters, step: jax.Array, share: float):
    """Running average of parameters after `step` steps, mostly over their last `share`.

    Unlike the mean of the last steps it does not need to know which step is the last.

    References
    ----------
    Shamir and Zhang (2013), Stochastic Gradient Descent for Non-smooth Optimization,
    section 4 (polynomial-decay averaging).
    """
    weight = jnp.minimum(1.0, 1 / (share * step))
    return jax.tree.map(lambda a, p: (a + weight * (p - a)).astype(p.dtype), average, parameters)


MAP_SHARE = 0.1
"""Share of the steps that the MAP fit for the initial means takes."""

type Parameters = dict[str, jax.Array | Leaves]


class State(NamedTuple):
    """State of a fit; the vectors of a large network are divided into leaves.

    With several fits at once, the first axis of every array is that of the fits.

    Attributes
    ----------
    parameters
        The guide's unconstrained parameters.
    average
        Their running average; empty unless the settings have ``iterate_averaging``.
    optimiser
        The optimiser's state.
    step
        Number of steps done.
    """

    parameters: Parameters
    average: Parameters
    optimiser: optax.OptState
    step: jax.Array


class Info(NamedTuple):
    """Parts of the ELBO, ``log_likelihood - kl``, in nats, summed over the steps of a call.

    Attributes
    ----------
    log_likelihood
        Log-probability of all observations and potentials, at a draw of the guide.
    kl
        Divergence of the guide from the prior, unweighted.
    """

    log_likelihood: jax.Array
    kl: jax.Array


# The program of a model


@dataclass(frozen=True, eq=False, repr=False)
class Program(Summarised):
    """Compiled program that the fits of one model share; `build_program` makes one.

    Attributes
    ----------
    settings, rows, width, dtype
        Arguments of `build_program`.
    batch, padding
        Number of rows that a step sees, and of further rows with weight 0.
    allow_fewer_rows
        Whether it also runs fits of fewer rows.
    flat, guide, objective
        Graphs of the model, of the guide, and of the ELBO.
    optimiser
        Direction of a step at learning rate 1, which is subtracted.
    precompute, evaluate
        The objective as two JAX functions: the part that depends on the data alone; and the rest, a
        function of parameters and noise, in order, and of the outputs of the first.
    starter
        Program of the MAP fits for the initial means, if the settings have them.
    """

    settings: Inference
    rows: int
    width: int
    dtype: str
    batch: int
    padding: int
    allow_fewer_rows: bool
    flat: FlatModel
    guide: Guide
    objective: Objective
    optimiser: optax.GradientTransformation
    precompute: Callable[..., tuple]
    evaluate: Callable[..., tuple]
    starter: "Program | None"

    @property
    def steps(self) -> int:
        """Number of gradient steps of a fit."""
        return self.settings.total_steps(self.rows)

    @property
    def improper(self) -> bool:
        """Whether the ELBO has no maximum."""
        return self.guide.scale_cap is not None

    def supports(self, n_rows: int) -> bool:
        """Whether it runs fits of this number of rows."""
        least = 1 if self.batch == self.rows else self.batch
        return n_rows == self.rows or (self.allow_fewer_rows and least <= n_rows < self.rows)

    def start(self, parameters: Parameters) -> State:
        """Initial state of a fit, from unconstrained parameters of the guide."""
        parameters = {name: jnp.asarray(p, self.dtype) for name, p in parameters.items()}
        parameters = divided(parameters, self.objective.leaves)
        average = parameters if self.settings.iterate_averaging else {}
        return State(parameters, average, self.optimiser.init(parameters), jnp.zeros((), jnp.int32))

    def prepare(self, data) -> tuple[jax.Array, ...]:
        """Arrays that the objective needs of data by name: the part that depends on data alone."""
        return self.precompute(*(data[name] for name in self.objective.data))

    def parts(self, parameters: Parameters, noise, prepared) -> Info:
        """Log-likelihood and divergence of the objective, at given noise."""
        # By name, as JAX sorts the keys of dictionaries.
        inputs = [parameters[n] for n in self.objective.parameters]
        inputs += [noise[n] for n in self.objective.noise]
        arrays = jax.tree.leaves(divided(inputs, self.objective.leaves))
        return Info(*self.evaluate(*arrays, *prepared))

    def loss(self, parameters: Parameters, noise, prepared, kl_weight) -> tuple[jax.Array, Info]:
        """Negative ELBO at the given KL weight, and its parts."""
        info = self.parts(parameters, noise, prepared)
        return kl_weight * info.kl - info.log_likelihood, info

    def noise(self, key, step) -> dict[str, jax.Array | Leaves]:
        """Noise of one step."""
        shapes = {n: (v.kind, v.variable.type.shape) for n, v in self.objective.noise.items()}
        return draw_noise(key, step, shapes, self.objective.leaves, self.dtype)

    def kl_weight(self, step, steps):
        """KL weight at a step: it rises from zero to that of the settings while it is annealed."""
        weight, share = self.settings.kl_weight, self.settings.kl_annealing
        return weight * jnp.minimum(1.0, step / (share * steps)) if share else weight

    # Compiled for `width` replicas

    def _each(self, function: Callable) -> Callable:
        return jax.jit(jax.vmap(function, axis_size=self.width) if self.width > 1 else function)

    @cached_property
    def compiled_run(self) -> Callable:
        """`run` as a program of all replicas."""
        return jax.jit(partial(_run, self), compiler_options=compiler_options())

    @cached_property
    def compiled_start(self) -> Callable:
        """`start` as a program."""
        return self._each(self.start)

    @cached_property
    def compiled_prepare(self) -> Callable:
        """`prepare` as a program."""
        return self._each(self.prepare)

    @cached_property
    def compiled_constrained(self) -> Callable[[Parameters], tuple[dict, jax.Array]]:
        """Constrained parameters and standard deviations of a guide's own parameters."""
        parameters = self.objective.parameters
        constrained = self.guide.constrained(parameters)
        outputs = [*constrained.values(), self.guide.marginal_scale(constrained)]
        graph = jax_function(list(parameters.values()), outputs)

        def evaluate(values: Parameters):
            *arrays, scale = graph(*(values[n] for n in parameters))
            return dict(zip(constrained, arrays, strict=True)), scale

        return self._each(evaluate)


@staged("build")
def build_program(
    model: pm.Model | ModelGraphs,
    settings: Inference | None = None,
    rows: int | None = None,
    width: int = 1,
    dtype: str = "float32",
    allow_fewer_rows: bool = False,
    coordinates: Coordinates | None = None,
) -> Program:
    """Program of the fits of one model.

    Parameters
    ----------
    model
        Only its graph is used, not the values of its data.
    settings
        Settings of the fits; by default those of `Inference`.
    rows
        Number of training rows of each replica: the length of the dim ``observation``; by default
        that of the model's data.
    width
        Number of replicas that run at once. Shorter groups are padded, so that the numbers of a
        replica do not depend on the others; with 1 they run one by one, on all cores.
    dtype
        ``float32``, which is enough for networks; or ``float64``, the default of ``pb.fit`` for
        other models.
    allow_fewer_rows
        Whether it also runs fits of fewer rows, if the model allows it. A second program takes
        seconds to compile; with 704 rows for 560, a step takes 1.15 of its time.
    coordinates
        Coordinates in which the guide moves; see `Guide`. Fits start at their origin, with scales
        of one there.

    Raises
    ------
    ValueError
        If guide, estimator or minibatches do not fit the model, or if JAX cannot compute its
        gradient; the message names the variable.
    """
    settings = settings or Inference()
    rows = n_observations(model) if rows is None else rows
    flat, batch, padding, allow_fewer_rows = flatten_for_steps(
        model, rows, settings.batch, settings.has_entropy, allow_fewer_rows
    )
    improper = flat.improper and settings.has_entropy
    masks = find_masks(flat) if settings.guide == "dropout" else None
    guide = build_guide(settings, flat.size, improper, flat.spread, coordinates, masks)
    objective = build_objective(
        flat, guide, settings, rows, batch, padding, allow_fewer_rows=allow_fewer_rows
    )
    with precision(dtype), explained(flat, dtype):
        precompute, evaluate = split_objective(objective)
    return Program(
        settings=settings,
        rows=rows,
        width=width,
        dtype=dtype,
        batch=batch,
        padding=padding,
        allow_fewer_rows=allow_fewer_rows,
        flat=flat,
        guide=guide,
        objective=objective,
        optimiser=build_optimiser(settings),
        precompute=precompute,
        evaluate=evaluate,
        starter=_build_starter(model, settings, rows, width, dtype, allow_fewer_rows),
    )


def split_objective(objective: Objective) -> tuple[Callable[..., tuple], Callable[..., tuple]]:
    """``precompute`` and ``evaluate`` of a `Program`; call it within `precision`."""
    inputs = [*objective.parameters.values(), *(n.variable for n in objective.noise.values())]
    outputs = [objective.log_likelihood, objective.kl]
    graph = divided_graph(inputs, outputs, objective.leaves)
    return split_jax_function(list(objective.data.values()), *graph)


def _build_starter(model, settings: Inference, rows: int, *options) -> Program | None:
    if settings.initial_mean != "map":
        return None
    steps = max(1, round(MAP_SHARE * settings.total_steps(rows)))
    changes = {"guide": "map", "estimator": "reparameterisation", "kl_scaling": "sum"}
    changes |= {"initial_mean": "fan_in", "iterate_averaging": 0.0, "early_stop": False}
    changes |= {"steps": steps, "epochs": None, "dropout_rate": None}
    settings = settings.model_copy(update=changes)
    return build_program(model, settings, rows, *options)


# Replicas and their data


def build_replicas(
    model: pm.Model, restarts: int = 1, random_seed: int = 0, identity: str = "fit_model"
) -> list[Replica]:
    """Independent fits of a model with the current values of its data variables.

    They are those of ``pb.fit(model, restarts=restarts, random_seed=random_seed)``.

    Parameters
    ----------
    restarts
        Number of fits.
    random_seed
        Determines initial values, noise and minibatches.
    identity
        Fits with another identity have other PRNG keys at the same seed.

    Raises
    ------
    ValueError
        If an observation is outside the support of its distribution.
    """
    check_support(model, value_shapes(model))
    names = [f"{identity}/{random_seed}/{restart}" for restart in range(restarts)]
    return [Replica(model_values(model), derive_keys(name)) for name in names]


def prepare(replicas: Replica | Sequence[Replica], program: Program) -> Any:
    """Data of replicas as `step` and `run` take them.

    With minibatches, arrays by name. If a step sees all rows, the part of the objective that
    depends on the data alone is computed here, once.

    Parameters
    ----------
    replicas
        One replica, or a list of `program.width`.

    Raises
    ------
    ValueError
        If labels or counts are outside the support of the model, or if the number of replicas is
        not `program.width`.
    """
    replicas, flat = as_list(replicas, program), program.flat
    for replica in replicas:
        flat.check_labels(replica.data)
    rows = n_rows(replicas, program)
    padding, weights = program.padding + program.rows - rows, {}
    if program.allow_fewer_rows:
        step = (rows, padding) if program.batch == program.rows else (program.batch, 0)
        weights = {ROW_WEIGHTS: row_weights(rows, *step).astype(program.dtype)}
    with precision(program.dtype), explained(flat, program.dtype):
        data = [cast(r.data, program.dtype, flat.row_data, padding) | weights for r in replicas]
        data = stack(data, program.width)
        # A separate program: in that of the loop, XLA would read the arrays transposed.
        return program.compiled_prepare(data) if program.batch == program.rows else data


def n_rows(replicas: Sequence[Replica], program: Program) -> int:
    """Number of rows of each replica."""
    if not program.allow_fewer_rows:
        return program.rows
    return len(replicas[0].data[program.flat.row_data[0]])


def as_list(replicas: Replica | Sequence[Replica], program: Program) -> Sequence[Replica]:
    """Replicas as a list of `program.width`."""
    replicas = [replicas] if isinstance(replicas, Replica) else replicas
    if len(replicas) != program.width:
        n = len(replicas)
        raise ValueError(f"`replicas` must be {program.width} for this program, got {n}.")
    return replicas


# Steps


def step(
    key,
    state: State,
    program: Program,
    data,
    rows=None,
    learning_rate=None,
    steps: int | None = None,
) -> tuple[State, Info]:
    """The state after one gradient step, and the parts of the ELBO before it.

    Called directly, it runs the compiled program of ``pb.fit`` and gives the same numbers to the
    last bit. Within ``jax.jit``, ``jax.lax.scan`` or ``jax.vmap`` it is traced into that program,
    and its numbers differ by rounding.

    Parameters
    ----------
    key
        Key of the fit's noise, ``(2,)`` unsigned 32-bit words: ``replica.key``, or
        ``jax.random.key_data(key)`` for a key of JAX. The noise of a step depends on the key and
        on ``state.step``, so all steps of a fit take the same key.
    state
        Result of `init` or of the step before.
    program
        Result of `build_program`.
    data
        Result of `prepare`.
    rows
        Rows that the step sees, ``(batch,)``, if the settings have a ``batch``.
    learning_rate
        The highest learning rate, which the schedule scales; by default that of the settings.
    steps
        Number of steps that the schedule spans; by default that of the settings.

    Raises
    ------
    ValueError
        If rows are missing, or given although a step sees all of them.

    References
    ----------
    Kucukelbir et al. (2017), Automatic Differentiation Variational Inference, algorithm 1.
    """
    if not _is_traced(key, state, data, rows, learning_rate, steps):
        rows = None if rows is None else np.expand_dims(rows, -2)
        return run(key, state, program, data, 1, rows, learning_rate, steps)
    arguments = _checked(key, program, rows, learning_rate, steps)
    with precision(program.dtype):
        return _step(program, state, data, *arguments)


def run(
    key,
    state: State,
    program: Program,
    data,
    n: int,
    rows=None,
    learning_rate=None,
    steps: int | None = None,
) -> tuple[State, Info]:
    """The state after `n` gradient steps, and the sums of the ELBO's parts over them.

    One compiled loop serves any `n`. An exact divergence is computed at both ends of the loop only;
    its sum is that of a straight line between them.

    Parameters
    ----------
    key, state, program, data, learning_rate, steps
        As in `step`.
    n
        Number of steps.
    rows
        Rows that each step sees, ``(step, batch)``, if the settings have a ``batch``.

    Raises
    ------
    ValueError
        If rows are missing, or given although a step sees all of them.
    """
    is_traced = _is_traced(key, state, data, n, rows, learning_rate, steps)
    advance = partial(_run, program) if is_traced else program.compiled_run
    arguments = _checked(key, program, rows, learning_rate, steps)
    with precision(program.dtype), explained(program.flat, program.dtype):
        return advance(state, data, *arguments, n)


def _is_traced(*arguments) -> bool:
    """Whether JAX is tracing some array."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(arguments))


def _checked(key, program: Program, rows, learning_rate, steps) -> tuple:
    """Key, rows, highest learning rate and number of steps as a program takes them."""
    if (rows is None) != (program.batch == program.rows):
        needed = "left out: a step sees all rows" if rows is not None else "given: a step sees some"
        raise ValueError(f"`rows` must be {needed} (`batch` is {program.settings.batch}).")
    if learning_rate is None:
        if isinstance(program.settings.learning_rate, Tune):
            raise ValueError("`learning_rate` must be given: the settings have a search for it.")
        learning_rate = program.settings.learning_rate
    if np.ndim(learning_rate) == 0 and not isinstance(learning_rate, jax.Array):
        shape = (program.width,) if program.width > 1 else ()
        learning_rate = np.full(shape, learning_rate, program.dtype)
    return key, rows, learning_rate, program.steps if steps is None else steps


def _run(program: Program, state: State, data, key, rows, learning_rate, steps, n):
    """`run`; all but `n` and `steps` have replicas on the first axis if there are several.

    The map over replicas is within the loop: JAX would trace the body of a mapped loop three times.
    """
    is_noisy = program.objective.has_noisy_kl

    def each(function):
        return jax.vmap(function) if program.width > 1 else function

    def body(i, carry):
        def one(state, total, data, key, rows, learning_rate):
            step_rows = None if rows is None else rows[i]
            state, info = _step(program, state, data, key, step_rows, learning_rate, steps)
            kl = info.kl if is_noisy else jnp.zeros_like(info.kl)
            return state, total + jnp.stack([info.log_likelihood, kl])

        return each(one)(*carry, data, key, rows, learning_rate)

    sums = jnp.zeros((*jnp.shape(learning_rate), 2), program.dtype)
    end, sums = jax.lax.fori_loop(0, n, body, (state, sums))
    if not is_noisy:
        divergence = jax.jit(each(partial(_divergence, program)))  # traced once for both
        first, last = (divergence(at, data, key, rows) for at in (state, end))
        sums = sums.at[..., 1].set(n * first + (n - 1) / 2 * (last - first))
    return end, Info(sums[..., 0], sums[..., 1])


def _divergence(program: Program, state: State, data, key, rows) -> jax.Array:
    """Divergence at the parameters of a state, with the noise and rows of its next step."""
    noise = program.noise(key, state.step)
    step_rows = None if rows is None else rows[0]
    return program.parts(state.parameters, noise, _prepared(program, data, step_rows)).kl


def _prepared(program: Program, data, rows) -> tuple[jax.Array, ...]:
    """Arrays that the objective needs for the rows of a step."""
    if rows is None:
        return data
    by_row = program.objective.row_data
    return program.prepare({n: v[rows] if n in by_row else v for n, v in data.items()})


def _step(program: Program, state: State, data, key, rows, learning_rate, steps):
    """`step` of one replica."""
    settings, prepared = program.settings, _prepared(program, data, rows)
    noise = program.noise(key, state.step)
    weight = program.kl_weight(state.step, steps)
    gradient, info = jax.grad(program.loss, has_aux=True)(state.parameters, noise, prepared, weight)
    gradient = jax.tree.map(computed_once, gradient)
    direction, optimiser = program.optimiser.update(gradient, state.optimiser)
    rate = computed_once(learning_rate * relative_rate(settings, state.step, steps))
    parameters = jax.tree.map(
        lambda p, d: p - (rate * d).astype(p.dtype), state.parameters, direction
    )
    done, average = state.step + 1, state.average
    if share := settings.iterate_averaging:
        average = averaged(average, parameters, done, share)
    return State(parameters, average, optimiser, done), info


def constrained_parameters(state: State, program: Program) -> dict[str, np.ndarray]:
    """Constrained parameters of the guide, by name: ``loc`` and, for a mean-field one, ``scale``.

    They are those of the running average if the settings have ``iterate_averaging``.
    """
    return constrained_and_scale(reported(state, program), program)[0]


def constrained_and_scale(parameters: Parameters, program: Program) -> tuple[dict, np.ndarray]:
    """Constrained parameters from unconstrained ones, and the scale of each element."""
    with precision(program.dtype):
        return jax.device_get(program.compiled_constrained(joined(parameters)))


def reported(state: State, program: Program) -> Parameters:
    """Parameters of fits at a state: the running average, if there is one."""
    return state.average if program.settings.iterate_averaging else state.parameters
