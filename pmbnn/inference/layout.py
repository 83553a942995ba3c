"""Where each free variable lies in the flat vector that guides and priors are written for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pytensor.tensor as pt
from pytensor.tensor import TensorVariable


@dataclass(frozen=True)
class Slot:
    """Place of one free variable in the flat vector; ``name`` is its value variable's."""

    name: str
    start: int
    shape: tuple[int, ...]

    @property
    def length(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    @property
    def stop(self) -> int:
        """Index after the last element."""
        return self.start + self.length

    def of(self, vector):
        """The variable's part of a flat vector, in its own shape."""
        return vector[self.start : self.stop].reshape(self.shape)


@dataclass(frozen=True)
class Layout:
    """Places of all free variables, one after the other without gaps."""

    slots: tuple[Slot, ...]

    @classmethod
    def of(cls, shapes: Mapping[str, tuple[int, ...]]) -> "Layout":
        """The layout of variables with these names and shapes, in their order."""
        starts = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes.values())])
        places = zip(shapes.items(), starts[:-1], strict=True)
        return cls(tuple(Slot(name, int(start), shape) for (name, shape), start in places))

    @property
    def size(self) -> int:
        """Number of elements of the vector."""
        return self.slots[-1].stop

    def unravel(self, vector) -> dict[str, TensorVariable | np.ndarray]:
        """Parts of a flat vector, ``(size,)``, by name and in their shapes."""
        if not isinstance(vector, TensorVariable):
            return {slot.name: slot.of(vector) for slot in self.slots}
        parts = split_vector(vector, [slot.length for slot in self.slots])
        return {
            slot.name: part.reshape(slot.shape)
            for slot, part in zip(self.slots, parts, strict=True)
        }

    def ravel(self, parts: Mapping[str, np.ndarray]) -> np.ndarray:
        """The flat vector of parts by name, ``(size,)``."""
        return np.concatenate([np.ravel(parts[slot.name]) for slot in self.slots])


def split_vector(vector: TensorVariable, lengths: Sequence[int]) -> list[TensorVariable]:
    """Consecutive parts of a vector.

    The gradient of a split is one concatenation; that of as many slices is as many vectors of
    full length, all but a part of each zero.
    """
    if len(lengths) == 1:
        return [vector]
    return pt.split(vector, splits_size=list(lengths))
