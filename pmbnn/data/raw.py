"""Rows as they were read, checked: a split makes a `Dataset` of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pmbnn.data.base import (
    DataError,
    DataSettingError,
    Missing,
    Redundant,
    Seed,
    Standardise,
    Task,
    name_of,
    show_names,
)
from pmbnn.data.splits import AnySplit, RandomSplit
from pmbnn.spec import Specification

FEW = 10
"""Whole numbers of no more distinct values than this may be classes as well as counts."""


class RowSettings(Specification):
    """What is done with rows; data sets that have these fields stand in its place."""

    task: Task | None = None
    split: AnySplit = RandomSplit()
    seed: Seed = 0
    standardise: Standardise = "feature"
    standardise_target: bool = True
    missing: Missing = "error"
    redundant: Redundant = "error"


@dataclass(frozen=True, eq=False)
class RawRows:
    """Rows in the units of the data.

    Attributes
    ----------
    x
        Inputs, ``(row, feature)``, float64; missing values are not a number.
    y
        Class indices, ``(row,)``, int64; or numbers, float64, ``(row, target)`` of several.
    features, classes
        Names; no classes where targets are numbers.
    numbers
        Which row of what was read each is, from 0, ascending.
    read
        How many rows were read, those that were dropped included.
    title
        What the rows are called in messages.
    groups
        To which group a row belongs, ``(row,)``; None where there are none.
    input_shape
        What a row stands for, as in `Rows`.
    target_names
        Of several targets.
    """

    x: np.ndarray
    y: np.ndarray
    features: tuple[str, ...]
    classes: tuple[str, ...]
    numbers: np.ndarray
    read: int
    title: str
    groups: np.ndarray | None = None
    input_shape: tuple[int, ...] = ()
    target_names: tuple[str, ...] = ()

    def take(self, rows: np.ndarray) -> "RawRows":
        """Some of the rows."""
        groups = None if self.groups is None else self.groups[rows]
        parts = {"x": self.x[rows], "y": self.y[rows], "numbers": self.numbers[rows]}
        return replace(self, **parts, groups=groups)


class Given(NamedTuple):
    """Rows as they are handed over in memory.

    Attributes
    ----------
    x, y
        Inputs and targets, as `Dataset.from_arrays` takes them.
    features
        Names of the inputs; ``x1``, ``x2``, ... unless given.
    groups
        To which group a row belongs, where there are groups.
    numbers, read
        Which row of how many each was, from 0, where some were left out.
    target_names
        Of several targets; ``y1``, ``y2``, ... unless given.
    """

    x: np.ndarray
    y: np.ndarray
    features: tuple[str, ...] = ()
    groups: np.ndarray | None = None
    numbers: np.ndarray | None = None
    read: int | None = None
    target_names: tuple[str, ...] = ()


def raw_of_arrays(given: Given, settings: RowSettings, title: str, target: str = "y") -> RawRows:
    """Rows of arrays; see `Dataset.from_arrays`.

    Raises
    ------
    DataError
        They are not as they must be.
    """
    x, y, groups = given.x, given.y, given.groups
    _check_shapes(x, y, title, target)
    input_shape = image_shape(x)
    if x.dtype == np.uint8 and input_shape:
        x = x / 255.0
    x = x.reshape(len(x), -1).astype(np.float64, copy=False)
    count = x.shape[1]
    names = given.features or tuple(f"x{i}" for i in range(1, count + 1))
    if len(names) != count:
        raise DataSettingError("features", f"must name {count} inputs, got {len(names)}")
    if groups is not None and len(groups) != len(y):
        raise DataError(f"{title}: must have a group for each of {len(y)} rows, got {len(groups)}.")
    y, classes, target_names = _targets_of_array(
        y, given.target_names, settings.task, title, target
    )
    numbers = np.arange(len(y)) if given.numbers is None else given.numbers
    read = len(y) if given.read is None else given.read
    raw = RawRows(x, y, names, classes, numbers, read, title, groups, input_shape, target_names)
    # Pixels at the border of images are all the same, and no mistake.
    redundant = "keep" if input_shape else settings.redundant
    return _checked_rows(raw, settings.missing, redundant)


def _targets_of_array(
    y: np.ndarray, names: Sequence[str], task: Task | None, title: str, target: str
) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Targets, names of classes, and those of several targets."""
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim == 1:
        return *targets_of(y, task, title, target), ()
    count = y.shape[1]
    names = tuple(names) or tuple(f"{target}{i}" for i in range(1, count + 1))
    if len(names) != count:
        raise DataSettingError("target_names", f"must name {count} targets, got {len(names)}")
    check_target_names(names, "target_names")
    return several_targets(y.T, names, task, title), (), names


