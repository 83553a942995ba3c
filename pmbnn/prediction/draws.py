"""Sources of draws of a model's flat vector: a fitted guide, or draws that are kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

from pmbnn.core.machine import Device, current_device
from pmbnn.inference.flat import flat_vector, flatten_model
from pmbnn.inference.guides import Guide
from pmbnn.inference.result import Fit
from pmbnn.inference.xla.compile import compiler_options, jax_function, precision, shared
from pmbnn.spec.display import Summarised

GOLDEN = (np.sqrt(5) - 1) / 2

AT_ONCE = 100
"""Draws that one program makes: as many as traces keep, so that more of them compile no other."""

NUMBERS_AT_ONCE = 2_000_000
"""Numbers of these at most: of a large network, fewer draws are in memory together."""

ROWS_AT_ONCE = 500_000
"""Rows × draws of a program at most: with fifty units, a layer of as many takes 100 MB."""


class DrawSource(Protocol):
    """A source of draws of a flat vector: a JAX pytree, so that compiled programs take it.

    Attributes
    ----------
    draw_key
        Unsigned 32-bit words, from which everything random is derived.
    failed
        Whether there is nothing to predict with.
    """

    @property
    def draw_key(self) -> np.ndarray: ...  # noqa: D102

    @property
    def failed(self) -> bool: ...  # noqa: D102

    def draw(self, i) -> jax.Array:
        """The `i`-th draw, ``(size,)``: the same whoever asks for it. A JAX function."""

    def n_distinct(self, draws: int) -> int:
        """How many of so many draws differ."""

    def on_device(self, dtype: str) -> Self:
        """The same with its arrays on the current device; call it within `precision`."""

    def log_density(self, values: np.ndarray, at_once: int) -> np.ndarray | None:
        """Log-density at vectors ``(draw, size)``, nats, some at a time; None if it has none."""


@register_dataclass
@dataclass(frozen=True, eq=False, repr=False)
class GuideDraws(Summarised):
    """Draws of a fitted guide, made again from its PRNG key whenever they are asked for.

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

    failed: ClassVar[bool] = False

    @classmethod
    def of(cls, guide: Guide, fit: Fit) -> "GuideDraws":
        """Those of a fit."""
        return cls(guide, {n: fit.constrained[n] for n in guide.constrained_shapes}, fit.draw_key)

    @classmethod
    def restored(cls, guide: Guide, arrays: Mapping[str, np.ndarray]) -> list["GuideDraws"]:
        """Those of restarts, from stored arrays ``(restart, ...)``: parameters and ``draw_key``."""
        named = {name: np.asarray(arrays[name]) for name in guide.constrained_shapes}
        return [
            cls(guide, {name: array[i] for name, array in named.items()}, key)
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

    def n_distinct(self, draws):  # noqa: D102
        return 1 if self.guide.is_point else draws

    def on_device(self, dtype):  # noqa: D102
        arrays = {name: np.asarray(array, dtype) for name, array in self.parameters.items()}
        parameters, draw_key = jax.device_put((arrays, self.draw_key))
        return replace(self, parameters=parameters, draw_key=draw_key)

    def log_density(self, values, at_once):  # noqa: D102
        if self.guide.is_point:
            return None
        # Double precision: the sum over a large network's parameters needs it.
        with precision("float64"):
            names = self.guide.constrained_shapes
            arrays = [np.asarray(self.parameters[name], "float64") for name in names]
            density = _guide_density(self.guide, current_device())
            parts = [
                np.asarray(density(block, *arrays)[0])
                for block in filled(np.asarray(values, "float64"), at_once)
            ]
        return np.concatenate(parts)[: len(values)]


@lru_cache(maxsize=16)
def _guide_density(guide: Guide, device: Device) -> Callable:
    """Program of a guide's log-density at vectors, of its parameters; in double precision."""
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
    failed: ClassVar[bool] = False

    @classmethod
    def spread(cls, values: np.ndarray) -> "KeptDraws":
        """The vectors in such an order that the first few of them are spread over all."""
        # Numbers of an irrational rotation of the circle: every run of them is spread evenly.
        order = np.argsort(np.argsort(np.arange(len(values)) * GOLDEN % 1))
        return cls(values[order])

    def draw(self, i):  # noqa: D102
        return self.values[i]

    def n_distinct(self, draws):  # noqa: D102
        return min(draws, len(self.values))

    def on_device(self, dtype):  # noqa: D102
        return KeptDraws(jax.device_put(np.asarray(self.values, dtype)))

    def log_density(self, values, at_once):  # noqa: D102
        return None


def log_density_of_mixture(
    sources: Iterable[DrawSource], weights: Sequence[float], values: np.ndarray, at_once: int
) -> np.ndarray:
    """Log-density of a mixture of sources at flat vectors ``(draw, size)``, ``(draw,)``, nats.

    Not a number if a source with a weight has no density.
    """
    used = [(source, w) for source, w in zip(sources, weights, strict=True) if w > 0]
    parts = [source.log_density(values, at_once) for source, _ in used]
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
    """Program of a graph for many of its first inputs, such as the flat vector; in `precision`.

    `brief` as `compiler_options` has it: whatever sees no rows is.
    """
    function, axes = jax_function(inputs, outputs), (0, *(None,) * (len(inputs) - 1))
    options = compiler_options(brief=True) if brief else None
    return shared(
        ("over draws", function, brief),
        lambda: jax.jit(jax.vmap(function, axes), compiler_options=options),
    )


def draws_in_memory(size: int) -> int:
    """How many draws of a vector of so many numbers are made or read together."""
    return max(1, min(AT_ONCE, NUMBERS_AT_ONCE // size))


def draws_at_once(values: np.ndarray, x: np.ndarray) -> int:
    """How many of the draws ``(draw, size)`` are taken together at rows ``(observation, ...)``."""
    return min(len(values), max(1, ROWS_AT_ONCE // max(1, len(x))))


def filled(values: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Consecutive blocks of draws, all of one length: the last one is filled up."""
    for first in range(0, len(values), size):
        block = values[first : first + size]
        yield np.pad(block, ((0, size - len(block)), (0, 0)), mode="edge")


# Draws of a model's variables, whoever made them, as draws of its flat vector


def unconstrained_draws(model: pm.Model, posterior: Mapping[str, np.ndarray]) -> np.ndarray:
    """Flat vectors of draws, ``(chain, draw, size)``, double precision.

    Parameters
    ----------
    posterior
        Free variables on their own scale by name, ``(chain, draw, *shape)`` each; others may be
        among them.
    """
    given = {v: pt.tensor(v.name, dtype=v.dtype, shape=v.type.shape) for v in model.free_RVs}
    graphs = _replaced([_forward(model, v, given[v]) for v in given], given)
    arrays = [np.asarray(posterior[v.name], np.float64) for v in given]
    with precision("float64"):
        of_one = jax_function(list(given.values()), [graph.ravel() for graph in graphs])
        of_all = jax.jit(jax.vmap(jax.vmap(of_one)))
        found = map(np.asarray, of_all(*map(jnp.asarray, arrays)))
    parts = {model.rvs_to_values[v].name: part for v, part in zip(given, found, strict=True)}
    slots = flatten_model(model, rows=None).layout.slots
    return np.concatenate([parts[slot.name] for slot in slots], axis=-1)


def _forward(model: pm.Model, variable, value):
    """The unconstrained value of a variable's value."""
    transform = model.rvs_to_transforms[variable]
    return value if transform is None else transform.forward(value, *variable.owner.inputs)


def _replaced(graphs, given):
    """Graphs of given values, whose bounds may hang on other variables and on data."""
    graphs = graph_replace(graphs, given, strict=False)
    constants = {
        v: pt.constant(v.get_value(), dtype=v.dtype)
        for v in graph_inputs(graphs)
        if isinstance(v, SharedVariable) and hasattr(v, "dtype")
    }
    return graph_replace(graphs, constants, strict=False)
