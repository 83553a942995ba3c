"""Columns of a pandas frame as inputs and targets: checked, categories one-hot encoded.

Text is numbers in some notation, dates, or categories.
"""

import io
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from pmbnn.data.base import (
    DataError,
    DataSettingError,
    Task,
    check_choice,
    check_unique,
    show_names,
)
from pmbnn.data.raw import (
    Arrays,
    Encoder,
    RawRows,
    RowSettings,
    check_rows,
    input_name,
    rows_from_arrays,
    several_targets,
)

if TYPE_CHECKING:
    from pandas import Series

MOST_LEVELS = 100
"""Categories of a column beyond which it is likelier text or a name of the row."""

MISSING_WORDS = frozenset(
    ["na", "n/a", "#na", "#n/a", "<na>", "nan", "null", "#null!", "none", "#nv", "\\n"]
    + list("?.-")
)
"""Words, in lower case, that count as missing in a column that otherwise holds numbers or truth
values: of R, pandas, SQL, Excel, SPSS, Stata and SAS. In a column of text they are words like any
other."""

_SAME = str.maketrans(
    {"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'", "\u2212": "-", "\ufeff": None}
)
"""No-break and thin spaces, the typographic apostrophe and minus, as they are typed."""


class Notation(NamedTuple):
    """How numbers are written: the decimal sign, and what separates thousands, if anything does."""

    decimal: str = "."
    thousands: str | None = None


PLAIN = Notation()
"""As programs write numbers."""

NOTATION = "notation"
"""Attribute of a frame that was read from a file: the notation of its numbers, which pandas passes
on to its columns."""

NOTATIONS = tuple(
    Notation(decimal, thousands)
    for decimal, others in ((".", ","), (",", "."))
    for thousands in (None, *others, " ", "'")
)
"""Notations in use."""


@lru_cache
def _pattern(notation: Notation) -> re.Pattern:
    decimal, whole = re.escape(notation.decimal), "[0-9]+"
    if notation.thousands:
        whole = f"(?:[0-9]{{1,3}}(?:{re.escape(notation.thousands)}[0-9]{{3}})+|[0-9]+)"
    return re.compile(rf"[+-]?(?:{whole}(?:{decimal}[0-9]*)?|{decimal}[0-9]+)(?:[eE][+-]?[0-9]+)?")


_MONEY = "[$€£¥₹¢]|usd|eur|gbp|chf|jpy|cny|inr|sek|nok|dkk|pln|czk|aud|cad|brl|euros?|dollars?"
_UNITS = (
    "%|‰|°[cf]?|kg|g|mg|lbs?|oz|km|m|cm|mm|ft|mi|ml|l|kwh|kw|hp|ps|min|h|s|ms|k|mio\\.?|tsd\\.?"
)
_LIKE_A_NUMBER = re.compile(
    rf"\(?[+-]?\s*(?:{_MONEY})?\s*[+-]?\s*[0-9][0-9.,' ]*(?:{_MONEY}|{_UNITS})?\)?-?", re.IGNORECASE
)
"""A number with a currency, a percent sign or a unit, or in no notation that is known."""

_TIME = r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?\s*(?:[ap]\.?m\.?)?"
_MONTH = (
    "(?:jan(?:uary|uar|vier)?|feb(?:ruary|ruar)?|f[ée]v(?:rier|r)?|mar(?:ch|s)?|märz?|apr(?:il)?|"
    "avr(?:il)?|ma[iy]|june?|juni|juin|july?|juli|juil(?:let)?|aug(?:ust)?|ao[uû]t|"
    r"sept?(?:ember|embre)?|o[ck]t(?:ober|obre)?|nov(?:ember|embre)?|d[eé][cz](?:embre|ember)?)\.?"
)
_DAY = r"[0-9]{1,2}(?:\.|st|nd|rd|th)?,?"
_A_TIME = re.compile(
    rf"{_TIME}|[0-9]{{1,4}}[-/.]\s?[0-9]{{1,2}}[-/.]\s?[0-9]{{1,4}}(?:[T ,].*)?|"
    rf"[0-9]{{4}}-(?:0[1-9]|1[0-2])|"
    rf"(?:\w+,?\s+)?(?:{_DAY}[\s-]*)?{_MONTH}[\s,-]*(?:{_DAY}[\s-]+)?[0-9]{{2,4}}\b.*",
    re.IGNORECASE,
)
"""Times of day and dates, in numbers or with the month in English, German or French."""


