"""What a fit says of all images of one group of a trace."""

from typing import NamedTuple

import numpy as np
import xarray as xr

from pmbnn.prediction.rejection import HELD_OUT
from pmbnn.results.reading import values_of

OOD = "ood_"
"""Start of the names of groups with images that a classifier was never shown."""

MOMENTS = ("probability", "sd")


class Predictions(NamedTuple):
    """Moments over posterior draws of each class's probability, ``(image, class)``."""

    classes: tuple[str, ...]
    probability: np.ndarray
    sd: np.ndarray

    @property
    def predicted(self) -> np.ndarray:
        """Index of the most probable class, ``(image,)``."""
        return self.probability.argmax(axis=1)

    @property
    def confidence(self) -> np.ndarray:
        """Probability of the predicted class, ``(image,)``."""
        return self.probability.max(axis=1)

    @property
    def uncertainty(self) -> np.ndarray:
        """Standard deviation of the predicted class's probability, ``(image,)``."""
        return np.take_along_axis(self.sd, self.predicted[:, None], axis=1)[:, 0]


def predictions_of(trace: xr.DataTree, group: str) -> Predictions:
    """Predictions of a group of images.

    Raises
    ------
    ValueError
        If the trace does not have the group.
    """
    probability, sd = (values_of(trace, group, name, ..., "output") for name in MOMENTS)
    classes = values_of(trace, group, "output", "output")
    return Predictions(tuple(map(str, classes)), probability, sd)


def held_out_group(trace: xr.DataTree) -> str:
    """Group of the digits that were not fitted: the validation ones where they are kept.

    Raises
    ------
    ValueError
        If the trace keeps neither.
    """
    found = [group for group in HELD_OUT if group in trace.children]
    if not found:
        raise ValueError(f"The trace must have one of the groups {', '.join(sorted(HELD_OUT))}.")
    return found[0]


def rows_name(group: str) -> str:
    """What the rows of a group are, in words: ``validation``, ``normal noise``."""
    return group.removesuffix("_predictions").removeprefix(OOD).replace("_", " ")


def ood_groups(trace: xr.DataTree) -> list[str]:
    """Groups of images that the classifier was never shown, in the order they are stored.

    Raises
    ------
    ValueError
        If the trace has none.
    """
    found = [group for group in trace.children if group.startswith(OOD)]
    if not found:
        raise ValueError(f"The trace must have a group whose name starts with `{OOD}`.")
    return found
