"""Tables of results: one row a cell, and means over data seeds.

Settings appear in tables under dotted
names (``dataset.noise``), results under their own.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from pmbnn.core.numbers import number_text
from pmbnn.experiment.cells import SOURCES, Cell
from pmbnn.experiment.cost import declared_size
from pmbnn.results.names import (
    distinct,
    group_by_settings,
    grouped,
    section_labels,
    settings_row,
    title,
)
from pmbnn.results.record import (
    CellRecord,
    Counts,
    count,
    learning_rate_at_grid_end,
    scale_at_grid_end,
)

SEED = "dataset.seed"

FIT_SEED = "inference.seed"
"""Seed of the fits: cells that differ in it, or in the data seed, are repetitions."""

MAIN_SCORES = ("accuracy", "rmse", "nll")
"""Scores that cells are compared by: the first that they have."""

AT_END = ("scale_at_grid_end", "learning_rate_at_grid_end")

SCORE_NAMES = {"accuracy": "accuracy", "rmse": "RMSE", "nll": "NLL"}

CORRECTED = "corrected for overlapping splits"
"""Note on a standard error over data seeds that split the same rows anew."""

NOT_RANDOM = "test rows were not drawn at random"
"""Why there is no error over data seeds: they are no sample (`Indices.overlap`)."""

WHERE_CORRECTED = (
    f"standard error over data seeds, {CORRECTED} where they split the same rows anew; of one data "
    "seed, over its fits"
)
"""Meaning of ± in a table of several data sets."""

IN_UNITS = ("rmse", "crps", "output_range", "output_sd", "noise", "target_range", "targets_within")
"""Results that each of several targets has, under names such as ``rmse_height``."""


def metrics_table(records: Iterable[CellRecord]) -> pd.DataFrame:
    """One row a cell: name, status, settings, results, time.

    Columns are in order of first appearance; a cell may lack some values. Where a scale was tuned,
    or a learning rate searched for, ``scale_at_grid_end`` and ``learning_rate_at_grid_end`` say
    whether the chosen one is at an end of its candidates.
    """
    return table_of(_metrics_row(record) for record in records)


def ood_table(records: Iterable[CellRecord]) -> pd.DataFrame:
    """A row for each out-of-distribution set of images shown to a cell, the test images first.

    A set that is unavailable has a ``reason`` instead of numbers. Entropies are in bits.
    """
    return table_of(row for record in records for row in _ood_rows(record))


def summary_table(records: Iterable[CellRecord]) -> pd.DataFrame:
    """Mean and standard error over seeds of every result, one row a combination.

    Failed cells are counted (``failed``) and left out of the means. Of the others
    ``not_converged`` counts fits whose ELBO still rose and chains that disagree, and, where
    something was tuned, ``scale_at_grid_end`` and ``learning_rate_at_grid_end`` those whose choice
    is at an end of its candidates. Rows are in order of first appearance. The standard error
    (``_se``) is that of the mean, missing for a single seed; where ``overlap`` is above zero, it is
    corrected for overlapping splits (`mean_and_error`). Errors that single cells have under such a
    name (``elpd_loo_se``) are in `metrics_table` alone.
    """
    return table_of(_summary_row(group) for group in group_by_settings(records))


STATUS = ("status", "cells", "failed", "not_converged", *AT_END)
"""Columns that say how fits went."""


def readable(table: pd.DataFrame, cells: Sequence[Cell]) -> pd.DataFrame:
    """A table of cells, or of combinations, as its CSV file has it.

    First what a person looks for: the sweep, the data set and its seed, network, prior, hyperprior,
    likelihood and inference by their short names and the seed of the fit, each where it varies;
    then how the fits went, and the results. Last come the cell's name and the settings that vary,
    under dotted names. Settings that do not vary are in ``experiment.yaml``.

    Parameters
    ----------
    table
        As `metrics_table` or `summary_table` makes it.
    cells
        The cell of each row.
    """
    if table.empty:
        return table
    settings = [name for name in table if name.partition(".")[0] in SOURCES]
    varying = [name for name in settings if table[name].map(repr).nunique() > 1 and name != SEED]
    leading = {"sweep": table["sweep"]}
    for section in SOURCES:
        if section != "predict":
            leading[section] = section_labels(cells, section)
        if section == "dataset" and SEED in table:
            leading["seed"] = table[SEED]
        if section == "inference" and FIT_SEED in varying:
            leading[FIT_SEED] = table[FIT_SEED]
    first = pd.DataFrame(leading, index=table.index)
    first = first[[name for name in first if first[name].nunique() > 1]]
    varying = [name for name in varying if name not in first]
    status, last = ([n for n in names if n in table] for names in (STATUS, ("name", *varying)))
    rest = [n for n in table if n not in {"sweep", *settings, *status, *last}]
    return pd.concat([first, table[[*status, *rest, *last]]], axis=1)


def table_of(rows: Iterable[Mapping[str, Any]], dtype: type | None = object) -> pd.DataFrame:
    """Table with every column that some row has, in the order of `union_of_names`.

    As objects unless `dtype` says otherwise: whole numbers beside missing ones stay whole.
    """
    rows = list(rows)
    return pd.DataFrame(rows, columns=union_of_names(rows) if rows else None, dtype=dtype)


def union_of_names(rows: Iterable[Iterable[str]]) -> list[str]:
    """Every name that some row has, once; a name stands after those that precede it in its row.

    The order of the first row counts, and a name that the first row lacks stands in its place,
    not at the end: which row lacks it does not change the order.
    """
    names: list[str] = []
    for row in dict.fromkeys(map(tuple, rows)):
        place = 0
        for name in row:
            if name not in names:
                names.insert(place, name)
            place = names.index(name) + 1
    return names


def _metrics_row(record: CellRecord) -> dict[str, Any]:
    row = {"sweep": record.sweep, "name": record.name, "status": record.status}
    row |= settings_row(record.settings) | _device(record) | record.results
    if record.images is not None:
        row |= settings_row({n: record.images.get(n, {}) for n in ("rejection", "held_out")})
    if (at_end := scale_at_grid_end(record)) is not None:
        row["scale_at_grid_end"] = at_end
    if (at_end := learning_rate_at_grid_end(record)) is not None:
        row["learning_rate_at_grid_end"] = at_end
    return row | {"seconds": record.seconds, "reason": record.reason}


def _device(record: CellRecord) -> dict[str, str]:
    """Device that a cell was fitted on, unless it is the processor."""
    return {} if record.device == "cpu" else {"device": record.device}


def _ood_rows(record: CellRecord) -> Iterator[dict[str, Any]]:
    images = record.images
    if images is None:
        return
    sets = {"test": images["test"]} | images["ood"]
    sets |= {name: {"reason": reason} for name, reason in images["unavailable"].items()}
    head = {"sweep": record.sweep, "name": record.name} | settings_row(record.settings)
    for name, numbers in sets.items():
        single = {k: v for k, v in numbers.items() if not isinstance(v, Mapping)}
        yield head | {"set": name} | single


def _summary_row(group: Sequence[CellRecord]) -> dict[str, Any]:
    usable = [r for r in group if r.results]
    row = {"sweep": group[0].sweep, **_common_settings(group), **_device(group[0])}
    row |= {"cells": len(group), "failed": len(group) - len(usable)}
    row |= count(usable).columns | {"overlap": overlap_of(usable)}
    names = union_of_names(r.results for r in usable)
    for name in names:
        # A standard error of each cell, as of `elpd_loo`, is not that of the mean over seeds.
        if not (name.endswith("_se") and name.removesuffix("_se") in names):
            row[name], row[f"{name}_se"] = mean_over_seeds(usable, name)
    return row


def of_targets(names: Iterable[str], results: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Names of results that are one of some names, those of single targets included.

    Returns
    -------
    dict
        By the name of a result, the one of `names` that it is, and the target in words: `` height``
        of ``rmse_height``, nothing of ``rmse``.
    """
    results, matches = list(dict.fromkeys(results)), {}
    for name in names:
        if name in results:
            matches[name] = name, ""
        for result in results if name in IN_UNITS else ():
            if result.startswith(f"{name}_") and not result.endswith("_mcse"):
                matches[result] = name, f" {result.removeprefix(f'{name}_')}"
    return matches


