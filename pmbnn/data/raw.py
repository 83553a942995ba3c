"""Rows as they were read, checked, before they are split."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from pmbnn.core.display import Summarised
from pmbnn.core.spec import Specification, added
from pmbnn.data.base import (
    Calibration,
    DataError,
    DataSettingError,
    Missing,
    Redundant,
    Seed,
    Standardise,
    Task,
    check_unique,
    name_of,
    show_names,
)
from pmbnn.data.splits import AnySplit, RandomSplit

FEW = 10
"""Whole numbers of no more distinct values than this may be classes as well as counts."""


class RowSettings(Specification):
    """Settings of rows; a specification of a data set with these fields can take its place."""

    task: Task | None = None
    split: AnySplit = RandomSplit()
    calibration: Calibration = added(0.0)
    seed: Seed = 0
    standardise: Standardise = "feature"
    standardise_target: bool = True
    missing: Missing = "error"
    redundant: Redundant = "error"


Categories = tuple[tuple[str, str], ...]
"""Column and category of each one-hot input of a table, also of those that were left out."""


@dataclass(frozen=True, eq=False, repr=False)
class Encoder(Summarised):
    """How columns of a table become inputs of a network.

    Attributes
    ----------
    features
        Names of the inputs: of columns of numbers, or ``column=category``.
    categories
        Column and category of each one-hot input.
    fill
        Values in place of missing inputs, ``(feature,)``; None where nothing may be missing.
    """

    features: tuple[str, ...]
    categories: Categories = ()
    fill: np.ndarray | None = None

    @property
    def sources(self) -> list[tuple[str, str | None]]:
        """Column of each input, and its category; None of a column of numbers."""
        one_hot = {input_name(*pair): pair for pair in self.categories}
        return [one_hot.get(name, (name, None)) for name in self.features]


def input_name(column: str, category: str) -> str:
    """Name of the one-hot input of a category."""
    return f"{column}={category}"


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
        Number of each row among those that were read, from 0, ascending.
    read
        Number of rows that were read, with those that were dropped.
    title
        Name of the rows in messages.
    groups
        Group of each row, ``(row,)``; None where there are none.
    input_shape
        Shape of one row, as in `Rows`.
    target_names
        Names of several targets.
    categories
        As those of `Encoder`.
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
    categories: Categories = ()

    def take(self, rows: np.ndarray) -> "RawRows":
        """Some of the rows."""
        groups = None if self.groups is None else self.groups[rows]
        parts = {"x": self.x[rows], "y": self.y[rows], "numbers": self.numbers[rows]}
        return replace(self, **parts, groups=groups)


class Arrays(NamedTuple):
    """Rows in memory, not checked yet.

    Attributes
    ----------
    x, y
        Inputs and targets, as `Dataset.from_arrays` takes them.
    features, target_names
        Names of the inputs, ``x1``, ``x2``, ... by default; and of several targets, ``y1``, ...
    categories
        As those of `Encoder`.
    groups
        Group of each row, where there are groups.
    numbers, read
        As those of `RawRows`, where some rows were left out.
    """

    x: np.ndarray
    y: np.ndarray
    features: tuple[str, ...] = ()
    target_names: tuple[str, ...] = ()
    categories: Categories = ()
    groups: np.ndarray | None = None
    numbers: np.ndarray | None = None
    read: int | None = None


def rows_from_arrays(
    arrays: Arrays, settings: RowSettings, title: str, target: str = "y"
) -> RawRows:
    """Rows of arrays; see `Dataset.from_arrays`.

    Raises
    ------
    DataError
        They cannot be used.
    """
    x, y, groups = arrays.x, arrays.y, arrays.groups
    _check_shapes(x, y, title, target)
    input_shape = {2: (), 3: (1, *x.shape[1:]), 4: x.shape[1:]}[x.ndim]
    if x.dtype == np.uint8 and input_shape:
        x = x / 255.0
    x = x.reshape(len(x), -1).astype(np.float64, copy=False)
    features = _names(arrays.features, "x", x.shape[1], "features", "inputs")
    if groups is not None and settings.split.group is None:
        rule = "must be left out unless `split` has a `group`, as RandomSplit(group='shop') has"
        raise DataSettingError("groups", rule)
    numbers = np.arange(len(y)) if arrays.numbers is None else arrays.numbers
    if groups is not None:
        _check_groups(groups, title, numbers)
        groups = comparable_groups(groups)
    if y.ndim == 1 or y.shape[1] == 1:
        y, classes = _targets(y.ravel(), settings.task, title, target, numbers)
        names = ()
    else:
        names = _names(arrays.target_names, target, y.shape[1], "target_names", "targets")
        check_unique("target_names", names, "target")
        y, classes = several_targets(y.T, names, settings.task, title, numbers), ()
    read = len(y) if arrays.read is None else arrays.read
    others = groups, input_shape, names, arrays.categories
    raw = RawRows(x, y, features, classes, numbers, read, title, *others)
    # Pixels at the border of images are all the same, and no mistake.
    redundant = "keep" if input_shape else settings.redundant
    return _checked_rows(raw, settings.missing, redundant)


def _check_groups(groups: np.ndarray, title: str, numbers: np.ndarray) -> None:
    """Raise DataError where rows have no group."""
    import pandas as pd

    if groups.shape != numbers.shape:
        got = len(groups) if groups.ndim == 1 else f"shape {groups.shape}"
        raise DataError(f"{title}: must have a group for each of {len(numbers)} rows, got {got}.")
    check_rows(pd.isna(groups), title, "its group is missing", numbers=numbers)


def comparable_groups(groups: np.ndarray) -> np.ndarray:
    """Groups as they are; of objects the numbers, in sorted order, which an archive can hold."""
    import pandas as pd

    return pd.factorize(groups, sort=True)[0] if groups.dtype.kind == "O" else groups


def _names(
    names: Sequence[str], prefix: str, count: int, setting: str, columns: str
) -> tuple[str, ...]:
    """Names of columns, numbered by default."""
    names = tuple(names) or tuple(f"{prefix}{i}" for i in range(1, count + 1))
    if len(names) != count:
        raise DataSettingError(setting, f"must name {count} {columns}, got {len(names)}")
    return names


def _check_shapes(x: np.ndarray, y: np.ndarray, title: str, target: str) -> None:
    if x.ndim not in (2, 3, 4) or x.dtype.kind not in "biuf":
        shapes = "(row, feature), (row, height, width) or (row, channel, height, width)"
        raise DataError(f"{title}: must be numbers {shapes}, got shape {x.shape} of {x.dtype}.")
    if x.ndim == 4 and x.shape[1] not in (1, 3):
        raise DataError(f"{title}: images must have 1 or 3 channels, got shape {x.shape}.")
    if y.ndim not in (1, 2) or len(y) != len(x) or y.shape[1:] == (0,):
        rule = f"must have one target for each of {len(x)} rows, or a row of several"
        raise DataError(f"{title}: `{target}` {rule}, got shape {y.shape}.")
    if not x.size:
        raise DataError(f"{title}: has no rows.")


def check_rows(
    bad: np.ndarray,
    title: str,
    rule: str,
    values: Sequence | None = None,
    numbers: np.ndarray | None = None,
) -> None:
    """Raise DataError over the first bad row, with its number, the rule and its value."""
    if bad.any():
        row = int(np.argmax(bad))
        number = row if numbers is None else numbers[row]
        value = None if values is None else values[row]
        got = "" if values is None else f", got {repr(value) if isinstance(value, str) else value}"
        raise DataError(f"{title}, row {number + 1}: {rule}{got}.")


# Targets


def _targets(
    y: np.ndarray, task: Task | None, title: str, name: str, numbers: np.ndarray
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Class indices with the names of the classes, or numbers without.

    Text and truth values are classes; numbers are numbers unless ``task`` is classification. For
    whole numbers of few values ``task`` is needed.

    Raises
    ------
    DataError
        They are of one class, not finite, or may be either.
    """
    if y.dtype.kind not in "biuf":
        import pandas as pd

        check_rows(pd.isna(y), title, f"target `{name}` is missing", numbers=numbers)
        y = np.array([v.decode() if isinstance(v, bytes) else str(v) for v in y])
    if y.dtype.kind in "iuf" and task != "classification":
        return _numeric_target(y, task, title, name, numbers), ()
    if y.dtype.kind == "f":
        check_rows(~np.isfinite(y), title, f"target `{name}` must be finite", y, numbers)
    distinct = np.unique(y)
    if task == "regression":
        rule = f"must be classification with the values of `{name}` ({show_names(distinct)})"
        raise DataSettingError("task", f"{rule}, got 'regression'")
    if y.dtype.kind == "f" and not _is_whole(y):
        wrong = distinct[distinct != np.rint(distinct)][0]
        rule = f"must be regression, as `{name}` has the value {wrong:g}"
        raise DataSettingError("task", f"{rule}, got 'classification'")
    if len(distinct) < 2:
        rule = f"target `{name}` must have at least two classes"
        raise DataError(f"{title}: {rule}, got {show_names(distinct)} only.")
    return np.searchsorted(distinct, y).astype(np.int64), tuple(map(name_of, distinct))


