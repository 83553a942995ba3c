"""Stored ranks of known truths among posterior draws: one small file for each combination."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import xarray as xr

from pmbnn.results.faults import reading_netcdf
from pmbnn.results.limits import check_fits
from pmbnn.results.store import Results, ResultsError, trace_writer

FOLDER = "calibration"
"""Folder of ranks and of the figures of them, within a results folder."""

type Truths = Literal["prior", "posterior"]


@dataclass(frozen=True)
class StoredRanks:
    """Ranks of one combination, as far as it has been simulated.

    Attributes
    ----------
    name
        Of its file, without the ending.
    identity
        Hexadecimal digits that decide every rank, but not how many there are.
    sweep, settings
        As those of a record.
    truths
        What truths were drawn from: the ``prior``, or the ``posterior`` given the observed data.
    reference
        Sampler of the posterior that truths are from, and its status; empty with the prior.
    effective_draws
        Independent draws that those of the sampler are worth; not a number with the prior.
    draws, restarts
        Posterior draws that a truth has its rank among, and fits of each simulated data set, the
        best of which is drawn from.
    quantities
        What has ranks, in words.
    inputs
        Standardised inputs that functions were looked at, ``(input, feature)``.
    numbers
        Of the simulations, ``(simulation,)``.
    ranks
        ``(simulation, quantity)``; -1 where the fit of a simulation diverged.
    seconds
        Time spent.
    """

    name: str
    identity: str
    sweep: str
    settings: Mapping[str, Any]
    truths: Truths
    reference: str
    effective_draws: float
    draws: int
    restarts: int
    quantities: tuple[str, ...]
    inputs: np.ndarray
    numbers: np.ndarray
    ranks: np.ndarray
    seconds: float

    def followed_by(self, numbers: np.ndarray, ranks: np.ndarray, seconds: float) -> "StoredRanks":
        """With further simulations."""
        return replace(
            self,
            numbers=np.concatenate([self.numbers, numbers]),
            ranks=np.concatenate([self.ranks, ranks]),
            seconds=self.seconds + seconds,
        )

    def missing(self, simulations: int) -> list[int]:
        """Numbers below `simulations` that it does not have."""
        return sorted(set(range(simulations)) - set(self.numbers.tolist()))


ATTRIBUTES = (
    *("identity", "sweep", "truths", "reference", "effective_draws"),
    *("draws", "restarts", "seconds"),
)
"""Fields of stored ranks that their file has as attributes, as they are."""


def save_ranks(results: Results, ranks: StoredRanks) -> None:
    """Write ranks in place of what was there, whole or not at all."""
    dataset = xr.Dataset(
        {
            "rank": (("simulation", "quantity"), ranks.ranks.astype("i4")),
            "input": (("input", "feature"), ranks.inputs),
        },
        {"simulation": ranks.numbers.astype("i4"), "quantity": list(ranks.quantities)},
        {name: getattr(ranks, name) for name in ATTRIBUTES}
        | {"settings": json.dumps(ranks.settings)},
    )
    tree = xr.DataTree(dataset)
    results.write_file(f"{FOLDER}/{ranks.name}.nc", trace_writer(tree))


def load_ranks(results: Results, name: str) -> StoredRanks | None:
    """Stored ranks of that name; None where there are none.

    Raises
    ------
    ResultsError
        If they cannot be read.
    """
    path = results.folder / FOLDER / f"{name}.nc"
    if not path.is_file():
        return None
    return read_ranks(path)


def all_ranks(results: Results) -> Iterator[StoredRanks]:
    """All stored ranks of a folder, by name."""
    yield from (read_ranks(path) for path in sorted((results.folder / FOLDER).glob("*.nc")))


def read_ranks(path: Path) -> StoredRanks:
    """Ranks as a file holds them; raises as `load_ranks` does."""
    try:
        with reading_netcdf(path), xr.open_dataset(path, engine="netcdf4") as opened:
            check_fits(opened.nbytes, path)
            dataset = opened.load()
        return StoredRanks(
            name=path.stem,
            settings=json.loads(dataset.attrs["settings"]),
            quantities=tuple(map(str, dataset["quantity"].values)),
            inputs=dataset["input"].values,
            numbers=dataset["simulation"].values,
            ranks=dataset["rank"].values,
            **{name: _plain(dataset.attrs[name]) for name in ATTRIBUTES},
        )
    except (OSError, KeyError, ValueError) as error:
        raise ResultsError(
            f"The ranks `{path}` cannot be read: {error}. Remove the file, and they are "
            "simulated again."
        ) from error


def _plain(value):
    """An attribute as Python has it."""
    return value.item() if isinstance(value, np.generic) else value
