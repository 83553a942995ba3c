"""How far predictions of fits are from those of the posterior, cell by cell: ``agreement.csv``.

A fitted cell is compared with a sampled one that differs only in how its draws were made.
Predictions are compared at the test rows and elsewhere, by a distance for each kind of prediction
(`KINDS`). Its *floor* is the distance between random halves of the sampler's own chains.

``ladder.csv`` is the repair ladder: what a better guide costs, and how near the posterior it comes.
Rungs are ways to fit one posterior: a guide, and how its restarts are mixed. Each has its distance
from the reference and the time that its cells took; the reference is the last.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from pmbnn.experiment.cells import Cell
from pmbnn.prediction.chain_errors import (
    Distance,
    distance_verdict,
    floor_of,
    jackknife_error,
    means_without_each,
    moments_about,
    sd_of,
    total_variation,
    wasserstein,
    without_each,
)
from pmbnn.results.caveats import NOT_CONVERGED
from pmbnn.results.groups import CHAINS, LADDER, pairs, sampler_pairs
from pmbnn.results.names import differences, method_name, posterior_row
from pmbnn.results.reading import WEIGHT, load_arrays, switched_off
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.results.tables import table_of

FILE = "agreement.csv"
"""File of a results folder that holds its table."""

OF_GUIDE = {
    "posterior": WEIGHT.pattern,
    "restarts": WEIGHT.pattern,
    "fit": "",
}
"""Groups of a fitted cell's trace that describe its guide, and the arrays that are read."""


def agreement_table(results: Results, records: Sequence[CellRecord]) -> pd.DataFrame:
    """A row for each fitted cell and sampled cell of the same posterior.

    Where there are several samplers, the later ones are compared with the first as fits are.
    Those of `pmbnn.results.groups.invalid_chains` are passed over.

    Columns: ``sweep``, ``name``, the settings that name the posterior, ``guide`` and ``mixture`` of
    its restarts, its ``fit_status``, the ``seconds`` that it took, ``engine``, ``reference`` (the
    sampled cell) with its ``status`` and ``reference_seconds``; the distance at the test rows with
    its Monte-Carlo standard error (``_mcse``), both sides' draws counted, and its floor
    (``_floor``), what else tells the two apart there, and a ``verdict``: ``agrees``, ``differs`` or
    ``undecided``; the same elsewhere, the place at the end of the names; differences of results,
    fitted less sampled; ``pareto_k`` of the guide's importance weights; hidden ``units`` and how
    many are off; where the evidence is known what `kl_gap` adds.

    Of class probabilities the distance is ``total_variation``, and elsewhere is over the map.
    ``same_class`` is the share of rows where both predict one class, ``sd_ratio`` the median, over
    rows where the sampled cell's probabilities have a spread, of the fitted one's to it: the root
    of their variances over draws, summed over classes. Of
    densities it is ``wasserstein``, between normals with the moments of the network's output, and
    elsewhere is the first of the lines that curves are drawn on (``_curve``). ``mean_distance`` is
    the root mean square difference of the means, both in standard deviations of the sampled
    output; ``sd_ratio`` is as before.

    References
    ----------
    Izmailov et al. (2021), What Are Bayesian Neural Network Posteriors Really Like?, for agreement
    and total variation.
    """
    compared = [*pairs(records), *sampler_pairs(records)]
    rows = (_row(results, *pair) for pair in compared if pair[0].predictive in KINDS)
    return table_of((row for row in rows if row), dtype=None)


def write_agreement(results: Results, records: Sequence[CellRecord]) -> None:
    """Write the table and its repair ladder; one without rows leaves no file."""
    table = agreement_table(results, records)
    results.replace_table(LADDER, ladder_table(table))
    results.replace_table(FILE, table)


def _row(results: Results, fitted: CellRecord, sampled: CellRecord) -> dict[str, Any]:
    """Row of a pair; empty if the sampled cell does not have its chains one by one."""
    kind = KINDS[fitted.predictive]
    arrays = dict.fromkeys(kind.groups.values(), kind.arrays)
    ours = load_arrays(results, fitted.name, arrays | OF_GUIDE)
    theirs = load_arrays(results, sampled.name, arrays)
    row: dict[str, Any] = {}
    for place, group in kind.groups.items():
        both = [tree[group].dataset for tree in (ours, theirs) if group in tree.children]
        # Cells of earlier versions do not have their chains one by one, and so no error.
        if len(both) == 2 and "chain" in both[1].dims:
            compared = kind.compare(*both, fitted)
            row |= _distances(kind, compared, sampled.status, f"_{place}" if place else "")
    if "verdict" not in row:
        return {}
    apart = {
        f"{name}_difference": fitted.results[name] - sampled.results[name]
        for name in kind.differences
        if name in fitted.results and name in sampled.results
    }
    row = _head(fitted, sampled) | row | apart
    if not fitted.cell.is_sampled:
        row |= _of_guide(fitted, ours) | kl_gap(fitted, sampled)
    return row