def several_targets(
    columns: Sequence[np.ndarray],
    names: Sequence[str],
    task: Task | None,
    title: str,
    numbers: np.ndarray,
) -> np.ndarray:
    """Several targets a row, ``(row, target)``, all of them numbers.

    Raises
    ------
    DataError
        Some are classes, or not finite.
    """
    if task == "classification":
        raise DataSettingError("task", f"must be regression with {len(names)} targets")
    targets = []
    for column, name in zip(columns, names, strict=True):
        if column.dtype.kind not in "iuf":
            kind = "truth values" if column.dtype.kind == "b" else "text"
            rule = f"target `{name}` must hold numbers, as several targets do"
            raise DataError(f"{title}: {rule}, got {kind}.")
        targets.append(_numeric_target(column, "regression", title, name, numbers))
    return np.stack(targets, axis=1)


def _numeric_target(
    y: np.ndarray, task: Task | None, title: str, name: str, numbers: np.ndarray
) -> np.ndarray:
    values = y.astype(np.float64)
    check_rows(~np.isfinite(values), title, f"target `{name}` must be finite", y, numbers)
    distinct = np.unique(y)
    if is_constant(values):
        raise DataError(f"{title}: target `{name}` has one value only: {name_of(distinct[0])}.")
    if task is None and len(distinct) <= FEW and _is_whole(y):
        values = f"whole numbers of {len(distinct)} values ({show_names(distinct)})"
        rule = f"must be classification or regression, as `{name}` has {values}, got null"
        raise DataSettingError("task", rule)
    return values


