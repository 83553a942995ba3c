"""Stored prior predictive checks: ``prior/<name>.nc`` for each combination, and their tables."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import netCDF4
import xarray as xr

from pmbnn.core.spec import Specification
from pmbnn.experiment.cells import Cell, stored_cell, stored_specification
from pmbnn.prediction.trace_file import load_tree
from pmbnn.results.names import distinct, posterior_row, section_labels, settings_row, title
from pmbnn.results.present import check_fits, reading_netcdf
from pmbnn.results.record import CellRecord, finite
from pmbnn.results.store import MATCH, PRIORS, Results, ResultsError, trace_writer
from pmbnn.results.tables import of_targets, score_text, table_of, with_unit

MEASURES = {
    "constant": "constant functions",
    "expected_entropy": "entropy of a function",
    "entropy": "entropy of the mean",
    "boundary_length": "length of the boundary",
    "saturated": "saturated hidden units",
    "common_class": "probability of the commoner class",
    "common_class_sd": "its sd over functions",
    "output_range": "range of a function",
    "output_sd": "half width of 68 %",
    "noise": "sd of the noise",
    "target_range": "range of the targets",
    "targets_within": "targets within 95 %",
    "match_before": "distance from the process at scale 1",
    "match_after": "distance from the process",
}
"""Headings of the numbers of a prior."""

SUMMARISED = {
    "constant": "constant",
    "expected_entropy": "entropy",
    "boundary_length": "boundary",
    "saturated": "saturated",
    "output_range": "range",
    "match_after": "distance",
}
"""Short headings of those that the terminal shows; ``prior.csv`` has them all."""


class StoredPrior(NamedTuple):
    """The prior predictive check of one combination.

    Attributes
    ----------
    name
        Name of its files.
    cell, tuned
        Those of the `Combination`, as far as their classes are available here: no plugin is run.
    numbers
        What the prior says, by name.
    groups
        Names of the groups of functions that are stored; none of images.
    """

    name: str
    cell: Cell
    tuned: Specification | None
    numbers: Mapping[str, float | None]
    groups: tuple[str, ...] = ()

    @property
    def row(self) -> dict[str, Any]:
        """Its row of the table."""
        head = {"sweep": self.cell.sweep, "name": self.name, **posterior_row(self.cell.settings)}
        return head | {"candidate": self.tuned is not None} | self.numbers

    def is_among(self, record: CellRecord) -> bool:
        """Whether a cell has this prior, or chose among such, and is evaluated in its places."""
        cell = self.cell if self.tuned is None else replace(self.cell, hyperprior=self.tuned)
        place = settings_row({"map": cell.predict.map})
        return (
            posterior_row(record.settings) == posterior_row(cell.settings)
            and settings_row(record.cell.predict).items() >= place.items()
        )

    def is_of(self, record: CellRecord) -> bool:
        """Whether the posterior of a cell is that of this very prior."""
        if self.tuned is None or not self.is_among(record):
            return self.is_among(record)
        chosen = record.results.get("scale")
        return chosen is not None and math.isclose(chosen, self.cell.scale)


def data_path(results: Results, name: str) -> Path:
    """Path of the numbers and functions of a combination."""
    return results.priors / f"{name}.nc"


def figure_path(results: Results, name: str) -> Path:
    """Path of the figure of a combination."""
    return results.priors / f"{name}.png"


def match_path(results: Results, name: str) -> Path:
    """Path of the figure of functions before and after scales were matched."""
    return results.priors / f"{name}{MATCH}"


def save_prior(results: Results, prior: StoredPrior, groups: Mapping[str, xr.Dataset]) -> None:
    """Write a check with its groups of functions, whole or not at all."""
    content = {
        "sweep": prior.cell.sweep,
        "settings": prior.cell.stored_settings,
        "tuned": None if prior.tuned is None else prior.tuned.model_dump(mode="json"),
        "numbers": finite(dict(prior.numbers)),
    }
    tree = xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})
    tree.attrs["prior"] = json.dumps(content, allow_nan=False)
    # A folder may be a relative path, and `write_file` begins at it.
    file = data_path(results, prior.name).relative_to(results.folder)
    results.write_file(file, trace_writer(tree))


def load_prior(results: Results, name: str) -> StoredPrior:
    """The check of a combination, without its functions.

    Raises
    ------
    ResultsError
        If it cannot be read.
    """
    path = data_path(results, name)
    try:
        with reading_netcdf(path), netCDF4.Dataset(path) as file:
            content, groups = json.loads(file.getncattr("prior")), tuple(file.groups)

        tuned = content["tuned"]
        if tuned is not None:
            tuned = stored_specification("hyperprior", json.dumps(tuned))
        cell = stored_cell(content["sweep"], content["settings"], {})
        return StoredPrior(name, cell, tuned, content["numbers"], groups)
    except (OSError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ResultsError(
            f"The prior `{path}` cannot be read: {error}. Remove the file, and `pmbnn prior` "
            "draws from it again."
        ) from error


def load_functions(results: Results, name: str) -> xr.DataTree:
    """The functions of a combination, in memory."""
    path = data_path(results, name)
    with reading_netcdf(path), xr.open_datatree(path, engine="netcdf4") as tree:
        check_fits(tree.nbytes, path)
        return load_tree(tree)


def write_priors(results: Results, names: Sequence[str]) -> None:
    """Write the table of those combinations that are stored, in order; none leaves no file."""
    results.replace_table(PRIORS, table_of(prior.row for prior in _load_stored(results, names)))


def stored_priors(results: Results) -> list[StoredPrior]:
    """Checks of the table, in its order; none where there is no table."""
    return _load_stored(results, results.names_in_table(PRIORS))


def _load_stored(results: Results, names: Sequence[str]) -> list[StoredPrior]:
    return [load_prior(results, name) for name in names if data_path(results, name).is_file()]


def posterior_beside(prior: StoredPrior, records: Sequence[CellRecord]) -> CellRecord | None:
    """The cell whose posterior stands beside a prior: a sampled one, else one fitted to it."""
    matching = [r for r in records if r.results and prior.is_of(r)]
    sampled = [r for r in matching if r.cell.samples_posterior]
    converged = [r for r in sampled if r.status == "converged"]
    others = ("is_tempered", "is_point", "is_dropout")
    fitted = [r for r in matching if not any(getattr(r.cell, name) for name in others)]
    return next(iter((*converged, *sampled, *fitted)), None)


# Tables for the terminal and the report


class PriorLabels(NamedTuple):
    """Names of the parts of a combination, unlike those of any other in its table."""

    data: str
    network: str
    prior: str
    hyperprior: str


def prior_labels(priors: Sequence[StoredPrior]) -> list[PriorLabels]:
    """Names of combinations; those of one kind differ by their settings.

    The name of the data has the likelihood, and the map, where nothing else tells combinations
    apart.
    """
    cells = [prior.cell for prior in priors]
    parts = (
        distinct([getattr(cell, section) for cell in cells], title)
        for section in ("network", "prior", "hyperprior")
    )
    labels = [
        labels._replace(hyperprior=f"{labels.hyperprior} (candidate)") if prior.tuned else labels
        for prior, *names in zip(priors, section_labels(cells, "dataset"), *parts, strict=True)
        for labels in [PriorLabels(*names)]
    ]
    for section in ("likelihood", "predict"):
        alike = Counter(labels)
        names = section_labels(cells, section)
        labels = [
            one._replace(data=f"{one.data}, {name}") if alike[one] > 1 < len({*names}) else one
            for one, name in zip(labels, names, strict=True)
        ]
    return labels


def measure_headings(
    priors: Sequence[StoredPrior], headings: Mapping[str, str] = MEASURES
) -> dict[str, str]:
    """Headings with units of the numbers that some combination has, by name."""
    stored = [n for prior in priors for n, value in prior.numbers.items() if value is not None]
    return {
        name: with_unit(f"{headings[measure]}{target}", measure)
        for name, (measure, target) in of_targets(headings, stored).items()
    }


def summary(priors: Sequence[StoredPrior]) -> tuple[list[str], list[list[str]], list[str]]:
    """Headings, a row for each combination, and those headings that are of numbers."""
    numbers = measure_headings(priors, SUMMARISED)
    rows = [
        [*labels, *(_with_error(prior, name) for name in numbers)]
        for prior, labels in zip(priors, prior_labels(priors), strict=True)
    ]
    return [*PriorLabels._fields, *numbers.values()], rows, list(numbers.values())


def _with_error(prior: StoredPrior, name: str) -> str:
    return score_text(name, prior.numbers.get(name), prior.numbers.get(f"{name}_mcse"), digits=3)