def notation_of(column: "Series") -> Notation:
    """The notation of the numbers of a column: of the file that it was read from, where it was."""
    return column.attrs.get(NOTATION, PLAIN)


def cleaned(text: str) -> str:
    """Text without spaces around it; special spaces and signs as they are typed."""
    return text.translate(_SAME).strip()


def is_number(text: str, notation: Notation = PLAIN) -> bool:
    """Whether text is a number in a notation."""
    return bool(_pattern(notation).fullmatch(text))


def is_like_number(text: str) -> bool:
    """Whether text is digits with signs between, in whichever notation."""
    return bool(_DIGITS.fullmatch(text))


_DIGITS = re.compile(r"[+-]?[0-9.,' ]*[0-9][0-9.,' ]*(?:[eE][+-]?[0-9]+)?")


def stripped_text(column: "Series") -> "Series":
    """Text of the entries that are not missing, by their places, as `cleaned` returns it."""
    text = column.reset_index(drop=True).dropna().astype(str)
    for sign, typed in _SAME.items():
        text = text.str.replace(chr(sign), typed or "", regex=False)
    return text.str.strip()


def text_of_numbers(column: "Series") -> "Series":
    """As `stripped_text`, without words that stand for missing numbers."""
    text = stripped_text(column)
    return text[~text.str.lower().isin(MISSING_WORDS)]


def share_of_rows(text: "Series", condition: Callable[[str], object]) -> float:
    """Share of the entries that meet a condition, which is asked once of each different one."""
    counts = text.value_counts()
    return float(
        counts[[bool(condition(entry)) for entry in counts.index]].sum() / max(len(text), 1)
    )


def _are_numbers(text: "Series", notation: Notation) -> "Series":
    """Which entries are numbers in a notation."""
    return text.str.fullmatch(_pattern(notation)).eq(True)


def numbers_of(column: "Series", notation: Notation = PLAIN) -> "Series":
    """Numbers of a column of text, where every entry is a number or is missing; else the text.

    Words that stand for missing numbers are missing then.
    """
    text = text_of_numbers(column)
    if text.empty or not _are_numbers(text, notation).all():
        return column
    return _parsed(text, notation, len(column)).set_axis(column.index)


def _parsed(text: "Series", notation: Notation, rows: int) -> "Series":
    """Numbers of text in a notation, by their places; missing ones are not a number."""
    numbers = as_plain(text, notation).reindex(range(rows)).fillna("")
    # The parser of CSV files, so that a number has the same bits in every notation.
    lines = io.StringIO("\n".join(["number", *numbers, ""]))
    options = {"skip_blank_lines": False, "keep_default_na": False, "na_values": [""]}
    parsed = pd.read_csv(lines, **options)["number"]
    # Text stays where a whole number has more than 64 bits.
    return parsed if pd.api.types.is_numeric_dtype(parsed.dtype) else parsed.astype(np.float64)


def as_plain(numbers: "Series", notation: Notation) -> "Series":
    """Numbers of a notation as programs write them, ``1234.5``; other text as it is."""
    if notation.thousands:
        whole = numbers.str.replace(notation.thousands, "", regex=False)
        numbers = whole.where(_are_numbers(numbers, notation), numbers)
    return numbers.str.replace(notation.decimal, ".", regex=False)


def first_bad_number(column: "Series") -> int | None:
    """Place of the first entry that is no number, in a column where most look like numbers.

    None where they do not.
    """
    text, notation = text_of_numbers(column), notation_of(column)

    def is_like(entry: str) -> bool:
        return is_number(entry, notation) or bool(_LIKE_A_NUMBER.fullmatch(entry))

    if text.empty or share_of_rows(text, is_like) < 0.5:
        return None
    wrong = text[~_are_numbers(text, notation)]
    if wrong.empty or share_of_rows(text, _A_TIME.fullmatch) > 0.5:
        return None
    return int(wrong.index[0])


