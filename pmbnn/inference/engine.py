"""The compiled engine: a whole group of fits as one program.

The objective of one model becomes a JAX function; its gradient steps are looped inside XLA
and mapped over the replicas of the group, which share the graph and differ in data values and
PRNG keys only. Between windows of the loop the host looks at the ELBO: for progress,
for checkpoints, and to stop what has diverged or converged.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import pymc as pm

from pmbnn.inference.batches import batch_indices, cast, flatten_for_steps, stack
from pmbnn.inference.checkpoint import (
    Checkpoint,
    Checkpoints,
    ChunkState,
    ParameterSnapshot,
    arrays_of,
    kept,
    restored,
)
from pmbnn.inference.convergence import final_mean, may_stop, verdict
from pmbnn.inference.elbo import ROW_WEIGHTS, Objective, build_objective, row_weights
from pmbnn.inference.flat import FlatModel, ModelGraphs
from pmbnn.inference.guides import Guide, build_guide
from pmbnn.inference.initial import initial_means
from pmbnn.inference.loop import Loop, Parameters, State, build_loop
from pmbnn.inference.optimisers import relative_rate
from pmbnn.inference.result import Fit, History, Progress, Replica, Snapshot
from pmbnn.inference.settings import Inference
from pmbnn.inference.stages import stage, staged
from pmbnn.inference.unsupported import explained
from pmbnn.inference.xla.compile import compiler_options, jax_function, precision
from pmbnn.inference.xla.partition import joined
from pmbnn.spec.display import Summarised

WINDOWS = 200
"""Into how many windows a fit is cut: one point of its history each."""

MAP_SHARE = 0.1
"""Share of the steps that a MAP fit takes which gives the means their start."""


@dataclass(frozen=True, eq=False, repr=False)
class Program(Summarised):
    """Everything compiled for the fits of one model; `build_program` makes one.

    Attributes
    ----------
    settings, rows, width, dtype
        As given to `build_program`.
    steps, window
        Length of a fit, and of a window of its history.
    batch, padding
        Rows that a step sees, and rows after them that do not count.
    fewer
        Whether it also runs fits of fewer rows.
    flat, guide, objective, loop
        What is compiled.
    improper
        Whether the ELBO has no maximum.
    start, prepare, advance, divergence
        Those of `loop` as programs, over replicas on the first axis if there are several.
    constrained
        Constrained parameters and standard deviations of a guide's own parameters.
    starter
        Of the MAP fits that give means their start, where that is asked for.
    """

    settings: Inference
    rows: int
    width: int
    dtype: str
    steps: int
    window: int
    batch: int
    padding: int
    fewer: bool
    flat: FlatModel
    guide: Guide
    objective: Objective
    loop: Loop
    improper: bool
    start: Callable
    prepare: Callable
    advance: Callable
    divergence: Callable
    constrained: Callable[[Parameters], tuple[dict, jax.Array]]
    starter: "Program | None"

    def takes(self, rows: int) -> bool:
        """Whether it runs fits of so many rows."""
        least = 1 if self.batch == self.rows else self.batch
        return rows == self.rows or (self.fewer and least <= rows < self.rows)


@staged("build")
def build_program(
    model: pm.Model | ModelGraphs,
    settings: Inference,
    rows: int,
    width: int = 1,
    dtype: str = "float32",
    fewer: bool = False,
) -> Program:
    """The program of fits of one model.

    Parameters
    ----------
    model
        Of any replica: only its graph is used.
    rows
        Number of training rows of each replica: the length of the dim ``observation``.
    width
        Replicas that it runs at once. Shorter groups are padded, so that the numbers of a
        replica never depend on its company; 1 runs them one by one, on all cores.
    dtype
        ``float32`` or ``float64``.
    fewer
        Whether it is to run fits of fewer rows as well, where the model's rows count one by one:
        two programs cost seconds; with 704 rows for 560, a step takes 1.15 of its time.

    Raises
    ------
    ValueError
        If the guide, the estimator or minibatches do not fit the model, or if it cannot be
        fitted by gradients through JAX; the message names the variable.
    """
    flat, batch, padding, fewer = flatten_for_steps(
        model, rows, settings.batch, jacobian=not settings.is_point, fewer=fewer
    )
    steps = settings.total_steps(rows)
    improper = flat.improper and not settings.is_point
    guide = build_guide(settings, flat.size, improper, flat.spread)
    objective = build_objective(flat, guide, settings, rows, batch, padding, fewer=fewer)
    with precision(dtype), explained(flat, dtype):
        loop = build_loop(objective, settings, dtype)
        constrained = _constrained(guide, objective)
    start, prepare, advance, divergence = loop.start, loop.prepare, loop.window, loop.divergence
    if width > 1:
        start = jax.vmap(start)
        prepare = jax.vmap(prepare, axis_size=width)
        advance = partial(advance, several=True)
        divergence, constrained = jax.vmap(divergence), jax.vmap(constrained)
    return Program(
        settings=settings,
        rows=rows,
        width=width,
        dtype=dtype,
        steps=steps,
        window=-(-steps // WINDOWS),
        batch=batch,
        padding=padding,
        fewer=fewer,
        flat=flat,
        guide=guide,
        objective=objective,
        loop=loop,
        improper=improper,
        start=jax.jit(start),
        prepare=jax.jit(prepare),
        advance=jax.jit(advance, compiler_options=compiler_options()),
        divergence=jax.jit(divergence, compiler_options=compiler_options()),
        constrained=jax.jit(constrained),
        starter=_build_starter(model, settings, rows, width, dtype, fewer),
    )


def _constrained(guide: Guide, objective: Objective) -> Callable:
    """Constrained parameters and standard deviations as a JAX function of a guide's own."""
    constrained = guide.constrained(objective.parameters)
    outputs = [*constrained.values(), guide.marginal_scale(constrained)]
    graph = jax_function(list(objective.parameters.values()), outputs)

    def of(parameters: Parameters):
        *arrays, scale = graph(*(parameters[n] for n in objective.parameters))
        return dict(zip(constrained, arrays, strict=True)), scale

    return of


