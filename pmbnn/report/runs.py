"""Sections on what was run, where the numbers come from, and how the fits went."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from pmbnn.core.numbers import number_text
from pmbnn.report.tables import (
    STATUSES,
    CellView,
    DataTable,
    Entry,
    Heading,
    PlainTable,
    status_entry,
)
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.names import settings_row

PROVENANCE_MISSING = "provenance.json is missing"


class DataSource(NamedTuple):
    """A data set in words, where it came from, and its fingerprint."""

    name: str
    source: str
    fingerprint: str


class Run(NamedTuple):
    """Provenance of one results folder."""

    name: str
    statuses: list[tuple[Entry, int]]
    measures: Mapping[str, str]
    versions: Mapping[str, str]
    data: list[DataSource]


def run_of(folder: ExperimentResults) -> Run:
    """Provenance of a results folder."""
    statuses = Counter(record.status for record in folder.records)
    seconds = sum(record.seconds or 0 for record in folder.records)
    measures = {
        "cells": number_text(len(folder.records)),
        **({"superseded cells": f"{folder.superseded}, left out"} if folder.superseded else {}),
        **({"missing cells": f"{folder.missing}"} if folder.missing else {}),
        "sweeps": ", ".join(dict.fromkeys(record.sweep for record in folder.records)),
        "time of the fits": f"{number_text(seconds / 60, decimals=1)} min, added up over cells",
    } | _origin(folder.provenance)
    return Run(
        folder.name,
        [(status_entry(status), count) for status, count in statuses.items()],
        measures,
        {name: str(version) for name, version in folder.provenance.get("versions", {}).items()},
        [
            DataSource(
                _dataset_name(entry["dataset"]),
                str(entry.get("source", "")),
                str(entry.get("fingerprint", "")),
            )
            for entry in folder.provenance.get("data", ())
        ],
    )


def _origin(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Date, machine and seeds."""
    if not provenance:
        return {"origin": PROVENANCE_MISSING}
    machine, parts = provenance.get("machine", {}), []
    if machine:
        parts = [str(machine.get("system", "")), f"{machine.get('cores', '?')} cores"]
        device = str(machine.get("device", "cpu"))
        parts += [] if device == "cpu" else [device]
    seeds = provenance.get("seeds", {}).get("inference", [])
    return {
        "written": str(provenance.get("written", "")),
        "machine": ", ".join(parts),
        "seeds of the fits": ", ".join(map(str, seeds)),
    }


def _dataset_name(dataset: Mapping[str, Any]) -> str:
    settings = [
        f"{name.removesuffix('.kind')} {value}"
        for name, value in settings_row(dataset).items()
        if name != "kind" and value not in (None, "")
    ]
    return ", ".join([str(dataset.get("kind", "")), *settings])


# How the fits went: verdicts by data set, and every cell whose fit did not converge


def status_table(cells: Sequence[CellView]) -> PlainTable:
    """Number of cells with each verdict, a row a data set of a sweep."""
    names = [f"{c.experiment}, {c.record.sweep}: {c.settings['data']}" for c in cells]
    rows = pd.DataFrame({"data": names, "status": [cell.record.status for cell in cells]})
    counts = pd.crosstab(rows["data"], rows["status"]).reindex(rows["data"].unique())
    statuses = [status for status in STATUSES if status in counts]
    counts = counts[statuses + sorted(set(counts) - set(statuses))]
    headings = ["data", *(status.replace("_", " ") for status in counts)]
    texts = [list(map(str, row)) for row in counts.itertuples()]
    return PlainTable("Verdicts on the fits", headings, texts)


def unfinished_table(cells: Sequence[CellView]) -> DataTable | None:
    """Cells whose fits did not converge, with the reasons; None if all did."""
    shown = [cell for cell in cells if cell.record.status != "converged"]
    if not shown:
        return None
    headings = [
        Heading("cell"),
        Heading("data", choose=True),
        Heading("seed", number=True),
        Heading("status", choose=True),
        Heading("reason"),
    ]
    rows = [
        [
            Entry(cell.combination, opens=cell.key, label=f"Open {cell.title}"),
            Entry(cell.settings["data"]),
            Entry(cell.settings["seed"]),
            status_entry(cell.record.status),
            Entry(cell.record.reason),
        ]
        for cell in shown
    ]
    return DataTable("unfinished", "Fits that did not converge", "cells", headings, rows)
