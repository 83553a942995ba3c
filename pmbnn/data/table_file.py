"""Tables as programs write them: CSV in any locale, packed or not, Parquet and Excel.

Every command and `pmbnn.Table` read tables here, so that a file means the same to all of them.
"""

import bz2
import csv
import gzip
import io
import logging
import lzma
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from multiprocessing import parent_process
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from pmbnn.data.base import DataError, DataSettingError, Stamp, one_line
from pmbnn.data.frames import (
    MISSING_WORDS,
    MOST_LEVELS,
    NOTATION,
    NOTATIONS,
    PLAIN,
    Notation,
    as_plain,
    cleaned,
    is_like_number,
    is_number,
    numbers_of,
    share_of_rows,
    stripped_text,
    text_of_numbers,
)

PARQUET = (".parquet", ".pq")
EXCEL = (".xlsx", ".xlsm")
OTHER_SHEETS = (".xls", ".xlsb", ".ods", ".numbers")

SEPARATORS = (";", "\t", "|", ",")
"""Separators that are detected. A comma is also a decimal sign, so it comes last."""

SAMPLE = 500
"""Lines from which the separator is detected."""

_log = logging.getLogger(__name__)

_LOGGED: set[tuple[Stamp, str]] = set()
"""Notes on files that were logged: a file may be read in several formats."""


class Format(NamedTuple):
    """Format of a text file; None, and a comma as the separator, where it is detected."""

    separator: str = ","
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None


DETECTED = Format()
USUAL = Format(",", ".", None, "utf-8")


class TableFile(NamedTuple):
    """A table that was read.

    Attributes
    ----------
    frame
        Its columns: numbers, truth values, or text. It is not to be changed.
    format
        Format of a text file, as set or detected.
    notes
        What was detected, left out, or looks like a mistake; a line each.
    """

    frame: pd.DataFrame
    format: Format
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=2)
def read_table(
    stamp: Stamp,
    title: str,
    settings: Format = DETECTED,
    decimal: str | None = None,
    texts: frozenset[str] = frozenset(),
) -> TableFile:
    """Table in a file; what was detected is logged, once.

    Parameters
    ----------
    stamp
        Stamp of the file.
    title
        Name of the file in messages.
    settings
        What need not be detected.
    decimal
        Decimal sign where the file leaves it open, as in ``1,234``.
    texts
        Names of columns of text files to be kept as text, though they may look like numbers.

    Raises
    ------
    DataError
        It cannot be read, or has no rows; or its format is not clear, or not as set.
    """
    path = Path(stamp[0])
    if path.is_dir():
        raise DataSettingError("file", f"must be a table, got the folder {title!r}")
    suffix = path.suffix.lower()
    if suffix in OTHER_SHEETS:
        raise DataError(f"{title}: cannot be read: save it as .xlsx or CSV.")
    if suffix in PARQUET:
        with _decoding(title, "parquet"):
            frame = pd.read_parquet(path)
        names = [f"`{name}`" for name in frame.index.names if name is not None]
        left_out = f"the index {', '.join(names)} is left out: `reset_index()` makes columns of it"
        notes = (left_out,) if names else ()
        # Labels of rows may be those of several tables that were joined, some of them twice.
        table = TableFile(frame.reset_index(drop=True), settings, notes)
    elif suffix in EXCEL:
        settings = settings._replace(separator=",", encoding=None)
        table = _read_text(_sheet(path, title), title, settings, "utf-8", ".", texts)
    else:
        text, encoding = _text(path, title, settings.encoding)
        table = _read_text(text, title, settings, encoding, decimal, texts)
    if not len(table.frame):
        raise DataError(f"{title}: has no rows.")
    if parent_process() is None:  # workers read what was reported before they were started
        for note in table.notes:
            if (stamp, note) not in _LOGGED:
                _LOGGED.add((stamp, note))
                _log.warning("%s: %s.", title, note)
    return table


# Bytes and text


