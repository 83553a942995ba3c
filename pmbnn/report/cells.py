"""A cell as the page shows it: its record, what its trace holds, and names for both."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pmbnn.figures.titles import cell_title, data_title, section_title
from pmbnn.report.folders import Folder
from pmbnn.report.traces import Parts, read_parts
from pmbnn.tables import Record, settings_row


@dataclass(frozen=True)
class Shown:
    """One cell.

    Attributes
    ----------
    key
        Name of its detail on the page.
    experiment
        Name of the experiment it is of.
    record
        What metrics.json holds, and what the page adds: ``standard_error`` of its accuracy, and
        number of last-layer ``weights`` away from zero.
    parts
        What its trace holds.
    pictures
        Files of pictures in its folder.
    """

    key: str
    experiment: str
    record: Record
    parts: Parts
    pictures: tuple[Path, ...]

    @property
    def words(self) -> Mapping[str, str]:
        """Names of what was set, for tables: sweep, data, network, prior, hyperprior, seed."""
        settings = self.record["settings"]
        return {
            "sweep": self.record["sweep"],
            "data": data_title(self.record),
            "network": network_title(settings["network"]),
            "prior": section_title(settings["prior"]),
            "hyperprior": hyperprior_title(settings["hyperprior"]),
            "seed": str(settings["dataset"].get("seed", "")),
        }

    @property
    def title(self) -> str:
        """Data, prior, hyperprior, main score and data seed in words."""
        return f"{cell_title(self.record)}, data seed {self.words['seed']}"


def network_title(network: Mapping[str, Any]) -> str:
    """Name of a network with what it is made of: ``dense 5-5 tanh``."""
    return " ".join(str(v) for v in settings_row({"settings": network}).values() if v is not None)


def hyperprior_title(hyperprior: Mapping[str, Any]) -> str:
    """Name of a hyperprior; a prior without a scale has none."""
    if "scale" in hyperprior and hyperprior["scale"] is None:
        return "no scale"
    return section_title(hyperprior)


def read_cells(folders: Sequence[Folder]) -> list[Shown]:
    """Every cell of some folders, each trace opened once."""
    return list(_read_cells(folders))


def _read_cells(folders: Sequence[Folder]) -> Iterator[Shown]:
    number = 0
    for folder in folders:
        for record in folder.records:
            parts = read_parts(folder.results, record["name"])
            pictures = sorted((folder.results.cells / record["name"]).glob("*.png"))
            added = dict(record) | _added(record, parts)
            yield Shown(f"cell-{number}", folder.name, added, parts, tuple(pictures))
            number += 1


def _added(record: Record, parts: Parts) -> dict[str, Any]:
    """Numbers that the page adds to a record."""
    found: dict[str, Any] = {}
    error = accuracy_error(record)
    if error is not None:
        found["standard_error"] = {"accuracy": error}
    if parts.weights is not None:
        away = parts.weights.away
        found["weights"] = {"away_from_zero": int(np.sum(away)), "number": int(away.size)}
    return found


def accuracy_error(record: Record) -> float | None:
    """Standard error of an accuracy on so many test rows; None if they are not known."""
    accuracy = record["results"].get("accuracy")
    rows = record["settings"]["dataset"].get("test")
    rows = rows or record.get("pictures", {}).get("test", {}).get("pictures")
    if accuracy is None or not rows:
        return None
    return math.sqrt(accuracy * (1 - accuracy) / rows)
