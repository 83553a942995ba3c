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
from pmbnn.results.names import (
    CHAINS,
    LADDER,
    differences,
    method_name,
    pairs,
    posterior_row,
    sampler_pairs,
)
from pmbnn.results.reading import WEIGHT, active_units, load_arrays, switched_off
from pmbnn.results.record import NOT_CONVERGED, CellRecord
from pmbnn.results.store import Results
from pmbnn.results.tables import table_of

FILE = "agreement.csv"
"""File of a results folder that holds its table."""

GUIDE_ARRAYS = {
    "posterior": WEIGHT.pattern,
    "restarts": WEIGHT.pattern,
    "fit": "",
}
"""Groups of a fitted cell's trace that describe its guide, and the arrays that are read."""


def agreement_table(results: Results, records: Sequence[CellRecord]) -> pd.DataFrame:
    """A row for each fitted cell and sampled cell of the same posterior.

    Where there are several samplers, the later ones are compared with the first as fits are.
    Those of `pmbnn.results.names.invalid_chains` are passed over.

    Columns: ``sweep``, ``name``, the settings that name the posterior, ``guide`` and ``mixture`` of
    its restarts, its ``fit_status``, the ``seconds`` that it took, ``engine``, ``reference`` (the
    sampled cell) with its ``status`` and ``reference_seconds``; the distance at the test rows with
    its Monte-Carlo standard error (``_mcse``), both sides' draws counted, and its floor
    (``_floor``), what else tells the two apart there, and a ``verdict``: ``agrees``, ``differs`` or
    ``undecided``; the same elsewhere, the place at the end of the names; differences of results,
    fitted less sampled; ``pareto_k`` of the guide's importance weights; hidden ``units`` and how
    many are off; hidden units that matter in a draw of the fitted cell (``active_units``) and of
    the sampled one (``reference_active_units``); where the evidence is known what `kl_gap` adds.

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
    fit_trace = load_arrays(results, fitted.name, arrays | GUIDE_ARRAYS)
    sampled_trace = load_arrays(results, sampled.name, arrays | GUIDE_ARRAYS)
    row: dict[str, Any] = {}
    for place, group in kind.groups.items():
        both = [t[group].dataset for t in (fit_trace, sampled_trace) if group in t.children]
        if len(both) == 2 and "chain" in both[1].dims:
            compared = kind.compare(*both, fitted.cell.predict.draws)
            row |= _distances(kind, compared, sampled.status, f"_{place}" if place else "")
    if "verdict" not in row:
        return {}
    is_sampled, reference = fitted.cell.is_sampled, sampled.cell.inference
    method = method_name(fitted.cell.inference)
    is_same = method == method_name(reference)
    settings = differences(fitted.cell.inference, reference) if is_same else ()
    head = {
        "sweep": fitted.sweep,
        "name": fitted.name,
        **posterior_row(fitted.settings),
        "guide": ", ".join([method, *settings]),
        "mixture": CHAINS if is_sampled else fitted.cell.predict.mixture,
        "fit_status": fitted.status,
        "seconds": fitted.seconds,
        "engine": reference.engine,
        "reference": sampled.name,
        "status": sampled.status,
        "reference_seconds": sampled.seconds,
    }
    ours, theirs = fitted.results, sampled.results
    names = [name for name in kind.differences if name in ours and name in theirs]
    row = head | row | {f"{name}_difference": ours[name] - theirs[name] for name in names}
    row |= _active_units(fit_trace, sampled_trace)
    return row if is_sampled else row | _guide_columns(fitted, fit_trace) | kl_gap(fitted, sampled)


def _active_units(fit_trace: xr.DataTree, sampled_trace: xr.DataTree) -> dict[str, float]:
    """Hidden units that matter in a draw of both sides, where both keep weights of dense layers."""
    numbers = [
        active_units(trace) if "posterior" in trace.children else None
        for trace in (fit_trace, sampled_trace)
    ]
    if None in numbers:
        return {}
    return dict(zip(("active_units", "reference_active_units"), numbers, strict=True))


def _guide_columns(fitted: CellRecord, trace: xr.DataTree) -> dict[str, float]:
    """Columns on a guide that need no reference."""
    row = {name: fitted.results[name] for name in ("pareto_k",) if name in fitted.results}
    units = switched_off(trace) if "posterior" in trace.children else None
    return row if units is None else row | {"units_off": units[0], "units": units[1]}


def kl_gap(fitted: CellRecord, sampled: CellRecord) -> dict[str, float]:
    """The divergence of a guide from the posterior, where a sampled cell knows the evidence.

    ``kl_gap`` is log evidence less ELBO, in nats, with the evidence's standard error
    ``kl_gap_mcse``.
    """
    if "log_evidence" not in sampled.results or fitted.cell.lacks_elbo:
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
        Reads them, of the fitted and of the sampled cell; takes the draws of the fitted one.
    differences
        Results whose difference, fitted less sampled, a row has.
    title
        The distance in words.
    """

    name: str
    distance: Distance
    arrays: str
    groups: Mapping[str, str]
    compare: Callable[[xr.Dataset, xr.Dataset, int], Compared]
    differences: tuple[str, ...]
    title: str


