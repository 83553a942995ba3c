"""A results folder opened for reading: records, tables, cells and their traces."""

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import xarray as xr

from pmbnn.experiment.plugins import trusting
from pmbnn.results.derived import (
    cells_digest,
    current_files,
    is_current,
    note_files,
    overview_files,
)
from pmbnn.results.faults import ResultsError
from pmbnn.results.integrity import broken_cells
from pmbnn.results.limits import read_json_text
from pmbnn.results.present import present_list, present_names, superseded_names
from pmbnn.results.record import CellRecord
from pmbnn.results.specifications import run_stored_plugins
from pmbnn.results.store import Results
from pmbnn.results.tables import metrics_table, ood_table, settings_row, summary_table
from pmbnn.spec.display import Summarised, html_pictures
from pmbnn.spec.errors import check_arguments

SHOWN_PICTURES = 2
"""Figures of a cell that a notebook shows at most."""

SHOWN_CHOICES = 12
"""Choices that a message names at most."""


@dataclass(frozen=True, repr=False)
class StoredCell(Summarised):
    """A finished cell: its record, and its trace on demand."""

    record: CellRecord
    folder: Path

    def __repr__(self) -> str:
        return repr(self.record).replace(type(self.record).__name__, type(self).__name__, 1)

    def _repr_html_(self) -> str:
        pictures = sorted(self.folder.glob("*.png"))[:SHOWN_PICTURES]
        return self.record._repr_html_() + html_pictures(path.read_bytes() for path in pictures)

    @cached_property
    def trace(self) -> xr.DataTree:
        """The trace, in memory, as ArviZ takes it.

        Raises
        ------
        ResultsError
            If the cell has no fit.
        """
        if not self.record.results:
            raise ResultsError(f"The cell `{self.folder}` has no fit: {self.record.reason}.")
        return Results(self.folder.parent.parent).load_trace(self.record.name)


@dataclass(frozen=True, repr=False)
class ExperimentResults(Summarised):
    """What a results folder holds.

    Attributes
    ----------
    name
        Name of the experiment, or of the folder where it is not recorded.
    results
        What reads the cells.
    records
        Every whole present cell, in the experiment's order: superseded ones are left out.
    provenance
        Versions, machine, data and date; empty where they are not recorded.
    figures
        Overviews that were drawn of these cells.
    superseded
        Number of stored cells that were left out, because the experiment's data, plugins or
        settings have changed since.
    """

    name: str
    results: Results
    records: tuple[CellRecord, ...]
    provenance: Mapping[str, Any]
    figures: tuple[Path, ...]
    superseded: int = 0

    def _summary(self) -> dict[str, object]:
        statuses = Counter(record.status for record in self.records)
        counted = ", ".join(f"{n} {status}" for status, n in statuses.most_common())
        left_out = {"superseded": self.superseded} if self.superseded else {}
        return {"name": self.name, "cells": f"{len(self.records)} ({counted})"} | left_out

    def _repr_html_(self) -> str:
        # What is the same in every row is no news.
        table = self.summary
        varying = [name for name in table if table[name].astype(str).nunique() > 1]
        shown = table[varying] if len(table) > 1 else table
        return super()._repr_html_() + shown._repr_html_()

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row a cell: settings under dotted names, results, time."""
        return metrics_table(self.records).convert_dtypes()

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Means and standard errors over seeds, one row a combination of settings."""
        return summary_table(self.records).convert_dtypes()

    @cached_property
    def ood(self) -> pd.DataFrame:
        """One row for each cell and out-of-distribution set; empty without any."""
        return ood_table(self.records).convert_dtypes()

    @property
    def cells(self) -> list[StoredCell]:
        """Every whole cell, in the experiment's order."""
        return [StoredCell(record, self.results.cells / record.name) for record in self.records]

    def cell(self, **settings: object) -> StoredCell:
        """The one cell with the given settings.

        Parameters
        ----------
        **settings
            ``prior="laplace"`` is the kind of a section, ``dataset_seed=0`` a setting of one;
            ``sweep`` and ``name`` may be given too.

        Raises
        ------
        ValueError
            If a setting is unknown, or not exactly one cell has them.

        Examples
        --------
        >>> cell = results.cell(prior="laplace", dataset_seed=0)  # doctest: +SKIP
        """
        found = self._having(settings)
        if len(found) != 1:
            raise ValueError(self._not_one(found, settings))
        return next(cell for cell in self.cells if cell.record.name == found[0])

    def select(self, **settings: object) -> "ExperimentResults":
        """The same results, of the cells with the given settings alone.

        Parameters
        ----------
        **settings
            As those of `cell`.

        Raises
        ------
        ValueError
            If a setting is unknown, or no cell has them.
        """
        found = self._having(settings)
        if not found:
            raise ValueError(self._not_one(found, settings))
        return replace(self, records=tuple(r for r in self.records if r.name in found))

    @cached_property
    def digest(self) -> str:
        """Digest of the cells, by which files that were made of them are known."""
        return cells_digest(self.records)

    def is_stale(self, file: str) -> bool:
        """Whether a file of the folder is missing, or was made of other cells than these."""
        return not is_current(self.results, file, self.digest)

    def note_made(self, files: Iterable[str]) -> None:
        """Note that files of the folder were made of these cells."""
        note_files(self.results, files, self.digest)

    @cached_property
    def _rows(self) -> dict[str, dict[str, object]]:
        """Settings of each cell by its name, as keywords."""
        return {record.name: _row_by_keyword(record) for record in self.records}

    def _having(self, settings: Mapping[str, object]) -> list[str]:
        """Names of the cells with the given settings."""
        known = sorted(set().union(*self._rows.values()))
        endings = {name: [k for k in known if k.endswith(f"_{name}")] for name in settings}
        elsewhere = {
            name: f"sections have it, as {', '.join(f'`{k}`' for k in found)}."
            for name, found in endings.items()
            if found
        }
        check_arguments(settings, known, "results.cell", **elsewhere)
        rows = self._rows.items()
        return [n for n, row in rows if all(row.get(k) == settings[k] for k in settings)]

    def _not_one(self, found: list[str], settings: Mapping[str, object]) -> str:
        """Why settings do not name one cell, and what would."""
        given = ", ".join(f"{k}={v!r}" for k, v in settings.items()) or "no settings"
        among = {name: self._rows[name] for name in found} if found else self._rows
        varying = {
            key: values
            for key in sorted(set().union(*among.values()) - {"name"})
            if len(values := dict.fromkeys(row.get(key) for row in among.values())) > 1
        }
        choices = [f"{key} ({', '.join(map(str, values))})" for key, values in varying.items()]
        shown = "; ".join(choices[:SHOWN_CHOICES])
        return f"{len(found)} of {len(self._rows)} cells have {given}; they differ in: {shown}."


