"""Cells of one data set laid out as a table: priors down, hyperpriors across."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pmbnn.results.caveats import Counts, count
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import (
    error_note,
    has_no_scale,
    mean_over_seeds,
    overlap_of,
    repeated_words,
    settings_row,
)
from pmbnn.results.titles import distinct_titles

Place = tuple[int, int]


@dataclass(frozen=True)
class Combinations:
    """Records by row and column.

    Attributes
    ----------
    rows, columns
        Names of the priors and of the hyperpriors, in order of appearance.
    records
        Records at ``(row, column)``: one for each data seed, failed ones among them.
    without_scale
        Rows of priors that have no scale. Their one combination stands under the first
        fixed scale.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    records: Mapping[Place, tuple[CellRecord, ...]]
    without_scale: frozenset[int]

    def finished(self, row: int, column: int) -> list[CellRecord]:
        """Those records of a combination that have results."""
        return [r for r in self.records.get((row, column), ()) if r.results]

    def absence(self, row: int, column: int) -> str:
        """Why a combination has no results."""
        if (row, column) in self.records:
            return "failed"
        return "no scale" if row in self.without_scale else "not run"

    def score(self, row: int, column: int, name: str) -> tuple[float, float]:
        """Mean of a result over data seeds, or over fits of one, and its standard error."""
        return mean_over_seeds(self.finished(row, column), name)

    def caveats(self, row: int, column: int) -> Counts:
        """How many cells of a combination did not converge, or chose an end of a grid."""
        return count(self.finished(row, column))

    def marks(self, row: int, *columns: int) -> str:
        """What marks combinations in a figure; `mark_notes` says what the signs mean."""
        counts = count(record for column in columns for record in self.finished(row, column))
        at_end = counts.scales_at_end or counts.rates_at_end
        return "†" * bool(counts.not_converged) + "‡" * bool(at_end)

    @property
    def mark_notes(self) -> str:
        """What `marks` mean, with the number of cells; empty where nothing is marked."""
        counts = count(record for group in self._usable for record in group)
        return "; ".join(counts.marked_words)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of priors and of hyperpriors."""
        return len(self.rows), len(self.columns)

    @property
    def seeds(self) -> int:
        """Number of data seeds among the cells with results."""
        return len({data_seed(r) for group in self._usable for r in group})

    @property
    def overlap(self) -> float:
        """How far data seeds are the same rows (`Dataset.overlap`); zero where there is one."""
        return overlap_of(r for group in self._usable for r in group)

    @property
    def error_note(self) -> str:
        """What ± means in a figure; empty where nothing is repeated."""
        repeated = repeated_words(self.records.values())
        return error_note(repeated, self.overlap) if repeated else ""

    @property
    def _usable(self) -> list[list[CellRecord]]:
        return [[r for r in group if r.results] for group in self.records.values()]


def combine(records: Sequence[CellRecord]) -> Combinations:
    """Table of the records of one data set that differ in prior, hyperprior and seed only."""
    priors = [r.settings["prior"] for r in records]
    hyperpriors = [r.settings["hyperprior"] for r in records]
    stand_in = np.array([has_no_scale(h) for h in hyperpriors], dtype=bool)
    fixed = np.array([h["kind"] == "fixed" for h in hyperpriors], dtype=bool) & ~stand_in
    row, column = _numbered(priors), _numbered(hyperpriors)
    shown = ~stand_in if fixed.any() else np.ones_like(stand_in)
    if fixed.any():
        column[shown] = pd.factorize(column[shown])[0]
        column[stand_in] = column[fixed].min()
    cells = pd.DataFrame({"record": records, "row": row, "column": column})
    places = cells.groupby(["row", "column"], sort=False)["record"]
    return Combinations(
        rows=_titles(priors, cells["row"]),
        columns=_titles(hyperpriors, cells.loc[shown, "column"]),
        records={place: tuple(found) for place, found in places},
        without_scale=frozenset(cells.loc[stand_in, "row"]),
    )


def data_seed(record: CellRecord) -> int:
    """Seed of a cell's data set."""
    return record.settings["dataset"].get("seed", 0)


def _numbered(sections: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Number of each section in order of appearance; equal ones have the same."""
    keys = [tuple(settings_row(section).items()) for section in sections]
    return pd.factorize(pd.Series(keys, dtype=object))[0]


def _titles(sections: Sequence[Mapping[str, Any]], numbers: pd.Series) -> tuple[str, ...]:
    """Of the first section of each number."""
    first = numbers.drop_duplicates().sort_values().index
    return tuple(distinct_titles([sections[i] for i in first]))
