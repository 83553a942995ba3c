"""Does a prior matter, and does ADVI say the same as the posterior? Records in, tables out.

A contrast is a difference of two cells on the same data: below zero, the first is better. It is
taken twice, of cells that were sampled from the posterior (the reference) and of their ADVI fits.
Of each, the mean over data seeds has an interval, and all intervals of a table hold together. A
verdict says in which of three regions a whole interval lies, and nothing where it lies in none:
one that is decided beside one that is not is no difference between the two.

References
----------
Lakens (2017), Equivalence tests; Kruschke (2018), Rejecting or accepting parameter values in
Bayesian estimation (of regions of practical equivalence).
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from pmbnn.experiment.cells import Cell, Contrast, Contrasts, Selection
from pmbnn.experiment.contrasts import AmbiguousError, pairs
from pmbnn.models.priors import Hyperprior, Prior
from pmbnn.results.caveats import AT_GRID_END, has_converged, scale_at_grid_end
from pmbnn.results.names import dataset_title, distinct, title
from pmbnn.results.record import CellRecord
from pmbnn.results.references import posterior_key, sampler_pairs, standing
from pmbnn.spec import Specification, Tune

FILE = "compare.csv"
"""File of a results folder that holds its table of verdicts."""

METRICS = ("excess_nll", "nll")
"""Result that deltas are of, nats an observation: at fresh points where every cell of a data set
has it, of the test rows otherwise. The first differs from the NLL by the same number in all."""

COLUMN = {"reference": "delta_reference", "advi": "delta_advi", "delta": "delta"}
"""What is estimated of each contrast, and its column: the difference under the posterior, that
under ADVI, and the second less the first."""

TOLERATED = 0.1
"""Monte-Carlo error of a delta that goes unmentioned, in margins."""

SAID = {
    "better": "the first is better under {}",
    "worse": "the first is worse under {}",
    "equivalent": "the two are equivalent under {}",
    "undecided": "{} leaves it undecided",
}
"""Verdict on a difference in words, under the posterior or under ADVI."""

ADVI_SAID = {
    "faithful": "ADVI says the same",
    "reverses": "ADVI says the reverse",
    "distorts": "ADVI distorts it",
    "undecided": "whether ADVI says the same is undecided",
}
"""Verdict on ADVI in words."""

COUNTS = ("advi_cells", "advi_not_converged", "pairs", "at_grid_end")
"""Numbers that say how far a contrast can be relied on."""

DELTA_COLUMNS = (
    "contrast", "exploratory", "data", "seed", "overlap", "metric",
    "delta_reference", "delta_reference_mcse", "delta_advi", "delta_advi_mcse",
    "delta", "delta_mcse", "doubtful", *COUNTS,
)  # fmt: skip
"""Of every contrast, data set and data seed, and how far data seeds are the same rows
(`Dataset.overlap`). Errors are Monte-Carlo standard errors, missing where
unknown; ``doubtful`` is the number of cells of the reference whose chains did not converge,
``advi_cells`` that of cells fitted by ADVI and ``advi_not_converged`` those of them that did not;
of ``pairs`` of cells, ``at_grid_end`` counts those with a tuned scale at an end of its grid."""

VERDICT_COLUMNS = (
    "contrast", "exploratory", "data", "metric", "seeds", "margin",
    *(f"{name}{end}" for name in COLUMN for end in ("", "_low", "_high")),
    "posterior_verdict", "advi_verdict", "doubtful", *COUNTS, "note",
)  # fmt: skip
"""Of every contrast and data set: means over data seeds with both ends of their intervals, and the
sums over data seeds of what `DELTA_COLUMNS` counts. Without
sampled cells both verdicts are empty, without ADVI fits that on ADVI is."""


def delta_table(records: Sequence[CellRecord], contrasts: Contrasts) -> pd.DataFrame:
    """Every contrast on every data set and data seed; see `DELTA_COLUMNS`.

    A delta is the mean over the contrast's pairs of cells: over fits, and over settings that it
    does not name. A data seed on which some of these have no results is left out.

    Parameters
    ----------
    records
        Cells of a results folder; those without results, fits of something else than the
        posterior, and those of `refutations` are passed over. Of several ways to sample a
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
    records = standing(records)
    further = sampler_pairs(records, posterior_key)
    later = {
        r.name
        for r, first in further
        if r.cell.without_seeds.inference != first.cell.without_seeds.inference
    }
    usable = [r for r in records if r.results and _method(r) and r.name not in later]
    listed = contrasts.listed or tuple(learned_less_fixed(usable))
    rows = pd.DataFrame(row for contrast in listed for row in _pair_rows(contrast, usable))
    if rows.empty:
        return pd.DataFrame(columns=DELTA_COLUMNS)
    rows["data"] = _data_names(rows.pop("place"))
    _check_one_setting(rows)
    wide = _by_method(_in_one_metric(rows))
    for name in ("reference", "advi"):
        for column in (f"delta_{name}", f"delta_{name}_mcse"):
            wide[column] = wide.get(column, math.nan)
    wide["delta"] = wide["delta_advi"] - wide["delta_reference"]
    wide["delta_mcse"] = np.hypot(wide["delta_advi_mcse"], wide["delta_reference_mcse"])
    wide["exploratory"] = not contrasts.listed
    return wide.reindex(columns=DELTA_COLUMNS)


