"""Data sets that a split divides: tables, NumPy archives, sets of scikit-learn."""

import math
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field

from pmbnn.core.spec import added
from pmbnn.data.base import (
    Calibration,
    DatasetSpec,
    DataSettingError,
    Missing,
    NamesFiles,
    Redundant,
    Stamp,
    Standardise,
    Task,
    calibration_rows,
    find,
    read_archive,
    stamp_of,
)
from pmbnn.data.splits import AnySplit, RandomSplit
from pmbnn.data.synthetic import CURVE_POINTS

if TYPE_CHECKING:
    from pmbnn.data.arrays import Dataset, Line
    from pmbnn.data.raw import RawRows

SAME_ROWS = {"seed": 0, "calibration": 0.0, "standardise": "feature", "standardise_target": True}
"""Settings that the rows of a file do not depend on."""

TaskSetting = Annotated[Task | None, Field(serialization_alias="target_is")]


class UserData(NamesFiles, DatasetSpec):
    """A data set of the user's, which must be read to plan."""

    is_user_data: ClassVar[bool] = True


class SplitRows(UserData):
    """Rows that ``split`` divides into training and test rows.

    Each subclass lists those of the following fields that it has, though they are the same in
    many: a base class would put them first, and digests of records, written experiment files and
    names of cells have them in this order.

    Parameters
    ----------
    split
        How rows are divided into training and test rows.
    calibration
        Share of the training rows to set aside, drawn by the data seed, of classes the same share
        of each: nothing is fitted on them, and they decide conformal intervals and sets of the test
        rows. By default none.
    task
        ``classification`` or ``regression``. By default, text and truth values are classes, and
        numbers are for regression; whole numbers of ten values or fewer may be either, and then
        the task must be given.
    missing
        Where a value is missing: stop with an ``error``, take the ``mean`` of the training rows,
        or ``drop`` the row.
    redundant
        Where a column is constant or repeats another: stop with an ``error``, ``drop`` it, or
        ``keep`` it.
    standardise
        Subtract the mean of the training rows from the inputs and divide them by the standard
        deviation: of each ``feature``, of all together (``global``), or not at all (``none``).
    standardise_target
        Standardise numeric targets on the training rows. Predictions and metrics are in the
        original units either way.
    """

    split: AnySplit = RandomSplit()
    calibration: Calibration = added(0.0)

    source: ClassVar[str] = "local"
    locations: ClassVar[dict[str, Any]] = {"split": {"file": True}}

    def stamp(self) -> Stamp | None:
        """Stamp of the file that the rows are read from, where there is one.

        Raises
        ------
        DataError
            It is not there.
        """
        return None

    def read(self, stamp: Stamp | None) -> "RawRows":
        """The rows before they are split.

        Raises
        ------
        DataError
            They are unavailable, or cannot be used.
        """
        raise NotImplementedError

    def raw(self) -> "RawRows":
        """The rows before they are split, read once as long as their file stays the same.

        Raises
        ------
        DataError
            They are unavailable, or cannot be used.
        """
        settings = SAME_ROWS | {"split": RandomSplit(group=self.split.group)}
        return _read(self.model_copy(update=settings), self.stamp())

    @property
    def declared_task(self) -> Task | None:
        """The setting ``task``, where there is one; else the rows must be read."""
        return getattr(self, "task", None)

    @property
    def n_features(self) -> int:
        """Number of inputs, each of a one-hot column counted."""
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
        return self.raw().input_shape[1:] or None

    @property
    def channels(self) -> int:
        """Colours of an image."""
        return (self.raw().input_shape or (1,))[0]

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        # A share of rows is as large for every seed, and a plan may have a thousand of them.
        is_share = isinstance(self.split, RandomSplit) and self.split.group is None
        train, test = count_parts(self.split, self.raw(), 0 if is_share else self.seed)
        return train - self._calibration_rows(train), test

    @property
    def is_planar(self) -> bool:
        """Whether the inputs are points of a plane, so that maps can be drawn."""
        return self.n_features == 2 and self.image_shape is None

    def lines(self) -> "tuple[Line, ...]":
        """The range of a single input, along which predicted numbers are drawn."""
        if self.n_features > 1:
            return ()
        import numpy as np

        from pmbnn.data.arrays import Line

        raw = self.raw()
        position = np.linspace(np.nanmin(raw.x), np.nanmax(raw.x), CURVE_POINTS)
        return (Line(position, np.ones(1), name=raw.features[0]),)

    @property
    def line_points(self) -> int:
        """Number of points of the line, where there is one."""
        return CURVE_POINTS if self.n_features == 1 else 0

    def check(self) -> None:
        """Raise DataError where the rows are unavailable, or cannot be split as asked."""
        _ = self.rows

    def _calibration_rows(self, train: int) -> int:
        """Number of training rows that are set aside."""
        return calibration_rows(train, self.calibration, self.split.group)

    def load(self) -> "Dataset":
        """Rows split and standardised, the same whenever the seed is.

        Raises
        ------
        DataError
            They are unavailable, or cannot be used.
        """
        from pmbnn.data.arrays import split_dataset

        return split_dataset(self.raw(), self, self.source)