def _common_settings(group: Sequence[CellRecord]) -> dict[str, Any]:
    """Settings that all records of a group share, without the data seed."""
    common = settings_row(group[0].settings)
    common.pop(SEED, None)
    if any(record.cell.inference != group[0].cell.inference for record in group):
        del common[FIT_SEED]
    return common


def repetitions(group: Iterable[CellRecord], name: str) -> list[float | None]:
    """Values of a result, means over the fits of each data seed; with one seed, of every fit.

    Fits to the same data are not independent of each other: a standard error over all fits would be
    too small.
    """
    return by_data_seed((record, record.results.get(name)) for record in group)


def result_of(records: pd.Series, name: str) -> pd.Series:
    """A result of each of some records, missing where one does not have it."""
    return records.map(lambda record: record.results.get(name)).astype(float)


def by_seed(records: Iterable[CellRecord], name: str) -> pd.Series:
    """A result by data seed, means over the fits of each; missing where a seed has none."""
    values = {i: (r.cell.data_seed, r.results.get(name)) for i, r in enumerate(records)}
    table = pd.DataFrame.from_dict(values, "index", columns=["seed", name])
    return table.astype({name: float}).groupby("seed")[name].mean()


def by_data_seed(values: Iterable[tuple[CellRecord, float | None]]) -> list[float | None]:
    """As `repetitions`, of any values of cells."""
    by_data: dict[Any, list[float | None]] = {}
    for record, value in values:
        by_data.setdefault(record.cell.data_seed, []).append(value)
    if len(by_data) < 2:
        return [value for values in by_data.values() for value in values]
    means = [mean_and_error(values)[0] for values in by_data.values()]
    return [None if math.isnan(mean) else mean for mean in means]


