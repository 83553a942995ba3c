"""A results folder opened for reading: records, cells and their traces."""

import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import xarray as xr

from pmbnn.core.display import Summarised, html_pictures
from pmbnn.core.errors import check_arguments, check_whole
from pmbnn.data.base import show_names
from pmbnn.experiment.plugins import trusting
from pmbnn.results.derived import (
    cells_digest,
    current_files,
    is_current,
    note_files,
    overview_files,
)
from pmbnn.results.integrity import Problem, checked_record
from pmbnn.results.names import settings_row
from pmbnn.results.present import (
    ResultsError,
    check_present,
    present_list,
    read_json_text,
    stored_names,
)
from pmbnn.results.record import RECORD, CellRecord
from pmbnn.results.specifications import run_stored_plugins
from pmbnn.results.store import Results
from pmbnn.results.tables import metrics_table, ood_table, summary_table, table_of

if TYPE_CHECKING:
    from pmbnn.prediction.posterior import Posterior
    from pmbnn.results.metric_table import MetricTable


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
            As `restore_cell` does.
        """
        return restore_cell(self)


def restore_cell(cell: Path | str | StoredCell, trust_plugins: bool = False) -> "Posterior":
    """The posterior of a stored cell, ready to draw from and to predict with.

    Its predictions are those that the cell was evaluated by. The data set is loaded for what needs
    the training rows (`Posterior.model`, `Posterior.log_joint`).

    Parameters
    ----------
    cell
        A cell of `load_results`, or its folder, ``results/<experiment>/cells/<name>``.
    trust_plugins
        Whether to run the copies of plugins that the results folder keeps, where the plugins
        themselves are missing or have changed since the fit.

    Raises
    ------
    ResultsError
        If there is no such cell, it is superseded, it failed, it was stored by another version, or
        needs a plugin that is missing or has changed.
    TypeError
        If it is something else.
    DataError
        If the data set is needed and is no longer available, or has changed.
    """
    # Programs that draw are not loaded to read results.
    from pmbnn.results.restore import restored_posterior

    cell = open_cell(cell)
    return restored_posterior(cell.record, cell.folder, cell.trace, trust_plugins)


def sample_posterior(
    cell: Path | str | StoredCell, draws: int, trust_plugins: bool = False
) -> xr.Dataset:
    """Posterior draws of every weight and scale of a stored cell.

    The first draws are those of the cell's predictions and its trace. Draws of a sampled cell are
    spread over the kept ones.

    Parameters
    ----------
    cell
        A cell as `restore_cell` takes it.
    draws
        Draws of each restart, or of each chain at most.
    trust_plugins
        As that of `restore_cell`.

    Returns
    -------
    xr.Dataset
        Variables with dims ``(restart, draw, ...)``, of restarts that did not diverge, or
        ``(chain, draw, ...)``.

    Raises
    ------
    ResultsError, DataError
        As `restore_cell` does.
    """
    from pmbnn.results.restore import drawn_variables

    draws = check_whole(draws, "draws")
    return drawn_variables(restore_cell(cell, trust_plugins), draws)


def open_cell(cell: Path | str | StoredCell) -> StoredCell:
    """A stored cell by its folder, unless it is open already, with its trace in memory.

    Raises
    ------
    ResultsError, TypeError
        As `restore_cell` does.
    """
    if not isinstance(cell, StoredCell | str | os.PathLike):
        raise TypeError(
            "`cell` must be a cell of `load_results`, as `results.cell(...)` gives one, or a "
            f"cell's folder, got {type(cell).__name__}."
        )
    folder = cell.folder if isinstance(cell, StoredCell) else Path(cell)
    results = Results(folder.parent.parent)
    if folder.parent.name != "cells" or not results.is_finished(folder.name):
        levels = ("*", "cells/*", "*/cells/*")
        cells = [path.parent for level in levels for path in folder.glob(f"{level}/{RECORD}")]
        raise ResultsError(
            f"`{folder}` must be the folder of a stored cell, results/<experiment>/cells/<name>; "
            f"it holds {show_names(sorted(cells)) if cells else 'none'}."
        )
    check_present(folder)
    try:
        if not isinstance(cell, StoredCell):
            cell = StoredCell(results.load_record(folder.name), folder)
        cell.trace  # noqa: B018
        return cell
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise ResultsError(f"The cell `{folder}` cannot be read: {error}.") from error


@dataclass(frozen=True, repr=False)
class ExperimentResults(Summarised):
    """Contents of a results folder.

    Attributes
    ----------
    name
        Name of the experiment, or of the folder where it is not recorded.
    results
        The folder itself, which reads the cells.
    records
        Every whole present cell, in the experiment's order: superseded ones are left out.
    provenance
        Versions, machine, data and date; empty where they are not recorded.
    figures
        Overviews that were drawn of these cells.
    superseded
        Number of stored cells that were left out, because the experiment's data, plugins or
        settings have changed since.
    missing
        Number of present cells that are not stored: not fitted yet, or removed by hand.
    """

    name: str
    results: Results
    records: tuple[CellRecord, ...]
    provenance: Mapping[str, Any]
    figures: tuple[Path, ...]
    superseded: int = 0
    missing: int = 0

    def _summary(self) -> dict[str, object]:
        statuses = Counter(record.status for record in self.records)
        counted = ", ".join(f"{n} {status}" for status, n in statuses.most_common())
        others = {"superseded": self.superseded, "missing": self.missing}
        others = {name: number for name, number in others.items() if number}
        return {"name": self.name, "cells": f"{len(self.records)} ({counted})"} | others

    def _repr_html_(self) -> str:
        # Without columns that are the same in every row.
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
        records = self._matching(settings)
        if len(records) != 1:
            raise ValueError(self._not_one(records, settings))
        return StoredCell(records[0], self.results.cells / records[0].name)

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
        records = self._matching(settings)
        if not records:
            raise ValueError(self._not_one(records, settings))
        return replace(self, records=records)

    def table(
        self, rows: str = "prior", columns: str = "hyperprior", metric: str = "nll"
    ) -> "MetricTable":
        """Means of a metric by two settings, for a paper; see `pmbnn.table`.

        Examples
        --------
        >>> print(results.table(columns="network.hidden").to_latex())  # doctest: +SKIP
        """
        from pmbnn.results.metric_table import table

        return table(self.records, rows, columns, metric)

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

    def _matching(self, settings: Mapping[str, object]) -> tuple[CellRecord, ...]:
        """Records of the cells with the given settings."""
        table, keywords = self._settings, sorted(self._settings)
        hints = {}
        for name in settings:
            if sections := [f"`{key}`" for key in keywords if key.endswith(f"_{name}")]:
                hints[name] = f"sections have it, as {', '.join(sections)}."
        check_arguments(settings, keywords, "results.cell", **hints)
        for name, wanted in settings.items():
            table = table[[value == wanted for value in table[name]]]
        names = set(table["name"])
        return tuple(record for record in self.records if record.name in names)

    def _not_one(self, records: Sequence[CellRecord], settings: Mapping[str, object]) -> str:
        """Message that settings do not name one cell, with those that would."""
        chosen = ", ".join(f"{k}={v!r}" for k, v in settings.items()) or "no settings"
        table = self._settings
        names = [record.name for record in records]
        among = table[table["name"].isin(names)] if names else table
        varying = {key: dict.fromkeys(among[key]) for key in sorted(among) if key != "name"}
        choices = [f"{k} ({', '.join(map(str, v))})" for k, v in varying.items() if len(v) > 1]
        shown = "; ".join(choices[:SHOWN_CHOICES])
        return f"{len(names)} of {len(table)} cells have {chosen}; they differ in: {shown}."


def load_results(folder: Path | str, trust_plugins: bool = False) -> ExperimentResults:
    """Results of a folder; traces are read on demand.

    Broken cells are left out, with a warning; so are cells whose data, plugins or settings have
    changed since, which `ExperimentResults.superseded` counts. A sweep may run meanwhile.

    Parameters
    ----------
    folder
        ``results/<experiment>``, as ``pmbnn sweep`` or `pmbnn.run` wrote it.
    trust_plugins
        Whether to run the plugins of its cells, their copies in the folder included, so that the
        cells can be restored. Nothing is run otherwise.

    Raises
    ------
    ResultsError
        If the folder does not exist, is of another format, or holds no finished cell; or if a
        trusted plugin is missing or has changed.
    """
    folder = Path(folder)
    if not folder.is_dir():
        problem = "is not a folder" if folder.exists() else "does not exist"
        raise ResultsError(f"The results folder `{folder}` {problem}.")
    results = Results(folder)
    present, stored = present_list(folder).cells, set(stored_names(folder))
    checked = [checked_record(results, name) for name in present if name in stored]
    records = tuple(record for record in checked if isinstance(record, CellRecord))
    for problem in checked:
        if isinstance(problem, Problem):
            warnings.warn(f"left out: {problem}", stacklevel=2)
    if not records:
        raise ResultsError(
            f"The folder `{folder}` holds no finished cell (cells/<name>/metrics.json); "
            "name a folder that `pmbnn sweep` has written."
        )
    origin = folder / "provenance.json"
    provenance = _read_json(origin) if origin.is_file() else {}
    name = str(provenance.get("experiment", folder.resolve().name))
    if trust_plugins:
        with trusting():
            run_stored_plugins(folder, records)
    superseded = sum(name not in present for name in stored)
    figures = find_overviews(results, records)
    missing = len(present) - len(checked)
    return ExperimentResults(name, results, records, provenance, figures, superseded, missing)


def named_apart(folders: Sequence[ExperimentResults]) -> list[ExperimentResults]:
    """The same results; where several have one name, it is followed by the folder.

    Runs of an experiment with changed settings have its name.
    """
    names = Counter(folder.name for folder in folders)
    return [
        replace(f, name=f"{f.name} ({f.results.folder})") if names[f.name] > 1 else f
        for f in folders
    ]


def is_named(name: str, experiment: str) -> bool:
    """Whether a name that `named_apart` gave is that of an experiment."""
    return name == experiment or name.startswith(f"{experiment} (")


def find_overviews(results: Results, records: Sequence[CellRecord]) -> tuple[Path, ...]:
    """Overviews of some cells in a results folder; those of other cells are left out."""
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
