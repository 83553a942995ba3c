"""Columns of a pandas frame as inputs and targets: checked, categories one-hot encoded."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from pmbnn.data.base import DataError, DataSettingError, Targets
from pmbnn.data.raw import (
    Given,
    Missing,
    RawRows,
    Redundant,
    check_target_names,
    raw_of_arrays,
    several_targets,
    show_names,
)
from pmbnn.data.text_columns import (
    MISSING_WORDS,
    NOTATION,
    PLAIN,
    Notation,
    are_numbers,
    as_plain,
    first_bad_number,
    is_missing_word,
    is_number,
    known_text,
    no_category,
    numbers_of,
)

if TYPE_CHECKING:
    from pandas import Series

MOST_LEVELS = 100
"""Categories of a column beyond which it is likelier text or a name of the row."""


class Columns(NamedTuple):
    """What the columns of a frame are: names, all others being ``features`` where none are."""

    target: str | tuple[str, ...]
    features: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    group: str | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of all targets."""
        return (self.target,) if isinstance(self.target, str) else self.target


def raw_of_frame(
    frame: pd.DataFrame,
    columns: Columns,
    target_is: Targets | None,
    missing: Missing,
    redundant: Redundant,
    title: str,
) -> RawRows:
    """Rows of a frame: numbers as they are, one column for each category of the others.

    Raises
    ------
    DataError
        The frame is not as it must be.
    """
    given = given_of_frame(frame, columns, target_is, missing, title)
    return raw_of_arrays(given, target_is, missing, redundant, title, columns.targets[0])


def given_of_frame(
    frame: pd.DataFrame,
    columns: Columns,
    target_is: Targets | None,
    missing: Missing,
    title: str,
) -> Given:
    """Arrays of a frame, rows without a target left out where that is asked for.

    Raises
    ------
    DataError
        The frame is not as it must be.
    """
    notation = frame.attrs.get(NOTATION, PLAIN)
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    names = _features(frame, columns, title)
    if not len(frame):
        raise DataError(f"{title}: has no rows.")
    kept = _rows_with_targets(frame, columns.targets, missing, title)
    # Row numbers of messages are those of the whole frame.
    encoded = [
        _encoded(frame[name], name, name in columns.categorical, title, notation) for name in names
    ]
    blocks, labels = zip(*encoded, strict=True)
    found = [_plain(frame[n], kept, n, title, target_is, notation) for n in columns.targets]
    several = len(found) > 1
    return Given(
        x=np.concatenate(blocks, axis=1)[kept],
        y=several_targets(found, columns.targets, target_is, title) if several else found[0],
        features=tuple(label for some in labels for label in some),
        groups=None if columns.group is None else _groups(frame, columns.group, title)[kept],
        numbers=kept,
        read=len(frame),
        target_names=columns.targets if several else (),
    )


def _rows_with_targets(
    frame: pd.DataFrame, targets: tuple[str, ...], missing: Missing, title: str
) -> np.ndarray:
    """Numbers of the rows that no target is missing of."""
    kept = np.ones(len(frame), bool)
    for name in targets:
        gaps = frame[name].isna().to_numpy()
        if gaps.any() and missing != "drop":
            row = int(np.argmax(gaps)) + 1
            raise DataError(f"{title}, row {row}: target `{name}` is missing: say `missing: drop`.")
        kept &= ~gaps
        if not kept.any():
            raise DataError(f"{title}: target `{name}` has no values.")
    return np.flatnonzero(kept)


def _features(frame: pd.DataFrame, columns: Columns, title: str) -> list[str]:
    """Names of the columns that are inputs."""
    there = list(frame.columns)
    repeated = [name for name in dict.fromkeys(there) if there.count(name) > 1]
    if repeated:
        raise DataError(f"{title}: column `{repeated[0]}` must be there once, got it twice.")
    for setting, named in (
        ("target", columns.targets),
        ("features", columns.features),
        ("without", columns.without),
        ("categorical", columns.categorical),
        ("split.group", [] if columns.group is None else [columns.group]),
    ):
        for name in named:
            if name not in there:
                raise DataSettingError(
                    setting, f"must be one of {show_names(there)} of {title}, got {name!r}"
                )
    if not columns.targets:
        raise DataSettingError("target", "must name a column, got an empty list")
    check_target_names(columns.targets, "target")
    for name in columns.targets:
        if name in columns.features:
            raise DataSettingError("features", f"must not name the target, got {name!r}")
    if columns.group is not None and columns.group in columns.features:
        raise DataSettingError(
            "features", f"must not name the column of groups, got {columns.group!r}"
        )
    left_out = {*columns.targets, columns.group, *columns.without}
    names = [name for name in columns.features or there if name not in left_out]
    if not names:
        targets = show_names(columns.targets)
        raise DataError(f"{title}: has no column beside the target {targets}.")
    return names