def mean_over_seeds(records: Sequence[CellRecord], name: str) -> tuple[float, float]:
    """Mean of a result over data seeds (of one, over its fits) and its standard error.

    See `mean_and_error`; the overlap is that of the records.
    """
    return mean_and_error(repetitions(records, name), overlap_of(records))


def overlap_of(records: Iterable[CellRecord]) -> float:
    """Test rows for each training row where data seeds split the same rows anew, else zero.

    Zero too where there is one data seed: an error over its fits is of these rows alone. Infinity
    where their test rows were not drawn at random.
    """
    overlaps = {(record.cell.data_seed, record.overlap) for record in records}
    has_several = len({seed for seed, _ in overlaps}) > 1
    return max(overlap for _, overlap in overlaps) if has_several else 0.0


def repeated_words(groups: Iterable[Iterable[CellRecord]]) -> str:
    """Repetitions behind means of groups: ``5 data seeds``, ``3 fits``; empty without any."""
    usable = [[record for record in group if record.results] for group in groups]
    seeds = len({r.cell.data_seed for group in usable for r in group})
    if seeds > 1:
        return f"{seeds} data seeds"
    fits = max(map(len, usable), default=0)
    return f"{fits} fits" if fits > 1 else ""


def accuracy_error(record: CellRecord) -> float | None:
    """Standard error of an accuracy on that many test rows; None if their number is unknown."""
    accuracy = record.results.get("accuracy")
    rows = declared_size(record.cell.dataset, "test")
    rows = rows or (record.images or {}).get("test", {}).get("size")
    if accuracy is None or not rows:
        return None
    return math.sqrt(accuracy * (1 - accuracy) / rows)


def error_note(repeated: str, *overlaps: float) -> str:
    """Note on a ±: ``mean ± standard error over 5 data seeds``, and its correction.

    Parameters
    ----------
    repeated
        As `repeated_words` has it.
    *overlaps
        Of each data set whose means have the note.
    """
    finite = [overlap for overlap in overlaps if math.isfinite(overlap)]
    if not finite:
        return f"mean over {repeated}; no standard error, as {NOT_RANDOM}"
    where = "" if all(finite) else " where data seeds split the same rows anew"
    corrected = f", {CORRECTED}{where}" if any(finite) else ""
    lacking = f"; none where {NOT_RANDOM}" if len(finite) < len(overlaps) else ""
    return f"mean ± standard error over {repeated}{corrected}{lacking}"