def _head(fitted: CellRecord, sampled: CellRecord) -> dict[str, Any]:
    """Columns that name both cells."""
    return {
        "sweep": fitted.sweep,
        "name": fitted.name,
        **posterior_row(fitted.settings),
        "guide": _method(fitted.cell, sampled.cell),
        "mixture": CHAINS if fitted.cell.is_sampled else fitted.cell.predict.mixture,
        "fit_status": fitted.status,
        "seconds": fitted.seconds,
        "engine": sampled.cell.inference.engine,
        "reference": sampled.name,
        "status": sampled.status,
        "reference_seconds": sampled.seconds,
    }


def _method(cell: Cell, reference: Cell) -> str:
    """Guide, or sampler with what sets it apart from a reference by the same one."""
    name = method_name(cell.inference)
    alike = method_name(reference.inference) == name
    apart = differences(cell.inference, reference.inference) if alike else ()
    return ", ".join([name, *apart])


def _of_guide(fitted: CellRecord, trace: xr.DataTree) -> dict[str, float]:
    """Columns on a guide that need no reference."""
    row = {n: fitted.results[n] for n in ("pareto_k",) if n in fitted.results}
    units = switched_off(trace) if "posterior" in trace.children else None
    return row if units is None else row | {"units_off": units[0], "units": units[1]}


def kl_gap(fitted: CellRecord, sampled: CellRecord) -> dict[str, float]:
    """The divergence of a guide from the posterior, where a sampled cell knows the evidence.

    ``kl_gap`` is log evidence less ELBO, in nats, with the evidence's standard error
    ``kl_gap_mcse``.
    """
    if "log_evidence" not in sampled.results:
        return {}
    return {
        "kl_gap": sampled.results["log_evidence"] - fitted.results["elbo"],
        "kl_gap_mcse": sampled.results["log_evidence_mcse"],
    }


# Distances by the kind of prediction


class Compared(NamedTuple):
    """Predictions of two cells at the same rows.

    Attributes
    ----------
    ours
        Of the fitted cell, as the distance takes it.
    chains
        Of each chain of the sampled one, ``(chain, ...)``; their mean is that of all.
    further
        Other measures of how the two differ, by name.
    error
        Standard error of the distance from the fitted cell's own draws, if it is known.
    """

    ours: np.ndarray
    chains: np.ndarray
    further: dict[str, float]
    error: float = 0.0


class Kind(NamedTuple):
    """How predictions of one kind are compared.

    Attributes
    ----------
    name
        Of the distance, and of its column.
    distance
        Between two cells' predictions.
    arrays
        Names of the arrays that it takes, as a regular expression.
    groups
        Group of a trace by the place that columns name; that of the test rows, which they do not
        name, comes first.
    compare
        Reads them, of the fitted and of the sampled cell.
    differences
        Results whose difference, fitted less sampled, a row has.
    title
        The distance in words.
    """

    name: str
    distance: Distance
    arrays: str
    groups: Mapping[str, str]
    compare: Callable[[xr.Dataset, xr.Dataset, CellRecord], Compared]
    differences: tuple[str, ...]
    title: str


def _distances(kind: Kind, compared: Compared, status: str, suffix: str) -> dict[str, Any]:
    """Distance with error and floor, other measures, and the verdict."""
    name = f"{kind.name}{suffix}"
    ours, chains, further, error = compared
    value = kind.distance(ours, chains.mean(axis=0)).value
    of_others = [kind.distance(ours, other).value for other in means_without_each(chains)]
    error = float(np.hypot(jackknife_error(of_others), error))
    floor = floor_of(chains, kind.distance)
    further = further | {"verdict": distance_verdict(value, error, floor, status)}
    row = {name: value, f"{name}_mcse": error, f"{name}_floor": floor}
    return row | {f"{of}{suffix}": what for of, what in further.items()}


