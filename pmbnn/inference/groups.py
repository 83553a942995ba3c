"""Groups of fits that share one program and differ in data values and PRNG keys only.

Between windows of the compiled loop, progress is reported, checkpoints are stored, and fits that
have diverged or converged are stopped.
"""

import time
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pmbnn.core.files import whole_file
from pmbnn.core.stages import stage
from pmbnn.inference.batches import batch_indices, cast, stack
from pmbnn.inference.convergence import final_mean, may_stop, verdict
from pmbnn.inference.guides import initial_means
from pmbnn.inference.program import (
    Info,
    Parameters,
    Program,
    State,
    as_list,
    constrained_and_scale,
    n_rows,
    prepare,
    relative_rate,
    reported,
)
from pmbnn.inference.result import Fit, History, Progress, Replica, Snapshot
from pmbnn.inference.unsupported import explained
from pmbnn.inference.xla.compile import precision

# Checkpoints of unfinished fits and chains, which continue from them exactly


INTERVAL = 20.0
"""Seconds between two checkpoints; a shorter fit stores none."""

UNREADABLE = (OSError, ValueError, EOFError, KeyError, RuntimeError, MemoryError)
UNREADABLE += (zipfile.BadZipFile, zlib.error)
"""Errors of reading an archive that is truncated or damaged."""

type Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Checkpoints:
    """A folder for the checkpoints of one job, one file for each of its fits."""

    folder: Path
    interval: float = INTERVAL

    def of(self, name: str) -> "Checkpoint":
        """The checkpoint of one fit."""
        return Checkpoint(self.folder / f"{name}.npz", self.interval)