def _encoded(
    column: "Series", name: str, categorical: bool, title: str, notation: Notation
) -> tuple[np.ndarray, list[str]]:
    """Inputs of one column, ``(row, 1)`` or one for each of its categories, and their names."""
    kind = column.dtype
    if not categorical and pd.api.types.is_numeric_dtype(kind):
        return column.to_numpy(np.float64, na_value=np.nan)[:, None], [name]
    if pd.api.types.is_datetime64_any_dtype(kind) or kind.kind in "mc":
        raise DataError(
            f"{title}: column `{name}` must hold numbers, text or truth values, got {kind}."
        )
    if not categorical and not isinstance(kind, pd.CategoricalDtype):
        remedy = "name it under `categorical` if it is none"
        numbers = _as_numbers(column, f"column `{name}`", title, remedy, notation)
        if numbers is not None:
            return numbers[:, None], [name]
        remedy = "name it under `without`, or under `categorical` if these are categories"
        _check_categories(column, f"column `{name}`", title, remedy)
    known = column.dropna()
    levels = sorted(known.unique()) if categorical and _is_number(kind) else _levels(known)
    if len(levels) > MOST_LEVELS:
        raise DataError(
            f"{title}: column `{name}` must be numbers or at most {MOST_LEVELS} categories, got "
            f"{len(levels)} different values: name it under `without`."
        )
    if not levels:
        raise DataError(f"{title}: column `{name}` has no values: name it under `without`.")
    values = column.to_numpy() if _is_number(kind) else column.astype(str).to_numpy()
    x = np.stack([values == level for level in levels], axis=1).astype(np.float64)
    x[column.isna().to_numpy()] = np.nan
    return x, [f"{name}={level:g}" if _is_number(kind) else f"{name}={level}" for level in levels]


def inputs_of_frame(
    frame: pd.DataFrame, features: Sequence[str], fill: np.ndarray | None, title: str
) -> np.ndarray:
    """Inputs ``(row, feature)`` of new rows, as those were encoded that the names stem from.

    Parameters
    ----------
    features
        Names of inputs: of a column of numbers, or ``column=category``.
    fill
        What a missing value is taken for, ``(feature,)``; nothing may be missing without.

    Raises
    ------
    DataError
        A column is missing, or a value is missing or not as it must be.
    """
    if not len(frame):
        raise DataError(f"{title}: has no rows.")
    notation = frame.attrs.get(NOTATION, PLAIN)
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    parts = [_column_and_level(name, frame) for name in features]
    levels: dict[str, list[str]] = {}
    for column, level in parts:
        if level is not None:
            levels.setdefault(column, []).append(level)
    words = {name: _words(frame, name, known, title) for name, known in levels.items()}
    x = np.empty((len(frame), len(features)))
    for i, (column, level) in enumerate(parts):
        if level is None:
            x[:, i] = _new_numbers(frame, column, title, notation)
        else:
            x[:, i] = np.where(words[column].isna(), np.nan, words[column] == level)
    wrong = np.isinf(x) if fill is not None else ~np.isfinite(x)
    if wrong.any():
        row, i = np.argwhere(wrong)[0]
        is_missing = np.isnan(x[row, i])
        problem = "is missing" if is_missing else f"must be finite, got {x[row, i]}"
        raise DataError(f"{title}, row {row + 1}: column `{parts[i][0]}` {problem}.")
    return x if fill is None else np.where(np.isnan(x), fill, x)


def _column_and_level(name: str, frame: pd.DataFrame) -> tuple[str, str | None]:
    """Column that an input is of, and its category; None of a column of numbers."""
    ends = [end for end, sign in enumerate(name) if sign == "="]
    if name in frame or not ends:
        return name, None
    end = next((end for end in ends if name[:end] in frame), ends[0])
    return name[:end], name[end + 1 :]