def learned_less_fixed(records: Iterable[CellRecord]) -> Iterator[Contrast]:
    """Contrasts of every learned scale with every fixed one of the same prior."""
    found: dict[Prior, dict[Hyperprior, float | Tune | None]] = {}
    for cell in (record.cell for record in records):
        scales = found.setdefault(cell.prior, {})
        if cell.has_scale:
            scales[cell.hyperprior] = cell.scale
    for prior, (spec, scales) in zip(distinct(list(found), title), found.items(), strict=True):
        named = list(zip(distinct(list(scales), title), scales, strict=True))
        for learned, first in named:
            for fixed, second in named:
                if scales[first] is None and scales[second] is not None:
                    sides = ({"prior": spec, "hyperprior": side} for side in (first, second))
                    yield Contrast(f"{prior}: {learned} less {fixed}", *map(_selection, sides))


def _selection(specs: Mapping[str, Specification]) -> Selection:
    return {section: spec.model_dump(mode="json") for section, spec in specs.items()}


def verdict_table(deltas: pd.DataFrame, margin: float, random_seed: int = 0) -> pd.DataFrame:
    """Means of deltas with simultaneous intervals, and verdicts; see `VERDICT_COLUMNS`.

    Parameters
    ----------
    deltas
        As `delta_table` makes it.
    margin
        Of practical equivalence, nats an observation.
    random_seed
        Of the draws that the intervals come from.

    Raises
    ------
    RuntimeError
        If those cannot be drawn.
    """
    if deltas.empty:
        return pd.DataFrame(columns=VERDICT_COLUMNS)
    intervals = _intervals(deltas, random_seed)
    entries = deltas.groupby(["contrast", "data"], sort=False)
    rows = [_verdict_row(entry, group, intervals, margin) for entry, group in entries]
    return pd.DataFrame(rows, columns=VERDICT_COLUMNS)


def posterior_verdict(low: float, high: float, margin: float) -> str:
    """Where an interval of `first` less `second` lies: *better*, *worse*, *equivalent*, or in none.

    Ends are in the unit of the margin; where they are not known, it is *undecided*.
    """
    if high < -margin:
        return "better"
    if low > margin:
        return "worse"
    return "equivalent" if -margin < low and high < margin else "undecided"


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
    both = {posterior_verdict(*reference, margin), posterior_verdict(*advi, margin)}
    if both == {"better", "worse"}:
        return "reverses"
    found = posterior_verdict(*delta, margin)
    names = {"equivalent": "faithful", "undecided": "undecided"}
    return names.get(found, "distorts")


def sentence(row: Mapping[str, Any]) -> str:
    """A verdict in plain words; a row of `verdict_table`.

    Without cells of the reference it is what ADVI has of the contrast, by the same margin.
    """
    if math.isnan(row["reference"]):
        ends = row["advi_low"], row["advi_high"]
        words = SAID[posterior_verdict(*ends, row["margin"])].format("ADVI")
        found = f"{row['data']}, {row['contrast']}: {words}{_interval(row, 'advi')}."
    else:
        words = SAID[row["posterior_verdict"]].format("the posterior")
        found = f"{row['data']}, {row['contrast']}: {words}{_interval(row, 'reference')}"
        if row["advi_verdict"]:
            found += f"; {ADVI_SAID[row['advi_verdict']]}{_interval(row, 'delta')}"
        found += "."
    return f"{found} {row['note']}" if row["note"] else found


