"""A first experiment file for a table of one's own, after a look at it."""

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pmbnn.data import DataError
from pmbnn.data.local_files import stamp_of
from pmbnn.data.table import PARQUET, first_line, read_frame, separator_of
from pmbnn.experiment.yaml_file import yaml_text

if TYPE_CHECKING:
    import pandas as pd

MANY_ROWS = 3_000
"""Training rows above which steps see a part of them."""

WIDTH = 100
"""Of lines of comments."""

DATE = r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b"
"""How dates begin that are written as text: in a CSV file, all are."""

FEW_VALUES = 10
"""Different whole numbers up to which a target is taken for classes."""


class Look(NamedTuple):
    """What a look at a table says.

    Attributes
    ----------
    rows
        How many it has.
    target
        Column to be predicted.
    is_classes
        Whether that holds classes.
    without
        Columns that are no inputs, and why.
    inputs
        Columns that are, with what each holds.
    gaps
        Number of missing values of each column that has some.
    redundant
        Columns that are constant or repeat another.
    """

    rows: int
    target: str
    is_classes: bool
    without: dict[str, str]
    inputs: dict[str, str]
    gaps: dict[str, int]
    redundant: tuple[str, ...]


def draft(file: Path, written: str, target: str | None = None) -> str:
    """Text of an experiment file for a table, with comments.

    Parameters
    ----------
    file
        The table: CSV, packed or not, or Parquet.
    written
        Its path as the experiment file is to name it.
    target
        Column to be predicted; the last one unless given.

    Raises
    ------
    DataError
        If the table cannot be read, or has no such column.
    """
    stamp, separator = stamp_of(file), ","
    if file.is_file() and file.suffix not in PARQUET:
        separator = separator_of(first_line(stamp, file.name)) or ","
    frame = read_frame(stamp, file.name, separator)
    return _text(_look(frame, file.name, target), written, file.stem, separator)


def _look(frame: "pd.DataFrame", title: str, target: str | None) -> Look:
    names = list(map(str, frame.columns))
    target = names[-1] if target is None else target
    if target not in names:
        raise DataError(f"{title}: `target` must be one of {', '.join(names)}, got {target!r}.")
    if not len(frame) or len(names) < 2:
        raise DataError(f"{title}: must have rows, and a column beside the target.")
    without, inputs = {}, {}
    for name in names:
        if name == target:
            continue
        words, usable = _column(frame[name])
        (inputs if usable else without)[name] = words
    return Look(
        rows=len(frame),
        target=target,
        is_classes=_is_classes(frame[target]),
        without=without,
        inputs=inputs,
        gaps={str(name): int(n) for name, n in frame.isna().sum().items() if n},
        redundant=_redundant(frame[list(inputs)]),
    )


def _column(column: "pd.Series") -> tuple[str, bool]:
    """What a column holds, in words, and whether it can be an input."""
    import pandas as pd

    from pmbnn.data.frames import MOST_LEVELS

    kinds, different = pd.api.types, column.nunique()
    if not different:
        return "no values", False
    if kinds.is_bool_dtype(column):
        return "truth values", True
    if kinds.is_numeric_dtype(column):
        whole = kinds.is_integer_dtype(column) and column.is_unique
        steps = column.diff().iloc[1:]
        if whole and len(column) > FEW_VALUES and steps.nunique() == 1:
            return "numbers of rows", False
        return f"numbers, {column.min():g} to {column.max():g}", True
    if kinds.is_datetime64_any_dtype(column) or column.dropna().astype(str).str.match(DATE).all():
        return "times", False
    if different > MOST_LEVELS:
        return f"text, {different} different", False
    return f"{different} categories", True


def _redundant(columns: "pd.DataFrame") -> tuple[str, ...]:
    """Columns that are constant, or repeat an earlier one."""
    import pandas as pd

    found, seen = [], set()
    for name in columns:
        content = pd.util.hash_pandas_object(columns[name], index=False).to_numpy().tobytes()
        if content in seen or columns[name].nunique(dropna=False) == 1:
            found.append(str(name))
        seen.add(content)
    return tuple(found)