def _compare_classes(ours: xr.Dataset, theirs: xr.Dataset, fitted: CellRecord) -> Compared:
    mean = _rows(ours["probability"])
    chains = np.stack([_rows(one) for one in theirs["chain_probability"]])
    same = mean.argmax(axis=1) == chains.mean(axis=0).argmax(axis=1)
    spread, wanted = (np.linalg.norm(_rows(of["sd"]), axis=1) for of in (ours, theirs))
    ratios = spread[wanted > 0] / wanted[wanted > 0]
    ratio = float(np.median(ratios)) if len(ratios) else float("nan")
    further = {"same_class": float(same.mean()), "sd_ratio": ratio}
    if "chain_probability" in ours:
        own = np.stack([_rows(one) for one in ours["chain_probability"]])
        reference = chains.mean(axis=0)
        of_others = [total_variation(other, reference).value for other in without_each(own)]
        return Compared(mean, chains, further, jackknife_error(of_others))
    # Of a guide's independent draws: no mean moves the distance by more than it moves itself.
    error = 0.5 * _rows(ours["sd"]).sum(axis=1).mean()
    error /= np.sqrt(fitted.cell.predict.draws)
    return Compared(mean, chains, further, float(error))


def _rows(array: xr.DataArray) -> np.ndarray:
    """Probabilities as ``(row, class)``, double precision."""
    return array.values.reshape(-1, array.sizes["output"]).astype(np.float64)


def _of_chains(array: xr.DataArray) -> np.ndarray:
    """Numbers of all rows, and of all targets where there are several, ``(chain, number)``."""
    return array.values.reshape(array.sizes["chain"], -1)


def _compare_numbers(ours: xr.Dataset, theirs: xr.Dataset, fitted: CellRecord) -> Compared:
    chain_mean, chain_sd = (_of_chains(theirs[name]) for name in ("chain_mean", "chain_sd"))
    centre = chain_mean.mean(axis=0, dtype=np.float64)
    chains = moments_about(centre, chain_mean, chain_sd)
    mean = moments_about(centre, *(ours[n].values.ravel() for n in ("mean", "epistemic_sd")))
    unit, apart = sd_of(chains.mean(axis=0)), mean[0] - chains.mean(axis=0)[0]
    further = {
        "mean_distance": float(np.sqrt(np.mean((apart / unit) ** 2))),
        "sd_ratio": float(np.median(sd_of(mean) / unit)),
    }
    if "chain_mean" in ours:
        own = moments_about(centre, *(_of_chains(ours[n]) for n in ("chain_mean", "chain_sd")))
        reference = chains.mean(axis=0)
        of_others = [wasserstein(o, reference).value for o in means_without_each(own)]
        return Compared(mean, chains, further, jackknife_error(of_others))
    # Of n independent draws, the mean has variance 1 / n and the standard deviation 1 / 2n, in
    # units of the normal that they are from.
    own_unit = np.sqrt(np.mean((sd_of(mean) / unit) ** 2))
    error = own_unit * np.sqrt(1.5 / fitted.cell.predict.draws)
    return Compared(mean, chains, further, float(error))


KINDS: Mapping[str, Kind] = {
    "class_probabilities": Kind(
        "total_variation",
        total_variation,
        "probability|sd|chain_probability",
        {"": "test_predictions", "map": "predictions"},
        _compare_classes,
        ("excess_error", "excess_nll", "nll", "accuracy"),
        "Total variation from the posterior",
    ),
    "density": Kind(
        "wasserstein",
        wasserstein,
        "mean|epistemic_sd|chain_mean|chain_sd",
        {"": "test_predictions", "curve": "curve_1"},
        _compare_numbers,
        ("nll", "rmse", "crps"),
        "Wasserstein distance from the posterior, in its standard deviations",
    ),
}
"""By `CellRecord.predictive`, the type of what a cell's likelihood predicts."""


# The repair ladder

TARGET = 0.01
"""Total variation that is near enough: class probabilities within a point of a hundred, on mean."""

RUNG = ["guide", "mixture"]

MEASURES = ("total_variation", "total_variation_largest", "total_variation_floor", "seconds")

SEED = "dataset.seed"

OTHER_FITS = 2
"""Rungs beside the reference from which there is a ladder."""


def ladder_table(agreement: pd.DataFrame, target: float = TARGET) -> pd.DataFrame:
    """A row for each posterior and rung, means over data seeds, the fastest rung first.

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
    ladders = [
        _rungs(group, target)
        for _, group in of_first.groupby(posterior, sort=False, dropna=False)
        if len(group[RUNG].drop_duplicates()) >= OTHER_FITS
    ]
    if not ladders:
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
    return pd.concat(ladders, ignore_index=True)[columns]


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
