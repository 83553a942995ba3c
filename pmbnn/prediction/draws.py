"""Sources of draws of a model's flat vector: a fitted guide, or draws that are kept."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from jax.tree_util import register_dataclass
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor import TensorVariable
from scipy.special import logsumexp

from pmbnn.core.display import Summarised
from pmbnn.core.machine import Device, current_device
from pmbnn.inference.flat import flat_vector, flatten_model
from pmbnn.inference.guides import Guide
from pmbnn.inference.result import Fit
from pmbnn.inference.xla.compile import compiler_options, jax_function, precision, shared

GOLDEN = (np.sqrt(5) - 1) / 2

AT_ONCE = 100
"""Draws that one program makes: the number that traces keep, so that more draws compile no other
program."""

NUMBERS_AT_ONCE = 2_000_000
"""Numbers in these draws at most: of a large network, fewer draws are in memory together."""

ROWS_AT_ONCE = 500_000
"""Rows × draws of a program at most: with fifty units, the values of a layer take 100 MB."""


class DrawSource(Protocol):
    """A source of draws of a flat vector: a JAX pytree, so that compiled programs take it."""

    @property
    def draw_key(self) -> np.ndarray:
        """Unsigned 32-bit words, from which everything random is derived."""

    def draw(self, i) -> jax.Array:
        """The `i`-th draw, ``(size,)``: the same in every program. A JAX function."""

    @property
    def tangent_at(self) -> jax.Array | None:
        """Where predictions take the network as linear, ``(size,)``; None if they do not."""

    def n_distinct(self, draws: int) -> int:
        """Number of different draws among the first `draws`."""

    def on_device(self, dtype: str) -> Self:
        """The same with its arrays on the current device; call it within `precision`."""

    def log_density(self, values: np.ndarray) -> np.ndarray | None:
        """Log-density at vectors ``(draw, size)``, nats; None if the source has none."""


@register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class GuideDraws(Summarised):
    """Draws of a fitted guide, generated from its PRNG key whenever they are needed.

    Attributes
    ----------
    guide
        Family of the distribution.
    parameters
        Its constrained parameters by name.
    draw_key
        Key that draws come from, unsigned 32-bit words.
    """

    guide: Guide = field(metadata={"static": True})
    parameters: Mapping[str, np.ndarray]
    draw_key: np.ndarray

    @classmethod
    def from_fit(cls, guide: Guide, fit: Fit) -> "GuideDraws":
        """Draws of the guide of a fit."""
        parameters = {name: fit.constrained[name] for name in guide.constrained_shapes}
        return cls(guide, parameters, fit.keys.draws)

    @classmethod
    def from_arrays(cls, guide: Guide, arrays: Mapping[str, np.ndarray]) -> list["GuideDraws"]:
        """One source for each restart, from arrays ``(restart, ...)``: parameters, ``draw_key``."""
        stored = {name: np.asarray(arrays[name]) for name in guide.constrained_shapes}
        return [
            cls(guide, {name: array[i] for name, array in stored.items()}, key)
            for i, key in enumerate(np.asarray(arrays["draw_key"]))
        ]

    def draw(self, i):  # noqa: D102
        # Faster generators give other numbers under vmap, and a draw must not depend on that.
        key = jax.random.wrap_key_data(self.draw_key[:2], impl="threefry2x32")
        key, shapes = jax.random.fold_in(key, i), self.guide.noise
        keys = [key] if len(shapes) == 1 else jax.random.split(key, max(1, len(shapes)))
        dtype = next(iter(self.parameters.values())).dtype
        noise = {
            name: jax.random.normal(k, shape, dtype)
            for (name, shape), k in zip(shapes.items(), keys, strict=False)
        }
        return self.guide.draw(self.parameters, noise)

    @property
    def tangent_at(self):  # noqa: D102
        return self.parameters["loc"] if self.guide.is_linearised else None

    def n_distinct(self, draws):  # noqa: D102
        return 1 if self.guide.is_point else draws

    def on_device(self, dtype):  # noqa: D102
        arrays = {name: np.asarray(array, dtype) for name, array in self.parameters.items()}
        parameters, draw_key = jax.device_put((arrays, self.draw_key))
        return replace(self, parameters=parameters, draw_key=draw_key)

    def log_density(self, values):  # noqa: D102
        if not self.guide.has_density:
            return None
        # Double precision: the sum over a large network's parameters needs it.
        with precision("float64"):
            names = self.guide.constrained_shapes
            arrays = [np.asarray(self.parameters[name], "float64") for name in names]
            density = _guide_density(self.guide, current_device())
            at_once = draws_in_memory(self.guide.size)
            return at_draws(density, np.asarray(values, "float64"), at_once, *arrays)[0]


@lru_cache(maxsize=16)
def _guide_density(guide: Guide, device: Device) -> Callable:
    """Program of a guide's log-density at vectors, for any parameters; in double precision."""
    shapes = guide.constrained_shapes.items()
    parameters = {n: pt.tensor(n, dtype="float64", shape=shape) for n, shape in shapes}
    vector = flat_vector(guide)
    density = guide.log_density(parameters, vector)
    return over_draws([vector, *parameters.values()], [density], brief=True)


