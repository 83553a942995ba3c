"""Groups of fits that share one program and differ in data values and PRNG keys only.

Between windows of the compiled loop, progress is reported, checkpoints are left, and what has
diverged or converged is stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.core.stages import stage
from pmbnn.inference.batches import batch_indices, cast, stack
from pmbnn.inference.checkpoint import Checkpoint, Checkpoints, arrays_of, restored
from pmbnn.inference.convergence import final_mean, may_stop, verdict
from pmbnn.inference.guides import initial_means
from pmbnn.inference.optimisers import relative_rate
from pmbnn.inference.program import (
    Info,
    Parameters,
    Program,
    State,
    as_many,
    constrained_and_scale,
    n_rows,
    prepare,
    reported,
)
from pmbnn.inference.result import Fit, History, Progress, Replica, Snapshot
from pmbnn.inference.unsupported import explained
from pmbnn.inference.xla.compile import precision

WINDOWS = 200
"""Into how many windows a fit is cut: one point of its history each."""


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
        padded = own + [own[0]] * (program.width - len(own))
        checkpoint = None if checkpoints is None else checkpoints.of(f"{first}")
        with precision(program.dtype):
            group = _build_group(program, padded, first, steps, snapshots)
            fits += _results(group, _run_to_end(group, progress, checkpoint), len(own))
    return fits


# What a fit starts from


def init(
    replicas: Replica | Sequence[Replica],
    program: Program,
    means: Sequence[np.ndarray] | None = None,
) -> State:
    """State before the first step.

    Parameters
    ----------
    replicas
        One replica, or a list of `program.width`.
    means
        Where the guide's means start, ``(size,)`` of each replica; as the settings say unless
        given.

    Raises
    ------
    ValueError
        If the number of replicas is not `program.width`.
    """
    replicas = as_many(replicas, program)
    starts = []
    means = start_means(program, replicas) if means is None else means
    for replica, mean in zip(replicas, means, strict=True):
        rng = np.random.default_rng([*replica.keys.initial, 1])
        mean = np.asarray(mean, np.float64)
        starts.append(program.guide.initial(mean, program.settings.initial_scale, rng))
    with precision(program.dtype):
        typed = [cast(start, program.dtype) for start in starts]
        return program.compiled_start(stack(typed, program.width))


def start_means(program: Program, replicas: Sequence[Replica]) -> list[np.ndarray]:
    """Where the means of each replica start, ``(size,)`` each."""
    if program.starter is not None:
        return [found.loc for found in fit(program.starter, replicas)]
    generators = [np.random.default_rng(r.keys.initial) for r in replicas]
    return [initial_means(program.flat.layout, program.settings, rng) for rng in generators]


# Groups


class GroupState(NamedTuple):
    """State of a group's fits, and their histories: the arrays that a checkpoint stores.

    Attributes
    ----------
    state
        The replicas' states.
    windows
        Number of windows done, ``()``.
    sums
        Sums of log-likelihood and divergence in each window, ``(window, replica, 2)``; not
        numbers of those to come.
    stopped
        Windows after which each replica stopped early; 0 while it has not, ``(replica,)``.
    snapshots, snapshot_kl
        Parameters at the steps asked for, ``(snapshot, ...)``, and the divergences there,
        ``(snapshot, replica)``; zeros of those to come.
    """

    state: State
    windows: np.ndarray
    sums: np.ndarray
    stopped: np.ndarray
    snapshots: Parameters
    snapshot_kl: np.ndarray


@dataclass(frozen=True)
class _Group:
    """As many replicas as a program runs at once, and what it takes of them.

    ``first`` is the number of the first one, ``rows`` how many each has, ``steps`` the length of
    their fits, ``window`` that of a window, ``ends`` the steps done at the end of each,
    ``wanted`` the steps with a snapshot; the rest is as `run` has it.
    """

    program: Program
    replicas: Sequence[Replica]
    first: int
    rows: int
    steps: int
    window: int
    ends: np.ndarray
    wanted: list[int]
    data: Any
    key: jax.Array
    rates: jax.Array

    @cached_property
    def lengths(self) -> np.ndarray:
        """Steps of each window."""
        return np.diff(self.ends, prepend=0)

    def done(self, at: GroupState) -> int:
        """Steps done."""
        return int(self.ends[at.windows - 1]) if at.windows else 0

    def parts(self, at: GroupState) -> np.ndarray:
        """Mean log-likelihood and divergence of each window done, ``(window, replica, 2)``."""
        return at.sums[: at.windows] / self.lengths[: at.windows, None, None]

    def elbo(self, at: GroupState) -> np.ndarray:
        """Mean ELBO of each window done, ``(window, replica)``."""
        parts = self.parts(at)
        with np.errstate(invalid="ignore"):  # infinite parts of a fit that diverges
            return parts[..., 0] - self.program.settings.kl_weight * parts[..., 1]

    def rate_sums(self, at: GroupState) -> np.ndarray:
        """Sum of the relative learning rates of the steps in each window done."""
        ends = self.ends[: at.windows]
        rates = relative_rate(self.program.settings, np.arange(ends[-1]), self.steps)
        return np.add.reduceat(np.asarray(rates), [0, *ends[:-1]])

    def is_over(self, at: GroupState) -> bool:
        """Whether every replica is at its end, has diverged, or has stopped."""
        if not at.windows:
            return False
        over = ~np.isfinite(self.elbo(at)[-1]) | (at.stopped > 0)
        return self.done(at) == self.steps or bool(over.all())

    def advanced(self, at: GroupState, n: int) -> tuple[State, Info]:
        """State after `n` more steps, and sums over these; none compile what the next ones need."""
        program, rows = self.program, None
        if program.batch < program.rows:
            see = self.rows, program.batch, self.done(at), self.window
            rows = [batch_indices(r.keys.batches, *see).astype(np.int32) for r in self.replicas]
            rows = stack(rows, program.width)
        # `run` without its checks: windows of a small network take less than a millisecond.
        return program.compiled_run(at.state, self.data, self.key, rows, self.rates, self.steps, n)


def _build_group(
    program: Program, replicas: Sequence[Replica], first: int, steps: int | None, wanted
) -> _Group:
    rows, width, settings = n_rows(replicas, program), program.width, program.settings
    steps, window = steps or settings.total_steps(rows), -(-program.steps // WINDOWS)
    wanted = sorted({step for step in wanted if step <= steps})
    ends, done = [], 0
    while done < steps:
        done = min(done + window, *(at for at in (steps, *wanted) if at > done))
        ends.append(done)
    return _Group(
        program=program,
        replicas=replicas,
        first=first,
        rows=rows,
        steps=steps,
        window=window,
        ends=np.array(ends),
        wanted=wanted,
        data=prepare(replicas, program),
        key=stack([r.key for r in replicas], width),
        rates=stack([np.asarray(r.highest_rate(settings), program.dtype) for r in replicas], width),
    )


def _start(group: _Group, means: Sequence[np.ndarray] | None = None) -> GroupState:
    """State before the first step."""
    state, n = init(group.replicas, group.program, means), len(group.wanted)
    return GroupState(
        state=state,
        windows=np.array(0),
        sums=np.full((len(group.ends), len(group.replicas), 2), np.nan),
        stopped=np.zeros(len(group.replicas), np.int64),
        snapshots=jax.tree.map(lambda p: np.zeros((n, *p.shape), p.dtype), state.parameters),
        snapshot_kl=np.zeros((n, len(group.replicas))),
    )


def _run_to_end(
    group: _Group, progress: Progress | None, checkpoint: Checkpoint | None
) -> GroupState:
    """State at the end of a group's fits; they go on from their checkpoint if there is one."""
    at, steps = None, group.steps
    if checkpoint is not None:
        anywhere = [np.zeros(group.program.flat.size)] * len(group.replicas)
        at = restored(checkpoint, _start(group, anywhere))
    at = at or _start(group)
    with stage("compile"), explained(group.program.flat, group.program.dtype):
        group.advanced(at, 0)
    with stage("fit", steps, "step") as report_progress:
        at = _with_snapshot(group, at)
        while not group.is_over(at):
            at = _with_snapshot(group, _with_window(group, at))
            elbo, said = group.elbo(at)[-1], None
            finite = elbo[np.isfinite(elbo)]
            elbo, done = float(finite.mean()) if finite.size else float("nan"), group.done(at)
            if progress is not None:
                said = progress(done, steps, elbo, lambda at=at: _results(group, at, 1)[0])
            report_progress(done, words=", ".join(filter(None, [f"ELBO {elbo:,.1f}", said])))
            if checkpoint is not None:
                checkpoint.save_if_due(partial(arrays_of, at))
    if checkpoint is not None:
        checkpoint.save_if_due(partial(arrays_of, at), at_end=True)
    return at