def main_score(records: Iterable[CellRecord]) -> str:
    """Name of the score that some cells are compared by."""
    results = {name for record in records for name in record.results}
    return next((name for name in MAIN_SCORES if name in results), MAIN_SCORES[0])


def mean_and_error(values: Sequence[float | None], overlap: float = 0.0) -> tuple[float, float]:
    """Mean and its standard error; not a number where there are too few values.

    Parameters
    ----------
    values
        One for each data seed; missing ones do not count.
    overlap
        Test rows for each training row where data seeds split the same rows anew: the values are
        dependent then, and the squared error is s² (1/n + overlap) in place of s²/n. If it is
        infinite, no error is known.

    References
    ----------
    Nadeau and Bengio (2003), Inference for the Generalization Error, section 5.
    """
    array = np.array([math.nan if value is None else value for value in values], dtype=float)
    array = array[~np.isnan(array)]
    if not array.size:
        return math.nan, math.nan
    mean = array.mean()
    if array.size < 2 or math.isinf(overlap):
        return float(mean), math.nan
    with np.errstate(invalid="ignore"):  # an infinite score less itself
        error = array.std(ddof=1) / math.sqrt(array.size)
    return float(mean), float(error * math.sqrt(1 + array.size * overlap))


# Cells of one data set as a table: a row for each prior, a column for each hyperprior


Place = tuple[int, int]


@dataclass(frozen=True)
class Combinations:
    """Records by row and column.

    Attributes
    ----------
    rows, columns
        Names of the priors and of the hyperpriors, in order of appearance.
    records
        Records at ``(row, column)``: one for each data seed, failed ones among them.
    without_scale
        Rows of priors that have no scale. Their one combination stands under the first
        fixed scale.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    records: Mapping[Place, tuple[CellRecord, ...]]
    without_scale: frozenset[int]

    def finished(self, row: int, column: int) -> list[CellRecord]:
        """Those records of a combination that have results."""
        return [r for r in self.records.get((row, column), ()) if r.results]

    @cached_property
    def cells(self) -> pd.DataFrame:
        """A row for each cell with results, for ``groupby``.

        Its place is in ``row`` and ``column``, their names in ``prior`` and ``hyperprior``;
        ``is_learned`` says whether the scale is, and ``scale`` is a fixed one, missing where it was
        learned or tuned; ``seed`` is that of the data, and ``record`` its record.
        """
        rows = [
            (row, column, self.rows[row], self.columns[column], record)
            for row, column in sorted(self.records)
            for record in self.finished(row, column)
        ]
        table = pd.DataFrame(rows, columns=["row", "column", "prior", "hyperprior", "record"])
        scales = [record.cell.scale for record in table["record"]]
        return table.assign(
            seed=[record.cell.data_seed for record in table["record"]],
            is_learned=[scale is None for scale in scales],
            scale=[scale if isinstance(scale, float | int) else np.nan for scale in scales],
        )

    def absence(self, row: int, column: int) -> str:
        """Why a combination has no results."""
        if (row, column) in self.records:
            return "failed"
        return "no scale" if row in self.without_scale else "not run"

    def score(self, row: int, column: int, name: str) -> tuple[float, float]:
        """Mean of a result over data seeds, or over fits of one, and its standard error."""
        return mean_over_seeds(self.finished(row, column), name)

    def caveats(self, row: int, column: int) -> Counts:
        """How many cells of a combination did not converge, or chose an end of a grid."""
        return count(self.finished(row, column))

    def marks(self, row: int, *columns: int) -> str:
        """Signs that mark combinations in a figure; `mark_notes` explains them."""
        counts = count(record for column in columns for record in self.finished(row, column))
        at_end = counts.scales_at_end or counts.rates_at_end
        return "†" * bool(counts.not_converged) + "‡" * bool(at_end)

    @property
    def mark_notes(self) -> str:
        """Meaning of `marks`, with the number of cells; empty where nothing is marked."""
        return "; ".join(count(self._with_results).marked_words)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of priors and of hyperpriors."""
        return len(self.rows), len(self.columns)

    @property
    def seeds(self) -> int:
        """Number of data seeds among the cells with results."""
        return len({record.cell.data_seed for record in self._with_results})

    @property
    def overlap(self) -> float:
        """How far data seeds are the same rows (`Dataset.overlap`); zero where there is one."""
        return overlap_of(self._with_results)

    @property
    def error_note(self) -> str:
        """Meaning of ± in a figure; empty where nothing is repeated."""
        repeated = repeated_words(self.records.values())
        return error_note(repeated, self.overlap) if repeated else ""

    @property
    def _with_results(self) -> list[CellRecord]:
        return [record for group in self.records.values() for record in group if record.results]