def doubtful_categories(column: "Series") -> str | None:
    """Description of text that can hardly be categories; None where it can.

    Most entries are dates or times, or they differ in more than half of the rows.
    """
    text = stripped_text(column)
    if share_of_rows(text, _A_TIME.fullmatch) > 0.5:
        first = next(filter(_A_TIME.fullmatch, text))
        return f"dates or times such as {first!r}"
    if text.nunique() * 2 > len(text) > 1:
        return f"{text.nunique()} different words in {len(text)} rows"
    return None


# Frames


class FrameSettings(RowSettings):
    """As `RowSettings`, with the columns of a frame as `pmbnn.Table` names them."""

    target: str | tuple[str, ...]
    features: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()


def names_of_targets(settings: FrameSettings) -> tuple[str, ...]:
    """Names of all targets."""
    return (settings.target,) if isinstance(settings.target, str) else settings.target


def rows_from_frame(frame: pd.DataFrame, settings: FrameSettings, title: str) -> RawRows:
    """Rows of a frame: numbers as they are, one column for each category of the others.

    Raises
    ------
    DataError
        The frame is not as it must be.
    """
    arrays = arrays_from_frame(frame, settings, title)
    return rows_from_arrays(arrays, settings, title, names_of_targets(settings)[0])


def arrays_from_frame(frame: pd.DataFrame, settings: FrameSettings, title: str) -> Arrays:
    """Arrays of a frame, without rows that lack a target if these are to be dropped.

    Raises
    ------
    DataError
        The frame is not as it must be.
    """
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    targets, task, group = names_of_targets(settings), settings.task, settings.split.group
    names = _features(frame, settings, title)
    if not len(frame):
        raise DataError(f"{title}: has no rows.")
    kept = _rows_with_targets(frame, targets, settings.missing, title)
    # Row numbers of messages are those of the whole frame.
    encoder = _fit_encoder(frame, names, settings.categorical, title)
    columns = [_target(frame[name], kept, name, title, task) for name in targets]
    several = len(columns) > 1
    return Arrays(
        x=_encoded(frame, encoder, title)[kept],
        y=several_targets(columns, targets, task, title, kept) if several else columns[0],
        features=encoder.features,
        groups=None if group is None else _groups(frame, group, title)[kept],
        numbers=kept,
        read=len(frame),
        target_names=targets if several else (),
        categories=encoder.categories,
    )


def _rows_with_targets(
    frame: pd.DataFrame, targets: tuple[str, ...], missing: str, title: str
) -> np.ndarray:
    """Numbers of the rows that have every target."""
    kept = np.ones(len(frame), bool)
    for name in targets:
        gaps = frame[name].isna().to_numpy()
        if missing != "drop":
            check_rows(gaps, title, f"target `{name}` is missing: say `missing: drop`")
        kept &= ~gaps
        if not kept.any():
            raise DataError(f"{title}: target `{name}` has no values.")
    return np.flatnonzero(kept)


def _features(frame: pd.DataFrame, settings: FrameSettings, title: str) -> list[str]:
    """Names of the columns that are inputs."""
    targets, group = names_of_targets(settings), settings.split.group
    columns = list(frame.columns)
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()][0]
        raise DataError(f"{title}: column `{repeated}` must be there once, got it twice.")
    for setting, names in (
        ("target", targets),
        ("features", settings.features),
        ("without", settings.without),
        ("categorical", settings.categorical),
        ("split.group", [] if group is None else [group]),
    ):
        for name in names:
            check_choice(setting, name, columns, title)
    if not targets:
        raise DataSettingError("target", "must name a column, got an empty list")
    check_unique("target", targets, "target")
    check_unique("features", settings.features, "column")
    for name in targets:
        if name in settings.features:
            raise DataSettingError("features", f"must not name the target, got {name!r}")
    if group is not None and group in settings.features:
        raise DataSettingError("features", f"must not name the column of groups, got {group!r}")
    left_out = {*targets, group, *settings.without}
    names = [name for name in settings.features or columns if name not in left_out]
    if not names:
        raise DataError(f"{title}: has no column beside the target {show_names(targets)}.")
    return names


