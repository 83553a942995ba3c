"""A first experiment file for a user's table, drafted from its columns."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pmbnn.data import DataError
from pmbnn.data.base import show_names, stamp_of
from pmbnn.experiment.yaml_file import flow_text

if TYPE_CHECKING:
    import pandas as pd

    from pmbnn.data.table_file import TableFile

MANY_ROWS = 3_000
"""Training rows above which gradient steps use minibatches."""

WIDTH = 100
"""Characters of a line of comments."""

FEW_VALUES = 10
"""Most distinct whole numbers of a target that is taken for classes."""

PACKED = (".gz", ".bz2", ".xz", ".zip")
"""Suffixes of compressed files; that of the format comes before them."""

USUAL = {"separator": ",", "decimal": ".", "thousands": None, "encoding": "utf-8"}
"""Format of a text file unless an experiment file names another."""


class TableSummary(NamedTuple):
    """Columns of a table, and what they can be used for.

    Attributes
    ----------
    rows
        Number of rows.
    target
        Column to be predicted.
    is_classes
        Whether the target holds classes.
    without
        Columns that cannot be inputs, and why.
    inputs
        Columns that can, with their contents.
    gaps
        Number of missing values of inputs and target, where there are some.
    redundant
        Inputs that are constant or repeat another.
    """

    rows: int
    target: str
    is_classes: bool
    without: dict[str, str]
    inputs: dict[str, str]
    gaps: dict[str, int]
    redundant: tuple[str, ...]

    @property
    def task(self) -> str:
        """Task of an experiment file."""
        return "classification" if self.is_classes else "regression"

    @property
    def missing(self) -> str | None:
        """Setting for missing values; None where there are none."""
        if not self.gaps:
            return None
        return "drop" if self.target in self.gaps else "mean"


def name_of(file: Path) -> str:
    """Name of a table without the suffixes of its format, ``table`` where nothing is left."""
    name = file.name[: -len(file.suffix)] if file.suffix.lower() in PACKED else file.name
    stem, dot, suffix = name.rpartition(".")
    return (stem if dot and suffix.isalnum() else name) or "table"


def draft(file: Path, written: str, target: str | None = None) -> str:
    """Text of an experiment file for a table, with comments.

    Parameters
    ----------
    file
        The table, in a format that `pmbnn.data.table_file.read_table` reads.
    written
        Its path as the experiment file is to name it.
    target
        Column to be predicted; the last one unless given.

    Raises
    ------
    DataError
        If the table cannot be read, or has no such column.
    """
    from pmbnn.data.table_file import read_table

    table = read_table(stamp_of(file), file.name)
    return _text(_summary(table.frame, file.name, target), table, written, name_of(file))


def _summary(frame: "pd.DataFrame", title: str, target: str | None) -> TableSummary:
    frame = frame.set_axis(list(map(str, frame.columns)), axis=1)
    names = list(frame.columns)
    target = names[-1] if target is None else target
    if target not in names:
        raise DataError(f"{title}: `target` must be one of {show_names(names)}, got {target!r}.")
    if len(names) < 2:
        raise DataError(f"{title}: must have a column beside the target.")
    without, inputs = {}, {}
    for name in names:
        if name != target:
            contents, usable = _column(frame[name])
            (inputs if usable else without)[name] = contents
    if not inputs:
        raise DataError(f"{title}: no column can be an input: {_named(without)}.")
    gaps = frame[[*inputs, target]].isna().sum()
    summary = TableSummary(
        rows=len(frame),
        target=target,
        is_classes=_is_classes(frame[target]),
        without=without,
        inputs=inputs,
        gaps={name: int(number) for name, number in gaps.items() if number},
        redundant=(),
    )
    return summary._replace(redundant=_redundant(frame, summary, title))


def _column(column: "pd.Series") -> tuple[str, bool]:
    """Contents of a column, and whether it can be an input."""
    import pandas as pd

    from pmbnn.data.frames import MOST_LEVELS, doubtful_categories, first_bad_number

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
    if kinds.is_datetime64_any_dtype(column):
        return "times", False
    bad = first_bad_number(column)
    if bad is not None and not _are_mostly_numbers(column):
        return f"no plain numbers, such as {column.iloc[bad]!r}", False
    if bad is None and (what := doubtful_categories(column)):
        return what, False
    if different > MOST_LEVELS:
        return f"text, {different} different", False
    return f"{different} categories", True


def _are_mostly_numbers(column: "pd.Series") -> bool:
    """Whether most entries are numbers, so that the others are mistakes to be named."""
    from pmbnn.data.frames import is_number, notation_of, share_of_rows, stripped_text

    notation = notation_of(column)
    return share_of_rows(stripped_text(column), lambda text: is_number(text, notation)) >= 0.5


def _redundant(frame: "pd.DataFrame", summary: TableSummary, title: str) -> tuple[str, ...]:
    """Inputs that are constant, or repeat an earlier one."""
    from pmbnn.data.frames import FrameSettings, rows_from_frame

    settings = FrameSettings(
        target=summary.target,
        without=tuple(summary.without),
        task=summary.task,
        missing=summary.missing or "error",
    )
    every, kept = (
        rows_from_frame(frame, settings.model_copy(update={"redundant": how}), title).features
        for how in ("keep", "drop")
    )
    return tuple(name for name in every if name not in kept)


def _is_classes(column: "pd.Series") -> bool:
    import pandas as pd

    from pmbnn.data.frames import first_bad_number

    if pd.api.types.is_bool_dtype(column):
        return True
    if not pd.api.types.is_numeric_dtype(column):
        return first_bad_number(column) is None
    values = column.dropna()
    return bool((values % 1 == 0).all()) and values.nunique() <= FEW_VALUES


def _text(summary: TableSummary, table: "TableFile", written: str, stem: str) -> str:
    name = "".join(c if c.isascii() and c.isalnum() else "_" for c in stem)[:80]
    lines = [
        *_comment(
            f"Does the prior matter for {written}? {summary.rows:,} rows; {summary.target} is "
            f"predicted ({summary.task}).",
            "# ",
        ),
        "# Every list is an axis: all combinations are fitted, each on three splits of the rows.",
        f"name: {_scalar(name)}",
        "sweeps:",
        f"  - name: {_scalar(name)}",
        "    dataset:",
        "      kind: table",
        f"      file: {_scalar(written)}",
        *(line for note in table.notes for line in _comment(f"{note.capitalize()}.")),
        *(
            f"      {field}: {_scalar(value)}"
            for field, value in table.format._asdict().items()
            if value not in (None, USUAL[field])
        ),
        f"      target: {_scalar(summary.target)}",
        f"      task: {summary.task}",
        *_comment(f"Inputs are all other columns: {_named(summary.inputs)}."),
    ]
    if summary.without:
        lines += _comment(f"But not: {_named(summary.without)}.")
        lines.append(f"      without: {flow_text([list(summary.without)])}")
    if summary.missing is not None:
        counts = ", ".join(f"{name} {number}" for name, number in summary.gaps.items())
        effects = {
            "drop": "their rows are left out",
            "mean": "the mean of the training rows instead",
        }
        lines += _comment(f"Missing values: {counts}; {effects[summary.missing]}.")
        lines.append(f"      missing: {summary.missing}")
    if summary.redundant:
        lines += _comment(f"Constant, or like another: {', '.join(summary.redundant)}.")
        lines.append("      redundant: drop")
    lines += [
        "      split: {kind: random, test_size: 0.2}  # or folds, or rows that a file lists",
        "      seed: [0, 1, 2]",
        "    network: {kind: dense, hidden: [[20]], activation: tanh}",
        "    prior: [normal, laplace, cauchy]",
        "    hyperprior: [{kind: fixed, scale: {tune: {log: [0.01, 10, 7]}}}, half_normal]",
    ]
    if not summary.is_classes:
        lines.append("    # Noise in units of the standardised target, learned.")
        lines.append("    likelihood: {kind: normal, sd: {kind: half_cauchy}}")
    if summary.rows > MANY_ROWS:
        lines.append("    inference: {steps: 10000, batch: 512, learning_rate: 0.02, restarts: 1}")
    else:
        lines.append("    inference: {steps: 10000, learning_rate: 0.05, restarts: 2}")
    lines.append("    predict: {draws: 500}")
    return "\n".join(lines) + "\n"


def _comment(text: str, start: str = "      # ") -> list[str]:
    """Lines of a comment, by default among a data set's settings."""
    # A column's name may hold anything.
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return textwrap.wrap(plain, WIDTH, initial_indent=start, subsequent_indent=start)


def _named(columns: dict[str, str], most: int = 12) -> str:
    """Columns with their contents, on one line."""
    shown = [f"{name} ({contents})" for name, contents in list(columns.items())[:most]]
    more = len(columns) - most
    return "; ".join([*shown, *([f"{more} more"] if more > 0 else [])])


def _scalar(text: str) -> str:
    """Text on one line, quoted where YAML reads it as something else."""
    return flow_text([text])[1:-1]