def _words(frame: pd.DataFrame, name: str, known: Sequence[str], title: str) -> "Series":
    """Categories of a column as words; missing ones stay so."""
    column = _column(frame, name, title)
    word = "{:g}".format if _is_number(column.dtype) else str
    found = column.astype(object).map(word, na_action="ignore")
    found = found.map(lambda text: _level(text, known), na_action="ignore")
    other = found.notna().to_numpy() & ~found.isin(known).to_numpy()
    if other.any():
        row = int(np.argmax(other))
        raise DataError(
            f"{title}, row {row + 1}: column `{name}` must be one of {show_names(known)}, "
            f"got {found.iloc[row]!r}."
        )
    return found


def _level(text: str, known: Sequence[str]) -> str | None:
    """Text as a category's name: numbers that are categories have no needless digits."""
    if text in known:
        return text
    if is_missing_word(text) and all(map(is_number, known)):
        return None
    return f"{float(text):g}" if is_number(text) else text


def _new_numbers(frame: pd.DataFrame, name: str, title: str, notation: Notation) -> np.ndarray:
    column = _column(frame, name, title)
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(np.float64, na_value=np.nan)
    words = known_text(column).reindex(range(len(column)))
    words = words.where(~words.str.lower().isin(MISSING_WORDS))
    wrong = (words.notna() & ~are_numbers(words, notation)).to_numpy()
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(
            f"{title}, row {row + 1}: column `{name}` must be a number, got {column.iloc[row]!r}."
        )
    return pd.to_numeric(as_plain(words, notation)).to_numpy(np.float64, na_value=np.nan)


def _column(frame: pd.DataFrame, name: str, title: str) -> "Series":
    if name not in frame:
        there = show_names(list(frame.columns))
        raise DataError(f"{title}: must have a column `{name}`, got {there}.")
    return frame[name]


def _is_number(kind) -> bool:
    return pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind)


def _levels(known: "Series") -> list[str]:
    return sorted(known.astype(str).unique())


def _as_numbers(
    column: "Series", place: str, title: str, remedy: str, notation: Notation
) -> np.ndarray | None:
    """Numbers of a column of text; None where they are words.

    Raises
    ------
    DataError
        Most are numbers and some are not, so that those are likely mistakes; or they are numbers
        with a currency, a percent sign or a unit, or in another notation.
    """
    found = numbers_of(column.map(str, na_action="ignore"), notation)
    if pd.api.types.is_numeric_dtype(found.dtype):
        return found.to_numpy(np.float64)
    wrong = first_bad_number(column, notation)
    if wrong is not None:
        raise DataError(
            f"{title}, row {wrong + 1}: {place} must be a number, got {column.iloc[wrong]!r}; "
            f"{remedy}."
        )
    return None


def _check_categories(column: "Series", place: str, title: str, remedy: str) -> None:
    """Raise DataError where text is dates or times, or differs in most rows."""
    what = no_category(column)
    if what:
        raise DataError(f"{title}: {place} must hold numbers or categories, got {what}: {remedy}.")


def _plain(
    target: "Series",
    kept: np.ndarray,
    name: str,
    title: str,
    target_is: Targets | None,
    notation: Notation,
) -> np.ndarray:
    """Targets of the rows that are kept as an array of numbers, truth values or text."""
    kind = target.dtype
    if pd.api.types.is_bool_dtype(kind):
        return target.iloc[kept].to_numpy(bool)
    if pd.api.types.is_numeric_dtype(kind):
        return target.iloc[kept].to_numpy(np.float64)
    if target_is != "classes" and not isinstance(kind, pd.CategoricalDtype):
        remedy = "say `target_is: classes` if these are classes"
        numbers = _as_numbers(target, f"target `{name}`", title, remedy, notation)
        if numbers is not None:
            return numbers[kept]
        if target_is is None:
            _check_categories(target, f"target `{name}`", title, remedy)
    return np.array(target.iloc[kept].astype(str).tolist())


def _groups(frame: pd.DataFrame, name: str, title: str) -> np.ndarray:
    """To which group each row belongs, as numbers."""
    codes, _ = pd.factorize(frame[name])
    if (codes < 0).any():
        row = int(np.argmax(codes < 0)) + 1
        raise DataError(f"{title}, row {row}: column `{name}` of groups is missing.")
    return codes