@register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class KeptDraws(Summarised):
    """Draws that are kept, such as those of a sampler's chains.

    Attributes
    ----------
    values
        Unconstrained vectors, ``(draw, size)``.
    """

    values: np.ndarray

    draw_key: ClassVar[np.ndarray] = np.zeros(4, np.uint32)
    tangent_at: ClassVar[None] = None

    @classmethod
    def spread(cls, values: np.ndarray) -> "KeptDraws":
        """Draws in such an order that the first few are spread evenly over all."""
        # Numbers of an irrational rotation of the circle: every run of them is spread evenly.
        order = np.argsort(np.argsort(np.arange(len(values)) * GOLDEN % 1))
        return cls(values[order])

    def draw(self, i):  # noqa: D102
        return self.values[i]

    def n_distinct(self, draws):  # noqa: D102
        return min(draws, len(self.values))

    def on_device(self, dtype):  # noqa: D102
        return KeptDraws(jax.device_put(np.asarray(self.values, dtype)))

    def log_density(self, values):  # noqa: D102
        return None


def log_density_of_mixture(
    sources: Iterable[DrawSource], weights: Iterable[float], values: np.ndarray
) -> np.ndarray:
    """Log-density of a mixture of sources at flat vectors ``(draw, size)``, ``(draw,)``, nats.

    Not a number if a source with a weight has no density, such as a point or kept draws.
    """
    used = [(source, w) for source, w in zip(sources, weights, strict=True) if w > 0]
    parts = [source.log_density(values) for source, _ in used]
    if any(part is None for part in parts):
        return np.full(len(values), np.nan)
    return logsumexp(parts, axis=0, b=np.array([[weight] for _, weight in used]))


def first_draws(source: DrawSource, draws: int, dtype: str) -> np.ndarray:
    """The first draws of a source, ``(draw, size)``."""
    with precision(dtype):
        return np.asarray(_draw_all(source.on_device(dtype), jnp.arange(draws)))


def draw_all(source: DrawSource, numbers) -> jax.Array:
    """Draws of these numbers, ``(draw, size)``; a JAX function."""
    return jax.vmap(source.draw)(numbers)


_draw_all = jax.jit(draw_all)


def over_draws(
    inputs: Sequence[TensorVariable], outputs: Sequence[TensorVariable], brief: bool = False
) -> Callable:
    """Program of a graph for many values of its first input, the flat vector; in `precision`.

    `brief` is that of `compiler_options`, for programs that take no rows.
    """
    function, axes = jax_function(inputs, outputs), (0, *(None,) * (len(inputs) - 1))
    options = compiler_options(brief=True) if brief else None
    return shared(
        ("over draws", function, brief),
        lambda: jax.jit(jax.vmap(function, axes), compiler_options=options),
    )


def at_draws(program: Callable, values: np.ndarray, at_once: int, *inputs):
    """Outputs of a program at draws ``(draw, size)``, `at_once` of which are in memory at a time.

    Parameters
    ----------
    program
        It takes a block of draws and `inputs`, and returns a pytree of arrays ``(draw, ...)``.
    """
    parts = []
    for first in range(0, len(values), at_once):
        block = values[first : first + at_once]
        # Blocks of one length take one program: the last one is filled up.
        block = np.pad(block, ((0, at_once - len(block)), (0, 0)), mode="edge")
        parts.append(jax.device_get(program(block, *inputs)))
    return jax.tree.map(lambda *arrays: np.concatenate(arrays)[: len(values)], *parts)


def draws_in_memory(size: int) -> int:
    """Number of draws of a vector of this size that are made or read together."""
    return max(1, min(AT_ONCE, NUMBERS_AT_ONCE // size))


def draws_at_once(values: np.ndarray, x: np.ndarray) -> int:
    """Number of the draws ``(draw, size)`` that are taken together at the rows of `x`."""
    return min(len(values), max(1, ROWS_AT_ONCE // max(1, len(x))))


def spread_numbers(number: int, most: int | None) -> np.ndarray:
    """At most `most` of the numbers below `number`, evenly spread; all of them if None."""
    count = number if most is None else min(most, number)
    return np.linspace(0, number - 1, count).round().astype(int)


# Draws of a model's variables, from any sampler, as draws of its flat vector


def unconstrained_draws(model: pm.Model, posterior: Mapping[str, np.ndarray]) -> np.ndarray:
    """Flat vectors of draws, ``(chain, draw, size)``, double precision.

    Parameters
    ----------
    posterior
        Free variables on their own scale by name, ``(chain, draw, *shape)`` each; others may be
        among them.
    """
    inputs = {v: pt.tensor(v.name, dtype=v.dtype, shape=v.type.shape) for v in model.free_RVs}
    graphs = _replaced([_unconstrained(model, v, inputs[v]) for v in inputs], inputs)
    arrays = [np.asarray(posterior[v.name], np.float64) for v in inputs]
    with precision("float64"):
        one_draw = jax_function(list(inputs.values()), [graph.ravel() for graph in graphs])
        values = map(np.asarray, jax.jit(jax.vmap(jax.vmap(one_draw)))(*arrays))
    parts = {model.rvs_to_values[v].name: part for v, part in zip(inputs, values, strict=True)}
    slots = flatten_model(model, rows=None).layout.slots
    return np.concatenate([parts[slot.name] for slot in slots], axis=-1)


def _unconstrained(model: pm.Model, variable, value):
    """Graph of the unconstrained value of a variable."""
    transform = model.rvs_to_transforms[variable]
    return value if transform is None else transform.forward(value, *variable.owner.inputs)


def _replaced(graphs, values):
    """Graphs with these values of variables: bounds may depend on other variables and on data."""
    graphs = graph_replace(graphs, values, strict=False)
    constants = {
        v: pt.constant(v.get_value(), dtype=v.dtype)
        for v in graph_inputs(graphs)
        if isinstance(v, SharedVariable) and hasattr(v, "dtype")
    }
    return graph_replace(graphs, constants, strict=False)
