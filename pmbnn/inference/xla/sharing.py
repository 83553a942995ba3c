"""Programs that models share: those of predictions, which no prior changes.

Gain: another prior of a network takes 0.53 of the processor time of a new network, all programs
(``uv run python benchmarks/end_to_end.py``). Where nobody asks for it, nothing is kept: a model
that anyone wrote may hold all its data in its graph.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from pytensor.graph.basic import equal_computations
from pytensor.tensor import TensorVariable

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
