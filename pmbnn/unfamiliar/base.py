"""The pictures of one unfamiliar kind, and the specification that makes or loads them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from pmbnn.datasets.base import Dataset
from pmbnn.digit_format import SIDE
from pmbnn.specification import Specification

if TYPE_CHECKING:
    import numpy as np

PIXELS = SIDE * SIDE

Size = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Digits:
    """Test digits that a kind may need.

    ``x`` holds raw pixels in [0, 1], ``(observation, 784)``; ``labels`` names each digit.
    """

    x: "np.ndarray"
    labels: tuple[str, ...]


def digits_of(dataset: Dataset) -> Digits:
    """Raw test digits of a data set of pictures, standardisation undone."""
    import numpy as np

    pixels = dataset.standardisation.undo(dataset.x_test).clip(0, 1)
    labels = tuple(dataset.classes[label] for label in dataset.y_test)
    return Digits(pixels.astype(np.float32), labels)


@dataclass(frozen=True)
class Pictures:
    """Pictures that a digit classifier was never shown.

    Attributes
    ----------
    name
        The kind, and what tells it apart from others of its kind (``rotated_90``).
    x
        Raw pixels, float32, ``(observation, 784)``; 0 is black paper, 1 is white ink, and only
        noise goes beyond.
    labels
        What each picture shows; empty for noise.
    source
        Where the pictures came from, in words.
    """

    name: str
    x: "np.ndarray"
    labels: tuple[str, ...]
    source: str

    def __len__(self) -> int:
        """Return the number of pictures."""
        return len(self.x)


class UnfamiliarSpec(Specification):
    """A kind of unfamiliar pictures, as an experiment file names it."""

    kind: str

    @property
    def name(self) -> str:
        """The kind, and what tells it apart from others of its kind."""
        return self.kind

    def load(self, digits: Digits) -> Pictures:
        """Make or load the pictures; what they may need of the test digits is given."""
        raise NotImplementedError