def _fit_encoder(
    frame: pd.DataFrame, names: Sequence[str], categorical: Sequence[str], title: str
) -> Encoder:
    """Inputs of the columns of these names: numbers, or one for each category."""
    levels = {name: _levels(frame[name], name, name in categorical, title) for name in names}
    categories = tuple((name, level) for name in levels for level in levels[name] or ())
    features: dict[str, None] = {}
    for name, some in levels.items():
        for feature in [name] if some is None else [input_name(name, level) for level in some]:
            if feature in features:
                rule = f"must be made of one column, got it of `{name}` too: rename it"
                raise DataError(f"{title}: input `{feature}` {rule}.")
            features[feature] = None
    return Encoder(tuple(features), categories)


def _levels(column: "Series", name: str, categorical: bool, title: str) -> list[str] | None:
    """Categories of a column; None where it holds numbers."""
    kind = column.dtype
    if pd.api.types.is_datetime64_any_dtype(kind) or kind.kind in "mc":
        rule = "must hold numbers, text or truth values"
        raise DataError(f"{title}: column `{name}` {rule}, got {kind}.")
    if not categorical and pd.api.types.is_numeric_dtype(kind):
        return None
    if not categorical and not isinstance(kind, pd.CategoricalDtype):
        remedies = (
            "name it under `categorical` if it is none",
            "name it under `without`, or under `categorical` if these are categories",
        )
        if _as_numbers(column, f"column `{name}`", title, *remedies) is not None:
            return None
    as_word, values = _words(column)
    levels = sorted(values.dropna().unique())
    if len(levels) > MOST_LEVELS:
        rule = f"must be numbers or at most {MOST_LEVELS} categories, got {len(levels)}"
        raise DataError(f"{title}: column `{name}` {rule}: name it under `without`.")
    if not levels:
        raise DataError(f"{title}: column `{name}` has no values: name it under `without`.")
    return list(map(as_word, levels))


def _words(column: "Series") -> tuple[Callable[[Any], str], "Series"]:
    """Entries of a column of categories, and the function that makes words of them."""
    if _is_number(column.dtype):
        return _word_of_number, column
    return str, column.astype(str).where(column.notna())


def _word_of_number(number: float) -> str:
    """Text of a number that is a category: without needless digits, but with all that differ."""
    text = f"{number:g}"
    if float(text) == number:
        return text
    is_float = isinstance(number, float | np.floating)
    return np.format_float_positional(number, trim="-") if is_float else str(number)


def _encoded(frame: pd.DataFrame, encoder: Encoder, title: str) -> np.ndarray:
    """Inputs ``(row, feature)``; missing ones are not a number."""
    levels: dict[str, list[str]] = {}
    for column, level in encoder.categories:
        levels.setdefault(column, []).append(level)
    x, values = np.empty((len(frame), len(encoder.features))), {}
    for i, (name, level) in enumerate(encoder.sources):
        if name not in values:
            if name not in frame:
                columns = show_names(list(frame.columns))
                raise DataError(f"{title}: must have a column `{name}`, got {columns}.")
            if np.sum(frame.columns == name) > 1:
                raise DataError(f"{title}: column `{name}` must be there once, got it twice.")
            place = f"column `{name}`"
            values[name] = (
                _numbers(frame[name], place, title)
                if level is None
                else _categories(frame[name], levels[name], place, title)
            )
        entries = values[name]
        x[:, i] = entries if level is None else np.where(entries.isna(), np.nan, entries == level)
    return x


def _numbers(column: "Series", place: str, title: str) -> np.ndarray:
    """Numbers of a column, also of one of text; missing ones are not a number."""
    if pd.api.types.is_numeric_dtype(column.dtype):
        return column.to_numpy(np.float64, na_value=np.nan)
    text, notation = text_of_numbers(column), notation_of(column)
    wrong = np.isin(np.arange(len(column)), text.index[~_are_numbers(text, notation)])
    check_rows(wrong, title, f"{place} must be a number", column.to_numpy())
    return _parsed(text, notation, len(column)).to_numpy(np.float64)


