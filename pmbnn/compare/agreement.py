"""How far what a guide predicts is from the posterior itself, cell by cell: ``agreement.csv``.

A fitted cell is held against a sampled one that differs in nothing but how it came by its draws.
What they say is compared at the test rows and over the map by the total variation of class
probabilities, whose *floor* is the distance between random halves of the sampler's own chains.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from pmbnn.compare.kl_gap import gap_columns
from pmbnn.compare.ladder import write_ladder
from pmbnn.prediction.chain_errors import jackknife_error, without_each
from pmbnn.prediction.check import distance_verdict, floor_of, total_variation
from pmbnn.results.reading import load_arrays
from pmbnn.results.record import CellRecord
from pmbnn.results.references import CHAINS, is_sampled, pairs, sampler_pairs
from pmbnn.results.store import Results
from pmbnn.results.tables import differences, settings_row
from pmbnn.results.weights import WEIGHT, switched_off

FILE = "agreement.csv"
"""File of a results folder that holds its table."""

ARRAYS = "probability|sd|chain_probability"
GROUPS = {"test": "test_predictions", "map": "predictions"}
"""Group of a trace by the place where predictions are compared."""

OF_GUIDE = {
    "posterior": WEIGHT.pattern,
    "restarts": WEIGHT.pattern,
    "fit": "",
    "guide": "loc|scale",
}
"""Groups of a fitted cell's trace that tell of its guide, and what is read of them."""

DIFFERENCES = ("excess_error", "excess_nll", "nll", "accuracy")
"""Results whose difference, fitted less sampled, a row has."""


def agreement_table(results: Results, records: Sequence[CellRecord]) -> pd.DataFrame:
    """A row for each fitted cell and sampled cell of the same posterior.

    Where several samplers were at work, the later ones are held against the first as fits are.

    Columns: ``sweep``, ``name``, the settings that name the posterior, ``guide`` and ``mixture`` of
    its restarts, the ``seconds`` that it took, ``engine``, ``reference`` (the sampled cell) with
    its ``status`` and ``reference_seconds``; ``total_variation`` at the test rows with its
    Monte-Carlo standard error, both sides' draws counted, and its floor, and over the map;
    ``same_class``, the share of test rows where both predict one class; ``sd_ratio``, the median
    over test rows of the fitted cell's standard deviation of the probability to the sampled one's;
    differences of results, fitted less sampled; ``pareto_k`` of the guide's importance weights;
    hidden ``units`` and how many are off; where the evidence is known what `gap_columns` adds;
    ``verdict``: ``agrees``, ``differs`` or ``undecided``.

    References
    ----------
    Izmailov et al. (2021), What Are Bayesian Neural Network Posteriors Really Like?, for agreement
    and total variation.
    """
    compared = [*pairs(records), *sampler_pairs(records)]
    return pd.DataFrame([_row(results, *pair) for pair in compared])


def write_agreement(results: Results, records: Sequence[CellRecord]) -> None:
    """Write the table, and the repair ladder that it is of; one without rows leaves no file."""
    table = agreement_table(results, records)
    write_ladder(results, table)
    if table.empty:
        results.remove_table(FILE)
    else:
        results.write_table(FILE, table)


def _row(results: Results, fitted: CellRecord, sampled: CellRecord) -> dict[str, Any]:
    arrays = dict.fromkeys(GROUPS.values(), ARRAYS)
    ours = load_arrays(results, fitted.name, arrays | OF_GUIDE)
    theirs = load_arrays(results, sampled.name, arrays)
    settings = {k: v for k, v in settings_row(fitted.settings).items() if _names(k)}
    inference = fitted.settings["inference"]
    found = {"sweep": fitted.sweep, "name": fitted.name, **settings}
    mixture = fitted.settings["predict"].get("mixture", "best")
    found |= {"guide": inference.get("guide") or _sampler(inference, sampled)}
    found |= {"mixture": CHAINS if is_sampled(fitted) else mixture}
    found |= {"seconds": fitted.seconds, "engine": sampled.settings["inference"]["engine"]}
    found |= {"reference": sampled.name, "status": sampled.status}
    found |= {"reference_seconds": sampled.seconds}
    for place, group in GROUPS.items():
        if group in ours.children and group in theirs.children:
            draws = fitted.settings["predict"]["draws"]
            found |= _distances(ours[group].dataset, theirs[group].dataset, place, draws)
    for name in DIFFERENCES:
        if name in fitted.results and name in sampled.results:
            found[f"{name}_difference"] = fitted.results[name] - sampled.results[name]
    if not is_sampled(fitted):
        found |= _of_guide(fitted, ours) | gap_columns(fitted, sampled, ours)
    found["verdict"] = distance_verdict(
        found["total_variation"],
        found["total_variation_mcse"],
        found["total_variation_floor"],
        sampled.status,
    )
    return found


def _sampler(inference: Mapping[str, Any], reference: CellRecord) -> str:
    """Name of a sampler, with what sets it apart from a reference by the same one."""
    other, name = reference.settings["inference"], inference["engine"]
    alike = other["engine"] == name
    return ", ".join([name, *(differences(inference, [other]) if alike else ())])


def _of_guide(fitted: CellRecord, trace: xr.DataTree) -> dict[str, float]:
    """What is known of a guide without a reference."""
    found = {n: fitted.results[n] for n in ("pareto_k",) if n in fitted.results}
    units = switched_off(trace) if "posterior" in trace.children else None
    return found if units is None else found | {"units_off": units[0], "units": units[1]}


def _distances(ours: xr.Dataset, theirs: xr.Dataset, place: str, draws: int) -> dict[str, float]:
    """Total variation with error and floor at the test rows or over the map, and more of rows.

    `draws` are those that a fit's means are over.
    """
    mean = _rows(ours["probability"])
    chains = np.stack([_rows(one) for one in theirs["chain_probability"]])
    of_others = [total_variation(mean, other).value for other in without_each(chains)]
    suffix = "" if place == "test" else f"_{place}"
    found = {
        f"total_variation{suffix}": total_variation(mean, chains.mean(axis=0)).value,
        f"total_variation{suffix}_mcse": float(
            np.hypot(jackknife_error(of_others), _own_error(ours, chains.mean(axis=0), draws))
        ),
        f"total_variation{suffix}_floor": floor_of(chains, total_variation),
    }
    if place == "test":
        same = mean.argmax(axis=1) == chains.mean(axis=0).argmax(axis=1)
        sd, wanted = (_rows(of["sd"])[:, 0] for of in (ours, theirs))
        found |= {"same_class": float(same.mean()), "sd_ratio": float(np.median(sd / wanted))}
    return found


def _own_error(ours: xr.Dataset, reference: np.ndarray, draws: int) -> float:
    """What the Monte-Carlo error of the compared cell's own means makes of the distance.

    Of chains, the jackknife over them; of a guide's independent draws at most the mean over rows of
    half their summed standard errors, for no mean can move the distance by more than itself.
    """
    if "chain_probability" in ours:
        chains = np.stack([_rows(one) for one in ours["chain_probability"]])
        found = [total_variation(other, reference).value for other in without_each(chains)]
        return jackknife_error(found)
    return float(0.5 * _rows(ours["sd"]).sum(axis=1).mean() / np.sqrt(draws))


def _rows(array: xr.DataArray) -> np.ndarray:
    """Probabilities as ``(row, class)``, double precision."""
    return array.values.reshape(-1, array.sizes["output"]).astype(np.float64)


def _names(key: str) -> bool:
    """Whether a setting is one of those that name the posterior in a table."""
    section, *_ = key.split(".")
    return section in ("dataset", "prior", "hyperprior")
