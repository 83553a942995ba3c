"""What data sets of one's own have in common."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from pmbnn.data.base import DatasetSpec, Targets
from pmbnn.data.curves import CURVE_POINTS
from pmbnn.data.local_files import NamesFiles
from pmbnn.data.splits import AnySplit, Share

if TYPE_CHECKING:
    from pmbnn.data.arrays import Dataset, Line
    from pmbnn.data.raw import RawRows


class OwnData(NamesFiles, DatasetSpec):
    """A data set that the user has, or has chosen: what it is, is known once it is read."""

    is_own: ClassVar[bool] = True


class SplitRows(OwnData):
    """Rows in one piece, which ``split`` divides into training and test rows.

    Its subclasses have the fields ``standardise`` and ``standardise_target``.
    """

    split: AnySplit = Share()

    source: ClassVar[str] = "local"
    locations: ClassVar[dict[str, Any]] = {"split": {"file": True}}

    def raw(self) -> "RawRows":
        """The rows as they are, read once as long as their file stays the same.

        Raises
        ------
        DataError
            They are unavailable, or not as they must be.
        """
        raise NotImplementedError

    @property
    def declared_targets(self) -> Targets | None:
        """What ``target_is`` says, where there is such a setting; else the rows must be read."""
        return getattr(self, "target_is", None)

    @property
    def n_features(self) -> int:
        """Number of inputs, those of one-hot columns each counted."""
        return len(self.raw().features)

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None where the targets are numbers."""
        return len(self.raw().classes) or None

    @property
    def n_targets(self) -> int:
        """Number of targets a row."""
        return len(self.raw().target_names) or 1

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """Height and width where a row is an image."""
        shape = self.raw().input_shape
        return shape[1:] or None

    @property
    def channels(self) -> int:
        """Colours of an image."""
        shape = self.raw().input_shape
        return shape[0] if shape else 1

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        # A share of rows has as many for every seed, and a plan may have a thousand of those.
        alike = isinstance(self.split, Share) and self.split.group is None
        return _counts(self.split, self.raw(), 0 if alike else self.seed)

    @property
    def is_planar(self) -> bool:
        """Whether the inputs are points of a plane, so that maps can be drawn."""
        return self.n_features == 2 and self.image_shape is None

    def lines(self) -> "tuple[Line, ...]":
        """The range of the one input, where there is one, that curves are drawn on."""
        if self.n_features > 1:
            return ()
        import numpy as np

        from pmbnn.data.arrays import Line

        raw = self.raw()
        position = np.linspace(np.nanmin(raw.x), np.nanmax(raw.x), CURVE_POINTS)
        return (Line(position, np.ones(1), name=raw.features[0]),)

    @property
    def line_points(self) -> int:
        """Points of the line, where there is one."""
        return CURVE_POINTS if self.n_features == 1 else 0

    def check(self) -> None:
        """Raise DataError where the rows are unavailable, or cannot be split as asked."""
        _ = self.rows

    def load(self) -> "Dataset":
        """Rows split and standardised, the same whenever the seed is.

        Raises
        ------
        DataError
            They are unavailable, or not as they must be.
        """
        from pmbnn.data.arrays import split_dataset

        return split_dataset(
            self.raw(),
            self.split,
            self.seed,
            self.standardise,
            self.standardise_target,
            self.source,
        )


@lru_cache(maxsize=4096)  # a plan asks several times of each of its data seeds
def _counts(split: AnySplit, raw: "RawRows", seed: int) -> tuple[int, int]:
    train, test = split.parts(raw, seed)
    return len(train), len(test)
