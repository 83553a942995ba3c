"""Published results split by split, from CSV files: methods that networks are paired with.

A line is a data set and a split: ``set`` is the name of the data set, ``split`` the data seed,
other columns are metrics, with or without ``test_`` before their names. Where a file holds several
methods, a column ``method`` names them. What else it holds is passed over.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pmbnn.data import DataError
from pmbnn.data.base import find, stamp_of
from pmbnn.data.table_file import read_table
from pmbnn.experiment.published import FILE as PUBLISHED_FILE
from pmbnn.experiment.published import read_published
from pmbnn.results.specifications import stored_data_folder
from pmbnn.results.store import Results

SET, SPLIT, METHOD = "set", "split", "method"

METRICS = {
    "nll": ("nll", 0.0, 1.0),
    "log_likelihood": ("nll", 0.0, -1.0),
    "rmse": ("rmse", 0.0, 1.0),
    "crps": ("crps", 0.0, 1.0),
    "accuracy": ("accuracy", 0.0, 1.0),
    "error": ("accuracy", 1.0, -1.0),
    "brier_score": ("brier_score", 0.0, 1.0),
    "expected_calibration_error": ("expected_calibration_error", 0.0, 1.0),
    "coverage_90": ("coverage_90", 0.0, 1.0),
}
"""Result that a column stands for, which is a constant and so many times what stands there."""


class PublishedMethod(NamedTuple):
    """A method's published results.

    Attributes
    ----------
    name
        In words.
    file
        That they are from, for messages.
    scores
        A row a data set and split, by the two; columns are results as cells have them.
    """

    name: str
    file: str
    scores: pd.DataFrame

    def on(self, names: Collection[str], seeds: Collection[int]) -> pd.DataFrame:
        """Those on a data set that has these names, by data seed."""
        sets, splits = (self.scores.index.get_level_values(level) for level in (SET, SPLIT))
        return self.scores[sets.isin(list(names)) & splits.isin(list(seeds))].droplevel(SET)


def read_splits(
    named: str, name: str = "", setting: str = "file", folders: Sequence[Path] = ()
) -> list[PublishedMethod]:
    """Methods of a file, found as files of data are.

    Parameters
    ----------
    named
        Path of the file.
    name
        What its method is called where no column says so; the file's own name unless given.
    setting
        That names it, for messages.
    folders
        Where it is looked up first.

    Raises
    ------
    DataError
        If it is not there, or not as it must be.
    """
    path = find(named, folders, setting)
    frame = read_table(stamp_of(path), named).frame.copy()
    missing = [column for column in (SET, SPLIT) if column not in frame]
    if missing:
        raise DataError(f"{named}: must have the columns set and split, `{missing[0]}` is missing.")
    if METHOD not in frame:
        frame[METHOD] = name or Path(named).name.partition(".")[0].replace("_", " ")
    splits = pd.to_numeric(frame[SPLIT], errors="coerce")
    wrong = frame[SPLIT][splits % 1 != 0]
    if len(wrong):
        raise DataError(f"{named}: `split` must be a whole number, got {_shown(wrong.iloc[0])}.")
    keys = frame[[METHOD, SET]].astype(str).assign(**{SPLIT: frame[SPLIT].astype(int)})
    twice = keys[keys.duplicated()]
    if len(twice):
        raise DataError(f"{named}: must have every split once, got {_place(twice.iloc[0])} twice.")
    scores = pd.DataFrame(dict(_results(frame, named)))
    by_method = pd.concat([keys, scores], axis=1).groupby(METHOD, sort=False)
    return [
        PublishedMethod(str(method), named, rows.drop(columns=METHOD).set_index([SET, SPLIT]))
        for method, rows in by_method
    ]


def stored_splits(results: Results) -> tuple[list[PublishedMethod], list[str]]:
    """Methods that a results folder's table of published numbers names, and what is not there.

    Raises
    ------
    ConfigError
        If the table is not as it must be.
    DataError
        If a file is not as it must be.
    """
    path = results.folder / PUBLISHED_FILE
    if not path.is_file():
        return [], []
    methods: list[PublishedMethod] = []
    absent = []
    folders = (stored_data_folder(results.folder),)
    for entry in read_published(path.read_text(encoding="utf-8"), str(path)).splits:
        try:
            find(entry.file, folders, "file")
        except DataError:
            absent.append(f"{entry.method}: {entry.file} is not there")
        else:
            methods += read_splits(entry.file, entry.method, folders=folders)
    return methods, absent


def _results(frame: pd.DataFrame, title: str) -> Iterator[tuple[str, pd.Series]]:
    """Every result that a column says, by its name."""
    columns = {column: column.removeprefix("test_") for column in frame}
    columns = {column: name for column, name in columns.items() if name in METRICS}
    if not columns:
        choices = ", ".join(METRICS)
        raise DataError(f"{title}: must have a column of {choices}, with or without `test_`.")
    column_of: dict[str, str] = {}
    for column, name in columns.items():
        result, constant, factor = METRICS[name]
        if result in column_of:
            raise DataError(f"{title}: `{column_of[result]}` and `{column}` say the same.")
        column_of[result] = column
        numbers = pd.to_numeric(frame[column], errors="coerce")
        wrong = ~np.isfinite(numbers)
        if wrong.any():
            row = frame[wrong].iloc[0]
            got = _shown(row[column])
            raise DataError(f"{title}, {_place(row)}: `{column}` must be a number, got {got}.")
        yield result, constant + factor * numbers.astype(float)


def _place(row: pd.Series) -> str:
    return f"{row[SET]} split {row[SPLIT]}"


def _shown(value: Any) -> str:
    return "nothing" if pd.isna(value) else repr(value) if isinstance(value, str) else str(value)