class Checkpoint:
    """One file with the arrays of a fit, replaced whole."""

    def __init__(
        self, path: Path, interval: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path, self.interval, self._clock = path, interval, clock
        self._last = clock()

    def load(self) -> Arrays | None:
        """The arrays that were saved last; None if there are none or they cannot be read."""
        try:
            # NumPy does not close a file that is no archive, so it is opened here.
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                return [stored[f"arr_{i}"] for i in range(len(stored.files))]
        except UNREADABLE:
            return None

    def save_if_due(self, arrays: Callable[[], Arrays], at_end: bool = False) -> None:
        """Save `arrays` if enough time has passed since the last time.

        At the end, a fit that has a checkpoint also stores its last state, so that an interrupted
        job of several long fits repeats none of them.
        """
        if self._clock() - self._last >= self.interval or (at_end and self.path.exists()):
            self._save(arrays())
            self._last = self._clock()

    def _save(self, arrays: Arrays) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with whole_file(self.path) as part, part.open("wb") as file:
                np.savez(file, *arrays)
        except OSError as error:
            # The error of a full disk has no file name.
            if error.errno is not None and error.filename is None:
                error.filename = str(self.path)
            raise


def arrays_of(tree: Any) -> Arrays:
    """Arrays of a tree, as a checkpoint stores them."""
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


def restored[T](checkpoint: Checkpoint, like: T) -> T | None:
    """Tree of arrays from a checkpoint; None without one that has the shapes of `like`."""
    arrays, (leaves, structure) = checkpoint.load(), jax.tree.flatten(like)
    if arrays is None or [(a.shape, a.dtype) for a in arrays] != [
        (leaf.shape, leaf.dtype) for leaf in leaves
    ]:
        return None
    return jax.tree.unflatten(structure, arrays)


WINDOWS = 200
"""Number of windows of a fit, each of which is a point of its history."""


def fit(
    program: Program,
    replicas: Sequence[Replica],
    progress: Progress | None = None,
    checkpoints: Checkpoints | None = None,
    steps: int | None = None,
    snapshots: Sequence[int] = (),
    means: Sequence[np.ndarray] | None = None,
) -> list[Fit]:
    """Fits of every replica; a fit that diverges does not affect the others.

    Parameters
    ----------
    checkpoints
        Where checkpoints are stored, and those of an interrupted call with the same replicas are
        read. By default there are none.
    steps
        Number of steps; by default that of the settings.
    snapshots
        Steps after which the guide is stored; those that a fit does not reach are omitted.
    means
        As in `init`, for each replica.
    """
    fits: list[Fit] = []
    for first in range(0, len(replicas), program.width):
        members = list(replicas[first : first + program.width])
        padded = members + [members[0]] * (program.width - len(members))
        checkpoint = None if checkpoints is None else checkpoints.of(f"{first}")
        with precision(program.dtype):
            group = _build_group(program, padded, first, steps, snapshots)
            begun = None
            if means is not None:
                given = list(means[first : first + program.width])
                begun = given + [given[0]] * (program.width - len(given))
            at = _run_to_end(group, progress, checkpoint, begun)
            fits += _results(group, at, len(members))
    return fits


# Initial states


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
        Initial means of the guide, ``(size,)`` for each replica, in its coordinates; by default
        those of the settings, or the origin of its coordinates.

    Raises
    ------
    ValueError
        If the number of replicas is not `program.width`.
    """
    replicas = as_list(replicas, program)
    means = start_means(program, replicas) if means is None else means
    starts = []
    scale = program.settings.initial_scale if program.guide.coordinates is None else 1.0
    for replica, mean in zip(replicas, means, strict=True):
        rng = np.random.default_rng([*replica.keys.initial, 1])
        mean = np.asarray(mean, np.float64)
        starts.append(program.guide.initial(mean, scale, rng))
    with precision(program.dtype):
        typed = [cast(start, program.dtype) for start in starts]
        return program.compiled_start(stack(typed, program.width))


def start_means(program: Program, replicas: Sequence[Replica]) -> list[np.ndarray]:
    """Initial means of each replica, ``(size,)`` each."""
    if program.guide.coordinates is not None:
        return [np.zeros(program.flat.size)] * len(replicas)
    if program.starter is not None:
        return [f.loc for f in fit(program.starter, replicas)]
    generators = [np.random.default_rng(r.keys.initial) for r in replicas]
    return [initial_means(program.flat.layout, program.settings, rng) for rng in generators]


# Groups


class GroupState(NamedTuple):
    """State and history of a group's fits: the arrays that a checkpoint stores.

    Attributes
    ----------
    state
        States of the replicas.
    windows
        Number of windows done, ``()``.
    sums
        Sums of log-likelihood and divergence in each window, ``(window, replica, 2)``; NaN in
        later windows.
    stopped
        Windows after which each replica stopped early, ``(replica,)``; 0 if it has not.
    snapshots, snapshot_kl
        Parameters at the snapshots, ``(snapshot, ...)``, and divergences, ``(snapshot, replica)``;
        zeros for later snapshots.
    """

    state: State
    windows: np.ndarray
    sums: np.ndarray
    stopped: np.ndarray
    snapshots: Parameters
    snapshot_kl: np.ndarray


@dataclass(frozen=True)
class _Group:
    """The replicas that a program runs at once, and its arguments.

    ``first`` is the number of the first one, ``rows`` the number of rows of each, ``steps`` the
    length of the fits, ``window`` that of a window, ``ends`` the steps at the end of each window,
    ``snapshot_steps`` the steps with a snapshot; the others are arguments of `run`.
    """

    program: Program
    replicas: Sequence[Replica]
    first: int
    rows: int
    steps: int
    window: int
    ends: np.ndarray
    snapshot_steps: list[int]
    data: Any
    key: jax.Array
    rates: jax.Array

    @cached_property
    def lengths(self) -> np.ndarray:
        """Steps of each window."""
        return np.diff(self.ends, prepend=0)

    def done(self, at: GroupState) -> int:
        """Number of steps done."""
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
        """Whether every replica has finished, diverged or stopped."""
        if not at.windows:
            return False
        over = ~np.isfinite(self.elbo(at)[-1]) | (at.stopped > 0)
        return self.done(at) == self.steps or bool(over.all())

    def advanced(self, at: GroupState, n: int) -> tuple[State, Info]:
        """State after `n` more steps, and sums over them; 0 steps compile the program."""
        program, rows = self.program, None
        if program.batch < program.rows:
            arguments = self.rows, program.batch, self.done(at), self.window
            indices = (batch_indices(r.keys.batches, *arguments) for r in self.replicas)
            rows = stack([i.astype(np.int32) for i in indices], program.width)
        # Without the checks of `run`: windows of a small network take less than a millisecond.
        return program.compiled_run(at.state, self.data, self.key, rows, self.rates, self.steps, n)


def _build_group(
    program: Program, replicas: Sequence[Replica], first: int, steps: int | None, snapshots
) -> _Group:
    rows, width, settings = n_rows(replicas, program), program.width, program.settings
    steps, window = steps or settings.total_steps(rows), -(-program.steps // WINDOWS)
    snapshot_steps = sorted({step for step in snapshots if step <= steps})
    ends, done = [], 0
    while done < steps:
        done = min(done + window, *(end for end in (steps, *snapshot_steps) if end > done))
        ends.append(done)
    return _Group(
        program=program,
        replicas=replicas,
        first=first,
        rows=rows,
        steps=steps,
        window=window,
        ends=np.array(ends),
        snapshot_steps=snapshot_steps,
        data=prepare(replicas, program),
        key=stack([r.key for r in replicas], width),
        rates=stack([np.asarray(r.highest_rate(settings), program.dtype) for r in replicas], width),
    )


def _start(group: _Group, means: Sequence[np.ndarray] | None = None) -> GroupState:
    """State before the first step."""
    state, n = init(group.replicas, group.program, means), len(group.snapshot_steps)
    return GroupState(
        state=state,
        windows=np.array(0),
        sums=np.full((len(group.ends), len(group.replicas), 2), np.nan),
        stopped=np.zeros(len(group.replicas), np.int64),
        snapshots=jax.tree.map(lambda p: np.zeros((n, *p.shape), p.dtype), state.parameters),
        snapshot_kl=np.zeros((n, len(group.replicas))),
    )


def _run_to_end(
    group: _Group,
    progress: Progress | None,
    checkpoint: Checkpoint | None,
    means: Sequence[np.ndarray] | None = None,
) -> GroupState:
    """State at the end of a group's fits, which continue from their checkpoint if there is one."""
    at, steps = None, group.steps
    if checkpoint is not None:
        anywhere = [np.zeros(group.program.flat.size)] * len(group.replicas)
        at = restored(checkpoint, _start(group, anywhere))
    at = at or _start(group, means)
    with stage("compile"), explained(group.program.flat, group.program.dtype):
        group.advanced(at, 0)
    with stage("fit", steps, "step") as report_progress:
        at = _with_snapshot(group, at)
        while not group.is_over(at):
            at = _with_snapshot(group, _with_window(group, at))
            elbo, done, note = group.elbo(at)[-1], group.done(at), None
            finite = elbo[np.isfinite(elbo)]
            mean = float(finite.mean()) if finite.size else float("nan")
            if progress is not None:
                note = progress(done, steps, mean, lambda at=at: _results(group, at, 1)[0])
            objective = f"{group.program.settings.objective} {mean:,.1f}"
            report_progress(done, words=", ".join(filter(None, [objective, note])))
            if checkpoint is not None:
                checkpoint.save_if_due(partial(arrays_of, at))
    if checkpoint is not None:
        checkpoint.save_if_due(partial(arrays_of, at), at_end=True)
    return at


def _with_window(group: _Group, at: GroupState) -> GroupState:
    """State after one more window; replicas that have stopped do not change."""
    window = int(at.windows)
    state, info = group.advanced(at, int(group.ends[window]) - group.done(at))
    if at.stopped.any():

        def keep(old, new):
            stopped = at.stopped.reshape(-1, *(1,) * (new.ndim - 1)) > 0
            return jnp.where(stopped, old, new)

        state = jax.tree.map(keep, at.state, state)
    sums = at.sums.copy()
    # Fetched first: JAX reshapes arrays more slowly than it takes many steps of a small network.
    sums[window] = np.stack([np.asarray(part).reshape(-1) for part in info], axis=-1)
    at = at._replace(state=state, sums=sums, windows=at.windows + 1)
    if not group.program.settings.early_stop:
        return at
    ends, rates = group.ends[: window + 1], group.rate_sums(at)
    settled = [may_stop(history, ends, rates) for history in group.elbo(at).T]
    newly = np.where((at.stopped == 0) & np.array(settled), window + 1, 0)
    return at._replace(stopped=at.stopped + newly)


def _with_snapshot(group: _Group, at: GroupState) -> GroupState:
    """State with a snapshot, if there is to be one at this step."""
    if group.done(at) not in group.snapshot_steps:
        return at
    i = group.snapshot_steps.index(group.done(at))
    _, info = group.advanced(at, 1)

    def put(stored, new):
        stored = np.array(stored)
        stored[i] = new
        return stored

    snapshot = reported(at.state, group.program), np.asarray(info.kl).reshape(-1)
    snapshots, kl = jax.tree.map(put, (at.snapshots, at.snapshot_kl), snapshot)
    return at._replace(snapshots=snapshots, snapshot_kl=kl)


def _results(group: _Group, at: GroupState, count: int) -> list[Fit]:
    """Fits of the first replicas at a state."""
    program = group.program

    def constrained(parameters):
        arrays = constrained_and_scale(parameters, program)
        return arrays if program.width > 1 else jax.tree.map(lambda array: array[None], arrays)

    arrays, scale = constrained(reported(at.state, program))
    snapshots = [
        (step, *constrained(jax.tree.map(lambda p, i=i: p[i], at.snapshots)), at.snapshot_kl[i])
        for i, step in enumerate(group.snapshot_steps)
        if step <= group.done(at)
    ]
    parts, rates, elbo = group.parts(at), group.rate_sums(at), group.elbo(at)
    ends, fits = group.ends[: at.windows], []
    for i, replica in enumerate(group.replicas[:count]):
        windows = slice(0, at.stopped[i] or None)
        steps = ends[windows]
        history = History(steps, elbo[windows, i], *parts[windows, i].T)
        fit_arrays = {name: array[i] for name, array in arrays.items()}
        finite = all(np.isfinite(a).all() for a in (*fit_arrays.values(), scale[i]))
        at_end = (history.elbo, steps, rates[windows], finite, program.improper)
        status, reason = verdict(*at_end, program.settings.objective)
        fits.append(
            Fit(
                constrained=fit_arrays,
                scale=scale[i],
                history=history,
                elbo=final_mean(history.elbo),
                status=status,
                reason=reason,
                keys=replica.keys,
                learning_rate=replica.highest_rate(program.settings),
                kl_forms=program.objective.kl_forms,
                snapshots=tuple(
                    Snapshot(step, {k: v[i] for k, v in arrays.items()}, sd[i], float(kl[i]))
                    for step, arrays, sd, kl in snapshots
                ),
                replica=group.first + i,
            )
        )
    return fits
