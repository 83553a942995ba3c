"""A results folder opened for reading: records, tables, cells and their traces."""

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from pmbnn.results.integrity import Problem, checked_record
from pmbnn.results.limits import read_json_text
from pmbnn.results.names import settings_row
from pmbnn.results.present import present_list, stored_names, superseded_names
from pmbnn.results.record import CellRecord
from pmbnn.results.specifications import run_stored_plugins
from pmbnn.results.store import Results
from pmbnn.results.tables import metrics_table, ood_table, summary_table, table_of
from pmbnn.spec.display import Summarised, html_pictures
from pmbnn.spec.errors import check_arguments

if TYPE_CHECKING:
    from pmbnn.prediction.posterior import Posterior

SHOWN_PICTURES = 2
"""Figures of a cell that a notebook shows at most."""

SHOWN_CHOICES = 12
"""Choices that a message names at most."""


@dataclass(frozen=True, repr=False)
class StoredCell(Summarised):
    """A finished cell: its record, and its trace and its posterior on demand."""

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

    @cached_property
    def posterior(self) -> "Posterior":
        """The posterior, ready to draw from and to predict with.

        Raises
        ------
        ResultsError, DataError
            As `pmbnn.results.restore.restore_cell` does.
        """
        # Programs that draw are not loaded to read results.
        from pmbnn.results.restore import restore_cell

        return restore_cell(self)


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

    @cached_property
    def cells(self) -> pd.DataFrame:
        """Table of the cells in the experiment's order, by their names, for ``groupby``.

        It has the columns of `metrics`, under names that are keywords of `cell` and `select`:
        ``prior`` is the kind of a section, ``dataset_seed`` a setting of one.

        Examples
        --------
        >>> results.cells.groupby(["prior", "hyperprior"])["nll"].mean()  # doctest: +SKIP
        """
        devices = [record.device for record in self.records]
        return self.metrics.rename(columns=_keyword).assign(device=devices).set_index("name")

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
        record = next(record for record in self.records if record.name == found[0])
        return StoredCell(record, self.results.cells / record.name)

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
    def _settings(self) -> pd.DataFrame:
        """Settings of each cell, as keywords; None where a cell does not have one."""
        rows = (
            {"sweep": r.sweep, "name": r.name, "device": r.device} | settings_row(r.settings)
            for r in self.records
        )
        table = table_of(rows).rename(columns=_keyword)
        return table.where(table.notna(), None)

    def _having(self, settings: Mapping[str, object]) -> list[str]:
        """Names of the cells with the given settings."""
        table, known = self._settings, sorted(self._settings)
        endings = {name: [k for k in known if k.endswith(f"_{name}")] for name in settings}
        elsewhere = {
            name: f"sections have it, as {', '.join(f'`{k}`' for k in found)}."
            for name, found in endings.items()
            if found
        }
        check_arguments(settings, known, "results.cell", **elsewhere)
        for name, wanted in settings.items():
            table = table[[value == wanted for value in table[name]]]
        return list(table["name"])

    def _not_one(self, found: list[str], settings: Mapping[str, object]) -> str:
        """Why settings do not name one cell, and what would."""
        given = ", ".join(f"{k}={v!r}" for k, v in settings.items()) or "no settings"
        table = self._settings
        among = table[table["name"].isin(found)] if found else table
        varying = {key: dict.fromkeys(among[key]) for key in sorted(among) if key != "name"}
        choices = [f"{k} ({', '.join(map(str, v))})" for k, v in varying.items() if len(v) > 1]
        shown = "; ".join(choices[:SHOWN_CHOICES])
        return f"{len(found)} of {len(table)} cells have {given}; they differ in: {shown}."


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
    stored = set(stored_names(folder))
    present = [name for name in present_list(folder).cells if name in stored]
    checked = [checked_record(results, name) for name in present]
    for problem in (found for found in checked if isinstance(found, Problem)):
        warnings.warn(f"left out: {problem}", stacklevel=2)
    records = tuple(found for found in checked if not isinstance(found, Problem))
    if not records:
        raise ResultsError(
            f"The folder `{folder}` holds no finished cell (cells/<name>/metrics.json); "
            "name a folder that `python -m pmbnn.sweep` has written."
        )
    origin = folder / "provenance.json"
    provenance = _read_json(origin) if origin.is_file() else {}
    name = str(provenance.get("experiment", folder.resolve().name))
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


def _keyword(column: str) -> str:
    """Name of a column as a keyword; the kind of a section by the section's name."""
    return column.removesuffix(".kind").replace(".", "_")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_json_text(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ResultsError(f"`{path}` cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise ResultsError(f"`{path}` must hold a mapping.")
    return content