@lru_cache(maxsize=8)
def _read(spec: SplitRows, stamp: Stamp | None) -> "RawRows":
    return spec.read(stamp)


@lru_cache(maxsize=4096)  # a plan asks several times of each of its data seeds
def count_parts(split: AnySplit, raw: "RawRows", seed: int) -> tuple[int, int]:
    """Numbers of training and test rows of a split."""
    train, test = split.parts(raw, seed)
    return len(train), len(test)


class Table(SplitRows):
    """Rows of a table: CSV, also packed (``.gz``, ``.bz2``, ``.xz``, ``.zip``), Parquet or Excel.

    Text is one-hot encoded, a feature ``colour=red`` for each category; truth values are 0 and 1.
    In a column of numbers or truth values, words such as ``NA`` and ``?`` are missing values
    (`pmbnn.data.frames.MISSING_WORDS`); in a column of text, only empty entries are.

    Parameters
    ----------
    file
        Path of the table, looked up beside the experiment file, in the working directory, and in
        the folder of the environment variable ``PMBNN_DATA``.
    target
        Column to predict; or several columns of numbers, predicted by one network:
        ``[[height, weight]]``.
    features
        Columns to predict from, as a list of lists. By default, all but the target
        and the column of groups.
    without
        Columns to leave out of the features, as a list of lists. By default none.
    categorical
        Columns of numbers to encode as categories, as a list of lists. By default none.
    separator
        Sign between columns of a text file; a comma, the default, stands for detection.
    decimal
        Decimal sign of a text file. Detected by default.
    thousands
        Sign between groups of three digits in a text file. Detected by default.
    encoding
        Character encoding of a text file, such as ``utf-8`` or ``cp1252``. Detected by default.
    """

    kind: Literal["table"] = "table"
    file: str
    target: str | tuple[str, ...]
    features: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    task: TaskSetting = None
    missing: Missing = "error"
    redundant: Redundant = "error"
    separator: str = ","
    decimal: Literal[".", ","] | None = added(None)
    thousands: Literal[",", ".", " ", "'"] | None = added(None)
    encoding: str | None = added(None)
    standardise: Standardise = "feature"
    standardise_target: bool = True

    # The identity of a cell has the digest of the rows that these lead to.
    locations: ClassVar[dict[str, Any]] = {
        "file": True,
        "decimal": True,
        "thousands": True,
        "encoding": True,
        "split": {"file": True},
    }

    def stamp(self) -> Stamp:  # noqa: D102
        return stamp_of(find(self.file, self._folders, "file"))

    def read(self, stamp: Stamp) -> "RawRows":  # noqa: D102
        from pmbnn.data.frames import rows_from_frame
        from pmbnn.data.table_file import Format, read_table

        form = Format(self.separator, self.decimal, self.thousands, self.encoding)
        return rows_from_frame(read_table(stamp, self.file, form).frame, self, self.file)