def _categories(column: "Series", levels: Sequence[str], place: str, title: str) -> "Series":
    """Categories of a column as words; missing ones stay missing."""
    as_word, entries = _words(column)
    words = entries.map({e: _level(as_word(e), levels) for e in entries.dropna().unique()})
    other = words.notna().to_numpy() & ~words.isin(levels).to_numpy()
    check_rows(other, title, f"{place} must be one of {show_names(levels)}", words.to_numpy())
    return words


def _level(text: str, levels: Sequence[str]) -> str | None:
    """Text as a category's name: numbers that are categories have no needless digits."""
    # The second as pandas writes whole numbers of a column of categories that are floats.
    for name in (text, f"{text}.0"):
        if name in levels:
            return name
    if text.lower() in MISSING_WORDS and all(map(is_number, levels)):
        return None
    return _word_of_number(float(text)) if is_number(text) else text


def inputs_of_frame(frame: pd.DataFrame, encoder: Encoder, title: str) -> np.ndarray:
    """Inputs ``(row, feature)`` of new rows, encoded as the training rows were.

    Raises
    ------
    DataError
        A column is missing, or a value is missing or not as it must be.
    """
    if not len(frame):
        raise DataError(f"{title}: has no rows.")
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
    x = _encoded(frame, encoder, title)
    wrong = np.isinf(x) if encoder.fill is not None else ~np.isfinite(x)
    if wrong.any():
        row, i = np.argwhere(wrong)[0]
        problem = "is missing" if np.isnan(x[row, i]) else f"must be finite, got {x[row, i]}"
        raise DataError(f"{title}, row {row + 1}: column `{encoder.sources[i][0]}` {problem}.")
    return x if encoder.fill is None else np.where(np.isnan(x), encoder.fill, x)


def _is_number(kind) -> bool:
    return pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind)


def _as_numbers(
    column: "Series", place: str, title: str, remedy: str, remedy_of_text: str | None
) -> np.ndarray | None:
    """Numbers of a column of text; None where they are words.

    Raises
    ------
    DataError
        Most are numbers and some are not, so that those are likely mistakes; or they are numbers
        with a currency, a percent sign or a unit, or in another notation; or, where there is a
        remedy, dates or times, or text that differs in most rows.
    """
    numbers = numbers_of(column.map(str, na_action="ignore"), notation_of(column))
    if pd.api.types.is_numeric_dtype(numbers.dtype):
        return numbers.to_numpy(np.float64)
    wrong = first_bad_number(column)
    if wrong is not None:
        rule = f"{place} must be a number, got {column.iloc[wrong]!r}"
        raise DataError(f"{title}, row {wrong + 1}: {rule}; {remedy}.")
    if remedy_of_text and (text := doubtful_categories(column)):
        rule = f"{place} must hold numbers or categories, got {text}"
        raise DataError(f"{title}: {rule}: {remedy_of_text}.")
    return None


def _target(
    target: "Series", kept: np.ndarray, name: str, title: str, task: Task | None
) -> np.ndarray:
    """A target of the rows that are kept: numbers, truth values or text."""
    kind = target.dtype
    if pd.api.types.is_bool_dtype(kind):
        return target.iloc[kept].to_numpy(bool)
    if pd.api.types.is_numeric_dtype(kind):
        return target.iloc[kept].to_numpy(np.float64)
    if task != "classification" and not isinstance(kind, pd.CategoricalDtype):
        remedy = "say `task: classification` if these are classes"
        remedies = remedy, remedy if task is None else None
        numbers = _as_numbers(target, f"target `{name}`", title, *remedies)
        if numbers is not None:
            return numbers[kept]
    return np.array(target.iloc[kept].astype(str).tolist())


def _groups(frame: pd.DataFrame, name: str, title: str) -> np.ndarray:
    """Number of the group of each row."""
    codes, _ = pd.factorize(frame[name])
    check_rows(codes < 0, title, f"column `{name}` of groups is missing")
    return codes