def _distances(kind: Kind, compared: Compared, status: str, suffix: str) -> dict[str, Any]:
    """Distance with error and floor, other measures, and the verdict."""
    name = f"{kind.name}{suffix}"
    ours, chains, further, error = compared
    value = kind.distance(ours, chains.mean(axis=0)).value
    without = [kind.distance(ours, other).value for other in means_without_each(chains)]
    error = float(np.hypot(jackknife_error(without), error))
    floor = floor_of(chains, kind.distance)
    further = further | {"verdict": distance_verdict(value, error, floor, status)}
    row = {name: value, f"{name}_mcse": error, f"{name}_floor": floor}
    return row | {f"{measure}{suffix}": value for measure, value in further.items()}


def _compare_classes(fit: xr.Dataset, sampled: xr.Dataset, draws: int) -> Compared:
    mean = _probabilities(fit["probability"])
    chains = np.stack([_probabilities(chain) for chain in sampled["chain_probability"]])
    reference = chains.mean(axis=0)
    same = mean.argmax(axis=1) == reference.argmax(axis=1)
    fit_sd, sd = (np.linalg.norm(_probabilities(of["sd"]), axis=1) for of in (fit, sampled))
    ratios = fit_sd[sd > 0] / sd[sd > 0]
    ratio = float(np.median(ratios)) if len(ratios) else float("nan")
    further = {"same_class": float(same.mean()), "sd_ratio": ratio}
    if "chain_probability" in fit:
        fit_chains = np.stack([_probabilities(chain) for chain in fit["chain_probability"]])
        without = [total_variation(o, reference).value for o in without_each(fit_chains)]
        return Compared(mean, chains, further, jackknife_error(without))
    # Of a guide's independent draws: no mean moves the distance by more than it moves itself.
    error = 0.5 * _probabilities(fit["sd"]).sum(axis=1).mean() / np.sqrt(draws)
    return Compared(mean, chains, further, float(error))


def _probabilities(array: xr.DataArray) -> np.ndarray:
    """Probabilities as ``(row, class)``, double precision."""
    return array.values.reshape(-1, array.sizes["output"]).astype(np.float64)


def _compare_numbers(fit: xr.Dataset, sampled: xr.Dataset, draws: int) -> Compared:
    chain_mean, chain_sd = _chain_moments(sampled)
    centre = chain_mean.mean(axis=0, dtype=np.float64)
    chains = moments_about(centre, chain_mean, chain_sd)
    mean = moments_about(centre, *(fit[n].values.ravel() for n in ("mean", "epistemic_sd")))
    reference = chains.mean(axis=0)
    sd, difference = sd_of(reference), mean[0] - reference[0]
    further = {
        "mean_distance": float(np.sqrt(np.mean((difference / sd) ** 2))),
        "sd_ratio": float(np.median(sd_of(mean) / sd)),
    }
    if "chain_mean" in fit:
        fit_chains = moments_about(centre, *_chain_moments(fit))
        without = [wasserstein(o, reference).value for o in means_without_each(fit_chains)]
        return Compared(mean, chains, further, jackknife_error(without))
    # Of n independent draws, the mean has variance 1 / n and the standard deviation 1 / 2n, in
    # units of the normal that they are from.
    error = np.sqrt(np.mean((sd_of(mean) / sd) ** 2)) * np.sqrt(1.5 / draws)
    return Compared(mean, chains, further, float(error))


def _chain_moments(group: xr.Dataset) -> list[np.ndarray]:
    """Means and standard deviations of all rows and targets, ``(chain, number)`` each."""
    arrays = (group[name] for name in ("chain_mean", "chain_sd"))
    return [array.values.reshape(array.sizes["chain"], -1) for array in arrays]


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

JUDGEMENTS = ("cost", "target", "near_enough", "cheapest")

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
    of_first = of_first.drop_duplicates([*posterior, SEED, *RUNG, "name"])
    ladders = [
        _rungs(group, target)
        for _, group in of_first.groupby(posterior, sort=False, dropna=False)
        if len(group[RUNG].drop_duplicates()) >= OTHER_FITS
    ]
    if not ladders:
        return agreement.iloc[:0]
    columns = [*posterior, *RUNG, "seeds", "not_converged", *MEASURES, *JUDGEMENTS]
    return pd.concat(ladders, ignore_index=True)[columns]


def _rungs(group: pd.DataFrame, target: float) -> pd.DataFrame:
    """Rungs of one posterior; those of it that were not fitted to every data seed are kept."""
    reference = group.drop_duplicates(SEED).assign(
        guide=group["engine"].iloc[0],
        fit_status=lambda cells: cells["status"],
        mixture=CHAINS,
        total_variation=lambda cells: cells["total_variation_floor"],
        seconds=lambda cells: cells["reference_seconds"],
    )
    rows = []
    for names, rung in pd.concat([group, reference]).groupby(RUNG, sort=False):
        distance = rung["total_variation"]
        row = rung.iloc[0].to_dict() | dict(zip(RUNG, names, strict=True))
        row |= {"seeds": rung[SEED].nunique(), "total_variation": distance.mean()}
        row |= {"total_variation_largest": distance.max()}
        row |= {"not_converged": rung.loc[rung["fit_status"].isin(NOT_CONVERGED), SEED].nunique()}
        row |= {name: rung[name].mean() for name in ("total_variation_floor", "seconds")}
        rows.append(row)
    table = pd.DataFrame(rows).sort_values("seconds", kind="stable", ignore_index=True)
    is_near = table["total_variation"] <= target
    return table.assign(
        cost=table["seconds"] / reference["seconds"].mean(),
        target=target,
        near_enough=is_near,
        cheapest=is_near & (table.index == is_near.idxmax()),
    )