class Npz(SplitRows):
    """Arrays of an ``.npz`` archive: inputs, targets and, for a split by groups, those.

    See `Dataset.from_arrays` for the shapes that arrays may have.

    Parameters
    ----------
    file
        Path of the archive, looked up beside the experiment file, in the working directory, and in
        the folder of the environment variable ``PMBNN_DATA``.
    x
        Name of the array of inputs.
    y
        Name of the array of targets.
    features
        Name of an array with the names of the inputs. By default they are ``x1``, ``x2``, ...
    target_names
        Name of an array with the names of several targets. By default they are ``y1``, ``y2``, ...
    categories
        Name of an array ``(input, 2)`` with the column and the category of each one-hot input, by
        which new rows of a table are encoded. By default, no input is a category.
    """

    kind: Literal["npz"] = "npz"
    file: str
    x: str = "x"
    y: str = "y"
    features: str | None = None
    target_names: str | None = None
    categories: str | None = added(None)
    task: TaskSetting = None
    missing: Missing = "error"
    redundant: Redundant = "error"
    standardise: Standardise = "feature"
    standardise_target: bool = True

    locations: ClassVar[dict[str, Any]] = {
        "file": True,
        "features": True,
        "target_names": True,
        "categories": True,
        "split": {"file": True},
    }

    def stamp(self) -> Stamp:  # noqa: D102
        return stamp_of(find(self.file, self._folders, "file"))

    def read(self, stamp: Stamp) -> "RawRows":  # noqa: D102
        import numpy as np

        from pmbnn.data.raw import Arrays, rows_from_arrays

        settings = ("x", "y", "features", "target_names", "categories")
        names = {setting: getattr(self, setting) for setting in settings}
        names["split.group"] = self.split.group
        names = {setting: name for setting, name in names.items() if name is not None}
        content = read_archive(Path(stamp[0]), self.file, names)
        features, targets = (
            tuple(map(str, content.get(setting, ()))) for setting in ("features", "target_names")
        )
        pairs = content.get("categories", np.empty((0, 2)))
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            rule = f"must name an array (input, 2) of {self.file}, got shape {pairs.shape}"
            raise DataSettingError("categories", rule)
        categories = tuple(map(tuple, pairs.astype(str).tolist()))
        groups = content.get("split.group")
        arrays = Arrays(content["x"], content["y"], features, targets, categories, groups)
        return rows_from_arrays(arrays, self, self.file, self.y)


class _Shape(NamedTuple):
    """Shape of a data set, for plans that do not load it."""

    rows: int
    features: int
    classes: int | None
    image_shape: tuple[int, int] | None = None


SHAPES = {
    "iris": _Shape(150, 4, 3),
    "wine": _Shape(178, 13, 3),
    "breast_cancer": _Shape(569, 30, 2),
    "digits": _Shape(1797, 64, 10, (8, 8)),
    "diabetes": _Shape(442, 10, None),
}


class Sklearn(SplitRows):
    """One of the small data sets that come with scikit-learn.

    Parameters
    ----------
    name
        ``iris``, ``wine`` and ``breast_cancer`` are tables with classes, ``digits`` grey images
        of 8 × 8 pixels, ``diabetes`` a table with numbers to predict.
    """

    kind: Literal["sklearn"] = "sklearn"
    name: Literal["iris", "wine", "breast_cancer", "digits", "diabetes"]
    standardise: Standardise = "feature"
    standardise_target: bool = True

    source: ClassVar[str] = "scikit-learn"
    missing: ClassVar[Missing] = "error"
    channels: ClassVar[int] = 1
    n_targets: ClassVar[int] = 1

    def read(self, stamp: None) -> "RawRows":  # noqa: D102
        import numpy as np
        from sklearn import datasets

        from pmbnn.data.raw import RawRows

        options = {"scaled": False} if self.name == "diabetes" else {}
        bunch = getattr(datasets, f"load_{self.name}")(**options)
        x, y, classes, shape = bunch.data, bunch.target.astype(np.float64), (), ()
        if self.n_classes is not None:
            y, classes = bunch.target.astype(np.int64), tuple(map(str, bunch.target_names))
        if self.image_shape is not None:
            # Pixels are whole numbers up to 16.
            x, shape = x / 16, (1, *self.image_shape)
        names = tuple(map(str, bunch.feature_names))
        numbers = np.arange(len(y))
        return RawRows(x, y, names, classes, numbers, len(y), self.name, input_shape=shape)

    @property
    def declared_task(self) -> Task:
        """The task."""
        return self.task_of_rows

    @property
    def n_features(self) -> int:
        """Number of inputs."""
        return SHAPES[self.name].features

    @property
    def n_classes(self) -> int | None:
        """Number of classes; None where the targets are numbers."""
        return SHAPES[self.name].classes

    @property
    def image_shape(self) -> tuple[int, int] | None:
        """Height and width where a row is an image."""
        return SHAPES[self.name].image_shape

    @property
    def rows(self) -> tuple[int, int]:
        """Numbers of training and test rows."""
        if not isinstance(self.split, RandomSplit) or self.split.group is not None:
            return super().rows
        # Scikit-learn rounds the test rows up.
        test = math.ceil(self.split.test_size * SHAPES[self.name].rows)
        train = SHAPES[self.name].rows - test
        return train - self._calibration_rows(train), test