def _is_classes(column: "pd.Series") -> bool:
    import pandas as pd

    if pd.api.types.is_bool_dtype(column) or not pd.api.types.is_numeric_dtype(column):
        return True
    known = column.dropna()
    return bool((known % 1 == 0).all()) and known.nunique() <= FEW_VALUES


def _text(look: Look, written: str, stem: str, separator: str) -> str:
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in stem)[:80] or "experiment"
    kind = "classes" if look.is_classes else "numbers"
    lines = [
        *_comment(
            f"Does the prior matter for {written}? {look.rows:,} rows; {look.target} is predicted "
            f"({kind}).",
            "# ",
        ),
        "# Every list is an axis: all combinations are fitted, each on three splits of the rows.",
        f"name: {name}",
        "sweeps:",
        f"  - name: {name}",
        "    dataset:",
        "      kind: table",
        f"      file: {_scalar(written)}",
        *([] if separator == "," else [f"      separator: {json.dumps(separator)}"]),
        f"      target: {_scalar(look.target)}",
        f"      target_is: {kind}",
        *_comment(f"Inputs are all other columns: {_named(look.inputs)}."),
    ]
    if look.without:
        lines += _comment(f"But not: {_named(look.without)}.")
        lines.append(f"      without: [[{_scalars(look.without)}]]")
    lines += _about_missing(look)
    if look.redundant:
        lines += _comment(f"Constant, or like another: {', '.join(look.redundant)}.")
        lines.append("      redundant: drop")
    lines += [
        "      split: {kind: share, test: 0.2}  # or folds, or rows that a file lists",
        "      seed: [0, 1, 2]",
        "    network: {kind: dense, hidden: [[20]], activation: tanh}",
        "    prior: [normal, laplace, cauchy]",
        "    hyperprior: [{kind: fixed, scale: {tune: {log: [0.1, 3, 4]}}}, half_normal]",
    ]
    if not look.is_classes:
        lines.append("    # Noise in units of the standardised target, learned.")
        lines.append("    likelihood: {kind: normal, sd: {kind: half_cauchy}}")
    if look.rows > MANY_ROWS:
        lines.append("    inference: {epochs: 30, batch: 512, learning_rate: 0.01, restarts: 1}")
    else:
        lines.append("    inference: {steps: 5000, learning_rate: 0.02, restarts: 2}")
    lines.append("    predict: {draws: 500}")
    return "\n".join(lines) + "\n"


def _about_missing(look: Look) -> list[str]:
    if not look.gaps:
        return []
    many = ", ".join(f"{name} {number}" for name, number in look.gaps.items())
    how = "drop" if look.target in look.gaps else "mean"
    what = {"drop": "their rows are left out", "mean": "the mean of the training rows instead"}
    return [*_comment(f"Missing values: {many}; {what[how]}."), f"      missing: {how}"]


def _comment(words: str, start: str = "      # ") -> list[str]:
    """Lines of a comment, those of a data set's settings unless said."""
    # A column's name may hold anything.
    plain = " ".join(words.split())
    return textwrap.wrap(plain, WIDTH, initial_indent=start, subsequent_indent=start)


def _named(columns: dict[str, str], most: int = 12) -> str:
    """Columns with what they hold, on one line."""
    shown = [f"{name} ({words})" for name, words in list(columns.items())[:most]]
    more = len(columns) - most
    return "; ".join([*shown, *([f"{more} more"] if more > 0 else [])])


def _scalar(text: str) -> str:
    """Text as YAML writes it within a list."""
    return yaml_text([text]).removeprefix("- ").strip()


def _scalars(texts: Iterable[str]) -> str:
    return ", ".join(map(_scalar, texts))