def _build_starter(model, settings: Inference, rows, width, dtype, fewer) -> Program | None:
    if settings.initial_mean != "map":
        return None
    plain = {"initial_mean": "fan_in", "estimator": "reparameterisation", "iterate_averaging": 0.0}
    length = {"steps": max(1, round(MAP_SHARE * settings.total_steps(rows))), "epochs": None}
    point = {"guide": "map", "kl_scaling": "sum", "early_stop": False}
    settings = settings.model_copy(update=point | plain | length)
    return build_program(model, settings, rows, width, dtype, fewer)


# Fitting


def fit(
    program: Program,
    replicas: Sequence[Replica],
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
    steps: int | None = None,
    snapshots: Sequence[int] = (),
) -> list[Fit]:
    """Fits of every replica; one that diverges neither stops nor touches the others.

    Parameters
    ----------
    checkpoints
        Where to leave checkpoints, and to look for those of an interrupted call with the
        same replicas; none unless given.
    steps
        Length of the fits; that of the settings unless given.
    snapshots
        Steps after which to keep the guide as it is then; those that a fit does not reach
        are left out.
    """
    fits: list[Fit] = []
    for first in range(0, len(replicas), program.width):
        own = list(replicas[first : first + program.width])
        padded = tuple(own + [own[0]] * (program.width - len(own)))
        checkpoint = None if checkpoints is None else checkpoints.of(f"{first}")
        with precision(program.dtype):
            chunk = _build_chunk(program, padded, first, steps)
            run = _run(chunk, progress, checkpoint, snapshots)
            fits += _results(chunk, run, len(own))
    return fits


@dataclass(frozen=True)
class _Chunk:
    """As many replicas as a program runs at once, and what it takes of them.

    ``first`` is the number of the first one, ``rows`` how many each has, ``steps`` the length of
    their fits; the rest is as `Loop.window` has it, replicas on the first axis if there are
    several.
    """

    program: Program
    replicas: tuple[Replica, ...]
    first: int
    rows: int
    steps: int
    data: Any
    keys: jax.Array
    rates: jax.Array


