"""Every comparison of a results folder as one table: ``claims.csv``."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from pmbnn.compare.measures import CellMeasures, read_measures
from pmbnn.compare.paired import paired_rows
from pmbnn.compare.scales import scale_rows
from pmbnn.figures.processes import ALONE, Helpers
from pmbnn.inference.stages import stage
from pmbnn.results.combinations import Combinations, combine
from pmbnn.results.record import CellRecord
from pmbnn.results.store import Results
from pmbnn.results.tables import mean_and_error, union_of_names
from pmbnn.results.titles import data_title
from pmbnn.results.variants import Variant, families

FILE = "claims.csv"
"""File of a results folder that holds its table."""

SPARSITY = "sparsity of the last layer"
BOUNDARY = "uncertainty at the true boundary"
HYPERPRIORS = "learned scale less fixed scale"
SCALES = "scales"

CLAIMS = (SPARSITY, BOUNDARY, HYPERPRIORS, SCALES)
"""What a row may be about, in the order in which tables are printed."""

COLUMNS = (
    "experiment", "sweep", "data", "variant", "claim", "prior", "hyperprior", "against", "measure",
    "mean", "se", "seeds",
)  # fmt: skip
"""Of every row: ``mean`` over data seeds, its standard error ``se`` (NaN for one seed)."""


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
    variants = [variant for family in families(records) for variant in family]
    rows = [
        {column: row.get(column, "") for column in COLUMNS} | {"experiment": experiment}
        for variant in variants
        for row in _variant_rows(variant, measures)
    ]
    return pd.DataFrame(rows, columns=COLUMNS)


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
    return table.reindex(columns=COLUMNS)


def _variant_rows(
    variant: Variant, measures: Mapping[str, CellMeasures]
) -> Iterator[dict[str, Any]]:
    """Rows of the cells that differ in prior, hyperprior and data seed only."""
    first = variant.records[0]
    combinations = combine(variant.records)
    head = {"sweep": first.sweep, "data": data_title(first), "variant": "; ".join(variant.words)}
    learned = {name: found.scales for name, found in measures.items()}
    found = {
        SPARSITY: _measured(combinations, {n: f.sparsity for n, f in measures.items()}),
        BOUNDARY: _measured(combinations, {n: f.boundary for n, f in measures.items()}),
        HYPERPRIORS: paired_rows(combinations),
        SCALES: scale_rows(combinations, learned),
    }
    for claim, rows in found.items():
        for row in rows:
            yield head | {"claim": claim} | row


def _measured(
    combinations: Combinations, measures: Mapping[str, Mapping[str, float]]
) -> Iterator[dict[str, Any]]:
    """Means of the measures of cells over data seeds, for every combination."""
    for row, prior in enumerate(combinations.rows):
        for column, hyperprior in enumerate(combinations.columns):
            cells = [measures[r.name] for r in combinations.finished(row, column)]
            held = [cell for cell in cells if cell]
            for name in union_of_names(held):
                mean, error = mean_and_error([cell.get(name) for cell in held])
                scale = "no scale" if row in combinations.without_scale else hyperprior
                numbers = {"mean": mean, "se": error, "seeds": sum(name in cell for cell in held)}
                yield {"prior": prior, "hyperprior": scale, "measure": name} | numbers
