"""Conversion of PyTensor graphs to JAX functions.

Gain: vectors of 512 instead of 256 bits make a step of a large network 1.2 times faster
(``uv run python benchmarks/large_networks.py``); kept programs let the cells of a second sweep of
a shape take 0.56 of the time of the first (``uv run python benchmarks/start_up.py``).
"""

import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from weakref import WeakKeyDictionary

import jax
import pytensor.link.jax.dispatch  # noqa: F401  (sets JAX's 64-bit flag, once, at import)
from pymc.logprob.utils import CheckParameterValue
from pytensor.compile.mode import JAX
from pytensor.gradient import DisconnectedGrad, ZeroGrad
from pytensor.graph.basic import Constant, equal_computations
from pytensor.graph.fg import FunctionGraph
from pytensor.link.jax.dispatch import jax_funcify
from pytensor.tensor import TensorVariable

from pmbnn.core.machine import current_device, exact_products
from pmbnn.core.stages import recount
from pmbnn.inference.xla.rewrites import StoppedGradient, use_fast_forms

# Programs that models share, such as those of predictions, which do not depend on the prior
#
# Gain: another prior of a network takes 0.53 of the processor time of a new network, all programs
# (``uv run python benchmarks/end_to_end.py``). Outside `sharing_programs` nothing is kept: the
# graph of a user's model may hold all its data, and is kept no longer than the model.


KEPT = 128
"""Number of functions and programs that are kept, the last used ones: enough for the predictions of
eight networks and the log-priors of dozens of groups."""

_KEPT: ContextVar[OrderedDict | None] = ContextVar("kept programs", default=None)

_OF_OWNERS: WeakKeyDictionary[object, OrderedDict] = WeakKeyDictionary()


@contextmanager
def sharing_programs(owner: object | None = None) -> Iterator[None]:
    """Keep results of `shared` within the context, or for its next contexts while `owner` lives.

    A program is found again if its graph is equal, so that an owner may change.
    """
    token = _KEPT.set(
        OrderedDict() if owner is None else _OF_OWNERS.setdefault(owner, OrderedDict())
    )
    try:
        yield
    finally:
        _KEPT.reset(token)


def shared[T](key: Hashable, build: Callable[[], T]) -> T:
    """Result of an earlier call with an equal key, if it is kept; otherwise that of `build`."""
    kept = _KEPT.get()
    if kept is None:
        return build()
    if key not in kept:
        kept[key] = build()
    kept.move_to_end(key)
    while len(kept) > KEPT:
        kept.popitem(last=False)
    return kept[key]


@dataclass(frozen=True, eq=False)
class GraphKey:
    """A key that is equal for graphs with equal operations and inputs of equal types.

    ``setting`` has all else that determines the JAX function of the graph.
    """

    setting: Hashable
    inputs: Sequence[TensorVariable]
    outputs: Sequence[TensorVariable]

    @property
    def _types(self) -> tuple:
        inputs, outputs = (tuple(v.type for v in side) for side in (self.inputs, self.outputs))
        return self.setting, inputs, outputs

    def __hash__(self) -> int:
        return hash(self._types)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, GraphKey) or self._types != other._types:
            return False
        # PyTensor takes a variable that is an input of both as equal, at whatever place.
        common = {*self.inputs} & {*other.inputs}
        pairs = zip(self.inputs, other.inputs, strict=True)
        if any(a is not b and not common.isdisjoint((a, b)) for a, b in pairs):
            return False
        graphs = (list(self.outputs), list(other.outputs), list(self.inputs), list(other.inputs))
        return equal_computations(*graphs)


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Trace, compile and run in ``float32`` or ``float64``, whatever the global setting is."""
    with jax.enable_x64(dtype == "float64"), exact_products(), warnings.catch_warnings():
        # Graphs are in double precision, and JAX warns of each cast to single precision.
        warnings.filterwarnings("ignore", message="Explicitly requested dtype", module="jax")
        yield


def jax_function(
    inputs: Sequence[TensorVariable], outputs: Sequence[TensorVariable]
) -> Callable[..., tuple]:
    """JAX function of a PyTensor graph; call it within `precision`.

    It does not check parameter values: checks cannot raise errors under JAX, and constants are
    validated before. Equal graphs have one function within `sharing_programs`.
    """
    key = GraphKey((current_device(), jax.config.jax_enable_x64), inputs, outputs)
    return shared(key, lambda: jax_funcify(_rewritten(inputs, outputs)))


def split_jax_function(
    data: Sequence[TensorVariable],
    inputs: Sequence[TensorVariable],
    outputs: Sequence[TensorVariable],
) -> tuple[Callable[..., tuple], Callable[..., tuple]]:
    """`jax_function` in two functions: the part that depends on `data` only, and the rest.

    The first takes the data and returns a tuple; the second takes `inputs` and the elements of that
    tuple. A loop over the second does not repeat the work of the first. Equal graphs have the same
    two functions within `sharing_programs`.
    """
    setting = "split", len(data), current_device(), jax.config.jax_enable_x64
    key = GraphKey(setting, [*data, *inputs], outputs)
    return shared(key, lambda: _split(data, inputs, outputs))


def _split(data, inputs, outputs) -> tuple[Callable[..., tuple], Callable[..., tuple]]:
    graph = _rewritten([*data, *inputs], outputs)
    known = set(graph.inputs[: len(data)])
    used: list[TensorVariable] = []
    for node in graph.toposort():
        parents = [v for v in node.inputs if not isinstance(v, Constant)]
        if parents and known.issuperset(parents):
            known.update(node.outputs)
        else:
            used += node.inputs
    prepared = [v for v in dict.fromkeys([*used, *graph.outputs]) if v in known]
    first = FunctionGraph(graph.inputs[: len(data)], prepared, clone=True)
    second = FunctionGraph([*graph.inputs[len(data) :], *prepared], graph.outputs, clone=True)
    # The function of a graph without outputs would return None.
    prepare = jax_funcify(first) if prepared else lambda *data: ()
    return prepare, jax_funcify(second)


def _rewritten(
    inputs: Sequence[TensorVariable], outputs: Sequence[TensorVariable]
) -> FunctionGraph:
    graph = FunctionGraph(list(inputs), list(outputs), clone=True)
    for node in graph.toposort():
        if isinstance(node.op, CheckParameterValue):
            graph.replace(node.outputs[0], node.inputs[0], import_missing=True)
        elif isinstance(node.op, DisconnectedGrad | ZeroGrad):
            # PyTensor's rewrites remove its views from every graph, before JAX sees them.
            graph.replace(node.outputs[0], StoppedGradient()(*node.inputs), import_missing=True)
    JAX.optimizer.rewrite(graph)
    use_fast_forms(graph)
    return graph


def compiler_options(brief: bool = False) -> dict[str, int]:
    """Options for XLA's compiler on the device that programs run on.

    Parameters
    ----------
    brief
        Options for a program that takes less time than its compilation.
    """
    traits = current_device().traits
    return dict(traits.brief_options if brief else traits.compiler_options)


def count_compiling() -> None:
    """Count the time that XLA compiles as a separate stage."""

    def ended(event: str, seconds: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            recount("compile", seconds)

    jax.monitoring.register_event_duration_secs_listener(ended)


def use_compilation_cache() -> None:
    """Keep compiled programs in the user's cache folder, for the next run of the same shape.

    A program that cannot be written or read is compiled again.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pmbnn" / "xla"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # Small programs too: a fit needs dozens of them, each a few hundredths of a second.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # JAX compiles instead, and would warn of each of dozens of programs.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
