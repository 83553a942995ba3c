"""Ranks of truths among posterior draws: stored, compared with uniform ranks, as a table."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
import xarray as xr

from pmbnn.experiment.cells import Cell, stored_cell
from pmbnn.results.names import OF_POSTERIOR, settings_row
from pmbnn.results.reading import load_netcdf
from pmbnn.results.store import Results, ResultsError, trace_writer
from pmbnn.results.tables import table_of

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
    path = _path(results, ranks.name).relative_to(results.folder)
    results.write_file(path, trace_writer(xr.DataTree(dataset)))


def load_ranks(results: Results, name: str) -> StoredRanks | None:
    """Stored ranks of that name; None where there are none.

    Raises
    ------
    ResultsError
        If they cannot be read.
    """
    path = _path(results, name)
    return _read(path) if path.is_file() else None


def all_ranks(results: Results) -> Iterator[StoredRanks]:
    """All stored ranks of a folder, by name; raises as `load_ranks` does."""
    yield from map(_read, sorted(results.calibration.glob("*.nc")))


def missing_simulations(ranks: StoredRanks | None, simulations: int) -> list[int]:
    """Numbers below `simulations` that stored ranks lack."""
    stored = () if ranks is None else ranks.numbers.tolist()
    return sorted(set(range(simulations)).difference(stored))


def _path(results: Results, name: str) -> Path:
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


# Ranks of truths among posterior draws, compared with uniform ranks: NumPy in, verdicts out
#
# A truth is drawn from a distribution, data are simulated from it, and draws of the posterior given
# these data are taken. If they are draws of that posterior, the rank of a function of the truth
# among
# the same function of the draws is uniform on 0, …, number of draws. Uniform ranks of one function
# are necessary, not sufficient: functions of the parameters alone find nothing wrong with draws
# from
# the prior; a function of the data as well, such as the log-likelihood, does.


type Verdict = Literal["calibrated", "miscalibrated"]

ERROR = 0.05
"""Probability that some quantity of exact draws is found miscalibrated, over all of them."""

TRIALS = 4_000
"""Simulated sets of uniform ranks that a band is computed from: with eight quantities, 25 of them
lie beyond it, and its error is known to a fifth."""

FAILED = -1
"""Stands for the rank of a truth whose posterior draws are missing: the fit diverged."""

ONE_SIGN = 0.5
"""Share of a curve's area, less that of the other sign, from which it is mostly of one sign."""


@dataclass(frozen=True, eq=False)
class RankEcdf:
    """Difference of the ECDF of the ranks of a quantity from a uniform one, and its band.

    Attributes
    ----------
    rank
        Fractional ranks in the open interval from 0 to 1, ``(point,)``.
    difference
        At them, ``(point,)``.
    low, high
        Edges of the simultaneous band of the difference, ``(point,)``.
    """

    rank: np.ndarray
    difference: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def deviation(self) -> float:
        """Largest difference, in units of the distance of the band's edge from zero there.

        Above 1, it leaves the band.
        """
        edge = np.where(self.difference > 0, self.high, self.low)
        return float((self.difference / edge).max())

    @property
    def verdict(self) -> Verdict:
        """Whether the band is left."""
        return "miscalibrated" if self.deviation > 1 else "calibrated"

    @property
    def direction(self) -> str:
        """What is wrong with draws that leave the band; empty for those that do not.

        ``under-dispersed``, too close together; ``over-dispersed``, too far apart; ``biased low``,
        below the truths, or ``biased high``; ``other``, where it is none of these alone. What is
        equal on both sides of the middle rank is bias, what is opposite is dispersion; the larger
        of the two counts, if it is mostly of one sign.
        """
        if self.deviation <= 1:
            return ""
        mirrored = self.difference[::-1]
        equal, opposite = 0.5 * (self.difference + mirrored), 0.5 * (self.difference - mirrored)
        if np.sum(equal**2) >= np.sum(opposite**2):
            part, names = equal, ("biased high", "biased low")
        else:
            part = opposite * np.sign(0.5 - self.rank)
            names = ("under-dispersed", "over-dispersed")
        if abs(part.sum()) < ONE_SIGN * np.abs(part).sum():
            return "other"
        return names[0] if part.sum() > 0 else names[1]


