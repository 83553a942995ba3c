"""Every comparison of a results folder as one table: ``claims.csv``."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from pmbnn.compare.measures import CellMeasures, read_measures
from pmbnn.compare.paired import paired_rows
from pmbnn.compare.scales import scale_rows
from pmbnn.core.stages import stage
from pmbnn.processes.helpers import ALONE, Helpers
from pmbnn.results.caveats import AT_GRID_END, count
from pmbnn.results.combinations import Combinations, combine
from pmbnn.results.groups import Variant, variants
from pmbnn.results.names import dataset_title
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.results.tables import by_data_seed, mean_and_error, overlap_of, union_of_names
from pmbnn.results.units import NATS

FILE = "claims.csv"
"""File of a results folder that holds its table."""

SPARSITY = "sparsity of the last layer"
BOUNDARY = "uncertainty at the true boundary"
HYPERPRIORS = "learned scale less fixed scale"
SCALES = "scales"

CLAIMS = (SPARSITY, BOUNDARY, HYPERPRIORS, SCALES)
"""What a row may be about, in the order in which tables are printed."""

KEYS = (
    "experiment", "sweep", "data", "variant", "claim", "prior", "hyperprior", "against", "measure",
)  # fmt: skip
"""Columns that say what a row is of."""

COLUMNS = (
    *KEYS, "unit", "mean", "se", "seeds", "overlap", "cells", "not_converged", "at_grid_end",
)  # fmt: skip
"""Of every row: ``mean`` over data seeds, in ``unit`` (empty of shares, counts and scales), its
standard error ``se`` (NaN for one seed), which is corrected for overlapping splits where
``overlap`` is above zero (`mean_and_error`); the number of ``cells``, or pairs of cells, that it is
of; of these, those that had not converged, and those whose fixed scale is at an end of the grid
that it was chosen from."""


COUNTS = ("cells", "not_converged", "at_grid_end")
"""Columns that say how far a row can be relied on."""


def claims_table(
    experiment: str, results: Results, records: Sequence[CellRecord], helpers: Helpers = ALONE
) -> pd.DataFrame:
    """All comparisons that the cells of a results folder allow; see `COLUMNS`.

    Parameters
    ----------
    experiment
        Name that the rows carry.
    results
        Where the traces are.
    records
        Cells to take; failed ones are passed over.
    helpers
        That share the reading of traces.
    """
    shown = [record for record in records if record.results]
    reads = [partial(read_measures, results, record) for record in shown]
    with stage("comparing", len(shown), "cell") as went_on:
        read = helpers.share(reads, went_on)
    measures = {record.name: found for record, found in zip(shown, read, strict=True)}
    rows = [
        {column: row.get(column, 0 if column in COUNTS else "") for column in COLUMNS}
        | {"experiment": experiment}
        for variant in variants(records)
        for row in _variant_rows(variant, measures)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


def unit_of_measure(measure: str) -> str:
    """Unit of a measure; empty of a share, a count or a scale."""
    is_scale_or_share = measure.startswith(("best by", "share of"))
    return NATS if "NLL" in measure and not is_scale_or_share else ""


def against_words(row: Mapping[str, Any]) -> list[str]:
    """What there is to say against a row: its cells, or pairs, by what they lack."""
    words = {"not_converged": "not converged", "at_grid_end": f"scale {AT_GRID_END}"}
    return [
        f"{row[name]:g} of {row['cells']:g} {said}" for name, said in words.items() if row[name]
    ]


def write_claims(path: Path, table: pd.DataFrame) -> None:
    """Write a table of comparisons, whole or not at all; one without rows leaves no file.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    Results(path.parent).replace_table(path.name, table)


def read_claims(path: Path) -> pd.DataFrame:
    """The table that such a file holds, without rows where there is none."""
    if not path.is_file():
        return pd.DataFrame(columns=COLUMNS)
    table = pd.read_csv(path, keep_default_na=False, na_values={"mean": [""], "se": [""]})
    table = table.reindex(columns=COLUMNS)
    # Tables of earlier versions do not have all columns.
    numbers = ["overlap", *COUNTS]
    return table.assign(**{name: table[name].fillna(0) for name in numbers})


def _variant_rows(
    variant: Variant, measures: Mapping[str, CellMeasures]
) -> Iterator[dict[str, Any]]:
    """Rows of the cells that differ in prior, hyperprior and data seed only."""
    first = variant.records[0]
    combinations = combine(variant.records)
    head = {
        "sweep": first.sweep,
        "data": dataset_title(first.cell.dataset),
        "variant": "; ".join(variant.words),
    }
    learned = {name: found.scales for name, found in measures.items()}
    head["overlap"] = combinations.overlap
    found = {
        SPARSITY: _measured(combinations, {n: f.sparsity for n, f in measures.items()}),
        BOUNDARY: _measured(combinations, {n: f.boundary for n, f in measures.items()}),
        HYPERPRIORS: paired_rows(combinations),
        SCALES: scale_rows(combinations, learned),
    }
    for claim, rows in found.items():
        for row in rows:
            yield head | {"claim": claim, "unit": unit_of_measure(row["measure"])} | row


def _measured(
    combinations: Combinations, measures: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    """Means of the measures of cells over data seeds, for every combination."""
    for row, prior in enumerate(combinations.rows):
        for column, hyperprior in enumerate(combinations.columns):
            records = [r for r in combinations.finished(row, column) if measures[r.name]]
            for name in union_of_names(measures[r.name] for r in records):
                held = [r for r in records if name in measures[r.name]]
                values = by_data_seed((r, measures[r.name][name]) for r in held)
                mean, error = mean_and_error(values, overlap_of(held))
                scale = "no scale" if row in combinations.without_scale else hyperprior
                numbers = {"mean": mean, "se": error, "seeds": len(values), "cells": len(held)}
                counts = count(held)
                numbers["not_converged"] = counts.not_converged
                numbers["at_grid_end"] = counts.scales_at_end
                yield {"prior": prior, "hyperprior": scale, "measure": name} | numbers
