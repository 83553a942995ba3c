"""What the text of a column is: numbers in some notation, dates, or categories."""

import io
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

if TYPE_CHECKING:
    from pandas import Series

MISSING_WORDS = frozenset(
    ["na", "n/a", "#na", "#n/a", "<na>", "nan", "null", "#null!", "none", "#nv", "\\n"]
    + list("?.-")
)
"""Words, in lower case, that count as missing in a column that otherwise holds numbers: of R,
pandas, SQL, Excel, SPSS, Stata and SAS. In a column of text they are words like any other."""

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
"""Attribute of a frame that was read from a file: the notation of its numbers."""

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


def cleaned(text: str) -> str:
    """Text without spaces around it; special spaces and signs as they are typed."""
    return text.translate(_SAME).strip()


def is_missing_word(text: str) -> bool:
    """Whether a word stands for a missing number."""
    return text.lower() in MISSING_WORDS


def is_number(text: str, notation: Notation = PLAIN) -> bool:
    """Whether text is a number in a notation."""
    return bool(_pattern(notation).fullmatch(text))


def is_like_number(text: str) -> bool:
    """Whether text is digits with signs between, in whichever notation."""
    return bool(_DIGITS.fullmatch(text))


_DIGITS = re.compile(r"[+-]?[0-9.,' ]*[0-9][0-9.,' ]*(?:[eE][+-]?[0-9]+)?")


def known_text(column: "Series") -> "Series":
    """Text of the entries that are there, by their places, as `cleaned` has it."""
    text = column.reset_index(drop=True).dropna().astype(str)
    for sign, typed in _SAME.items():
        text = text.str.replace(chr(sign), typed or "", regex=False)
    return text.str.strip()


def share_of_rows(text: "Series", holds: Callable[[str], object]) -> float:
    """Share of the entries of which something holds, each different one looked at once."""
    counts = text.value_counts()
    return float(counts[[bool(holds(word)) for word in counts.index]].sum() / max(len(text), 1))


def are_numbers(text: "Series", notation: Notation = PLAIN) -> "Series":
    """Which entries are numbers in a notation; those that are not there are none."""
    return text.str.fullmatch(_pattern(notation)).eq(True)


def numbers_of(column: "Series", notation: Notation = PLAIN) -> "Series":
    """Numbers of a column of text, where every entry is a number or is missing; else the text.

    Words that stand for missing numbers are missing then.
    """
    known = known_text(column)
    known = known[~known.str.lower().isin(MISSING_WORDS)]
    if known.empty or not are_numbers(known, notation).all():
        return column
    numbers = as_plain(known, notation).reindex(range(len(column))).fillna("")
    # The parser of CSV files, so that a number has the same bits in every notation.
    text = io.StringIO("\n".join(["number", *numbers, ""]))
    read = {"skip_blank_lines": False, "keep_default_na": False, "na_values": [""]}
    return pd.read_csv(text, **read)["number"].set_axis(column.index)


def as_plain(numbers: "Series", notation: Notation) -> "Series":
    """Numbers of a notation as programs write them, ``1234.5``; other text as it is."""
    if notation.thousands:
        whole = numbers.str.replace(notation.thousands, "", regex=False)
        numbers = whole.where(are_numbers(numbers, notation), numbers)
    return numbers.str.replace(notation.decimal, ".", regex=False)


def first_bad_number(column: "Series", notation: Notation = PLAIN) -> int | None:
    """Place of the first entry that is no number, in a column where most look like numbers.

    None where they do not.
    """
    known = known_text(column)
    known = known[~known.str.lower().isin(MISSING_WORDS)]

    def is_like(text: str) -> bool:
        return is_number(text, notation) or bool(_LIKE_A_NUMBER.fullmatch(text))

    if known.empty or share_of_rows(known, is_like) < 0.5:
        return None
    wrong = known[~are_numbers(known, notation)]
    if wrong.empty or share_of_rows(known, _A_TIME.fullmatch) > 0.5:
        return None
    return int(wrong.index[0])


def no_category(column: "Series") -> str | None:
    """What text is that can hardly be categories, in words; None where it can.

    Most entries are dates or times, or they differ in more than half of the rows.
    """
    known = known_text(column)
    if share_of_rows(known, _A_TIME.fullmatch) > 0.5:
        first = next(filter(_A_TIME.fullmatch, known))
        return f"dates or times such as {first!r}"
    if known.nunique() * 2 > len(known) > 1:
        return f"{known.nunique()} different words in {len(known)} rows"
    return None