def _interval(row: Mapping[str, Any], name: str) -> str:
    if not math.isfinite(row[f"{name}_low"]):
        return ""
    mean, low, high = (f"{row[name + end]:+.4f}" for end in ("", "_low", "_high"))
    return f" ({mean} nats, {low} to {high})"


def _method(record: CellRecord) -> str | None:
    """Whether a cell is of the reference or of ADVI; None if of neither."""
    if record.cell.is_sampled:
        return "reference"
    return None if record.cell.is_tempered or record.cell.is_point else "advi"


def _pair_rows(contrast: Contrast, records: Sequence[CellRecord]) -> Iterator[dict[str, Any]]:
    """Each pair of cells of a contrast, with the difference of either metric."""
    try:
        found = pairs(contrast, [record.cell for record in records])
    except AmbiguousError as error:
        raise AmbiguousError(f"The contrast `{contrast.name}` {error}.") from None
    for first, second in ((records[i], records[j]) for i, j in found):
        yield {
            "contrast": contrast.name,
            "place": _place(first, second),
            "seed": first.cell.data_seed,
            "overlap": first.overlap,
            "method": _method(first),
            "setting": first.cell.without_seeds.inference,
            "doubtful": sum(record.status != "converged" for record in (first, second)),
            "not_converged": sum(not has_converged(record) for record in (first, second)),
            "at_grid_end": any(scale_at_grid_end(record) for record in (first, second)),
            **{name: _difference(first, second, name) for name in METRICS},
            **{f"{name}_mcse": _error(first, second, name) for name in METRICS},
        }


def _place(first: CellRecord, second: CellRecord) -> Cell:
    """Data set without its seed, and of network and likelihood what both have."""
    own, other = first.cell.without_seeds, second.cell
    apart = [
        name for name in ("network", "likelihood") if getattr(own, name) != getattr(other, name)
    ]
    left_out = ("prior", "hyperprior", "inference", "predict", *apart)
    return replace(own, sweep="", **dict.fromkeys(left_out))


def _difference(first: CellRecord, second: CellRecord, name: str) -> float:
    values = [record.results.get(name) for record in (first, second)]
    return math.nan if None in values else values[0] - values[1]


def _error(first: CellRecord, second: CellRecord, name: str) -> float:
    """Monte-Carlo standard error of a difference; NaN where that of either is unknown."""
    errors = [record.results.get(f"{name}_mcse") for record in (first, second)]
    return math.nan if None in errors else math.hypot(*errors)


def _data_names(places: pd.Series) -> list[str]:
    """Name of each place; where two would be called the same, with what sets them apart."""
    different = list(dict.fromkeys(places))
    names = distinct(different, lambda place: dataset_title(place.dataset))
    return list(places.map(dict(zip(different, names, strict=True))))


def _check_one_setting(rows: pd.DataFrame) -> None:
    """Raise AmbiguousError if ADVI, or the reference, is several things on a data set."""
    for (data, method), settings in rows.groupby(["data", "method"], sort=False)["setting"]:
        first = settings.iloc[0]
        for other in settings:
            if other != first:
                one, two = (setting.model_dump(mode="json") for setting in (first, other))
                names = [name for name in one | two if one.get(name) != two.get(name)]
                raise AmbiguousError(
                    f"`{data}` must have one `inference` of {method}, got several: they differ in "
                    f"{', '.join(names)}. Sweep each into a folder of its own."
                )