def combine(records: Sequence[CellRecord]) -> Combinations:
    """Table of the records of one data set that differ in prior, hyperprior and seed only."""
    cells = [record.cell for record in records]
    fixed = [cell.hyperprior for cell in cells if cell.has_scale and cell.scale is not None]
    with_scale = [cell.hyperprior for cell in cells if cell.has_scale or not fixed]
    priors = list(dict.fromkeys(cell.prior for cell in cells))
    hyperpriors = list(dict.fromkeys(with_scale))

    def place(record: CellRecord) -> Place:
        prior, hyperprior = record.cell.prior, record.cell.hyperprior
        # A prior without a scale stands under the first fixed scale, if there is one.
        stands_under = hyperprior if hyperprior in hyperpriors else fixed[0]
        return priors.index(prior), hyperpriors.index(stands_under)

    groups = grouped(records, place)
    return Combinations(
        rows=tuple(distinct(priors, title)),
        columns=tuple(distinct(hyperpriors, title)),
        records={at: tuple(group) for at, group in groups.items()},
        without_scale=frozenset(
            row for (row, _), group in groups.items() if not group[0].cell.has_scale
        ),
    )


# Units of results, for headings: those of targets are the units of the data, except for sums over
# all training rows (`STANDARDISED`)


NATS = "nats"

OF_TARGET = "target's units"

STANDARDISED = ("elbo", "log_likelihood", "log_evidence")
"""Sums over all training rows, nats: of standardised targets where a data set standardises them."""

PREFIXES = ("pooled_", "train_")

SUFFIXES = ("_mcse", "_se", "_difference")

UNITS = {
    **dict.fromkeys(
        (
            *("nll", "normal_nll", "excess_nll", "lowest_nll", "validation_nll", "held_out.nll"),
            "elpd_loo",
            *("mean_entropy", "mean_mutual_information", "expected_entropy", "entropy", "kl"),
            *STANDARDISED,
        ),
        NATS,
    ),
    **dict.fromkeys(
        (
            *("rmse", "crps", "mean_total_sd", "mean_epistemic_sd", "output_range", "output_sd"),
            *("noise", "target_range", "band_inside", "smallest_sd"),
            *("width_95", "conformal_width_95"),
        ),
        OF_TARGET,
    ),
    "seconds": "seconds",
}
"""Units by the name of a result; others are shares, ratios or counts."""

OF_TARGETS = ("mean_at_", "band_at_", "sd_at_", *(f"{n}_" for n in IN_UNITS if n in UNITS))
"""Starts of names whose numbers are in the target's units."""


def unit_of(name: str) -> str:
    """Unit of a result; empty where it has none."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return UNITS.get(name, OF_TARGET if name.startswith(OF_TARGETS) else "")


def score_text(
    name: str,
    value: float | None,
    error: float | None = None,
    *,
    decimals: int | None = None,
    digits: int = 4,
    signed: bool = False,
) -> str:
    """A result and its standard error as text.

    One in the target's units, whose size nothing tells, has significant digits in place of
    decimals, and is never zero but for rounding.
    """
    if unit_of(name) == OF_TARGET:
        return number_text(value, error, digits=digits, signed=signed, rounding=0.0)
    return number_text(value, error, decimals=decimals, digits=digits, signed=signed)


def with_unit(words: str, name: str, standardised: bool = False) -> str:
    """A heading with the unit of a result: ``NLL (nats)``.

    Parameters
    ----------
    standardised
        Whether the rows are of numbers, whose targets a data set may standardise.
    """
    unit = unit_of(name)
    if standardised and name in STANDARDISED:
        unit = f"{unit}, standardised targets"
    return f"{words} ({unit})" if unit else words