@contextmanager
def _decoding(title: str, extra: str = "") -> Iterator[None]:
    """Turn any error of a decoder into a DataError, also where an optional package is missing."""
    try:
        yield
    except DataError:
        raise
    except ImportError as error:
        command = f"pip install '.[{extra}]' in a copy of the repository"
        remedy = f"to read it, {command}, or save it as CSV"
        raise DataError(f"{title}: {remedy}.") from error
    # Over a damaged file each decoder raises types of its own.
    except Exception as error:
        raise DataError(f"{title}: cannot be read: {one_line(error)}.") from error


def _sheet(path: Path, title: str) -> str:
    """The only sheet of a workbook that is not empty, as CSV."""
    with _decoding(title, "excel"):
        import openpyxl

        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {sheet.title: list(sheet.values) for sheet in book.worksheets}
        book.close()
    filled = {
        name: rows
        for name, rows in sheets.items()
        if any(cell is not None for row in rows for cell in row)
    }
    if len(filled) > 1:
        names = ", ".join(f"`{name}`" for name in filled)
        raise DataError(f"{title}: must have one sheet, got {names}: save one as CSV.")
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(next(iter(filled.values()), []))
    return text.getvalue()


def _text(path: Path, title: str, encoding: str | None) -> tuple[str, str]:
    """Text of a file, unpacked, and its encoding."""
    with _decoding(title):
        content = _unpacked(path, title)
    encoding = encoding or _encoding(content)
    try:
        # UTF-8 with the mark of its byte order, which Excel writes, or without.
        text = content.decode("utf-8-sig" if encoding == "utf-8" else encoding)
    except LookupError:
        rule = f"must be one that Python knows, got {encoding!r}"
        raise DataSettingError("encoding", rule) from None
    except UnicodeDecodeError as error:
        rule = f"must be that of {title}, whose byte {error.start} is none of {encoding!r}"
        raise DataSettingError("encoding", rule) from None
    if "\0" in text:
        raise DataError(f"{title}: must be a table, got a binary file.")
    return text.replace("\r\n", "\n").replace("\r", "\n"), encoding


def _unpacked(path: Path, title: str) -> bytes:
    suffix = path.suffix.lower()
    if suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            # macOS adds a folder with what its file system knows of the files.
            names = [n for n in archive.namelist() if not n.startswith("__MACOSX/")]
            files = [name for name in names if not name.endswith("/")]
            if len(files) != 1:
                raise DataError(f"{title}: must hold one file, got {len(files)}.")
            return archive.read(files[0])
    opener = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(suffix, open)
    with opener(path, "rb") as file:
        return file.read()