def _in_one_metric(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with ``value`` and ``mcse`` in the one metric of their data set, where they have it."""
    fresh, test = METRICS
    is_fresh = rows[fresh].notna().groupby(rows["data"]).transform("all")
    rows = rows.assign(
        metric=np.where(is_fresh, fresh, test),
        value=rows[fresh].where(is_fresh, rows[test]),
        mcse=rows[f"{fresh}_mcse"].where(is_fresh, rows[f"{test}_mcse"]),
    )
    return rows.dropna(subset="value")


def _by_method(rows: pd.DataFrame) -> pd.DataFrame:
    """Means over pairs, a row a contrast, data set and data seed, methods side by side."""
    keys = ["contrast", "data", "metric", "seed"]
    means = rows.groupby([*keys, "method"], sort=False).agg(
        value=("value", "mean"),
        mcse=("mcse", lambda errors: math.hypot(*errors) / len(errors)),
        overlap=("overlap", "max"),
        doubtful=("doubtful", "sum"),
        not_converged=("not_converged", "sum"),
        at_grid_end=("at_grid_end", "sum"),
        pairs=("value", "size"),
    )
    most = means.groupby(level=["contrast", "data", "method"])["pairs"].transform("max")
    wide = means[means["pairs"] == most].unstack("method")
    found = pd.DataFrame(index=wide.index)
    for method in wide["value"].columns:
        found[f"delta_{method}"] = wide["value", method]
        found[f"delta_{method}_mcse"] = wide["mcse", method]
    found["overlap"] = wide["overlap"].max(axis=1)
    none = pd.Series(0, index=wide.index)
    counts = {
        "doubtful": wide["doubtful"].get("reference", none),
        "advi_cells": 2 * wide["pairs"].get("advi", none),
        "advi_not_converged": wide["not_converged"].get("advi", none),
        "pairs": wide["pairs"].sum(axis=1),
        "at_grid_end": wide["at_grid_end"].sum(axis=1),
    }
    found = found.assign(**{name: n.fillna(0).astype(int) for name, n in counts.items()})
    return found.reset_index()


def _intervals(deltas: pd.DataFrame, random_seed: int) -> dict[tuple, dict[str, float]]:
    """Intervals that hold together, by quantity, contrast and data set."""
    # Not at the top: tables of deltas need neither PyMC nor JAX.
    from pmbnn.compare.hierarchical import joint_intervals
    from pmbnn.inference.xla.compile import use_compilation_cache

    # Most of the time of a table of contrasts is compiling (19 of 32 s of one of four).
    use_compilation_cache()
    numbers = deltas.set_index(["contrast", "data", "seed"])[list(COLUMN.values())].astype(float)
    known = {name: numbers[column].dropna() for name, column in COLUMN.items()}
    overlap = deltas.groupby("data")["overlap"].max().to_dict()
    return joint_intervals(known, random_seed, overlap).T.to_dict()


def _verdict_row(
    entry: tuple[str, str], group: pd.DataFrame, intervals: Mapping, margin: float
) -> dict[str, Any]:
    row = {"contrast": entry[0], "data": entry[1], "margin": margin}
    row |= {name: group[name].iloc[0] for name in ("exploratory", "metric")}
    row["seeds"] = int(group[["delta_reference", "delta_advi"]].count().max())
    ends = {}
    for name, column in COLUMN.items():
        found = intervals.get((name, *entry), {})
        row[name] = found.get("mean", group[column].mean())
        ends[name] = found.get("low", math.nan), found.get("high", math.nan)
        row[f"{name}_low"], row[f"{name}_high"] = ends[name]
    sampled, fitted = (math.isfinite(row[name]) for name in ("reference", "advi"))
    row["posterior_verdict"] = posterior_verdict(*ends["reference"], margin) if sampled else ""
    row["advi_verdict"] = advi_verdict(*ends.values(), margin) if sampled and fitted else ""
    row |= {name: int(group[name].sum()) for name in ("doubtful", *COUNTS)}
    return row | {"note": _note(group, margin)}


def _note(group: pd.DataFrame, margin: float) -> str:
    """What stands in the way of a verdict, or of its being believed."""
    words = []
    for method, name in (("reference", "the reference"), ("advi", "ADVI")):
        if group[f"delta_{method}"].isna().all():
            words.append(f"No cells of {name}.")
    for column, name in (("delta_reference", "the reference"), ("delta_advi", "ADVI")):
        largest = group[f"{column}_mcse"].max()
        if largest > TOLERATED * margin:
            words.append(
                f"Monte-Carlo error of {name} (up to {largest:.2g}) exceeds a tenth of the margin."
            )
    if group["overlap"].max():
        words.append("Data seeds split the same rows: the intervals allow for it.")
    if doubtful := group["doubtful"].sum():
        words.append(f"{doubtful} sampled cells did not converge.")
    counts = group[list(COUNTS)].sum()
    if counts["advi_not_converged"]:
        lost = f"{counts['advi_not_converged']} of {counts['advi_cells']}"
        words.append(f"{lost} fits by ADVI did not converge.")
    if counts["at_grid_end"]:
        at_end = f"{counts['at_grid_end']} of {counts['pairs']}"
        words.append(f"In {at_end} pairs of cells a tuned scale is {AT_GRID_END}.")
    return " ".join(words)