def ranks_among(truth: np.ndarray, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rank of each quantity of a truth among draws of it, from 0 to the number of draws.

    Parameters
    ----------
    truth
        ``(quantity,)``.
    draws
        ``(draw, quantity)``.
    rng
        Draws the rank where draws equal the truth, uniformly from all ranks between them.
    """
    less, equal = (draws < truth).sum(axis=0), (draws == truth).sum(axis=0)
    return less + rng.integers(0, equal + 1)


def valid_ranks(ranks: np.ndarray) -> np.ndarray:
    """Ranks ``(simulation, quantity)`` of the simulations that did not fail."""
    return ranks[(ranks != FAILED).all(axis=1)]


def rank_ecdfs(ranks: np.ndarray, draws: int) -> list[RankEcdf]:
    """How far the ranks of several quantities are from uniform.

    Each quantity has a band that is left with probability `ERROR` over their number: together they
    leave their bands with at most that probability if all are uniform, whatever their dependence
    (Bonferroni).

    Parameters
    ----------
    ranks
        ``(simulation, quantity)``; simulations that are `FAILED` are left out.
    draws
        Largest possible rank.

    Raises
    ------
    ValueError
        If no simulation has ranks.
    """
    level, valid = 1 - ERROR / ranks.shape[1], valid_ranks(ranks)
    if not len(valid):
        raise ValueError("`ranks` must have one simulation at least that did not fail, got none.")
    points, low, high = uniform_band(len(valid), draws, level)
    # At these points the counts of uniform ranks are binomial, however few ranks there are.
    counts = (np.bincount(column, minlength=draws + 1)[:-1].cumsum() for column in valid.T)
    return [RankEcdf(points, count / len(valid) - points, low, high) for count in counts]


@lru_cache(maxsize=64)
def uniform_band(
    simulations: int, draws: int, level: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, and edges of the band that uniform ranks stay within at all of them at once.

    Parameters
    ----------
    simulations
        Number of ranks.
    draws
        Largest possible rank.
    level
        Probability with which they stay within.

    References
    ----------
    Säilynoja, Bürkner and Vehtari (2022), Graphical test for discrete uniformity and its
    applications in goodness-of-fit evaluation and multiple sample comparison, section 2.
    """
    from arviz_stats.ecdf_utils import get_pointwise_confidence_band, simulate_confidence_bands

    points, rng = np.arange(1, draws + 1) / (draws + 1), np.random.default_rng(0)
    pointwise = simulate_confidence_bands(simulations, 1, points, level, TRIALS, rng)
    low, high = get_pointwise_confidence_band(pointwise, simulations, points)
    return points, low - points, high - points


# Verdicts on stored ranks, quantity by quantity: ``calibration.csv``, and its summary


FILE = "calibration.csv"
"""File of a results folder that holds the table."""

INFERENCE = [f"inference.{name}" for name in ("engine", "guide", "steps", "epochs", "kl_weight")]
"""Settings that are columns beside those that name the posterior."""

SUMMARY = {
    "data": ("dataset.kind", "dataset.seed"),
    "prior": ("prior.kind", "prior.nu"),
    "hyperprior": ("hyperprior.kind", "hyperprior.scale", "hyperprior.on"),
    "inference": ("inference.engine", "inference.guide"),
    "truths": ("truths",),
}
"""Headings of the summary that name a combination, with the columns that they are made of."""

COUNTS = ("simulations", "failed", "miscalibrated")
"""Headings of the summary that count."""


def calibration_table(stored: Iterable[StoredRanks]) -> pd.DataFrame:
    """A row for each combination and test quantity.

    Columns: ``sweep``, ``name``, settings; ``truths`` (``prior`` or ``posterior``),
    ``reference`` and ``effective_draws``, as `StoredRanks` has them; ``quantity``; ``simulations``
    that have ranks, and ``failed``, those whose fits diverged; ``draws``, ``restarts``;
    ``deviation``, the largest difference of the ranks' distribution function from a uniform one in
    units of the band's edge; ``verdict``: ``calibrated`` or ``miscalibrated``, with an error over
    all quantities of a combination; ``direction``, as `RankEcdf` has it.
    """
    return table_of((row for ranks in stored for row in _rows(ranks)), dtype=None)


def _rows(stored: StoredRanks) -> Iterator[dict[str, Any]]:
    valid = valid_ranks(stored.ranks)
    settings = {
        name: value
        for name, value in settings_row(stored.cell).items()
        if name.split(".")[0] in OF_POSTERIOR or name in INFERENCE
    }
    ecdfs = rank_ecdfs(valid, stored.draws) if len(valid) else [None] * len(stored.quantities)
    for quantity, ecdf in zip(stored.quantities, ecdfs, strict=True):
        yield {
            "sweep": stored.cell.sweep,
            "name": stored.name,
            **settings,
            "truths": stored.truths,
            "reference": stored.reference,
            "effective_draws": stored.effective_draws,
            "quantity": quantity,
            "simulations": len(valid),
            "failed": len(stored.ranks) - len(valid),
            "draws": stored.draws,
            "restarts": stored.restarts,
            "deviation": np.nan if ecdf is None else ecdf.deviation,
            "verdict": None if ecdf is None else ecdf.verdict,
            "direction": None if ecdf is None else ecdf.direction,
        }


def summary(table: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Headings, and a row for each combination: how many quantities leave their bands."""
    entries = []
    for rows in _combinations(table):
        first, wrong = rows.iloc[0], (rows["verdict"] == "miscalibrated").sum()
        names = [_joined(first, columns) for columns in SUMMARY.values()]
        counts = [str(first["simulations"]), str(first["failed"]), f"{wrong} of {len(rows)}"]
        entries.append([*names, *counts, _furthest(rows)])
    return [*SUMMARY, *COUNTS, "furthest off"], entries


def notes(table: pd.DataFrame) -> list[str]:
    """Warnings about the truths that verdicts rest on, a line each."""
    lines = []
    for rows in _combinations(table):
        first = rows.iloc[0]
        if first["effective_draws"] < first["simulations"]:
            lines.append(
                f"{first['name']}: truths are worth {first['effective_draws']:.0f} independent "
                "ones, so that draws of the exact posterior would be found miscalibrated too often"
            )
        if first["reference"].endswith("undecided"):
            lines.append(f"{first['name']}: chains that truths are from disagree")
    return lines


def _combinations(table: pd.DataFrame) -> list[pd.DataFrame]:
    return [] if table.empty else [rows for _, rows in table.groupby("name", sort=False)]


def _furthest(rows: pd.DataFrame) -> str:
    """The quantity whose ranks are furthest from uniform, and how."""
    if rows["deviation"].isna().all():
        return "every fit diverged"
    worst = rows.loc[rows["deviation"].idxmax()]
    how = worst["direction"] or "within its band"
    return f"{worst['quantity']}: {worst['deviation']:.1f} × band, {how}"


def _joined(row: pd.Series, columns: Iterable[str]) -> str:
    """Values of some columns, as far as the row has them."""
    values = {name: row[name] for name in columns if name in row.index and pd.notna(row[name])}
    texts = (f"{v:g}" if isinstance(v, float) else str(v) for v in values.values())
    return (", seed " if "dataset.seed" in values else " ").join(texts)
