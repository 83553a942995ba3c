"""The compiled engine: a whole group of fits as one program.

The objective of one model becomes a JAX function; its gradient steps are looped inside XLA
and mapped over the members of the group, which share the graph and differ in data values and
random streams only. Between segments of the loop the host looks at the ELBO: for progress,
for checkpoints, and to stop what has diverged or converged.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm

from pmbnn.inference.batches import batch_indices
from pmbnn.inference.checkpoint import Checkpoint, Checkpoints
from pmbnn.inference.convergence import final_mean, may_stop, verdict
from pmbnn.inference.elbo import build_objective
from pmbnn.inference.fit import Fit, History, Member, Progress, Snapshot
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.guides import build_guide
from pmbnn.inference.initial import initial_means
from pmbnn.inference.jax_edge import compiler_options, jax_function, precision
from pmbnn.inference.loop import Loop, Parameters, State
from pmbnn.inference.members import cast, padding_of, stack
from pmbnn.inference.optimisers import relative_rate
from pmbnn.inference.pieces import joined
from pmbnn.inference.run import Run, Taken, arrays_of, kept, restored
from pmbnn.inference.settings import Inference

SEGMENTS = 200
"""Into how many windows a fit is cut: one point of its history each."""

MAP_SHARE = 0.1
"""Share of the steps that a MAP fit takes which gives the means their start."""


class CompiledEngine:
    """Variational inference for every member of one group.

    Parameters
    ----------
    model
        Any member's model: only its graph is used.
    rows
        Number of training rows of each member.
    width
        Members a program runs at once. Shorter groups are padded, so that the numbers of a
        member never depend on its company; 1 runs the members one by one, on all cores.
    dtype
        ``float32`` or ``float64``.

    Raises
    ------
    ValueError
        If the guide or the estimator does not fit the model.
    """

    def __init__(
        self, model: pm.Model, settings: Inference, rows: int, width: int, dtype: str = "float32"
    ) -> None:
        self.settings, self.rows, self.width, self.dtype = settings, rows, width, dtype
        self.steps = settings.total_steps(rows)
        self.batch = min(settings.batch or rows, rows)
        self.segment = -(-self.steps // SEGMENTS)
        self.padding = padding_of(model, rows, self.batch)
        self.flat = flatten_model(model, self.batch + self.padding, jacobian=not settings.is_point)
        self.improper = self.flat.improper and not settings.is_point
        self.guide = build_guide(settings, self.flat.size, self.improper)
        self.objective = build_objective(
            self.flat, self.guide, settings, rows, self.batch, self.padding
        )
        with precision(dtype):
            self.loop = Loop(self.objective, settings, dtype)
            self._natural = self._build_natural()
        prepare, segment = self.loop.prepare, self.loop.segment
        if width > 1:
            prepare = jax.vmap(prepare, axis_size=width)
            segment = jax.vmap(segment, in_axes=(0, 0, 0, 0, 0, None, None))
        self._prepare = jax.jit(prepare)
        self._program = jax.jit(segment, compiler_options=compiler_options())
        self._starter = self._build_starter(model)

    def fit(
        self,
        members: Sequence[Member],
        progress: Progress | None = None,
        checkpoints: Checkpoints | None = None,
        steps: int | None = None,
        snapshots: Sequence[int] = (),
    ) -> list[Fit]:
        """Fit every member; one that diverges neither stops nor touches the others.

        Parameters
        ----------
        checkpoints
            Where to leave checkpoints, and to look for those of an interrupted call with the
            same members; none unless given.
        steps
            Length of the fits; that of the settings unless given.
        snapshots
            Steps after which to keep the guide as it is then; those that a fit does not reach
            are left out.
        """
        fits: list[Fit] = []
        for start in range(0, len(members), self.width):
            chunk = list(members[start : start + self.width])
            padded = chunk + [chunk[0]] * (self.width - len(chunk))
            checkpoint = None if checkpoints is None else checkpoints.of(f"{start}")
            with precision(self.dtype):
                run = self._run(padded, steps or self.steps, progress, checkpoint, snapshots)
                fits += self._results(padded, run, steps or self.steps)[: len(chunk)]
        return fits

    # Building

    def _build_natural(self):
        """Natural parameters and standard deviations as a JAX function of a guide's own."""
        guide, parameters = self.guide, self.objective.parameters
        natural = guide.natural(parameters)
        outputs = [*natural.values(), guide.marginal_scale(natural)]
        graph = jax_function(list(parameters.values()), outputs)

        def of(parameters):
            *arrays, scale = graph(*(parameters[n] for n in self.objective.parameters))
            return dict(zip(natural, arrays, strict=True)), scale

        return jax.jit(jax.vmap(of) if self.width > 1 else of)

    def _build_starter(self, model: pm.Model) -> "CompiledEngine | None":
        """The engine of the MAP fits that give means their start, where that is asked for."""
        if self.settings.initial_mean != "map":
            return None
        plain = {"initial_mean": "fan_in", "estimator": "reparameterisation", "average": 0.0}
        length = {"steps": max(1, round(MAP_SHARE * self.steps)), "epochs": None}
        settings = self.settings.model_copy(
            update={"guide": "map", "kl_scaling": "sum", "early_stop": False} | plain | length
        )
        return CompiledEngine(model, settings, self.rows, self.width, self.dtype)

    # Running

    def _run(
        self,
        members: list[Member],
        steps: int,
        progress: Progress | None,
        checkpoint: Checkpoint | None,
        wanted: Sequence[int],
    ) -> Run:
        """Run a chunk to its end, from its checkpoint if there is one."""
        run = None
        if checkpoint is not None:
            run = restored(checkpoint, self._start(members, self._nowhere(members)))
        if run is None:
            run = self._start(members, self._initial_means(members))
        data = stack([cast(m.data, self.dtype, self.padding) for m in members], self.width)
        if self.batch == self.rows:
            data = self._prepare(data)
        keys = [jnp.asarray(m.streams.noise[:2], jnp.uint32) for m in members]
        rates = [jnp.asarray(self._rate(m), self.dtype) for m in members]
        keys, rates = stack(keys, self.width), stack(rates, self.width)

        def advance(run: Run, n: int) -> tuple[State, np.ndarray]:
            batches = self._batches(members, run.done)
            state, sums = self._program(run.state, data, batches, keys, rates, n, steps)
            return state, np.asarray(sums, np.float64).reshape(-1, 2)

        run = self._take(run, wanted, advance)
        while run.done < steps and not self._is_over(run):
            n = min([self.segment] + [at - run.done for at in (steps, *wanted) if at > run.done])
            run = self._after(run, *advance(run, n), n, steps)
            run = self._take(run, wanted, advance)
            if progress is not None:
                current = partial(self._first, members, run, steps)
                progress(run.done, steps, self._mean_elbo(run), current)
            if checkpoint is not None:
                checkpoint.save_if_due(lambda run=run: arrays_of(run))
        if checkpoint is not None:
            checkpoint.save_if_due(lambda: arrays_of(run), at_end=True)
        return run

    def _start(self, members: list[Member], means: list[np.ndarray]) -> Run:
        """The run before its first step; the rest of the guide starts from the same streams."""
        starts = []
        for member, mean in zip(members, means, strict=True):
            rng = np.random.default_rng([*member.streams.initial, 1])
            mean = np.asarray(mean, np.float64)
            starts.append(self.guide.initial(mean, self.settings.initial_scale, rng))
        if self.width == 1:
            state = self.loop.start(starts[0])
        else:
            stacked = {
                name: jnp.asarray(np.stack([start[name] for start in starts]), self.dtype)
                for name in starts[0]
            }
            state = jax.vmap(self.loop.start)(stacked)
        return Run(state, [], [], np.zeros(len(members), np.int64))

    def _nowhere(self, members: list[Member]) -> list[np.ndarray]:
        """Means that say no more than their length."""
        return [np.zeros(self.flat.size)] * len(members)

    def _initial_means(self, members: list[Member]) -> list[np.ndarray]:
        """Where the means of each member start."""
        if self._starter is not None:
            return [fit.loc for fit in self._starter.fit(members)]
        generators = [np.random.default_rng(m.streams.initial) for m in members]
        return [initial_means(self.flat.slots, self.settings, rng) for rng in generators]

    def _take(self, run: Run, wanted: Sequence[int], advance) -> Run:
        """The run with what is to be kept of where it is, if anything is."""
        if run.done not in wanted or run.done in {taken.step for taken in run.taken}:
            return run
        parameters = run.state.average if self.settings.average else run.state.parameters
        # One step more, of which nothing but the parts of the ELBO is used.
        _, sums = advance(run, 1)
        return run._replace(taken=(*run.taken, Taken(run.done, parameters, sums)))

    def _after(self, run: Run, state: State, sums, n: int, steps: int) -> Run:
        """The run with one more window; members that had stopped stay where they were."""
        if run.stopped.any():
            state = kept(run.state, state, run.stopped > 0)
        ends = [*run.ends, run.done + n]
        run = run._replace(state=state, sums=[*run.sums, sums / n], ends=ends)
        if not self.settings.early_stop:
            return run
        elbo, way = self._elbo(np.stack(run.sums)), self._way(run.ends, steps)
        settled = [may_stop(history, way) for history in elbo.T]
        newly = np.where((run.stopped == 0) & np.array(settled), len(run.ends), 0)
        return run._replace(stopped=run.stopped + newly)

    def _is_over(self, run: Run) -> bool:
        """Whether every member has diverged or stopped."""
        if not run.ends:
            return False
        return bool((~np.isfinite(self._elbo(run.sums[-1])) | (run.stopped > 0)).all())

    def _elbo(self, sums: np.ndarray) -> np.ndarray:
        """Mean ELBO of each member, and of each window if there are several."""
        with np.errstate(invalid="ignore"):  # infinite parts of a fit that diverges
            return sums[..., 0] - self.settings.kl_weight * sums[..., 1]

    def _mean_elbo(self, run: Run) -> float:
        """Mean ELBO of the members that have not diverged."""
        last = self._elbo(run.sums[-1])
        alive = last[np.isfinite(last)]
        return float(alive.mean()) if alive.size else float("nan")

    def _way(self, ends: Sequence[int], steps: int) -> np.ndarray:
        """Sum of the relative learning rates of the steps in each window."""
        rates = np.asarray(relative_rate(self.settings, np.arange(ends[-1]), steps))
        return np.add.reduceat(rates, [0, *ends[:-1]])

    def _results(self, members: list[Member], run: Run, steps: int) -> list[Fit]:
        parameters = run.state.average if self.settings.average else run.state.parameters
        natural, scale = self._naturals(parameters)
        snapshots = [(t.step, *self._naturals(t.parameters), t.sums[:, 1]) for t in run.taken]
        parts = np.stack(run.sums)
        elbo = self._elbo(parts)
        fits = []
        for i, member in enumerate(members):
            own = slice(0, run.stopped[i] or None)
            ends = np.array(run.ends)[own]
            history = History(ends, elbo[own, i], parts[own, i, 0], parts[own, i, 1])
            arrays = {name: array[i] for name, array in natural.items()}
            finite = all(np.isfinite(a).all() for a in (*arrays.values(), scale[i]))
            way = self._way(ends, steps)
            status, reason = verdict(history.elbo, ends, way, finite, self.improper)
            fits.append(
                Fit(
                    natural=arrays,
                    scale=scale[i],
                    history=history,
                    elbo=final_mean(history.elbo),
                    status=status,
                    reason=reason,
                    streams=member.streams,
                    learning_rate=self._rate(member),
                    kl_forms=self.objective.kl_forms,
                    snapshots=tuple(
                        Snapshot(step, {k: v[i] for k, v in n.items()}, s[i], float(kl[i]))
                        for step, n, s, kl in snapshots
                    ),
                )
            )
        return fits

    def _first(self, members: list[Member], run: Run, steps: int) -> Fit:
        """The first member's fit, as far as it has come."""
        return self._results(members, run, steps)[0]

    def _naturals(self, parameters: Parameters) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Natural parameters and standard deviations, members on the first axis."""
        natural, scale = jax.device_get(self._natural(joined(parameters)))
        if self.width == 1:
            natural, scale = {k: v[None] for k, v in natural.items()}, scale[None]
        return natural, scale

    # Members to arrays

    def _rate(self, member: Member) -> float:
        if member.learning_rate is not None:
            return member.learning_rate
        return float(self.settings.learning_rate)

    def _batches(self, members: list[Member], done: int):
        if self.batch == self.rows:
            return None
        streams = [m.streams.batches for m in members]
        taken = [batch_indices(s, self.rows, self.batch, done, self.segment) for s in streams]
        return stack([jnp.asarray(t, jnp.int32) for t in taken], self.width)
