"""What priors say before anything is seen, as a results folder holds it.

``prior/<name>.nc`` has the numbers of one combination of data set, network, prior, hyperprior and
likelihood, and the functions that its figure is drawn of; ``prior.csv`` the numbers of all.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import netCDF4
import pandas as pd
import xarray as xr

from pmbnn.experiment.cells import Cell
from pmbnn.experiment.stored import stored_cell
from pmbnn.prediction.trace_file import load_tree
from pmbnn.results.faults import reading_netcdf
from pmbnn.results.limits import check_fits
from pmbnn.results.names import dataset_title, distinct, posterior_row, settings_row, title
from pmbnn.results.record import CellRecord, finite
from pmbnn.results.store import Results, ResultsError, trace_writer
from pmbnn.results.tables import of_targets, table_of
from pmbnn.results.units import with_unit

FILE = "prior.csv"
"""File of a results folder that holds the table."""


class StoredPrior(NamedTuple):
    """One combination.

    Attributes
    ----------
    name
        Of its files.
    sweep
        Of the experiment.
    settings
        What names its posterior, as a record has it, the scale of a tuned one as it is here; and
        ``map``.
    tuned
        The hyperprior as the experiment file has it, where its scale is a candidate.
    numbers
        What the prior says.
    """

    name: str
    sweep: str
    settings: dict[str, Any]
    tuned: dict[str, Any] | None
    numbers: dict[str, Any]

    @property
    def row(self) -> dict[str, Any]:
        """Its row of the table."""
        head = {"sweep": self.sweep, "name": self.name, **posterior_row(self.settings)}
        return head | {"candidate": self.tuned is not None} | self.numbers

    @property
    def cell(self) -> Cell:
        """A cell with these settings and usual ones for the rest, to be named as cells are."""
        return stored_cell(self.sweep, self.settings, {})

    def is_among(self, record: CellRecord) -> bool:
        """Whether a cell has this prior, looked at in the same places, or chose among such."""
        own = self.settings if self.tuned is None else self.settings | {"hyperprior": self.tuned}
        seen = (
            settings_row(record.cell.predict).items() >= settings_row({"map": own["map"]}).items()
        )
        return seen and posterior_row(record.settings) == posterior_row(own)

    def is_of(self, record: CellRecord) -> bool:
        """Whether a cell's posterior is that of this very prior."""
        if self.tuned is None or not self.is_among(record):
            return self.is_among(record)
        chosen = record.results.get("scale")
        return chosen is not None and math.isclose(chosen, self.cell.scale)


class PriorWords(NamedTuple):
    """Names of what a combination is of, as told apart from others beside it."""

    data: str
    network: str
    prior: str
    hyperprior: str


def prior_words(priors: Sequence[StoredPrior]) -> list[PriorWords]:
    """Names of combinations, each with what sets it apart from those of the same kinds."""
    cells = [prior.cell for prior in priors]
    named = [
        distinct([getattr(cell, section) for cell in cells], title)
        for section in ("network", "prior", "hyperprior")
    ]
    data = [dataset_title(cell.dataset) for cell in cells]
    found = map(PriorWords, data, *named)
    return [
        words._replace(hyperprior=f"{words.hyperprior} (candidate)") if prior.tuned else words
        for prior, words in zip(priors, found, strict=True)
    ]


def number_words(known: Mapping[str, str], priors: Sequence[StoredPrior]) -> dict[str, str]:
    """What the numbers are called that some combinations have, with their units, by name."""
    held = [n for prior in priors for n, value in prior.numbers.items() if value is not None]
    found = of_targets(known, held).items()
    return {n: with_unit(f"{known[of]}{words}", of) for n, (of, words) in found}


def data_path(results: Results, name: str) -> Path:
    """Where the numbers and functions of a combination lie."""
    return results.priors / f"{name}.nc"


def figure_path(results: Results, name: str) -> Path:
    """Where the figure of a combination lies."""
    return results.priors / f"{name}.png"


def save_prior(results: Results, prior: StoredPrior, groups: Mapping[str, xr.Dataset]) -> None:
    """Write a combination, whole or not at all."""
    content = finite(prior._asdict())
    tree = xr.DataTree.from_dict({f"/{name}": group for name, group in groups.items()})
    tree.attrs["prior"] = json.dumps(content, allow_nan=False)
    # A folder may be a relative path, and `write_file` begins at it.
    file = data_path(results, prior.name).relative_to(results.folder)
    results.write_file(file, trace_writer(tree))


def load_prior(results: Results, name: str) -> StoredPrior:
    """A combination without its functions.

    Raises
    ------
    ResultsError
        If it cannot be read.
    """
    return read_prior(data_path(results, name))


def read_prior(path: Path) -> StoredPrior:
    """The same, of its file."""
    try:
        with reading_netcdf(path), netCDF4.Dataset(path) as file:
            return StoredPrior(**json.loads(file.getncattr("prior")))
    except (OSError, AttributeError, TypeError, ValueError) as error:
        raise ResultsError(
            f"The prior `{path}` cannot be read: {error}. Remove the file, and `--prior-only` "
            "draws it again."
        ) from error


def load_functions(results: Results, name: str) -> xr.DataTree:
    """The functions of a combination, in memory."""
    path = data_path(results, name)
    with reading_netcdf(path), xr.open_datatree(path, engine="netcdf4") as tree:
        check_fits(tree.nbytes, path)
        return load_tree(tree)


def has_functions(results: Results, name: str) -> bool:
    """Whether functions of a combination are kept, to draw its figure of."""
    path = data_path(results, name)
    with reading_netcdf(path), netCDF4.Dataset(path) as file:
        return bool(file.groups)


def is_stored(results: Results, name: str) -> bool:
    """Whether a combination is there, whole."""
    return data_path(results, name).is_file()


def write_priors(results: Results, names: Sequence[str]) -> None:
    """Write the table of those combinations that are stored, in order; none leaves no file."""
    rows = [load_prior(results, name).row for name in names if is_stored(results, name)]
    if not rows:
        results.remove_table(FILE)
        return
    results.write_table(FILE, table_of(rows))


def stored_priors(results: Results) -> list[StoredPrior]:
    """Combinations of the table, in its order; none where there is no table."""
    path = results.folder / FILE
    if not path.is_file():
        return []
    names = pd.read_csv(path, usecols=["name"], dtype=str)["name"]
    return [load_prior(results, name) for name in names if is_stored(results, name)]


def posterior_beside(prior: StoredPrior, records: Sequence[CellRecord]) -> CellRecord | None:
    """The cell whose posterior stands beside a prior: a sampled one, else one fitted to it."""
    fitting = [r for r in records if r.results and prior.is_of(r)]
    sampled = [r for r in fitting if r.cell.is_sampled]
    converged = [r for r in sampled if r.status == "converged"]
    fitted = [r for r in fitting if not (r.cell.is_tempered or r.cell.is_point)]
    return next(iter((*converged, *sampled, *fitted)), None)
