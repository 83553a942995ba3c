"""Does a prior matter, and does ADVI say the same as the posterior? ``compare.csv``.

A contrast is a difference of two cells on the same data: below zero, the first is better. It is
taken of cells that were sampled from the posterior (the reference) and of their ADVI fits. The mean
of each over data seeds has an interval, and all intervals of a table hold together. A verdict says
in which of three regions a whole interval lies, and nothing if it lies in none: one contrast that
is decided and another that is not need not differ from each other.

Ensembles of chains that keep to modes of their own are no draws of the posterior. Contrasts of them
have columns and verdicts of their own, which are about the procedure.

References
----------
Lakens (2017), Equivalence tests; Kruschke (2018), Rejecting or accepting parameter values in
Bayesian estimation (of regions of practical equivalence).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pmbnn.compare.evidence import EVIDENCE_FILE, REGRET_FILE, evidence_table, regret_table
from pmbnn.compare.intervals import interval_verdict, joint_intervals
from pmbnn.compare.over_data import FILE as OVER_DATA_FILE
from pmbnn.compare.over_data import over_data_table
from pmbnn.compare.scores import NLL_METRICS
from pmbnn.core.numbers import difference_text, number_text
from pmbnn.experiment.cells import Cell, Contrast, Contrasts
from pmbnn.experiment.contrasts import AmbiguousError, pairs, stored_contrasts
from pmbnn.models.hyperpriors import Hyperprior
from pmbnn.models.prior_base import Prior
from pmbnn.results.loading import ExperimentResults
from pmbnn.results.names import (
    distinct_names,
    place_names,
    place_of,
    posterior_key,
    sampler_pairs,
    title,
    valid_cells,
)
from pmbnn.results.ranking import BETTER, EQUIVALENT, UNDECIDED, WORSE
from pmbnn.results.record import (
    AT_GRID_END,
    CellRecord,
    has_converged,
    scale_at_grid_end,
)
from pmbnn.results.store import Results
from pmbnn.results.tables import NOT_RANDOM

FILE = "compare.csv"
"""File of a results folder that holds its table of verdicts."""

METHODS = {"reference": "the reference", "advi": "ADVI", "ensemble": "the ensemble"}
"""Ways to infer the cells of a contrast, and their names in sentences."""

SAMPLED = ("reference", "ensemble")
"""Those whose cells are chains, which have Monte-Carlo errors."""

COLUMN = {
    "reference": "delta_reference",
    "advi": "delta_advi",
    "delta": "delta",
    "ensemble": "delta_ensemble",
}
"""What is estimated of each contrast, and its column: the difference under the posterior, that
under ADVI, the second less the first, and the difference of ensembles of chains."""

TOLERATED_MCSE = 0.1
"""Monte-Carlo error of a delta that goes unmentioned, in margins."""

DIFFERENCE_SENTENCES = {
    BETTER: "the first is better under {}",
    WORSE: "the first is worse under {}",
    EQUIVALENT: "the two are equivalent under {}",
    UNDECIDED: "{} leaves it undecided",
}
"""Verdict on a difference in words, under the posterior, ADVI or an ensemble."""

ADVI_SENTENCES = {
    "faithful": "ADVI says the same",
    "reverses": "ADVI says the reverse",
    "distorts": "ADVI distorts it",
    UNDECIDED: "whether ADVI says the same is undecided",
}
"""Verdict on ADVI in words."""

COUNTS = ("advi_cells", "advi_not_converged", "pairs", "at_grid_end")
"""Numbers that say how far a contrast can be relied on."""

DELTA_COLUMNS = (
    "contrast", "exploratory", "data", "data_set", "seed", "overlap", "metric",
    "delta_reference", "delta_reference_mcse", "delta_advi", "delta_advi_mcse",
    "delta", "delta_mcse", "delta_ensemble", "delta_ensemble_mcse", "ensemble_seeds",
    "doubtful", *COUNTS, "both_infinite", *(f"pairs_{method}" for method in METHODS),
)  # fmt: skip
"""Of every contrast, data set and data seed, and how far data seeds are the same rows
(`Dataset.overlap`). ``data`` tells other settings apart too, such as networks; ``data_set`` is a
number for each data set. Errors are Monte-Carlo standard errors, missing where unknown;
``ensemble_seeds`` is the number of inference seeds of ensembles, ``doubtful`` that of cells of the
reference whose chains did not converge, ``advi_cells`` that of cells fitted by ADVI and
``advi_not_converged`` those of them that did not; of ``pairs`` of cells, ``at_grid_end`` counts
those with a tuned scale at an end of its grid. ``both_infinite`` of them are not in the deltas, as
two infinite scores have no difference. ``pairs_reference`` and so on are those of each method."""

REACH = ("detectable", "limit")
"""What `joint_intervals` says of an estimate besides its interval."""

VERDICT_COLUMNS = (
    "contrast", "exploratory", "data", "metric", "seeds", "margin",
    *(f"{name}{end}" for name in COLUMN for end in ("", "_low", "_high")),
    "posterior_verdict", "advi_verdict", "ensemble_verdict", "doubtful", *COUNTS, "note",
    *(f"{name}_{number}" for name in COLUMN for number in REACH),
)  # fmt: skip
"""Of every contrast and data set: means over data seeds with both ends of their intervals, and the
sums over data seeds of what `DELTA_COLUMNS` counts. Without sampled cells the verdicts on the
posterior and on ADVI are empty, without ADVI fits that on ADVI is, without ensembles theirs. Last
come the smallest true difference that would be told from the margin, and the half-width of an
interval from infinitely many data seeds; see `joint_intervals`."""

VERDICT_TEXT = ("posterior_verdict", "advi_verdict", "ensemble_verdict")
"""Columns of verdicts."""

TEXT = ("contrast", "data", "metric", *VERDICT_TEXT, "note")
"""Columns of ``compare.csv`` that are words, and empty where there is nothing to say."""


# Differences


def delta_table(records: Sequence[CellRecord], contrasts: Contrasts) -> pd.DataFrame:
    """Every contrast on every data set and data seed; see `DELTA_COLUMNS`.

    A delta is the mean over the contrast's pairs of cells: over fits, and over settings that it
    does not name. A data seed on which some of these have no results is left out.

    Parameters
    ----------
    records
        Cells of a results folder; those without results, fits of something else than the
        posterior, and those of `invalid_chains` are passed over. Of several ways to sample a
        posterior the first counts.
    contrasts
        Where none is listed, every learned scale less every fixed one of the same prior is taken,
        and called exploratory.

    Raises
    ------
    AmbiguousError
        If a contrast has several cells for one, or a data set several settings of ADVI or of the
        reference.
    """
    rows = pair_table(records, contrasts)
    if rows.empty:
        return pd.DataFrame(columns=DELTA_COLUMNS)
    deltas = _by_method(rows)
    deltas["delta"] = deltas["delta_advi"] - deltas["delta_reference"]
    deltas["delta_mcse"] = np.hypot(deltas["delta_advi_mcse"], deltas["delta_reference_mcse"])
    return deltas.assign(exploratory=not contrasts.listed).reindex(columns=DELTA_COLUMNS)


def pair_table(records: Sequence[CellRecord], contrasts: Contrasts) -> pd.DataFrame:
    """Every pair of cells that a delta is the mean of; empty without any.

    It has the names of the cells (``first``, ``second``), the ``contrast``, ``data``, data
    ``seed``, ``metric`` and ``method``, one of `METHODS`, and the ``difference``, which is missing
    where both scores are ``infinite``.

    Parameters
    ----------
    records, contrasts
        As `delta_table` takes them.

    Raises
    ------
    AmbiguousError
        As `delta_table`.
    """
    usable = _usable(records)
    listed = contrasts.listed or tuple(learned_less_fixed(usable))
    rows = pd.DataFrame(row for contrast in listed for row in _pair_rows(contrast, usable))
    if rows.empty:
        return rows
    places = rows.pop("place")
    names = place_names(places)
    rows["data"] = [names[place] for place in places]
    rows["data_set"] = pd.factorize(pd.Series([place.dataset for place in places], dtype=object))[0]
    _check_one_setting(rows)
    rows = _in_one_metric(rows)
    entry = ["contrast", "data", "method"]
    size = rows.groupby([*entry, "seed"])["difference"].transform("size")
    most = size.groupby([rows[name] for name in entry]).transform("max")
    return rows[size == most]


def learned_less_fixed(records: Iterable[CellRecord]) -> Iterator[Contrast]:
    """Contrasts of every learned scale with every fixed one of the same prior."""
    scales: dict[Prior, dict[Hyperprior, object]] = {}
    for cell in (record.cell for record in records):
        scales.setdefault(cell.prior, {}).update(
            {cell.hyperprior: cell.scale} if cell.has_scale else {}
        )
    for prior, name in distinct_names(scales, title).items():
        names = distinct_names(scales[prior], title)
        learned = [hyperprior for hyperprior, scale in scales[prior].items() if scale is None]
        fixed = [hyperprior for hyperprior in names if hyperprior not in learned]
        for pair in product(learned, fixed):
            sides = (
                {"prior": prior.model_dump(mode="json"), "hyperprior": h.model_dump(mode="json")}
                for h in pair
            )
            yield Contrast(f"{name}: {' less '.join(names[h] for h in pair)}", *sides)


def _usable(records: Sequence[CellRecord]) -> list[CellRecord]:
    """Cells that contrasts are taken of: one way to sample each posterior, and fits by ADVI."""
    records = valid_cells(records)
    later = {
        record.name
        for record, first in sampler_pairs(records, posterior_key)
        if record.cell.without_seeds.inference != first.cell.without_seeds.inference
    }
    return [r for r in records if r.results and _method(r) and r.name not in later]


def _method(record: CellRecord) -> str | None:
    """Which of `METHODS` a cell is of; None if of none."""
    cell = record.cell
    if cell.samples_posterior:
        return "reference"
    if cell.is_tempered or cell.lacks_elbo:
        return None
    return "ensemble" if cell.is_ensemble else "advi"


def _pair_rows(contrast: Contrast, records: Sequence[CellRecord]) -> Iterator[dict[str, Any]]:
    """Each pair of cells of a contrast, with the difference of either metric."""
    try:
        indices = pairs(contrast, [record.cell for record in records])
    except AmbiguousError as error:
        raise AmbiguousError(f"The contrast `{contrast.name}` {error}.") from None
    for pair in ((records[i], records[j]) for i, j in indices):
        first, second = pair
        differences = {}
        for name in NLL_METRICS:
            values = [record.results.get(name) for record in pair]
            differences[f"{name}_infinite"] = values == [math.inf, math.inf]
            errors = [record.results.get(f"{name}_mcse") for record in pair]
            differences[name] = math.nan if None in values else values[0] - values[1]
            differences[f"{name}_mcse"] = math.nan if None in errors else math.hypot(*errors)
        yield {
            "contrast": contrast.name,
            "first": first.name,
            "second": second.name,
            "place": _place(first.cell, second.cell),
            "seed": first.cell.data_seed,
            "overlap": first.overlap,
            "method": _method(first),
            "setting": first.cell.without_seeds.inference,
            "fit_seed": first.cell.inference.seed,
            "doubtful": sum(record.status != "converged" for record in pair),
            "not_converged": sum(not has_converged(record) for record in pair),
            "at_grid_end": any(scale_at_grid_end(record) for record in pair),
            **differences,
        }


def _place(first: Cell, second: Cell) -> Cell:
    """Data set without its seed, and of network and likelihood what both have."""
    names = ("network", "likelihood")
    different = [name for name in names if getattr(first, name) != getattr(second, name)]
    return replace(place_of(first), **dict.fromkeys(different))


def _check_one_setting(rows: pd.DataFrame) -> None:
    """Raise AmbiguousError if ADVI, or the reference, is several things on a data set."""
    for (data, method), settings in rows.groupby(["data", "method"], sort=False)["setting"]:
        different = list(dict.fromkeys(settings))
        if len(different) > 1:
            one, two = (setting.model_dump(mode="json") for setting in different[:2])
            names = [name for name in one | two if one.get(name) != two.get(name)]
            raise AmbiguousError(
                f"`{data}` must have one `inference` of {METHODS[method]}, got several: they "
                f"differ in {', '.join(names)}. Sweep each into a folder of its own."
            )


def _in_one_metric(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with ``difference`` and ``mcse`` in one metric of their data set, where they have it."""
    fresh, test = NLL_METRICS
    has_fresh = rows[fresh].notna() | rows[f"{fresh}_infinite"]
    is_fresh = has_fresh.groupby(rows["data"]).transform("all")
    rows = rows.assign(
        metric=np.where(is_fresh, fresh, test),
        difference=rows[fresh].where(is_fresh, rows[test]),
        mcse=rows[f"{fresh}_mcse"].where(is_fresh, rows[f"{test}_mcse"]),
        infinite=rows[f"{fresh}_infinite"].where(is_fresh, rows[f"{test}_infinite"]),
    )
    return rows[rows["difference"].notna() | rows["infinite"]]


