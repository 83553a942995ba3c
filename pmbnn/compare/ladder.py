"""The repair ladder: what a better guide costs, and how near the posterior it comes.

Rungs are ways to fit one posterior: a guide, and how its restarts are mixed. Each has its distance
from the reference and the time that its cells took; the reference is the last.
"""

import pandas as pd

from pmbnn.results.caveats import NOT_CONVERGED
from pmbnn.results.references import CHAINS, LADDER
from pmbnn.results.store import Results

TARGET = 0.01
"""Total variation that is near enough: class probabilities within a point of a hundred, on mean."""

RUNG = ["guide", "mixture"]

MEASURES = ("total_variation", "total_variation_largest", "total_variation_floor", "seconds")

SEED = "dataset.seed"

OTHER_FITS = 2
"""Rungs beside the reference from which there is a ladder."""


def ladder_table(agreement: pd.DataFrame, target: float = TARGET) -> pd.DataFrame:
    """A row for each posterior and rung, means over data seeds, the cheapest rung first.

    Parameters
    ----------
    agreement
        As `pmbnn.compare.agreement.agreement_table` makes it; of several samplers the first counts.
    target
        Total variation that is near enough.

    Returns
    -------
    pd.DataFrame
        Columns: ``sweep``, the settings that name the posterior but the data seed, ``guide``
        and ``mixture`` (of the reference, the sampler's name and ``chains``), ``seeds``, on
        how many of which the fit, or the chains, did ``not_converged``,
        ``total_variation`` at test rows with the largest of all data seeds and the mean floor,
        ``seconds`` of a cell and ``cost``, these over the reference's; ``target`` and whether the
        mean is ``near_enough``; and ``cheapest`` of those that are. Empty where no posterior has
        two rungs beside the reference.
    """
    if "total_variation" not in agreement:
        return agreement.iloc[:0]
    agreement = agreement[agreement["mixture"] != CHAINS].dropna(subset="total_variation")
    posterior = ["sweep", *(c for c in agreement.columns if "." in c and c != SEED)]
    of_first = agreement[agreement["engine"].isin(agreement["engine"].head(1))]
    found = [
        _rungs(group, target)
        for _, group in of_first.groupby(posterior, sort=False, dropna=False)
        if len(group[RUNG].drop_duplicates()) >= OTHER_FITS
    ]
    if not found:
        return agreement.iloc[:0]
    columns = [
        *posterior,
        *RUNG,
        "seeds",
        "not_converged",
        *MEASURES,
        "cost",
        "target",
        "near_enough",
        "cheapest",
    ]
    return pd.concat(found, ignore_index=True)[columns]


def _rungs(group: pd.DataFrame, target: float) -> pd.DataFrame:
    """Rungs of one posterior; those of it that were not fitted to every data seed are kept."""
    reference = group.drop_duplicates(SEED).assign(
        guide=group["engine"].iloc[0],
        fit_status=lambda of: of["status"],
        mixture=CHAINS,
        total_variation=lambda of: of["total_variation_floor"],
        seconds=lambda of: of["reference_seconds"],
    )
    every = pd.concat([group, reference])
    rows = []
    for rung, of_rung in every.groupby(RUNG, sort=False):
        first = of_rung.iloc[0].to_dict() | dict(zip(RUNG, rung, strict=True))
        distance = of_rung["total_variation"]
        first |= {"seeds": len(of_rung), "total_variation": distance.mean()}
        first |= {"total_variation_largest": distance.max()}
        first |= {"not_converged": int(of_rung["fit_status"].isin(NOT_CONVERGED).sum())}
        first |= {n: of_rung[n].mean() for n in ("total_variation_floor", "seconds")}
        rows.append(first)
    table = pd.DataFrame(rows).sort_values("seconds", kind="stable", ignore_index=True)
    table["cost"] = table["seconds"] / reference["seconds"].mean()
    table["target"] = target
    table["near_enough"] = table["total_variation"] <= target
    table["cheapest"] = table.index == table["near_enough"].idxmax()
    table["cheapest"] &= table["near_enough"]
    return table


def write_ladder(results: Results, agreement: pd.DataFrame) -> None:
    """Write the table; one without rows leaves no file."""
    results.replace_table(LADDER, ladder_table(agreement))
