"""Cells of one data set laid out as a table: priors down, hyperpriors across."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from pmbnn.results.caveats import Counts, count
from pmbnn.results.groups import grouped
from pmbnn.results.names import distinct, title
from pmbnn.results.record import CellRecord
from pmbnn.results.tables import error_note, mean_over_seeds, overlap_of, repeated_words

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

    @cached_property
    def cells(self) -> pd.DataFrame:
        """A row for each cell with results, for ``groupby``.

        Its place is in ``row`` and ``column``, their names in ``prior`` and ``hyperprior``;
        ``is_learned`` says whether the scale is, and ``scale`` is that which was given, missing
        where it was learned or tuned; ``seed`` is that of the data, and ``record`` its record.
        """
        rows = [
            (row, column, self.rows[row], self.columns[column], record)
            for row, column in sorted(self.records)
            for record in self.finished(row, column)
        ]
        table = pd.DataFrame(rows, columns=["row", "column", "prior", "hyperprior", "record"])
        scales = [record.cell.scale for record in table["record"]]
        return table.assign(
            seed=[record.cell.data_seed for record in table["record"]],
            is_learned=[scale is None for scale in scales],
            scale=[scale if isinstance(scale, float | int) else np.nan for scale in scales],
        )

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
        return len({r.cell.data_seed for group in self._usable for r in group})

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
    cells = [record.cell for record in records]
    fixed = [cell.hyperprior for cell in cells if cell.has_scale and cell.scale is not None]
    with_scale = [cell.hyperprior for cell in cells if cell.has_scale or not fixed]
    priors = list(dict.fromkeys(cell.prior for cell in cells))
    hyperpriors = list(dict.fromkeys(with_scale))

    def place(record: CellRecord) -> Place:
        prior, hyperprior = record.cell.prior, record.cell.hyperprior
        # A prior without a scale stands under the first fixed scale, if there is one.
        stands_under = hyperprior if hyperprior in hyperpriors else fixed[0]
        return priors.index(prior), hyperpriors.index(stands_under)

    found = grouped(records, place)
    return Combinations(
        rows=tuple(distinct(priors, title)),
        columns=tuple(distinct(hyperpriors, title)),
        records={at: tuple(own) for at, own in found.items()},
        without_scale=frozenset(at[0] for at, own in found.items() if not own[0].cell.has_scale),
    )
