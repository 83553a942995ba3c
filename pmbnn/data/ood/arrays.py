"""Images that a digit classifier was never shown, and the digits some are made of."""

from dataclasses import dataclass

import numpy as np

from pmbnn.data.arrays import Dataset
from pmbnn.data.base import DataError
from pmbnn.data.digit_format import SIDE
from pmbnn.spec.display import Summarised

PIXELS = SIDE * SIDE


@dataclass(frozen=True, repr=False)
class Digits(Summarised):
    """Test digits that a kind may need.

    ``x`` holds raw pixels in [0, 1], ``(observation, 784)``; ``labels`` names each digit.
    """

    x: np.ndarray
    labels: tuple[str, ...]


NO_DIGITS = Digits(np.empty((0, PIXELS), np.float32), ())
"""For kinds that need none."""


def digits_of(dataset: Dataset) -> Digits:
    """Raw test digits of a data set of images, standardisation undone."""
    pixels = dataset.standardisation.undo(dataset.x_test).clip(0, 1)
    labels = tuple(dataset.classes[label] for label in dataset.y_test)
    return Digits(pixels.astype(np.float32), labels)


@dataclass(frozen=True, repr=False)
class OodImages(Summarised):
    """Images that a digit classifier was never shown.

    Attributes
    ----------
    name
        The kind, and what tells it apart from others of its kind (``rotated_90``).
    x
        Raw pixels, float32, ``(observation, 784)``; 0 is black paper, 1 is white foreground, and
        only noise goes beyond.
    labels
        What each image shows, one an image; the empty text for noise.
    source
        Where the images came from, in words.
    """

    name: str
    x: np.ndarray
    labels: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        """Raise DataError unless there is a label an image."""
        if len(self.labels) != len(self.x):
            rule = f"must have as many labels as images ({len(self.x)}), got {len(self.labels)}"
            raise DataError(f"{self.name} {rule}.")

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.x)