def _with_window(group: _Group, at: GroupState) -> GroupState:
    """State after one more window; replicas that had stopped stay where they were."""
    window = int(at.windows)
    state, info = group.advanced(at, int(group.ends[window]) - group.done(at))
    if at.stopped.any():

        def keep(old, new):
            stopped = at.stopped.reshape(-1, *(1,) * (new.ndim - 1)) > 0
            return jnp.where(stopped, old, new)

        state = jax.tree.map(keep, at.state, state)
    sums = at.sums.copy()
    # Fetched first: reshaping arrays of JAX takes longer than many steps of a small network.
    sums[window] = np.stack([np.asarray(part).reshape(-1) for part in info], axis=-1)
    at = at._replace(state=state, sums=sums, windows=at.windows + 1)
    if not group.program.settings.early_stop:
        return at
    ends, rates = group.ends[: window + 1], group.rate_sums(at)
    settled = [may_stop(history, ends, rates) for history in group.elbo(at).T]
    newly = np.where((at.stopped == 0) & np.array(settled), window + 1, 0)
    return at._replace(stopped=at.stopped + newly)


def _with_snapshot(group: _Group, at: GroupState) -> GroupState:
    """State with what is to be kept of where it is, if anything is."""
    if group.done(at) not in group.wanted:
        return at
    i = group.wanted.index(group.done(at))
    _, info = group.advanced(at, 1)

    def put(kept, now):
        kept = np.array(kept)
        kept[i] = now
        return kept

    now = reported(at.state, group.program), np.asarray(info.kl).reshape(-1)
    snapshots, kl = jax.tree.map(put, (at.snapshots, at.snapshot_kl), now)
    return at._replace(snapshots=snapshots, snapshot_kl=kl)