def _build_chunk(program: Program, replicas, first: int, steps: int | None) -> _Chunk:
    it, dtype = program, program.dtype
    for replica in replicas:
        it.flat.check_labels(replica.data)
    rows = len(replicas[0].data[it.flat.row_data[0]]) if it.fewer else it.rows
    padding, more = it.padding + it.rows - rows, {}
    if it.fewer:
        own = (rows, padding) if it.batch == it.rows else (it.batch, 0)
        more = {ROW_WEIGHTS: row_weights(rows, *own).astype(dtype)}
    data = [cast(r.data, dtype, it.flat.row_data, padding) | more for r in replicas]
    data = stack(data, it.width)
    if it.batch == it.rows:
        with explained(it.flat, dtype):
            data = it.prepare(data)
    keys = stack([np.asarray(r.keys.noise[:2], np.uint32) for r in replicas], it.width)
    rates = [np.asarray(r.highest_rate(it.settings), dtype) for r in replicas]
    rates, steps = stack(rates, it.width), steps or it.settings.total_steps(rows)
    return _Chunk(it, replicas, first, rows, steps, data, keys, rates)


def _run(
    chunk: _Chunk, progress: Progress | None, checkpoint: Checkpoint | None, wanted: Sequence[int]
) -> ChunkState:
    """The run of a chunk to its end, from its checkpoint if there is one."""
    program, steps, run = chunk.program, chunk.steps, None
    if checkpoint is not None:
        anywhere = [np.zeros(program.flat.size)] * len(chunk.replicas)
        run = restored(checkpoint, start_run(program, chunk.replicas, anywhere))
    if run is None:
        run = start_run(program, chunk.replicas, start_means(program, chunk.replicas))
    with stage("compile"):
        _advanced(chunk, run, 0)
    with stage("fit", steps, "step") as went_on:
        run = _with_snapshot(chunk, run, wanted)
        while run.done < steps and not _is_over(program, run):
            ends = (at - run.done for at in (steps, *wanted) if at > run.done)
            run = _with_window(chunk, run, min(program.window, *ends))
            run = _with_snapshot(chunk, run, wanted)
            elbo, said = _mean_elbo(program, run), None
            if progress is not None:
                said = progress(run.done, steps, elbo, lambda run=run: _results(chunk, run, 1)[0])
            went_on(run.done, words=", ".join(filter(None, [f"ELBO {elbo:,.1f}", said])))
            if checkpoint is not None:
                checkpoint.save_if_due(partial(arrays_of, run))
    if checkpoint is not None:
        checkpoint.save_if_due(partial(arrays_of, run), at_end=True)
    return run


def start_means(program: Program, replicas: Sequence[Replica]) -> list[np.ndarray]:
    """Where the means of each replica start, ``(size,)`` each."""
    if program.starter is not None:
        return [found.loc for found in fit(program.starter, replicas)]
    generators = [np.random.default_rng(r.keys.initial) for r in replicas]
    return [initial_means(program.flat.layout, program.settings, rng) for rng in generators]


def start_run(
    program: Program, replicas: Sequence[Replica], means: Sequence[np.ndarray]
) -> ChunkState:
    """The run before its first step; the rest of the guide starts from the same keys."""
    starts = []
    for replica, mean in zip(replicas, means, strict=True):
        rng = np.random.default_rng([*replica.keys.initial, 1])
        mean = np.asarray(mean, np.float64)
        starts.append(program.guide.initial(mean, program.settings.initial_scale, rng))
    typed = [cast(start, program.dtype) for start in starts]
    state = program.start(stack(typed, program.width))
    return ChunkState(state, [], [], np.zeros(len(replicas), np.int64))


def _with_window(chunk: _Chunk, run: ChunkState, n: int) -> ChunkState:
    """The run with `n` more steps; replicas that had stopped stay where they were."""
    program, (state, sums) = chunk.program, _advanced(chunk, run, n)
    if run.stopped.any():
        state = kept(run.state, state, run.stopped > 0)
    ends = [*run.ends, run.done + n]
    means = np.asarray(sums, np.float64).reshape(-1, 2) / n
    run = run._replace(state=state, sums=[*run.sums, means], ends=ends)
    if not program.settings.early_stop:
        return run
    elbo, rates = _elbo(program, np.stack(run.sums)), _rate_sums(chunk, run.ends)
    settled = [may_stop(history, np.array(run.ends), rates) for history in elbo.T]
    newly = np.where((run.stopped == 0) & np.array(settled), len(run.ends), 0)
    return run._replace(stopped=run.stopped + newly)


def _advanced(chunk: _Chunk, run: ChunkState, n: int) -> tuple[State, jax.Array]:
    """State after `n` more steps, and sums over these; none compile what the next ones need."""
    program, batches = chunk.program, _batches(chunk, run.done, chunk.program.window)
    with explained(program.flat, program.dtype):
        return program.advance(
            run.state, chunk.data, batches, chunk.keys, chunk.rates, n, chunk.steps
        )