def _by_method(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over pairs, a row a contrast, data set and data seed, methods in columns."""
    keys = ["contrast", "data", "metric", "seed", "method"]
    counts = rows.groupby(keys, sort=False).agg(
        overlap=("overlap", "max"),
        data_set=("data_set", "first"),
        doubtful=("doubtful", "sum"),
        not_converged=("not_converged", "sum"),
        at_grid_end=("at_grid_end", "sum"),
        pairs=("seed", "size"),
        fit_seeds=("fit_seed", "nunique"),
        both_infinite=("infinite", "sum"),
    )
    means = (
        rows[~rows["infinite"]]
        .groupby(keys)
        .agg(
            difference=("difference", "mean"),
            mcse=("mcse", lambda errors: math.hypot(*errors) / len(errors)),
        )
    )
    means = counts.join(means)
    methods = pd.MultiIndex.from_product([means.columns, list(METHODS)])
    wide = means.unstack("method").reindex(columns=methods)
    numbers = ["doubtful", "not_converged", "at_grid_end", "pairs", "fit_seeds", "both_infinite"]
    counts = wide[numbers].fillna(0).astype(int)
    columns = {f"delta_{method}": wide["difference", method] for method in METHODS}
    columns |= {f"delta_{method}_mcse": wide["mcse", method] for method in METHODS}
    columns |= {f"pairs_{method}": counts["pairs", method] for method in METHODS}
    columns |= {
        "ensemble_seeds": counts["fit_seeds", "ensemble"],
        "overlap": wide["overlap"].max(axis=1),
        "data_set": wide["data_set"].max(axis=1).astype(int),
        "doubtful": counts["doubtful", "reference"],
        "advi_cells": 2 * counts["pairs", "advi"],
        "advi_not_converged": counts["not_converged", "advi"],
        "pairs": counts["pairs"].sum(axis=1),
        "at_grid_end": counts["at_grid_end"].sum(axis=1),
        "both_infinite": counts["both_infinite"].sum(axis=1),
    }
    return pd.DataFrame(columns).reset_index()


# Verdicts


def verdict_table(deltas: pd.DataFrame, margin: float) -> pd.DataFrame:
    """Means of deltas with simultaneous intervals, and verdicts; see `VERDICT_COLUMNS`.

    Parameters
    ----------
    deltas
        As `delta_table` makes it.
    margin
        Of practical equivalence, nats an observation.
    """
    if deltas.empty:
        return pd.DataFrame(columns=VERDICT_COLUMNS)
    numbers = deltas.set_index(["contrast", "data", "seed"])[list(COLUMN.values())].astype(float)
    quantities = {name: numbers[column].dropna() for name, column in COLUMN.items()}
    overlap = deltas.groupby("data")["overlap"].max().to_dict()
    intervals = joint_intervals(quantities, overlap).T.to_dict()
    entries = deltas.groupby(["contrast", "data"], sort=False)
    rows = [_verdict_row(entry, group, intervals, margin) for entry, group in entries]
    return pd.DataFrame(rows, columns=VERDICT_COLUMNS)


def advi_verdict(
    reference: tuple[float, float],
    advi: tuple[float, float],
    delta: tuple[float, float],
    margin: float,
) -> str:
    """What ADVI makes of a contrast: *faithful*, *reverses*, *distorts* or *undecided*.

    Parameters
    ----------
    reference, advi, delta
        Both ends of the intervals of the contrast under the posterior, under ADVI, and of the
        second less the first.
    margin
        In their unit.
    """
    both = {interval_verdict(*reference, margin), interval_verdict(*advi, margin)}
    if both == {BETTER, WORSE}:
        return "reverses"
    names = {EQUIVALENT: "faithful", UNDECIDED: UNDECIDED}
    return names.get(interval_verdict(*delta, margin), "distorts")


def judged_method(row: Mapping[str, Any]) -> str:
    """Which of `METHODS` the first verdict of a row of `verdict_table` is about."""
    return next((name for name in SAMPLED if not math.isnan(row[name])), "advi")


def sentence(row: Mapping[str, Any]) -> str:
    """A verdict in plain words; a row of `verdict_table`.

    Without cells of the reference it says where the interval of ensembles, or under ADVI, lies, by
    the same margin.
    """
    judged = judged_method(row)
    if judged == "ensemble":
        text = _ensemble_phrase(row)
    elif judged == "advi":
        verdict = interval_verdict(row["advi_low"], row["advi_high"], row["margin"])
        text = DIFFERENCE_SENTENCES[verdict].format("ADVI") + _interval_phrase(row, "advi")
    else:
        text = DIFFERENCE_SENTENCES[row["posterior_verdict"]].format("the posterior")
        text += _interval_phrase(row, "reference")
        if row["advi_verdict"]:
            text += f"; {ADVI_SENTENCES[row['advi_verdict']]}{_interval_phrase(row, 'delta')}"
        if row["ensemble_verdict"]:
            text += f"; {_ensemble_phrase(row)}"
    return " ".join(filter(None, [f"{row['data']}, {row['contrast']}: {text}.", row["note"]]))


def _ensemble_phrase(row: Mapping[str, Any]) -> str:
    verdict = DIFFERENCE_SENTENCES[row["ensemble_verdict"]].format(METHODS["ensemble"])
    return verdict + _interval_phrase(row, "ensemble")


def _interval_phrase(row: Mapping[str, Any], name: str) -> str:
    """A difference in nats with its interval; empty without one."""
    difference, low, high = (row[f"{name}{end}"] for end in ("", "_low", "_high"))
    if math.isnan(low):
        return ""
    return f", {difference_text(difference, low, high)} nats"


def _verdict_row(
    entry: tuple[str, str], group: pd.DataFrame, intervals: Mapping, margin: float
) -> dict[str, Any]:
    row = {"contrast": entry[0], "data": entry[1], "margin": margin}
    row |= {name: group[name].iloc[0] for name in ("exploratory", "metric")}
    row["seeds"] = int(group[[f"delta_{method}" for method in METHODS]].count().max())
    ends = {}
    for name, column in COLUMN.items():
        interval = intervals.get((name, *entry), {})
        row[name] = interval.get("mean", group[column].mean())
        ends[name] = interval.get("low", math.nan), interval.get("high", math.nan)
        row[f"{name}_low"], row[f"{name}_high"] = ends[name]
        row[f"{name}_detectable"] = interval.get("detectable", math.nan) + margin
        row[f"{name}_limit"] = interval.get("limit", math.nan)
    sampled, fitted, pooled = (not math.isnan(row[name]) for name in METHODS)
    row["posterior_verdict"] = interval_verdict(*ends["reference"], margin) if sampled else ""
    both = ends["reference"], ends["advi"], ends["delta"]
    row["advi_verdict"] = advi_verdict(*both, margin) if sampled and fitted else ""
    row["ensemble_verdict"] = interval_verdict(*ends["ensemble"], margin) if pooled else ""
    row |= {name: int(group[name].sum()) for name in ("doubtful", *COUNTS)}
    return row | {"note": _note(row, group, margin)}


def _note(row: Mapping[str, Any], group: pd.DataFrame, margin: float) -> str:
    """What prevents a verdict, or casts doubt on it."""
    errors = {name: group[f"delta_{m}_mcse"].max() for m, name in METHODS.items()}
    missing = {m: group[f"delta_{m}"].isna().all() for m in METHODS}
    has_ensemble = not missing.pop("ensemble")
    infinite = group["both_infinite"].sum()
    nothing = {
        m: "No finite differences under" if group[f"pairs_{m}"].any() else "No cells of"
        for m in missing
    }
    judged = judged_method(row)
    ends = (row[f"{judged}_{end}"] for end in ("low", "high"))
    is_open = interval_verdict(*ends, margin) == UNDECIDED
    at_end = f"In {row['at_grid_end']} of {row['pairs']} pairs of cells a tuned scale is"
    notes = {
        **{f"{nothing[m]} {METHODS[m]}.": is_missing for m, is_missing in missing.items()},
        "Ensembles are no draws of the posterior: their verdict is about the procedure.": (
            has_ensemble
        ),
        "It rests on one inference seed.": has_ensemble and group["ensemble_seeds"].min() < 2,
        **{
            f"Monte-Carlo error of {name} (up to {error:.2g}) exceeds a tenth of the margin.": (
                error > TOLERATED_MCSE * margin
            )
            for name, error in errors.items()
        },
        **{
            f"Monte-Carlo error of {METHODS[method]} is not known.": (
                group[f"delta_{method}"].notna() & group[f"delta_{method}_mcse"].isna()
            ).any()
            for method in SAMPLED
        },
        "Data seeds split the same rows: the intervals allow for it.": (
            0 < group["overlap"].max() < math.inf
        ),
        "With infinitely many of them an interval would still reach "
        f"{number_text(row[f'{judged}_limit'], digits=2)} nats to either side: equivalence is out "
        "of reach.": (is_open and row[f"{judged}_limit"] > margin),
        f"No interval, as {NOT_RANDOM}.": math.isinf(group["overlap"].max()),
        f"Pairs of cells left out, as both scores are infinite: {infinite}.": infinite,
        f"{row['doubtful']} sampled cells did not converge.": row["doubtful"],
        f"{row['advi_not_converged']} of {row['advi_cells']} fits by ADVI did not converge.": (
            row["advi_not_converged"]
        ),
        f"{at_end} {AT_GRID_END}.": row["at_grid_end"],
    }
    return " ".join(note for note, applies in notes.items() if applies)


# The folder


class Verdicts(NamedTuple):
    """Tables of a folder.

    Attributes
    ----------
    contrasts
        As `verdict_table` makes it.
    over_data
        As `pmbnn.compare.over_data.over_data_table` makes it.
    evidence, regret
        As those of `pmbnn.compare.evidence`.
    """

    contrasts: pd.DataFrame
    over_data: pd.DataFrame
    evidence: pd.DataFrame
    regret: pd.DataFrame


def make_verdicts(folder: ExperimentResults) -> Verdicts:
    """Contrasts, evidence and regret of a folder's cells, computed anew.

    Raises
    ------
    ConfigError
        If its copy of the experiment file cannot be read.
    AmbiguousError
        If a contrast has several cells for one.
    """
    contrasts = stored_contrasts(folder.results.folder)
    deltas, margin = delta_table(folder.records, contrasts), contrasts.margin
    evidence = evidence_table(folder.records)
    return Verdicts(
        contrasts=verdict_table(deltas, margin),
        over_data=over_data_table(deltas, margin),
        evidence=evidence,
        regret=regret_table(evidence),
    )


def write_verdicts(results: Results, verdicts: Verdicts) -> list[str]:
    """Names of the files written; a table without rows leaves none.

    Raises
    ------
    OSError
        If one cannot be written.
    """
    files = FILE, OVER_DATA_FILE, EVIDENCE_FILE, REGRET_FILE
    tables = zip(files, verdicts, strict=True)
    return [file for file, table in tables if results.replace_table(file, table)]


def read_contrasts_table(results: Results) -> pd.DataFrame:
    """The table of contrasts that a folder holds, without rows where there is none."""
    path = results.folder / FILE
    if not path.is_file():
        return pd.DataFrame()
    # An empty word would be read as a missing number, and so would a sweep called `NA`.
    table = pd.read_csv(
        path, dtype=dict.fromkeys(TEXT, object), keep_default_na=False, na_values=[""]
    )
    table = table.reindex(columns=VERDICT_COLUMNS)  # earlier versions had no ensembles
    return table.assign(**{name: table[name].fillna("") for name in TEXT})


def have_chains(folder: ExperimentResults) -> bool:
    """Whether some cells of a folder are samples of the posterior, or ensembles of chains."""
    return any(_method(record) in ("reference", "ensemble") for record in folder.records)