def _results(group: _Group, at: GroupState, count: int) -> list[Fit]:
    """Fits of the first replicas, as far as they have come."""
    program = group.program

    def constrained(parameters):
        found = constrained_and_scale(parameters, program)
        return found if program.width > 1 else jax.tree.map(lambda array: array[None], found)

    arrays, scale = constrained(reported(at.state, program))
    snapshots = [
        (step, *constrained(jax.tree.map(lambda p, i=i: p[i], at.snapshots)), at.snapshot_kl[i])
        for i, step in enumerate(group.wanted)
        if step <= group.done(at)
    ]
    parts, rates, elbo = group.parts(at), group.rate_sums(at), group.elbo(at)
    ends, fits = group.ends[: at.windows], []
    for i, replica in enumerate(group.replicas[:count]):
        own = slice(0, at.stopped[i] or None)
        history = History(ends[own], elbo[own, i], parts[own, i, 0], parts[own, i, 1])
        mine = {name: array[i] for name, array in arrays.items()}
        finite = all(np.isfinite(a).all() for a in (*mine.values(), scale[i]))
        status, reason = verdict(history.elbo, ends[own], rates[own], finite, program.improper)
        fits.append(
            Fit(
                constrained=mine,
                scale=scale[i],
                history=history,
                elbo=final_mean(history.elbo),
                status=status,
                reason=reason,
                keys=replica.keys,
                learning_rate=replica.highest_rate(program.settings),
                kl_forms=program.objective.kl_forms,
                snapshots=tuple(
                    Snapshot(step, {k: v[i] for k, v in then.items()}, sd[i], float(kl[i]))
                    for step, then, sd, kl in snapshots
                ),
                replica=group.first + i,
            )
        )
    return fits
