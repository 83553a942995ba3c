"""Where PyTensor graphs become JAX functions.

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

# Programs that models share: those of predictions, which no prior changes
#
# Gain: another prior of a network takes 0.53 of the processor time of a new network, all programs
# (``uv run python benchmarks/end_to_end.py``). Where nobody asks for it, nothing is kept: a model
# that anyone wrote may hold all its data in its graph.


KEPT = 128
"""How many things are kept, those used last: functions and programs of the predictions of eight
networks, and the log-priors of dozens of groups."""

_KEPT: ContextVar[OrderedDict | None] = ContextVar("kept programs", default=None)


@contextmanager
def sharing_programs() -> Iterator[None]:
    """Keep what `shared` builds meanwhile."""
    token = _KEPT.set(OrderedDict())
    try:
        yield
    finally:
        _KEPT.reset(token)


def shared[T](key: Hashable, build: Callable[[], T]) -> T:
    """What was built for an equal key before, if it is kept, or what is built now."""
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
    """A graph as a key: equal to any that does the same to inputs of the same types.

    ``setting`` is what else decides the function that is made of it.
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
        # A variable that is an input of both has to be the same one: PyTensor takes it for equal.
        both = {*self.inputs} & {*other.inputs}
        places = zip(self.inputs, other.inputs, strict=True)
        if any(a is not b and not both.isdisjoint((a, b)) for a, b in places):
            return False
        graphs = (list(self.outputs), list(other.outputs), list(self.inputs), list(other.inputs))
        return equal_computations(*graphs)


@contextmanager
def precision(dtype: str) -> Iterator[None]:
    """Trace, compile and run in ``float32`` or ``float64``, whatever PyTensor set globally."""
    with jax.enable_x64(dtype == "float64"), exact_products(), warnings.catch_warnings():
        # Graphs are written in double precision; JAX says at each cast that it narrows.
        warnings.filterwarnings("ignore", message="Explicitly requested dtype", module="jax")
        yield


def jax_function(
    inputs: Sequence[TensorVariable], outputs: Sequence[TensorVariable]
) -> Callable[..., tuple]:
    """JAX function of a PyTensor graph; call it within `precision`.

    Checks of parameter values are left out: they cannot raise under JAX, and every constant
    was validated before. Equal graphs have one function within `sharing_programs`.
    """
    key = GraphKey((current_device(), jax.config.jax_enable_x64), inputs, outputs)
    return shared(key, lambda: jax_funcify(_rewritten(inputs, outputs)))


def split_jax_function(
    data: Sequence[TensorVariable],
    inputs: Sequence[TensorVariable],
    outputs: Sequence[TensorVariable],
) -> tuple[Callable[..., tuple], Callable[..., tuple]]:
    """`jax_function` in two: what depends on `data` only, and the rest.

    The first takes the data and gives a tuple; the second takes `inputs`, then that tuple's
    elements. A loop over the second alone need not do the work of the first at every step.
    """
    graph = _rewritten([*data, *inputs], outputs)
    of_data = set(graph.inputs[: len(data)])
    for node in graph.toposort():
        parents = [v for v in node.inputs if not isinstance(v, Constant)]
        if parents and all(v in of_data for v in parents):
            of_data.update(node.outputs)
    rest = [node for node in graph.toposort() if not of_data.issuperset(node.outputs)]
    used = [v for node in rest for v in node.inputs]
    prepared = [v for v in dict.fromkeys([*used, *graph.outputs]) if v in of_data]
    first = FunctionGraph(graph.inputs[: len(data)], prepared, clone=True)
    second = FunctionGraph([*graph.inputs[len(data) :], *prepared], graph.outputs, clone=True)
    # A graph without outputs would become a function that gives None.
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
            # PyTensor's rewrites take its views out of every graph, before JAX sees them.
            graph.replace(node.outputs[0], StoppedGradient()(*node.inputs), import_missing=True)
    JAX.optimizer.rewrite(graph)
    use_fast_forms(graph)
    return graph


def compiler_options(brief: bool = False) -> dict[str, int]:
    """Options for XLA's compiler on the device that programs run on.

    Parameters
    ----------
    brief
        Of a program that takes less time than its compiling does.
    """
    traits = current_device().traits
    return dict(traits.brief_options if brief else traits.compiler_options)


def count_compiling() -> None:
    """Count XLA's compiling as a stage of its own, whatever it is compiled within."""

    def ended(event: str, seconds: float, **_: object) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            recount("compile", seconds)

    jax.monitoring.register_event_duration_secs_listener(ended)


def use_compilation_cache() -> None:
    """Keep compiled programs in the user's cache folder, for the next run of the same shape.

    One that cannot be written or read costs time and nothing else.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pmbnn" / "xla"
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # Small programs too: a fit takes dozens of them, each a few hundredths of a second.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # JAX compiles instead, and says so of each of dozens of programs.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache")