def image_shape(x: np.ndarray) -> tuple[int, ...]:
    """What a row of an array stands for; nothing where it is a row of features."""
    if x.ndim == 2:
        return ()
    return x.shape[1:] if x.ndim == 4 else (1, *x.shape[1:])


def _check_shapes(x: np.ndarray, y: np.ndarray, title: str, target: str) -> None:
    if x.ndim not in (2, 3, 4) or x.dtype.kind not in "biuf":
        raise DataError(
            f"{title}: must be numbers (row, feature), (row, height, width) or (row, channel, "
            f"height, width), got shape {x.shape} of {x.dtype}."
        )
    if x.ndim == 4 and x.shape[1] not in (1, 3):
        raise DataError(f"{title}: images must have 1 or 3 channels, got shape {x.shape}.")
    if y.ndim not in (1, 2) or len(y) != len(x) or y.shape[1:] == (0,):
        raise DataError(
            f"{title}: `{target}` must have one target for each of {len(x)} rows, or a row of "
            f"several, got shape {y.shape}."
        )
    if not x.size:
        raise DataError(f"{title}: has no rows.")


# Checks of all kinds


def targets_of(
    y: np.ndarray, task: Task | None, title: str, name: str
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class indices with the names of the classes, or numbers without.

    Text and truth values are classes, numbers are numbers, unless ``task`` says so of whole
    numbers; of whole numbers of few values it must say.

    Raises
    ------
    DataError
        They are of one class, not finite, or may be either.
    """
    if y.dtype.kind not in "biuf":
        # None, and NaN, which differs from itself, would become words.
        gap = next((i for i, value in enumerate(y) if value is None or value != value), None)
        if gap is not None:
            raise DataError(f"{title}, row {gap + 1}: target `{name}` is missing.")
        y = np.array([str(value) for value in y])
    distinct = np.unique(y)
    if y.dtype.kind in "iuf" and task != "classification":
        return _numbers_of(y, distinct, task, title, name), ()
    if task == "regression":
        shown = show_names(distinct)
        raise DataSettingError(
            "task",
            f"must be classification with the values of `{name}` ({shown}), got 'regression'",
        )
    if y.dtype.kind == "f" and not _is_whole(y):
        wrong = next(value for value in distinct if value != np.rint(value))
        raise DataSettingError(
            "task", f"must be regression, as `{name}` has the value {wrong:g}, got 'classification'"
        )
    if len(distinct) < 2:
        raise DataError(
            f"{title}: target `{name}` must have at least two classes, got {show_names(distinct)} "
            "only."
        )
    return np.searchsorted(distinct, y).astype(np.int64), tuple(map(name_of, distinct))


def check_target_names(names: Sequence[str], setting: str) -> None:
    """Raise DataSettingError where several targets have one name."""
    for name in names:
        if names.count(name) > 1:
            raise DataSettingError(setting, f"must name each target once, got {name!r} twice")


def several_targets(
    columns: Sequence[np.ndarray], names: Sequence[str], task: Task | None, title: str
) -> np.ndarray:
    """Several targets a row, ``(row, target)``: they are numbers, whole ones as well.

    Raises
    ------
    DataError
        Some are classes, or not as numbers must be.
    """
    if task == "classification":
        raise DataSettingError("task", f"must be regression with {len(names)} targets")
    for column, name in zip(columns, names, strict=True):
        if column.dtype.kind not in "iuf":
            what = "truth values" if column.dtype.kind == "b" else "text"
            raise DataError(
                f"{title}: target `{name}` must hold numbers, as several targets do, got {what}."
            )
    return np.stack(
        [
            _numbers_of(column, np.unique(column), "regression", title, name)
            for column, name in zip(columns, names, strict=True)
        ],
        axis=1,
    )


def _numbers_of(y, distinct, task: Task | None, title: str, name: str) -> np.ndarray:
    if not np.isfinite(y.astype(np.float64)).all():
        row = int(np.argmin(np.isfinite(y.astype(np.float64))))
        raise DataError(f"{title}, row {row + 1}: target `{name}` must be finite, got {y[row]}.")
    if is_constant(y.astype(np.float64)):
        raise DataError(f"{title}: target `{name}` has one value only: {name_of(distinct[0])}.")
    if task is None and len(distinct) <= FEW and _is_whole(y):
        raise DataSettingError(
            "task",
            f"must be classification or regression, as `{name}` has whole numbers of "
            f"{len(distinct)} values ({show_names(distinct)}), got null",
        )
    return y.astype(np.float64)


def _checked_rows(raw: RawRows, missing: str, redundant: str) -> RawRows:
    """The rows as far as they can be used.

    Raises
    ------
    DataError
        A value is missing or infinite, or a column says nothing, and it is not said what then.
    """
    infinite = np.isinf(raw.x)
    if infinite.any():
        row, column = np.argwhere(infinite)[0]
        raise DataError(
            f"{_place(raw, row, column)} must be a finite number, got {raw.x[row, column]}."
        )
    gaps = np.isnan(raw.x)
    if gaps.any() and missing == "error":
        row, column = np.argwhere(gaps)[0]
        remedy = "say `missing: mean`, `missing: drop`, or leave the column out with `without`"
        raise DataError(f"{_place(raw, row, column)} is missing: {remedy}.")
    if missing == "drop" and gaps.any():
        raw = raw.take(np.flatnonzero(~gaps.any(axis=1)))
        if not len(raw.y):
            raise DataError(f"{raw.title}: no row is left without those that lack a value.")
        if raw.classes and len(np.unique(raw.y)) < len(raw.classes):
            lacking = next(c for i, c in enumerate(raw.classes) if not (raw.y == i).any())
            raise DataError(
                f"{raw.title}: class `{lacking}` has no row without those that lack a value."
            )
    return raw if redundant == "keep" else _without_redundant(raw, redundant)


def _without_redundant(raw: RawRows, redundant: str) -> RawRows:
    """Rows without constant columns and repeated ones, of which the first stays."""
    # What is missing is compared as one value like any other.
    known = np.nan_to_num(raw.x, nan=np.inf)
    constant = (known == known[0]).all(axis=0)
    whole = np.isfinite(known).all(axis=0)
    constant[whole] |= is_constant(known[:, whole])
    seen: dict[bytes, int] = {}
    first = [seen.setdefault(column.tobytes(), i) for i, column in enumerate(known.T)]
    repeated = np.array(first) != np.arange(len(first))
    if redundant == "error" and constant.any():
        names = show_names(np.array(raw.features)[constant])
        raise DataError(
            f"{raw.title}: {_columns(constant)} {names} must have more than one value: name them "
            "under `without`, or say `redundant: drop`."
        )
    if redundant == "error" and repeated.any():
        i = int(np.argmax(repeated))
        one, other = raw.features[first[i]], raw.features[i]
        raise DataError(
            f"{raw.title}: columns `{one}` and `{other}` must not be the same: name one under "
            "`without`, or say `redundant: drop`."
        )
    kept = ~(constant | repeated)
    if not kept.any():
        raise DataError(f"{raw.title}: no feature is left: every column is constant.")
    if kept.all():
        return raw
    names = tuple(np.array(raw.features)[kept].tolist())
    return replace(raw, x=raw.x[:, kept], features=names)


def _columns(chosen: np.ndarray) -> str:
    return "column" if chosen.sum() == 1 else "columns"


def _place(raw: RawRows, row: int, column: int) -> str:
    return f"{raw.title}, row {raw.numbers[row] + 1}: column `{raw.features[column]}`"


def _is_whole(y: np.ndarray) -> bool:
    return bool((y == np.rint(y)).all())


def is_constant(x: np.ndarray, axis: int | None = 0) -> np.ndarray:
    """Whether the values along an axis differ by no more than rounding errors.

    The rule is that of ``sklearn.preprocessing.StandardScaler``: the variance is at most the error
    that computing it in two passes may have. The standard deviation of 0.1 in every row can be
    1e-17 instead of 0, and no value may be divided by it.

    References
    ----------
    T. F. Chan, G. H. Golub and R. J. LeVeque (1983), Algorithms for computing the sample variance.
    """
    rows = x.size if axis is None else x.shape[axis]
    mean, variance = x.mean(axis=axis), x.var(axis=axis)
    epsilon = np.finfo(np.float64).eps
    return variance <= rows * epsilon * variance + (rows * mean * epsilon) ** 2
