"""Ranks of truths among posterior draws, stored: a file for each combination."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from pmbnn.experiment.cells import Cell, stored_cell
from pmbnn.results.reading import load_netcdf
from pmbnn.results.store import Results, ResultsError, trace_writer

if TYPE_CHECKING:
    from pmbnn.calibration.plan import Truths


@dataclass(frozen=True, eq=False)
class StoredRanks:
    """Ranks of one combination, as far as it has been simulated.

    Attributes
    ----------
    name
        Name of the file, without the ending.
    cell
        The cell, as far as its classes are available here: no plugin is run.
    truths
        What truths were drawn from: the ``prior``, or the ``posterior`` given the observed data.
    reference
        Sampler of the posterior that truths were drawn from, and its status; empty with the prior.
    effective_draws
        Effective sample size of the draws of that sampler; not a number with the prior.
    draws, restarts
        Posterior draws that a truth has its rank among, and fits of each simulated data set, the
        best of which is drawn from.
    quantities
        Names of the quantities that are ranked.
    inputs
        Standardised inputs at which functions were evaluated, ``(input, feature)``.
    numbers
        Numbers of the simulations, ``(simulation,)``.
    ranks
        ``(simulation, quantity)``; -1 where the fit of a simulation diverged.
    seconds
        Time spent.
    """

    name: str
    cell: Cell
    truths: "Truths"
    reference: str
    effective_draws: float
    draws: int
    restarts: int
    quantities: tuple[str, ...]
    inputs: np.ndarray
    numbers: np.ndarray
    ranks: np.ndarray
    seconds: float

    def followed_by(self, other: "StoredRanks") -> "StoredRanks":
        """With further simulations of the same combination."""
        return replace(
            self,
            numbers=np.concatenate([self.numbers, other.numbers]),
            ranks=np.concatenate([self.ranks, other.ranks]),
            seconds=self.seconds + other.seconds,
        )


ATTRIBUTES = ("truths", "reference", "effective_draws", "draws", "restarts", "seconds")
"""Fields of stored ranks that their file has as attributes, as they are."""


def save_ranks(results: Results, ranks: StoredRanks) -> None:
    """Write ranks in place of those that were there, whole or not at all."""
    dataset = xr.Dataset(
        {
            "rank": (("simulation", "quantity"), ranks.ranks.astype("i4")),
            "input": (("input", "feature"), ranks.inputs),
        },
        {"simulation": ranks.numbers.astype("i4"), "quantity": list(ranks.quantities)},
        {name: getattr(ranks, name) for name in ATTRIBUTES}
        | {"sweep": ranks.cell.sweep, "settings": json.dumps(ranks.cell.stored_settings)},
    )
    path = path_of(results, ranks.name).relative_to(results.folder)
    results.write_file(path, trace_writer(xr.DataTree(dataset)))


def load_ranks(results: Results, name: str) -> StoredRanks | None:
    """Stored ranks of that name; None where there are none.

    Raises
    ------
    ResultsError
        If they cannot be read.
    """
    path = path_of(results, name)
    return _read(path) if path.is_file() else None


def all_ranks(results: Results) -> Iterator[StoredRanks]:
    """All stored ranks of a folder, by name; raises as `load_ranks` does."""
    yield from map(_read, sorted(results.calibration.glob("*.nc")))


def missing_simulations(ranks: StoredRanks | None, simulations: int) -> list[int]:
    """Numbers below `simulations` that stored ranks lack."""
    stored = () if ranks is None else ranks.numbers.tolist()
    return sorted(set(range(simulations)).difference(stored))


def check_quantities(results: Results, ranks: StoredRanks, quantities: Sequence[str]) -> None:
    """Raise ResultsError if stored ranks are of other quantities than further ones would be.

    A version of the package that ranks more quantities does not go on with ranks of another one.
    """
    if ranks.quantities != tuple(quantities):
        raise ResultsError(
            f"The ranks `{path_of(results, ranks.name)}` must be of the quantities that are ranked "
            f"now, {', '.join(quantities)}; got {', '.join(ranks.quantities)}. They are of another "
            "version of pmbnn, or of data with other names. Remove the file, and they are "
            "simulated again."
        )


def path_of(results: Results, name: str) -> Path:
    """Path of the file of ranks of that name."""
    return results.calibration / f"{name}.nc"


def _read(path: Path) -> StoredRanks:
    try:
        dataset = load_netcdf(path)
        attributes = dataset.attrs
        return StoredRanks(
            name=path.stem,
            cell=stored_cell(attributes["sweep"], json.loads(attributes["settings"]), {}),
            quantities=tuple(map(str, dataset["quantity"].values)),
            inputs=dataset["input"].values,
            numbers=dataset["simulation"].values,
            ranks=dataset["rank"].values,
            **{name: np.asarray(attributes[name]).item() for name in ATTRIBUTES},
        )
    except (OSError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise ResultsError(
            f"The ranks `{path}` cannot be read: {error}. Remove the file, and they are "
            "simulated again."
        ) from error