# Inputs


def _checked_rows(raw: RawRows, missing: str, redundant: str) -> RawRows:
    """The rows without those, and without columns, that the settings leave out.

    Raises
    ------
    DataError
        A value is infinite; or one is missing, or a column is redundant, where that is an error.
    """
    infinite, gaps = np.isinf(raw.x), np.isnan(raw.x)
    for bad in (infinite, gaps) if missing == "error" else (infinite,):
        if bad.any():
            row, column = np.argwhere(bad)[0]
            place = f"{raw.title}, row {raw.numbers[row] + 1}: column `{raw.features[column]}`"
            if bad is infinite:
                raise DataError(f"{place} must be a finite number, got {raw.x[row, column]}.")
            remedy = "say `missing: mean`, `missing: drop`, or leave the column out with `without`"
            raise DataError(f"{place} is missing: {remedy}.")
    if missing == "drop" and gaps.any():
        raw = raw.take(np.flatnonzero(~gaps.any(axis=1)))
        if not len(raw.y):
            raise DataError(f"{raw.title}: no row is left without those that lack a value.")
    return raw if redundant == "keep" else _without_redundant(raw, redundant)


def _without_redundant(raw: RawRows, redundant: str) -> RawRows:
    """Rows without constant columns and repeated ones, of which the first stays."""
    # A missing value is compared as any other.
    x = np.nan_to_num(raw.x, nan=np.inf)
    constant = (x == x[0]).all(axis=0)
    complete = np.isfinite(x).all(axis=0)
    constant[complete] |= is_constant(x[:, complete])
    places: dict[bytes, int] = {}
    first = [places.setdefault(column.tobytes(), i) for i, column in enumerate(x.T)]
    repeated = np.array(first) != np.arange(len(first))
    if redundant == "error" and constant.any():
        names = show_names(np.array(raw.features)[constant])
        remedy = "name them under `without`, or say `redundant: drop`"
        raise DataError(f"{raw.title}: {names} must have more than one value: {remedy}.")
    if redundant == "error" and repeated.any():
        i = int(np.argmax(repeated))
        names = f"`{raw.features[first[i]]}` and `{raw.features[i]}`"
        remedy = "name one under `without`, or say `redundant: drop`"
        raise DataError(f"{raw.title}: columns {names} must not be the same: {remedy}.")
    kept = ~(constant | repeated)
    if not kept.any():
        raise DataError(f"{raw.title}: no feature is left: every column is constant.")
    if kept.all():
        return raw
    names = tuple(np.array(raw.features)[kept].tolist())
    return replace(raw, x=raw.x[:, kept], features=names)


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
