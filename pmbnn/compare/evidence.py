"""What a prior can be chosen by, and what each choice costs: evidence, ELBO, LOO, held-out NLL.

The *regret* of a criterion is how much worse the posterior of the combination that it chooses
predicts than that of the best one, at points that nothing was chosen by.
"""

import math
from collections.abc import Iterator, Sequence

import pandas as pd

from pmbnn.compare.scores import NLL_METRICS
from pmbnn.results.names import (
    bounds_evidence,
    distinct_names,
    method_name,
    place_names,
    place_of,
    valid_cells,
)
from pmbnn.results.record import (
    NOT_CONVERGED,
    CellRecord,
    scale_at_grid_end,
)
from pmbnn.results.tables import mean_and_error

EVIDENCE_FILE, REGRET_FILE = "evidence.csv", "regret.csv"
"""Files of a results folder that hold the tables."""

COMBINATION = ["prior", "hyperprior"]

CRITERIA = {
    "log_evidence": ("log evidence", -1),
    "elbo": ("ELBO", -1),
    "elpd_loo": ("LOO", -1),
    "validation_nll": ("held-out NLL", 1),
}
"""Results that a combination is chosen by: title, and sign with which less is better."""

NUMBERS = (
    *("log_evidence", "log_evidence_mcse", "elbo", "elpd_loo", "elpd_loo_se", "validation_nll"),
    *NLL_METRICS,
)
"""Results of a cell that the table of evidence has."""


def evidence_table(records: Sequence[CellRecord]) -> pd.DataFrame:
    """A row for each cell of a posterior: what it may be chosen by, and how well it predicts.

    Cells of `invalid_chains` are passed over.

    Columns: ``data``, with the network where a data set has several; ``seed``; ``overlap`` of the
    data seeds (`Dataset.overlap`); ``prior``, ``hyperprior``; ``source``, the sampler or the guide
    with what sets it apart from others of that name, and whether it was ``sampled``; ``status``,
    and whether a tuned scale is at an end of its grid (``scale_at_grid_end``); results as cells
    have them;
    ``log_bayes_factor``, log evidence less the highest of the same data and network by the same
    sampler, nats, with its Monte-Carlo standard error.
    """
    usable = [r for r in valid_cells(records) if r.results and bounds_evidence(r)]
    if not usable:
        return pd.DataFrame()
    cells = [record.cell for record in usable]
    names = {s: distinct_names(getattr(cell, s) for cell in cells) for s in COMBINATION}
    methods = distinct_names((cell.inference for cell in cells), method_name)
    places = place_names(map(place_of, cells))
    rows = []
    for record, cell in zip(usable, cells, strict=True):
        mixture = cell.predict.mixture
        is_mixed = not cell.is_sampled and mixture != "best"
        rows.append(
            {
                "data": places[place_of(cell)],
                "seed": cell.data_seed,
                "overlap": record.overlap,
                **{section: titles[getattr(cell, section)] for section, titles in names.items()},
                "source": methods[cell.inference] + (f", {mixture}" if is_mixed else ""),
                "sampled": cell.is_sampled,
                "status": record.status,
                "scale_at_grid_end": scale_at_grid_end(record),
                **{name: record.results.get(name, math.nan) for name in NUMBERS},
            }
        )
    return _with_bayes_factors(pd.DataFrame(rows))


def regret_table(evidence: pd.DataFrame) -> pd.DataFrame:
    """What choosing by each criterion costs, a row a data set, criterion and source of it.

    Columns: ``data``, ``criterion``, ``source``, ``seeds``, ``overlap``, ``combinations`` to choose
    from; the number of ``cells`` that it chose by, and of those that had not converged
    (``not_converged``); ``regret``, nats an observation, mean over data seeds with standard error
    ``regret_se``, corrected for overlapping splits where ``overlap`` is above zero
    (`mean_and_error`), and ``regret_largest``; ``right``, the share of data seeds on which the best
    was chosen; and ``by_chance``, the mean regret of a combination drawn at random.

    Parameters
    ----------
    evidence
        As `evidence_table` makes it. The posterior's NLL is that of the first sampler that has
        every combination; criteria that are not known of all of them are left out.
    """
    if evidence.empty:
        return evidence
    costs = pd.DataFrame(
        cost | {"data": data, "overlap": of_data["overlap"].max()}
        for data, of_data in evidence.groupby("data", sort=False)
        for _, of_seed in of_data.groupby("seed", sort=False, dropna=False)
        for cost in _regrets(of_seed)
    )
    keys = ["data", "criterion", "source"]
    rows = []
    for key, group in costs.groupby(keys, sort=False) if len(costs) else ():
        overlap = group["overlap"].max() if len(group) > 1 else 0.0
        mean, error = mean_and_error(list(group["regret"]), overlap)
        rows.append(
            dict(zip(keys, key, strict=True))
            | {"seeds": len(group), "overlap": overlap}
            | {"combinations": int(group["combinations"].min())}
            | {name: int(group[name].sum()) for name in ("cells", "not_converged")}
            | {"regret": mean, "regret_se": error, "regret_largest": group["regret"].max()}
            | {"right": float((group["regret"] == 0).mean())}
            | {"by_chance": group["by_chance"].mean()}
        )
    return pd.DataFrame(rows)


def _regrets(cells: pd.DataFrame) -> Iterator[dict]:
    """Regret of every criterion that is known of all combinations of one data set and seed."""
    by_source = {
        source: rows.set_index(COMBINATION)
        for source, rows in cells.groupby("source", sort=False)
        if not rows.duplicated(COMBINATION).any()
    }
    number = len(cells.drop_duplicates(COMBINATION))
    samplers = [r for r in by_source.values() if r["sampled"].all() and len(r) == number > 1]
    every = (rows[metric] for rows in samplers for metric in NLL_METRICS)
    nll = next((values for values in every if values.notna().all()), None)
    for result, (criterion, sign) in CRITERIA.items() if nll is not None else ():
        for source, rows in by_source.items():
            values = sign * rows[result].reindex(nll.index)
            if values.notna().all():
                yield {
                    "criterion": criterion,
                    "source": source,
                    "combinations": number,
                    "cells": len(rows),
                    "not_converged": int(rows["status"].isin(NOT_CONVERGED).sum()),
                    "regret": float(nll[values.idxmin()] - nll.min()),
                    "by_chance": float(nll.mean() - nll.min()),
                }


def _with_bayes_factors(table: pd.DataFrame) -> pd.DataFrame:
    """The table with log evidences less the highest of their data, seed and source."""
    evidence, error = table["log_evidence"], table["log_evidence_mcse"]
    groups = [table[name].astype(str) for name in ("data", "seed", "source")]
    best = evidence.groupby(groups).transform("max")
    is_best = evidence == best
    error_of_best = error.where(is_best).groupby(groups).transform("max")
    both = (error**2 + error_of_best**2) ** 0.5
    return table.assign(
        log_bayes_factor=evidence - best,
        log_bayes_factor_mcse=both.where(~is_best, 0.0).where(evidence.notna()),
    )
