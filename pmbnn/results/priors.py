"""What priors say before anything is seen, as a results folder holds it.

``prior/<name>.nc`` has the numbers of one combination of data set, network, prior, hyperprior and
likelihood, and the functions that its figure is drawn of; ``prior.csv`` the numbers of all.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import h5netcdf
import pandas as pd
import xarray as xr

from pmbnn.results.faults import reading_netcdf
from pmbnn.results.limits import check_fits
from pmbnn.results.record import CellRecord, finite
from pmbnn.results.references import OF_POSTERIOR, is_of_posterior, is_sampled
from pmbnn.results.store import Results, ResultsError, trace_writer
from pmbnn.results.tables import of_targets, settings_row, table_of
from pmbnn.results.titles import data_title, distinct_titles
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
        settings = settings_row({section: self.settings[section] for section in OF_POSTERIOR})
        head = {"sweep": self.sweep, "name": self.name, **settings}
        return head | {"candidate": self.tuned is not None} | self.numbers

    @property
    def record(self) -> CellRecord:
        """A record with these settings and nothing else, to be named as cells are."""
        settings = {section: self.settings[section] for section in OF_POSTERIOR}
        return CellRecord(
            sweep=self.sweep, name=self.name, status="not_converged", settings=settings
        )

    def is_among(self, record: CellRecord) -> bool:
        """Whether a cell has this prior, looked at in the same places, or chose among such."""
        theirs = record.settings
        if any(theirs[s] != self.settings[s] for s in OF_POSTERIOR if s != "hyperprior"):
            return False
        own = self.settings["hyperprior"] if self.tuned is None else self.tuned
        return theirs["hyperprior"] == own and theirs["predict"].get("map") == self.settings["map"]

    def is_of(self, record: CellRecord) -> bool:
        """Whether a cell's posterior is that of this very prior."""
        if self.tuned is None or not self.is_among(record):
            return self.is_among(record)
        chosen, own = record.results.get("scale"), self.settings["hyperprior"]["scale"]
        return chosen is not None and math.isclose(chosen, own)


class PriorWords(NamedTuple):
    """Names of what a combination is of, as told apart from others beside it."""

    data: str
    network: str
    prior: str
    hyperprior: str


def prior_words(priors: Sequence[StoredPrior]) -> list[PriorWords]:
    """Names of combinations, each with what sets it apart from those of the same kinds."""
    named = {
        section: distinct_titles([prior.settings[section] for prior in priors])
        for section in ("network", "prior", "hyperprior")
    }
    data = [data_title(prior.record) for prior in priors]
    found = map(PriorWords, data, *named.values())
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
        with h5netcdf.File(path, "r") as file:
            return StoredPrior(**json.loads(str(file.attrs["prior"])))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ResultsError(
            f"The prior `{path}` cannot be read: {error}. Remove the file, and `--prior-only` "
            "draws it again."
        ) from error


def load_functions(results: Results, name: str) -> xr.DataTree:
    """The functions of a combination, in memory."""
    path = data_path(results, name)
    with reading_netcdf(path), xr.open_datatree(path, engine="h5netcdf") as tree:
        check_fits(tree.nbytes, path)
        return tree.load()


def has_functions(results: Results, name: str) -> bool:
    """Whether functions of a combination are kept, to draw its figure of."""
    path = data_path(results, name)
    with reading_netcdf(path), h5netcdf.File(path, "r") as file:
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
    sampled = [r for r in fitting if is_sampled(r)]
    converged = [r for r in sampled if r.status == "converged"]
    fitted = [r for r in fitting if not is_sampled(r) and is_of_posterior(r) and not _is_point(r)]
    return next(iter((*converged, *sampled, *fitted)), None)


def _is_point(record: CellRecord) -> bool:
    """Whether a fit is a point: it has no spread to set beside a prior's."""
    return record.settings["inference"].get("guide") in ("map", "maximum_likelihood")