def load_results(folder: Path | str, trust_plugins: bool = False) -> ExperimentResults:
    """Everything in a results folder; traces are read on demand.

    Cells that are not as they were written are left out, with a warning; so are those of data,
    plugins or settings that have changed since, which `ExperimentResults.superseded` counts. A
    running sweep does not disturb it.

    Parameters
    ----------
    folder
        ``results/<experiment>``, as ``python -m pmbnn.sweep`` or `pmbnn.run` wrote it.
    trust_plugins
        Whether to run the plugins of its cells, their copies in the folder included, so that the
        cells can be restored. Nothing is run otherwise.

    Raises
    ------
    ResultsError
        If the folder does not exist, is of another format, or holds no finished cell; or if a
        plugin that is to be trusted is not there as it was.
    """
    folder = Path(folder)
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise ResultsError(f"The results folder `{folder}` {problem}.")
    results = Results(folder)
    present = present_list(folder).cells
    broken = {problem.cell: problem for problem in broken_cells(results, names=present)}
    for problem in broken.values():
        warnings.warn(f"left out: {problem}", stacklevel=2)
    names = [name for name in present_names(folder) if name not in broken]
    if not names:
        raise ResultsError(
            f"The folder `{folder}` holds no finished cell (cells/<name>/metrics.json); "
            "name a folder that `python -m pmbnn.sweep` has written."
        )
    origin = folder / "provenance.json"
    provenance = _read_json(origin) if origin.is_file() else {}
    name = str(provenance.get("experiment", folder.resolve().name))
    records = tuple(results.load_record(name) for name in names)
    if trust_plugins:
        with trusting():
            run_stored_plugins(folder, records)
    superseded = len(superseded_names(folder))
    figures = find_overviews(results, records)
    return ExperimentResults(name, results, records, provenance, figures, superseded)


def find_overviews(results: Results, records: Sequence[CellRecord]) -> tuple[Path, ...]:
    """Overviews of some cells that a results folder holds, those of other cells left out."""
    current = current_files(results, overview_files(results), cells_digest(records))
    return tuple(results.folder / file for file in current)


def _row_by_keyword(record: CellRecord) -> dict[str, object]:
    """Settings by names that can be keywords; the kind of a section by the section's name."""
    row = {"sweep": record.sweep, "name": record.name, "device": record.device}
    for name, value in settings_row(record.settings).items():
        row[name.removesuffix(".kind").replace(".", "_")] = value
    return row


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_json_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"`{path}` cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise ResultsError(f"`{path}` must hold a mapping.")
    return content