def _encoding(content: bytes) -> str:
    """Encoding of text: by its mark, by what UTF-8 allows, or else that of Windows."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    for start, name in ((1, "utf-16-le"), (0, "utf-16-be")):
        half = content[start:SAMPLE:2]
        if half.count(0) * 10 > len(half) * 9:  # of letters and digits, every other byte is 0
            return name
    for name in ("utf-8", "cp1252"):
        try:
            content.decode(name)
        except UnicodeDecodeError:
            continue
        return name
    return "latin-1"


# Lines and columns


def _read_text(
    text: str,
    title: str,
    settings: Format,
    encoding: str,
    decimal: str | None,
    texts: frozenset[str],
) -> TableFile:
    text, separator, above, notes = _without_preamble(text, settings.separator)
    separator = _separator(text, separator, title)
    # A sheet may begin with rows without entries; pandas skips blank lines only.
    empty = re.match(rf'(?:[ \t"{re.escape(separator)}]*\n)*', text)[0]
    text, above = text[len(empty) :], above + empty.count("\n")
    if separator == " ":
        text = "\n".join(map(str.strip, text.split("\n")))
    names = _names(text, separator, above, title)
    columns, notation, doubts = _parsed(text, separator, names, texts, settings, decimal, title)
    frame, left_out = _named_columns(columns, names, title)
    frame.attrs[NOTATION] = notation
    form = Format(separator, *notation, encoding)
    detected = [
        f"{name} {value!r}"
        for name, value in form._asdict().items()
        if value not in (getattr(USUAL, name), getattr(settings, name))
    ]
    read_with = [f"read with {', '.join(detected)}"] if detected else []
    return TableFile(frame, form, (*read_with, *notes, *left_out, *doubts, *_doubts(frame)))


def _without_preamble(text: str, separator: str) -> tuple[str, str, int, list[str]]:
    """Text from the header on, the separator, the number of lines left out, and notes."""
    text, above, notes = text.removeprefix("\ufeff"), 0, []
    line, _, rest = text.partition("\n")
    if match := re.fullmatch(r'"?sep=(.)"?\s*', line, re.IGNORECASE):
        text, separator, above = rest, match[1], 1
    comments = []
    while text.startswith("#"):
        line, _, text = text.partition("\n")
        comments.append(line)
    if comments and _is_header_of(comments[-1], text):
        text = comments.pop().removeprefix("#").lstrip() + "\n" + text
    if comments:
        notes.append("comments above the header are left out")
    return text, separator, above + len(comments), notes


def _is_header_of(comment: str, text: str) -> bool:
    """Whether a line of comments is the header, as NumPy writes it."""
    first = text.partition("\n")[0]
    for separator in (*SEPARATORS, " "):
        cells = first.split(separator)
        if len(cells) > 1 and len(comment[1:].strip().split(separator)) == len(cells):
            return any(is_number(cell.strip()) for cell in cells)
    return False


def _rows(text: str, separator: str) -> Iterable[list[str]]:
    return csv.reader(io.StringIO(text), delimiter=separator, skipinitialspace=True)


def _separator(text: str, separator: str, title: str) -> str:
    """The separator that is set, or one that divides all lines into as many entries.

    Raises
    ------
    DataError
        The file is empty, or the separator that is set does not divide its header.
    """
    if len(separator) != 1 or separator in '"\r\n':
        raise DataSettingError("separator", f"must be one character, got {separator!r}")
    if not text.strip():
        raise DataError(f"{title}: is empty.")
    widths = {sign: _widths(text, sign) for sign in dict.fromkeys((separator, *SEPARATORS))}
    regular = [sign for sign in SEPARATORS if _is_regular(widths[sign])]
    if separator != ",":
        if widths[separator][0] == 1 and regular:
            rule = f"must stand between the columns of {title}, {regular[0]!r} it seems"
            raise DataSettingError("separator", f"{rule}, got {separator!r}")
        return separator
    if regular:
        return regular[0]
    widest = max(SEPARATORS, key=lambda sign: widths[sign][0])
    if widths[widest][0] > 1:
        return widest
    return " " if _is_regular(_widths(text, " ")) else ","


def _is_regular(widths: Sequence[int]) -> bool:
    """Whether all lines have as many entries as the header, several, or one more."""
    return widths[0] > 1 and set(widths[1:]) <= {widths[0], widths[0] + 1}


def _widths(text: str, separator: str) -> list[int]:
    """Numbers of entries of the first lines, trailing separators left out."""
    try:
        rows = [row for row in islice(_rows(text, separator), SAMPLE) if _is_filled(row)]
    except csv.Error:
        return [1]
    return [len(row) for row in rows] or [1]


def _names(text: str, separator: str, above: int, title: str) -> list[str]:
    """Names of all columns, empty ones too; rows must be as long as the header.

    They may have one entry more: an empty one at the end, or the name of the row in front, as R
    writes it.
    """
    lines, front, end = _rows(text, separator), None, False
    try:
        header = next(row for row in lines if _is_filled(row))
        for row in filter(_is_filled, lines):
            more, is_open = len(row) - len(header), not row[-1].strip()
            if front is None:
                front = more == 1 and not is_open and len(header) > 1
            end |= more == 1 and is_open and not front
            if more != front and not (more == 1 and is_open):
                rule = f"must have {len(header)} entries, one for each column, got {len(row)}"
                raise DataError(f"{title}, line {lines.line_num + above}: {rule}.")
    except csv.Error as error:
        raise DataError(f"{title}, line {lines.line_num + above}: {one_line(error)}.") from error
    names = [*([""] if front else []), *map(cleaned, header), *([""] if end else [])]
    for name in filter(None, names):
        if names.count(name) > 1:
            hint = ": is the first line a row of data?" if is_number(name) else ""
            raise DataError(f"{title}: column `{name}` must be there once, got it twice{hint}.")
    return names


def _is_filled(row: list[str]) -> bool:
    return any(map(str.strip, row))


def _parsed(
    text: str,
    separator: str,
    names: Sequence[str],
    texts: frozenset[str],
    form: Format,
    decimal: str | None,
    title: str,
) -> tuple[pd.DataFrame, Notation, list[str]]:
    """Columns by their places, without empty rows, the notation of their numbers, and notes."""
    if separator == " ":  # pandas does not take several of them for one
        lines = io.StringIO()
        csv.writer(lines, lineterminator="\n").writerows(
            [*row, *[""] * (len(names) - len(row))][: len(names)] for row in _rows(text, " ")
        )
        text, separator = lines.getvalue(), ","
    options = {
        "sep": separator, "header": 0, "names": range(len(names)), "index_col": False,
        "skipinitialspace": True, "keep_default_na": False, "na_values": [""], "low_memory": False,
    }  # fmt: skip
    as_text = [i for i, name in enumerate(names) if name in texts]
    with _decoding(title):
        frame = pd.read_csv(io.StringIO(text), dtype=dict.fromkeys(as_text, str), **options)
    notation, notes = PLAIN, []
    words = [i for i in frame if not _is_numeric(frame[i])]
    points = [i for i in frame if i not in as_text and _may_be_thousands(frame[i])]
    is_foreign = form.decimal or form.thousands or any(_is_foreign(frame[i]) for i in words)
    if is_foreign or points:
        as_read = pd.read_csv(io.StringIO(text), dtype=str, **options)
        found = {names[i]: pair for i in points if (pair := _thousands(as_read[i]))}
        is_sure = any(sure for _, sure in found.values())
        if is_foreign or is_sure or (found and decimal == "," != separator):
            frame = as_read
            notation = _notation(frame, separator, form, decimal, title)
        notes = [
            f"column `{name}` has {entry!r}, which is read as a fraction: say `decimal: ','` if "
            "points separate thousands"
            for name, (entry, sure) in found.items()
            if form.decimal is decimal is None
            and notation.decimal == "."
            and (sure or separator == ";")
        ]
    words = [i for i in frame if not _is_numeric(frame[i])]
    for i in words:
        frame[i] = _stripped(frame[i])
    # A row of words such as NA is not empty: its numbers are missing.
    is_filled = frame.notna().any(axis=1)
    for i in words:
        if i not in as_text:
            frame[i] = _converted(frame[i], notation)
    return frame[is_filled].reset_index(drop=True), notation, notes


def _may_be_thousands(column: pd.Series) -> bool:
    """Whether a column may be as `_thousands` has it, from what is fast to see."""
    if not _is_numeric(column):
        return text_of_numbers(column.head(SAMPLE)).map(is_like_number).all()
    if column.dtype.kind != "f":
        return False
    return bool(((column.abs() < 1000) & (column.round(3) == column) | column.isna()).all())


def _thousands(column: pd.Series) -> tuple[str, bool] | None:
    """An entry such as ``1.200`` of a column whose points may separate thousands; None without one.

    They do so for sure if there are both 950 and 1.200: programs write either all numbers with as
    many decimals, or each with no more than it needs.
    """
    text = text_of_numbers(column)
    has_point = text.str.contains(".", regex=False)
    pointed, whole = text[has_point], text[~has_point]
    fit = pointed.str.fullmatch(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}").all()
    if pointed.empty or not fit or not whole.str.fullmatch("[+-]?[0-9]{1,3}").all():
        return None
    return pointed.iloc[0], bool(len(whole)) and bool(pointed.str.endswith("0").any())


def _is_numeric(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column.dtype)


def _is_foreign(column: pd.Series) -> bool:
    """Whether most of a column is digits with signs between, and some is no plain number."""
    text = stripped_text(column)
    share = share_of_rows(text, is_like_number)
    return share > max(0.5, share_of_rows(text, is_number))


def _notation(
    frame: pd.DataFrame, separator: str, form: Format, decimal: str | None, title: str
) -> Notation:
    """Notation of most entries that look like numbers.

    Raises
    ------
    DataError
        They can be read in two ways.
    """
    if form.decimal and form.decimal == form.thousands:
        raise DataSettingError("thousands", f"must differ from `decimal`, got {form.thousands!r}")
    choices = [
        notation
        for notation in NOTATIONS
        if form.decimal in (None, notation.decimal) and form.thousands in (None, notation.thousands)
    ]
    best, either = _best(frame.head(SAMPLE), choices)
    if either is not None and len(frame) > SAMPLE:
        best, either = _best(frame, choices)
    if either is not None:
        # Programs put a semicolon between columns where the comma is the decimal sign.
        decimal = decimal or ("," if separator == ";" else None)
        if decimal is None:
            rule = f"must be given: {either!r} of {title} may be a fraction, or thousands"
            raise DataSettingError("decimal", rule)
        best = [notation for notation in best if notation.decimal == decimal]
    return best[0]


def _best(frame: pd.DataFrame, choices: list[Notation]) -> tuple[list[Notation], str | None]:
    """Notations that fit most entries, and an entry that is another number in some of them."""
    text = pd.concat([stripped_text(frame[i]) for i in frame], ignore_index=True)
    entries = pd.Series([entry for entry in text.unique() if is_like_number(entry)], dtype=str)
    counts = {n: sum(is_number(entry, n) for entry in entries) for n in choices}
    best = [notation for notation, count in counts.items() if count == max(counts.values())]
    by_decimal = {notation.decimal: as_plain(entries, notation) for notation in best}
    if len(by_decimal) < 2:
        return best, None
    differ = entries[by_decimal["."] != by_decimal[","]]
    return best, next((entry for entry in differ if is_number(entry, best[0])), None)


def _stripped(column: pd.Series) -> pd.Series:
    """Text without spaces around it, missing where nothing is left."""
    column = column.map(str, na_action="ignore") if column.dtype == object else column
    return column.str.strip().replace("", None)


def _converted(column: pd.Series, notation: Notation) -> pd.Series:
    """Stripped text, as numbers or truth values where it is all of these."""
    lower = column.str.lower()
    words = lower.mask(lower.isin(MISSING_WORDS))
    if not words.notna().any():
        return column
    truth = words.map({"true": True, "false": False})
    if truth.notna().equals(words.notna()):
        return truth.astype(bool if words.notna().all() else "boolean")
    return numbers_of(column, notation)


def _named_columns(
    frame: pd.DataFrame, names: Sequence[str], title: str
) -> tuple[pd.DataFrame, list[str]]:
    """Columns by name, without nameless ones that are empty or name the rows; and notes."""
    columns, notes = {}, []
    for i, name in enumerate(names):
        if i == 0 and name in ("", "Unnamed: 0") and _are_names_of_rows(frame[i]):
            notes.append(
                "the first column has no name and numbers or names the rows: it is left out"
            )
        elif not name and frame[i].isna().all():
            notes.append(f"column {i + 1} is empty: it is left out")
        elif not name:
            raise DataError(f"{title}: column {i + 1} must have a name in the first line.")
        else:
            columns[name] = frame[i]
    return pd.DataFrame(columns), notes


def _are_names_of_rows(column: pd.Series) -> bool:
    is_whole = pd.api.types.is_integer_dtype(column.dtype)
    return column.is_unique and (is_whole or not _is_numeric(column))


def _doubts(frame: pd.DataFrame) -> list[str]:
    """Likely mistakes in a table, a line each."""
    notes = []
    numeric = [name for name in frame if _is_numeric(frame[name])]
    if numeric and all(map(is_number, numeric)):
        notes.append("the first line looks like data: it must name the columns")
    has_one_entry = (frame.notna().sum(axis=1) == 1).to_numpy()
    if has_one_entry.any() and frame.shape[1] > 2:
        row = has_one_entry.argmax() + 1
        notes.append(f"row {row} has one entry only: is it a line of totals?")
    for name in frame.columns.difference(numeric, sort=False):
        words = frame[name].dropna().unique()
        broken = next((word for word in words if "\n" in word), None)
        if broken is not None:
            notes.append(f"column `{name}` has a line break in {broken!r}: is a quote missing?")
        first: dict[str, str] = {}
        for word in words if len(words) <= MOST_LEVELS else ():
            if first.setdefault(word.casefold(), word) != word:
                pair = f"{first[word.casefold()]!r} and {word!r}"
                notes.append(f"column `{name}` has categories that differ in case only: {pair}")
                break
    return notes
