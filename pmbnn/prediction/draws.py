"""Draws from a fitted guide and their densities, whatever is predicted with them.

Draws are regenerated from the guide's PRNG key, so that the same ones come back whoever
asks for them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import jax
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable
from scipy.special import logsumexp

from pmbnn.inference.batches import cast
from pmbnn.inference.flat import ModelGraphs, flat_vector, flatten_model
from pmbnn.inference.guides import Guide, build_guide
from pmbnn.inference.products import depends_on
from pmbnn.inference.result import Fit, StoredGuide
from pmbnn.inference.settings import Inference
from pmbnn.inference.unsupported import computed_by_pytensor, names_in_jax
from pmbnn.inference.xla.compile import compiler_options, jax_function, precision
from pmbnn.inference.xla.sharing import shared
from pmbnn.models.build import ROW_DATA
from pmbnn.models.priors import STANDARD

AT_ONCE = 100
"""Draws that one program makes: as many as traces keep, so that more of them compile no other."""

NUMBERS_AT_ONCE = 2_000_000
"""Numbers of these at most: of a large network, fewer draws are in memory together."""


ROWS_AT_ONCE = 500_000
"""Rows × draws of a program at most: with fifty units, a layer of as many takes 100 MB."""


class GuideDraws:
    """Draws of every replica of one group, from its model's graph.

    Compiled once, whatever the number of rows; the settings tell which guide to draw from.
    """

    def __init__(
        self, model: pm.Model | ModelGraphs, settings: Inference, dtype: str = "float32"
    ) -> None:
        self.dtype = dtype
        self.flat = flat = flatten_model(model, rows=None)
        self.guide = build_guide(settings, flat.size, flat.improper, flat.spread)
        self.vector = values = flat_vector(flat)
        self.at_once = max(1, min(AT_ONCE, NUMBERS_AT_ONCE // flat.size))
        # Standard draws, which stand behind something that a trace keeps, are of no interest.
        in_jax = names_in_jax(flat, dtype)
        wanted = [name for name in flat.posterior if not name.endswith(STANDARD)]
        self.named = [name for name in wanted if name in in_jax]
        self.in_pytensor = [name for name in wanted if name not in in_jax]
        (by_row,) = flat.log_likelihoods.values()
        graphs = [by_row, flat.log_prior, *(flat.posterior[name] for name in self.named)]
        log_likelihood, log_prior, *posterior = flat.at(values, graphs)
        # Those of a hyperprior are none of theirs: predictions are the same under every one.
        self.constants = [
            name
            for name, variable in flat.data.items()
            if name not in ROW_DATA and depends_on([log_likelihood, *posterior], [variable])
        ]
        constants = [flat.data[name] for name in self.constants]
        rows = [flat.data[name] for name in ROW_DATA]
        with precision(dtype):
            self._log_likelihood = over_draws([values, *rows, *constants], [log_likelihood])
            self._log_prior = over_draws([values, *flat.data.values()], [log_prior], brief=True)
            self._posterior = over_draws([values, *constants], posterior, brief=True)
        self._log_guide = self._build_log_guide(values)
        draw = self.way_to_draw
        drawn, options = jax.vmap(draw, (None, None, 0)), compiler_options(brief=True)
        self._draws = shared(("draws", draw), lambda: jax.jit(drawn, compiler_options=options))

    @property
    def way_to_draw(self) -> Callable:
        """JAX function of a fit's constrained parameters, its key and the number of a draw."""
        return _OfGuide(self.guide, self.dtype)

    def _build_log_guide(self, values):
        """Log-density of the guide at draws; None of a point."""
        if self.guide.is_point:
            return None
        constrained = {
            name: pt.tensor(name, dtype="float64", shape=shape)
            for name, shape in self.guide.constrained_shapes.items()
        }
        # Double precision: the sum over a large network's parameters needs it.
        with precision("float64"):
            density = self.guide.log_density(constrained, values)
            return over_draws([values, *constrained.values()], [density], brief=True)

    def values(self, fit: Fit, draws: int) -> np.ndarray:
        """The first draws of the flat vector, ``(draw, size)``: those that predictions use."""
        return np.concatenate([*self.blocks(fit, draws)])

    def blocks(self, fit: Fit, draws: int) -> Iterator[np.ndarray]:
        """The same a few at a time, ``(draw, size)`` each: of large networks all are too many."""
        size = min(draws, self.at_once)
        for first in range(0, draws, size):
            numbers = np.arange(first, first + size, dtype=np.int32)
            with precision(self.dtype):
                constrained = self.constrained(fit)
                values = np.asarray(self._draws(constrained, draw_key(fit), numbers))
            yield values[: draws - first]

    def posterior(
        self, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Named variables at draws of the flat vector, ``(draw, *shape)`` each."""
        with precision(self.dtype):
            constants = [np.asarray(data[n], self.dtype) for n in self.constants]
            parts = [
                jax.device_get(self._posterior(block, *constants))
                for block in filled(np.asarray(values, self.dtype), self.at_once)
            ]
        arrays = (np.concatenate(part)[: len(values)] for part in zip(*parts, strict=True))
        others = computed_by_pytensor(self.flat, self.in_pytensor, values, data)
        return dict(zip(self.named, arrays, strict=True)) | others

    def log_joint(
        self, data: Mapping[str, np.ndarray], values: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Log-likelihood of every row, and log joint density, of draws of the flat vector.

        Shapes ``(draw, observation)`` and ``(draw,)``; nats, densities on the unconstrained
        vector.
        """
        with precision(self.dtype):
            typed = cast({name: data[name] for name in self.flat.data}, self.dtype)
            of_rows = [typed[name] for name in (*ROW_DATA, *self.constants)]
            values, every = np.asarray(values, self.dtype), typed.values()
            parts = [
                jax.device_get(
                    (*self._log_likelihood(block, *of_rows), *self._log_prior(block, *every))
                )
                for block in filled(values, min(self.at_once, draws_at_once(values, typed["x"])))
            ]
        of_blocks = zip(*parts, strict=True)
        log_likelihood, log_prior = (np.concatenate(part)[: len(values)] for part in of_blocks)
        return log_likelihood, log_likelihood.sum(axis=1, dtype=np.float64) + log_prior

    def log_guide(
        self, fits: Sequence[Fit], weights: Sequence[float], values: np.ndarray
    ) -> np.ndarray:
        """Log-density of a mixture of guides at draws of the flat vector, ``(draw,)``.

        Nats, on the unconstrained vector; that of a point guide is not a number.
        """
        if self._log_guide is None:
            return np.full(len(values), np.nan)
        used = [(fit, weight) for fit, weight in zip(fits, weights, strict=True) if weight > 0]
        parts = [self._log_guide_density(fit, values) for fit, _ in used]
        return logsumexp(parts, axis=0, b=np.array([[weight] for _, weight in used]))

    def _log_guide_density(self, fit: Fit, values: np.ndarray) -> np.ndarray:
        with precision("float64"):
            constrained = [
                np.asarray(fit.constrained[n], "float64") for n in self.guide.constrained_shapes
            ]
            parts = [
                np.asarray(self._log_guide(block, *constrained)[0])
                for block in filled(np.asarray(values, "float64"), self.at_once)
            ]
        return np.concatenate(parts)[: len(values)]

    def constrained(self, fit: Fit) -> dict[str, jax.Array]:
        """Constrained parameters of a fit; call it within `precision`."""
        names = self.guide.constrained_shapes
        return jax.device_put({n: np.asarray(fit.constrained[n], self.dtype) for n in names})


@dataclass(frozen=True)
class _OfGuide:
    """The `i`-th draw of a fit's guide, whoever asks for it; one function for equal guides."""

    guide: Guide
    dtype: str

    def __call__(self, constrained, key, i):
        return draw_from(self.guide, constrained, key, i, self.dtype)


def over_draws(
    inputs: Sequence[TensorVariable], outputs: Sequence[TensorVariable], brief: bool = False
) -> Callable:
    """Program of a graph for many of its first inputs, such as the flat vector; in `precision`.

    `brief` as `compiler_options` has it: whatever sees no rows is.
    """
    function, axes = jax_function(inputs, outputs), (0, *(None,) * (len(inputs) - 1))
    options = compiler_options(brief=True) if brief else None
    return shared(
        ("over draws", function, brief),
        lambda: jax.jit(jax.vmap(function, axes), compiler_options=options),
    )


def draws_at_once(values: np.ndarray, x: np.ndarray) -> int:
    """How many of the draws ``(draw, size)`` are taken together at rows ``(observation, ...)``."""
    return min(len(values), max(1, ROWS_AT_ONCE // max(1, len(x))))


def filled(values: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Consecutive blocks of draws, all of one length: the last one is filled up."""
    for first in range(0, len(values), size):
        block = values[first : first + size]
        yield np.pad(block, ((0, size - len(block)), (0, 0)), mode="edge")


def draw_from(guide: Guide, constrained, key: jax.Array, i, dtype: str):
    """The `i`-th draw of a guide from a key, ``(size,)``; a JAX function of all but the guide."""
    key, shapes = jax.random.fold_in(key, i), guide.noise
    keys = [key] if len(shapes) == 1 else jax.random.split(key, max(1, len(shapes)))
    noise = {
        name: jax.random.normal(k, shape, dtype)
        for (name, shape), k in zip(shapes.items(), keys, strict=False)
    }
    return guide.draw(constrained, noise)


def draw_key(fit: Fit | StoredGuide) -> jax.Array:
    """The PRNG key that draws of a fit come from."""
    # Faster generators give other numbers under vmap, and a draw must not depend on that.
    return jax.random.wrap_key_data(fit.draw_key[:2], impl="threefry2x32")