def _with_snapshot(chunk: _Chunk, run: ChunkState, wanted: Sequence[int]) -> ChunkState:
    """The run with what is to be kept of where it is, if anything is."""
    if run.done not in wanted or run.done in {snapshot.step for snapshot in run.snapshots}:
        return run
    kl = chunk.program.divergence(run.state, chunk.data, _batches(chunk, run.done, 1), chunk.keys)
    parameters = _parameters(chunk.program, run)
    snapshot = ParameterSnapshot(run.done, parameters, np.asarray(kl, np.float64).reshape(-1))
    return run._replace(snapshots=(*run.snapshots, snapshot))


def _batches(chunk: _Chunk, done: int, steps: int):
    """Rows of the next steps of each replica; None if a step sees all."""
    program = chunk.program
    if program.batch == program.rows:
        return None
    rows = [
        batch_indices(r.keys.batches, chunk.rows, program.batch, done, steps)
        for r in chunk.replicas
    ]
    return stack([np.asarray(r, np.int32) for r in rows], program.width)


# What a run has come to


def _is_over(program: Program, run: ChunkState) -> bool:
    """Whether every replica has diverged or stopped."""
    if not run.ends:
        return False
    return bool((~np.isfinite(_elbo(program, run.sums[-1])) | (run.stopped > 0)).all())


def _elbo(program: Program, parts: np.ndarray) -> np.ndarray:
    """Mean ELBO of each replica, and of each window if there are several."""
    with np.errstate(invalid="ignore"):  # infinite parts of a fit that diverges
        return parts[..., 0] - program.settings.kl_weight * parts[..., 1]


def _mean_elbo(program: Program, run: ChunkState) -> float:
    """Mean ELBO of the replicas that have not diverged."""
    last = _elbo(program, run.sums[-1])
    alive = last[np.isfinite(last)]
    return float(alive.mean()) if alive.size else float("nan")


def _rate_sums(chunk: _Chunk, ends: Sequence[int]) -> np.ndarray:
    """Sum of the relative learning rates of the steps in each window."""
    rates = relative_rate(chunk.program.settings, np.arange(ends[-1]), chunk.steps)
    return np.add.reduceat(np.asarray(rates), [0, *ends[:-1]])


def _parameters(program: Program, run: ChunkState) -> Parameters:
    """Parameters that count as those of the fits where they are."""
    return run.state.average if program.settings.iterate_averaging else run.state.parameters


def _constrained_of(
    program: Program, parameters: Parameters
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Constrained parameters and standard deviations, replicas on the first axis."""
    constrained, scale = jax.device_get(program.constrained(joined(parameters)))
    if program.width == 1:
        constrained, scale = {k: v[None] for k, v in constrained.items()}, scale[None]
    return constrained, scale


def _results(chunk: _Chunk, run: ChunkState, count: int) -> list[Fit]:
    """Fits of the first replicas, as far as they have come."""
    program = chunk.program
    constrained, scale = _constrained_of(program, _parameters(program, run))
    snapshots = [(s.step, *_constrained_of(program, s.parameters), s.kl) for s in run.snapshots]
    parts, rates = np.stack(run.sums), _rate_sums(chunk, run.ends)
    ends, elbo = np.array(run.ends), _elbo(program, parts)
    fits = []
    for i, replica in enumerate(chunk.replicas[:count]):
        own = slice(0, run.stopped[i] or None)
        history = History(ends[own], elbo[own, i], parts[own, i, 0], parts[own, i, 1])
        arrays = {name: array[i] for name, array in constrained.items()}
        finite = all(np.isfinite(a).all() for a in (*arrays.values(), scale[i]))
        status, reason = verdict(history.elbo, ends[own], rates[own], finite, program.improper)
        fits.append(
            Fit(
                constrained=arrays,
                scale=scale[i],
                history=history,
                elbo=final_mean(history.elbo),
                status=status,
                reason=reason,
                keys=replica.keys,
                learning_rate=replica.highest_rate(program.settings),
                kl_forms=program.objective.kl_forms,
                snapshots=tuple(
                    Snapshot(step, {k: v[i] for k, v in at.items()}, sd[i], float(kl[i]))
                    for step, at, sd, kl in snapshots
                ),
                replica=chunk.first + i,
            )
        )
    return fits
