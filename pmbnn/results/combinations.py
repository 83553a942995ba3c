"""Cells of one data set laid out as a table: priors down, hyperpriors across."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pmbnn.results.record import CellRecord
from pmbnn.results.tables import has_no_scale, mean_and_error, repetitions, settings_row
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
        return mean_and_error(repetitions(self.finished(row, column), name))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of priors and of hyperpriors."""
        return len(self.rows), len(self.columns)

    @property
    def seeds(self) -> int:
        """Number of data seeds among the cells with results."""
        return len({data_seed(r) for group in self._usable for r in group})

    @property
    def repeated(self) -> str | None:
        """What the means are over: ``5 data seeds``, ``3 fits``; None if there is one of each."""
        if self.seeds > 1:
            return f"{self.seeds} data seeds"
        fits = max(map(len, self._usable), default=0)
        return f"{fits} fits" if fits > 1 else None

    @property
    def _usable(self) -> list[list[CellRecord]]:
        return [[r for r in group if r.results] for group in self.records.values()]


def combine(records: Sequence[CellRecord]) -> Combinations:
    """Table of the records of one data set that differ in prior, hyperprior and seed only."""
    priors = {_key(r, "prior"): r.settings["prior"] for r in records}
    hyperpriors = _columns(records)
    rows, columns = list(priors), list(hyperpriors)
    first_fixed = next((i for i, h in enumerate(hyperpriors.values()) if h["kind"] == "fixed"), 0)
    placed: dict[Place, tuple[CellRecord, ...]] = {}
    without_scale = set()
    for record in records:
        row, key = rows.index(_key(record, "prior")), _key(record, "hyperprior")
        if has_no_scale(record.settings["hyperprior"]):
            without_scale.add(row)
        place = (row, columns.index(key) if key in hyperpriors else first_fixed)
        placed[place] = (*placed.get(place, ()), record)
    return Combinations(
        rows=tuple(distinct_titles(list(priors.values()))),
        columns=tuple(distinct_titles(list(hyperpriors.values()))),
        records=placed,
        without_scale=frozenset(without_scale),
    )


def data_seed(record: CellRecord) -> int:
    """Seed of a cell's data set."""
    return record.settings["dataset"].get("seed", 0)


def _columns(records: Sequence[CellRecord]) -> dict[tuple, Mapping[str, Any]]:
    """Distinct hyperpriors; what stands in for one is left out if there is a fixed scale."""
    every = {_key(r, "hyperprior"): r.settings["hyperprior"] for r in records}
    real = {key: section for key, section in every.items() if not has_no_scale(section)}
    return real if any(s["kind"] == "fixed" for s in real.values()) else every


def _key(record: CellRecord, section: str) -> tuple:
    return tuple(settings_row(record.settings[section]).items())
