"""The compiled engine: a whole group of fits as one program.

The ELBO graph of one model becomes a JAX function; its gradient step is looped inside XLA and
mapped over the members of the group, which share the graph and differ in data values and
random streams only. Between segments of the loop the host looks at the ELBO: for progress,
and to stop when no member is alive any more.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pymc as pm

from pmbnn.inference.batches import batch_indices
from pmbnn.inference.elbo import build_elbo
from pmbnn.inference.fit import Fit, Member, Progress, final_elbo, verdict
from pmbnn.inference.flat import flatten_model
from pmbnn.inference.guides import MeanField, MeanFieldParameters, initial_parameters, softplus
from pmbnn.inference.jax_edge import jax_function, precision
from pmbnn.inference.optimisers import build_optimiser
from pmbnn.inference.settings import Inference
from pmbnn.models import ROW_DATA

SEGMENTS = 200
"""Into how many windows a fit is cut: one point of the ELBO history each."""


class State(NamedTuple):
    """Where the loop is: parameters, the optimiser's state and the number of steps done."""

    parameters: MeanFieldParameters
    optimiser: optax.OptState
    step: jax.Array


class CompiledEngine:
    """Mean-field ADVI for every member of one group.

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
    """

    def __init__(
        self, model: pm.Model, settings: Inference, rows: int, width: int, dtype: str = "float32"
    ) -> None:
        self.settings, self.rows, self.width, self.dtype = settings, rows, width, dtype
        self.steps = settings.total_steps(rows)
        self.batch = min(settings.batch or rows, rows)
        self.segment = -(-self.steps // SEGMENTS)
        self.flat = flatten_model(model, self.batch)
        self.guide = MeanField(
            self.flat.size, settings.improper_scale_cap if self.flat.improper else None
        )
        self.optimiser = build_optimiser(settings, self.steps)
        with precision(dtype):
            self._loss = self._build_loss()
        mapped = self._run_segment
        if width > 1:
            mapped = jax.vmap(mapped, in_axes=(0, 0, 0, 0, None))
        self._program = jax.jit(mapped)

    def fit(self, members: Sequence[Member], progress: Progress | None = None) -> list[Fit]:
        """Fit every member; one that diverges neither stops nor touches the others."""
        fits: list[Fit] = []
        for start in range(0, len(members), self.width):
            chunk = list(members[start : start + self.width])
            padded = chunk + [chunk[0]] * (self.width - len(chunk))
            with precision(self.dtype):
                fits += self._fit_chunk(padded, progress)[: len(chunk)]
        return fits

    def _build_loss(self):
        """Negative ELBO as a JAX function of parameters, noise and the data by name."""
        objective = build_elbo(self.flat, self.guide, self.rows / self.batch)
        names = list(objective.data)
        inputs = [*objective.parameters, objective.noise, *objective.data.values()]
        graph = jax_function(inputs, [-objective.elbo])

        def loss(parameters, noise, data):
            return graph(*parameters, noise, *(data[name] for name in names))[0]

        return loss

    def _run_segment(self, state: State, data, batches, key, n):
        """`n` steps of one member, and the sum of their ELBOs."""

        def body(i, carry):
            state, total = carry
            noise = jax.random.normal(
                jax.random.fold_in(key, state.step), (self.flat.size,), self.dtype
            )
            seen = data if batches is None else _take_rows(data, batches[i])
            loss, gradient = jax.value_and_grad(self._loss)(state.parameters, noise, seen)
            update, optimiser = self.optimiser.update(gradient, state.optimiser)
            parameters = optax.apply_updates(state.parameters, update)
            return State(parameters, optimiser, state.step + 1), total - loss

        return jax.lax.fori_loop(0, n, body, (state, jnp.zeros((), self.dtype)))

    def _fit_chunk(self, members: list[Member], progress: Progress | None) -> list[Fit]:
        state = self._stack([self._initial_state(m) for m in members])
        data = self._stack([self._cast(m.data) for m in members])
        keys = self._stack([self._key(m) for m in members])
        history, steps, done = [], [], 0
        while done < self.steps:
            n = min(self.segment, self.steps - done)
            batches = self._batches(members, done)
            state, total = self._program(state, data, batches, keys, n)
            done += n
            history.append(np.atleast_1d(np.asarray(total, np.float64)) / n)
            steps.append(done)
            alive = np.isfinite(history[-1])
            if progress is not None:
                elbo = float(history[-1][alive].mean()) if alive.any() else float("nan")
                progress(done, self.steps, elbo)
            if not alive.any():
                break
        return self._results(members, state, np.array(history).T, np.array(steps))

    def _results(self, members, state: State, history, steps) -> list[Fit]:
        loc, rho = (np.atleast_2d(np.asarray(p)) for p in state.parameters)
        scale = softplus(rho, self.guide.scale_cap)
        fits = []
        for i, member in enumerate(members):
            status, reason = verdict(history[i], steps, loc[i], scale[i], self.flat.improper)
            elbo = final_elbo(history[i])
            fits.append(
                Fit(loc[i], scale[i], history[i], steps, elbo, status, reason, member.streams)
            )
        return fits

    def _initial_state(self, member: Member) -> State:
        rng = np.random.default_rng(member.streams.initial)
        start = initial_parameters(self.flat.slots, self.settings, rng)
        parameters = MeanFieldParameters(*(jnp.asarray(p, self.dtype) for p in start))
        return State(parameters, self.optimiser.init(parameters), jnp.zeros((), jnp.int32))

    def _cast(self, data) -> dict[str, jax.Array]:
        integer = {True: "int32", False: self.dtype}
        return {
            k: jnp.asarray(v, integer[np.asarray(v).dtype.kind in "iu"]) for k, v in data.items()
        }

    def _key(self, member: Member) -> jax.Array:
        # threefry gives a member the same numbers whatever it is mapped with; the generator
        # for members run one by one is many times faster on large draws.
        if self.width > 1:
            return jax.random.wrap_key_data(member.streams.noise[:2], impl="threefry2x32")
        return jax.random.wrap_key_data(member.streams.noise, impl="unsafe_rbg")

    def _batches(self, members: list[Member], done: int):
        if self.batch == self.rows:
            return None
        streams = [m.streams.batches for m in members]
        taken = [batch_indices(s, self.rows, self.batch, done, self.segment) for s in streams]
        return self._stack([jnp.asarray(t, jnp.int32) for t in taken])

    def _stack(self, items: list):
        """Members on a first axis; the only member as it is when they run one by one."""
        if self.width == 1:
            return items[0]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *items)


def _take_rows(data, rows):
    return {name: value[rows] if name in ROW_DATA else value for name, value in data.items()}
