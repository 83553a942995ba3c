"""Data sets that scikit-learn ships."""

import math
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pmbnn.data.base import Standardise, Targets
from pmbnn.data.own import SplitRows
from pmbnn.data.splits import Share

if TYPE_CHECKING:
    from pmbnn.data.raw import RawRows


class _Known(NamedTuple):
    """What is known of a set without loading it."""

    rows: int
    features: int
    classes: int | None
    image_shape: tuple[int, int] | None = None


KNOWN = {
    "iris": _Known(150, 4, 3),
    "wine": _Known(178, 13, 3),
    "breast_cancer": _Known(569, 30, 2),
    "digits": _Known(1797, 64, 10, (8, 8)),
    "diabetes": _Known(442, 10, None),
}


class Sklearn(SplitRows):
    """One of the small data sets that come with scikit-learn.

    ``name`` is ``iris``, ``wine``, ``breast_cancer``, ``digits`` (grey images of 8 × 8 pixels) or
    ``diabetes`` (numbers to be predicted, in its own units).
    """

    kind: Literal["sklearn"] = "sklearn"
    name: Literal["iris", "wine", "breast_cancer", "digits", "diabetes"]
    standardise: Standardise = "feature"
    standardise_target: bool = True

    source: ClassVar[str] = "scikit-learn"
    channels: ClassVar[int] = 1
    n_targets: ClassVar[int] = 1

    def raw(self) -> "RawRows":  # noqa: D102
        return _load(self.name)

    @property
    def declared_targets(self) -> Targets:
        """What its targets are."""
        return self.targets

    @property
    def n_features(self) -> int:
        """Number of inputs."""
        return KNOWN[self.name].features

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None where the targets are numbers."""
        return KNOWN[self.name].classes

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """Height and width where a row is an image."""
        return KNOWN[self.name].image_shape

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        if not isinstance(self.split, Share) or self.split.group is not None:
            return super().rows
        # Scikit-learn rounds the test rows up.
        test = math.ceil(self.split.test * KNOWN[self.name].rows)
        return KNOWN[self.name].rows - test, test


@lru_cache(maxsize=4)
def _load(name: str) -> "RawRows":
    import numpy as np
    from sklearn import datasets

    from pmbnn.data.raw import RawRows

    known = KNOWN[name]
    settings = {"scaled": False} if name == "diabetes" else {}
    found = getattr(datasets, f"load_{name}")(**settings)
    x, y, classes = found.data, found.target.astype(np.float64), ()
    if known.classes is not None:
        y, classes = found.target.astype(np.int64), tuple(map(str, found.target_names))
    shape = ()
    if known.image_shape is not None:
        # Pixels are whole numbers up to 16.
        x, shape = x / 16, (1, *known.image_shape)
    names = tuple(map(str, found.feature_names))
    numbers = np.arange(len(y))
    return RawRows(x, y, names, classes, numbers, len(y), name, input_shape=shape)
